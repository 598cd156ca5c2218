"""What all pages share: the service in the URL, the ink of the mode, and errors in words."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

import streamlit as st

from dashboard import data, parts, theme
from dashboard.records import ServiceVerdict
from ingest.errors import AppError

ALL = "All services"
FEW = 6
"""Up to so many services are shown side by side; more go into a list."""


def page(view: Callable[[], None]) -> Callable[[], None]:
    """`view` with errors that a user can act on shown as a state of the page."""

    @functools.wraps(view)
    def shown() -> None:
        try:
            view()
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


def service(at: str, names: Sequence[str], *, every: bool) -> str | None:
    """The service in the URL, with a control to change it; None for all of them (offered where `every`).

    A page that is opened without one keeps the service of the page before."""
    url = st.query_params.get("service")
    arrived = st.session_state.get("page") != at
    st.session_state["page"] = at
    wanted = url if url is not None or not arrived else st.session_state.get("service")
    options = [ALL, *names] if every else list(names)
    picked = wanted if wanted in names else options[0]
    key = f"service-{at}"
    st.session_state[key] = picked
    remember(None if picked == ALL else picked)
    change = functools.partial(_changed, key)
    if len(options) > FEW:
        st.selectbox("Service", options, key=key, on_change=change, width=280)
    else:
        st.segmented_control("Service", options, key=key, on_change=change, label_visibility="collapsed")
    return None if picked == ALL else picked


def _changed(key: str) -> None:
    picked = st.session_state.get(key)
    if picked is not None:
        remember(None if picked == ALL else picked)


def remember(name: str | None) -> None:
    """Writes the service into the URL and the session; None takes it out of both."""
    st.session_state["service"] = name
    if name is None:
        st.query_params.pop("service", None)
    elif st.query_params.get("service") != name:
        st.query_params["service"] = name


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
