"""How wrong can a change of quality be if something that nobody logged moved choices of several steps?

As `optimizer.ope.sensitivity`, at every decision: given all that came before and the unobserved cause too, the odds of
each action differ from the estimated b / (1 - b) by at most the factor Gamma. So the weight of a logged action lies
between pi (1 + (1 / b - 1) / Gamma) and pi (1 + (1 / b - 1) Gamma). From the end of an episode backwards,

    D(t) = E_pi m(t) + min over those weights w of w (r(t) + D(t + 1) - m(t, a))

is at most the doubly robust score with the weights that nobody knows, whatever the outcome model m: each weight is at
least 0 and what follows is a bound already. Its mean is at most the policy's outcome; with the maximum it is at least
that. At Gamma = 1 both are the doubly robust change. The bounds are valid, not sharp, and multiply over the steps that
the log does not always take alike: few services hold at a large Gamma. What ran today is observed. A confidence limit
adds the sampling error (asymptotic).

Legend: n decisions, a actions, N episodes, k outcomes.
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from optimizer.dataset import Floats, Ints
from optimizer.ope.intervals import mean_interval
from optimizer.ope.sensitivity import Bounds
from optimizer.sequential import evaluation
from optimizer.sequential.episodes import EpisodeLog


def change_bounds(
    log: EpisodeLog,
    policy: Floats,
    model: Floats,
    today: Floats,
    gamma: float,
    *,
    confidence: float,
    share: float = 1.0,
) -> Bounds:
    """Bounds of the change of quality that `policy` (n, a) for `share` of the episodes makes. model, today: (k, n, a)
    future outcomes under the policy and as logged. Raises ValueError for gamma below 1."""
    if not gamma >= 1:
        raise ValueError(f"gamma must be at least 1, got {gamma}")
    logged = evaluation.doubly_robust(log, log.behaviour, today)[0]
    size = evaluation.effective_episodes(log, policy)
    means, limits = [], []
    for side in ("low", "high"):
        change = share * (_scores(log, policy, model, gamma, side) - logged)
        found = mean_interval(
            change, log.groups, confidence=confidence, estimator="MSM", effective=size, kind="assumption"
        )
        means.append(float(change.mean()))
        limits.append(getattr(found, side))
    return Bounds(gamma, *means, *limits)


def _scores(log: EpisodeLog, policy: Floats, model: Floats, gamma: float, side: Literal["low", "high"]) -> Floats:
    """(N,) D(0)."""
    model = evaluation.with_known_stops(log, model)
    rows = np.arange(len(log.actions))
    chance, odds = policy[rows, log.actions], 1 / log.behaviour[rows, log.actions] - 1
    least, most = chance * (1 + odds / gamma), chance * (1 + odds * gamma)
    better, worse = (least, most) if side == "low" else (most, least)

    def weigh(now: Ints, beyond: Floats) -> Floats:
        result: Floats = np.where(beyond > 0, better[now], worse[now])
        return result

    bound: Floats = evaluation.backward(log, (policy * model).sum(axis=2), model[:, rows, log.actions], weigh)[0]
    return bound
