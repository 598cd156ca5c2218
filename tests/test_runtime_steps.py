"""Features of an episode's steps: fixed by golden vectors, each what it is called, and never a reason to fail."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from optimizer import runtime
from optimizer.runtime import (
    DIM,
    STEP_DENSE,
    STOP,
    decode_orchestration,
    encode_features,
    features_hash,
    featurise,
    history_features,
    orchestration_features,
    step_features,
)

ACTIONS = ("search", "code", STOP)
EPISODE: list[dict[str, Any]] = [
    {
        "action": "search",
        "status": "ok",
        "cost_usd": 0.002,
        "tokens": 900,
        "seconds": 1.5,
        "output": "3 hits\n",
        "signal": 0.2,
    },
    {
        "action": "code",
        "status": "error",
        "cost_usd": 0.01,
        "tokens": 2500,
        "seconds": 4.0,
        "output": "Traceback",
        "signal": 0.6,
    },
    {"action": "code", "status": "error", "cost_usd": 0.01, "tokens": 2400, "seconds": 3.5, "output": "Traceback"},
]
# A change here is a change of the rules: raise the number in runtime.STEP_SPEC, since logged vectors no longer compare.
GOLDEN = {"episode": "5300d088cb672941", "first": "85759b3811ff7dc4", "odd": "a8be6a99a86b346d"}
HISTORIES: dict[str, object] = {
    "episode": EPISODE,
    "first": [],
    "odd": [
        {"action": "write", "output": " \n", "signal": True},
        3,
        {"action": "Écris", "output": "詩🙂\n\n", "tokens": 7},
    ],
}


def named(history: object) -> dict[str, float]:
    return dict(zip(STEP_DENSE, step_features(history).tolist(), strict=True))


@pytest.mark.parametrize("name", HISTORIES)
def test_golden_histories_keep_their_vector(name: str) -> None:
    assert features_hash(history_features(HISTORIES[name], ACTIONS)) == GOLDEN[name]


def test_the_rules_keep_their_name() -> None:
    assert f"{runtime.SPEC}+steps-1:6a7c54992026" == runtime.STEP_SPEC


def test_each_feature_is_what_it_is_called() -> None:
    expected = {
        "steps": np.log1p(3),
        "last_error": 1.0,
        "errors": np.log1p(2),
        "error_run": np.log1p(2),
        "action_run": np.log1p(2),
        "repeated_output": np.log1p(1),
        "unchanged_output": 1.0,
        "output_characters": np.log1p(9),
        "output_lines": np.log1p(1),
        "output_empty": 0.0,
        "signal_known": 0.0,
        "signal_last": 0.6,
        "signal_best": 0.6,
        "cost": np.log1p(220),
        "tokens": np.log1p(5800),
        "seconds": np.log1p(9),
    }
    assert named(EPISODE) == pytest.approx(expected, rel=1e-3)
    assert not step_features([]).any()


def test_an_output_seen_before_the_last_step_is_repeated_but_not_unchanged() -> None:
    got = named([{"output": "a"}, {"output": "b"}, {"output": "a"}])
    assert got["repeated_output"] == pytest.approx(np.log1p(1), rel=1e-3)
    assert got["unchanged_output"] == 0.0


def test_steps_without_outputs_repeat_nothing() -> None:
    got = named([{"action": "a"}, {"action": "a", "output": None}, {"action": "a", "output": 5}])
    assert {got[name] for name in STEP_DENSE if "output" in name} == {0.0}
    assert got["action_run"] == pytest.approx(np.log1p(3), rel=1e-3)


def test_a_signal_of_zero_is_known_and_an_old_one_is_said_to_be_old() -> None:
    assert named([{"signal": 0.0}])["signal_known"] == 1.0
    stale = named([{"signal": 0.8}, {"signal": 0.3}, {}])
    assert (stale["signal_known"], stale["signal_last"], stale["signal_best"]) == pytest.approx((0, 0.3, 0.8), abs=1e-3)


@pytest.mark.parametrize("amount", [None, True, "7", -3.0, float("nan"), float("inf"), 1j, [1]])
def test_amounts_that_are_none_add_nothing(amount: object) -> None:
    assert named([{"cost_usd": amount, "tokens": amount, "seconds": amount}, {"tokens": 4}]) == named(
        [{}, {"tokens": 4}]
    )


def test_an_amount_beyond_all_reason_stays_finite() -> None:
    got = step_features([{"cost_usd": 10**400, "tokens": 1e308, "seconds": np.float32(3)}] * 5000)
    assert np.isfinite(got).all()


def test_counts_and_the_last_action_follow() -> None:
    got = history_features(EPISODE, ACTIONS)
    assert np.array_equal(got[:16], step_features(EPISODE))
    assert got[16:] == pytest.approx([np.log1p(1), np.log1p(2), 0.0, 0.0, 1.0, 0.0], rel=1e-3)
    other = history_features([*EPISODE, {"action": "write"}], ACTIONS)
    assert other[16:] == pytest.approx([np.log1p(1), np.log1p(2), 0, 0, 0, 0], rel=1e-3)


def test_the_row_is_context_steps_counts_last() -> None:
    context = {"messages": "Which table holds the orders?", "history": EPISODE}
    row = orchestration_features(context, ACTIONS)
    assert row.shape == (DIM + 16 + 6,)
    assert row.dtype == np.float32
    assert np.array_equal(row, np.concatenate([featurise(context), history_features(EPISODE, ACTIONS)]))


def test_a_logged_vector_of_an_orchestrator_equals_the_one_used() -> None:
    row = orchestration_features({"messages": "Hi", "history": EPISODE}, ACTIONS)
    assert np.array_equal(decode_orchestration(encode_features(row)), row)


@pytest.mark.parametrize("size", [0, DIM, DIM + 16, DIM + 17])
def test_a_vector_of_another_width_is_no_orchestrators(size: int) -> None:
    with pytest.raises(ValueError, match="features of an orchestrator"):
        decode_orchestration(encode_features(np.zeros(size)))
    with pytest.raises(ValueError, match="features of an orchestrator"):
        decode_orchestration(encode_features(np.full(DIM + 18, np.nan)))


class Hostile(Mapping[str, object]):
    def __getitem__(self, key: str) -> object:
        raise RuntimeError("no")

    def __iter__(self) -> Iterator[str]:
        raise RuntimeError("no")

    def __len__(self) -> int:
        raise RuntimeError("no")


@pytest.mark.parametrize("history", [None, 3, "text", {}, {"a": 1}, Hostile(), [Hostile()], [EPISODE[0], Hostile()]])
def test_what_is_no_history_counts_as_none(history: object) -> None:
    assert not history_features(history, ACTIONS).any()
    assert orchestration_features(Hostile(), ACTIONS).shape == (150,)


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters()) | st.binary(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)
keys = st.sampled_from(["action", "status", "cost_usd", "tokens", "seconds", "output", "signal", "explored", "x"])


@settings(deadline=None)
@given(st.lists(st.dictionaries(keys, anything | st.sampled_from(ACTIONS)) | anything, max_size=6))
def test_odd_histories_give_finite_features(history: list[object]) -> None:
    features = history_features(history, ACTIONS)
    assert features.shape == (22,)
    assert np.isfinite(features).all()
    assert np.array_equal(features[:16], step_features(tuple(history)))
    assert np.array_equal(features, features.astype(np.float16).astype(np.float32))
