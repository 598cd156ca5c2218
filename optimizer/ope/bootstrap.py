"""Intervals by resampling whole groups and calling the estimator again on what was drawn.

Legend: n decisions in g groups, B draws. Every estimator here is a ratio of sums over decisions,

    DM, DR   sum of scores / n        SNIPS   sum w (r / e) y / sum w (r / e)

or, for a change, such a ratio minus today's value; all are functions of the groups' sums, so B draws are one product of
the (B, g) counts with them. The denominator is drawn anew each time: dividing by the sample's own one first, as if it
were known, makes SNIPS intervals several times too wide.

Studentised: the quantiles of (drawn - found) / standard error of the draw, times the standard error found, around the
estimate (Efron and Tibshirani 1993, chapter 12). Asymptotic as the influence interval is, but it follows the skew that
a few large weights make. Valid where groups are independent and many carry weight.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from optimizer.dataset import Floats, Ints
from optimizer.ope.estimators import ESTIMATORS, Evidence, today, weights

DRAWS = 999
MOST_BLOCKS = 2_000
"""With more groups than this, groups are put together at random first: sums of independent groups are independent."""


@dataclass(frozen=True, eq=False)
class Ratio:
    """Sum of the numerators by sum of the denominators, each (g,)."""

    numerator: Floats
    denominator: Floats


def bootstrap_interval(
    evidence: Evidence,
    policy: Floats,
    estimator: str = "DR",
    *,
    change: bool,
    confidence: float,
    seed: int = 0,
    draws: int = DRAWS,
) -> tuple[float, float]:
    """Bounds of the policy's value, or of its change from today. policy (n, a).

    Infinite where there are fewer than two groups, or too few to tell how much draws differ; NaN where the estimate is.
    """
    rng = np.random.default_rng(seed)
    blocks = _blocks(evidence.groups, rng)
    first = _ratio(evidence, policy, estimator, blocks)
    parts = [first, _mean(today(evidence), blocks)] if change else [first]
    count = len(first.numerator)
    if count < 2:
        return -np.inf, np.inf
    value, error = (float(one[0]) for one in _estimates(parts, np.ones((1, count))))
    drawn, errors = _estimates(parts, drawn_counts(count, draws, rng))
    if error <= 1e-12 * abs(value):
        return value, value
    far = np.where(abs(drawn - value) > 1e-9 * error, np.copysign(np.inf, drawn - value), 0.0)
    ratios = np.divide(drawn - value, errors, out=far, where=errors > 1e-9 * error)
    above, below = np.nanquantile(ratios, [(1 + confidence) / 2, (1 - confidence) / 2], method="inverted_cdf")
    return value - float(above) * error, value - float(below) * error


def drawn_counts(count: int, draws: int, rng: np.random.Generator) -> Floats:
    """(draws, count) how often each of `count` groups is drawn, with replacement."""
    picked = rng.integers(0, count, (draws, count)) + count * np.arange(draws)[:, None]
    return np.bincount(picked.ravel(), minlength=draws * count).reshape(draws, count).astype(np.float64)


def _estimates(parts: list[Ratio], counts: Floats) -> tuple[Floats, Floats]:
    """(B,) estimates, the first ratio minus the second where there is one, and (B,) their standard errors.

    The error is that of the linearised ratios, sum_j s_j (N_j - R_j D_j) / sum D_j over groups.
    """
    groups = counts.shape[1]
    columns = np.column_stack([column for part in parts for column in (part.numerator, part.denominator)])
    width = columns.shape[1]
    sums = counts @ columns
    with np.errstate(divide="ignore", invalid="ignore"):
        ratios = sums[:, 0::2] / sums[:, 1::2]
        scale = np.array([1.0, -1.0])[: len(parts)] / sums[:, 1::2]
    weighing = np.stack([scale, -scale * ratios], axis=2).reshape(-1, width)
    products = (counts @ (columns[:, :, None] * columns[:, None, :]).reshape(groups, -1)).reshape(-1, width, width)
    squares = np.einsum("bi,bij,bj->b", weighing, products, weighing)
    value = ratios[:, 0] - ratios[:, 1] if len(parts) > 1 else ratios[:, 0]
    return value, np.sqrt(np.maximum(squares, 0.0) * groups / (groups - 1))


def _ratio(evidence: Evidence, policy: Floats, estimator: str, blocks: Ints) -> Ratio:
    if estimator != "SNIPS":
        return _mean(ESTIMATORS[estimator](evidence, policy), blocks)
    known = ~np.isnan(evidence.outcome)
    weight = np.where(known, weights(evidence, policy) / evidence.known, 0.0)
    return Ratio(_summed(weight * np.where(known, evidence.outcome, 0.0), blocks), _summed(weight, blocks))


def _mean(scores: Floats, blocks: Ints) -> Ratio:
    return Ratio(_summed(scores, blocks), _summed(np.ones(len(scores)), blocks))


def _summed(scores: Floats, blocks: Ints) -> Floats:
    return np.bincount(blocks, weights=scores).astype(np.float64)


def _blocks(groups: Ints, rng: np.random.Generator) -> Ints:
    """(n,) number of the group, or of the block of groups, that a decision is drawn with."""
    names, inverse = np.unique(groups, return_inverse=True)
    if len(names) <= MOST_BLOCKS:
        return np.asarray(inverse, dtype=np.int64)
    return np.asarray((rng.permutation(len(names)) % MOST_BLOCKS)[inverse], dtype=np.int64)
