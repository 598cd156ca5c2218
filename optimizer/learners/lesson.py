"""What a learner learns from: for every logged decision, an estimate of what each action would have given."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from optimizer.dataset import Floats, Ints, LoggedDataset
from optimizer.learners.linear import Heads, Ridge

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
    groups: Ints
    """(n,) decisions of one group are not independent."""

    @cached_property
    def robust(self) -> Heads:
        """Linear heads of the doubly robust scores."""
        return self._design.heads(self.quality, self.cost_usd)

    @cached_property
    def plugin(self) -> Heads:
        """Linear heads of the outcome models."""
        return self._design.heads(self.quality_model, self.cost_model)

    @cached_property
    def _design(self) -> Ridge:
        return Ridge(self.features, self.action_names)


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
