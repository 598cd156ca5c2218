"""Spend: where does the money go? Before any run, from the first priced call on."""

from __future__ import annotations

import functools
import time
from collections.abc import Mapping
from datetime import UTC, datetime

import polars as pl
import streamlit as st

from dashboard import data, parts, spend_charts, spend_data, spend_sections
from dashboard.spend_data import GROUPS, LEVELS, OTHER, PER, UNNAMED, Spend
from dashboard.views import frame

TITLE, NOTE = "Spend", "Where does the money go?"


@frame.page
def page() -> None:
    st.html(parts.page_title(TITLE, NOTE))
    if not data.has_lake():
        frame.no_runs()
        return
    seen = data.lake("services_seen")
    services = [name for name in seen["service"].to_list() if name]
    if not services:
        text = "A call is counted a few seconds after the last span of its trace, when the trace is settled."
        st.html(parts.empty("No call yet", text, f"retroute collect --home {data.home()}"))
        return
    chosen = frame.filters("spend", services, every=True, time=True)
    asked = spend_data.window(seen, chosen.service, chosen.since_ns, chosen.until_ns, time.time_ns())
    found = None if asked is None else spend_data.load(asked, chosen.service)
    if found is None or not found.totals.calls:
        st.html(parts.empty("No call in this time", "No call of the chosen services started then. Choose other days."))
        return
    st.html(parts.lead(spend_sections.lead(found.totals, found.before, found.window)))
    st.html(parts.facts_row(spend_sections.facts(found.totals, found.before, found.cache)))
    if found.totals.cost_usd > 0:
        _time(found)
        _down(found, chosen)
    else:
        st.html(parts.remark("Nothing here has a cost: no call has a price, or none was charged."))
    _groups(found, chosen)


def _time(found: Spend) -> None:
    st.html(parts.heading("Over time, by token class", spend_sections.cached(found.cache)))
    per = _switch("per", "total", PER, "Over time")
    times = spend_data.over_time(found, per)
    st.altair_chart(spend_charts.over_time(times, found.window.step_ns, frame.ink(), per), key="over-time")


def _down(found: Spend, chosen: frame.Filters) -> None:
    boxes = spend_data.icicle(found.steps)
    bounds = _bounds(chosen)
    hrefs = [_traces_of(row, bounds) for row in boxes.select(LEVELS).iter_rows(named=True)]
    st.html(
        parts.heading(
            "From the service down to the model",
            "As wide as what it cost: service, agent, step, model. A click opens the traces.",
        )
    )
    chart = spend_charts.icicle(boxes.with_columns(href=pl.Series(hrefs, dtype=pl.String)), frame.ink())
    st.altair_chart(chart, key="icicle")


def _traces_of(box: dict[str, str | None], bounds: dict[str, str | None]) -> str:
    named = {name: box[name] for name in ("service", "agent", "model") if box[name] not in (None, UNNAMED, "…")}
    return frame.link("traces", **{**bounds, **named})


def _groups(found: Spend, chosen: frame.Filters) -> None:
    st.html(parts.heading("By what", f"The {spend_data.SHOWN} dearest by themselves, the rest as {OTHER}."))
    by = _switch("by", "model", GROUPS, "Group by")
    rows = spend_data.grouped(found, by, chosen.service)
    if not rows.height:
        st.html(parts.remark(f"No call names its {GROUPS[by].lower()}."))
        return
    st.html(spend_sections.groups(rows, by, GROUPS[by], found.totals, frame.link, _bounds(chosen)))
    frame.download(rows, f"spend-by-{by}", "spend")


def _switch(name: str, default: str, options: Mapping[str, str], label: str) -> str:
    """A choice that the URL keeps under `name`; `options` say each in words."""
    chosen, key = frame.kept(name, default, list(options)), f"spend-{name}"
    st.session_state[key] = chosen
    st.segmented_control(
        label,
        list(options),
        format_func=options.__getitem__,
        key=key,
        on_change=functools.partial(_switched, name, key),
        label_visibility="collapsed",
    )
    return chosen


def _switched(name: str, key: str) -> None:
    if picked := st.session_state.get(key):
        frame.keep(name, picked)


def _bounds(chosen: frame.Filters) -> dict[str, str | None]:
    """The page's filters as parameters of a link."""
    last = None if chosen.until_ns is None else chosen.until_ns - 1
    return {"service": chosen.service, "from": _day(chosen.since_ns), "to": _day(last)}


def _day(at_ns: int | None) -> str | None:
    return None if at_ns is None else datetime.fromtimestamp(at_ns // 10**9, UTC).strftime("%Y-%m-%d")
