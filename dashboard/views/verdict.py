"""Verdict: what is the suggestion worth, how certain is that, what could go wrong, and what to do next?"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

import streamlit as st

from dashboard import (
    axes,
    brief,
    charts,
    data,
    estimators_data,
    estimators_sections,
    figures,
    parts,
    sections,
    segments_data,
    theme,
    words,
)
from dashboard.records import Figure, ServiceVerdict
from dashboard.views import connect, frame
from ingest.errors import AppError

WORTH = ("deploy", "promising")
"""Verdicts that a month's saving is told of in the overview: what is not suggested saves nothing."""


@frame.page
def page() -> None:
    runs = data.runs()
    if not frame.newest(runs):
        frame.problems(runs)
        connect.guide()
        return
    judged = [run for run in runs if run.services]
    names = list(frame.newest(runs))
    picked = frame.filters("verdict", names, every=True, time=True, runs=[run.run_id for run in judged])
    frame.problems(runs)
    shown = _within(judged, picked)
    verdicts = frame.newest(shown)
    if picked.service is None and verdicts:
        _overview(verdicts)
    elif picked.service in verdicts:
        verdict = verdicts[picked.service]
        _service(verdict, {run.run_id: run for run in shown}[verdict.run_id])
    else:
        text = "No run of these days, or not the one that was chosen, judged this service. Widen the filters."
        st.html(parts.empty("No verdict here", text))


def _within(runs: Sequence[data.Run], picked: frame.Filters) -> list[data.Run]:
    """The runs that were made in the days of the filters; of a chosen one, that one."""
    return [
        run
        for run in runs
        if picked.run_id in (None, run.run_id)
        and (picked.since_ns is None or (_made_ns(run) or 0) >= picked.since_ns)
        and (picked.until_ns is None or (_made_ns(run) or 0) < picked.until_ns)
    ]


def _made_ns(run: data.Run) -> int | None:
    try:
        made = datetime.fromisoformat(run.created_at)
    except ValueError:
        return None
    made = made if made.tzinfo else made.replace(tzinfo=UTC)
    return int(made.timestamp() * 1e9)


def _overview(verdicts: dict[str, ServiceVerdict]) -> None:
    st.html(parts.page_title("What your logs say", words.tally(list(verdicts.values()))))
    for verdict in words.ranked(list(verdicts.values())):
        with st.container(border=True):
            told, more = st.columns([8, 1], vertical_alignment="center", gap="medium")
            told.html(sections.card(verdict, _month(verdict) if verdict.outcome in WORTH else None))
            more.button(
                "Open",
                key=f"open-{verdict.service}",
                help=f"The evidence on {parts.plain(verdict.service)}",
                on_click=frame.remember,
                args=(verdict.service,),
                width="stretch",
            )
    st.html(parts.kinds())


def _service(verdict: ServiceVerdict, run: data.Run) -> None:
    st.html(sections.verdict_head(verdict, _month(verdict)))
    behind = _behind(verdict)
    st.html(sections.answers(brief.answers(verdict, behind, frame.link)))
    _axes(verdict)
    st.html(parts.heading("What this rests on", words.provenance(verdict, run.created_at, *_days(verdict, run))))
    st.html(sections.coverage(verdict.coverage, verdict.support))
    st.html(sections.gauges(brief.gauges(verdict)))
    st.html(parts.heading("The conditions", "Every one must hold before a policy may go live."))
    st.html(sections.checklist(verdict.reasons))
    st.html(
        parts.heading(
            "Against the alternatives", "The same decisions under each policy. Savings are measured against today."
        )
    )
    st.html(sections.policies(verdict.table))
    if verdict.costs is not None:
        st.html(parts.remark(words.costs(verdict.costs)))
    _evidence(verdict)
    if verdict.parts and verdict.outcome == "cannot_tell":
        about = "Policies that the logs tried in part: what is known there, and how far the rest could move it."
        st.html(parts.heading("What the logs do say", about))
        st.html(sections.tried_in_part(verdict.parts))
    if verdict.doubts:
        st.html(parts.heading("What was checked", "Of the probabilities and of the estimators."))
        for doubt in verdict.doubts:
            st.html(parts.remark(figures.capital(figures.sentence(doubt))))
    st.html(parts.heading("Kinds of interval"))
    st.html(parts.kinds())


def _behind(verdict: ServiceVerdict) -> brief.Behind:
    """What else is known; a file that cannot be read is named on its own page, and missing here."""
    seen, month = data.window(verdict), _month(verdict)
    pace = None
    if month is not None and seen is not None:
        pace = seen.decisions / ((seen.last_ns - seen.first_ns) / figures.DAY_NS) * words.MONTH_DAYS
    backtest = segments = rollout = None
    try:
        backtest, segments = estimators_data.load(verdict), segments_data.load(verdict)
        rollout = data.rollout(verdict.service)
    except AppError as error:
        st.html(parts.notice(f"{error.message}. {error.hint}"))
    return brief.Behind(month, pace, backtest, segments, rollout)


def _days(verdict: ServiceVerdict, run: data.Run) -> tuple[int | None, int | None]:
    seen = data.window(verdict)
    return (run.from_ns, run.to_ns) if seen is None else (seen.first_ns, seen.last_ns)


def _month(verdict: ServiceVerdict) -> Figure | None:
    seen = data.window(verdict)
    return None if seen is None else words.monthly(verdict.savings, seen.decisions, seen.last_ns - seen.first_ns)


def _axes(verdict: ServiceVerdict) -> None:
    if axes.silent(axes.of(verdict)):
        with st.container(border=True):
            st.html(sections.nothing(verdict))
        return
    for column, axis in zip(st.columns(3, border=True, gap="medium"), axes.of(verdict), strict=True):
        with column:
            st.html(sections.axis(axis))
            if not axis.figure.refused:
                chart = charts.interval_bar(axis, frame.ink())
                st.altair_chart(chart, key=f"axis-{axis.name}")


def _evidence(verdict: ServiceVerdict) -> None:
    if sum(not row.cost.refused and not row.quality.refused for row in verdict.table) > 1:
        about = (
            "Both with their intervals: up is better, left is cheaper. What was tried too is measured on the decisions "
            "that chose the suggestion, everything else on the newer ones that judge it."
        )
        if verdict.curve:
            about += (
                " The line is what a lower or higher price of quality would buy, exploratory: its band holds at all of "
                "its points at once, but none of them was judged."
            )
        st.html(parts.heading("Cost against quality", about))
        st.html(sections.marks(verdict))
        colour = theme.VERDICT_COLOURS[verdict.outcome]
        chart = charts.frontier(verdict.frontier, verdict.table, colour, frame.ink(), verdict.curve)
        st.altair_chart(chart, key="frontier")
    if verdict.estimators:
        st.html(parts.heading("Do the estimators agree?", estimators_sections.agreement(verdict)))
        if certified := words.certified(verdict.estimators, axes.of(verdict)):
            st.html(parts.remark(certified))
        href = frame.link("estimators", service=verdict.service)
        st.html(sections.way("Every method, and how well they predicted before", href))
