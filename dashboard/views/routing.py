"""Suggested routing: what would change at each decision point, and the policies exported so far."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import streamlit as st

from dashboard import bars, data, figures, parts, sections
from dashboard.records import Point, ServiceVerdict
from dashboard.views import frame

NEWEST = 10
"""Policies listed before the reader asks for all of them."""


@frame.page
def page() -> None:
    runs = data.runs()
    verdicts, judged = frame.newest(runs), [run for run in runs if run.services]
    if not verdicts:
        st.html(parts.page_title("Suggested routing", "Today's share and the suggestion's, at each decision point."))
        frame.problems(runs)
        frame.no_runs()
        return
    picked = frame.filters("routing", list(verdicts), every=False, runs=[run.run_id for run in judged])
    frame.problems(runs)
    if picked.service is None:
        return
    wanted = [run for run in judged if picked.service in run.services and picked.run_id in (None, run.run_id)]
    if wanted:
        _suggestion(wanted[0].services[picked.service])
    else:
        st.html(parts.empty("Not judged in this run", f"Run {picked.run_id} says nothing of {picked.service}."))
    _exported(runs, picked.service)


def _suggestion(verdict: ServiceVerdict) -> None:
    st.html(sections.suggestion_head(verdict))
    if not verdict.points:
        st.html(parts.empty("No decision point found", "No step of this service was seen to choose between actions."))
    for point in verdict.points:
        _point(point)
    st.html(sections.way("Who gains and who loses by it", frame.link("segments", service=verdict.service)))
    href = frame.link("traces", service=verdict.service, decision="changed")
    st.html(sections.way("The traces it would decide otherwise", href))
    if verdict.costs is not None and verdict.costs.switching:
        about = "What was cached for one model is not cached for another. Not in the savings above."
        st.html(parts.heading("Switching inside a session", about))
        for said in verdict.costs.switching:
            st.html(parts.remark(figures.capital(figures.sentence(said))))


def _point(point: Point) -> None:
    st.html(parts.heading(point.name, f"Decision point, {figures.counted(point.decisions, 'decision')} in the log."))
    left, right = st.columns([3, 2], gap="large")
    with left:
        st.html(parts.pair())
        st.altair_chart(bars.shares(point.actions, frame.ink()), key=f"shares-{point.name}")
    with right:
        st.html(sections.point(point))
    if point.rules is not None:
        agrees = figures.share(point.rules.fidelity)
        st.html(
            parts.heading("In words", f"For people to read; the policy itself chooses so in {agrees} of decisions.")
        )
        st.html(sections.rules(point.rules))


def _exported(runs: Sequence[data.Run], service: str) -> None:
    st.html(parts.heading("Policies so far", "Every run keeps its policy. A bundle is what LiteLLM's proxy loads."))
    found = [(run, run.services[service]) for run in runs if service in run.services]
    active = data.active().get(service)
    shown = found if st.session_state.get("all-policies") else found[:NEWEST]
    for run, verdict in shown:
        with st.container(border=True, key=f"made-{run.run_id}"):
            told, policy, bundle = st.columns([6, 2, 2], vertical_alignment="center")
            told.html(sections.policy(verdict, run.created_at, active=run.run_id == active))
            with policy:
                _download("Policy", verdict, data.policy_folder(verdict), "policy")
            with bundle:
                _download("Bundle", verdict, data.bundle_folder(verdict), "bundle")
    if len(found) > len(shown):
        st.button(f"Show all {len(found)}", key="all", on_click=_show_all)


def _show_all() -> None:
    st.session_state["all-policies"] = True


def _download(label: str, verdict: ServiceVerdict, folder: Path | None, kind: str) -> None:
    if folder is None:
        st.html(parts.remark(f"No {kind}"))
        return
    st.download_button(
        label,
        data.zipped(folder),
        file_name=f"{verdict.service}-{verdict.run_id}-{kind}.zip",
        mime="application/zip",
        key=f"{kind}-{verdict.run_id}",
        icon=":material/download:",
        on_click="ignore",
        width="stretch",
    )
