"""Candidate policies, from the simplest to the most flexible, each as a model that a router can carry."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from optimizer.dataset import Floats
from optimizer.learners.lesson import Lesson
from optimizer.rewards import RewardSpec
from optimizer.runtime import Model

RIDGE_PENALTIES = np.logspace(0, 5, 11)
NEIGHBOURS = 50
PRICE_FACTORS = (0.3, 1.0, 3.0)
"""The frontier: each learner is fitted with a unit of quality worth this many times what the user says."""


@dataclass(frozen=True, eq=False)
class Candidate:
    """A policy that may be suggested. Smaller `complexity` is preferred among equals."""

    label: str
    complexity: int
    model: Model


def candidates(lesson: Lesson, reward: RewardSpec, *, epsilon: float) -> list[Candidate]:
    """Every single action; then kNN, plug-in and doubly robust argmax at three prices of quality."""
    found = [
        Candidate(f"always {name}", 0, constant(lesson.action_names, column, epsilon))
        for column, name in enumerate(lesson.action_names)
    ]
    if len(lesson.action_names) < 2:
        return found
    linear = _Ridge(lesson.features)
    plugin = linear.fit([lesson.quality_model, lesson.cost_model])
    robust = linear.fit([lesson.quality, lesson.cost_usd])
    for factor in PRICE_FACTORS:
        price = RewardSpec(reward.value_usd * factor)
        suffix = "" if factor == 1.0 else f", quality x{factor:g}"
        found += [
            Candidate(f"plug-in{suffix}", 1, linear.model(plugin, price, lesson.action_names, epsilon)),
            Candidate(f"doubly robust{suffix}", 1, linear.model(robust, price, lesson.action_names, epsilon)),
            Candidate(f"nearest neighbours{suffix}", 2, neighbours(lesson, price, epsilon)),
        ]
    return found


def constant(action_names: tuple[str, ...], column: int, epsilon: float) -> Model:
    """Always the same action, but for exploration."""
    values = np.zeros(len(action_names))
    values[column] = 1.0
    return Model("constant", action_names, {"values": values}, epsilon)


def neighbours(lesson: Lesson, reward: RewardSpec, epsilon: float) -> Model:
    """Mean doubly robust utility of the nearest decisions in standardised features (Euclidean)."""
    mean, scale = _standard(lesson.features)
    return Model(
        "knn",
        lesson.action_names,
        {
            "mean": mean,
            "scale": scale,
            "points": ((lesson.features - mean) / scale).astype(np.float32),
            "targets": reward.utility(lesson.quality, lesson.cost_usd).astype(np.float32),
            "k": np.array(min(NEIGHBOURS, len(lesson.features))),
        },
        epsilon,
    )


class _Ridge:
    """Ridge regressions on one standardised design; the penalty by generalised cross-validation, per outcome."""

    def __init__(self, features: Floats) -> None:
        self.mean, self.scale = _standard(features)
        self.design = (features - self.mean) / self.scale

    def fit(self, outcomes: Sequence[Floats]) -> list[tuple[Floats, Floats]]:
        """For each outcome (n, k): weights (d, k) and bias (k,)."""
        from sklearn.linear_model import RidgeCV

        fitted = []
        for outcome in outcomes:
            centre, spread = outcome.mean(axis=0), max(float(outcome.std()), 1e-12)
            model = RidgeCV(alphas=RIDGE_PENALTIES).fit(self.design, (outcome - centre) / spread)
            weights = np.asarray(model.coef_).reshape(outcome.shape[1], -1).T * spread
            fitted.append((weights, centre + np.asarray(model.intercept_) * spread))
        return fitted

    def model(
        self, fitted: list[tuple[Floats, Floats]], reward: RewardSpec, action_names: tuple[str, ...], epsilon: float
    ) -> Model:
        (quality, quality_bias), (cost, cost_bias) = fitted
        arrays = {
            "mean": self.mean,
            "scale": self.scale,
            "weights": reward.utility(quality, cost),
            "bias": reward.utility(quality_bias, cost_bias),
        }
        return Model("linear", action_names, arrays, epsilon)


def _standard(features: Floats) -> tuple[Floats, Floats]:
    """Mean and spread of each feature; a constant feature keeps a spread of 1."""
    spread = features.std(axis=0)
    return features.mean(axis=0), np.where(spread > 1e-9, spread, 1.0)
