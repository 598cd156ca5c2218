"""Which candidate to suggest: the most useful one inside the limits, the simplest among equals."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from optimizer.evidence import MAX_UNSUPPORTED, MIN_EFFECTIVE, Evaluation, Outcome
from optimizer.gate import Limits
from optimizer.learners import Candidate
from optimizer.policy import Learned
from optimizer.rewards import RewardSpec

SIMPLER_WITHIN = 0.005
"""A simpler candidate is preferred when its utility is within this much (half a point of quality) of the best."""


@dataclass(frozen=True, eq=False)
class Scored:
    """A candidate on the choosing rows: its value with intervals, and its changes from today, shrunk towards the
    outcome model."""

    candidate: Candidate
    cost_usd: Outcome
    quality: Outcome
    cost_change: float
    quality_change: float
    utility: float
    inside: bool
    effective: float


@dataclass(frozen=True, eq=False)
class Choice:
    """The suggested candidate. `admissible`: the choosing rows put it inside the limits and say that it saves."""

    candidate: Candidate
    admissible: bool


def choose(
    candidates: Sequence[Candidate], evaluation: Evaluation, limits: Limits, reward: RewardSpec
) -> Choice | None:
    """The suggestion, from rows that no candidate was learned on; None when none can be scored there.

    Inside the limits means by point estimate; whether it certainly is so is for the gate, on rows that were not used
    to choose. Among those inside that save, the best by utility, or a simpler one that comes close. With none inside,
    the best that saves. Candidates with too few effective decisions to be judged later are left out while there are
    others.
    """
    scored = [s for candidate in candidates if (s := score(candidate, evaluation, limits, reward)) is not None]
    scored = [s for s in scored if s.effective >= 1.25 * MIN_EFFECTIVE] or scored
    saving = [s for s in scored if s.cost_change < 0]
    inside = [s for s in saving if s.inside]
    pool = inside or saving or scored
    if not pool:
        return None
    best = max(s.utility for s in pool)
    close = [s for s in pool if s.utility >= best - SIMPLER_WITHIN]
    simplest = min(close, key=lambda s: (s.candidate.complexity, -s.utility))
    return Choice(simplest.candidate, bool(inside))


def score(candidate: Candidate, evaluation: Evaluation, limits: Limits, reward: RewardSpec) -> Scored | None:
    """A candidate on the choosing rows; None where the log has no evidence about it."""
    data = evaluation.data
    policy = Learned(candidate.model, data.action_names).probabilities(data.features, data.behaviour)
    cost, quality = evaluation.shrunk_change("cost_usd", policy), evaluation.shrunk_change("quality", policy)
    if not np.isfinite([cost, quality]).all() or evaluation.unsupported(policy) > MAX_UNSUPPORTED:
        return None
    inside = quality >= -limits.quality_margin
    if limits.latency_s is not None:
        inside = inside and evaluation.shrunk_change("latency_s", policy) <= limits.latency_s
    return Scored(
        candidate,
        evaluation.value("cost_usd", policy),
        evaluation.value("quality", policy),
        cost,
        quality,
        quality - cost / reward.value_usd,
        inside,
        evaluation.effective(policy),
    )
