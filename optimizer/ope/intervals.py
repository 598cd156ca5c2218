"""Scores in, an estimate with its interval out."""

from __future__ import annotations

import numpy as np

from optimizer.dataset import Floats, Ints
from optimizer.gate import Estimate, Kind


def mean_interval(
    scores: Floats, groups: Ints, *, confidence: float, estimator: str, effective: float, kind: Kind = "asymptotic"
) -> Estimate:
    """The mean of the scores with a cluster-robust Student interval.

    scores (n,), groups (n,): rows of a group count as one unit. With u the groups' summed deviations from the mean,
    the standard error is sqrt(G / (G - 1) sum u^2) / n. Its degrees of freedom are Satterthwaite's, 2 G / (kurtosis -
    1) within [1, G - 1]: when a handful of large weights carries the variance, the interval widens. Asymptotic: exact
    only as the number of groups grows.
    """
    from scipy.stats import t

    n = len(scores)
    value = float(scores.mean())
    summed = deviations(scores, groups)
    count = len(summed)
    squares = float(np.sum(summed**2))
    if count < 2:
        half = float("inf")
    elif squares == 0.0:
        half = 0.0
    else:
        half = float(t.ppf(0.5 + confidence / 2, freedom(summed))) * standard_error(summed, n)
    return Estimate(estimator, value, value - half, value + half, n, effective, kind)


def deviations(scores: Floats, groups: Ints) -> Floats:
    """(g,) each group's summed deviation of the scores (n,) from their mean."""
    apart = scores - scores.mean()
    numbers = groups - groups.min() if len(groups) else groups
    if len(numbers) and int(numbers.max()) > 8 * len(numbers):
        numbers = np.unique(numbers, return_inverse=True)[1]
    summed = np.bincount(numbers, weights=apart)  # sorting the groups would take most of the time of an estimate
    return summed[np.bincount(numbers) > 0].astype(np.float64)


def standard_error(summed: Floats, n: int) -> float:
    """sqrt(g / (g - 1) sum u^2) / n, of the mean of n scores whose `deviations` are u (g,); infinite for one group."""
    count = len(summed)
    return float(np.sqrt(count / (count - 1) * np.sum(summed**2)) / n) if count > 1 else float("inf")


def freedom(summed: Floats) -> float:
    """Satterthwaite's degrees of freedom of the variance of `deviations` (g,); g - 1 at most, 1 at least."""
    count, squares = len(summed), float(np.sum(summed**2))
    if squares == 0.0:
        return max(count - 1.0, 1.0)
    kurtosis = count * float(np.sum(summed**4)) / squares**2
    return max(min(2 * count / max(kurtosis - 1, 1e-9), count - 1.0), 1.0)
