"""Which candidate to suggest: the most useful one inside the limits, the simplest among equals."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from optimizer.dataset import Floats, Ints
from optimizer.evidence import MAX_UNSUPPORTED, MIN_EFFECTIVE, Evaluation, Outcome, Refused
from optimizer.gate import Limits
from optimizer.learners import Candidate
from optimizer.mixtures import largest_certain
from optimizer.ope.intervals import deviations, standard_error
from optimizer.policy import Learned
from optimizer.rewards import RewardSpec

SIMPLER_WITHIN = 0.005
"""However uncertain the difference is: a simpler candidate may cost at most half a point of quality."""
_UNKNOWN = Refused("not estimated")


@dataclass(frozen=True, eq=False)
class Scored:
    """A candidate on the choosing rows: its value with intervals, and its changes from today, shrunk towards the
    outcome model."""

    candidate: Candidate
    cost_usd: Outcome
    quality: Outcome
    cost_change: float
    quality_change: float
    gains: Floats
    """(n,) gain of utility at each decision; the mean is the candidate's."""
    inside: bool
    effective: float
    policy: Floats
    """(n, a) what it does on the choosing rows."""
    late: bool = False
    """It breaks the latency limit."""
    latency_s: Outcome = _UNKNOWN

    @property
    def utility(self) -> float:
        return float(self.gains.mean())


@dataclass(frozen=True, eq=False)
class Choice:
    """What is suggested. `admissible`: the choosing rows put it inside the limits and say that it saves."""

    scored: Scored
    admissible: bool

    @property
    def candidate(self) -> Candidate:
        return self.scored.candidate


def choose(found: Sequence[Scored], evaluation: Evaluation, limits: Limits, reward: RewardSpec) -> Choice | None:
    """The suggestion, from rows that no candidate was learned on; None when none could be scored there.

    With no candidate inside the limits, the best certain mixture of one with today's routing: see `pick`.
    """

    def less(saving: Sequence[Scored]) -> Scored | None:
        return _deviating_less(saving, evaluation, limits, reward)

    return pick(found, evaluation.data.groups, less, least=1.25 * MIN_EFFECTIVE)


def pick(
    found: Sequence[Scored], groups: Ints, less: Callable[[Sequence[Scored]], Scored | None], *, least: float
) -> Choice | None:
    """The simplest of the candidates inside the limits that save and come close to the best (see `_close`).

    Inside the limits means by point estimate; whether it certainly is so is for the gate, on rows that were not used
    to choose. With none inside, what `less` makes of those that save, else the best that saves. Candidates with fewer
    than `least` effective decisions could not be judged later and are left out while there are others.
    """
    scored = [s for s in found if s.effective >= least] or list(found)
    saving = [s for s in scored if s.cost_change < 0]
    inside = [s for s in saving if s.inside]
    if not inside and (mixture := less(saving)) is not None:
        return Choice(mixture, admissible=True)
    pool = inside or saving or scored
    if not pool:
        return None
    best = max(pool, key=lambda s: s.utility)
    close = [s for s in pool if _close(s, best, groups)]
    simplest = min(close, key=lambda s: (s.candidate.complexity, -s.utility))
    return Choice(simplest, bool(inside))


def score(
    candidate: Candidate, evaluation: Evaluation, limits: Limits, reward: RewardSpec, policy: Floats | None = None
) -> Scored | None:
    """A candidate on the choosing rows; None where the log has no evidence about it.

    policy: (n, a) what its learner does there when it learns on other rows; None: what its model does.
    """
    data = evaluation.data
    if policy is None:
        policy = Learned(candidate.model, data.action_names).probabilities(data.features, data.behaviour)
    cost, quality = evaluation.shrunk_scores("cost_usd", policy), evaluation.shrunk_scores("quality", policy)
    if not np.isfinite([cost, quality]).all() or evaluation.unsupported(policy) > MAX_UNSUPPORTED:
        return None
    limit = limits.latency_s
    late = limit is not None and not evaluation.shrunk_change("latency_s", policy) <= limit
    inside = float(quality.mean()) >= -limits.quality_margin and not late
    return Scored(
        candidate,
        evaluation.value("cost_usd", policy),
        evaluation.value("quality", policy),
        float(cost.mean()),
        float(quality.mean()),
        reward.utility(quality, cost),
        inside,
        evaluation.effective(policy),
        policy,
        late,
        evaluation.value("latency_s", policy),
    )


def _close(one: Scored, best: Scored, groups: Ints) -> bool:
    """Whether the difference is below one standard error, paired by decision and clustered by group, and below
    `SIMPLER_WITHIN`.

    One standard error alone (Breiman and others 1984) would say that whatever a small log cannot tell apart is equal,
    and give away what the flexible candidates are for.
    """
    behind = best.gains - one.gains
    difference = float(behind.mean())
    error = standard_error(deviations(behind, groups), len(behind))
    return difference <= min(error, SIMPLER_WITHIN)


def _deviating_less(
    saving: Sequence[Scored], evaluation: Evaluation, limits: Limits, reward: RewardSpec
) -> Scored | None:
    """The most useful mixture of a useful candidate with today's routing that is certainly inside the limits.

    A candidate that is too slow is not mixed: fewer decisions would then be just as late, and a mean would hide it.
    """
    found = []
    for one in (s for s in saving if not s.late):
        whole = one.candidate
        if one.utility > 0 and (mixture := largest_certain(whole.model, evaluation, limits, one.policy)) is not None:
            model, share, policy = mixture
            label = f"{whole.label} for {share:.0%}, else as today"
            made = score(Candidate(label, whole.complexity + 1, model), evaluation, limits, reward, policy)
            if made is not None and made.inside and made.cost_change < 0 and made.utility > 0:
                found.append(made)
    return max(found, key=lambda s: s.utility, default=None)
