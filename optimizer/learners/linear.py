"""Linear heads: the expected quality and cost of every action, from which any price of quality makes a policy.

Legend: n decisions, d features, k actions.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from optimizer.dataset import Floats
from optimizer.rewards import RewardSpec
from optimizer.runtime import Model

PENALTIES = np.logspace(0, 5, 11)


@dataclass(frozen=True, eq=False)
class Heads:
    """Two linear models on one standardised design."""

    mean: Floats
    """(d,)"""
    scale: Floats
    """(d,)"""
    quality: Floats
    """(d + 1, k) weights; the last row is the bias."""
    cost_usd: Floats
    """(d + 1, k)"""
    action_names: tuple[str, ...]

    def predict(self, features: Floats) -> tuple[Floats, Floats]:
        """(n, d) -> (n, k) expected quality and (n, k) expected cost."""
        both = np.hstack([self.quality, self.cost_usd])
        found = ((features - self.mean) / self.scale) @ both[:-1] + both[-1]
        return found[:, : len(self.action_names)], found[:, len(self.action_names) :]

    def model(self, reward: RewardSpec, epsilon: float) -> Model:
        """The action of the highest utility, as a router carries it."""
        weights = reward.utility(self.quality, self.cost_usd)
        arrays = {"mean": self.mean, "scale": self.scale, "weights": weights[:-1], "bias": weights[-1]}
        return Model("linear", self.action_names, arrays, epsilon)


class Ridge:
    """Ridge regressions on one design, each penalised by generalised cross-validation.

    With Z the standardised features and Z'Z = V diag(s) V', the weights of an outcome Y for a penalty p are
    V (V'Z'Y / (s + p)), and the penalty has the smallest ||Y - Z W||^2 / (1 - df / n)^2, df = sum s / (s + p) + 1
    (Golub, Heath, Wahba 1979). Only d x d matrices are kept, so a million rows cost one pass.
    """

    def __init__(self, features: Floats, action_names: tuple[str, ...]) -> None:
        self.mean, self.scale = standard(features)
        self.action_names = action_names
        self._features = features
        n = len(features)
        gram = (features.T @ features - n * np.outer(self.mean, self.mean)) / np.outer(self.scale, self.scale)
        spectrum, self._vectors = np.linalg.eigh(gram)
        self._spectrum = np.maximum(spectrum, 0.0)

    def heads(self, quality: Floats, cost_usd: Floats) -> Heads:
        """quality, cost_usd (n, k)."""
        return Heads(self.mean, self.scale, self._fit(quality), self._fit(cost_usd), self.action_names)

    def _fit(self, outcome: Floats) -> Floats:
        n, centre = len(outcome), outcome.mean(axis=0)
        spread = max(float(outcome.std()), 1e-12)
        scaled = (outcome - centre) / spread
        product = (self._features.T @ scaled) / self.scale[:, None]  # scaled sums to 0: the mean drops out
        turned = self._vectors.T @ product
        total = float((scaled**2).sum())
        best, least = turned, np.inf
        for penalty in PENALTIES:
            weights = turned / (self._spectrum + penalty)[:, None]
            residual = total - 2 * (weights * turned).sum() + (self._spectrum[:, None] * weights**2).sum()
            freedom = float((self._spectrum / (self._spectrum + penalty)).sum()) + 1
            loss = float(residual) / max(1 - freedom / n, 1e-6) ** 2
            if loss < least:
                best, least = weights, loss
        return np.vstack([self._vectors @ best * spread, centre])


def standard(features: Floats) -> tuple[Floats, Floats]:
    """Mean and spread of each feature; a constant feature keeps a spread of 1."""
    spread = features.std(axis=0)
    return features.mean(axis=0), np.where(spread > 1e-9, spread, 1.0)
