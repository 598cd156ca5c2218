"""The router: what it chooses, when it stands back, and that it always answers."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from optimizer.bundle import write_policy
from optimizer.runtime import SPEC, Model, Router, attributes, decode_features, featurise

NAMES = ("cheap", "mid", "strong")
HELLO = {"messages": [{"role": "user", "content": "Hello"}]}


def write(folder: Path, *, epsilon: float = 0.3, actions: tuple[str, ...] = NAMES, **settings: object) -> Path:
    """A policy that prefers the first action; the incumbent is the last but one."""
    policy = Model("constant", actions, {"values": -np.arange(len(actions), dtype=np.float64)}, epsilon)
    write_policy(
        folder,
        policy,
        **{  # type: ignore[arg-type]
            "policy_id": "support",
            "version": "v7",
            "revision": 7,
            "virtual_model": "auto",
            "incumbent": actions[-2],
            "evaluation": {},
            "created_at": "2026-11-30T00:00:00+00:00",
            **settings,
        },
    )
    return folder


@pytest.fixture
def load(tmp_path: Path) -> Callable[..., Router]:
    def loader(seed: int = 0, now: float = 1_800_000_000.0, **settings: object) -> Router:
        write(tmp_path, **settings)  # type: ignore[arg-type]
        return Router.load(tmp_path, draw=random.Random(seed).random, now=lambda: now)

    return loader


def test_draws_follow_the_propensities(load: Callable[..., Router]) -> None:
    router = load(epsilon=0.3)
    decisions = [router.decide(HELLO) for _ in range(4000)]
    shares = Counter(decision.action for decision in decisions)
    # Standard error of a share of 0.8 over 4000 draws is 0.006.
    assert {name: shares[name] / 4000 for name in NAMES} == pytest.approx(
        {"cheap": 0.8, "mid": 0.1, "strong": 0.1}, abs=0.03
    )
    for decision in decisions:
        assert decision.propensity == decision.probabilities[decision.candidates.index(decision.action)]
        assert decision.propensity == pytest.approx(0.8 if decision.action == "cheap" else 0.1)
        assert (decision.arm, decision.reason, decision.policy, decision.version) == (
            "treatment",
            "policy",
            "support",
            "v7",
        )


def test_only_candidates_are_chosen_and_probabilities_are_theirs(load: Callable[..., Router]) -> None:
    decision = load(epsilon=0.4).decide(HELLO, ["strong", "mid", "unknown"])
    assert decision.candidates == ("mid", "strong")
    assert decision.probabilities == pytest.approx((0.8, 0.2))


def test_no_known_candidate_means_the_incumbent(load: Callable[..., Router]) -> None:
    decision = load().decide(HELLO, ["unknown"])
    assert (decision.action, decision.propensity, decision.reason) == ("mid", 1.0, "no_candidates")


def test_an_incumbent_that_is_not_offered_is_replaced_by_the_first_that_is(
    load: Callable[..., Router], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RETROUTE_KILL", "1")
    decision = load().decide(HELLO, {"strong"})
    assert (decision.action, decision.reason, decision.propensity) == ("strong", "kill_switch", 1.0)


@pytest.mark.parametrize("how", ["file", "environment"])
def test_the_kill_switch_works_at_once_and_back(
    how: str, load: Callable[..., Router], monkeypatch: pytest.MonkeyPatch
) -> None:
    router = load(epsilon=0.0)
    assert router.decide(HELLO).action == "cheap"
    if how == "file":
        (router.folder / "KILL").touch()
    else:
        monkeypatch.setenv("RETROUTE_KILL", "1")
    decision = router.decide(HELLO)
    assert (decision.action, decision.propensity, decision.arm) == ("mid", 1.0, "control")
    assert decision.reason == "kill_switch"
    assert decision.probabilities == (0.0, 1.0, 0.0)
    monkeypatch.setenv("RETROUTE_KILL", "0")
    (router.folder / "KILL").unlink(missing_ok=True)
    assert router.decide(HELLO).action == "cheap"


def test_a_policy_serves_between_its_dates_only(load: Callable[..., Router]) -> None:
    dates = {"not_before": "2026-11-30T00:00:00+00:00", "expires_at": "2026-12-30T00:00:00Z"}
    start, end = 1_795_996_800.0, 1_798_588_800.0
    reasons = [load(now=now, **dates).decide(HELLO).reason for now in (start - 1, start, end - 1, end)]
    assert reasons == ["not_yet_valid", "policy", "policy", "expired"]


def test_a_disabled_policy_leaves_the_incumbent(load: Callable[..., Router], tmp_path: Path) -> None:
    load()
    path = tmp_path / "manifest.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"enabled": False}))
    assert Router.load(tmp_path).decide(HELLO).reason == "disabled"


def test_the_canary_takes_its_share_of_sessions_and_keeps_them(load: Callable[..., Router]) -> None:
    router = load(canary_percent=20, explore_percent=30)
    arms = {i: router.decide({**HELLO, "metadata": {"session": f"s{i}"}}).arm for i in range(3000)}
    shares = Counter(arms.values())
    # The hash is fixed, so are the shares; 0.03 is four standard errors of 0.008.
    assert {arm: shares[arm] / 3000 for arm in shares} == pytest.approx(
        {"treatment": 0.2, "explore": 0.3, "control": 0.5}, abs=0.03
    )
    for i in range(200):
        decision = router.decide({**HELLO, "metadata": {"session": f"s{i}"}})
        assert decision.arm == arms[i]
        if decision.arm == "control":
            assert (decision.action, decision.reason) == ("mid", "canary")


def test_a_canarys_propensities_are_the_frequencies_over_all_sessions(load: Callable[..., Router]) -> None:
    """A fifth under the policy, three tenths drawn evenly, the other half the incumbent's: in every arm the same
    probabilities, so that a later night can judge any action on any of these decisions."""
    router = load(canary_percent=20, explore_percent=30, epsilon=0.3)
    decisions = [router.decide({**HELLO, "metadata": {"session": f"s{i}"}}) for i in range(4000)]
    expected = {"cheap": 0.2 * 0.8 + 0.1, "mid": 0.2 * 0.1 + 0.1 + 0.5, "strong": 0.2 * 0.1 + 0.1}
    for decision in decisions:
        assert dict(zip(decision.candidates, decision.probabilities, strict=True)) == pytest.approx(expected)
        assert decision.propensity == pytest.approx(expected[decision.action])
    shares = Counter(decision.action for decision in decisions)
    # Standard error of a share over 4000 draws is at most 0.008.
    assert {name: shares[name] / 4000 for name in NAMES} == pytest.approx(expected, abs=0.03)


def test_sessions_keep_their_arm_when_the_canary_grows(load: Callable[..., Router]) -> None:
    contexts = [{**HELLO, "metadata": {"session": f"s{i}"}} for i in range(300)]
    router = load(canary_percent=10)
    early = [router.decide(context).arm == "treatment" for context in contexts]
    router = load(canary_percent=50, version="v8", revision=8)
    later = [router.decide(context).arm == "treatment" for context in contexts]
    assert all(now for before, now in zip(early, later, strict=True) if before)


def test_requests_without_a_session_enter_the_canary_one_by_one(load: Callable[..., Router]) -> None:
    router = load(canary_percent=25)
    share = sum(router.decide(HELLO).arm == "treatment" for _ in range(2000)) / 2000
    assert share == pytest.approx(0.25, abs=0.04)  # four standard errors of 0.0097


def test_a_decision_that_fails_is_the_incumbents(load: Callable[..., Router]) -> None:
    router = load()
    object.__setattr__(router, "draw", lambda: 1 / 0)
    decision = router.decide(HELLO)
    assert (decision.action, decision.propensity, decision.reason) == ("mid", 1.0, "error:ZeroDivisionError")


@settings(deadline=None)
@given(
    context=st.dictionaries(st.text(), st.none() | st.integers() | st.lists(st.integers())) | st.none() | st.integers()
)
def test_odd_contexts_are_answered(context: object, tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.getbasetemp() / "odd"
    if not folder.exists():
        write(folder, canary_percent=50)
    decision = Router.load(folder).decide(context)  # type: ignore[arg-type]
    assert decision.action in NAMES
    assert sum(decision.probabilities) == pytest.approx(1.0)


@pytest.mark.parametrize("candidates", [[["unhashable"]], 5, "mid", [None], []])
def test_odd_candidates_are_answered(candidates: object, load: Callable[..., Router]) -> None:
    decision = load().decide(HELLO, candidates)  # type: ignore[arg-type]
    assert (decision.action, decision.propensity) == ("mid", 1.0)


def test_attributes_carry_the_decision_and_the_vector(load: Callable[..., Router]) -> None:
    decision = load(epsilon=0.0).decide(HELLO)
    got = attributes(decision, requested_model="auto")
    features = got.pop("policy.features")
    assert np.array_equal(decode_features(str(features)), featurise(HELLO))
    assert len(str(got.pop("policy.features.hash"))) == 16
    assert got == {
        "policy.id": "support",
        "policy.version": "v7",
        "policy.action": "cheap",
        "policy.propensity": 1.0,
        "policy.arm": "treatment",
        "policy.reason": "policy",
        "policy.draw": "fresh",
        "policy.revision": 7,
        "policy.features.spec": SPEC,
        "policy.candidates": '["cheap", "mid", "strong"]',
        "policy.probabilities": "[1.0, 0.0, 0.0]",
        "policy.requested_model": "auto",
    }


def test_long_lists_of_candidates_are_left_out(load: Callable[..., Router]) -> None:
    router = load(actions=tuple(f"m{i}" for i in range(17)))
    assert "policy.candidates" not in attributes(router.decide(HELLO))


def test_two_routers_draw_differently(tmp_path: Path) -> None:
    write(tmp_path, epsilon=1.0)
    first, second = Router.load(tmp_path), Router.load(tmp_path)
    # 200 draws among three: equal by chance once in 3^200.
    assert [first.decide(HELLO).action for _ in range(200)] != [second.decide(HELLO).action for _ in range(200)]
