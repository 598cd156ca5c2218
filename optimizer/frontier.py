"""What other prices of quality would buy: fifty policies from the same heads, with one band around all of them.

Exploratory: the curve is drawn on the rows that chose the suggestion, and no point of it has been judged.

Legend: n decisions, k actions of the heads, p prices.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from optimizer.dataset import Bools, Floats
from optimizer.evidence import MAX_UNSUPPORTED, MIN_EFFECTIVE, Evaluation, Metric, Outcome
from optimizer.gate import Estimate
from optimizer.learners.linear import Heads
from optimizer.ope.estimators import doubly_robust
from optimizer.rewards import RewardSpec

PRICES = np.logspace(-2, 2, 50)
"""Times what a unit of quality is worth."""
DRAWS = 4000
MOST_ROWS = 20_000
"""The newest decisions that the curve is drawn on: fifty policies of a million would take minutes and gigabytes."""
_METRICS: tuple[Metric, Metric] = ("cost_usd", "quality")


@dataclass(frozen=True)
class PricePoint:
    """The policy that a unit of quality worth `value_usd` makes; its outcomes per decision, with the bounds of the
    band."""

    value_usd: float
    cost_usd: Estimate
    quality: Estimate
    level: float
    """Of its two intervals by themselves, so that those of all points hold at once."""


def price_curve(
    heads: Heads,
    evaluation: Evaluation,
    reward: RewardSpec,
    *,
    epsilon: float,
    seed: int,
    allowed: Bools | None = None,
) -> tuple[PricePoint, ...]:
    """The distinct policies of `PRICES` that the log supports, cheapest price of quality first. allowed (n, k): actions
    that may be taken, at least one at each decision; None: all.

    Doubly robust on the rows of `evaluation`, which the heads have not seen. The band holds for all points and both
    outcomes at once: with c the quantile of max_j |Z_j|, Z ~ N(0, R) and R the correlation of the estimates, each
    interval is pointwise at the level P(|N(0, 1)| <= c). Drawing from N(0, R) is the Gaussian multiplier bootstrap,
    whose draws given the data have just that law (Belloni, Chernozhukov, Chetverikov, Kato 2015). Groups are the unit.
    Asymptotic.
    """
    if allowed is None:
        allowed = np.ones((len(evaluation.data), len(heads.action_names)), dtype=np.bool_)
    if len(evaluation.data) > MOST_ROWS:
        newest = np.argsort(evaluation.data.time_ns, kind="stable")[-MOST_ROWS:]
        evaluation, allowed = evaluation.take(newest), allowed[newest]
    policies = _policies(heads, evaluation, reward, epsilon, allowed)
    scores = np.array(
        [doubly_robust(evaluation.outcomes[metric], policy) for _, policy in policies for metric in _METRICS]
    )
    if not len(scores) or not np.isfinite(scores).all():
        return ()
    level = _level(scores, evaluation, seed)
    points = []
    for value_usd, policy in policies:
        cost, quality = (_banded(evaluation, metric, policy, level) for metric in _METRICS)
        if isinstance(cost, Estimate) and isinstance(quality, Estimate):
            points.append(PricePoint(value_usd, cost, quality, level))
    return tuple(points)


def _banded(evaluation: Evaluation, metric: Metric, policy: Floats, level: float) -> Outcome:
    return Evaluation(evaluation.data, evaluation.outcomes, level).value(metric, policy, "DR")


def _policies(
    heads: Heads, evaluation: Evaluation, reward: RewardSpec, epsilon: float, allowed: Bools
) -> list[tuple[float, Floats]]:
    """Value and probabilities (n, a) of each price whose choices differ from those of the price before."""
    data = evaluation.data
    columns = np.array([data.action_names.index(name) for name in heads.action_names])
    quality, cost = heads.predict(data.features)
    explored = np.zeros(data.behaviour.shape)
    explored[:, columns] = epsilon * allowed / allowed.sum(axis=1, keepdims=True)
    found: list[tuple[float, Floats]] = []
    last = None
    for factor in PRICES:
        price = RewardSpec(reward.value_usd * float(factor))
        chosen = columns[np.where(allowed, price.utility(quality, cost), -np.inf).argmax(axis=1)]
        if last is not None and np.array_equal(chosen, last):
            continue
        last = chosen
        policy = explored.copy()
        policy[np.arange(len(data)), chosen] += 1 - epsilon
        if evaluation.unsupported(policy) <= MAX_UNSUPPORTED and evaluation.effective(policy) >= MIN_EFFECTIVE:
            found.append((price.value_usd, policy))
    return found


def _level(scores: Floats, evaluation: Evaluation, seed: int) -> float:
    """The pointwise level at which all intervals hold at once. scores: (2p, n)."""
    from scipy.stats import norm

    _, group = np.unique(evaluation.data.groups, return_inverse=True)
    deviations = scores - scores.mean(axis=1, keepdims=True)
    summed = np.array([np.bincount(group, weights=row) for row in deviations])
    covariance = summed @ summed.T
    spread = np.sqrt(np.diag(covariance))
    moving = spread > 0
    if not moving.any():
        return evaluation.confidence
    correlation = covariance[np.ix_(moving, moving)] / np.outer(spread[moving], spread[moving])
    values, vectors = np.linalg.eigh(correlation)
    roots = vectors * np.sqrt(np.maximum(values, 0.0))
    draws = np.random.default_rng(seed).standard_normal((DRAWS, len(values))) @ roots.T
    most = float(np.quantile(np.abs(draws).max(axis=1), evaluation.confidence))
    return float(2 * norm.cdf(most) - 1)
