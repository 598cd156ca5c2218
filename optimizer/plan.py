"""What would decide a question that the logs leave open."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from optimizer.dataset import LoggedDataset
from optimizer.evidence import Metric, Outcome, Refused, savings
from optimizer.gate import MIN_EFFECTIVE, Estimate, Limits
from optimizer.logged import OTHER

ARM_SHARE = 0.1
COARSEST_WIDTH = 0.03


@dataclass(frozen=True)
class Plan:
    """The cheapest way to find out, in words, and about how many decisions it takes."""

    text: str
    decisions: int


def what_would_decide(data: LoggedDataset, changes: Mapping[Metric, Outcome], limits: Limits) -> Plan:
    """More of the same where there is an estimate, exploration where there is none."""
    quality, saving = changes["quality"], savings(changes["cost_usd"])
    if isinstance(quality, Refused) or isinstance(saving, Refused):
        return _explore(data, limits)
    return _log_longer(data, quality, saving, limits)


def _log_longer(data: LoggedDataset, quality: Estimate, saving: Estimate, limits: Limits) -> Plan:
    """Intervals shrink with the square root of n: how many decisions until they clear the limits, if the points
    stand."""
    half_width = (quality.high - quality.low) / 2
    room = max(quality.value + limits.quality_margin, limits.quality_margin)
    factors = [1.0, (half_width / room) ** 2, MIN_EFFECTIVE / max(quality.effective, 1.0)]
    if saving.low <= 0 < saving.value:
        factors.append(((saving.high - saving.low) / 2 / saving.value) ** 2)
    more = _rounded(len(data) * max(factors)) - len(data)
    text = (
        f"quality is known to within {100 * half_width:.1f} points and must clear {-100 * limits.quality_margin:+.1f}. "
        f"If the estimates stand, about {max(more, 0):,} more decisions like these decide it; fewer if the suggested "
        "actions get a larger share of the exploration."
    )
    return Plan(text, max(more, 0))


def _explore(data: LoggedDataset, limits: Limits) -> Plan:
    """An arm needs the share p = z^2 s sigma^2 / (n h^2) of n decisions for a half-width h at outcome variance sigma^2;
    here for every decision (s = 1), solved for n."""
    known = data.quality[~np.isnan(data.quality)]
    variance = float(known.var()) if known.size else 0.25
    width = max(limits.quality_margin, COARSEST_WIDTH)
    needed = _rounded(3.84 * variance / (ARM_SHARE * width**2))
    names = [name for name in data.action_names if name != OTHER][:4]
    text = (
        f"let the router draw each of {', '.join(names)} at random for {ARM_SHARE:.0%} of the decisions, whatever the "
        f"prompt, and log policy.propensity. After about {needed:,} decisions each one's quality is known to within "
        f"{100 * width:.0f} points; drawing a cheaper model costs less than today."
    )
    return Plan(text, needed)


def _rounded(decisions: float) -> int:
    return int(np.ceil(decisions / 100) * 100)
