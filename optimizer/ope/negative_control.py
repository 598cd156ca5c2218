"""A check for hidden causes of a choice: what was fixed before the decision cannot depend on it.

A control is any number known before the decision and kept out of the features: a customer's plan, the length of the
session so far, the outcome of the session's previous decision. Where the features explain every choice, the chosen
action goes together with no control once the features are taken out of both. If it does, something that the features do
not hold moved the choice, or the probabilities are wrong. Passing proves nothing about causes that no control stands
for.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from optimizer.dataset import Floats, Ints, folds
from optimizer.ope.association import Association, association, holm

FOLDS = 3
MIN_TAKEN = 30
"""An action taken less often where the control is known, or not taken less often, is not tested."""


@dataclass(frozen=True)
class ControlFinding:
    """What one control says of all actions."""

    control: str
    holds: bool | None
    """None: nothing could be tested."""
    reason: str
    remedy: str
    action: str | None
    """The action with the smallest p-value."""
    size: float
    """By how many standard deviations the control is higher where that action was chosen."""
    p_value: float


def negative_control(
    control: Floats,
    features: Floats,
    actions: Ints,
    behaviour: Floats,
    groups: Ints,
    action_names: Sequence[str],
    *,
    name: str,
    alpha: float = 0.05,
    seed: int,
) -> ControlFinding:
    """Whether any action goes together with the control (n,), NaN where unknown, beyond what features explain.

    features (n, d) and behaviour (n, a) must not have used the control. Tests the mean of (1{action} - b) (control -
    ridge prediction of it), cluster-robust, Holm over actions; see `association`.
    """
    known = np.flatnonzero(np.isfinite(control))
    taken = np.bincount(actions[known], minlength=len(action_names))
    tested = [k for k in range(len(action_names)) if min(taken[k], len(known) - taken[k]) >= MIN_TAKEN]
    rest = np.zeros(0) if not tested else _unexplained(control[known], features[known], groups[known], seed)
    if not tested or rest.std() == 0:
        reason = f"{len(known)} of {len(control)} decisions have a known and varying {name}, too few to test an action"
        remedy = f"log {name} with at least {2 * MIN_TAKEN} decisions of at least two actions"
        return ControlFinding(name, None, reason, remedy, None, 0.0, 1.0)
    rest = rest / rest.std()
    found = [
        association((actions[known] == k).astype(np.float64) - behaviour[known, k], rest, groups[known]) for k in tested
    ]
    worst = int(np.argmin([one.p_value for one in found]))
    failed = bool(holm([one.p_value for one in found], alpha).any())
    return _finding(name, action_names[tested[worst]], found[worst], failed)


def previous_outcome(outcome: Floats, groups: Ints, time_ns: Ints) -> Floats:
    """(n,) the outcome of the group's decision before; NaN for its first, and where that outcome is unknown."""
    order = np.lexsort((time_ns, groups))
    before = np.full(len(outcome), np.nan)
    same = groups[order][1:] == groups[order][:-1]
    before[order[1:][same]] = outcome[order[:-1][same]]
    return before


def _finding(name: str, action: str, worst: Association, failed: bool) -> ControlFinding:
    if not failed:
        reason = f"no action goes together with {name} beyond what the features explain (p = {worst.p_value:.2g})"
        return ControlFinding(name, True, reason, "", action, worst.size, worst.p_value)
    reason = (
        f"{name} was fixed before the decision, yet it is {abs(worst.size):.2f} standard deviations "
        f"{'higher' if worst.size > 0 else 'lower'} where {action} was chosen (p = {worst.p_value:.2g}): the features "
        "do not explain every choice"
    )
    remedy = f"make {name} a feature, or let the router log policy.propensity with each decision"
    return ControlFinding(name, False, reason, remedy, action, worst.size, worst.p_value)


def _unexplained(control: Floats, features: Floats, groups: Ints, seed: int) -> Floats:
    """(n,) the control minus its ridge prediction from the features, cross-fitted by group."""
    from sklearn.linear_model import Ridge
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    fold = folds(groups, FOLDS, seed)
    rest: Floats = control - control.mean()
    for number in range(FOLDS):
        train, test = fold != number, fold == number
        if test.any() and train.any():
            model = make_pipeline(StandardScaler(), Ridge(alpha=10.0))
            rest[test] = control[test] - model.fit(features[train], control[train]).predict(features[test])
    return rest
