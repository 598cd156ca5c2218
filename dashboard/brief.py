"""A verdict as four answers for somebody who has never seen it: what it saves, how certain that is, what could go
wrong, what to do next. Pure: records in, sentences with links out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from dashboard import estimators_sections, figures
from dashboard.estimators_data import Backtest
from dashboard.figures import capital, count, counted, said, sentence, share
from dashboard.records import Figure, ServiceVerdict
from dashboard.segments_data import Found, losing
from optimizer.gate import MIN_EFFECTIVE, MIN_LABEL_SHARE, Outcome
from optimizer.rollout.state import Rollout

Link = tuple[str, str]
"""What a link says, and its address."""
MOST_RISKS = 5

_CERTAIN: dict[Outcome, str] = {
    "deploy": "Certain enough to act on",
    "promising": "A saving is certain, its safety is not",
    "keep": "Not certain enough to act on",
    "cannot_tell": "Not known",
}
_STAGED = (
    "It advances only while cost, quality and latency stay inside their limits, beside a control group, and rolls back "
    "by itself where a whole interval is past one."
)
_STAGES = {
    "shadow": "decides in the shadow: it is logged, and serves nobody",
    "canary": "serves a part of the sessions",
    "full": "serves all sessions",
    "rolled_back": "was rolled back",
    "none": "is over",
}


@dataclass(frozen=True)
class Answer:
    """A question's answer: in a few words, then in sentences, and the pages behind it."""

    question: str
    headline: str
    lines: tuple[str, ...]
    links: tuple[Link, ...]


@dataclass(frozen=True)
class Behind:
    """What else is known of a suggestion; None where the run or the home does not hold it."""

    month: Figure | None = None
    decisions_a_month: float | None = None
    backtest: Backtest | None = None
    segments: Found | None = None
    rollout: Rollout | None = None


def answers(verdict: ServiceVerdict, behind: Behind, link: Callable[..., str]) -> list[Answer]:
    """The four answers. link: as `frame.link`."""

    def to(*views: str) -> tuple[Link, ...]:
        return tuple((_PAGES[view], link(view, service=verdict.service)) for view in views)

    return [
        Answer("What does it save?", *_saving(verdict, behind), to("spend", "frontier")),
        Answer("How certain is that?", *_certainty(verdict, behind), to("evidence", "estimators")),
        Answer("What could go wrong?", *_risks(verdict, behind), to("segments", "quality")),
        Answer("What to do next?", *_next(verdict, behind), to(*_NEXT[verdict.outcome])),
    ]


_PAGES = {
    "spend": "Where money goes",
    "frontier": "Other policies",
    "evidence": "What the log knows",
    "estimators": "Do the methods agree?",
    "segments": "Who gains, who loses",
    "quality": "Is the score to be trusted?",
    "rollout": "Roll it out",
    "plan": "The experiment",
    "routing": "What would change",
}
_NEXT: dict[Outcome, tuple[str, ...]] = {
    "deploy": ("rollout", "routing"),
    "promising": ("plan", "routing"),
    "keep": ("frontier", "plan"),
    "cannot_tell": ("plan", "evidence"),
}


def _saving(verdict: ServiceVerdict, behind: Behind) -> tuple[str, tuple[str, ...]]:
    savings, month = verdict.savings, behind.month
    if savings.refused:
        return "Not known", (capital(sentence(savings.reason)),)
    told = savings if month is None else month
    span = "per 1,000 decisions" if month is None else "a month"
    figure = told if told.span[0] >= 0 else _negated(told)
    verb, more = ("save", "") if told.span[0] >= 0 else ("cost", " more")
    verb = f"{capital(verb)}s" if verdict.outcome == "deploy" else f"Would {verb}"
    headline = f"{verb} {said(figure, 'usd').value}{more} {span}"
    lines = ["The best candidate found, which is not suggested."] if verdict.outcome == "keep" else []
    lines += [f"{share(verdict.limits.confidence)} interval: {said(told, 'usd').interval} {span}."]
    if month is not None:
        per = said(savings, "usd")
        pace = "" if behind.decisions_a_month is None else f" at {count(behind.decisions_a_month)} decisions a month"
        lines.append(f"That is {per.value} per 1,000 decisions ({per.interval}){pace}, the pace of the log.")
    today = next((row.cost for row in verdict.table if row.policy == "today" and not row.cost.refused), None)
    if today is not None and today.span[0] > 0:
        part = savings.span[0] / today.span[0]
        lines.append(f"Today costs {said(today, 'usd').value} per 1,000: {share(abs(part))} {_less(part)}.")
    return headline, tuple(lines)


def _less(part: float) -> str:
    return "less" if part >= 0 else "more"


def _negated(figure: Figure) -> Figure:
    value, low, high = figure.span
    return Figure(-value, -high, -low, figure.kind, figure.estimator)


def _certainty(verdict: ServiceVerdict, behind: Behind) -> tuple[str, tuple[str, ...]]:
    support, coverage, lines = verdict.support, verdict.coverage, []
    kind = verdict.quality.kind or verdict.savings.kind
    if kind is not None:
        promise = figures.KINDS.get(kind, "")
        lines.append(f"The intervals are {share(verdict.limits.confidence)} intervals, {kind}: {promise}.")
    if support.effective is not None:
        judged = counted(support.certify_decisions, "decision")
        lines.append(
            f"The {judged} that judge it count as {count(support.effective)} that followed it; "
            f"{count(MIN_EFFECTIVE)} are needed."
        )
    lines.append(
        f"{share(coverage.label_share)} of {counted(coverage.decisions, 'decision')} have a score, and for "
        f"{share(coverage.logged_share)} the router logged how likely each choice was."
    )
    if coverage.stated_share:
        lines.append(f"For {share(coverage.stated_share)} a file of this home states it, by the gateway's weights.")
    if behind.backtest is not None and (said_before := estimators_sections.foresight(behind.backtest)):
        lines.append(said_before)
    return _CERTAIN[verdict.outcome], tuple(lines)


def _risks(verdict: ServiceVerdict, behind: Behind) -> tuple[str, tuple[str, ...]]:
    failing = [reason for reason in verdict.reasons if not reason.holds]
    risks = [f"{capital(reason.condition)} fails: {sentence(reason.got)}" for reason in failing]
    risks += _of_quality(verdict) + _of_segments(behind.segments) + _of_latency(verdict) + _of_methods(verdict)
    if verdict.coverage.stated_share:
        risks.append("Some probabilities are stated by a file: a gateway that chose otherwise makes them wrong.")
    if verdict.coverage.estimated:
        risks.append("Some probabilities were estimated: a hidden cause of a choice could bias every number.")
    risks.append("All of it holds for requests, prices and models like those of the log; a rollout watches for others.")
    if failing:
        headline = f"{counted(len(failing), 'condition fails', 'conditions fail')}"
    elif behind.segments is not None and losing(behind.segments):
        headline = f"{counted(len(losing(behind.segments)), 'segment loses', 'segments lose')} quality"
    else:
        headline = "No condition fails"
    return headline, tuple(risks[:MOST_RISKS])


def _of_quality(verdict: ServiceVerdict) -> list[str]:
    if verdict.quality.refused:
        told = any(verdict.quality.reason == reason.got for reason in verdict.reasons)
        return [] if told else [f"What it does to quality is not known: {sentence(verdict.quality.reason)}"]
    _, low, _ = verdict.quality.span
    if low >= 0:
        return ["Quality: even the low end of its interval is no loss."]
    margin = figures.points(-verdict.limits.quality_margin)
    return [f"Quality may change by {figures.points(low)}, the low end of its interval; the limit is {margin}."]


def _of_segments(found: Found | None) -> list[str]:
    if found is None or found.refused or not found.segments:
        return []
    if lost := losing(found):
        names = "; ".join(one.title for one in lost[:2])
        return [f"Quality falls past the limit in {counted(len(lost), 'segment')}: {names}."]
    unclear = sum(one.quality_flag in ("unclear", "refused") for one in found.segments)
    if not unclear:
        return []
    return [f"In {unclear} of {len(found.segments)} segments the log cannot tell whether quality keeps the limit."]


def _of_latency(verdict: ServiceVerdict) -> list[str]:
    latency, told = verdict.latency, []
    if not latency.refused and latency.span[0] > 0:
        text = said(latency, "seconds_change")
        told.append(f"Answers take longer: {text.value} ({text.interval}).")
    if verdict.coverage.latency_note:
        told.append(f"Latency is {verdict.coverage.latency_note}, not measured.")
    return told


def _of_methods(verdict: ServiceVerdict) -> list[str]:
    return [capital(sentence(doubt)) for doubt in verdict.doubts if "standard errors" in doubt]


def _next(verdict: ServiceVerdict, behind: Behind) -> tuple[str, tuple[str, ...]]:
    rollout = behind.rollout
    if rollout is not None and rollout.under_way:
        percent = f" ({rollout.percent:g}%)" if rollout.stage == "canary" else ""
        return "Watch its rollout", (f"Version {rollout.version} {_STAGES[rollout.stage]}{percent}.",)
    if verdict.outcome == "deploy":
        return "Roll it out, a small part first", (
            f"`retroute rollout start --service {verdict.service}` begins in the shadow, then for a part, then all.",
            _STAGED,
        )
    plan = (capital(sentence(verdict.plan)),) if verdict.plan else ()
    if verdict.outcome == "promising":
        return "Gather what is missing", plan or ("Meet the conditions that fail, then look again.",)
    if verdict.outcome == "keep":
        return "Leave today's routing as it is", (
            *plan,
            "Look again after models, prices or traffic have changed; `retroute nightly` does so each night.",
        )
    return "Run a small experiment", plan or ("Let a router draw some choices at random and log their chances.",)


@dataclass(frozen=True)
class Gauge:
    """How much of the log can speak, a share; `least`: what the gate asks for (None: nothing)."""

    name: str
    share: float | None
    least: float | None
    note: str


def gauges(verdict: ServiceVerdict) -> list[Gauge]:
    """What of the decisions is covered."""
    coverage, support = verdict.coverage, verdict.support
    tried = None if support.unsupported_share is None else 1 - support.unsupported_share
    priced = None
    if coverage.unpriced is not None and coverage.decisions:
        priced = 1 - coverage.unpriced / coverage.decisions
    name = f" for {coverage.quality_name}" if coverage.quality_name else ""
    return [
        Gauge("Scored", coverage.label_share, MIN_LABEL_SHARE, f"decisions with a score{name}"),
        Gauge("Chances logged", coverage.logged_share, 1.0, "decisions whose choice had a logged probability"),
        Gauge("Tried", tried, 0.99, "of the suggestion's choices that the log tried there"),
        Gauge("Priced", priced, None, "decisions with a known cost"),
    ]
