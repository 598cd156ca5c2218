"""Deviating less: some episodes by the policy, the others as logged, when all of them would be too much to claim.

Which ones is drawn at the beginning of an episode, as a router's canary does. So the change that a mixture makes is its
share of the policy's change, its interval too, and an episode stands for 1 - share + share w instead of w.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from optimizer.dataset import Floats
from optimizer.evidence import METRICS, Metric, Outcome, Refused
from optimizer.gate import Estimate, Limits
from optimizer.ope.estimators import effective
from optimizer.ope.intervals import mean_interval
from optimizer.sequential.episodes import OUTCOMES, EpisodeLog
from optimizer.sequential.evaluation import (
    MAX_UNSUPPORTED,
    MIN_EFFECTIVE,
    SEQUENTIAL_DR,
    carried,
    doubly_robust,
    effective_episodes,
    kind_of,
    unknown,
    unsupported,
)

LEAST_EFFECTIVE = 50.0
"""Effective episodes of the policy itself below which no mixture with it is claimed either: an interval that is scaled
down covers as often as it did. From 50 on it covered 97 % on the orchestration of the tests (200 logs of each of seven
policies), at 20 to 40 94 %, and at 10 to 20 in some cells 85 %."""
LEAST_SHARE = 0.05


@dataclass(frozen=True)
class Mixture:
    """What is certain of `share` of the episodes under the policy."""

    share: float
    changes: Mapping[Metric, Estimate]
    """Mixture minus logged, per episode of all."""


def largest_mixture(log: EpisodeLog, policy: Floats, model: Floats, today: Floats, limits: Limits) -> Mixture | None:
    """The mixture with the largest share, in whole percent, that has `MIN_EFFECTIVE` effective episodes and certainly
    keeps the limits of quality and latency; None below `LEAST_SHARE`, or where nothing can be certain.

    model, today: as for `evaluation.change`.
    """
    if any(unknown(log, metric) for metric in METRICS) or effective_episodes(log, policy) < LEAST_EFFECTIVE:
        return None
    parts = _Parts.of(log, policy, model, today, limits.confidence)
    for percent in range(100, round(100 * LEAST_SHARE) - 1, -1):
        share = percent / 100
        changes = {metric: parts.change(metric, share) for metric in METRICS}
        certain = (
            parts.refusal(share, *METRICS) == ""
            and changes["quality"].low >= -limits.quality_margin
            and (limits.latency_s is None or changes["latency_s"].high <= limits.latency_s)
        )
        if certain:
            return Mixture(share, changes)
    return None


def change(
    log: EpisodeLog, policy: Floats, model: Floats, today: Floats, share: float, *, confidence: float
) -> dict[Metric, Outcome]:
    """The outcomes of `share` of the episodes under the policy, the others as logged, minus logged, per episode of all;
    refused as `evaluation.change` is, and below `LEAST_EFFECTIVE` effective episodes of the policy itself."""
    if (size := effective_episodes(log, policy)) < LEAST_EFFECTIVE:
        few = f"only {size:.0f} effective episodes of the policy itself; below {LEAST_EFFECTIVE:.0f} no part is claimed"
        return dict.fromkeys(METRICS, Refused(few))
    parts = _Parts.of(log, policy, model, today, confidence)
    return {
        metric: Refused(why)
        if (why := unknown(log, metric) or parts.refusal(share, metric))
        else parts.change(metric, share)
        for metric in METRICS
    }


def value(
    log: EpisodeLog, policy: Floats, model: Floats, today: Floats, share: float, *, confidence: float
) -> dict[Metric, Outcome]:
    """Mean outcomes per episode with `share` of them under the policy; refused as `change` is."""
    changes = change(log, policy, model, today, share, confidence=confidence)
    scores = share * doubly_robust(log, policy, model) + (1 - share) * doubly_robust(log, log.behaviour, today)
    return {
        metric: found
        if isinstance(found, Refused)
        else mean_interval(
            scores[OUTCOMES.index(metric)],
            log.groups,
            confidence=confidence,
            estimator=SEQUENTIAL_DR,
            effective=found.effective,
            kind=found.kind,
        )
        for metric, found in changes.items()
    }


@dataclass(frozen=True, eq=False)
class _Parts:
    """What any share of the episodes under a policy changes."""

    log: EpisodeLog
    whole: Mapping[Metric, Estimate]
    """Of all episodes."""
    stands: Floats
    """(N,) for how many of the policy's own episodes each stands."""
    beyond: float
    """Share of the policy's own episodes that come to take an untried action."""

    @classmethod
    def of(cls, log: EpisodeLog, policy: Floats, model: Floats, today: Floats, confidence: float) -> _Parts:
        scores = doubly_robust(log, policy, model) - doubly_robust(log, log.behaviour, today)
        whole = {
            metric: mean_interval(
                scores[OUTCOMES.index(metric)],
                log.groups,
                confidence=confidence,
                estimator=SEQUENTIAL_DR,
                effective=0.0,
                kind=kind_of(log, policy, metric, SEQUENTIAL_DR),
            )
            for metric in METRICS
        }
        return cls(log, whole, carried(log, policy), unsupported(log, policy))

    def size(self, metric: Metric, share: float) -> float:
        """Effective episodes behind the mixture."""
        return effective((1 - share + share * self.stands) * (self.log.heft if metric == "quality" else 1.0))

    def refusal(self, share: float, *metrics: Metric) -> str:
        """Why a share has no number of these outcomes; "" where it has."""
        if (size := min(self.size(metric, share) for metric in metrics)) < MIN_EFFECTIVE:
            return f"only {size:.0f} effective episodes; below {MIN_EFFECTIVE:.0f} no interval can be trusted"
        if (beyond := share * self.beyond) > MAX_UNSUPPORTED:
            return f"{beyond:.0%} of its episodes come to take actions that were not tried there"
        return ""

    def change(self, metric: Metric, share: float) -> Estimate:
        whole = self.whole[metric]
        value, low, high = (float(share * end) for end in (whole.value, whole.low, whole.high))
        size = self.size(metric, share)
        return Estimate(whole.estimator, value, low, high, whole.episodes, size, whole.kind)
