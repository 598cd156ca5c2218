"""Deviating less: a candidate for a part of the decisions, today's routing for the rest.

Legend: n decisions, a actions of the log.
"""

from __future__ import annotations

import math

import numpy as np

from optimizer.dataset import Floats
from optimizer.evidence import Evaluation
from optimizer.gate import Estimate, Limits
from optimizer.policy import Learned
from optimizer.runtime import Model

BLIND = 0.05
"""Largest mean total variation between today's probabilities and their mean where today counts as blind to the
prompt."""
ELSEWHERE = 0.01
"""Largest share of today's decisions on actions that the model does not know."""
LEAST_SHARE = 0.05
STEPS = 7


def today_shares(evaluation: Evaluation, model: Model) -> Floats | None:
    """Today's probability of each of the model's actions, where they are the same for every prompt; else None.

    Only such routing can be repeated by a router: a rule that looks at the prompt is known from its choices alone.
    """
    behaviour = evaluation.data.behaviour
    mean = behaviour.mean(axis=0)
    if float(np.abs(behaviour - mean).sum(axis=1).mean()) / 2 > BLIND:
        return None
    known = mean[[evaluation.data.action_names.index(name) for name in model.actions]]
    total = float(known.sum())
    return None if total < 1 - ELSEWHERE else np.asarray(known / total)


def mixed(model: Model, today: Floats, share: float) -> Model:
    """(1 - share) today + share of the model, for each decision anew, so that every logged probability is that of the
    mixture."""
    return Model(model.kind, model.actions, {**model.arrays, "today": today, "share": np.array(share)}, model.epsilon)


def unmixed(model: Model) -> Model:
    """The model without today's routing in it."""
    if "share" not in model.arrays:
        return model
    arrays = {name: array for name, array in model.arrays.items() if name not in ("today", "share")}
    return Model(model.kind, model.actions, arrays, model.epsilon)


def largest_certain(
    model: Model, evaluation: Evaluation, limits: Limits, policy: Floats | None = None
) -> tuple[Model, float, Floats] | None:
    """The mixture with the largest share, in whole percent, whose quality is certainly inside the limits on these rows
    (and whose latency is, if that has a limit), with the share and its probabilities (n, a); None below `LEAST_SHARE`,
    or where there is no evidence.

    policy: (n, a) the model's, where it was learned on other rows than these; None: as the model decides them. The
    change of quality is linear in the share and its standard error convex, so the certain shares are an interval that
    begins near 0: bisection finds its end.
    """
    today = today_shares(evaluation, model)
    if today is None:
        return None
    data = evaluation.data
    if policy is None:
        policy = Learned(model, data.action_names).probabilities(data.features, data.behaviour)
    now = np.zeros(len(data.action_names))
    now[[data.action_names.index(name) for name in model.actions]] = today
    low, high = 0, 100
    for _ in range(STEPS):
        middle = math.ceil((low + high) / 2)
        if _certain((1 - middle / 100) * now + middle / 100 * policy, evaluation, limits):
            low = middle
        else:
            high = middle - 1
        if low >= high:
            break
    share = low / 100
    if share < LEAST_SHARE:
        return None
    return mixed(model, today, share), share, (1 - share) * now + share * policy


def _certain(policy: Floats, evaluation: Evaluation, limits: Limits) -> bool:
    quality = evaluation.change("quality", policy)
    inside = isinstance(quality, Estimate) and quality.low >= -limits.quality_margin
    if inside and limits.latency_s is not None:
        latency = evaluation.change("latency_s", policy)
        inside = isinstance(latency, Estimate) and latency.high <= limits.latency_s
    return inside
