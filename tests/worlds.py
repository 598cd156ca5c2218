"""Small worlds with known truth: contexts, the outcome of every action, and a logging behaviour to draw from."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from optimizer.dataset import Floats, LoggedDataset


@dataclass(frozen=True, eq=False)
class World:
    """n contexts, d features, a actions."""

    features: Floats
    quality: Floats
    """(n, a) realised outcome of every action."""
    cost_usd: Floats
    latency_s: Floats
    behaviour: Floats
    """(n, a)"""
    names: tuple[str, ...]

    def draw(self, seed: int, *, label_share: float = 1.0, logged: bool = True) -> LoggedDataset:
        """A log: one action per context, its outcomes, and for some rows no quality."""
        rng = np.random.default_rng(seed)
        n = len(self.features)
        rows = np.arange(n)
        actions = (rng.random(n)[:, None] > np.cumsum(self.behaviour, axis=1)[:, :-1]).sum(axis=1)
        quality = self.quality[rows, actions].copy()
        quality[rng.random(n) > label_share] = np.nan
        return LoggedDataset(
            features=self.features,
            actions=actions.astype(np.int64),
            quality=quality,
            cost_usd=self.cost_usd[rows, actions],
            latency_s=self.latency_s[rows, actions],
            behaviour=self.behaviour,
            groups=rows.astype(np.int64),
            time_ns=rows.astype(np.int64),
            action_names=self.names,
            propensities_logged=logged,
        )

    def value(self, policy: Floats, outcome: Floats) -> float:
        """Mean outcome of a policy (n, a) on these contexts."""
        return float((policy * outcome).sum(axis=1).mean())


def two_models(n: int = 2000, seed: int = 0, gap: float = 0.0) -> World:
    """A dear incumbent and a cheap rival that is right `gap` more often on even prompts and much less on odd ones."""
    rng = np.random.default_rng(seed)
    easy = np.arange(n) % 2 == 0
    features = np.column_stack([easy * 1.0, rng.normal(size=(n, 3))])
    strong = (rng.random(n) < 0.7) * 1.0
    cheap = (rng.random(n) < np.where(easy, 0.7 + gap, 0.3)) * 1.0
    size = rng.uniform(0.5, 1.5, n)
    return World(
        features=features,
        quality=np.column_stack([strong, cheap]),
        cost_usd=np.column_stack([0.010 * size, 0.001 * size]),
        latency_s=np.column_stack([2.0 * size, 1.0 * size]),
        behaviour=np.tile([0.6, 0.4], (n, 1)),
        names=("dear", "cheap"),
    )
