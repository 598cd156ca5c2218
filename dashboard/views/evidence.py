"""Evidence: do the logs identify an answer?"""

from __future__ import annotations

import streamlit as st

from dashboard import evidence_charts, evidence_data, evidence_sections, figures, parts, sections
from dashboard.evidence_data import Evidence
from dashboard.records import ServiceVerdict
from dashboard.views import frame
from dashboard.views.chosen import chosen

TITLE, QUESTION = "Evidence", "Do the logs identify an answer, and where do they not?"


@frame.page
def page() -> None:
    picked = chosen("evidence", TITLE, QUESTION)
    if picked is None:
        return
    verdict = picked.verdict
    found = evidence_data.load(verdict)
    if found is None:
        text = "This run was made before runs kept their evidence. A new one will show it."
        st.html(parts.empty("No evidence kept", text, "retroute nightly"))
        return
    st.html(parts.lead(evidence_sections.answer(verdict, found)))
    st.html(evidence_sections.facts(verdict, found))
    _overlap(verdict, found)
    _refusals(verdict)
    _probabilities(verdict, found)
    _weights(verdict, found)
    _rest(verdict, found)


def _overlap(verdict: ServiceVerdict, found: Evidence) -> None:
    what = "each action" if evidence_sections.nothing_suggested(found) else "the suggestion"
    st.html(parts.heading(f"Where the log speaks for {what}", evidence_sections.key(found)))
    if found.cells.is_empty():
        st.html(parts.remark(f"No {found.unit} was left to judge by: all of them taught, or chose."))
        return
    chart = evidence_charts.overlap(found.cells, found.effective_needed, found.unit, frame.ink())
    st.altair_chart(chart, key="overlap")
    st.html(evidence_sections.links(verdict.service, found.cells, frame.link))
    frame.download(found.cells, f"{verdict.service}-overlap", "overlap")


def _refusals(verdict: ServiceVerdict) -> None:
    failing = evidence_sections.conditions(verdict, holds=False)
    title = "What is missing" if failing else "Nothing is missing"
    st.html(parts.heading(title, "What the gate asks of the evidence, and what would meet it."))
    if failing:
        st.html(sections.checklist(failing))
    st.html(parts.remark(evidence_sections.holding(verdict)))
    if verdict.plan:
        st.html(evidence_sections.decides(verdict, frame.link))
    if verdict.parts:
        about = "Policies that the logs tried in part: what is known there, and how far the rest could move it."
        st.html(parts.heading("Where it was tried in part", about))
        st.html(sections.tried_in_part(verdict.parts))


def _probabilities(verdict: ServiceVerdict, found: Evidence) -> None:
    about = "An estimate divides by the probability of what was done: it must be known, right, and not tiny."
    st.html(parts.heading("Probabilities of choices", about))
    st.html(evidence_sections.origins(found.propensities["origin"].unique().to_list()))
    left, right = st.columns(2, gap="large")
    with left:
        st.altair_chart(evidence_charts.propensities(found.propensities, "decision", frame.ink()), key="propensities")
    with right:
        st.altair_chart(evidence_charts.calibration(found.calibration, frame.ink()), key="calibration")
    for doubt in (one for one in verdict.doubts if not one.startswith("fixed rule")):  # a table below says these
        st.html(parts.remark(figures.capital(figures.sentence(doubt))))
    if found.fixed:
        about = "There the choice followed a rule almost without exception: what another action gives is not known."
        st.html(parts.heading("Fixed rules", about))
        st.html(evidence_sections.fixed(found))


def _weights(verdict: ServiceVerdict, found: Evidence) -> None:
    about = f"How much each {found.unit} counts in the suggestion's value. A few heavy ones make an estimate fragile."
    st.html(parts.heading("Weights", about))
    if found.weights is None:
        st.html(parts.remark("Nothing is suggested, so nothing is weighted."))
        return
    left, right = st.columns(2, gap="large")
    with left:
        st.altair_chart(evidence_charts.weights(found.counts, found.unit, frame.ink()), key="weights")
    with right:
        st.altair_chart(evidence_charts.tail(found.tail, found.top_share_limit, found.unit, frame.ink()), key="tail")
    with st.expander(f"The heaviest {found.unit}s"):
        st.html(evidence_sections.largest(verdict.service, found, frame.link))
        frame.download(found.largest, f"{verdict.service}-weights", "weights")


def _rest(verdict: ServiceVerdict, found: Evidence) -> None:
    left, right = st.columns(2, gap="large")
    with left:
        st.html(parts.heading("Scores", f"Which {found.unit}s have one, by {_by(found)}."))
        st.altair_chart(evidence_charts.labels(found.labels, found.unit, frame.ink()), key="labels")
    with right:
        about = "Unlogged causes that move both a choice and its outcome bias estimated probabilities."
        st.html(parts.heading("If something hidden moved the choice", about))
        st.html(parts.remark(evidence_sections.doubt(found, verdict.limits.quality_margin)))
        if found.bounds.height:
            chart = evidence_charts.sensitivity(found.bounds, found.threshold, found.tipping, frame.ink())
            st.altair_chart(chart, key="sensitivity")
    about = f"The newest {found.unit}s, which judge, against those that chose the suggestion."
    st.html(parts.heading("Has anything moved?", about))
    if found.shifts is None:
        why = "a service that decides step by step is compared at the beginnings of its traces, by the gate"
        why = why if found.unit == "trace" else "nothing is suggested, so nothing was compared"
        st.html(parts.remark(f"No table: {figures.sentence(why)}"))
        return
    st.html(evidence_sections.drift(found.shifts))
    if found.untested:
        st.html(parts.remark(f"Not tested, too few outcomes: {figures.count(len(found.untested))} of the pairs."))


def _by(found: Evidence) -> str:
    return "the action that was taken" if found.unit == "decision" else "the first action"
