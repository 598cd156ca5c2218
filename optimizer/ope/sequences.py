"""Intervals of the difference between two arms that hold at every look at once: whoever stops when he likes is covered.

Legend: n units (sessions or decisions) in order of time, y outcomes, T whether a unit is treated, p the probability
with which it was to be. With a and c guesses of the arms' means from earlier units, the contribution of a unit,

    x = a - c + T (y - a) / p - (1 - T) (y - c) / (1 - p),

has the difference of the arms' means as its mean whatever the guesses are, also while p is raised from stage to stage
and outcomes drift: arms are compared at the same times. Both intervals take units for independent and the difference
for constant; missing outcomes must be missing at the same rate in both arms (see `ratio_p_value`, on the known ones).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from optimizer.dataset import Bools, Floats

Kind = Literal["anytime-valid", "asymptotic anytime-valid"]

FEWEST = 100
"""Units of each arm before which there is no asymptotic interval."""
TUNED_FOR = 2_000
"""Units at which the asymptotic interval is about the narrowest."""
_BETS = 0.9 * 0.5 ** np.arange(10)
"""Shares of what may be staked. Their wealths are averaged: some bet is within a factor of two of the best one, from
some ten units to some ten million."""
_STEPS = 30
_CONCENTRATION = 100.0
"""How near to the expected ratio the alternative of the ratio test lies: standard deviation sqrt(p (1 - p) / 101)."""


@dataclass(frozen=True)
class Difference:
    """Mean under treatment minus mean under control."""

    value: float
    low: float
    high: float
    kind: Kind
    units: int


def bounded_difference(y: Floats, treated: Bools, share: Floats, *, confidence: float) -> Difference | None:
    """Of outcomes in [0, 1]: holds for every n, whatever their distribution. None while an arm is empty.

    y, treated, share (n,). A gambler bets on every contribution that it is larger than a mean m, with ten shares of his
    wealth at once; under m the wealth is a martingale of mean 1, so by Ville's inequality it ever reaches 2 / alpha
    with probability alpha / 2 at most. The bound is the largest m where it has; likewise from above. (Waudby-Smith and
    Ramdas 2024, arXiv 2010.09686.) ValueError for outcomes outside [0, 1] or shares outside (0, 1).
    """
    _check(y, treated, share)
    if len(y) and not (y.min() >= 0 and y.max() <= 1):
        raise ValueError("outcomes must lie in [0, 1]")
    if treated.all() or not treated.any():
        return None
    x, reach = contributions(y, treated, share), _reach(share)
    needed = float(np.log(2 / (1 - confidence)))
    low = _largest_refuted(x, reach, needed)
    high = -_largest_refuted(-x, reach, needed)
    value = _value(y, treated, share)
    return Difference(value, min(low, value), max(high, value), "anytime-valid", len(y))


def difference(y: Floats, treated: Bools, share: Floats, *, confidence: float) -> Difference | None:
    """Of outcomes without a bound, such as costs and times: holds at all looks together as n grows. None before
    `FEWEST` units of each arm.

    y, treated, share (n,). With s the standard deviation of the contributions and r^2 = (-2 log alpha + log(-2 log
    alpha) + 1) / `TUNED_FOR`, mean +- s sqrt(2 (n r^2 + 1) / (n r)^2 log(sqrt(n r^2 + 1) / alpha)). (Waudby-Smith,
    Arbour, Sinha, Kennedy and Ramdas 2021, arXiv 2103.06476, theorem 2.2.) ValueError for shares outside (0, 1).
    """
    _check(y, treated, share)
    if min(int(treated.sum()), int((~treated).sum())) < FEWEST:
        return None
    x = _contributions(y, treated, share, float(y[treated].mean()), float(y[~treated].mean()))
    alpha, n = 1 - confidence, len(y)
    squared = (-2 * np.log(alpha) + np.log(-2 * np.log(alpha)) + 1) / TUNED_FOR
    grown = n * squared + 1
    half = float(x.std(ddof=1) * np.sqrt(2 * grown / (n * n * squared) * np.log(np.sqrt(grown) / alpha)))
    value = float(x.mean())
    return Difference(value, value - half, value + half, "asymptotic anytime-valid", n)


def contributions(y: Floats, treated: Bools, share: Floats) -> Floats:
    """(n,) x of the module, with each arm's mean before the unit as guess (0.5 counts as a first outcome)."""
    return _contributions(y, treated, share, _mean_before(y, treated), _mean_before(y, ~treated))


def log_wealth(x: Floats, share: Floats, mean: float) -> Floats:
    """(n,) the logarithm of the wealth after each unit, of a gambler who bets that contributions x lie above `mean`."""
    grown = np.cumsum(_gains(x, _reach(share), mean), axis=1)
    return np.asarray(np.logaddexp.reduce(grown, axis=0) - np.log(len(_BETS)), dtype=np.float64)


def ratio_p_value(treated: Bools, share: Floats) -> float:
    """How surprising the seen arms are where each unit was to be treated with probability `share`: reaches a or less at
    any look with probability a at most.

    treated, share (n,). Of each distinct share p, the Bayes factor of a Beta(100 p, 100 (1 - p)) prior against p
    itself; they multiply, and the p-value is 1 over the largest so far. (Lindon and Malek 2022, arXiv 2011.03567.)
    """
    from scipy.special import betaln

    steps = np.zeros(len(treated))
    for p in np.unique(share):
        rows = share == p
        if p <= 0 or p >= 1:
            if (treated[rows] != (p >= 1)).any():
                return 0.0
            continue
        seen, other = np.cumsum(treated[rows]), np.cumsum(~treated[rows])
        a, b = _CONCENTRATION * p, _CONCENTRATION * (1 - p)
        factor = betaln(a + seen, b + other) - betaln(a, b) - seen * np.log(p) - other * np.log(1 - p)
        steps[rows] = np.diff(factor, prepend=0.0)
    return float(np.exp(-max(np.cumsum(steps).max(initial=0.0), 0.0)))


def _contributions(y: Floats, treated: Bools, share: Floats, a: Floats | float, c: Floats | float) -> Floats:
    return np.asarray(a - c + np.where(treated, (y - a) / share, -(y - c) / (1 - share)), dtype=np.float64)


def _value(y: Floats, treated: Bools, share: Floats) -> float:
    """The mean contribution with the arms' means as guesses: their difference where the share never changed."""
    return float(_contributions(y, treated, share, float(y[treated].mean()), float(y[~treated].mean())).mean())


def _mean_before(y: Floats, arm: Bools) -> Floats:
    sums, counts = np.cumsum(np.where(arm, y, 0.0)), np.cumsum(arm)
    return np.asarray((0.5 + np.append(0.0, sums[:-1])) / (1 + np.append(0, counts[:-1])), dtype=np.float64)


def _reach(share: Floats) -> NDArray[np.float64]:
    """(n,) how far from 0 a contribution of outcomes in [0, 1] can be."""
    return np.asarray(np.maximum(1 / share, 1 / (1 - share)), dtype=np.float64)


def _gains(x: Floats, reach: Floats, mean: float) -> NDArray[np.float64]:
    """(bets, n) logarithms of what each bet multiplies its wealth by. `mean` lies in [-1, 1], so none ruins it."""
    return np.asarray(np.log1p(_BETS[:, None] * ((x - mean) / (reach + 1))), dtype=np.float64)


def _largest_refuted(x: Floats, reach: Floats, needed: float) -> float:
    """The largest mean in [-1, 1] at which the wealth has reached exp(needed), by bisection: it falls with the mean."""

    def refuted(mean: float) -> bool:
        grown = _gains(x, reach, mean).sum(axis=1)
        return bool(np.logaddexp.reduce(grown) - np.log(len(_BETS)) >= needed)

    low, high = -1.0, 1.0
    if not refuted(low):
        return low
    for _ in range(_STEPS):
        middle = (low + high) / 2
        low, high = (middle, high) if refuted(middle) else (low, middle)
    return low


def _check(y: Floats, treated: Bools, share: Floats) -> None:
    if not len(y) == len(treated) == len(share):
        raise ValueError("outcomes, arms and shares must be of one length")
    if len(share) and not (share.min() > 0 and share.max() < 1):
        raise ValueError("shares must lie between 0 and 1")
