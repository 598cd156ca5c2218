"""Which decisions to have scored, each with a known probability, so that a budget of scores narrows the estimate most.

The doubly robust score of a change, with r whether a row is scored and e the probability of that,

    sum_a (pi - b)(a) m(a) + (pi / b - 1) (r / e) (y - m),

is unbiased for any e > 0 that is known, whatever the outcome model m. (Where a judge guesses y, its guess stands in
for m beside y: see `ope.labels`.) Its variance from scoring only some rows is the mean of (pi / b - 1)^2 sigma^2
(1 - e) / e, least for a given sum of e where e ~ |pi / b - 1| sigma (Neyman 1934; Zrnic and Candes 2024, "Active
statistical inference", arXiv 2403.03208). No row goes below `FLOOR` and no action below `PER_ACTION` scores, which
keeps the weights bounded and each action's quality known by itself.

Legend: n decisions that are not scored yet.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from optimizer.dataset import Floats, Ints
from optimizer.ope.estimators import Evidence
from optimizer.ope.labels import ENOUGH_LABELS

FLOOR = 0.02
"""Least probability of any decision to be scored."""
PER_ACTION = ENOUGH_LABELS
"""Scores that every action gets, or all that it has."""


@dataclass(frozen=True, eq=False)
class LabelPlan:
    """Which decisions to score."""

    probabilities: Floats
    """(n,) of being scored; what `r / e` divides by."""
    picked: Ints
    """Rows that were drawn."""
    half_width: float
    """Expected of the interval of the change, once they are scored."""


def importance(weights: Floats, spread: Floats) -> Floats:
    """(n,) how much an unscored decision adds to the standard error of a change: |pi / b - 1| sigma.

    weights (n,): pi / b of the taken action. spread (n,): standard deviation of its quality that the model leaves.
    """
    return np.asarray(np.abs(weights - 1) * spread)


def spreads(evidence: Evidence, *, judged: bool = True) -> Floats:
    """(n,) standard deviation of quality in [0, 1] that the model leaves at the taken action: sqrt(m (1 - m)), scaled
    for each action to what its scored decisions show; 1 where there is no model. Where a judge guesses, m is its guess,
    unless not `judged`: what scores alone leave open."""
    model = evidence.model[evidence.rows, evidence.actions]
    if np.isnan(model).any():
        return np.ones(len(model))
    if judged:
        model = np.where(np.isnan(evidence.surrogate), model, evidence.surrogate)
    most = np.clip(model, 0.02, 0.98)
    most = most * (1 - most)
    squared = (evidence.outcome - model) ** 2
    known = ~np.isnan(squared)
    found = np.sqrt(most)
    for action in np.unique(evidence.actions):
        rows = evidence.actions == action
        scored = rows & known if (rows & known).sum() >= PER_ACTION else known
        if scored.any():
            found[rows] *= np.sqrt(max(squared[scored].sum() / most[scored].sum(), 1e-6))
    return np.asarray(found)


def smallest_budget(actions: Ints) -> int:
    """Scores that the floors alone take."""
    return int(np.ceil(_floors(actions).sum() - 1e-6))


def inclusion(importance: Floats, actions: Ints, budget: int) -> Floats:
    """(n,) probabilities of being scored that sum to the budget: min(1, max(floor, lambda importance)).

    Raises ValueError for a budget below `smallest_budget`.
    """
    floors = _floors(actions)
    if budget >= len(floors):
        return np.ones(len(floors))
    if budget < smallest_budget(actions):
        raise ValueError(f"{budget} scores are too few: the floors take {smallest_budget(actions)}")
    scale = importance / max(float(importance.max(initial=0.0)), 1e-300)
    if not scale.any():
        scale = np.ones(len(floors))
    low, high = 0.0, 1.0
    while np.clip(high * scale, floors, 1.0).sum() < budget and high < 1e12:
        high *= 2
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if np.clip(middle * scale, floors, 1.0).sum() < budget else (low, middle)
    found = np.clip(high * scale, floors, 1.0)
    missing = budget - float(found.sum())
    if missing > 0.5:  # rows of no importance keep the floor unless there is budget left for them
        free = found < 1
        found[free] += np.minimum(missing * (1 - found[free]) / (1 - found[free]).sum(), 1 - found[free])
    return np.asarray(found)


def draw(probabilities: Floats, actions: Ints, seed: int) -> Ints:
    """Rows drawn with exactly these probabilities, and for each action as many as they sum to, to the nearest one.

    Systematic sampling of each action in random order (Madow 1949).
    """
    rng = np.random.default_rng(seed)
    picked: list[Ints] = []
    for action in np.unique(actions):
        rows = rng.permutation(np.flatnonzero(actions == action))
        passed = np.concatenate([[0.0], np.cumsum(probabilities[rows])]) + rng.random()
        picked.append(rows[np.floor(passed[1:] + 1e-9) > np.floor(passed[:-1] + 1e-9)])
    return np.sort(np.concatenate(picked)) if picked else np.zeros(0, dtype=np.int64)


def expected_half_width(
    importance: Floats, probabilities: Floats, settled: float, rows: int, judged: int, z: float
) -> float:
    """Of the interval of the change over `judged` decisions like these.

    settled: variance per decision of the score if every decision had one. rows: decisions in all, scored ones included.
    z: quantile of the normal distribution.
    """
    lacking = float((importance**2 * (1 - probabilities) / probabilities).sum()) / max(rows, 1)
    return float(z * np.sqrt((settled + lacking) / max(judged, 1)))


def smallest_sufficient(
    importance: Floats, actions: Ints, wanted: float, settled: float, rows: int, judged: int, z: float
) -> int:
    """The fewest scores whose expected half-width is the wanted one; all decisions where no number reaches it."""
    low, high = smallest_budget(actions), len(actions)
    while low < high:
        middle = (low + high) // 2
        width = expected_half_width(importance, inclusion(importance, actions, middle), settled, rows, judged, z)
        low, high = (low, middle) if width <= wanted else (middle + 1, high)
    return low


def plan(
    importance: Floats, actions: Ints, budget: int, *, settled: float, rows: int, judged: int, z: float, seed: int
) -> LabelPlan:
    """The plan for a budget: probabilities, the rows drawn, and how narrow the interval becomes."""
    chances = inclusion(importance, actions, budget)
    width = expected_half_width(importance, chances, settled, rows, judged, z)
    return LabelPlan(chances, draw(chances, actions, seed), width)


def _floors(actions: Ints) -> Floats:
    counts = np.bincount(actions) if len(actions) else np.zeros(1)
    own = np.maximum(FLOOR, np.minimum(1.0, PER_ACTION / np.maximum(counts, 1)))
    return np.asarray(own[actions], dtype=np.float64)
