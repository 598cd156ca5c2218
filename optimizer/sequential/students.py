"""From what actions are worth at logged decisions to a model that a router carries: a tree that people can read, or a
small forest.

What is evaluated is the student, so that what it loses against its teacher is part of the estimate. It learns by how
much each action falls behind the best one, since that alone decides.

Legend: n decisions, d features, a actions.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from optimizer.dataset import Bools, Floats, Ints
from optimizer.runtime import DIM, HASHED, Model
from optimizer.sequential.decision_trees import Tree, from_sklearn, model
from optimizer.sequential.words import in_words, stop_rule

__all__ = ["forest", "in_words", "shallow_tree", "shortfalls", "small_tree", "stop_rule"]

DEPTH, LEAVES = 4, 8
"""Of a tree that people can read."""
TREES, FOREST_DEPTH = 20, 12
LEAST = 25
"""Decisions in a leaf, of a shallow tree; of the forest's a fifth as many."""
MILD = 0.3
MOST_ROWS = 20_000
"""Decisions that a student learns from."""


def shallow_tree(
    features: Floats, values: Floats, supported: Bools, action_names: tuple[str, ...], *, seed: int
) -> Model:
    """A decision tree of at most `DEPTH` splits on the way to one of at most `LEAVES` leaves.

    features (n, d), values (n, a), supported (n, a).
    """
    return model([small_tree(features, shortfalls(values, supported), seed=seed)], action_names)


def small_tree(
    features: Floats,
    targets: Floats,
    *,
    seed: int,
    depth: int = DEPTH,
    leaves: int = LEAVES,
    columns: Ints | None = None,
) -> Tree:
    """The tree that `shallow_tree` makes a model of. targets: (n, a). columns: places of the features that it may
    compare; None: all but a prompt's hashed words, which say nothing to people."""
    from sklearn.tree import DecisionTreeRegressor

    rows = _some(len(features), seed)
    columns = _readable(features.shape[1]) if columns is None else columns
    least = max(2, min(LEAST, len(rows) // 20))
    how = {"max_depth": depth, "max_leaf_nodes": leaves, "min_samples_leaf": least, "random_state": seed}
    found = from_sklearn(DecisionTreeRegressor(**how).fit(_single(features[np.ix_(rows, columns)]), targets[rows]))
    return replace(found, feature=np.where(found.feature >= 0, columns[found.feature], -1))


def _readable(d: int) -> Ints:
    """Places of the features that words can be put to, of a router's; all of fewer features."""
    places = np.arange(d)
    return places if d < DIM else places[(places < DIM - HASHED) | (places >= DIM)]


def forest(features: Floats, values: Floats, supported: Bools, action_names: tuple[str, ...], *, seed: int) -> Model:
    """A forest of `TREES` extremely randomised trees (Geurts, Ernst, Wehenkel 2006), whose mean is smoother than their
    teacher; arguments as of `shallow_tree`."""
    from sklearn.ensemble import ExtraTreesRegressor

    rows = _some(len(features), seed)
    estimator: Any = ExtraTreesRegressor(
        n_estimators=TREES,
        max_depth=FOREST_DEPTH,
        min_samples_leaf=max(2, min(LEAST // 5, len(rows) // 60)),
        max_features=0.6,
        random_state=seed,
    )
    estimator.fit(_single(features[rows]), shortfalls(values, supported)[rows])
    return model([from_sklearn(one, 1 / TREES) for one in estimator.estimators_], action_names)


def shortfalls(values: Floats, supported: Bools) -> Floats:
    """(n, a) values minus the best supported one's, at most 0; clearly below all others for what is not supported, and
    equal for all where nothing is.

    They are cut at the `MILD` quantile of those below 0, counted from 0: what is bad is bad, by however much, and a few
    leaves go to the choices between what is good.
    """
    supported = supported & np.isfinite(values)
    best = np.where(supported, values, -np.inf).max(axis=1, keepdims=True)
    behind = np.where(supported, values - np.where(np.isfinite(best), best, 0.0), 0.0)
    below = -behind[behind < 0]
    cut = float(np.quantile(below, MILD)) if len(below) else 1.0
    return np.where(supported | ~supported.any(axis=1, keepdims=True), np.maximum(behind, -cut), -1.25 * cut)


def _some(n: int, seed: int) -> Any:
    if n <= MOST_ROWS:
        return np.arange(n)
    return np.sort(np.random.default_rng(seed).choice(n, MOST_ROWS, replace=False))


def _single(features: Floats) -> Any:
    """As scikit-learn's trees compare them: the features are float16 numbers, so nothing is lost."""
    return features.astype(np.float32)
