"""Cross-fitted outcome models: what would each action have given here?"""

from __future__ import annotations

import numpy as np

from optimizer.dataset import Floats, Ints, folds

FOLDS = 3


def predict_outcomes(
    features: Floats, actions: Ints, outcome: Floats, groups: Ints, action_count: int, *, seed: int
) -> Floats:
    """(n, a) predicted mean outcome of every action at every row, each row by a model that never saw its group.

    features (n, d), actions (n,), outcome (n,) with NaN where unknown, groups (n,). Gradient-boosted trees on the
    features and the action as a category, so that rare actions borrow strength. A fold without any known outcome
    predicts NaN.
    """
    fold = folds(groups, FOLDS, seed)
    predictions = np.full((len(actions), action_count), np.nan)
    known = ~np.isnan(outcome)
    for number in range(FOLDS):
        train, test = known & (fold != number), fold == number
        if train.any() and test.any():
            predictions[test] = fit_predict(
                features[train], actions[train], outcome[train], features[test], action_count, seed=seed
            )
    return predictions


def fit_predict(
    features: Floats, actions: Ints, outcome: Floats, new: Floats, action_count: int, *, seed: int
) -> Floats:
    """(m, a) predicted mean outcome of every action at new rows (m, d), by a model of rows with known outcomes (n,)."""
    low, high = float(outcome.min()), float(outcome.max())
    if low == high:
        return np.full((len(new), action_count), low)
    from sklearn.ensemble import HistGradientBoostingRegressor

    model = HistGradientBoostingRegressor(
        max_iter=60,
        learning_rate=0.1,
        max_leaf_nodes=12,
        min_samples_leaf=max(10, min(40, len(actions) // 40)),
        l2_regularization=1.0,
        categorical_features=[features.shape[1]],
        random_state=seed,
        early_stopping=False,
    )
    scale = max(abs(low), abs(high))
    model.fit(np.column_stack([features, actions]), outcome / scale)
    columns = [model.predict(np.column_stack([new, np.full(len(new), a)])) for a in range(action_count)]
    return np.clip(np.column_stack(columns) * scale, low, high)


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
