"""Decision trees as the tables that a model of kind "trees" carries: made of splits and leaves, or by scikit-learn.

Legend: m nodes, t trees, a actions. Node 0 is the root; the children of a node stand after it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from optimizer.dataset import Floats, Ints
from optimizer.runtime import Model

ALIKE = 2e-3
"""Thresholds of a feature that are no further apart part the same values, as the features are rounded."""


@dataclass(frozen=True, eq=False)
class Tree:
    """One tree. A row goes left where its feature is at most the threshold."""

    feature: Ints
    """(m,) -1 in leaves."""
    threshold: Floats
    """(m,)"""
    left: Ints
    """(m,)"""
    right: Ints
    """(m,)"""
    value: Floats
    """(m, a)"""


def leaf(value: Floats) -> Tree:
    """A tree that says the same of every row. value: (a,)."""
    nothing = np.zeros(1, dtype=np.int64)
    return Tree(nothing - 1, np.zeros(1), nothing, nothing, np.asarray(value, dtype=np.float64)[None, :])


def always(action: int, count: int) -> Tree:
    """A tree that takes one of `count` actions whatever the row."""
    return leaf(np.eye(count)[action])


def split(feature: int, threshold: float, left: Tree, right: Tree) -> Tree:
    """Two trees under a new root."""
    m = len(left.feature)
    return Tree(
        np.concatenate([[feature], left.feature, right.feature]),
        np.concatenate([[threshold], left.threshold, right.threshold]),
        np.concatenate([[1], left.left + 1, right.left + 1 + m]),
        np.concatenate([[1 + m], left.right + 1, right.right + 1 + m]),
        np.concatenate([np.zeros((1, left.value.shape[1])), left.value, right.value]),
    )


def rebuilt(tree: Tree, replace: Callable[[Floats], Tree], node: int = 0) -> Tree:
    """The tree with another one in the place of each leaf, by the leaf's value (a,)."""
    if tree.feature[node] < 0:
        return replace(tree.value[node])
    left, right = (rebuilt(tree, replace, int(child[node])) for child in (tree.left, tree.right))
    return split(int(tree.feature[node]), float(tree.threshold[node]), left, right)


def simplified(tree: Tree) -> Tree:
    """The tree without sides that no row can reach and without splits whose two sides take the same action; its leaves
    say 1 of the action taken."""
    return _simplified(tree, 0, {})


def _simplified(tree: Tree, node: int, bounds: Mapping[int, tuple[float, float]]) -> Tree:
    place, threshold = int(tree.feature[node]), float(tree.threshold[node])
    if place < 0:
        return always(int(tree.value[node].argmax()), tree.value.shape[1])
    low, high = bounds.get(place, (-math.inf, math.inf))
    if threshold >= high - ALIKE:
        return _simplified(tree, int(tree.left[node]), bounds)
    if threshold <= low + ALIKE:
        return _simplified(tree, int(tree.right[node]), bounds)
    left = _simplified(tree, int(tree.left[node]), {**bounds, place: (low, threshold)})
    right = _simplified(tree, int(tree.right[node]), {**bounds, place: (threshold, high)})
    if same(left, right):
        return left
    return split(place, threshold, left, right)


def same(one: Tree, other: Tree) -> bool:
    """Whether two trees are made of the same splits and leaves."""
    return len(one.feature) == len(other.feature) and all(
        np.array_equal(part, vars(other)[name]) for name, part in vars(one).items()
    )


def without(tree: Tree, action: int, node: int = 0) -> Tree | None:
    """What a simplified tree does where it does not take this action, free to do anything where it does; None if it
    always takes it."""
    if tree.feature[node] < 0:
        return None if int(tree.value[node].argmax()) == action else leaf(tree.value[node])
    left, right = (without(tree, action, int(child[node])) for child in (tree.left, tree.right))
    if left is None or right is None:
        return left or right
    return left if same(left, right) else split(int(tree.feature[node]), float(tree.threshold[node]), left, right)


def from_sklearn(estimator: Any, share: float = 1.0) -> Tree:
    """A fitted DecisionTreeRegressor with one output per action, its values times `share`."""
    tree = estimator.tree_
    inner = tree.children_left >= 0
    return Tree(
        np.where(inner, tree.feature, -1).astype(np.int64),
        np.where(inner, tree.threshold, 0.0).astype(np.float64),
        np.where(inner, tree.children_left, 0).astype(np.int64),
        np.where(inner, tree.children_right, 0).astype(np.int64),
        tree.value[:, :, 0] * share,
    )


def model(trees: Sequence[Tree], action_names: tuple[str, ...]) -> Model:
    """The model whose values are the sum over the trees; without exploration."""
    most = max(len(tree.feature) for tree in trees)

    def table(name: str) -> Any:
        arrays = [getattr(tree, name) for tree in trees]
        empty = -1 if name == "feature" else 0
        return np.stack(
            [np.pad(one, [(0, most - len(one))] + [(0, 0)] * (one.ndim - 1), constant_values=empty) for one in arrays]
        )

    arrays = {name: table(name) for name in ("feature", "threshold", "left", "right", "value")}
    return Model("trees", action_names, arrays, 0.0)


def trees_of(model: Model) -> list[Tree]:
    """The trees of a model of that kind, with the empty nodes that fill its tables."""
    names = ("feature", "threshold", "left", "right", "value")
    return [Tree(*parts) for parts in zip(*(model.arrays[name] for name in names), strict=True)]
