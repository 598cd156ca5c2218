"""Data health: can the input be believed? Works before any run and while the collector writes."""

from __future__ import annotations

import polars as pl
import streamlit as st

from dashboard import bars, data, figures, parts, sections, words
from dashboard.records import UnreadableError
from dashboard.views import frame

REFRESH_S = 10
SHOWN = 15
"""Rows of a table before the rest is only counted."""


@frame.page
def page() -> None:
    st.html(parts.page_title("Data health", "Can the input be believed?"))
    if not data.has_lake():
        frame.no_runs()
        return
    _live()


@st.fragment(run_every=REFRESH_S)
@frame.page
def _live() -> None:
    counts = data.lake("counts").row(0, named=True)
    batches = data.lake("health_batches")
    services = data.lake("health_by_service")
    rejected = int(batches["rejected"].sum())
    if not counts["spans"] and not rejected:
        st.html(parts.empty("Nothing has arrived yet", *words.listening(data.collector(), str(data.home()))))
        return
    unpriced, spend = data.lake("unpriced"), data.lake("unpriced_shares")
    st.html(parts.lead(words.arrived(counts, rejected, services)))
    st.html(parts.facts_row(words.arrived_facts(counts, rejected)))
    _services(services)
    _timelines(batches)
    _coverage()
    _unpriced(unpriced, spend)
    _uncounted(data.lake("estimated_tokens"))
    _reconciled()
    _unknown(data.lake("unknown_attributes"))


def _services(services: pl.DataFrame) -> None:
    ranges = {row["service"]: row for row in data.lake("services").to_dicts()}
    st.html(parts.heading("By service", "Unpriced, failed and without a session are shares of model calls."))
    st.html(sections.services([*services.iter_rows(named=True)], ranges))


def _timelines(batches: pl.DataFrame) -> None:
    happened, ink = data.lake("calls_by_hour"), frame.ink()
    left, right = st.columns(2, gap="large")
    with left:
        st.html(parts.heading("When it arrived", words.received(batches)))
        if batches.height:
            st.altair_chart(bars.timeline(batches, "received_ns", "spans", ink, rejected="rejected"), key="arrived")
    with right:
        st.html(parts.heading("When it happened", words.happened(happened)))
        if happened.height:
            st.altair_chart(bars.timeline(happened, "start_ns", "calls", ink), key="happened")


def _coverage() -> None:
    verdicts = frame.newest(data.runs())
    st.html(
        parts.heading(
            "How many decisions have a score", "Per action, in the newest run. Uneven coverage can hide a loss."
        )
    )
    if not verdicts:
        st.html(parts.remark("No run has looked for decisions yet; `retroute nightly` does."))
        return
    columns = st.columns(2, gap="large")
    for i, (name, verdict) in enumerate(verdicts.items()):
        frame_of = data.label_coverage(verdict)
        with columns[i % 2]:
            st.html(sections.coverage_head(verdict))
            if frame_of is None or not frame_of.height:
                st.html(parts.remark("The run's decisions cannot be read."))
            else:
                st.altair_chart(bars.coverage(frame_of, frame.ink()), key=f"coverage-{name}")


def _unpriced(unpriced: pl.DataFrame, spend: pl.DataFrame) -> None:
    st.html(
        parts.heading(
            "Calls without a price", "A guess would be worse than a gap: such calls carry no cost, and say why."
        )
    )
    if not unpriced.height:
        st.html(parts.remark("Every model call has a price."))
        return
    st.html(parts.remark(words.spend(spend)))
    st.html(sections.unpriced(unpriced.head(SHOWN).to_dicts(), int(spend["calls"].sum())))
    _more(unpriced)


def _uncounted(estimated: pl.DataFrame) -> None:
    if not estimated.height:
        return
    about = "Estimated by the length of their messages, from calls of the same model that have both. For no cost."
    st.html(parts.heading("Calls without token counts", about))
    st.html(sections.uncounted(estimated.head(SHOWN).to_dicts()))
    _more(estimated)


def _reconciled() -> None:
    try:
        found = data.reconciled()
    except UnreadableError as error:
        st.html(parts.notice(f"{figures.capital(error.message)}. {error.hint}"))
        return
    if found is None:
        return
    st.html(parts.heading("Beside the invoice", words.reconciled(found)))
    st.html(sections.reconciled(found, SHOWN))
    if (hidden := len(found.lines) - SHOWN) > 0:
        st.html(parts.remark(f"And {figures.count(hidden)} more; `retroute reconcile` prints all."))
    if found.reasons:
        st.html(sections.reasons(found.reasons[:SHOWN]))


def _unknown(unknown: pl.DataFrame) -> None:
    st.html(parts.heading("Attributes not understood", "Kept with their spans, and used for nothing."))
    if not unknown.height:
        st.html(parts.remark("Every attribute was understood."))
        return
    rows = [[row["key"], figures.count(row["spans"])] for row in unknown.head(SHOWN).to_dicts()]
    st.html(parts.table(["Attribute", "Spans"], rows, numbers=1, label="unknown"))
    _more(unknown)


def _more(frame_of: pl.DataFrame) -> None:
    if frame_of.height > SHOWN:
        st.html(parts.remark(f"And {figures.count(frame_of.height - SHOWN)} more."))
