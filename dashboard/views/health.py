"""Data health: can the input be believed? Works before any run and while the collector writes."""

from __future__ import annotations

import time

import polars as pl
import streamlit as st

from dashboard import (
    bars,
    data,
    figures,
    health_charts,
    health_data,
    health_sections,
    parts,
    sections,
    words,
)
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
    names = [name for name in data.lake("services_seen")["service"].to_list() if name]
    _live(frame.filters("health", names, every=True, time=True) if names else frame.Filters(None, None, None, None))


@st.fragment(run_every=REFRESH_S)
@frame.page
def _live(chosen: frame.Filters) -> None:
    asked = (chosen.service, chosen.since_ns, chosen.until_ns)
    found = health_data.load(*asked)
    batches = health_data.received(chosen.since_ns, chosen.until_ns)
    rejected = int(batches["rejected"].sum())
    if not any((found.counts["spans"], found.counts["calls"], found.counts["unsettled_traces"], rejected)):
        if any(asked):
            st.html(parts.empty("Nothing of this time", "No trace of the chosen services started then."))
        else:
            st.html(parts.empty("Nothing has arrived yet", *words.listening(data.collector(), str(data.home()))))
        return
    st.html(parts.lead(words.arrived(found.counts, rejected, found.services)))
    st.html(parts.facts_row(words.arrived_facts(found.counts, rejected)))
    _services(found.services)
    _timelines(batches, health_data.happened(*asked, time.time_ns()))
    _missing(found.missing, chosen.service)
    _coverage()
    _unpriced(found.unpriced, found.spend)
    if found.uncounted:
        _uncounted(data.lake("estimated_tokens"))
    _reconciled()
    _rejected(rejected)
    _unknown(data.lake("unknown_attributes"))


def _services(services: pl.DataFrame) -> None:
    ranges = {row["service"]: row for row in data.lake("services_seen").to_dicts()}
    st.html(parts.heading("By service", "Unpriced, failed and without a session are shares of model calls."))
    st.html(sections.services([*services.iter_rows(named=True)], ranges))


def _timelines(batches: pl.DataFrame, happened: pl.DataFrame) -> None:
    ink = frame.ink()
    left, right = st.columns(2, gap="large")
    with left:
        st.html(parts.heading("When it arrived", words.received(batches)))
        if batches.height:
            st.altair_chart(bars.timeline(batches, "received_ns", "spans", ink, rejected="rejected"), key="arrived")
    with right:
        st.html(parts.heading("When it happened", words.happened(happened)))
        if happened.height:
            st.altair_chart(bars.timeline(happened, "start_ns", "calls", ink), key="happened")


def _missing(cells: pl.DataFrame, service: str | None) -> None:
    about = "By source, of its model calls: the share that does not say a field. Empty: all say it."
    st.html(parts.heading("What is missing", about))
    if not cells.height:
        st.html(parts.remark("No model call is settled yet."))
        return
    st.altair_chart(health_charts.missing(cells, frame.ink()), key="missing")
    links = {
        "a call without a price": {"unpriced": "1"},
        "no score": {"unscored": "1"},
        "a failed call": {"status": "error"},
    }
    st.html(health_sections.links([(name, frame.link("traces", service=service, **to)) for name, to in links.items()]))


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


def _rejected(rejected: int) -> None:
    if not rejected:
        return
    found = data.lake("rejections")
    st.html(parts.heading("What could not be used", "By what was wrong with the first of each minute."))
    rows = [[row["problem"] or "unknown", figures.count(row["rejected"])] for row in found.head(SHOWN).to_dicts()]
    st.html(parts.table(["Problem", "Records"], rows, numbers=1, label="rejected"))
    _more(found)


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
