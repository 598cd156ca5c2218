"""How wrong can a change be if something that nobody logged moved both the choice and the outcome?

Legend: n decisions, a actions. pi is the policy, b the estimated behaviour, w = pi / b, y the outcome, r whether it is
known, e the probability that it is known.

Marginal sensitivity model with Gamma >= 1 (Tan 2006; Zhao, Small, Bhattacharya, arXiv 1711.11286; for policies Kallus
and Zhou, arXiv 1805.08593): given the unobserved cause too, the odds of each action differ from b / (1 - b) by at most
the factor Gamma. Then the mean outcome of the policy is at least

    value as if nothing were hidden - E[ w (1 - b) (1 - 1 / Gamma) ((y - q)+ + Gamma (q - y)+) ]

for every function q of features and action, and this is the best bound when q is the 1 / (1 + Gamma) quantile of y
(Dorn, Guo, Kallus, arXiv 2112.11449; Hess et al., arXiv 2502.13022). Upwards likewise. What ran today is observed, so
only the policy's side is uncertain, and where the log always takes the policy's action nothing is.

Here q is the empirical quantile within a few cells of equal action and similar predicted outcome, of y or of what y is
above its prediction, whichever is the tighter there: the bounds are valid with any q, sharp where this one is right.
They widen with Gamma on every log, and at Gamma = 1 both are the doubly robust change. A confidence limit adds the
sampling error (asymptotic).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np

from optimizer.dataset import Floats, Ints
from optimizer.ope.estimators import Evidence, doubly_robust, effective, today, weights
from optimizer.ope.intervals import mean_interval

MOST_GAMMA = 10.0
"""Beyond it nobody's doubt is left: the bisection stops."""
_CELLS = 5
_CELL_SIZE = 50.0
"""Effective decisions a cell should have."""
_STEPS = 12
"""Values of Gamma tried before the bisection."""
_PRECISION = 0.005


@dataclass(frozen=True)
class Bounds:
    """Mean outcome under a policy minus today's, if the odds are wrong by at most `gamma`."""

    gamma: float
    low: float
    high: float
    """Estimated bounds; what is between them no log of this kind can settle."""
    low_limit: float
    high_limit: float
    """The bounds with their sampling error, at the confidence asked for."""


def change_bounds(evidence: Evidence, policy: Floats, gamma: float, *, confidence: float) -> Bounds:
    """Bounds of the change that `policy` (n, a) makes. Raises ValueError for gamma below 1 or no known outcome."""
    return _Doubt.of(evidence, policy, confidence).bounds(gamma)


def tipping_point(
    evidence: Evidence,
    policy: Floats,
    threshold: float,
    *,
    stays: Literal["above", "below"] = "above",
    confidence: float = 0.95,
) -> float | None:
    """The largest Gamma at which the change certainly stays above (or below) the threshold, within 0.005, and at all
    smaller ones too.

    `MOST_GAMMA` means that or more; None that the change is not certain even if nothing is hidden.
    """
    doubt = _Doubt.of(evidence, policy, confidence)

    def clears(gamma: float) -> bool:
        bounds = doubt.bounds(gamma)
        return bounds.low_limit >= threshold if stays == "above" else bounds.high_limit <= threshold

    return largest_gamma(clears)


def largest_gamma(clears: Callable[[float], bool]) -> float | None:
    """The largest Gamma up to which all clear, within 0.005; `MOST_GAMMA` for that or more, None if 1 does not."""
    if not clears(1.0):
        return None
    low = 1.0
    for high in np.geomspace(1.0, MOST_GAMMA, _STEPS)[1:]:
        if not clears(float(high)):
            return _bisect(clears, low, float(high))
        low = float(high)
    return MOST_GAMMA


def _bisect(clears: Callable[[float], bool], low: float, high: float) -> float:
    while high - low > _PRECISION:
        middle = (low + high) / 2
        low, high = (middle, high) if clears(middle) else (low, middle)
    return low


@dataclass(frozen=True, eq=False)
class _Doubt:
    """What does not depend on Gamma; of k known rows in c cells."""

    point: Floats
    """(n,) scores of the change if nothing is hidden."""
    groups: Ints
    known: Ints
    """(k,) rows."""
    forms: tuple[Floats, Floats]
    """(k,) each: the outcome, and the outcome minus its prediction."""
    orders: tuple[Ints, Ints]
    """(k,) each: by cell, then by that form."""
    stake: Floats
    """(k,) w (1 - b) / e."""
    cell: Ints
    """(k,)"""
    size: float
    confidence: float

    @classmethod
    def of(cls, evidence: Evidence, policy: Floats, confidence: float) -> _Doubt:
        known = np.flatnonzero(~np.isnan(evidence.outcome))
        if len(known) == 0:
            raise ValueError("no decision with a known outcome to bound a change on")
        actions = evidence.actions[known]
        weight = (weights(evidence, policy) / evidence.known)[known]
        cell = _cells(evidence, known, weight)
        outcome = evidence.outcome[known]
        forms = outcome, outcome - evidence.model[known, actions]
        return cls(
            point=doubly_robust(evidence, policy) - today(evidence),
            groups=evidence.groups,
            known=known,
            forms=forms,
            orders=(np.lexsort((forms[0], cell)), np.lexsort((forms[1], cell))),
            stake=weight * (1 - evidence.behaviour[known, actions]),
            cell=cell,
            size=effective(weight),
            confidence=confidence,
        )

    def bounds(self, gamma: float) -> Bounds:
        if not gamma >= 1:
            raise ValueError(f"gamma must be at least 1, got {gamma}")
        lower = self.point - self._penalty(gamma, above=1.0, below=gamma)
        upper = self.point + self._penalty(gamma, above=gamma, below=1.0)
        return Bounds(gamma, float(lower.mean()), float(upper.mean()), self._limits(lower)[0], self._limits(upper)[1])

    def _penalty(self, gamma: float, *, above: float, below: float) -> Floats:
        """(n,) Its mean is the least that any q of the two forms gives, so it grows with gamma, as both factors do."""
        penalty = np.zeros(len(self.point))
        losses = []
        for form, order in zip(self.forms, self.orders, strict=True):
            off = form - self._quantiles(form, order, above / (above + below))[self.cell]
            losses.append(self.stake * (above * np.maximum(off, 0) + below * np.maximum(-off, 0)))
        plain, rest = (np.bincount(self.cell, weights=loss) for loss in losses)
        penalty[self.known] = (1 - 1 / gamma) * np.where((plain <= rest)[self.cell], *losses)
        return penalty

    def _quantiles(self, form: Floats, order: Ints, level: float) -> Floats:
        """(c,) each cell's quantile, weighted by the stakes."""
        total, sizes = np.bincount(self.cell, weights=self.stake), np.bincount(self.cell)
        target = total.cumsum() - (1 - level) * total
        place = np.searchsorted(self.stake[order].cumsum(), target)
        ends = sizes.cumsum()
        quantiles: Floats = form[order[np.clip(place, ends - sizes, ends - 1)]]
        return quantiles

    def _limits(self, scores: Floats) -> tuple[float, float]:
        found = mean_interval(
            scores, self.groups, confidence=self.confidence, estimator="MSM", effective=self.size, kind="assumption"
        )
        return found.low, found.high


def _cells(evidence: Evidence, known: Ints, weight: Floats) -> Ints:
    """(k,) consecutive numbers: known rows of one action with similar predictions. weight (k,)."""
    cell = np.zeros(len(known), dtype=np.int64)
    actions = evidence.actions[known]
    for action in np.unique(actions):
        taken = np.flatnonzero(actions == action)
        predicted = evidence.model[known[taken], action]
        count = int(np.clip(effective(weight[taken]) // _CELL_SIZE, 1, _CELLS))
        edges = np.quantile(predicted, np.arange(1, count) / count)
        cell[taken] = action * _CELLS + np.searchsorted(edges, predicted)
    numbers: Ints = np.unique(cell, return_inverse=True)[1]
    return numbers
