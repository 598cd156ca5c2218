"""Models of future outcomes whose fit costs one forest, however often what is fitted changes.

Fitted Q evaluation fits the same states and actions again and again, to targets that change a little. So the splits are
learned once, of what was seen after each decision, and a sweep is a mean over leaves (Ernst, Geurts, Wehenkel 2005:
with trees that do not change the iteration converges).

Legend: n decisions, m new ones, d features, a actions, k outcomes, t trees.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from optimizer.dataset import Floats, Ints

TREES = 24
LEAST = 10
"""Decisions in a leaf."""
WIDTH = 0.2
"""Share of the columns that a split tries. With 100 columns of noise beside the 13 that count, the standard error of a
doubly robust estimate is 1 % more than with boosted trees fitted anew in each sweep, and the time a thirteenth."""
MOST = 20_000
"""Decisions that splits are learned of; leaves are filled with all."""


@dataclass(frozen=True, eq=False)
class Leaves:
    """A forest's leaves, and in which of them each of the n decisions is."""

    forest: Any
    offsets: Ints
    """(t,) number of a tree's first node among those of all trees."""
    count: int
    """Nodes of all trees."""
    action_count: int
    taken: Ints
    """(n, t) nodes of the decisions with their own actions."""

    @classmethod
    def grow(cls, features: Floats, actions: Ints, outcomes: Floats, action_count: int, *, seed: int) -> Leaves:
        """Splits by what was seen: outcomes (k, n), unknown ones NaN."""
        from sklearn.ensemble import ExtraTreesRegressor

        known = np.where(np.isnan(outcomes), _means(outcomes)[:, None], outcomes)
        spread = known.std(axis=1, keepdims=True)
        scaled = (known / np.where(spread > 0, spread, 1.0)).T
        rows = np.arange(len(actions))
        if len(rows) > MOST:
            rows = np.random.default_rng(seed).choice(rows, MOST, replace=False)
        design = _design(features, actions, action_count)
        forest = ExtraTreesRegressor(TREES, min_samples_leaf=LEAST, max_features=WIDTH, random_state=seed)
        forest.fit(design[rows], scaled[rows])
        sizes = np.array([tree.tree_.node_count for tree in forest.estimators_])
        offsets = np.cumsum(sizes) - sizes
        return cls(forest, offsets, int(sizes.sum()), action_count, forest.apply(design) + offsets)

    def of(self, features: Floats) -> Ints:
        """features (m, d) -> (a, m, t) nodes with each action."""
        m = len(features)
        every = [_design(features, np.full(m, action), self.action_count) for action in range(self.action_count)]
        return np.array([self.forest.apply(design) + self.offsets for design in every])

    def filled(self, targets: Floats) -> Floats:
        """(k, nodes) mean of the targets (k, n) in each leaf; where none is known, that of all."""
        result = np.zeros((len(targets), self.count))
        for row, target in zip(result, targets, strict=True):
            known = ~np.isnan(target)
            nodes, weight = self.taken[known].ravel(), np.repeat(target[known], self.taken.shape[1])
            counts = np.bincount(nodes, minlength=self.count)
            row[:] = np.bincount(nodes, weight, minlength=self.count) / np.maximum(counts, 1)
            row[counts == 0] = target[known].mean() if known.any() else np.nan
        return result


def read(nodes: Ints, values: Floats) -> Floats:
    """(k, m, a) mean over the trees of what is in the leaves: nodes (a, m, t), values (k, nodes)."""
    result: Floats = np.array([of_one[nodes].mean(axis=2).T for of_one in values])
    return result


def _design(features: Floats, actions: Ints, action_count: int) -> Any:
    return np.column_stack([np.eye(action_count, dtype=np.float32)[actions], features]).astype(np.float32)


def _means(outcomes: Floats) -> Floats:
    known = ~np.isnan(outcomes)
    total = np.where(known, outcomes, 0.0).sum(axis=1)
    result: Floats = total / np.maximum(known.sum(axis=1), 1)
    return result
