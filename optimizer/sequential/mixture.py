"""Deviating less: some episodes by the policy, the others as logged, when all of them would be too much to claim.

Which ones is drawn at the beginning of an episode, as a router's canary does. So the change that a mixture makes is its
share of the policy's change, its interval too, and an episode stands for 1 - share + share w instead of w.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from optimizer.dataset import Floats
from optimizer.evidence import METRICS, Metric
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
    scores = doubly_robust(log, policy, model) - doubly_robust(log, log.behaviour, today)
    whole = {
        metric: mean_interval(
            scores[OUTCOMES.index(metric)],
            log.groups,
            confidence=limits.confidence,
            estimator=SEQUENTIAL_DR,
            effective=0.0,
            kind=kind_of(log, policy, metric, SEQUENTIAL_DR),
        )
        for metric in METRICS
    }
    stands, beyond = carried(log, policy), unsupported(log, policy)
    for percent in range(100, round(100 * LEAST_SHARE) - 1, -1):
        share = percent / 100
        size = {
            metric: effective((1 - share + share * stands) * (log.heft if metric == "quality" else 1.0))
            for metric in METRICS
        }
        certain = (
            min(size.values()) >= MIN_EFFECTIVE
            and share * beyond <= MAX_UNSUPPORTED
            and share * whole["quality"].low >= -limits.quality_margin
            and (limits.latency_s is None or share * whole["latency_s"].high <= limits.latency_s)
        )
        if certain:
            return Mixture(share, {metric: _part(whole[metric], share, size[metric]) for metric in METRICS})
    return None


def _part(whole: Estimate, share: float, size: float) -> Estimate:
    value, low, high = (float(share * end) for end in (whole.value, whole.low, whole.high))
    return Estimate(whole.estimator, value, low, high, whole.episodes, size, whole.kind)
