"""Estimates and limits in, a verdict with reasons out.

deploy        every condition holds
promising     it certainly saves and its quality is estimated inside the limit; only evidence is missing
keep          a limit is broken, by estimate or beyond doubt, or nothing is saved
cannot_tell   the logs hold no answer: no estimate, or a saving that may as well be a loss
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

Outcome = Literal["deploy", "promising", "keep", "cannot_tell"]
Kind = Literal["certified", "asymptotic", "assumption"]


@dataclass(frozen=True)
class Limits:
    """What a new policy may never do. `quality_margin` is the largest tolerated loss of mean quality (quality is in
    [0, 1]), `confidence` the level of every interval, `latency_s` the largest tolerated rise of mean latency in seconds
    (None: no limit)."""

    quality_margin: float = 0.01
    confidence: float = 0.95
    latency_s: float | None = None


@dataclass(frozen=True)
class Estimate:
    """A number with its interval, and what kind of interval it is."""

    estimator: str
    value: float
    low: float
    high: float
    episodes: int
    effective: float
    kind: Kind


@dataclass(frozen=True)
class Reason:
    """One condition of the gate: what was found, what is needed, and what would help. `holds` says whether it is
    met."""

    condition: str
    got: str
    needed: str
    remedy: str
    holds: bool


@dataclass(frozen=True)
class Verdict:
    """The gate's answer and every condition that led to it."""

    outcome: Outcome
    reasons: tuple[Reason, ...]


@dataclass(frozen=True)
class Segment:
    """A protected part of the decisions. A missing estimate comes with the reason in `refused`."""

    name: str
    decisions: int
    """Of those that judge."""
    quality_change: Estimate | None
    refused: str
    quality_margin: float


MIN_EFFECTIVE = 100.0
MAX_TOP_SHARE = 0.5
MAX_UNSUPPORTED = 0.01
MIN_LABEL_SHARE = 0.5
SOURCES = {
    "human": "people",
    "user": "users",
    "check": "programs",
    "judge": "a judge",
    "": "a source that is not named, taken as no judge",
}
"""What gives scores, in words."""


@dataclass(frozen=True)
class Case:
    """What the gate is shown about one policy. A missing estimate comes with the reason in `refused`."""

    saving: Estimate | None
    """Today's cost minus the policy's, USD per 1,000 decisions."""
    quality_change: Estimate | None
    latency_change_s: Estimate | None
    refused: str
    top_share: float
    unsupported: float
    propensities_logged: bool
    label_share: float
    admissible: bool
    """Whether the rows that chose the policy put it inside the limits."""
    tipping: str = ""
    """Where probabilities are estimated: how wrong they may be before the claim falls."""
    moved: tuple[str, ...] = ()
    """What gives other outcomes on the judging rows than on those that chose, beyond chance."""
    segments: tuple[Segment, ...] = ()
    label_sources: tuple[str, ...] = ()
    """What gave the scores, the commonest first; "" is a source that was not named, none: nothing is known of it."""
    labels_drawn: bool = False
    """Every decision that judges has a score, or had a known chance to get one."""
    unlabelled: str = ""
    """How far decisions without a score could move the change of quality."""
    labels_needed: int = 0
    """Scores by people that would begin to say what a judge's are worth."""


def judge(case: Case, limits: Limits) -> Verdict:
    """The verdict with every condition, the failed ones first."""
    saving, quality = case.saving, case.quality_change
    if saving is None or quality is None:
        reason = Reason("evidence", case.refused, "an estimate of cost and quality", "see what would decide it", False)
        return Verdict("cannot_tell", (reason,))
    latency = case.latency_change_s
    limited = limits.latency_s is not None
    outcome_conditions = [_saving(saving), _quality(quality, limits)]
    if limits.latency_s is not None:
        outcome_conditions.append(_latency(latency, case.refused, limits.latency_s))
    outcome_conditions += [_segment(segment) for segment in case.segments]
    conditions = outcome_conditions + _evidence(case, min(saving.effective, quality.effective))
    latency_inside = not limited or (latency is not None and latency.value <= _bound(limits))
    inside = quality.value >= -limits.quality_margin and latency_inside
    ruled_out = (
        quality.high < -limits.quality_margin
        or saving.high <= 0
        or (limited and latency is not None and latency.low > _bound(limits))
        or any(_loses(segment) for segment in case.segments)
    )
    outcome: Outcome
    if all(reason.holds for reason in conditions):
        outcome = "deploy"
    elif ruled_out or not inside or saving.value <= 0 or not case.admissible:
        outcome = "keep"
    elif saving.low > 0:
        outcome = "promising"
    else:
        outcome = "cannot_tell"
    return Verdict(outcome, tuple(sorted(conditions, key=lambda reason: reason.holds)))


def _bound(limits: Limits) -> float:
    return math.inf if limits.latency_s is None else limits.latency_s


def _saving(saving: Estimate) -> Reason:
    return Reason(
        "it saves",
        f"{saving.value:+.3g} USD per 1,000, at least {saving.low:+.3g}",
        "a lower bound above 0",
        "more decisions with the cheaper actions narrow the interval" if saving.value > 0 else "keep today's routing",
        saving.low > 0,
    )


def _quality(quality: Estimate, limits: Limits) -> Reason:
    margin = limits.quality_margin
    if quality.value < -margin:
        remedy = "keep today's routing, or look for a better candidate model"
    else:
        remedy = "more scored decisions with the suggested actions narrow the interval"
    return Reason(
        "quality stays",
        f"{100 * quality.value:+.1f} points, at least {100 * quality.low:+.1f}, at most {100 * quality.high:+.1f}",
        f"a lower bound of at least {-100 * margin:+.1f} points",
        remedy,
        quality.low >= -margin,
    )


def _loses(segment: Segment) -> bool:
    """Whether the segment's quality falls by more than its margin, beyond doubt."""
    return segment.quality_change is not None and segment.quality_change.high < -segment.quality_margin


def _segment(segment: Segment) -> Reason:
    condition, margin = f"quality stays for {segment.name}", segment.quality_margin
    needed = f"a lower bound of at least {-100 * margin:+.1f} points"
    quality = segment.quality_change
    if quality is None:
        got = f"no estimate on its {segment.decisions:,} decisions: {segment.refused}"
        return Reason(condition, got, needed, "log more of its decisions with the suggested actions", False)
    if _loses(segment):
        remedy = f"keep today's routing for {segment.name}"
    else:
        room = max(quality.value + margin, margin) or 0.01
        times = ((quality.high - quality.low) / 2 / room) ** 2
        remedy = f"about {max(times - 1, 0.1) * segment.decisions:,.0f} more scored decisions of it to judge by"
    got = (
        f"{100 * quality.value:+.1f} points on its {segment.decisions:,} decisions, at least {100 * quality.low:+.1f}, "
        f"at most {100 * quality.high:+.1f}"
    )
    return Reason(condition, got, needed, remedy, quality.low >= -margin)


def _latency(latency: Estimate | None, refused: str, limit: float) -> Reason:
    needed, remedy = f"an upper bound of at most {limit:+.2f} s", "allow more time, or exclude the slow action"
    if latency is None:
        return Reason("latency stays", refused or "no estimate", needed, "send spans with end times", False)
    return Reason(
        "latency stays",
        f"{latency.value:+.2f} s, at most {latency.high:+.2f} s",
        needed,
        remedy,
        latency.high <= limit,
    )


def _evidence(case: Case, effective: float) -> list[Reason]:
    return [
        Reason(
            "enough decisions",
            f"{effective:.0f} effective decisions",
            f"at least {MIN_EFFECTIVE:.0f}",
            "log longer, or explore the suggested actions more often",
            effective >= MIN_EFFECTIVE,
        ),
        Reason(
            "no few decisions dominate",
            f"the heaviest 1 % of decisions hold {case.top_share:.0%} of the weight",
            f"less than {MAX_TOP_SHARE:.0%}",
            "raise the smallest exploration probabilities",
            case.top_share < MAX_TOP_SHARE,
        ),
        Reason(
            "the logs tried it",
            f"{case.unsupported:.1%} of decisions take actions not tried there",
            f"at most {MAX_UNSUPPORTED:.0%}",
            "explore these actions, or leave them out",
            case.unsupported <= MAX_UNSUPPORTED,
        ),
        Reason(
            "probabilities are known",
            "logged by the router" if case.propensities_logged else f"estimated from the log{case.tipping}",
            "logged by the router",
            "log policy.propensity with each decision: hidden causes of a choice can bias an estimate",
            case.propensities_logged,
        ),
        _scored(case),
        _by_more_than_a_judge(case),
        Reason(
            "nothing has moved",
            case.moved[0] if case.moved else "outcomes are as they were when it was chosen",
            "the same outcomes at the same features",
            "find out what changed, and learn again on decisions since then",
            not case.moved,
        ),
        Reason(
            "chosen inside the limits",
            "yes" if case.admissible else "no candidate was inside the limits where it was chosen",
            "yes",
            "keep today's routing, or widen the limits",
            case.admissible,
        ),
    ]


def _scored(case: Case) -> Reason:
    holds = case.label_share >= MIN_LABEL_SHARE or case.labels_drawn
    drawn = ", drawn with known probabilities" if case.labels_drawn and case.label_share < 1 else ""
    return Reason(
        "outcomes are scored",
        f"{case.label_share:.0%} of decisions carry a score{drawn}{'' if holds else case.unlabelled}",
        f"at least {MIN_LABEL_SHARE:.0%}, or known probabilities to get one",
        "have those scored that `retroute plan --labels` draws: why the others were scored, nobody logged",
        holds,
    )


def _by_more_than_a_judge(case: Case) -> Reason:
    sources = case.label_sources
    judge_alone = sources == ("judge",)
    if judge_alone:
        got = "a judge's scores only: every estimate of quality is about that judge"
    elif not sources:
        got = "scores of an unknown source, taken as no judge's"
    else:
        got = f"scored by {', '.join(SOURCES.get(name, f'{name}, taken as no judge') for name in sources)}"
    return Reason(
        "quality is more than a judge's opinion",
        got,
        "scores by people, users or programs",
        f"have {max(case.labels_needed, 1):,} decisions scored by people, which `retroute plan --labels` draws",
        not judge_alone,
    )
