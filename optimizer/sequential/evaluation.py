"""What a policy of many steps would have given, by the episodes of another one.

Sequential doubly robust estimate (Jiang, Li 2016, arXiv 1511.03722): from the last decision back,

    D_t = sum_a pi(a) Q(s_t, a) + w_t (r_t + D_(t+1) - Q(s_t, a_t)),   w_t = pi(a_t) / b(a_t),

with Q a model of the policy's own future outcomes, fitted on other episodes. Right if b is known or Q is right; the
mean of D_0 is the value. Where it is known what stopping gives, Q(s, STOP) is that: a policy that only stops earlier
than the log is then replayed exactly, without any weight.

Legend: N episodes, n decisions, d features, a actions, k outcomes.
"""

from __future__ import annotations

import numpy as np

from optimizer.dataset import Floats
from optimizer.evidence import Outcome, Refused
from optimizer.gate import Kind
from optimizer.ope.estimators import effective
from optimizer.ope.intervals import mean_interval
from optimizer.ope.models import Heads, fit_heads
from optimizer.sequential.episodes import OUTCOMES, EpisodeLog

MIN_EFFECTIVE = 100.0
"""Below this many effective episodes there is no number at all."""


def fitted_outcomes(log: EpisodeLog, policy: Floats, *, seed: int) -> Heads:
    """Models of the policy's future outcomes after each action: fitted Q evaluation (Le, Voloshin, Yue 2019, arXiv
    1903.08738) in as many sweeps as the longest episode has decisions.

    policy: (n, a) on the log's decisions.
    """
    rewards = log.rewards()
    following = np.where(log.last, 0, np.arange(len(log.actions)) + 1)
    heads = fit_heads(log.features, log.actions, rewards, len(log.action_names), seed=seed)
    for _ in range(log.horizon - 1):
        ahead = (policy * with_known_stops(log, heads.predict(log.features))).sum(axis=2)
        targets = rewards + np.where(log.last, 0.0, ahead[:, following])
        heads = fit_heads(log.features, log.actions, targets, len(log.action_names), seed=seed)
    return heads


def with_known_stops(log: EpisodeLog, model: Floats) -> Floats:
    """The model's outcomes (k, n, a), with what stopping gives: the known quality, and no further cost or time."""
    known = ~np.isnan(log.stop_quality)
    result = model.copy()
    result[0, known, log.stop] = log.stop_quality[known]
    result[1:, :, log.stop] = 0.0
    return result


def doubly_robust(log: EpisodeLog, policy: Floats, model: Floats) -> Floats:
    """(k, N) the scores D_0. policy (n, a), model (k, n, a) of the policy's future outcomes, by other episodes."""
    model = with_known_stops(log, model)
    rows = np.arange(len(log.actions))
    rewards, weight = log.rewards(), _weights(log, policy)
    expected = (policy * model).sum(axis=2)
    taken = model[:, rows, log.actions]
    result = np.zeros((len(OUTCOMES), len(log)))
    for t in range(log.horizon - 1, -1, -1):
        now = rows[log.step == t]
        of = log.episode[now]
        later = np.where(log.last[now], 0.0, result[:, of])
        result[:, of] = expected[:, now] + weight[now] * (rewards[:, now] + later - taken[:, now])
    return result


def carried(log: EpisodeLog, policy: Floats) -> Floats:
    """(N,) how much of the policy's own episodes each logged one stands for; 1 on average.

    The product of its weights, and on the way whatever share the policy stops where that outcome is known.
    """
    weight = _weights(log, policy)
    known = ~np.isnan(log.stop_quality)
    stops = np.where(known, policy[:, log.stop], 0.0)
    weight = np.where(known & (log.actions == log.stop), 0.0, weight)
    left, total = np.ones(len(log)), np.zeros(len(log))
    for t in range(log.horizon):
        now = np.flatnonzero(log.step == t)
        of = log.episode[now]
        total[of] += left[of] * stops[now]
        left[of] *= weight[now]
    return total + left


def change(log: EpisodeLog, policy: Floats, model: Floats, today: Floats, *, confidence: float) -> dict[str, Outcome]:
    """The policy's outcomes minus today's on the same episodes, by name; refused below `MIN_EFFECTIVE` episodes.

    model, today: (k, n, a) future outcomes under the policy and under the logged behaviour, by other episodes.
    """
    unsupported = float(np.where(log.supported, 0.0, policy).sum(axis=1).mean())
    size = effective(carried(log, policy))
    known = ~np.isnan(log.quality)
    if size < MIN_EFFECTIVE:
        reason = f"only {size:.0f} effective episodes; below {MIN_EFFECTIVE:.0f} no interval can be trusted"
        return dict.fromkeys(OUTCOMES, Refused(reason))
    if unsupported > 0.01:
        return dict.fromkeys(OUTCOMES, Refused(f"{unsupported:.0%} of its decisions take actions not tried there"))
    if not known.all():
        return dict.fromkeys(OUTCOMES, Refused(f"{(~known).sum()} of {len(log)} episodes have no score"))
    scores = doubly_robust(log, policy, model) - doubly_robust(log, log.behaviour, today)
    kind: Kind = "asymptotic" if log.propensities_logged else "assumption"
    return {
        name: mean_interval(
            one, log.groups, confidence=confidence, estimator="sequential DR", effective=size, kind=kind
        )
        for name, one in zip(OUTCOMES, scores, strict=True)
    }


def weighted_per_decision(log: EpisodeLog, policy: Floats) -> Floats:
    """(k,) self-normalised per-decision importance sampling (Precup, Sutton, Singh 2000), without any model: a check.

    At each step the weights of all episodes are divided by their mean; an ended episode keeps its own.
    """
    weight, rewards = _weights(log, policy), log.rewards()
    cumulative, total = np.ones(len(log)), np.zeros(len(OUTCOMES))
    for t in range(log.horizon):
        now = np.flatnonzero(log.step == t)
        of = log.episode[now]
        cumulative[of] *= weight[now]
        mean = float(cumulative.mean())
        if mean > 0:
            total += (rewards[:, now] * cumulative[of]).sum(axis=1) / mean / len(log)
    return total


def _weights(log: EpisodeLog, policy: Floats) -> Floats:
    """(n,) pi(a) / b(a) of the logged actions."""
    rows = np.arange(len(log.actions))
    result: Floats = policy[rows, log.actions] / log.behaviour[rows, log.actions]
    return result
