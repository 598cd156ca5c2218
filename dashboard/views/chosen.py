"""The service and the run that a page of evidence is about."""

from __future__ import annotations

from dataclasses import dataclass

import streamlit as st

from dashboard import data, parts
from dashboard.records import ServiceVerdict
from dashboard.views import frame


@dataclass(frozen=True)
class Chosen:
    verdict: ServiceVerdict
    run: data.Run


def chosen(at: str, title: str, question: str) -> Chosen | None:
    """Draws the page's title and filters; None where there is nothing to show, which the page then says."""
    runs = data.runs()
    judged = [run for run in runs if run.services]
    verdicts = frame.newest(runs)
    if not verdicts:
        st.html(parts.page_title(title, question))
        frame.problems(runs)
        frame.no_runs()
        return None
    picked = frame.filters(at, list(verdicts), every=False, runs=[run.run_id for run in judged])
    frame.problems(runs)
    service = picked.service or next(iter(verdicts))
    wanted = [run for run in judged if service in run.services and picked.run_id in (None, run.run_id)]
    st.html(parts.page_title(title, question))
    if not wanted:
        text = f"Run {picked.run_id} says nothing of {service}. Choose another run, or the newest one."
        st.html(parts.empty("Not judged in this run", text))
        return None
    return Chosen(wanted[0].services[service], wanted[0])
