"""Do the estimators agree? Where they do not, one of the things that they rest on is wrong.

DM rests on the outcome model, SNIPS on the weights, doubly robust (DR) on either.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from optimizer.dataset import Floats, Ints
from optimizer.ope.estimators import ESTIMATORS, Evidence
from optimizer.ope.intervals import deviations, freedom

LIMIT = 2.0
"""Standard errors of a difference beyond which estimators disagree."""
_MEANING = {
    ("DM", "SNIPS"): "the outcome model or the weights are off",
    ("DM", "DR"): "the outcome model is off",
    ("SNIPS", "DR"): "few heavy weights, or probabilities that were not those used",
}


def disagreement(evidence: Evidence, policy: Floats) -> str:
    """Which two of DM, SNIPS and DR part the most (see `parted`). policy (n, a)."""
    return parted(
        {name: ESTIMATORS[name](evidence, policy) for name in ("DM", "SNIPS", "DR")}, evidence.groups, _MEANING
    )


def parted(scores: Mapping[str, Floats], groups: Ints, meaning: Mapping[tuple[str, str], str]) -> str:
    """Which two estimators part the most, in one sentence; "" where none do by more than two standard errors.

    scores: (n,) of each estimator by its name, whose mean is the estimate. meaning: what it says if two of them part.
    The error is that of the difference on the same rows, by group; where few rows carry it, two of them are as many as
    leave 95.4 % inside by Student's t. By chance alone some pair parts in a tenth of logs at most.
    """
    from scipy.stats import norm, t

    found: list[tuple[float, str]] = []
    for pair, says in meaning.items():
        apart = scores[pair[0]] - scores[pair[1]]
        if not np.isfinite(apart).all():
            continue
        summed = deviations(apart, groups)
        error = float(np.sqrt(np.sum(summed**2))) / len(apart)
        if error <= 1e-12 * abs(float(apart.mean())) or len(summed) < 2:
            continue
        chance = float(t.sf(abs(float(apart.mean())) / error, freedom(summed)))
        found.append((float(norm.isf(chance)), f"{pair[0]} and {pair[1]} {{}}: {says}"))
    most, said = max(found, default=(0.0, ""))
    return said.format(f"differ by {min(most, 10.0):.1f} standard errors") if most > LIMIT else ""
