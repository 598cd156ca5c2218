"""Agent flow: which agent acts when, where a trace stops, and which prompts and handoffs cost or fail."""

from __future__ import annotations

import streamlit as st

from dashboard import data, figures, flow_charts, flow_sections, parts, sections
from dashboard.flows import Flow
from dashboard.records import ServiceVerdict
from dashboard.views import frame

TITLE, NOTE = "Agent flow", "Which agent acts next, when a trace stops, and which handoffs cost or fail."


@frame.page
def page() -> None:
    runs = data.runs()
    verdicts = frame.newest(runs)
    if not verdicts:
        st.html(parts.page_title(TITLE, NOTE))
        frame.problems(runs)
        frame.no_runs()
        return
    of_run = {run.run_id: run.flows for run in runs}
    flows = {name: flow for name, one in verdicts.items() if (flow := of_run[one.run_id].get(name)) is not None}
    if not flows:
        st.html(parts.page_title(TITLE, NOTE))
        frame.problems(runs)
        text = (
            "Every service makes one decision per trace. There is a flow where a trace holds several: "
            "`retroute points` says what was found, and what is missing."
        )
        st.html(parts.empty("No service of several steps", text, "retroute points"))
        return
    first = sorted(verdicts, key=lambda name: (name not in flows, name))
    chosen = frame.service("flow", first, every=False)
    frame.problems(runs)
    if chosen is None:
        return
    st.html(sections.suggestion_head(verdicts[chosen]))
    if chosen not in flows:
        text = "Its traces make one decision each; what is suggested for it is on the page Suggested routing."
        st.html(parts.empty("No flow to show", text))
        return
    _flow(verdicts[chosen], flows[chosen])


def _flow(verdict: ServiceVerdict, flow: Flow) -> None:
    st.html(flow_sections.facts(flow))
    _route(flow)
    _stop(flow)
    if flow.baselines:
        about = "The same traces under simpler routes, measured where the suggestion was chosen."
        st.html(parts.heading("Against simpler routes", about))
        st.html(flow_sections.baselines(flow.baselines))
    if flow.metrics:
        level = figures.share(verdict.limits.confidence)
        about = (
            f"Means over traces with {level} intervals, each by itself. The suggestion's are of logged traces, and of "
            "what was there of them when it would have stopped, by how many of its own each stands for."
        )
        st.html(parts.heading("How the agents work together", about))
        st.html(flow_sections.organisation(flow.metrics))
    _friction(flow)
    st.html(parts.heading("Kinds of interval"))
    st.html(parts.kinds())


def _route(flow: Flow) -> None:
    about = "What is done at each step, as a share of the traces that get there."
    st.html(parts.heading("The route, step by step", about))
    if not flow.route:
        st.html(parts.remark("No step is seen often enough."))
        return
    if all(step.policy is None for step in flow.route):
        st.html(parts.remark("Today's route; nothing is suggested."))
    else:
        st.html(parts.pair())
    st.altair_chart(flow_charts.route(flow.route, flow.actions, frame.ink()), key="route")


def _stop(flow: Flow) -> None:
    st.html(parts.heading("When it stops", "For people to read; the policy itself decides at each step."))
    if flow.stop_rule:
        st.html(flow_sections.lines(flow.stop_rule, "stop"))
    else:
        st.html(parts.remark("There is no suggested rule for stopping: a trace ends where it ends today."))
    if flow.rules:
        with st.expander("All of its rules"):
            st.html(flow_sections.lines(flow.rules, "rules"))


def _friction(flow: Flow) -> None:
    if flow.confidence is None:
        return  # the run did not look
    apart = (
        "Association, not effect: hard cases may need the prompt, or the handoff. "
        f"The differences hold together at {figures.share(flow.confidence)}."
    )
    st.html(parts.heading("Prompts", f"Traces that used a version beside the others. {apart}"))
    if flow.prompts:
        st.html(flow_sections.prompts(flow.prompts))
    else:
        st.html(parts.remark("No call names its prompt."))
    st.html(parts.heading("Handoffs", f"One agent right after another. {apart}"))
    if flow.handoffs:
        _handoffs(flow)
    else:
        st.html(parts.remark("No agent was seen to act after another."))
    if flow.steps:
        about = "What each agent's turns took of all turns in the log. Turns may run side by side."
        st.html(parts.heading("Where time and money go", about))
        st.html(flow_sections.steps(flow.steps))


@st.fragment
def _handoffs(flow: Flow) -> None:
    words = {said: shown for shown, said in flow_charts.WORDS.items()}
    chosen = st.segmented_control("Shown", words, default="How often", key="shown", label_visibility="collapsed")
    shown = words.get(chosen or "", "count")
    st.altair_chart(flow_charts.handoffs(flow.handoffs, shown, frame.ink()), key="handoffs")
    rare = sum(row.refused for row in flow.handoffs)
    if rare < len(flow.handoffs):
        st.html(flow_sections.handoffs(flow.handoffs))
    if rare:
        st.html(parts.remark(f"And {figures.counted(rare, 'handoff')} too rare for a number."))
