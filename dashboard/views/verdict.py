"""Verdict: what is the suggestion worth, and is it safe?"""

from __future__ import annotations

import streamlit as st

from dashboard import axes, charts, data, figures, parts, sections, theme, words
from dashboard.records import Figure, ServiceVerdict
from dashboard.views import connect, frame


@frame.page
def page() -> None:
    runs = data.runs()
    verdicts = frame.newest(runs)
    if not verdicts:
        st.html(parts.page_title("Verdict", "What is it worth, and is it safe?"))
        frame.problems(runs)
        connect.guide()
        return
    chosen = frame.service("verdict", list(verdicts), every=True)
    frame.problems(runs)
    if chosen is None:
        _overview(verdicts)
    else:
        _service(verdicts[chosen], {run.run_id: run for run in runs}[verdicts[chosen].run_id])


def _overview(verdicts: dict[str, ServiceVerdict]) -> None:
    st.html(parts.page_title("What your logs say", words.tally(list(verdicts.values()))))
    for verdict in words.ranked(list(verdicts.values())):
        with st.container(border=True):
            told, more = st.columns([8, 1], vertical_alignment="center", gap="medium")
            told.html(sections.card(verdict))
            more.button(
                "Open",
                key=f"open-{verdict.service}",
                help=f"The evidence on {verdict.service}",
                on_click=frame.remember,
                args=(verdict.service,),
                width="stretch",
            )
    st.html(parts.kinds())


def _service(verdict: ServiceVerdict, run: data.Run) -> None:
    st.html(sections.verdict_head(verdict, _month(verdict)))
    _axes(verdict)
    st.html(parts.heading("What this rests on", words.provenance(verdict, run.created_at, *_days(verdict, run))))
    st.html(sections.coverage(verdict.coverage, verdict.support))
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
    if not verdict.estimators:
        return
    st.html(
        parts.heading("Do the estimators agree?", "The same change by different methods. Where they part, trust none.")
    )
    for column, axis in zip(st.columns(3, gap="medium"), axes.of(verdict), strict=True):
        every = ((figures.estimator(row.estimator), row.on(axis.name)) for row in verdict.estimators)
        found = [(name, figure) for name, figure in every if figure.kind != "certified"]
        with column:
            st.altair_chart(charts.forest(found, axis, frame.ink()), key=f"forest-{axis.name}")
    if certified := words.certified(verdict.estimators, axes.of(verdict)):
        st.html(parts.remark(certified))
    for name, reason in words.refusals(verdict.estimators):
        st.html(parts.remark(f"{figures.estimator(name)}: {figures.sentence(reason)}"))
