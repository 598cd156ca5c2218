"""How long an experiment takes: the decisions after which the gate's interval is narrow enough.

Legend: n decisions, k arms.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from optimizer.dataset import CERTIFY, MIN_PROPENSITY, Floats, Ints
from optimizer.evidence import Evaluation, Outcome, Refused
from optimizer.gate import MIN_EFFECTIVE, MIN_LABEL_SHARE, Estimate, Limits
from optimizer.ope.estimators import Evidence
from optimizer.ope.estimators import today as today_scores

SURE = 0.9
"""Probability with which the experiment decides, if the estimates that it was planned by are true."""
COARSE = 0.03
"""Half-width of the wanted interval where there is no estimate yet: quality to within 3 points."""

LEAST = MIN_PROPENSITY / 10
"""Probability that today's routing is taken to have where it has none: no interval narrows there."""

Binding = Literal["quality", "saving", "effective"]


def wanted_half_width(quality: Outcome, limits: Limits, still: float = 1.0) -> float:
    """Of the interval of the change of quality, so that the gate decides with probability `SURE` if the estimate is
    true; `COARSE` without one. `still` is the share of the change that is left to be made."""
    if isinstance(quality, Refused):
        return max(limits.quality_margin, COARSE)
    z, sure = _quantiles(limits)
    return (max(still * quality.value, 0.0) + limits.quality_margin) * z / (z + sure)


def _quantiles(limits: Limits) -> tuple[float, float]:
    from scipy.stats import norm

    return float(norm.ppf(0.5 + limits.confidence / 2)), float(norm.ppf(SURE))


@dataclass(frozen=True, eq=False)
class Facts:
    """What the log says of each arm."""

    quality: Floats
    """(n, k) expected."""
    cost_usd: Floats
    """(n, k) expected; 0 where no cost is known."""
    spread: Floats
    """(k,) standard deviation of quality that the model leaves."""
    cost_spread: Floats
    """(k,)"""
    label_share: float
    clustering: float
    """How many times the variance of a mean over sessions is that of as many single decisions; at least 1."""

    @classmethod
    def of(cls, evaluation: Evaluation, columns: Ints) -> Facts:
        quality, cost = evaluation.outcomes["quality"], evaluation.outcomes["cost_usd"]
        share = float(np.mean(~np.isnan(quality.outcome)))
        return cls(
            _expected(quality, columns, 0.5),
            _expected(cost, columns, 0.0),
            _spread(quality, columns, 0.5),
            _spread(cost, columns, 0.0),
            max(share, MIN_LABEL_SHARE),
            _clustering(quality),
        )


@dataclass(frozen=True)
class Length:
    """How many decisions must be judged."""

    judged: float
    half_width: float
    """Wanted of the interval of quality."""
    binding: Binding
    """What asks for so many."""
    variance: float
    """Of quality's difference per judged decision, drawn by the experiment."""
    variance_today: float
    """The same, drawn as today."""
    z: float
    """Half of the interval is z sqrt(variance / judged decisions)."""


def length(
    facts: Facts, today: Floats, drawn: Floats, candidate: Floats, *, quality: Outcome, saving: Outcome, limits: Limits
) -> Length:
    """The judged decisions that tell the candidate from what is drawn; formula in `exploration.explore`.

    today, drawn, candidate (n, k): probabilities of the arms. quality, saving: the candidate's changes of quality and
    of cost from today's routing.
    """
    z, sure = _quantiles(limits)
    # What is left of the change, once what is drawn in the experiment counts as today's routing.
    still = _distance(candidate, drawn) / max(_distance(candidate, today), 1e-9)
    difference = candidate - drawn
    half_width = wanted_half_width(quality, limits, min(still, 1.0))
    label = facts.label_share
    variance = _variance(difference, drawn, facts.quality, facts.spread, label) * facts.clustering
    as_now = np.maximum(today, LEAST)
    as_now = as_now / as_now.sum(axis=1, keepdims=True)
    variance_today = _variance(candidate - today, as_now, facts.quality, facts.spread, label) * facts.clustering
    needed: dict[Binding, float] = {
        "quality": z**2 * variance / half_width**2,
        "effective": MIN_EFFECTIVE * float((candidate**2 / drawn).sum(axis=1).mean()) / label,
    }
    moved = -float((difference * facts.cost_usd).sum(axis=1).mean())
    if isinstance(saving, Estimate) and saving.value < 0 < moved:
        spent = _variance(difference, drawn, facts.cost_usd, facts.cost_spread, 1.0) * facts.clustering
        needed["saving"] = (z + sure) ** 2 * spent / moved**2
    binding = max(needed, key=lambda name: needed[name])
    return Length(needed[binding], half_width, binding, variance, variance_today, z)


def judged(decisions: float, earlier: int) -> float:
    """Of so many decisions after `earlier` ones, how many will judge: the newest fifth of all, but none from before."""
    return min(decisions, CERTIFY * (earlier + decisions))


def _distance(one: Floats, other: Floats) -> float:
    return float(np.abs(one - other).sum(axis=1).mean()) / 2


def _variance(difference: Floats, drawn: Floats, expected: Floats, spread: Floats, label: float) -> float:
    """Per decision, of the doubly robust score of a difference."""
    noise = (difference**2 * spread**2 / drawn).sum(axis=1) / label
    return float(noise.mean() + (difference * expected).sum(axis=1).var())


def _expected(evidence: Evidence, columns: Ints, otherwise: float) -> Floats:
    """(n, k) the model's outcome; the mean of each arm where there is no model, `otherwise` where nothing is known."""
    model = evidence.model[:, columns]
    if not np.isnan(model).any():
        return model
    known = evidence.outcome[~np.isnan(evidence.outcome)]
    mean = mean_or(known, otherwise)
    means = [mean_or(evidence.outcome[evidence.actions == column], mean) for column in columns]
    return np.tile(np.array(means), (len(model), 1))


def _spread(evidence: Evidence, columns: Ints, otherwise: float) -> Floats:
    """(k,) root mean square of what the model leaves; of all arms together where an arm has fewer than 30 outcomes."""
    left = evidence.outcome - evidence.model[evidence.rows, evidence.actions]
    known = ~np.isnan(left)
    if not known.any():
        return np.full(len(columns), otherwise)
    overall = float(np.sqrt(np.mean(left[known] ** 2)))
    own = [left[known & (evidence.actions == column)] for column in columns]
    return np.array([max(float(np.sqrt(np.mean(x**2))) if len(x) >= 30 else overall, 1e-9) for x in own])


def _clustering(evidence: Evidence) -> float:
    scores = today_scores(evidence)
    if np.isnan(scores).any() or not len(scores):
        return 1.0
    off = scores - scores.mean()
    single = float(np.sum(off**2))
    _, inverse = np.unique(evidence.groups, return_inverse=True)
    return max(float(np.sum(np.bincount(inverse, weights=off) ** 2)) / single, 1.0) if single else 1.0


def mean_or(values: Floats, otherwise: float) -> float:
    """The mean of the known values (NaN where unknown), or `otherwise` when there is none."""
    known = values[~np.isnan(values)]
    return float(known.mean()) if known.size else otherwise
