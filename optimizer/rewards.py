"""What a decision is worth, in real units."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from optimizer.dataset import Floats

Preset = Literal["real", "puppeteer"]
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


@dataclass(frozen=True)
class PuppeteerReward:
    """The reward of the Puppeteer paper (Dang et al. 2025, arXiv 2505.19591), to compare with; its costs have no unit.

    R_T = r - lambda C_T, R_t = gamma R_(t+1) - lambda C_t, C_t = F log(1 + t / phi), t = 1, 2, ..: a step costs the
    more the later it comes. F counts floating point operations or tokens there; here, money in units of `scale_usd`.
    """

    scale_usd: float
    """What counts as an effort of 1, such as the mean cost of an episode."""
    budget: float = 6.0
    """phi, in steps."""
    weight: float = 0.1
    """lambda."""
    discount: float = 0.99
    """gamma."""

    def __post_init__(self) -> None:
        if not (self.scale_usd > 0 and self.budget > 0 and self.weight >= 0 and 0 < self.discount <= 1):
            raise ValueError(f"scale, budget and discount must be above 0, discount at most 1, got {self}")

    def added(self, quality: Floats, cost_usd: Floats, step: Floats) -> Floats:
        """(n,) what each decision adds to R of its episode's first one: gamma^step (quality - lambda C), step from 0.

        quality: r at the last decision, 0 before.
        """
        effort = cost_usd / self.scale_usd * np.log1p((step + 1) / self.budget)
        result: Floats = self.discount**step * (quality - self.weight * effort)
        return result
