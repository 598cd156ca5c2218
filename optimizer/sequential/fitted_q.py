"""Learning what to do next, and when to stop, from logged episodes.

Q_1(s, a) is the mean return after a at s with everything after it as logged: the one-point improvement, greedy for it,
changes a decision and nothing else. Q_j for j > 1 is r + max over supported actions of Q_(j-1) at the next decision:
fitted Q-iteration (Ernst, Geurts, Wehenkel 2005), of which episodes of at most H decisions need H sweeps. The maximum
is taken of a lower quantile over models fitted on resampled groups: an action that few episodes tried has to be better
by more than what they disagree on (pessimism; Kidambi et al. 2020, arXiv 2005.05951, for the idea).

Legend: N episodes, n decisions, m new ones, d features, a actions.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from optimizer.dataset import Bools, Floats, Ints
from optimizer.ope.models import Heads, fit_heads
from optimizer.rewards import RewardSpec
from optimizer.sequential.episodes import EpisodeLog

ENSEMBLE = 5
LOWER = 0.25
"""Quantile of the ensemble that stands for an action."""


@dataclass(frozen=True, eq=False)
class ActionValues:
    """What each action is worth from a state on, as an ensemble of models."""

    heads: tuple[Heads, ...]

    def lower(self, features: Floats) -> Floats:
        """features (m, d) -> (m, a): the lower quantile of the ensemble."""
        every = np.array([one.predict(features)[0] for one in self.heads])
        result: Floats = np.quantile(every, LOWER, axis=0)
        return result


def returns(log: EpisodeLog, rewards: Floats) -> Floats:
    """(n,) sum of the rewards (n,) from each decision to the end of its episode."""
    total = np.cumsum(rewards)
    ends = np.flatnonzero(log.last)[log.episode]
    result: Floats = total[ends] - total + rewards
    return result


def utility(log: EpisodeLog, reward: RewardSpec) -> Floats:
    """(n,) what each decision adds to the utility of its episode; NaN where unknown."""
    quality, cost, _ = log.rewards()
    result: Floats = reward.utility(quality, cost)
    return result


def fitted_q(log: EpisodeLog, reward: RewardSpec, supported: Bools, *, seed: int) -> Iterator[ActionValues]:
    """Action values after one sweep, two, and so on; the caller takes as many as it wants.

    supported: (n, a) actions that may be chosen next. Episodes without a known quality teach only what stopping is
    worth where that is known.
    """
    rewards = utility(log, reward)
    following = np.where(log.last, -1, np.arange(len(log.actions)) + 1)
    targets = returns(log, rewards)
    while True:
        values = ActionValues(tuple(_fit(log, targets, seed=seed + number) for number in range(ENSEMBLE)))
        yield values
        best = np.where(supported, values.lower(log.features), -np.inf).max(axis=1)
        targets = rewards + np.where(log.last, 0.0, best[following])


def _fit(log: EpisodeLog, targets: Floats, *, seed: int) -> Heads:
    """A model of the targets on groups drawn with replacement, with what stopping is known to give as rows of its
    own."""
    rows = _resampled(log, seed)
    stops = rows[~np.isnan(log.stop_quality[rows]) & (log.actions[rows] != log.stop)]
    features = np.concatenate([log.features[rows], log.features[stops]])
    actions = np.concatenate([log.actions[rows], np.full(len(stops), log.stop)])
    outcome = np.concatenate([targets[rows], log.stop_quality[stops]])
    return fit_heads(features, actions, outcome[None, :], len(log.action_names), seed=seed)


def _resampled(log: EpisodeLog, seed: int) -> Ints:
    names, inverse = np.unique(log.groups, return_inverse=True)
    counts = np.random.default_rng(seed).multinomial(len(names), np.full(len(names), 1 / len(names)))
    result: Ints = np.repeat(np.arange(len(log.actions)), counts[inverse[log.episode]])
    return result


def greedy(values: Floats, supported: Bools, behaviour: Floats) -> Floats:
    """(n, a) the best supported action; the logged behaviour where none is supported."""
    masked = np.where(supported, values, -np.inf)
    chosen = np.eye(values.shape[1])[masked.argmax(axis=1)]
    return np.where(supported.any(axis=1, keepdims=True), chosen, behaviour)
