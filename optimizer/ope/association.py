"""Do two things still go together when the features are taken out of both?

With x and y what the features leave unexplained of two variables, the mean of x y is 0 if the two are independent given
the features, even if one of the two explanations is wrong: the errors of both would have to go together (the
generalised covariance measure, Shah and Peters 2020, arXiv 1804.07203).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from optimizer.dataset import Bools, Floats, Ints


@dataclass(frozen=True)
class Association:
    """How x and y go together."""

    size: float
    """By how much y is higher where x is higher by 1: sum x y / sum x^2."""
    p_value: float
    """Two-sided."""


def association(x: Floats, y: Floats, groups: Ints) -> Association:
    """x, y (n,), each with its mean taken out; groups (n,): rows of a group count as one unit.

    The sum of x y over its cluster-robust standard error against Student's t, with Satterthwaite's degrees of freedom
    as in `intervals.mean_interval`. Asymptotic. Without variation or with one group the p-value is 1.
    """
    from scipy.stats import t

    x, y = x - x.mean(), y - y.mean()
    spread = float(np.sum(x**2))
    _, inverse = np.unique(groups, return_inverse=True)
    count = int(inverse.max()) + 1
    if spread == 0 or count < 2:
        return Association(0.0, 1.0)
    size = float(np.sum(x * y)) / spread
    sums = np.bincount(inverse, weights=x * (y - size * x))
    squares = float(np.sum(sums**2))
    if squares == 0:
        return Association(size, 1.0 if size == 0 else 0.0)
    kurtosis = count * float(np.sum(sums**4)) / squares**2
    freedom = min(max(2 * count / max(kurtosis - 1, 1e-9), 1.0), count - 1.0)
    error = np.sqrt(count / (count - 1) * squares) / spread
    return Association(size, float(2 * t.sf(abs(size) / error, freedom)))


def holm(p_values: Sequence[float], alpha: float) -> Bools:
    """(m,) which of m hypotheses are rejected, so that with probability 1 - alpha no true one is (Holm 1979)."""
    order = np.argsort(p_values, kind="stable")
    m = len(order)
    passed = np.asarray(p_values, dtype=np.float64)[order] <= alpha / (m - np.arange(m))
    rejected = np.zeros(m, dtype=np.bool_)
    rejected[order] = np.logical_and.accumulate(passed)
    return rejected
