"""What a model that orchestrates does on logged episodes, decided as the router does it.

Legend: n decisions, a actions of the log, of which the last is STOP; A actions of the model.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import replace

import numpy as np

from optimizer.dataset import Bools, Floats
from optimizer.runtime import DIM, NEVER, STEP_DENSE, Model
from optimizer.sequential.decision_trees import always, split
from optimizer.sequential.decision_trees import model as as_model
from optimizer.sequential.episodes import STOP, EpisodeLog

PROMPT_AND_STEPS = DIM + len(STEP_DENSE)
"""Columns of an orchestrator's features before those of each action."""


def on_log(model: Model, log: EpisodeLog) -> Floats:
    """(n, a) the model's probabilities at the log's decisions, without its exploration; STOP never comes first. A
    decision that no agent of the model can serve (see `constraints`) stays as logged.

    The log may know more actions than the model. Raises ValueError for a model with an action the log does not know.
    """
    if unknown := sorted(set(model.actions) - set(log.action_names)):
        raise ValueError(f"the log does not know the actions {unknown}")
    columns = [log.action_names.index(name) for name in model.actions]
    may = np.ones((len(log.actions), len(columns)), dtype=np.bool_)
    if log.action_names[-1] in model.actions:
        may[log.first, model.actions.index(log.action_names[-1])] = False
    features = features_for(log, columns)
    able = model.able(features)
    agents = [place for place, name in enumerate(model.actions) if name != STOP]
    nobody: Bools = ~np.asarray(able[:, agents].any(axis=1))
    result = np.zeros((len(log.actions), len(log.action_names)))
    result[:, columns] = replace(model, epsilon=0.0).probabilities(features, may & (able | nobody[:, None]))
    result[nobody] = log.behaviour[nobody]
    return result


def features_for(log: EpisodeLog, columns: list[int]) -> Floats:
    """(n, 144 + 2A) the log's features with what they say of these actions only, in this order."""
    counts, lasts = (PROMPT_AND_STEPS + np.array(columns) + block * len(log.action_names) for block in (0, 1))
    kept = np.concatenate([np.arange(PROMPT_AND_STEPS), counts, lasts])
    result: Floats = log.features[:, kept]
    return result


def barred(model: Model, actions: Collection[str]) -> Model:
    """The model without these actions: they are worth less to it than anything else."""
    columns = [number for number, name in enumerate(model.actions) if name in actions]
    if not columns:
        return model
    names = {"trees": "value", "constant": "values", "linear": "bias", "knn": "targets"}
    values = np.array(model.arrays[names[model.kind]], dtype=np.float64)
    values[..., columns] = NEVER
    return replace(model, arrays={**model.arrays, names[model.kind]: values})


def constant_route(action: str, action_names: tuple[str, ...]) -> Model:
    """Always the same action, until something ends the episode."""
    return as_model([always(action_names.index(action), len(action_names))], action_names)


def script_of(log: EpisodeLog, incumbent: str | None = None) -> tuple[str, ...]:
    """What the log's own behaviour does most at each step, up to STOP if that is ever most; else the last one repeats.
    `incumbent` alone where one is stated that the log knows."""
    if incumbent in log.action_names[:-1]:
        return (str(incumbent),)
    steps: list[str] = []
    for now in log.at_step:
        shares = log.behaviour[now].mean(axis=0)
        if not steps:
            shares[log.stop] = 0.0
        if not shares.any():
            break
        steps.append(log.action_names[int(shares.argmax())])
        if steps[-1] == STOP:
            return tuple(steps)
    while len(steps) > 1 and steps[-1] == steps[-2]:
        steps.pop()
    return tuple(steps)


def script_route(script: Sequence[str], action_names: tuple[str, ...], *, epsilon: float) -> Model:
    """The script as a model, which draws a step with probability epsilon until it has; the last action repeats."""
    tree = always(action_names.index(script[-1]), len(action_names))
    for step in range(len(script) - 2, -1, -1):
        taken = always(action_names.index(script[step]), len(action_names))
        tree = split(DIM + STEP_DENSE.index("steps"), math.log1p(step + 0.5), taken, tree)
    return replace(as_model([tree], action_names), epsilon=epsilon)
