"""What all pages share: filters in the URL, links and downloads, the ink of the mode, and errors in words."""

from __future__ import annotations

import functools
import io
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import ParamSpec
from urllib.parse import quote, urlencode

import polars as pl
import streamlit as st

from dashboard import data, figures, parts, theme
from dashboard.records import ServiceVerdict
from ingest.errors import AppError

P = ParamSpec("P")

ALL = "All services"
NEWEST = "Newest"
FEW = 6
"""Up to so many services are shown side by side; more go into a list."""

FORMULA = r"^[=+\-@\t\r]"
"""What makes a spreadsheet calculate a text instead of showing it."""


@dataclass(frozen=True)
class Filters:
    """What a page is about. `service` None: all of them; a bound of None: open; `run_id` None: the newest run."""

    service: str | None
    since_ns: int | None
    """First nanosecond looked at."""
    until_ns: int | None
    """First nanosecond not looked at any more."""
    run_id: str | None


def page(view: Callable[P, None]) -> Callable[P, None]:
    """`view`, of a page or of a part of one, with errors that a user can act on shown as a state of the page."""

    @functools.wraps(view)
    def shown(*given: P.args, **named: P.kwargs) -> None:
        try:
            view(*given, **named)
        except AppError as error:
            st.html(parts.empty("This home cannot be read", f"{error.message} {error.hint}".strip()))

    return shown


def ink() -> theme.Ink:
    return theme.ink(st.context.theme.type)


def newest(runs: Sequence[data.Run]) -> dict[str, ServiceVerdict]:
    """Each service's verdict of the newest run that has one, in the order of names."""
    found: dict[str, ServiceVerdict] = {}
    for run in runs:
        for name, verdict in run.services.items():
            found.setdefault(name, verdict)
    return dict(sorted(found.items()))


# ---- filters


def filters(at: str, names: Sequence[str], *, every: bool, time: bool = False, runs: Sequence[str] = ()) -> Filters:
    """Draws the controls of page `at` and keeps them in the URL: `service`, `from` and `to` (days), `run`.

    `runs` are the runs to choose from, newest first; with fewer than two of them there is nothing to choose.
    """
    arrived = st.session_state.get("page") != at
    st.session_state["page"] = at
    chosen = run_id = None
    since = until = None
    with st.container(horizontal=True, vertical_alignment="bottom", key=f"filters-{at}"):
        if names:
            chosen = _service(at, names, every=every, arrived=arrived)
        if time:
            since, until = _days(at, arrived=arrived)
        if len(runs) > 1:
            run_id = _run(at, runs, arrived=arrived)
    return Filters(chosen, _start_ns(since), None if until is None else _start_ns(until + timedelta(days=1)), run_id)


def service(at: str, names: Sequence[str], *, every: bool) -> str | None:
    """The service in the URL, with a control to change it; None for all of them (offered where `every`).

    A page that is opened without one keeps the service of the page before."""
    return filters(at, names, every=every).service


def _service(at: str, names: Sequence[str], *, every: bool, arrived: bool) -> str | None:
    wanted = _carried("service", arrived)
    options = [ALL, *names] if every else list(names)
    picked = wanted if wanted in names else options[0]
    key = f"service-{at}"
    st.session_state[key] = picked
    remember(None if picked == ALL else picked)
    change = functools.partial(_changed, key)
    if len(options) > FEW:
        st.selectbox("Service", options, key=key, on_change=change, width=280)
    else:
        st.segmented_control(
            "Service", options, key=key, on_change=change, format_func=parts.plain, label_visibility="collapsed"
        )
    return None if picked == ALL else picked


def _changed(key: str) -> None:
    picked = st.session_state.get(key)
    if picked is not None:
        remember(None if picked == ALL else picked)


def remember(name: str | None) -> None:
    """Writes the service into the URL and the session; None takes it out of both."""
    _carry("service", name)


def _days(at: str, *, arrived: bool) -> tuple[date | None, date | None]:
    since, until = _day(_carried("from", arrived)), _day(_carried("to", arrived))
    if since is not None and until is not None and until < since:
        since, until = until, since
    columns = {"from": (since, None, until), "to": (until, since, None)}
    for name, (value, low, high) in columns.items():
        key = f"{name}-{at}"
        st.session_state[key] = value
        _carry(name, None if value is None else value.isoformat())
        st.date_input(
            f"{figures.capital(name)} (UTC)",
            key=key,
            value=None,
            min_value=low or date(2000, 1, 1),
            max_value=high or date(2199, 12, 31),
            format="YYYY-MM-DD",
            on_change=functools.partial(_day_changed, name, key),
            width=150,
        )
    return since, until


def _day_changed(name: str, key: str) -> None:
    picked = st.session_state.get(key)
    _carry(name, picked.isoformat() if isinstance(picked, date) else None)


def _day(text: str | None) -> date | None:
    try:
        found = None if text is None else date.fromisoformat(text)
    except ValueError:
        return None
    return found if found is not None and 2000 <= found.year <= 2199 else None


def _start_ns(day: date | None) -> int | None:
    if day is None:
        return None
    return int(datetime(day.year, day.month, day.day, tzinfo=UTC).timestamp()) * 1_000_000_000


def _run(at: str, runs: Sequence[str], *, arrived: bool) -> str | None:
    wanted, key = _carried("run", arrived), f"run-{at}"
    picked = wanted if wanted in runs else NEWEST
    st.session_state[key] = picked
    _carry("run", None if picked == NEWEST else picked)
    st.selectbox("Run", [NEWEST, *runs], key=key, on_change=functools.partial(_run_changed, key), width=220)
    return None if picked == NEWEST else picked


def _run_changed(key: str) -> None:
    picked = st.session_state.get(key)
    _carry("run", None if picked in (None, NEWEST) else str(picked))


def _carried(name: str, arrived: bool) -> str | None:
    """A filter's text in the URL; a page that was just opened without it takes over the one of the page before."""
    url = st.query_params.get(name)
    return url if url is not None or not arrived else st.session_state.get(name)


def _carry(name: str, value: str | None) -> None:
    st.session_state[name] = value
    keep(name, value)


def kept(name: str, default: str, options: Sequence[str] | None = None) -> str:
    """The value of a page's own control as the URL has it; `default` without one, or with none of the `options`."""
    found = st.query_params.get(name)
    return default if found is None or (options is not None and found not in options) else found


def keep(name: str, value: str | None) -> None:
    """Writes a value into the URL; None and "" take it out."""
    if not value:
        st.query_params.pop(name, None)
    elif st.query_params.get(name) != value:
        st.query_params[name] = value


# ---- links and downloads


def link(view: str, **params: object) -> str:
    """An address in this dashboard, for `href`: `link("traces", service="shop", trace=id)`. None and "" are left out.

    It is relative to any page, so it holds behind a proxy's path too; give the `<a>` target="_self".
    """
    said = {name: str(value) for name, value in params.items() if value not in (None, "")}
    return quote(view) + (f"?{urlencode(said)}" if said else "")


def trace_link(trace_id: str) -> str | None:
    """The trace in the user's own trace viewer; None where retroute.toml names none."""
    template = data.settings().trace_url
    return template.replace("{trace_id}", quote(trace_id, safe="")) if template else None


def download(frame: pl.DataFrame, name: str, key: str) -> None:
    """Two buttons that give what is shown as CSV and as Parquet; the files are made when asked for."""
    with st.container(horizontal=True, key=f"download-{key}"):
        for form, make, mime in (
            ("CSV", csv, "text/csv"),
            ("Parquet", parquet, "application/vnd.apache.parquet"),
        ):
            st.download_button(
                form,
                functools.partial(make, frame),
                file_name=f"{name}.{form.lower()}",
                mime=mime,
                key=f"{form.lower()}-{key}",
                icon=":material/download:",
                help=f"What is shown, as {form}",
                on_click="ignore",
                type="tertiary",
            )


def csv(frame: pl.DataFrame) -> bytes:
    """`frame` as CSV. A text that a spreadsheet would calculate gets an apostrophe before it; lists become JSON."""
    return frame.with_columns(_plain(name, kind) for name, kind in frame.schema.items()).write_csv().encode()


def _plain(name: str, kind: pl.DataType) -> pl.Expr:
    column = pl.col(name)
    if kind.is_nested():
        return column.map_elements(_json, return_dtype=pl.String)
    if kind in (pl.String, pl.Categorical, pl.Enum):
        text = column.cast(pl.String)
        return pl.when(text.str.contains(FORMULA)).then(pl.concat_str(pl.lit("'"), text)).otherwise(text).alias(name)
    return column


def _json(value: object) -> str:
    return json.dumps(value.to_list() if isinstance(value, pl.Series) else value, default=str)


def parquet(frame: pl.DataFrame) -> bytes:
    """`frame` as Parquet, exactly as it is."""
    buffer = io.BytesIO()
    frame.write_parquet(buffer)
    return buffer.getvalue()


# ---- states


def problems(runs: Sequence[data.Run]) -> None:
    """One line for each run that cannot be read."""
    for run in runs:
        if run.problem:
            st.html(parts.notice(f"Run {run.run_id} is left out: {run.problem}"))


def no_runs() -> None:
    """The state before the first run: what to do depends on what is there."""
    place = data.home()
    if data.has_lake():
        title, text = (
            "No verdict yet",
            (
                "Telemetry is here, but no run has looked at it. "
                "A run finds the decisions, learns a policy and says what it is worth."
            ),
        )
        command = f"retroute nightly --home {place}"
    else:
        title, text = (
            "Nothing has arrived yet",
            (
                f"{place} holds no telemetry. See the whole loop on sample data, "
                "or start a collector and point your OpenTelemetry exporter at it."
            ),
        )
        command = f"retroute demo --home {place}\nretroute collect --home {place}"
    st.html(parts.empty(title, text, command))
