"""Nearest neighbours: what the decisions most like this one would have given."""

from __future__ import annotations

import numpy as np

from optimizer.dataset import Floats, Ints
from optimizer.learners.lesson import Lesson
from optimizer.rewards import RewardSpec
from optimizer.runtime import Model

SIZES = (50, 100, 200, 400)
"""Neighbours that are tried: a mean of fewer is lost in the noise of importance weights."""
MOST_ROWS = 20_000
"""Larger lessons have none: every request would be compared with each of their decisions."""
TRIED_ON = 1000


def neighbours(lesson: Lesson, reward: RewardSpec, count: int, epsilon: float) -> Model:
    """Mean doubly robust utility of the `count` nearest decisions in standardised features (Euclidean)."""
    heads = lesson.robust
    return Model(
        "knn",
        lesson.action_names,
        {
            "mean": heads.mean,
            "scale": heads.scale,
            "points": ((lesson.features - heads.mean) / heads.scale).astype(np.float32),
            "targets": reward.utility(lesson.quality, lesson.cost_usd).astype(np.float32),
            "k": np.array(min(count, len(lesson.features))),
        },
        epsilon,
    )


def best_count(lesson: Lesson, reward: RewardSpec) -> int:
    """Of `SIZES`, the one whose mean foretells the targets of decisions of other groups with the least squared error.

    The targets are noisy, but their noise is the same for every size and is not shared between groups.
    """
    n = len(lesson.features)
    sizes = [size for size in SIZES if size <= n // 4] or [max(n // 4, 1)]
    if len(sizes) == 1:
        return sizes[0]
    heads = lesson.robust
    points = ((lesson.features - heads.mean) / heads.scale).astype(np.float32)
    targets = reward.utility(lesson.quality, lesson.cost_usd)
    rows: Ints = np.linspace(0, n - 1, min(TRIED_ON, n)).astype(np.int64)
    distances = (points**2).sum(axis=1) - 2 * points[rows] @ points.T
    distances[lesson.groups[rows][:, None] == lesson.groups] = np.inf
    nearest = np.argpartition(distances, sizes[-1], axis=1)[:, : sizes[-1]]
    order = np.take_along_axis(distances, nearest, axis=1).argsort(axis=1, kind="stable")
    nearest = np.take_along_axis(nearest, order, axis=1)
    means = np.cumsum(targets[nearest], axis=1)[:, [size - 1 for size in sizes]] / np.array(sizes)[:, None]
    errors: Floats = ((means - targets[rows][:, None, :]) ** 2).mean(axis=(0, 2))
    return sizes[int(errors.argmin())]
