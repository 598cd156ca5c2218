"""What keeps a policy from doing harm: needs, histories, drift, failing actions, time; propensities stay exact."""

from __future__ import annotations

import random
import shutil
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

from optimizer import runtime
from optimizer.bundle import write_policy
from optimizer.runtime import DENSE, DIM, NEEDS, Breaker, Model, Pace, Router, able, bound_to, family_of, featurise

NAMES = ("claude-haiku", "gpt-5-mini", "llama-3", "claude-opus|plan")
HELLO = {"messages": [{"role": "user", "content": "Hello"}]}


def write(folder: Path, *, epsilon: float = 0.4, arrays: Mapping[str, Any] | None = None, **settings: Any) -> Path:
    """A policy that prefers the first action; the incumbent is the second."""
    model = Model("constant", NAMES, {"values": -np.arange(4.0), **(arrays or {})}, epsilon)
    defaults: dict[str, Any] = {
        "policy_id": "support",
        "version": "v1",
        "revision": 1,
        "virtual_model": "auto",
        "incumbent": NAMES[1],
        "evaluation": {},
        "created_at": "2026-11-30T00:00:00+00:00",
    }
    write_policy(folder, model, **(defaults | settings))
    return folder


@pytest.fixture
def load(tmp_path: Path) -> Callable[..., Router]:
    def loader(seed: int = 0, breaker: Breaker | None = None, **settings: Any) -> Router:
        return Router.load(write(tmp_path, **settings), draw=random.Random(seed).random, breaker=breaker)

    return loader


def as_often_as_said(router: Router, context: Mapping[str, Any], times: int = 2000) -> Counter[str]:
    """How often each action was taken, once that agrees with what the decisions say (chi-square at 1e-3)."""
    decisions = [router.decide(context) for _ in range(times)]
    seen = Counter(decision.action for decision in decisions)
    (said,) = {(decision.candidates, decision.probabilities) for decision in decisions}
    expected = {name: share * times for name, share in zip(*said, strict=True) if share > 0}
    assert seen.keys() <= expected.keys()
    assert all(d.propensity == dict(zip(*said, strict=True))[d.action] for d in decisions)
    assert stats.chisquare([seen[name] for name in expected], list(expected.values())).pvalue > 1e-3
    return seen


def test_one_decision_is_scored_as_many_are() -> None:
    """`shares` and `able_ones` are `probabilities` and `able` for one row, whatever the model has."""
    generator = np.random.default_rng(1)
    standard = {"mean": generator.normal(size=DIM), "scale": generator.uniform(0.5, 2.0, DIM)}
    draws = generator.dirichlet(np.ones(4), size=4)
    extras: list[dict[str, Any]] = [
        {},
        {"draws": draws},
        {"today": np.array([0.0, 0.5, 0.5, 0.0]), "share": np.array(0.3)},
        {"draws": draws, "today": np.array([0.1, 0.2, 0.3, 0.4]), "share": np.array(0.7)},
    ]
    limits = np.array([[0, 1, 0, 1], [100, 1, 1, 1], [50, 0, 0, 1], [0, 1, 1, 0]], dtype=np.float64)
    for extra in extras:
        arrays = standard | {"weights": generator.normal(size=(DIM, 4)), "bias": np.zeros(4), "able": limits} | extra
        model = Model("linear", NAMES, arrays, 0.2)
        for _ in range(60):
            features = generator.uniform(0.0, 6.0, DIM).astype(np.float16).astype(np.float32)
            features[[DENSE.index(need) for need in NEEDS]] *= generator.integers(0, 2, len(NEEDS))
            mask = generator.integers(0, 2, 4).astype(bool)
            mask[generator.integers(4)] = True
            allowed = [name for name, may in zip(NAMES, mask, strict=True) if may]
            whole = model.probabilities(features[None, :], mask[None, :])[0]
            assert model.shares(features, allowed) == pytest.approx(whole[mask].tolist(), abs=1e-12)
            ones = [name for name, can in zip(NAMES, able(features[None, :], limits)[0], strict=True) if can]
            assert list(model.able_ones(features)) == ones


def test_features_that_are_not_finite_are_no_choice() -> None:
    standard = {"mean": np.zeros(DIM), "scale": np.ones(DIM)}
    model = Model("linear", NAMES, standard | {"weights": np.ones((DIM, 4)), "bias": np.zeros(4)}, 0.2)
    with pytest.raises(ValueError, match="not finite"):
        model.shares(np.full(DIM, np.nan, dtype=np.float32), NAMES)


# ------------------------------------------------------------------------------------------------ failing actions


def test_an_action_that_keeps_failing_is_set_aside_and_comes_back(load: Callable[..., Router]) -> None:
    now = [0.0]
    breaker = Breaker(lambda: now[0])
    router = load(breaker=breaker)
    for _ in range(Breaker.FAILURES - 1):
        breaker.failed(NAMES[0])
    assert set(as_often_as_said(router, HELLO)) == set(NAMES)
    breaker.failed(NAMES[0])
    assert set(as_often_as_said(router, HELLO)) == set(NAMES[1:])
    now[0] += Breaker.REST_S
    assert router.decide(HELLO).candidates == NAMES
    breaker.failed(NAMES[0])  # one more is enough
    assert router.decide(HELLO).candidates == NAMES[1:]
    breaker.worked(NAMES[0])
    assert router.decide(HELLO).candidates == NAMES


def test_failures_in_between_answers_do_not_add_up(load: Callable[..., Router]) -> None:
    router = load()
    for _ in range(50):
        router.breaker.failed(NAMES[0])
        router.breaker.worked(NAMES[0])
    assert router.decide(HELLO).candidates == NAMES


def test_if_all_fail_all_are_tried(load: Callable[..., Router]) -> None:
    router = load()
    for name in NAMES * Breaker.FAILURES:
        router.breaker.failed(name)
    assert router.decide(HELLO).candidates == NAMES


def test_the_kill_switch_takes_the_incumbent_even_if_it_fails(
    load: Callable[..., Router], monkeypatch: pytest.MonkeyPatch
) -> None:
    router = load()
    for _ in range(Breaker.FAILURES):
        router.breaker.failed(NAMES[1])
    monkeypatch.setenv("RETROUTE_KILL", "1")
    assert router.decide(HELLO).action == NAMES[1]


# -------------------------------------------------------------------------------------------------------- time


def test_a_policy_that_takes_too_long_rests_and_comes_back() -> None:
    now = [0.0]
    pace = Pace(lambda: now[0])
    for _ in range(Pace.TIMES):
        assert not pace.resting
        pace.took(Pace.MOST_NS + 1)
    assert pace.resting
    now[0] += Pace.REST_S
    assert not pace.resting


def test_a_slow_decision_now_and_then_is_borne() -> None:
    pace = Pace()
    for number in range(20_000):
        pace.took(Pace.MOST_NS + 1 if number % 200 == 0 else 1000)
        assert not pace.resting


def test_a_resting_policy_reads_nothing_and_logs_no_features(
    load: Callable[..., Router], monkeypatch: pytest.MonkeyPatch
) -> None:
    ticks = iter(range(0, 10**12, Pace.MOST_NS + 1))
    monkeypatch.setattr(runtime.time, "thread_time_ns", lambda: next(ticks))
    router = load()
    reasons = [router.decide(HELLO).reason for _ in range(Pace.TIMES + 1)]
    assert reasons == ["policy"] * Pace.TIMES + ["too_slow"]
    decision = router.decide(HELLO, ["llama-3"])
    assert (decision.action, decision.propensity, decision.reason) == ("llama-3", 1.0, "too_slow")
    assert not [name for name in decision.attributes() if name.startswith("policy.features")]


# -------------------------------------------------------------------------------------------------------- drift


def ranges(*texts: str) -> dict[str, Any]:
    counts = np.array([featurise({"messages": [{"role": "user", "content": text}]})[: len(DENSE)] for text in texts])
    return {"seen": np.array([counts.min(axis=0), counts.max(axis=0)])}


ORDERS = ("Where is my order?", "Hello, please cancel order 1234 for me", "How long does a refund take, in days?")


def test_prompts_like_those_of_training_are_decided(load: Callable[..., Router]) -> None:
    router = load(arrays=ranges(*ORDERS))
    for text in (*ORDERS, "Why was my card charged 2 times?", "Where is my parcel? It was sent 3 days ago. " * 2):
        assert router.decide({"messages": [{"role": "user", "content": text}]}).reason == "policy", text


def test_prompts_unlike_any_of_training_are_the_incumbents(load: Callable[..., Router]) -> None:
    router = load(arrays=ranges(*ORDERS))
    code = "Fix this:\n```python\n" + "def f(x):\n    return [x[0] * 10 + 3 for _ in {1: 2}]\n" * 40 + "```"
    decision = router.decide({"messages": [{"role": "user", "content": code}] * 9, "tools": [{}] * 8})
    assert (decision.action, decision.propensity, decision.reason) == (NAMES[1], 1.0, "drift")


def test_ranges_of_another_shape_are_refused() -> None:
    with pytest.raises(ValueError, match="seen must have shape"):
        Model("constant", NAMES, {"values": np.zeros(4), "seen": np.zeros((2, 5))})


# ---------------------------------------------------------------------------------------------------- histories

THINKING = {"role": "assistant", "content": [{"type": "thinking", "thinking": "Hm", "signature": "s"}]}
GOOGLE_CALL = {
    "role": "assistant",
    "content": None,
    "tool_calls": [{"id": "1", "function": {"name": "f"}, "provider_specific_fields": {"thought_signature": "s"}}],
}


@pytest.mark.parametrize(
    ("context", "families"),
    [
        (HELLO, None),
        ({"messages": [{"role": "assistant", "content": "Hi", "tool_calls": [{"id": "1", "function": {}}]}]}, None),
        ({"messages": [{"role": "assistant", "content": "Hi", "reasoning_content": "plain text"}]}, None),
        ({"messages": [THINKING]}, {"anthropic"}),
        ({"messages": [{"role": "assistant", "content": "", "thinking_blocks": [{}]}]}, {"anthropic", "google"}),
        ({"messages": [GOOGLE_CALL]}, {"google"}),
        ({"messages": [{"type": "reasoning", "encrypted_content": "x"}]}, {"openai"}),
        ({"messages": [{"type": "reasoning", "summary": []}]}, None),
        ({"messages": "Hi", "previous_response_id": "resp_1"}, {"openai"}),
        ({"messages": [THINKING, GOOGLE_CALL]}, set()),
    ],
)
def test_whose_history_it_is(context: dict[str, Any], families: set[str] | None) -> None:
    assert bound_to(context) == families


@pytest.mark.parametrize(
    ("action", "family"),
    [
        ("bedrock/anthropic.claude-sonnet-4", "anthropic"),
        ("gpt-5-mini|plan", "openai"),
        ("azure/o3", "openai"),
        ("gemini-2.5-pro", "google"),
        ("foo3", None),
        ("llama-3|claude", None),
    ],
)
def test_who_makes_a_model(action: str, family: str | None) -> None:
    assert family_of(action) == family


def test_a_history_goes_on_with_its_makers_models_only(load: Callable[..., Router]) -> None:
    router = load()
    assert set(as_often_as_said(router, {"messages": [*HELLO["messages"], THINKING]})) == {NAMES[0], NAMES[3]}
    decision = router.decide({"messages": [GOOGLE_CALL]})
    assert (decision.action, decision.propensity, decision.reason) == (NAMES[1], 1.0, "history")


def test_deep_and_cyclic_messages_are_answered(load: Callable[..., Router]) -> None:
    cyclic: dict[str, Any] = {"role": "assistant", "x": 1}
    cyclic["content"] = [cyclic, cyclic]
    assert load().decide({"messages": [cyclic]}).action in NAMES


# ------------------------------------------------------------------------------------------------- all together


def test_propensities_stay_exact_under_constraints_canary_and_failures(load: Callable[..., Router]) -> None:
    """Tools, which the first action cannot take, a failing last one, a quarter of canary, a tenth drawn evenly."""
    limits = np.array([[0, 0, 1, 1], [0, 1, 1, 1], [0, 1, 1, 1], [0, 1, 1, 1]], dtype=np.float64)
    router = load(arrays={"able": limits}, canary_percent=25, explore_percent=10)
    for _ in range(Breaker.FAILURES):
        router.breaker.failed(NAMES[3])
    assert set(as_often_as_said(router, {**HELLO, "tools": [{}]}, 6000)) == {NAMES[1], NAMES[2]}


def test_weights_that_are_replaced_while_they_are_checked_are_never_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = write(tmp_path / "a", arrays={"values": np.array([0.0, 0.0, 9.0, 0.0])})
    other = write(tmp_path / "b", arrays={"values": np.array([0.0, 0.0, 0.0, 9.0])})
    read = runtime._read

    def swapping(place: Path, name: str, limit: int) -> bytes:
        content = read(place, name, limit)
        if name == "weights.npz":
            shutil.copy(other / name, place / name)
        return content

    monkeypatch.setattr(runtime, "_read", swapping)
    assert Router.load(folder).model.arrays["values"].tolist() == [0.0, 0.0, 9.0, 0.0]
