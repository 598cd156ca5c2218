"""Bounds by logarithmic smoothing: a policy's value and its change, with no outcome model and no interval of weights.

Legend: n decisions in g groups. pi is the policy, b the logging behaviour, w = pi / b, y in [0, 1], l any positive
number.

With X = w y >= 0 the mean of X is at most the value V, whatever b was not asked to try. As the product of 1 + l X over
independent decisions is (1 + l E X)^n on average, with probability 1 - alpha (Markov)

    V >= (exp(mean log(1 + l X) + log(alpha) / n) - 1) / l

(Sakhi, Aouali, Alquier, Chopin 2024, arXiv 2405.14335: the tightest of a wide class of regularised importance
weighting; it is betting with the same bet throughout, see `ope.certificate`). The logarithm is what tames large
weights. Here the products for a few l are averaged, which keeps the bound, and a group's decisions are one X. The
change has X = w y + 1 - y >= 0, with mean 1 + change; upper bounds are lower ones of 1 - y.

They hold for every n, with no bound on the weights, if
- b are the probabilities that were used,
- every outcome is known and lies in [0, 1],
- the policy comes of other, earlier decisions,
- groups are independent of one another.
Neither a model nor earlier rows can be wrong here, so they check what the certificate says; they are wider than it
where a model explains the outcomes.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from optimizer.dataset import Floats, Ints
from optimizer.ope.estimators import Evidence, weights

_SPREADS = (0.5, 1.0, 2.0, 4.0, 8.0)
"""Standard deviations of X for which the values of l are the best."""
_STEPS = 40


def smoothed_value(evidence: Evidence, policy: Floats, *, confidence: float) -> tuple[float, float]:
    """Bounds of the mean outcome under `policy` (n, a); within [0, 1].

    Valid as the module says. Raises ValueError when there is no row, or an outcome is unknown or outside [0, 1].
    """
    _check(evidence)
    alpha = (1 - confidence) / 2
    weight = weights(evidence, policy)
    low = least_mean(weight * evidence.outcome, evidence.groups, alpha)
    high = 1 - least_mean(weight * (1 - evidence.outcome), evidence.groups, alpha)
    return low, max(low, high)


def smoothed_change(evidence: Evidence, policy: Floats, *, confidence: float) -> tuple[float, float]:
    """Bounds of the mean outcome under `policy` (n, a) minus that of the logging behaviour; within [-1, 1].

    Valid as the module says. Raises ValueError when there is no row, or an outcome is unknown or outside [0, 1].
    """
    _check(evidence)
    alpha = (1 - confidence) / 2
    weight, outcome = weights(evidence, policy), evidence.outcome
    low = least_mean(weight * outcome + 1 - outcome, evidence.groups, alpha) - 1
    high = 1 - least_mean(weight * (1 - outcome) + outcome, evidence.groups, alpha)
    return low, max(low, high)


def least_mean(scores: Floats, groups: Ints, alpha: float) -> float:
    """The least mean of nonnegative scores (n,) that is not refuted at level alpha; 0 where none is."""
    _, inverse = np.unique(groups, return_inverse=True)
    sums = np.bincount(inverse, weights=scores).astype(np.float64)
    sizes = np.bincount(inverse).astype(np.float64)
    tested = log_product(sums, sizes, alpha)
    low, high = 0.0, 2 * float(scores.mean()) + 1e-12
    for _ in range(_STEPS):
        middle = (low + high) / 2
        low, high = (middle, high) if tested(middle) >= np.log(1 / alpha) else (low, middle)
    return low


def log_product(sums: Floats, sizes: Floats, alpha: float) -> Callable[[float], float]:
    """log of the average over l of the product of (1 + l X) / (1 + l mean size) over groups, as a function of the mean:
    at the true one the average itself is 1 in expectation. sums, sizes (g,): summed scores and decisions of each group.
    """
    smoothing = np.sqrt(2 * np.log(1 / alpha) / len(sums)) / (np.array(_SPREADS) * sizes.mean())
    grown = np.array([float(np.log1p(one * sums).sum()) for one in smoothing])
    size, count = np.unique(sizes, return_counts=True)

    def tested(mean: float) -> float:
        expected = np.log1p(smoothing[:, None] * mean * size) @ count
        return float(np.logaddexp.reduce(grown - expected) - np.log(len(grown)))

    return tested


def _check(evidence: Evidence) -> None:
    """Raises ValueError when there is no row, or an outcome is unknown or outside [0, 1]."""
    if len(evidence.outcome) == 0:
        raise ValueError("no decision to bound a value by")
    if np.isnan(evidence.outcome).any():
        raise ValueError(f"{int(np.isnan(evidence.outcome).sum())} decisions have no known outcome")
    if not (evidence.outcome.min() >= 0 and evidence.outcome.max() <= 1):
        raise ValueError("outcomes must lie in [0, 1]; divide by the largest that counts")
