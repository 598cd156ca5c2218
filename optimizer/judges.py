"""How well a judge agrees with whoever else scored the same: kappa, correlation, bias, and a reliability curve.

Two sides give numbers in [0, 1] to the same targets; a pass is half or more. Pairs count as independent: where many are
of one session, the intervals are too narrow.

Legend: n pairs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from optimizer.dataset import Floats
from optimizer.gate import Estimate

LEAST = 20
"""Pairs that an estimate needs."""
BINS = 10
CONFIDENCE = 0.95
_Z = 1.959963984540054


@dataclass(frozen=True)
class Bin:
    """Of the judge's values in one tenth: their mean, and the mean of what others gave to the same targets."""

    low: float
    pairs: int
    judge: float
    other: Estimate


@dataclass(frozen=True)
class Agreement:
    """Of n pairs. An estimate is None where `refused` says why."""

    pairs: int
    alike: float | None
    """Share of pairs where both pass or both fail."""
    kappa: Estimate | None
    correlation: Estimate | None
    bias: Estimate | None
    """The judge's mean minus the others'."""
    curve: tuple[Bin, ...]
    refused: str = ""


def agreement(judge: Floats, other: Floats) -> Agreement:
    """judge, other: (n,) in [0, 1].

    kappa: Cohen (1960) of passes, with the variance of Fleiss, Cohen and Everitt (1969); 1 is perfect, 0 no better than
    by chance. correlation: Pearson's, by Fisher's z. bias: the mean difference, by the normal distribution. All of
    large samples.
    """
    n = len(judge)
    if n < LEAST:
        few = f"only {n} scored by both; {LEAST} are needed"
        return Agreement(n, None, None, None, None, (), few if n else "nothing was scored by both")
    passes, others = judge >= 0.5, other >= 0.5
    kappa = _kappa(passes, others)
    correlation = _correlation(judge, other)
    difference = judge - other
    half = _Z * float(difference.std(ddof=1)) / math.sqrt(n)
    mean = float(difference.mean())
    lacking = [
        *(["kappa: one side never gave but one verdict"] if kappa is None else []),
        *(["correlation: one side always gave the same"] if correlation is None else []),
    ]
    return Agreement(
        n,
        float((passes == others).mean()),
        kappa,
        correlation,
        _estimate(mean, mean - half, mean + half, n),
        curve(judge, other),
        "; ".join(lacking),
    )


def curve(judge: Floats, other: Floats) -> tuple[Bin, ...]:
    """By tenths of the judge's values, those that were given: what the others gave to the same. With Wilson's interval,
    which for numbers between 0 and 1 is no narrower than theirs."""
    place = np.minimum((judge * BINS).astype(np.int64), BINS - 1)
    found = []
    for number in np.unique(place):
        inside = place == number
        n = int(inside.sum())
        mean = float(other[inside].mean())
        low, high = wilson(mean, n)
        found.append(Bin(number / BINS, n, float(judge[inside].mean()), _estimate(mean, low, high, n)))
    return tuple(found)


def wilson(share: float, n: int) -> tuple[float, float]:
    """The 95 % interval of a share of n (Wilson 1927)."""
    if n < 1:
        return 0.0, 1.0
    middle = (share + _Z**2 / (2 * n)) / (1 + _Z**2 / n)
    half = _Z * math.sqrt(share * (1 - share) / n + _Z**2 / (4 * n**2)) / (1 + _Z**2 / n)
    return max(middle - half, 0.0), min(middle + half, 1.0)


def _kappa(first: Sequence[bool] | np.ndarray, second: Sequence[bool] | np.ndarray) -> Estimate | None:
    n = len(first)
    table = np.zeros((2, 2))
    np.add.at(table, (np.asarray(first, dtype=np.int64), np.asarray(second, dtype=np.int64)), 1.0)
    table /= n
    rows, columns = table.sum(axis=1), table.sum(axis=0)
    chance = float(rows @ columns)
    if chance >= 1.0:
        return None
    alike = float(table.trace())
    kappa = (alike - chance) / (1 - chance)
    on = sum(table[i, i] * (1 - (rows[i] + columns[i]) * (1 - kappa)) ** 2 for i in range(2))
    off = (1 - kappa) ** 2 * sum(table[i, 1 - i] * (columns[i] + rows[1 - i]) ** 2 for i in range(2))
    variance = (on + off - (kappa - chance * (1 - kappa)) ** 2) / (n * (1 - chance) ** 2)
    half = _Z * math.sqrt(max(float(variance), 0.0))
    return _estimate(kappa, max(kappa - half, -1.0), min(kappa + half, 1.0), n)


def _correlation(first: Floats, second: Floats) -> Estimate | None:
    n = len(first)
    if first.std() == 0 or second.std() == 0 or n < 4:
        return None
    r = float(np.clip(np.corrcoef(first, second)[0, 1], -1.0, 1.0))
    if abs(r) == 1.0:
        return _estimate(r, r, r, n)
    z, half = math.atanh(r), _Z / math.sqrt(n - 3)
    return _estimate(r, math.tanh(z - half), math.tanh(z + half), n)


def _estimate(value: float, low: float, high: float, n: int) -> Estimate:
    return Estimate("pairs", value, low, high, n, float(n), "asymptotic")
