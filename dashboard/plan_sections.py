"""What the page Exploration plan says in words. Pure; every text from outside is escaped."""

from __future__ import annotations

import math
import shlex
from collections.abc import Callable
from html import escape

from dashboard import figures
from dashboard.parts import facts_row, figure, table
from dashboard.plan_data import Experiment, Labels, Plan
from dashboard.records import ServiceVerdict
from optimizer.gate import Outcome
from optimizer.plan_kept import Bought

BINDING = {
    "quality": "quality is known to within {:.1f} points",
    "saving": "the saving is certain",
    "effective": "the models to judge were taken often enough",
}


def answer(plan: Plan, found: Experiment) -> str:
    """What to do, for how long, and what it costs, in two sentences."""
    goal = f"tell {plan.label} from today's routing" if plan.label else "find out what may be suggested"
    until = BINDING.get(found.binding, "the gate can decide").format(100 * found.half_width)
    days = "" if found.days is None else f", about {_days(found.days)}"
    return (
        f"Randomise {figures.share(found.randomised)} of decisions to {goal}: {figures.count(found.decisions)} "
        f"decisions{days}, until {until}. {cost(found)}"
    )


def cost(found: Experiment) -> str:
    """What it costs a day, as a sentence."""
    if found.cost.refused:
        return f"What it costs is not known: {figures.sentence(found.cost.reason)}"
    value, _, high = found.cost.span
    if high <= 0:
        return "It pays for itself: the models that it tries more often cost less."
    if value <= 0:
        return "By estimate it pays for itself, but it may cost a little."
    return "It costs a little more than today while it runs."


def _days(days: float) -> str:
    if not math.isfinite(days):
        return "for ever"
    return f"{days:,.1f} days" if days < 10 else f"{days:,.0f} days"


def figures_row(found: Experiment) -> str:
    """Cost and quality a day with their intervals, in the dashboard's order."""
    inside = "inside the margin" if found.within_margin else "more than the margin"
    risk = (
        f'<span class="rr-figure"><span class="rr-value">{escape(figures.points(-found.at_risk))}</span>'
        f'<span class="rr-interval">{inside}</span></span>'
    )
    cells = [
        ("Cost a day, more than today", figure(found.cost, "usd_change", "plan_cost_usd_per_day")),
        ("Good answers a day, more than today", figure(found.quality, "number_change", "plan_quality_per_day")),
        ("Quality at risk meanwhile", risk),
    ]
    body = "".join(f'<div><p class="rr-axis">{escape(title)}</p>{cell}</div>' for title, cell in cells)
    columns = "grid-template-columns:repeat(3,minmax(9rem,1fr))"
    return f'<section class="rr rr-card" style="{columns}">{body}</section>'


def within(budget: Bought) -> str:
    """What the budget buys, as facts."""
    width = "nothing" if not math.isfinite(budget.half_width) else f"± {100 * budget.half_width:.1f} points"
    days = "unknown" if budget.days is None else _days(budget.days)
    spent = f"{'−' if budget.cost_usd < 0 else ''}${abs(budget.cost_usd):,.2f}"
    return facts_row(
        [
            (figures.share(budget.share), "of traffic takes part"),
            (days, "until it ends"),
            (figures.count(budget.decisions), "decisions in it"),
            (spent, "spent by then" if budget.cost_usd >= 0 else "by then: saved"),
            (width, "of quality known by then"),
            ("decides" if budget.decides else "does not decide", "if the estimates stand"),
        ]
    )


def allocation(found: Experiment) -> str:
    """Per place of choice, what the router draws; today's share behind it."""
    head = ["Where " + ("the suggestion" if found.base == "suggestion" else "today's routing") + " takes", "Decisions"]
    head += [*found.arms, "Least (epsilon)"]
    body = [
        [
            part.chosen + ("" if part.randomised else " (nothing to find out)"),
            figures.share(part.share),
            *(f"{figures.share(part.draw[arm])} (today {figures.share(part.today[arm])})" for arm in found.arms),
            figures.share(part.epsilon),
        ]
        for part in found.parts
    ]
    return table(head, body, numbers=len(found.arms) + 2, label="allocation")


def traces(verdict: ServiceVerdict, found: Experiment, link: Callable[..., str]) -> str:
    """The logged decisions of each arm, as links to their traces."""
    items = " · ".join(
        f'<a href="{escape(link("traces", service=verdict.service, action=arm))}" target="_self">{escape(arm)}</a>'
        for arm in found.arms
    )
    lacking = escape(link("traces", service=verdict.service, unscored="1"))
    return (
        f'<p class="rr rr-remark">The logged traces that took: {items}; '
        f'<a href="{lacking}" target="_self">those without a score</a></p>'
    )


def labels(found: Labels) -> str:
    """Which decisions to have scored, and what that gives."""
    if found.refused:
        return f"No scores to plan: {figures.sentence(found.refused)}"
    if not found.unscored:
        return "Every decision has a score."
    said = (
        f"Have {figures.count(found.budget)} of {figures.counted(found.unscored, 'decision')} without a score scored."
    )
    if found.half_width is None or found.wanted is None:
        return f"{said} Nothing is suggested yet, so scores alone decide nothing."
    width, wanted = 100 * found.half_width, 100 * found.wanted
    ends = "" if width <= wanted else " Scores alone do not; the experiment above does."
    return f"{said} Quality is then known to within {width:.1f} points; {wanted:.1f} would decide it.{ends}"


def drawn(found: Labels) -> str:
    body = [[name, figures.count(count)] for name, count in found.drawn.items() if count]
    return table(["Action", "To be scored"], body, numbers=1, label="drawn")


def command(verdict: ServiceVerdict, unit: str) -> str:
    """How to run the experiment."""
    service = shlex.quote(verdict.service)
    out = shlex.quote(f"{verdict.service.replace('/', '-')}-exploration")
    lines = [f"retroute plan --service {service} --export {out}"]
    if unit == "decision":
        lines.append(f"litellm --config {out}/config.yaml")
    return "\n".join(lines)


def label_command(verdict: ServiceVerdict, budget: int) -> str:
    service = shlex.quote(verdict.service)
    return (
        f"retroute plan --labels --service {service} --budget {budget} -o to-score.csv\n"
        "# fill in the column value, then\nretroute scores import to-score.csv"
    )


def how(found: Experiment, budget: Bought, service: str) -> str:
    """How the exported router is used."""
    said = (
        "The exported folder is a bundle for LiteLLM's proxy. Its router chooses as it would without it, draws by the "
        "table, and logs policy.propensity with each decision."
    )
    if budget.share < 1:
        said += f" To keep the daily budget, let {figures.share(budget.share)} of requests ask it for model {service}."
    if not found.logged:
        said += " Until it runs, probabilities are estimated, and estimated ones decide nothing."
    if found.labelled_now < found.label_share:
        said += (
            f" {figures.share(found.labelled_now)} of decisions carry a score, the gate needs "
            f"{figures.share(found.label_share)}."
        )
    return said


def widths(found: Experiment) -> str:
    """What the two panels show."""
    return (
        "How narrow the interval of quality gets, while the experiment runs and if today goes on instead. Assumes that "
        f"coming prompts are like the logged ones and {figures.share(found.label_share)} of decisions get a score."
    )


def lines() -> str:
    """Which line is which."""
    return (
        '<p class="rr rr-pair"><span class="rr-glyph" style="color:inherit">━</span><span>Experiment</span>'
        '<span class="rr-glyph rr-faint">┅</span><span>As today</span>'
        '<span class="rr-glyph">│</span><span>The experiment ends</span></p>'
    )


DECIDED: dict[Outcome, tuple[str, str, str]] = {
    "deploy": (
        "Decided: deploy",
        "There is nothing to find out by an experiment. Roll the policy out; its canary watches cost and quality.",
        "",
    ),
    "keep": (
        "Decided: keep today's routing",
        "The logs say enough: what could be suggested breaks a limit or saves nothing. A test would not change that.",
        "",
    ),
    "promising": ("Decided", "There is nothing to find out.", ""),
    "cannot_tell": ("Decided", "There is nothing to find out.", ""),
}


def refused(plan: Plan) -> str:
    """Why no experiment can be planned."""
    return figures.capital(figures.sentence(plan.refused or "the run gives no reason"))


def steps(plan: Plan) -> str:
    """The sentence of the verdict on traces of several decisions."""
    return figures.capital(figures.sentence(plan.steps))


def step_allocation(plan: Plan) -> str:
    """What is drawn at a step, as long as none of the trace was."""
    names = plan.step_actions
    each = plan.step_drawn / max(len(names), 1)
    head = ["At every step of a trace, until one is drawn", "Probability (epsilon)"]
    body = [[f"draw {name}", figures.share(each)] for name in names]
    body.append(["go on as the app does", figures.share(1 - plan.step_drawn)])
    return table(head, body, numbers=1, label="allocation")
