"""What a learner learns from: for every logged decision, an estimate of what each action would have given."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from optimizer.dataset import Floats, LoggedDataset

WEIGHT_CAP = 5.0
"""Importance weights above this are cut while learning: a little bias for much less noise. Evaluation cuts nothing."""


@dataclass(frozen=True, eq=False)
class Lesson:
    """n decisions, d features, k actions with enough evidence to be learned."""

    features: Floats
    """(n, d)"""
    quality: Floats
    """(n, k) doubly robust scores."""
    cost_usd: Floats
    """(n, k) doubly robust scores."""
    quality_model: Floats
    """(n, k) the outcome model alone."""
    cost_model: Floats
    """(n, k)"""
    action_names: tuple[str, ...]
    """(k,)"""


def doubly_robust_targets(data: LoggedDataset, outcome: Floats, model: Floats, known: Floats) -> Floats:
    """(n, a) m(a) + 1[a = action] min(1 / b, cap) (r / e) (y - m): on average the outcome of each action.

    outcome (n,) with NaN where unknown, model (n, a), known (n,) probability that the outcome is known.
    """
    rows = np.arange(len(data))
    weight = np.minimum(1 / data.propensities, WEIGHT_CAP) / known
    residual = np.where(np.isnan(outcome), 0.0, outcome - model[rows, data.actions])
    targets = model.copy()
    targets[rows, data.actions] += weight * residual
    return targets
