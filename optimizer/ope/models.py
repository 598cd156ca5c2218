"""Outcome models: what would each action have given here?

Legend: n decisions, m new ones, d features, a actions, k outcomes. An outcome argument is (n,) or, for several at once,
(k, n), with NaN where unknown; what is predicted is (m, a) or (k, m, a). Without any known outcome it is NaN.

Boosted trees up to `TORCH_ROWS` rows, a neural network beyond (see `torch_heads`): trees read no more than `MAX_FITTED`
rows, and with ten million there is more to be learned than they would see.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from optimizer.dataset import Floats, Ints, folds
from optimizer.ope.trees import predict_all

FOLDS = 3
TORCH_ROWS = 1_000_000
MAX_FITTED = 20_000
"""Rows that trees are fitted on; of more, this many are drawn, equally many of each action where there are. On a world
with ten actions and 20 features the prediction errs 4 % more than with 50,000 rows. Evaluation uses every row, so that
a doubly robust estimate stays as right as it was, and its standard error grows by 0.2 %: the outcome's own noise is
what makes it."""
_USUAL: Mapping[str, Any] = {"max_iter": 60, "learning_rate": 0.1}
_SAMPLED: Mapping[str, Any] = {"max_iter": 40, "learning_rate": 0.15, "max_bins": 128}
"""A third less time on as many rows as that. There quality is predicted as well as by the usual way (0.1626 against
0.1625 on that world), and cost nearly (2 % more error)."""


class Heads(Protocol):
    """Fitted models of k outcomes."""

    def predict(self, features: Floats) -> Floats:
        """features (m, d) -> (k, m, a)."""


@dataclass(frozen=True, eq=False)
class Mean:
    """The mean of several heads' predictions. Where they were fitted on overlapping rows it errs less than each."""

    heads: tuple[Heads, ...]

    def predict(self, features: Floats) -> Floats:
        """features (m, d) -> (k, m, a)."""
        total = self.heads[0].predict(features)
        for one in self.heads[1:]:
            total += one.predict(features)
        return total / len(self.heads)


@dataclass(frozen=True, eq=False)
class CrossFit:
    """Predictions by models that never saw the group of their row, and those models."""

    predictions: Floats
    """(n, a) or (k, n, a)."""
    heads: Mean
    """For rows of other groups."""


def cross_fit(
    features: Floats,
    actions: Ints,
    outcome: Floats,
    groups: Ints,
    action_count: int,
    *,
    seed: int,
    torch_rows: int = TORCH_ROWS,
) -> CrossFit:
    """Predictions for every row by the models of three parts of the groups, each fitted on the other parts; of two
    parts, where half of the rows are more than trees are fitted on.

    features (n, d), actions (n,), groups (n,).
    """
    outcomes = np.atleast_2d(outcome)
    parts = 2 if 2 * MAX_FITTED <= len(actions) <= torch_rows else FOLDS
    fold = folds(groups, parts, seed)
    predictions = np.full((len(outcomes), len(actions), action_count), np.nan)
    fitted = []
    for number in range(parts):
        train, test = fold != number, fold == number
        if not test.any():
            continue
        heads = fit_heads(
            features[train], actions[train], outcomes[:, train], action_count, seed=seed, torch_rows=torch_rows
        )
        predictions[:, test] = heads.predict(features[test])
        fitted.append(heads)
    if not fitted:
        fitted.append(fit_heads(features, actions, outcomes, action_count, seed=seed))
    shape = (*outcome.shape[:-1], len(actions), action_count)
    return CrossFit(predictions.reshape(shape), Mean(tuple(fitted)))


def fit_predict(
    features: Floats,
    actions: Ints,
    outcome: Floats,
    new: Floats,
    action_count: int,
    *,
    seed: int,
    torch_rows: int = TORCH_ROWS,
) -> Floats:
    """(m, a) predicted mean outcome of every action at new rows (m, d), by a model of other rows (n,)."""
    heads = fit_heads(features, actions, np.atleast_2d(outcome), action_count, seed=seed, torch_rows=torch_rows)
    return heads.predict(new).reshape(*outcome.shape[:-1], len(new), action_count)


def fit_heads(
    features: Floats, actions: Ints, outcomes: Floats, action_count: int, *, seed: int, torch_rows: int = TORCH_ROWS
) -> Heads:
    """Models of outcomes (k, n), whose kind is chosen by the number of rows."""
    if len(actions) > torch_rows:
        from optimizer.ope.torch_heads import fit_torch_heads

        return fit_torch_heads(features, actions, outcomes, action_count, seed=seed)
    return Boosted(tuple(_boosted(features, actions, outcome, action_count, seed) for outcome in outcomes))


@dataclass(frozen=True, eq=False)
class Boosted:
    """Gradient-boosted trees for each outcome, on the features and the action as a category, so that rare actions
    borrow strength."""

    trees: tuple[_Trees, ...]

    def predict(self, features: Floats) -> Floats:
        """features (m, d) -> (k, m, a)."""
        return np.array([one.predict(features) for one in self.trees])


@dataclass(frozen=True, eq=False)
class _Trees:
    """Predictions lie within the outcomes seen. Without trees, all are `low`."""

    low: float
    high: float
    action_count: int
    seen: Ints
    """The distinct actions that the trees were fitted on."""
    model: Any = None

    def predict(self, features: Floats) -> Floats:
        if self.model is None:
            return np.full((len(features), self.action_count), self.low)
        scale = max(abs(self.low), abs(self.high))
        return np.clip(predict_all(self.model, features, self.seen, self.action_count) * scale, self.low, self.high)


def _boosted(features: Floats, actions: Ints, outcome: Floats, action_count: int, seed: int) -> _Trees:
    known = np.flatnonzero(~np.isnan(outcome))
    if known.size == 0:
        return _Trees(np.nan, np.nan, action_count, known)
    low, high = float(outcome[known].min()), float(outcome[known].max())
    if low == high:
        return _Trees(low, high, action_count, known)
    from sklearn.ensemble import HistGradientBoostingRegressor

    rows = known[balanced(actions[known], MAX_FITTED, seed)]
    model = HistGradientBoostingRegressor(
        **(_USUAL if len(rows) == len(known) else _SAMPLED),
        max_leaf_nodes=12,
        min_samples_leaf=max(10, min(40, len(rows) // 40)),
        l2_regularization=1.0,
        categorical_features=[0],
        random_state=seed,
        early_stopping=False,
    )
    model.fit(np.column_stack([actions[rows], features[rows]]), outcome[rows] / max(abs(low), abs(high)))
    return _Trees(low, high, action_count, np.unique(actions[rows]), model)


def balanced(actions: Ints, most: int, seed: int) -> Ints:
    """(min(n, most),) rows in order: all of the rarest actions, and equally many of the others.

    Drawn within each action, so that what an action gives at a prompt is estimated as it is. Every row is as likely as
    any other of its action.
    """
    if len(actions) <= most:
        return np.arange(len(actions))
    counts = np.bincount(actions)
    each, left = 0, most
    for rank, count in enumerate(np.sort(counts)):
        each = left // (len(counts) - rank)
        if count >= each:
            break
        left -= int(count)
    order = np.random.default_rng(seed).permutation(len(actions))
    by_action = order[np.argsort(actions[order], kind="stable")]
    place = np.arange(len(actions)) - np.repeat(np.cumsum(counts) - counts, counts)
    rows: Ints = np.sort(by_action[place < each])
    return rows


def predict_labelled(
    features: Floats, actions: Ints, known: Ints, groups: Ints, action_count: int, *, seed: int
) -> Floats:
    """(n,) estimated probability that the outcome of a row is known, given its features and its action; cross-fitted.

    known (n,) is 0 or 1. Logistic regression; at least 0.05, so that no row counts more than twenty times.
    """
    if len(known) == 0:
        return np.ones(0)
    share = float(np.mean(known))
    if share in (0.0, 1.0):
        return np.full(len(known), max(share, 0.05))
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    fold = folds(groups, FOLDS, seed + 1)
    design = np.column_stack([features, np.eye(action_count)[actions]])
    result = np.full(len(known), share)
    for number in range(FOLDS):
        train, test = fold != number, fold == number
        if test.any() and 0 < known[train].mean() < 1:
            model = make_pipeline(StandardScaler(), LogisticRegression(C=0.01, max_iter=200))
            model.fit(design[train], known[train])
            result[test] = model.predict_proba(design[test])[:, 1]
    clipped: Floats = np.clip(result, 0.05, 1.0)
    return clipped
