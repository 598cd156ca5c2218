"""A finite-sample interval for the change that a policy makes, by betting against every smaller change.

Legend: n decisions, a actions. pi is the policy, b the logging behaviour, w = pi / b, m the outcome model, y in [0, 1].

The score of a decision, sum_a (pi - b)(a) m(a) + (w - 1)(y - m), has the change of the mean outcome as its mean,
whatever m is. With m at most k / (w - 1) where w > 1 it is at least -1 - max(k, 1). Then, if the mean were mu, a
gambler whose stake is multiplied by 1 + l (score - mu) at each decision, l fixed beforehand and small enough that it
stays positive, would on average not gain: a stake grown 1 / alpha times refutes mu (Ville's inequality; Waudby-Smith
and Ramdas 2024, arXiv 2010.09686; Karampatziakis, Mineiro, Ramdas 2021, arXiv 2102.09540). The bound is the least mu
that is not refuted.

It holds for every n, with no bound on the weights and whatever the model's error, if
- b are the probabilities that were used,
- every outcome is known and lies in [0, 1],
- policy, model, k and l come of other, earlier decisions,
- groups are independent of one another.
Where b is 0 the policy's outcome counts as 0 for the lower bound and as 1 for the upper one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from optimizer.dataset import Floats
from optimizer.ope.estimators import Evidence

CAPS = (1.0, 4.0, 16.0, 64.0, 256.0)
_SIZES = (0.5, 1.0, 2.0)
"""Bets, as multiples of the one that were best if the spread is as on the earlier rows. Their stakes are added."""
_BOLDEST = 0.9
_STEPS = 40


@dataclass(frozen=True)
class Bet:
    """How to bet on one side, chosen on earlier rows."""

    cap: float
    """k."""
    spread: float
    """Standard deviation of a group's summed score."""
    largest_group: int
    """Decisions of a group; a larger one cannot be bet on."""


@dataclass(frozen=True)
class Bets:
    """For the lower and for the upper bound."""

    low: Bet
    high: Bet


def plan_bets(earlier: Evidence, policy: Floats, *, confidence: float) -> Bets:
    """The bets that would have given the narrowest interval on earlier rows. `policy` (n, a) on those rows.

    Raises ValueError when there are none, or an outcome is unknown or outside [0, 1].
    """
    _check(earlier)
    alpha = (1 - confidence) / 2
    return Bets(_plan(earlier, policy, alpha), _plan(_mirrored(earlier), policy, alpha))


def certified_change(evidence: Evidence, policy: Floats, bets: Bets, *, confidence: float) -> tuple[float, float]:
    """Bounds of the mean outcome under `policy` (n, a) minus that of the logging behaviour; within [-1, 1].

    Valid as the module says. Raises ValueError when there is no row, or an outcome is unknown or outside [0, 1].
    """
    _check(evidence)
    alpha = (1 - confidence) / 2
    low = _bound(evidence, policy, bets.low, alpha)
    high = -_bound(_mirrored(evidence), policy, bets.high, alpha)
    return low, max(low, high)


def change_scores(evidence: Evidence, policy: Floats, cap: float) -> Floats:
    """(n,) scores with the change as their mean, each at least `-floor(cap)`."""
    with np.errstate(divide="ignore", invalid="ignore"):
        weight = np.where(policy > 0, policy / evidence.behaviour, 0.0)
        most = np.where(weight > 1, cap / (weight - 1), 1.0)
    model = np.clip(np.minimum(evidence.model, most), 0.0, 1.0)
    rows = evidence.rows, evidence.actions
    direct = ((policy - evidence.behaviour) * model).sum(axis=1)
    return np.asarray(direct + (weight[rows] - 1) * (evidence.outcome - model[rows]))


def floor(cap: float) -> float:
    """How far below 0 a score of `change_scores` can be."""
    return 1.0 + max(cap, 1.0)


def log_wealth(sums: Floats, sizes: Floats, bet: Bet, mean: float, alpha: float) -> float:
    """The logarithm of what a stake of 1 has grown to when the mean is tested: at the true one it is 1 or less on
    average. sums, sizes (g,): summed scores and number of decisions of each group."""
    boldest = _BOLDEST / ((floor(bet.cap) + 1) * bet.largest_group)
    best = np.sqrt(2 * np.log(1 / alpha) / max(len(sums), 1)) / max(bet.spread, 1e-12)
    gains = sums - mean * sizes
    grown = np.array([np.log1p(min(size * best, boldest) * gains).sum() for size in _SIZES])
    return float(np.logaddexp.reduce(grown) - np.log(len(_SIZES)))


def by_group(evidence: Evidence, scores: Floats) -> tuple[Floats, Floats]:
    """(g,) sums and (g,) sizes."""
    _, inverse = np.unique(evidence.groups, return_inverse=True)
    return np.bincount(inverse, weights=scores).astype(np.float64), np.bincount(inverse).astype(np.float64)


def _plan(earlier: Evidence, policy: Floats, alpha: float) -> Bet:
    found: list[tuple[float, Bet]] = []
    for cap in CAPS:
        sums, sizes = by_group(earlier, change_scores(earlier, policy, cap))
        mean = sums.sum() / sizes.sum()
        spread = float(np.sqrt(np.mean((sums - mean * sizes) ** 2)))
        bet = Bet(cap, spread, int(sizes.max()))
        found.append((_least(sums, sizes, bet, alpha), bet))
    return max(found, key=lambda pair: pair[0])[1]


def _bound(evidence: Evidence, policy: Floats, bet: Bet, alpha: float) -> float:
    return _least(*by_group(evidence, change_scores(evidence, policy, bet.cap)), bet, alpha)


def _least(sums: Floats, sizes: Floats, bet: Bet, alpha: float) -> float:
    """The least mean that is not refuted; -1 where nothing is, or a group is too large to bet on."""
    if sizes.max() > bet.largest_group:
        return -1.0
    return _crossing(lambda mean: log_wealth(sums, sizes, bet, mean, alpha) - np.log(1 / alpha))


def _crossing(refuted: Callable[[float], float]) -> float:
    """Where a falling function of the mean reaches 0, within [-1, 1], from below."""
    low, high = -1.0, 1.0
    if refuted(low) < 0:
        return low
    for _ in range(_STEPS):
        middle = (low + high) / 2
        low, high = (middle, high) if refuted(middle) >= 0 else (low, middle)
    return low


def _mirrored(evidence: Evidence) -> Evidence:
    """The same with every outcome y as 1 - y: a rise becomes a fall."""
    return replace(evidence, outcome=1 - evidence.outcome, model=1 - evidence.model, surrogate=1 - evidence.surrogate)


def _check(evidence: Evidence) -> None:
    if len(evidence.outcome) == 0:
        raise ValueError("no decision to certify a change on")
    if np.isnan(evidence.outcome).any():
        raise ValueError(f"{int(np.isnan(evidence.outcome).sum())} decisions have no known outcome")
    if not (evidence.outcome.min() >= 0 and evidence.outcome.max() <= 1):
        raise ValueError("outcomes must lie in [0, 1]; divide by the largest that counts")
