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

LINEAR = ("plug-in", "doubly robust")
"""Learners of linear heads, which serve at any price."""
NEAREST = "nearest neighbours"


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
        found += [
            Candidate(labelled(name, factor), 1, heads.model(price, epsilon))
            for name, heads in zip(LINEAR, (lesson.plugin, lesson.robust), strict=True)
        ]
        if few:
            found.append(Candidate(labelled(NEAREST, factor), 2, neighbours(lesson, price, count, epsilon)))
    return found


def labelled(learner: str, factor: float) -> str:
    """The label of a learner's policy at so many times the price of quality."""
    return learner if factor == 1.0 else f"{learner}, quality x{factor:g}"


def constant(action_names: tuple[str, ...], column: int, epsilon: float) -> Model:
    """Always the same action, but for exploration."""
    values = np.zeros(len(action_names))
    values[column] = 1.0
    return Model("constant", action_names, {"values": values}, epsilon)
