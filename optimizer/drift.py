"""Are the decisions that judge a policy still like those that chose it?

Three things can differ between earlier and later decisions: what an action gives at the same features (outcome), which
prompts come (mix), and how often each action is chosen (behaviour). A changed outcome means that what was learned no
longer holds; a changed mix or behaviour explains why today's figures moved. One Holm correction over all tests: the
chance of any false alarm is at most alpha (asymptotically).

Legend: n decisions, d features, a actions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from optimizer.dataset import Bools, Floats, Ints, folds
from optimizer.ope.association import Association, association, holm
from optimizer.ope.estimators import Evidence

MIN_ROWS = 30
"""An action with fewer known outcomes, earlier or later, is not tested."""
MIN_GROUPS = 10
MIN_SHIFT = 0.01
"""An outcome that moved by less than this part of its mean is no alarm, however certain."""
MIN_SHARE = 0.02
"""Nor is a share of decisions that moved by less."""
MIN_AUC = 0.55
"""Nor are prompts that tell later from earlier no better than this; 0.5 is a coin."""
MAX_FITTED = 10_000

Aspect = Literal["outcome", "mix", "behaviour"]


@dataclass(frozen=True)
class Shift:
    """One thing that was compared between the earlier and the later decisions."""

    aspect: Aspect
    what: str
    """The metric and the action, or the action."""
    size: float
    """Outcome and behaviour: later minus earlier. Mix: the AUC with which features tell later from earlier."""
    p_value: float
    alarm: bool
    reason: str


@dataclass(frozen=True)
class Drift:
    """All comparisons, alarms first, then by p-value."""

    shifts: tuple[Shift, ...]
    untested: tuple[str, ...]
    """What had too few decisions to compare, each with the reason."""

    def alarms(self, *aspects: Aspect) -> tuple[Shift, ...]:
        """The alarms of these aspects; of all if none is named."""
        return tuple(shift for shift in self.shifts if shift.alarm and (not aspects or shift.aspect in aspects))


def compare(
    features: Floats,
    evidence: Mapping[str, Evidence],
    later: Bools,
    action_names: Sequence[str],
    *,
    alpha: float = 0.05,
    seed: int,
) -> Drift:
    """What differs between the rows where `later` (n,) is False and those where it is True.

    features (n, d). evidence: one per metric, about the same rows; its models must be the same for both parts and
    fitted on other rows. Outcome: the model's residuals against `later`, given the features (see `ope.association`), so
    that neither a wrong model nor another mix alone raises it. Mix: a logistic regression fitted on half of the groups
    tells later from earlier in the other half; its ranks are compared. Behaviour: shares of the actions taken.
    Raises ValueError when there is no evidence.
    """
    if not evidence:
        raise ValueError("no outcome to compare")
    first = next(iter(evidence.values()))
    groups, actions, after = first.groups, first.actions, later.astype(np.float64)
    if min(len(np.unique(groups[part])) for part in (later, ~later)) < MIN_GROUPS:
        return Drift((), (f"drift: fewer than {MIN_GROUPS} sessions before or after",))
    half = folds(groups, 2, seed)
    shifts: list[Shift] = []
    untested: list[str] = []
    chance = _chance_of_later(np.column_stack([features, np.eye(len(action_names))[actions]]), later, half, seed)
    for metric, one in evidence.items():
        for action, name in enumerate(action_names):
            rows = np.flatnonzero((actions == action) & ~np.isnan(one.outcome))
            if min(int(later[rows].sum()), int((~later[rows]).sum())) < MIN_ROWS:
                untested.append(f"{metric} of {name}: fewer than {MIN_ROWS} known outcomes before or after")
                continue
            found = association(after[rows] - chance[rows], one.outcome[rows] - one.model[rows, action], groups[rows])
            shifts.append(_outcome_shift(metric, name, found, float(np.abs(one.outcome[rows]).mean())))
    shifts.append(_mix_shift(features, later, groups, half, seed))
    shifts += [
        _behaviour_shift(name, association(after, (actions == action).astype(np.float64), groups))
        for action, name in enumerate(action_names)
        if (actions == action).sum() >= MIN_ROWS
    ]
    return Drift(_with_alarms(shifts, alpha), tuple(untested))


def _with_alarms(shifts: Sequence[Shift], alpha: float) -> tuple[Shift, ...]:
    """`alarm` so far says whether the size matters; a real alarm is also certain."""
    certain = holm([shift.p_value for shift in shifts], alpha)
    judged = [
        Shift(s.aspect, s.what, s.size, s.p_value, s.alarm and bool(sure), s.reason)
        for s, sure in zip(shifts, certain, strict=True)
    ]
    return tuple(sorted(judged, key=lambda shift: (not shift.alarm, shift.p_value)))


def _outcome_shift(metric: str, action: str, found: Association, mean: float) -> Shift:
    reason = (
        f"{metric} of {action} moved by {found.size:+.3g} at the same features (p = {found.p_value:.2g}): learn again "
        "on decisions since then, or find out what changed"
    )
    matters = abs(found.size) >= MIN_SHIFT * mean
    return Shift("outcome", f"{metric} of {action}", found.size, found.p_value, matters, reason)


def _behaviour_shift(action: str, found: Association) -> Shift:
    reason = f"the share of {action} moved by {found.size:+.1%} (p = {found.p_value:.2g})"
    return Shift("behaviour", action, found.size, found.p_value, abs(found.size) >= MIN_SHARE, reason)


def _mix_shift(features: Floats, later: Bools, groups: Ints, half: Ints, seed: int) -> Shift:
    """Only one half is judged: two halves that judge each other are not independent."""
    judged = np.flatnonzero(half == 1)
    score = _chance_of_later(features, later, half, seed, judged=(1,))[judged]
    truth = later[judged]
    ranks = _ranks(score)
    ones = int(truth.sum())
    if ones in (0, len(truth)):
        return Shift("mix", "prompts", 0.5, 1.0, False, "one half holds no earlier or no later decision")
    auc = float((ranks[truth].sum() - ones * (ones + 1) / 2) / (ones * (len(truth) - ones)))
    found = association(truth.astype(np.float64), ranks, groups[judged])
    p_value = found.p_value / 2 if found.size > 0 else 1.0
    reason = f"features tell later decisions from earlier ones with an AUC of {auc:.2f} (p = {p_value:.2g})"
    return Shift("mix", "prompts", auc, p_value, auc >= MIN_AUC, reason)


def _ranks(values: Floats) -> Floats:
    """(n,) ranks from 1; equal values share their mean rank."""
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    ends = np.cumsum(counts)
    ranks: Floats = (ends - (counts - 1) / 2)[inverse]
    return ranks


def _chance_of_later(design: Floats, later: Bools, half: Ints, seed: int, judged: Sequence[int] = (0, 1)) -> Floats:
    """(n,) probability that a row is a later one, by a logistic regression of the other half."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    chance = np.full(len(later), float(later.mean()))
    for number in judged:
        train = np.flatnonzero(half != number)
        if len(train) > MAX_FITTED:
            train = np.random.default_rng(seed).choice(train, MAX_FITTED, replace=False)
        if 0 < later[train].sum() < len(train):
            model = make_pipeline(StandardScaler(), LogisticRegression(C=0.1, max_iter=200))
            model.fit(design[train], later[train])
            chance[half == number] = model.predict_proba(design[half == number])[:, 1]
    return chance
