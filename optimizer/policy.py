"""Policies: for each decision, a probability for every action."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from optimizer.dataset import Bools, Floats
from optimizer.runtime import Model


class Policy(Protocol):
    """n decisions, d features, a actions."""

    def probabilities(self, features: Floats, behaviour: Floats) -> Floats:
        """features (n, d) and the logging behaviour (n, a) -> (n, a); rows sum to 1."""


@dataclass(frozen=True)
class Today:
    """What ran when the log was written."""

    def probabilities(self, features: Floats, behaviour: Floats) -> Floats:
        return behaviour


@dataclass(frozen=True, eq=False)
class Fixed:
    """The same shares whatever the prompt: always one model, or a blind mix."""

    shares: Floats
    """(a,) sum to 1."""

    @classmethod
    def always(cls, action: int, count: int) -> Fixed:
        return cls(np.eye(count)[action])

    def probabilities(self, features: Floats, behaviour: Floats) -> Floats:
        return np.tile(self.shares, (len(features), 1))


@dataclass(frozen=True, eq=False)
class Learned:
    """The model that a bundle carries, decided exactly as the router does it, over the log's actions. Decisions that
    none of its actions can serve stay as they were logged."""

    model: Model
    action_names: tuple[str, ...]
    """All actions of the log; the model knows a part of them."""

    def probabilities(self, features: Floats, behaviour: Floats) -> Floats:
        columns = [self.action_names.index(name) for name in self.model.actions]
        able: Bools = self.model.able(features)
        served = able.any(axis=1, keepdims=True)
        result = np.zeros((len(features), len(self.action_names)))
        result[:, columns] = self.model.probabilities(features, able | ~served)
        return np.where(served, result, behaviour)
