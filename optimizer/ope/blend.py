"""One number out of three estimates: the outcome model's, SNIPS and doubly robust, each counted by how wrong it is.

Legend: n decisions, a actions. pi is the policy, b the logging behaviour, w = pi / b, m the outcome model, y the
outcome, r whether it is known, e the probability that it is known.

direct   sum_a pi(a) (m(a) + d(a)), with d(a) the mean residual of the action where it was taken, drawn towards 0 as by
         a hundred decisions without any: little noise, but biased where the model is
snips    sum w (r / e) y / sum w (r / e)
robust   sum_a pi(a) m(a) + sum w (r / e) (y - m) / sum w (r / e): doubly robust, its correction self-normalised

The last two have next to no bias; they are combined for the least variance. That is combined with the first for the
least mean squared error, as in OPERA (Nie et al. 2024, arXiv 2405.17708): with c their difference and s its standard
error, both clustered, the direct estimate's squared bias is taken for what c^2 is above chance, (c^2 - t^2 s^2)+ with t
Student's 90 % quantile at the difference's degrees of freedom, but for no less than a tenth of the outcome's standard
deviation, squared: no model of logged data is trusted beyond that. The combination is convex.

The error of a number chosen so is not that of a mean: an interval around it is for the doubly robust scores to give.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from optimizer.dataset import Floats
from optimizer.ope.estimators import Evidence, direct, heft, residual, snips, today, weights
from optimizer.ope.intervals import deviations, freedom

LEAST_BIAS = 0.1
"""The direct estimate's assumed bias at least, in standard deviations of the outcome."""
CHANCE = 0.9
"""A difference within the interval of this level is put down to chance."""
PRIOR_DECISIONS = 1 / LEAST_BIAS**2
"""An action's mean residual counts as if so many more decisions had shown none: what is right where an action's bias is
as likely as not within `LEAST_BIAS` standard deviations."""


@dataclass(frozen=True, eq=False)
class Blend:
    """A point estimate and the shares that make it; they sum to 1."""

    scores: Floats
    """(n,) influence values around the estimate, which is their mean."""
    direct: float
    snips: float
    robust: float

    @property
    def value(self) -> float:
        return float(self.scores.mean())


def blend(evidence: Evidence, policy: Floats) -> Blend:
    """The policy's value. policy (n, a). NaN without an outcome model."""
    return _blended(evidence, _scores(evidence, policy, direct(evidence, policy), policy))


def blend_change(evidence: Evidence, policy: Floats) -> Blend:
    """The policy's value minus today's, on the same rows: the direct estimate errs only where the two part."""
    now = today(evidence)
    modelled = direct(evidence, policy) - direct(evidence, evidence.behaviour)
    scores = _scores(evidence, policy, modelled, policy - evidence.behaviour)
    scores[:, 1:] -= now[:, None]
    return _blended(evidence, scores)


def _scores(evidence: Evidence, policy: Floats, modelled: Floats, mass: Floats) -> Floats:
    """(n, 3) direct, snips, robust as influence values around the estimates. mass (n, a): what the model's answers are
    weighed by, `modelled` (n,) their sums."""
    weight, errors, counts = weights(evidence, policy), residual(evidence), heft(evidence)
    return np.column_stack(
        [
            modelled + _calibration(evidence, mass, errors, counts),
            snips(evidence, policy),
            direct(evidence, policy) + _mean_of_ratio(weight * errors, weight * counts),
        ]
    )


def _calibration(evidence: Evidence, mass: Floats, errors: Floats, counts: Floats) -> Floats:
    """(n,) sum_a mass(a) d(a), with the influence of each decision's residual on it."""
    n, a = mass.shape
    rows = np.bincount(evidence.actions, weights=counts > 0, minlength=a)
    seen = np.bincount(evidence.actions, weights=counts, minlength=a)
    total = seen + PRIOR_DECISIONS * np.maximum(seen / np.maximum(rows, 1), 1.0)
    shift = np.bincount(evidence.actions, weights=errors, minlength=a) / total
    pull = (mass.mean(axis=0) * n / total)[evidence.actions] * (errors - counts * shift[evidence.actions])
    return np.asarray(mass @ shift + pull - pull.mean())


def _mean_of_ratio(numerator: Floats, denominator: Floats) -> Floats:
    """(n,) sum of one by sum of the other, as influence values; 0 where nothing counts."""
    total = denominator.sum()
    if total == 0:
        return np.zeros(len(numerator))
    ratio = numerator.sum() / total
    return np.asarray(ratio + (numerator - ratio * denominator) * len(numerator) / total)


def _blended(evidence: Evidence, scores: Floats) -> Blend:
    summed = np.column_stack([deviations(column, evidence.groups) for column in scores.T])
    groups = len(summed)
    covariance = summed.T @ summed * (groups / max(groups - 1, 1)) / len(scores) ** 2
    light = _share(covariance[1:, 1:], 0.0)
    two = np.array([[1.0, 0.0, 0.0], [0.0, light, 1 - light]])
    against = two[0] - two[1]
    apart = float(scores.mean(axis=0) @ against)
    chance = _quantile(freedom(summed @ against)) ** 2 * float(against @ covariance @ against)
    bias = max((LEAST_BIAS * _spread(evidence)) ** 2, apart**2 - chance)
    trust = _share(two @ covariance @ two.T, bias)
    shares = trust * two[0] + (1 - trust) * two[1]
    return Blend(scores @ shares, *(float(one) for one in shares))


def _share(covariance: Floats, bias: float) -> float:
    """The first one's share in the combination of two with the least squared error; `bias` is its squared bias."""
    apart = covariance[0, 0] + covariance[1, 1] - 2 * covariance[0, 1] + bias
    return float(np.clip((covariance[1, 1] - covariance[0, 1]) / apart, 0.0, 1.0)) if apart > 0 else 0.0


def _spread(evidence: Evidence) -> float:
    known = evidence.outcome[~np.isnan(evidence.outcome)]
    return float(known.std()) if len(known) else 0.0


def _quantile(degrees: float) -> float:
    from scipy.stats import t

    return float(t.ppf(0.5 + CHANCE / 2, degrees))
