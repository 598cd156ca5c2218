"""What each action cost and gave in logged decisions that are most like one: what to expect of it there.

Means over neighbours in the policy's features, by the action that was taken. They hold where decisions that look alike
are alike: whatever moved a choice and is not in the features moves these means too.

Legend: n decisions, d features.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from optimizer.dataset import Floats
from optimizer.gate import Estimate

NEAREST = 50
LEAST = 10
"""Neighbours with an outcome that an interval needs."""
CONFIDENCE = 0.95


@dataclass(frozen=True)
class Expected:
    """Of one action: its mean outcomes per decision near by; None where fewer than `LEAST` neighbours have one."""

    neighbours: int
    cost_usd: Estimate | None
    quality: Estimate | None


def expected(
    features: Floats, known: Floats, actions: Sequence[str], cost_usd: Floats, quality: Floats
) -> dict[str, Expected]:
    """features (d,), known (n, d), actions, cost_usd and quality (n,), NaN where not known -> by action."""
    if not len(known):
        return {}
    scale = known.std(axis=0)
    scale = np.where(scale > 0.0, scale, 1.0)
    distance = (((known - features) / scale) ** 2).sum(axis=1)
    names = np.asarray(actions)
    found = {}
    for name in sorted(set(actions)):
        own = np.flatnonzero(names == name)
        near = own[np.argsort(distance[own], kind="stable")[:NEAREST]]
        found[name] = Expected(len(near), _mean(cost_usd[near]), _mean(quality[near], bounded=True))
    return found


def _mean(values: Floats, *, bounded: bool = False) -> Estimate | None:
    """Student's interval of the mean. bounded: of numbers in [0, 1]; one more of either end is counted into the width,
    so that equal outcomes do not look certain."""
    from scipy.stats import t

    values = values[np.isfinite(values)]
    n = len(values)
    if n < LEAST:
        return None
    value = float(values.mean())
    spread = float((np.append(values, [0.0, 1.0]) if bounded else values).std(ddof=1))
    half = float(t.ppf(0.5 + CONFIDENCE / 2, n - 1)) * spread / math.sqrt(n)
    low, high = value - half, value + half
    if bounded:
        low, high = max(low, 0.0), min(high, 1.0)
    return Estimate("neighbours", value, low, high, n, float(n), "assumption")
