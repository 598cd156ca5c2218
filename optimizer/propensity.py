"""Behaviour probabilities where the log does not carry them: estimated, or refused because the choice was a fixed
rule."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from optimizer.dataset import Floats, Ints, folds

FOLDS = 5
MARGINAL_SHARE = 0.02
DETERMINISTIC_ACCURACY = 0.99


@dataclass(frozen=True, eq=False)
class Behaviour:
    """Estimated logging behaviour. `deterministic`: the features foretell the action almost always, so that no decision
    tells what another action would have given."""

    probabilities: Floats
    """(n, a) rows sum to 1."""
    accuracy: float
    """Share of decisions whose action the features foretold, on rows the model had not seen."""
    model: str
    log_loss: float

    @property
    def deterministic(self) -> bool:
        return self.accuracy > DETERMINISTIC_ACCURACY


def estimate_behaviour(features: Floats, actions: Ints, groups: Ints, action_count: int, *, seed: int) -> Behaviour:
    """P(action | features) of whoever chose, cross-fitted by group, sharpened or softened by one temperature, mixed
    with 2 % of the marginal shares.

    features (n, d), actions (n,), groups (n,). Boosted trees and a multinomial logit compete; the smaller
    cross-fitted log loss wins.
    Raises ValueError when there is no decision.
    """
    if len(actions) == 0:
        raise ValueError("no decisions to estimate a behaviour from")
    share = np.bincount(actions, minlength=action_count) / len(actions)
    if share.max() == 1.0:
        return Behaviour(np.tile(share, (len(actions), 1)), 1.0, "one action only", 0.0)
    fits = [(name, _cross_fit(name, features, actions, groups, action_count, seed)) for name in ("trees", "logit")]
    losses = [_loss(raw, actions) for _, raw in fits]
    name, raw = fits[int(np.argmin(losses))]
    raw = _temper(raw, actions)
    mixed = (1 - MARGINAL_SHARE) * raw + MARGINAL_SHARE * share
    accuracy = float(np.mean(raw.argmax(axis=1) == actions))
    return Behaviour(mixed / mixed.sum(axis=1, keepdims=True), accuracy, name, _loss(mixed, actions))


def _cross_fit(name: str, features: Floats, actions: Ints, groups: Ints, action_count: int, seed: int) -> Floats:
    from sklearn.ensemble import HistGradientBoostingClassifier
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    fold = folds(groups, FOLDS, seed)
    share = (np.bincount(actions, minlength=action_count) + 0.5) / (len(actions) + 0.5 * action_count)
    result = np.tile(share, (len(actions), 1))
    for number in range(FOLDS):
        train, test = fold != number, fold == number
        if not test.any() or len(np.unique(actions[train])) < 2:
            continue
        if name == "trees":
            model = HistGradientBoostingClassifier(
                max_iter=40, max_leaf_nodes=8, min_samples_leaf=20, early_stopping=False, random_state=seed
            )
        else:
            model = make_pipeline(StandardScaler(), LogisticRegression(C=0.05, max_iter=300))
        model.fit(features[train], actions[train])
        probabilities = np.full((int(test.sum()), action_count), 1e-6)
        probabilities[:, model.classes_] = model.predict_proba(features[test])
        result[test] = probabilities / probabilities.sum(axis=1, keepdims=True)
    return result


def _temper(probabilities: Floats, actions: Ints) -> Floats:
    """p^(1/T) renormalised, with the temperature T of the smallest log loss."""
    best, best_loss = probabilities, _loss(probabilities, actions)
    for temperature in (0.5, 0.7, 0.85, 1.2, 1.5, 2.0, 3.0):
        scaled = np.maximum(probabilities, 1e-12) ** (1 / temperature)
        scaled /= scaled.sum(axis=1, keepdims=True)
        if (loss := _loss(scaled, actions)) < best_loss:
            best, best_loss = scaled, loss
    return best


def _loss(probabilities: Floats, actions: Ints) -> float:
    return float(-np.mean(np.log(np.maximum(probabilities[np.arange(len(actions)), actions], 1e-12))))
