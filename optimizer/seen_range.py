"""What prompts a policy has seen: its router leaves anything far from them to the incumbent."""

from __future__ import annotations

import numpy as np

from optimizer.runtime import DENSE, Floats, Model

ENOUGH = 200
"""Fewer decisions with a recorded text say too little of what is usual."""
_TEXT = DENSE.index("conversation_characters")


def ranged(model: Model, features: Floats) -> Model:
    """The model with the least and the most of each count over the decisions (n, d) whose messages were recorded, as
    `Model.far` reads it; the model itself where they are fewer than `ENOUGH`."""
    counts = features[features[:, _TEXT] > 0, : len(DENSE)]
    if len(counts) < ENOUGH:
        return model
    seen = np.array([counts.min(axis=0), counts.max(axis=0)], dtype=np.float64)
    return Model(model.kind, model.actions, {**model.arrays, "seen": seen}, model.epsilon)
