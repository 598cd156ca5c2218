"""What the next episodes will show: `optimizer.prediction` for policies of many steps, by episode instead of decision.

The mean is the sequential doubly robust one. The spread of one episode's outcome under the policy is that of the logged
episodes with the weight that each stands for (`evaluation.carried`). Where it is known what stopping gives, an episode
stands at every decision for those that the policy would have ended there, with what had come until then.

Legend: N episodes, n decisions, a actions, k outcomes, p outcomes seen.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from optimizer.dataset import Floats
from optimizer.evidence import METRICS, Metric, Outcome, Refused
from optimizer.prediction import Forecast, Seen, forecast_from
from optimizer.sequential import evaluation
from optimizer.sequential.episodes import OUTCOMES, EpisodeLog


@dataclass(frozen=True, eq=False)
class Judged:
    """A policy for `share` of the episodes, drawn at their beginning, and what the judging ones say of it."""

    log: EpisodeLog
    policy: Floats
    """(n, a)"""
    model: Floats
    """(k, n, a) its future outcomes, by other episodes."""
    today: Floats
    """(k, n, a) those under the logged behaviour."""
    share: float = 1.0


def forecasts(
    judged: Judged, changes: Mapping[Metric, Outcome], *, confidence: float
) -> dict[Metric, Forecast | Refused]:
    """The forecast of every outcome per episode; refused where the change is."""
    log, share = judged.log, judged.share
    now = evaluation.doubly_robust(log, log.behaviour, judged.today)
    scores = share * evaluation.doubly_robust(log, judged.policy, judged.model) + (1 - share) * now
    found: dict[Metric, Forecast | Refused] = {}
    for metric in METRICS:
        place, change = OUTCOMES.index(metric), changes[metric]
        if isinstance(change, Refused):
            found[metric] = change
            continue
        as_today = _as_logged(log, metric)
        found[metric] = forecast_from(
            scores[place],
            now[place],
            _mixed(_under(log, judged.policy, metric), as_today, share),
            as_today,
            log.groups,
            confidence=confidence,
            kind=change.kind,
        )
    return found


def _as_logged(log: EpisodeLog, metric: Metric) -> Seen:
    """What every episode came to, for itself."""
    rewards = log.rewards()[OUTCOMES.index(metric)]
    totals = np.bincount(log.episode, rewards, minlength=len(log)).astype(np.float64)
    return Seen(totals, log.heft if metric == "quality" else np.ones(len(log)), np.arange(len(log)))


def _under(log: EpisodeLog, policy: Floats, metric: Metric) -> Seen:
    """What every episode came to, and what it would have come to where the policy ends it before."""
    stopped, ended = evaluation.carried_parts(log, policy)
    whole = _as_logged(log, metric)
    heft = log.heft if metric == "quality" and log.stops_are_labels else np.ones(len(log))
    return Seen(
        np.concatenate([whole.outcome, _if_stopped(log, metric)]),
        np.concatenate([ended[log.last] * whole.weight, stopped * heft[log.episode]]),
        np.concatenate([whole.unit, log.episode]),
    )


def _if_stopped(log: EpisodeLog, metric: Metric) -> Floats:
    """(n,) the outcome of an episode that ends at each decision."""
    if metric == "quality":
        return log.stop_quality
    rewards = log.rewards()[OUTCOMES.index(metric)]
    until: Floats = np.cumsum(rewards) - rewards
    before: Floats = until - until[log.first][log.episode]
    return before


def _mixed(policy: Seen, as_today: Seen, share: float) -> Seen:
    """The outcomes of a share of the episodes under the policy, the others as today."""
    if share == 1.0:
        return policy
    return Seen(
        np.concatenate([policy.outcome, as_today.outcome]),
        np.concatenate([share * policy.weight, (1 - share) * as_today.weight]),
        np.concatenate([policy.unit, as_today.unit]),
    )
