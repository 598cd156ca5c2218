"""Exploration plan: what small test buys the most certainty?"""

from __future__ import annotations

import streamlit as st

from dashboard import figures, parts, plan_charts, plan_data, plan_sections
from dashboard.plan_data import Experiment, Labels, Plan
from dashboard.records import ServiceVerdict
from dashboard.views import frame
from dashboard.views.chosen import chosen
from optimizer.plan_kept import Bought

TITLE, QUESTION = "Exploration plan", "What small test buys the most certainty?"


@frame.page
def page() -> None:
    picked = chosen("plan", TITLE, QUESTION)
    if picked is None:
        return
    verdict = picked.verdict
    plan = plan_data.load(verdict)
    if plan is None:
        text = "This run was made before runs kept their plan. `retroute plan` works one out."
        st.html(parts.empty("No plan kept", text.replace("`", ""), "retroute plan"))
        return
    if plan.decided:
        st.html(parts.empty(*plan_sections.DECIDED[verdict.outcome]))
        return
    if plan.steps:
        _steps(verdict, plan)
        return
    if plan.experiment is None:
        st.html(parts.empty("No experiment", plan_sections.refused(plan)))
        return
    _experiment(verdict, plan, plan.experiment)
    if plan.labels is not None:
        _labels(verdict, plan.labels)


def _experiment(verdict: ServiceVerdict, plan: Plan, found: Experiment) -> None:
    st.html(parts.lead(plan_sections.answer(plan, found)))
    st.html(plan_sections.figures_row(found))
    level = figures.share(verdict.limits.confidence)
    st.html(parts.remark(f"At the pace of the log; {level} intervals, each by itself."))
    budget = _budget(found)
    _widths(found, budget)
    about = f"Decision point {plan.point}. Each row sums to 100%; the router draws by the row of what it would choose."
    st.html(parts.heading("Who is drawn, with what probability", about))
    st.html(plan_sections.allocation(found))
    st.html(plan_sections.traces(verdict, found, frame.link))
    frame.download(
        plan_data.allocation(verdict.service, plan.point, found.parts), f"{verdict.service}-allocation", "allocation"
    )
    st.html(parts.heading("Run it", plan_sections.how(found, budget, verdict.service)))
    st.code(plan_sections.command(verdict, plan.unit), language=None)


def _budget(found: Experiment) -> Bought:
    st.html(parts.heading("Budget", "Costs count at the upper end of their interval, so that a budget holds."))
    with st.container(horizontal=True, vertical_alignment="bottom"):
        total = _usd("Most to spend in all, USD", "total")
        per_day = _usd("Most to spend a day, USD", "day")
    budget = plan_data.bought(found, total, per_day)
    st.html(plan_sections.within(budget))
    return budget


def _usd(label: str, name: str) -> float | None:
    """An amount kept in the URL; None without one."""
    value = st.number_input(
        label,
        min_value=0.0,
        value=plan_data.amount(frame.kept(name, "")),
        placeholder="no limit",
        format="%.4g",
        key=f"plan-{name}",
        width=220,
    )
    frame.keep(name, None if value is None else f"{value:g}")
    return value


def _widths(found: Experiment, budget: Bought) -> None:
    st.html(parts.heading("What it buys", plan_sections.widths(found)))
    data = plan_data.widths(found, budget.share)
    st.html(plan_sections.lines())
    left, right = st.columns(2, gap="large")
    ink = frame.ink()
    with left:
        if found.per_day is None:
            chart = plan_charts.widths(data, "decisions", found.half_width, budget.decisions, ink)
        else:
            chart = plan_charts.widths(data, "days", found.half_width, budget.days, ink)
        st.altair_chart(chart, key="days")
    with right:
        if found.cost.refused or found.per_day is None:
            st.html(parts.remark("What it costs is not known, so nothing is drawn against money."))
        else:
            saves = found.cost.span[0] <= 0
            chart = plan_charts.widths(data, "usd", found.half_width, budget.cost_usd, ink, saves=saves)
            st.altair_chart(chart, key="usd")
    frame.download(data, "widths", "widths")


def _labels(verdict: ServiceVerdict, found: Labels) -> None:
    st.html(parts.heading("Which decisions to have scored", plan_sections.labels(found)))
    if found.refused or not found.unscored:
        return
    if found.budgets.height > 1:
        left, right = st.columns([3, 2], gap="large")
        left.altair_chart(plan_charts.scores(found.budgets, found.wanted, frame.ink()), key="scores")
        right.html(plan_sections.drawn(found))
    else:
        st.html(plan_sections.drawn(found))
    st.code(plan_sections.label_command(verdict, found.budget), language=None)


def _steps(verdict: ServiceVerdict, plan: Plan) -> None:
    st.html(parts.lead(plan_sections.steps(plan)))
    about = (
        "One step of a trace is drawn, evenly among the agents and STOP, until one was: a trace that is drawn at every "
        "step stands for hardly any that a policy would make."
    )
    st.html(parts.heading("Who is drawn, with what probability", about))
    st.html(plan_sections.step_allocation(plan))
    st.html(parts.heading("Run it", "The exported folder holds your app's own script, which draws so."))
    st.code(plan_sections.command(verdict, plan.unit), language=None)
    text = "Money and widths are not drawn: what a drawn step costs depends on all that follows it."
    st.html(parts.remark(text))
