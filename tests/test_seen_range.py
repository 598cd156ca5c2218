"""The range of prompts that a policy was trained on goes into it, where enough of them were recorded."""

from __future__ import annotations

import numpy as np

from optimizer.runtime import DENSE, Model, featurise_many
from optimizer.seen_range import ENOUGH, ranged

MODEL = Model("constant", ("a", "b"), {"values": np.zeros(2)})
ASKED = [{"messages": [{"role": "user", "content": "Where is my order? " * (1 + n % 4)}]} for n in range(ENOUGH)]


def test_the_least_and_the_most_of_every_count_are_kept() -> None:
    features = featurise_many(ASKED)
    seen = ranged(MODEL, features).arrays["seen"]
    assert seen.tolist() == [
        features[:, : len(DENSE)].min(axis=0).tolist(),
        features[:, : len(DENSE)].max(axis=0).tolist(),
    ]


def test_decisions_without_recorded_messages_tell_nothing_of_what_is_usual() -> None:
    features = featurise_many([*ASKED, {}, {}])
    assert ranged(MODEL, features).arrays["seen"][0, DENSE.index("words")] > 0
    assert ranged(MODEL, np.zeros_like(features)) is MODEL


def test_too_few_decisions_give_no_range() -> None:
    assert ranged(MODEL, featurise_many(ASKED[1:])) is MODEL
