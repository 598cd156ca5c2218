"""What a decision is worth, in real units."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from optimizer.dataset import Floats

FULL_SAVING_IN_QUALITY = 0.10
"""Without a `value_usd`, saving the whole of today's cost weighs as much as this much mean quality (ten points)."""


@dataclass(frozen=True)
class RewardSpec:
    """utility = quality - cost_usd / value_usd, with `value_usd` what a unit of quality (from all wrong to all right)
    is worth per decision. It ranks policies that keep the limits; the limits themselves are never traded."""

    value_usd: float

    def __post_init__(self) -> None:
        if not self.value_usd > 0:
            raise ValueError(f"value_usd must be above 0, got {self.value_usd}")

    @classmethod
    def default(cls, cost_usd: Floats) -> RewardSpec:
        """Scaled to today's mean known cost; 1 when nothing is known or all is free."""
        known = cost_usd[~np.isnan(cost_usd)]
        mean = float(known.mean()) if known.size else 0.0
        return cls(mean / FULL_SAVING_IN_QUALITY if mean > 0 else 1.0)

    def utility(self, quality: Floats, cost_usd: Floats) -> Floats:
        return quality - cost_usd / self.value_usd
