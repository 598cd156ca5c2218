"""Segments and rules: where does it change, and who loses?"""

from __future__ import annotations

from typing import cast, get_args

import streamlit as st

from dashboard import access, flow_sections, parts, sections, segments_charts, segments_data, segments_sections
from dashboard.flows import Flow
from dashboard.records import ServiceVerdict
from dashboard.segments_data import Found, Order, Previous
from dashboard.views import frame
from dashboard.views.chosen import chosen

TITLE, QUESTION = "Segments and rules", "Where does it change, and who loses?"
ORDERS: dict[str, str] = {
    "dimension": "As grouped",
    "quality": "Worst quality first",
    "saving": "Worst saving first",
    "decisions": "Largest first",
}


@frame.page
def page() -> None:
    picked = chosen("segments", TITLE, QUESTION)
    if picked is None:
        return
    verdict = picked.verdict
    found = segments_data.load(verdict)
    if found is None:
        text = "This run was made before runs kept their segments. A new one will show them."
        st.html(parts.empty("No segments kept", text, "retroute nightly"))
    else:
        st.html(parts.lead(segments_sections.answer(found)))
        if found.segments:
            _segments(verdict, found)
    flow = picked.run.flows.get(verdict.service)
    if flow is not None:
        _orchestrated(verdict, flow)
        if found is not None:
            about = "Both versions, each for all traces, on the steps of those that judge."
            _versions(found.previous, about)
    else:
        _rules(verdict)
        if found is not None:
            _versions(found.previous, "Both versions on the same decisions, those that judge.")
            if found.previous is not None:
                st.html(segments_sections.rules_changed(verdict, found.previous))
    if found is not None:
        _worst(verdict, found)


def _segments(verdict: ServiceVerdict, found: Found) -> None:
    st.html(parts.heading("By segment", segments_sections.method(found)))
    by = frame.kept("sort", "dimension", get_args(Order))
    st.session_state["segments-sort"] = by
    st.segmented_control(
        "Order",
        list(ORDERS),
        key="segments-sort",
        format_func=ORDERS.__getitem__,
        on_change=lambda: frame.keep("sort", st.session_state.get("segments-sort")),
        label_visibility="collapsed",
    )
    rows = segments_data.ordered(found.segments, cast(Order, by))
    ink = frame.ink()
    left, right = st.columns([11, 8], gap="small")
    with left:
        chart = segments_charts.forest(rows, "quality", verdict.quality, -found.margin, ink)
        st.altair_chart(chart, key="segments-quality")
    with right:
        st.altair_chart(segments_charts.forest(rows, "saving", verdict.savings, None, ink), key="segments-saving")
    st.html(segments_sections.grid(rows))
    if found.small:
        st.html(parts.remark(segments_sections.small(found)))
    st.html(segments_sections.changed_link(verdict.service, frame.link))
    frame.download(segments_data.segments_frame(rows), f"{verdict.service}-segments", "segments")


def _rules(verdict: ServiceVerdict) -> None:
    for point in verdict.points:
        st.html(parts.heading(f"The rules at {point.name}", segments_sections.fidelity(point)))
        if point.rules is not None:
            st.html(sections.rules(point.rules))


def _orchestrated(verdict: ServiceVerdict, flow: Flow) -> None:
    """The rules of a policy that decides step by step."""
    about = "The policy itself, step by step: these lines decide, in their order."
    st.html(parts.heading("The rules", about if flow.rules else "Nothing is suggested here, so there are no rules."))
    if flow.stop_rule:
        st.html(parts.remark("When it stops:"))
        st.html(flow_sections.lines(flow.stop_rule, "stop"))
    if flow.rules:
        with st.expander("All of its rules"):
            st.html(flow_sections.lines(flow.rules, "rules"))
    href = frame.link("flow", service=verdict.service)
    st.html(sections.way("The agents step by step, today and under the policy", href))


def _versions(before: Previous | None, about: str) -> None:
    st.html(parts.heading("Since the version before", about))
    if before is None:
        st.html(parts.remark("This is the first version, or nothing is suggested: there is none to compare it with."))
        return
    st.html(parts.remark(segments_sections.difference(before)))
    if before.shares:
        left, right = st.columns([3, 2], gap="large")
        with left:
            st.html(segments_sections.shares(before))
        with right:
            st.html(segments_sections.worth(before))


def _worst(verdict: ServiceVerdict, found: Found) -> None:
    about = (
        "Where quality is expected to fall most. These are predictions of the outcome model, one decision each, and no "
        "findings: nobody saw what the suggestion would have given there."
    )
    st.html(parts.heading("The worst decisions", about))
    if not found.worst:
        st.html(parts.remark("None: nothing is suggested, or no decision is expected to lose quality."))
        return
    prompts = None
    if access.may("content"):
        if st.toggle("Show prompts", key="segments-prompts"):
            prompts = segments_data.prompts(found)
    else:
        st.html(parts.remark("Prompts are not shown: your role does not include them ([dashboard] in retroute.toml)."))
    st.html(segments_sections.worst(found.worst, verdict.service, prompts, frame.link, frame.trace_link))
