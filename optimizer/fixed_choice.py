"""Where the choice was a fixed rule: segments in which one action was taken almost always.

No decision there tells what another action would have given. A shallow tree, grown on half of the sessions, proposes
the segments; the other half has to confirm each, so that a lopsided coin is seldom taken for a rule.

Legend: n decisions, d features, a actions.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from optimizer.dataset import MIN_PROPENSITY, Bools, Floats, Ints, folds
from optimizer.rules import Path, covers, in_words, leaves, merged
from optimizer.runtime import DENSE

PURE = 0.99
"""In a fixed segment more than this share of decisions took the same action."""
CERTAIN = 0.95
MOST_GROWN = 20_000


@dataclass(frozen=True)
class FixedSegment:
    """Decisions that all `conditions` describe (none: all decisions), and what they took."""

    conditions: tuple[str, ...]
    action: int
    share: float
    """Of all decisions."""
    taken: float
    """Share of its decisions that took `action`."""


def fixed_segments(
    features: Floats, actions: Ints, groups: Ints, *, seed: int
) -> tuple[tuple[FixedSegment, ...], Ints]:
    """The segments, largest first, and (n,) which of them each decision is in; -1 for none.

    features (n, d) as the runtime makes them: only those with a name can be in a rule. A segment is confirmed if in the
    other half of the sessions the share of those with another action is below 2 %, the least probability that counts
    as tried, with 95 % confidence (Clopper and Pearson 1934): at least 149 sessions.
    """
    half = folds(groups, 2, seed)
    named = features[:, : len(DENSE)]
    grown = np.flatnonzero(half == 0)
    if len(grown) > MOST_GROWN:
        grown = np.sort(np.random.default_rng(seed).choice(grown, MOST_GROWN, replace=False))
    member: Ints = np.full(len(actions), -1)
    if grown.size == 0:
        return (), member
    confirmed: list[tuple[Path, int]] = []
    for place, (path, action) in enumerate(leaves(named[grown], actions[grown])):
        fixed = _is_fixed(covers(path, named), actions, groups, half == 1, action)
        confirmed.append((path, action if fixed else -1 - place))  # those that are not fixed are never merged
    found = []
    for path, action in merged(confirmed):
        if action >= 0:
            inside = covers(path, named)
            taken = float((actions[inside] == action).mean())
            found.append((inside, FixedSegment(in_words(path), action, float(inside.mean()), taken)))
    found.sort(key=lambda pair: -pair[1].share)
    for place, (inside, _) in enumerate(found):
        member[inside & (member < 0)] = place
    return tuple(segment for _, segment in found), member


def _is_fixed(inside: Bools, actions: Ints, groups: Ints, judging: Bools, action: int) -> bool:
    from scipy.stats import beta

    if not inside.any() or (actions[inside] == action).mean() <= PURE:
        return False
    rows = inside & judging
    sessions = len(np.unique(groups[rows]))
    others = len(np.unique(groups[rows & (actions != action)]))
    return sessions > others and float(beta.ppf(CERTAIN, others + 1, sessions - others)) < MIN_PROPENSITY
