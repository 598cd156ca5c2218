"""Stretches of time in which the actions were taken in the same shares: a changed configuration ends one.

Legend: n decisions, a actions.
"""

from __future__ import annotations

import numpy as np

from optimizer.dataset import Floats, Ints

LEAST = 300
"""Sessions of a block: fewer tell too little of how they chose."""
MIN_CHANGE = 0.05
"""Shares that moved by less (total variation) stay in one block."""
CUTS = 200
ALPHA = 0.01
MOST_BLOCKS = 8


def time_blocks(actions: Ints, groups: Ints, time_ns: Ints) -> Ints:
    """(n,) number of the block of each decision, from 0 in order of time.

    Binary segmentation by the likelihood ratio of one against two sets of shares, on the first decision of each
    session, since those of one session are not independent. Each cut is tested at `ALPHA` over all `CUTS` places where
    it might be (Bonferroni; asymptotic).
    """
    order = np.argsort(time_ns, kind="stable")
    _, first = np.unique(groups[order], return_index=True)
    rows = order[np.sort(first)]
    taken = np.eye(int(actions.max()) + 1)[actions[rows]]
    cuts: list[int] = []
    waiting = [(0, len(rows))]
    while waiting and len(cuts) < MOST_BLOCKS - 1:
        start, stop = waiting.pop(0)
        if (cut := _cut(taken[start:stop])) is not None:
            cuts.append(start + cut)
            waiting += [(start, start + cut), (start + cut, stop)]
    block: Ints = np.searchsorted(time_ns[rows[sorted(cuts)]], time_ns, side="right").astype(np.int64)
    return block


def _cut(taken: Floats) -> int | None:
    """Where the shares change; None if they do not. taken (m, a), one-hot in order of time."""
    from scipy.stats import chi2

    m = len(taken)
    if m < 2 * LEAST:
        return None
    places = np.unique(np.linspace(LEAST, m - LEAST, CUTS).astype(np.int64))
    before = np.cumsum(taken, axis=0)[places - 1]
    total = taken.sum(axis=0)
    after = total - before
    ratio = 2 * (_log_likelihood(before) + _log_likelihood(after) - _log_likelihood(total[None]))
    best = int(ratio.argmax())
    moved = np.abs(before[best] / places[best] - after[best] / (m - places[best])).sum() / 2
    most = float(chi2.ppf(1 - ALPHA / len(places), max(int((total > 0).sum()) - 1, 1)))
    return int(places[best]) if ratio[best] > most and moved >= MIN_CHANGE else None


def _log_likelihood(counts: Floats) -> Floats:
    """(k,) of counts (k, a) under their own shares."""
    sizes = counts.sum(axis=1, keepdims=True)
    return np.asarray((counts * np.log(np.where(counts > 0, counts / sizes, 1.0))).sum(axis=1))
