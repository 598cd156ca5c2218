"""Which actions cannot serve a decision: they are left out before anything is scored.

What a decision needs is read from its features (tools offered, JSON asked for, images or files attached, characters of
the conversation), so a router rules out exactly what learning and evaluation did, from the vector that it logs. Token
counts are not known before the call; a conversation longer than `CHARACTERS_PER_TOKEN` times a model's window counts as
too long for it. A decision whose messages were not recorded needs nothing.

Legend: n decisions, k actions of a model.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from optimizer.ability import Ability
from optimizer.dataset import Bools, Floats
from optimizer.runtime import NEEDS, Model, able

CHARACTERS_PER_TOKEN = 3
"""Text has about four, code about three."""


@dataclass(frozen=True)
class Told:
    """How much the constraints rule out, as shares of decisions, and what is not known of which action."""

    limited: float
    """Some action is ruled out."""
    none: float
    """All are: such decisions stay as they are today."""
    unknown: Mapping[str, tuple[str, ...]]


def table(actions: Sequence[str], known: Mapping[str, Ability]) -> Floats | None:
    """(k, 1 + needs) as `runtime.able` reads it: most characters (0: no limit), then 1 where the action can do what
    `NEEDS` names; None where nothing is ruled out."""
    rows = []
    for action in actions:
        ability = known.get(action, Ability())
        can = {"tools": ability.tools, "json_response": ability.json_schema, "attachments": ability.images}
        most = CHARACTERS_PER_TOKEN * (ability.max_input_tokens or 0)
        rows.append([float(most), *(float(can[need] is not False) for need in NEEDS)])
    found: Floats = np.array(rows).reshape(len(rows), 1 + len(NEEDS))
    return found if found[:, 0].any() or not found[:, 1:].all() else None


def limited(model: Model, known: Mapping[str, Ability]) -> Model:
    """The model with the constraints of its actions in it."""
    limits = table(model.actions, known)
    if limits is None:
        return model
    return Model(model.kind, model.actions, {**model.arrays, "able": limits}, model.epsilon)


def allowed(features: Floats, actions: Sequence[str], known: Mapping[str, Ability]) -> Bools:
    """(n, k) what each decision allows; all of them where it would allow none."""
    limits = table(actions, known)
    if limits is None:
        return np.ones((len(features), len(actions)), dtype=np.bool_)
    mask = able(features, limits)
    return np.asarray(mask | ~mask.any(axis=1, keepdims=True))


def told(features: Floats, actions: Sequence[str], known: Mapping[str, Ability]) -> Told:
    """What the constraints of the actions do to the decisions."""
    limits = table(actions, known)
    mask = np.ones((len(features), len(actions)), dtype=np.bool_) if limits is None else able(features, limits)
    some, every = (~mask).any(axis=1), (~mask).all(axis=1)
    share = (float(some.mean()), float(every.mean())) if len(features) else (0.0, 0.0)
    unknown = {action: known[action].unknown for action in actions if action in known and known[action].unknown}
    return Told(*share, unknown)


def words(said: Mapping[str, object]) -> str:
    """The record of `Told` as a sentence; "" where nothing is ruled out."""
    some, every = float(str(said["limited"])), float(str(said["none"]))
    if not some:
        return ""
    also = f"; {every:.1%} allow none and stay as they are today" if every else ""
    return f"{some:.1%} of decisions need what some model cannot do (tools, JSON, images, length){also}"
