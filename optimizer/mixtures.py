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


def largest_certain(model: Model, evaluation: Evaluation, limits: Limits) -> tuple[Model, float] | None:
    """The mixture with the largest share, in whole percent, whose quality is certainly inside the limits on these rows
    (and whose latency is, if that has a limit), and the share; None below `LEAST_SHARE`, or where there is no evidence.

    The change of quality is linear in the share and its standard error convex, so the certain shares are an interval
    that begins near 0: bisection finds its end.
    """
    today = today_shares(evaluation, model)
    if today is None:
        return None
    low, high = 0, 100
    for _ in range(STEPS):
        middle = math.ceil((low + high) / 2)
        if _certain(mixed(model, today, middle / 100), evaluation, limits):
            low = middle
        else:
            high = middle - 1
        if low >= high:
            break
    share = low / 100
    return (mixed(model, today, share), share) if share >= LEAST_SHARE else None


def _certain(model: Model, evaluation: Evaluation, limits: Limits) -> bool:
    data = evaluation.data
    policy = Learned(model, data.action_names).probabilities(data.features, data.behaviour)
    quality = evaluation.change("quality", policy)
    inside = isinstance(quality, Estimate) and quality.low >= -limits.quality_margin
    if inside and limits.latency_s is not None:
        latency = evaluation.change("latency_s", policy)
        inside = isinstance(latency, Estimate) and latency.high <= limits.latency_s
    return inside
