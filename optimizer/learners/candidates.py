"""Candidate policies, from the simplest to the most flexible, each as a model that a router can carry."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from optimizer.learners.lesson import Lesson
from optimizer.learners.neighbours import MOST_ROWS, best_count, neighbours
from optimizer.rewards import RewardSpec
from optimizer.runtime import Model

PRICE_FACTORS = (0.3, 1.0, 3.0)
"""Each learner is used with a unit of quality worth this many times what the user says."""


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
    few = len(lesson.features) <= MOST_ROWS
    count = best_count(lesson, reward) if few else 0
    for factor in PRICE_FACTORS:
        price = RewardSpec(reward.value_usd * factor)
        suffix = "" if factor == 1.0 else f", quality x{factor:g}"
        found += [
            Candidate(f"plug-in{suffix}", 1, lesson.plugin.model(price, epsilon)),
            Candidate(f"doubly robust{suffix}", 1, lesson.robust.model(price, epsilon)),
        ]
        if few:
            found.append(Candidate(f"nearest neighbours{suffix}", 2, neighbours(lesson, price, count, epsilon)))
    return found


def constant(action_names: tuple[str, ...], column: int, epsilon: float) -> Model:
    """Always the same action, but for exploration."""
    values = np.zeros(len(action_names))
    values[column] = 1.0
    return Model("constant", action_names, {"values": values}, epsilon)
