"""The router step by step: when it stops, what it explores, and the script that it falls back to."""

from __future__ import annotations

import itertools
import json
import random
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from optimizer.ability import Ability
from optimizer.bundle import write_policy
from optimizer.constraints import limited
from optimizer.runtime import (
    DIM,
    NEVER,
    STEP_DENSE,
    STEP_SPEC,
    STOP,
    Decision,
    Model,
    PolicyError,
    Router,
    attributes,
    decode_orchestration,
    orchestration_features,
)

ACTIONS = ("plan", "search", "code", STOP)
AGENTS = ACTIONS[:-1]
SCRIPT = ("plan", "code", STOP)
TASK: dict[str, Any] = {"messages": "How many orders came in May?"}
STEPS = DIM + STEP_DENSE.index("steps")


def by_step(*best: str, actions: tuple[str, ...] = ACTIONS, epsilon: float = 0.0) -> Model:
    """One tree whose best action at step i is best[i]; the last one from there on."""
    nodes = 2 * len(best) - 1
    table = {name: np.zeros((1, nodes), dtype=np.int64) for name in ("left", "right")}
    feature, threshold = np.full((1, nodes), -1), np.zeros((1, nodes))
    value = np.zeros((1, nodes, len(actions)))
    for step, action in enumerate(best):
        leaf = 2 * step + 1 if step < len(best) - 1 else 2 * step
        value[0, leaf, actions.index(action)] = 1.0
        if leaf % 2:
            feature[0, leaf - 1], threshold[0, leaf - 1] = STEPS, np.log1p(step + 0.5)
            table["left"][0, leaf - 1], table["right"][0, leaf - 1] = leaf, leaf + 1
    arrays = {"feature": feature, "threshold": threshold, "value": value, **table}
    return Model("trees", actions, arrays, epsilon)


def write(folder: Path, model: Model | None = None, **settings: Any) -> Path:
    defaults: dict[str, Any] = {
        "policy_id": "desk",
        "version": "v1",
        "revision": 1,
        "virtual_model": "desk",
        "incumbent": "plan",
        "evaluation": {},
        "created_at": "2026-11-30T00:00:00+00:00",
        "script": SCRIPT,
    }
    write_policy(folder, model or by_step("search", "code", STOP), **(defaults | settings))
    return folder


@pytest.fixture
def load(tmp_path: Path) -> Callable[..., Router]:
    def load(model: Model | None = None, seed: int = 3, **settings: Any) -> Router:
        return Router.load(write(tmp_path, model, **settings), draw=random.Random(seed).random)

    return load


def ran(*actions: str, **more: Any) -> list[dict[str, Any]]:
    return [{"action": action, "status": "ok", **more} for action in actions]


def at(history: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
    return {**TASK, "history": history, **more}


def play(router: Router, session: str | None = None, **outcome: Any) -> Iterator[Decision]:
    """An episode to its end."""
    history: list[dict[str, object]] = []
    metadata = {"session": session} if session else {}
    while True:
        decision = router.decide({**TASK, "history": history, "metadata": metadata})
        yield decision
        if decision.action == STOP:
            return
        history.append(decision.entry(**outcome))


def shares(decision: Decision) -> dict[str, float]:
    return dict(zip(decision.candidates, decision.probabilities, strict=True))


def outcome(decision: Decision) -> tuple[str, float, str]:
    assert decision.propensity == shares(decision)[decision.action]
    assert sum(decision.probabilities) == pytest.approx(1.0)
    return decision.action, decision.propensity, decision.reason


# ---------------------------------------------------------------------------------------------------- what is chosen


def test_an_episode_follows_the_policy_to_its_stop(load: Callable[..., Router]) -> None:
    episode = list(play(load()))
    assert [outcome(decision) for decision in episode] == [(a, 1.0, "policy") for a in ("search", "code", STOP)]
    assert [decision.step for decision in episode] == [0, 1, 2]
    assert [decision.candidates for decision in episode] == [AGENTS, ACTIONS, ACTIONS]


def test_the_first_step_never_stops(load: Callable[..., Router]) -> None:
    router = load(by_step(STOP))
    first, second = play(router)
    assert (first.action, first.candidates) == ("plan", AGENTS)  # the first of equals
    assert second.action == STOP


def test_stop_is_chosen_at_once_where_it_is_the_only_candidate(load: Callable[..., Router]) -> None:
    assert outcome(load().decide(TASK, [STOP])) == (STOP, 1.0, "no_candidates")


def test_stop_need_not_be_named(load: Callable[..., Router]) -> None:
    history = ran("plan", "search")
    for candidates in (AGENTS, ACTIONS, {"plan"}):
        assert load().decide(at(history), candidates).action == STOP


def test_unknown_agents_are_never_chosen(load: Callable[..., Router]) -> None:
    router = load(by_step("plan"))
    decision = router.decide(TASK, ["plan", "critic", "oracle"])
    assert outcome(decision) == ("plan", 1.0, "policy")
    assert decision.candidates == ("plan",)
    assert outcome(router.decide(TASK, ["critic"])) == ("plan", 1.0, "no_candidates")
    assert outcome(router.decide(at(ran("plan")), ["critic"])) == (STOP, 1.0, "no_candidates")


@pytest.mark.parametrize("kind", ["linear", "trees", "knn", "constant"])
def test_what_is_chosen_is_what_the_model_is_judged_by(kind: str, load: Callable[..., Router]) -> None:
    """The most probable action of `Model.probabilities`, which evaluation asks, on the row that is logged."""
    rng = np.random.default_rng(5)
    d, a = DIM + 16 + 2 * len(ACTIONS), len(ACTIONS)
    standard = {"mean": rng.normal(size=d), "scale": rng.uniform(0.5, 2, d)}
    arrays: dict[str, dict[str, Any]] = {
        "constant": {"values": rng.normal(size=a)},
        "linear": standard | {"weights": rng.normal(size=(d, a)), "bias": rng.normal(size=a)},
        "knn": standard | {"points": rng.normal(size=(9, d)), "targets": rng.normal(size=(9, a)), "k": np.array(2)},
        "trees": dict(by_step("code", "plan", "plan", STOP).arrays),
    }
    router = load(Model(kind, ACTIONS, arrays[kind], 0.0))  # type: ignore[arg-type]
    for length in range(6):
        history = [{"action": str(rng.choice(AGENTS)), "output": str(i), "tokens": 50 * i} for i in range(length)]
        decision = router.decide(at(history))
        mask = np.array([[action in decision.candidates for action in ACTIONS]])
        judged = router.model.probabilities(decision.features[None, :], mask)[0]
        assert judged[mask[0]].tolist() == list(decision.probabilities)
        assert np.array_equal(decision.features, orchestration_features(at(history), ACTIONS))


def test_agents_that_cannot_serve_the_request_are_no_candidates(load: Callable[..., Router]) -> None:
    no_tools = Ability(tools=False)
    model = limited(by_step("search", "search", STOP), {"search": no_tools, "code": no_tools})
    with_tools = {**TASK, "tools": [{"type": "function"}]}
    router = load(model)
    assert router.decide(with_tools).candidates == ("plan",)
    assert router.decide({**with_tools, "history": ran("plan")}).candidates == ("plan", STOP)
    assert outcome(router.decide(with_tools, ["search", "code"])) == ("code", 1.0, "none_able")


# ---------------------------------------------------------------------------------------------------- where it ends


@pytest.mark.parametrize(
    ("budget", "entry"),
    [
        ("cost_usd", {"cost_usd": 0.05}),
        ("tokens", {"tokens": 500}),
        ("seconds", {"seconds": 2.5}),
        ("steps", {}),
    ],
)
@pytest.mark.parametrize("owner", ["caller", "policy"])
def test_a_budget_that_is_reached_stops(
    budget: str, entry: dict[str, Any], owner: str, load: Callable[..., Router]
) -> None:
    limit = {"cost_usd": 0.1, "tokens": 1000, "seconds": 5.0, "steps": 2}[budget]
    router = load(by_step("plan"), budgets={budget: limit} if owner == "policy" else {})
    given = {"budget": {budget: limit}} if owner == "caller" else {}
    assert router.decide(at(ran("search", **entry), **given)).action == "plan"
    assert outcome(router.decide(at(ran("search", "code", **entry), **given))) == (STOP, 1.0, f"budget:{budget}")


def test_the_policys_budget_is_an_upper_limit(load: Callable[..., Router]) -> None:
    router = load(by_step("plan"), budgets={"tokens": 1000})
    history = ran("plan", tokens=600)
    assert router.decide(at(history, budget={"tokens": 500})).reason == "budget:tokens"
    assert router.decide(at(history, budget={"tokens": 5000})).action == "plan"
    assert router.decide(at(history * 2, budget={"tokens": 5000})).reason == "budget:tokens"


def test_a_budget_of_nothing_stops_before_the_first_step(load: Callable[..., Router]) -> None:
    decision = load().decide({**TASK, "budget": {"cost_usd": 0}})
    assert outcome(decision) == (STOP, 1.0, "budget:cost_usd")
    assert decision.candidates == ACTIONS


def test_spending_that_is_unknown_reaches_no_budget(load: Callable[..., Router]) -> None:
    history = ran("plan", "plan", cost_usd=None)
    assert load(by_step("code")).decide(at(history, budget={"cost_usd": 0.01, "tokens": None})).action == "code"


@pytest.mark.parametrize(
    "budget", [{"usd": 3}, {"cost_usd": "3"}, {"tokens": float("nan")}, 5, "all", {"steps": True}, {None: 1}]
)
def test_a_budget_that_cannot_be_read_leaves_the_script(budget: object, load: Callable[..., Router]) -> None:
    decision = load(by_step("search")).decide(at(ran("plan"), budget=budget))
    assert outcome(decision) == ("code", 1.0, "unreadable_budget")


def test_an_episode_has_at_most_so_many_steps(load: Callable[..., Router]) -> None:
    episode = list(play(load(by_step("code"), max_steps=5)))
    assert [decision.action for decision in episode] == ["code"] * 5 + [STOP]
    assert outcome(episode[-1]) == (STOP, 1.0, "max_steps")


def test_an_agent_that_loops_is_stopped(load: Callable[..., Router]) -> None:
    episode = list(play(load(by_step("code")), output="no such table"))
    assert [decision.action for decision in episode] == ["code", "code", "code", STOP]
    assert outcome(episode[-1]) == (STOP, 1.0, "loop")


@pytest.mark.parametrize(
    "history",
    [
        ran("code", "code", output="x"),
        [*ran("code", "code", output="x"), *ran("code", output="y")],
        [*ran("code", "code", output="x"), *ran("plan", output="x")],
        [*ran("plan", output="x"), *ran("code", "code", output="x")],
        ran("code", "code", "code"),
        ran("code", "code", "code", output=7),
        [{"output": "x"}] * 3,
    ],
)
def test_what_is_no_loop_goes_on(history: list[dict[str, Any]], load: Callable[..., Router]) -> None:
    assert load(by_step("code")).decide(at(history)).reason == "policy"


def test_the_loops_length_is_the_policys(load: Callable[..., Router]) -> None:
    assert len(list(play(load(by_step("code"), loop=5), output="x"))) == 6


# ---------------------------------------------------------------------------------------------------- exploration


def test_each_episode_explores_at_most_once_and_says_when(load: Callable[..., Router]) -> None:
    router = load(by_step("search", "code", "plan", "plan", STOP, epsilon=0.3), max_steps=6)
    explored = Counter()
    for _ in range(800):
        episode = list(play(router))
        places = [decision.step for decision in episode if decision.explored]
        assert len(places) <= 1
        for decision in episode:
            over = bool(places) and decision.step > places[0]
            best = router.model.probabilities(
                decision.features[None, :], np.array([[a in decision.candidates for a in ACTIONS]])
            )[0].argmax()
            others = len(decision.candidates) - 1
            rate = 0.0 if over else 0.3
            expected = {a: 1 - rate if a == ACTIONS[best] else rate / others for a in decision.candidates}
            assert shares(decision) == pytest.approx(expected)
            assert decision.reason == ("explore" if decision.explored else "policy")
            assert decision.explored == (decision.action != ACTIONS[best])
        explored[places[0] if places else None] += 1
    # At the first step 0.3 of all, at the second 0.3 of the others; standard error 0.016, four of them.
    assert explored[0] / 800 == pytest.approx(0.3, abs=0.065)
    assert explored[1] / 800 == pytest.approx(0.21, abs=0.065)


def test_drawn_actions_come_as_often_as_is_said(load: Callable[..., Router]) -> None:
    """Sum of (taken - probability) over its standard deviation, for every action; 4 of them is once in 16,000."""
    router = load(by_step("search", "code", STOP, epsilon=0.5))
    surprise, variance = Counter(), Counter()
    for _ in range(1000):
        for decision in play(router):
            for action, share in shares(decision).items():
                surprise[action] += (action == decision.action) - share
                variance[action] += share * (1 - share)
    for action in ACTIONS:
        assert abs(surprise[action]) < 4 * variance[action] ** 0.5


def test_what_only_the_script_may_take_is_not_explored(load: Callable[..., Router]) -> None:
    model = by_step("search", STOP, epsilon=0.5)
    value = model.arrays["value"].copy()
    value[..., ACTIONS.index("code")] = NEVER
    router = load(replace(model, arrays={**model.arrays, "value": value}), canary_percent=50)
    decision = router.decide(TASK)
    assert shares(decision) == pytest.approx({"plan": 0.5 + 0.5 * 0.5, "search": 0.5 * 0.5, "code": 0.0})
    following = router.decide(at([{"action": "plan", "arm": "treatment", "treated": 0.5}]))
    assert shares(following)["code"] == 0.5  # the control arm's script
    assert outcome(router.decide(TASK, ["code"])) == ("code", 1.0, "none_able")


def test_one_candidate_is_not_explored(load: Callable[..., Router]) -> None:
    decision = load(by_step("search", epsilon=1.0)).decide(TASK, ["code"])
    assert outcome(decision) == ("code", 1.0, "policy")
    assert not decision.explored


# ------------------------------------------------------------------------------------------------------------- canary


def test_an_episode_stays_in_its_arm_with_and_without_a_session(load: Callable[..., Router]) -> None:
    router = load(by_step("search", "code", "code", STOP), canary_percent=40)
    routes = Counter()
    for i in range(400):
        episode = list(play(router, session=f"s{i}" if i % 2 else None))
        assert len({decision.arm for decision in episode}) == 1
        route = tuple(decision.action for decision in episode)
        routes[episode[0].arm, route] += 1
    assert set(routes) == {("treatment", ("search", "code", "code", STOP)), ("control", SCRIPT)}
    # Standard error 0.024.
    assert routes["control", SCRIPT] / 400 == pytest.approx(0.6, abs=0.1)


def test_a_session_has_one_arm_in_all_its_episodes(load: Callable[..., Router]) -> None:
    router = load(canary_percent=50)
    for i in range(30):
        assert len({decision.arm for _ in range(3) for decision in play(router, session=f"s{i}")}) == 1


def test_a_loaded_canary_changes_no_episode_on_its_way(load: Callable[..., Router]) -> None:
    small = load(by_step("search"), canary_percent=1)
    first = next(d for i in range(100) if (d := next(play(small, session=f"s{i}"))).arm == "control")
    whole = load(by_step("search"), canary_percent=100)
    assert whole.decide(at([first.entry()])).arm == "control"


def test_the_shares_over_all_arms_multiply_to_the_probability_of_the_episode(load: Callable[..., Router]) -> None:
    """Every path of three steps by brute force: arm, coin and draw. What was logged at a step must be the share of the
    episodes with this past (actions, and which step was explored) that go on with each action."""
    epsilon, canary = 0.2, 0.3
    best = ("plan", "search", "code", STOP)
    router = load(by_step(*best, epsilon=epsilon), canary_percent=100 * canary)
    script = (*SCRIPT, STOP)
    truth: dict[tuple[Any, ...], float] = defaultdict(float)

    def walk(past: tuple[Any, ...], arm: str, p: float) -> None:
        truth[past] += p
        step = len(past)
        if step == 3 or (past and past[-1][0] == STOP):
            return
        if arm == "control":
            walk((*past, (script[step], False)), arm, p)
            return
        rate = 0.0 if any(flag for _, flag in past) else epsilon
        walk((*past, (best[step], False)), arm, p * (1 - rate))
        allowed = ACTIONS if step else AGENTS
        for action in (name for name in allowed if rate and name != best[step]):
            walk((*past, (action, True)), arm, p * rate / (len(allowed) - 1))

    walk((), "treatment", canary)
    walk((), "control", 1 - canary)
    seen = set()
    for _ in range(1500):
        past: tuple[Any, ...] = ()
        for decision in itertools.islice(play(router), 3):
            if past not in seen:
                seen.add(past)
                for action, share in shares(decision).items():
                    following = sum(truth[(*past, (action, flag))] for flag in (False, True))
                    assert share == pytest.approx(following / truth[past]), (past, action)
            past = (*past, (decision.action, decision.explored))
            control = 0.7 if all(one == (script[i], False) for i, one in enumerate(past)) else 0.0
            assert decision.treated == pytest.approx(1 - control / truth[past])
    assert len(seen) == 10  # all pasts of fewer than three steps


@pytest.mark.parametrize(
    "arm",
    [
        {},
        {"arm": "treatment"},
        {"arm": "treatment", "treated": 0.0},
        {"arm": "control", "treated": 1.0},
        {"arm": "other", "treated": 0.5},
        {"arm": "treatment", "treated": "x"},
        {"arm": "treatment", "treated": float("nan")},
    ],
)
def test_an_episode_whose_arm_is_lost_follows_the_script(arm: dict[str, Any], load: Callable[..., Router]) -> None:
    router = load(by_step("search"), canary_percent=50)
    decision = router.decide(at([{"action": "search", **arm}]))
    assert outcome(decision) == ("code", 1.0, "unknown_arm")
    following = router.decide(at([{"action": "search", **arm}, decision.entry()]))
    assert outcome(following) == (STOP, 1.0, "canary")


# ------------------------------------------------------------------------------------------------------------ fallback


def test_the_kill_switch_in_the_middle_leaves_the_scripts_next_action(
    load: Callable[..., Router], tmp_path: Path
) -> None:
    router = load(by_step("search", "search", "search", "search", STOP))
    history: list[dict[str, object]] = []
    reasons = []
    for step in range(4):
        if step == 1:
            (tmp_path / "KILL").touch()
        if step == 3:
            (tmp_path / "KILL").unlink()
        decision = router.decide({**TASK, "history": history})
        reasons.append(outcome(decision))
        history.append(decision.entry())
    assert reasons == [
        ("search", 1.0, "policy"),
        ("code", 1.0, "kill_switch"),
        (STOP, 1.0, "kill_switch"),
        ("search", 1.0, "policy"),
    ]


def test_a_killed_policys_own_limits_end_nothing_but_the_callers_and_the_longest_episode(
    load: Callable[..., Router], tmp_path: Path
) -> None:
    router = load(script=("plan", "code"), budgets={"tokens": 1}, max_steps=9)
    history = ran(*["code"] * 4, output="x", tokens=10)
    assert router.decide(at(history)).reason == "budget:tokens"
    (tmp_path / "KILL").touch()
    assert outcome(router.decide(at(history))) == ("code", 1.0, "kill_switch")
    assert router.decide(at(history, budget={"tokens": 30})).reason == "budget:tokens"
    assert router.decide(at(history * 3)).reason == "max_steps"


def test_the_scripts_last_action_repeats_and_an_absent_one_is_skipped(
    load: Callable[..., Router], monkeypatch: pytest.MonkeyPatch
) -> None:
    router = load(script=("plan", "search", "code"))
    monkeypatch.setenv("RETROUTE_KILL", "1")
    taken = [router.decide(at(ran(*["plan"] * step))).action for step in range(5)]
    assert taken == ["plan", "search", "code", "code", "code"]
    assert router.decide(at(ran("plan")), ["plan", "code"]).action == "code"
    assert router.decide(at(ran("plan")), ["plan"]).action == "plan"


@pytest.mark.parametrize("history", [5, "text", {"action": "plan"}, object()])
def test_a_history_that_is_no_list_is_a_doubt(history: object, load: Callable[..., Router]) -> None:
    assert outcome(load().decide({**TASK, "history": history})) == ("plan", 1.0, "unreadable_history")


def test_a_step_that_fails_is_the_scripts(load: Callable[..., Router]) -> None:
    router = load(by_step("search", epsilon=0.5))
    object.__setattr__(router, "draw", lambda: 1 / 0)
    assert outcome(router.decide(at(ran("plan")))) == ("code", 1.0, "error:ZeroDivisionError")
    assert outcome(router.decide(at(ran("plan")), [["unhashable"]])) == ("code", 1.0, "error:TypeError")  # type: ignore[list-item]


def test_two_thousand_odd_contexts_are_answered(load: Callable[..., Router]) -> None:
    rng = random.Random(11)
    junk = [
        None, True, 0, -1, 3.5, float("nan"), float("inf"), 10**400, "", "plan", STOP, "é\ud800", b"x", [], {}, [[]],
        object(), {"a": 1}, 1j, np.float32(2), np.arange(3), "error", ("plan",), {"session": "s"}, {"tokens": 5},
    ]  # fmt: skip
    keys = ["action", "status", "cost_usd", "tokens", "seconds", "output", "signal", "explored", "arm", "treated"]
    routers = [load(by_step("search", "code", STOP, epsilon=0.3), canary_percent=p) for p in (100, 50)]

    def entry() -> object:
        if rng.random() < 0.1:
            return rng.choice(junk)
        return {key: rng.choice(junk) for key in keys if rng.random() < 0.4} | {
            "action": rng.choice([*ACTIONS, "x", 7])
        }

    def candidates() -> Any:
        if rng.random() < 0.5:
            return None
        return rng.choice([rng.sample([*ACTIONS, "critic", "x"], rng.randint(0, 4)), rng.choice(junk)])

    for _ in range(2000):
        history = [entry() for _ in range(rng.randint(0, 6))] if rng.random() < 0.9 else rng.choice(junk)
        context: Any = {"messages": rng.choice(junk), "history": history}
        for key in ("budget", "metadata", "tools"):
            if rng.random() < 0.3:
                context[key] = rng.choice(junk)
        if rng.random() < 0.05:
            context = rng.choice(junk)
        offered = candidates()
        decision = rng.choice(routers).decide(context, offered)
        named = decision.action in offered if isinstance(offered, list) else decision.action in ACTIONS
        assert named or decision.action in SCRIPT, (context, offered, decision)
        assert 0.0 < decision.propensity <= 1.0
        assert sum(decision.probabilities) == pytest.approx(1.0)
        assert np.isfinite(decision.features).all()
        assert attributes(decision)["policy.step"] == decision.step
        if decision.step == 0 and decision.action == STOP:
            assert decision.reason.startswith("budget") or decision.reason == "no_candidates"


def test_a_long_history_is_answered(load: Callable[..., Router]) -> None:
    assert load().decide(at(ran(*["plan"] * 5000, output="x" * 100))).reason == "max_steps"


# ------------------------------------------------------------------------------------------- what is logged and stored


def test_attributes_of_a_step(load: Callable[..., Router]) -> None:
    context = at(ran("search"), metadata={"session": "s1"})
    got = attributes(load(by_step("code", epsilon=0.2), seed=1).decide(context))
    features = decode_orchestration(str(got.pop("policy.features")))
    assert np.array_equal(features, orchestration_features(context, ACTIONS))
    assert len(str(got.pop("policy.features.hash"))) == 16
    assert got == {
        "policy.id": "desk",
        "policy.version": "v1",
        "policy.action": STOP,
        "policy.propensity": pytest.approx(0.2 / 3),
        "policy.arm": "treatment",
        "policy.reason": "explore",
        "policy.draw": "fresh",
        "policy.revision": 1,
        "policy.features.spec": STEP_SPEC,
        "policy.candidates": json.dumps(ACTIONS),
        "policy.probabilities": json.dumps([0.2 / 3, 0.2 / 3, 0.8, 0.2 / 3]),
        "policy.step": 1,
        "policy.explored": True,
    }


def test_an_entry_carries_what_the_next_decision_needs(load: Callable[..., Router]) -> None:
    decision = load().decide(TASK)
    entry = decision.entry(status="error", output="x", cost_usd=0.1, tokens=3, seconds=2.0, signal=0.5)
    assert entry == {
        "action": "search", "status": "error", "cost_usd": 0.1, "tokens": 3, "seconds": 2.0, "output": "x",
        "signal": 0.5, "explored": False, "arm": "treatment", "treated": 1.0,
    }  # fmt: skip
    assert json.loads(json.dumps(entry)) == entry


def test_the_manifest_says_what_bounds_an_episode(tmp_path: Path) -> None:
    write(tmp_path, budgets={"cost_usd": 0.2}, max_steps=7, loop=4)
    manifest = json.loads((tmp_path / "manifest.json").read_text())
    assert {key: manifest[key] for key in ("script", "budgets", "max_steps", "loop")} == {
        "script": ["plan", "code", STOP],
        "budgets": {"cost_usd": 0.2},
        "max_steps": 7,
        "loop": 4,
    }
    assert manifest["features"]["spec"] == STEP_SPEC
    assert manifest["features"]["dim"] == 128 + 16 + 2 * 4
    assert manifest["exploration"]["kind"] == "one-step"
    assert any(len(case["context"].get("history", ())) > 1 for case in manifest["selftest"])


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"script": ()}, "script must name actions"),
        ({"script": ("plan", "critic")}, "script must name actions"),
        ({"script": (STOP,)}, "may only end the script"),
        ({"script": ("plan", STOP, "code")}, "may only end the script"),
        ({"budgets": {"usd": 1.0}}, "must be one of"),
        ({"budgets": {"tokens": 0}}, "positive number"),
        ({"budgets": {"tokens": float("inf")}}, "positive number"),
        ({"max_steps": 0}, "max_steps"),
        ({"max_steps": 10_001}, "max_steps"),
        ({"loop": 1}, "loop"),
        ({"explore_percent": 5.0, "canary_percent": 50.0}, "explore_percent is 0"),
    ],
)
def test_an_orchestrator_that_could_not_end_or_fall_back_is_not_written(
    settings: dict[str, Any], problem: str, tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match=problem):
        write(tmp_path, **settings)
    assert not list(tmp_path.iterdir())


def test_a_policy_that_only_stops_is_none(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="an action besides STOP"):
        write(tmp_path, Model("constant", (STOP,), {"values": np.zeros(1)}), incumbent=STOP, script=(STOP,))


def test_a_policy_of_single_decisions_has_no_script(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="only an orchestrator"):
        write(tmp_path, Model("constant", ("plan", "code"), {"values": np.zeros(2)}))


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"script": ["critic"]}, "script must name"),
        ({"budgets": {"tokens": "5"}}, "positive number"),
        ({"max_steps": "20"}, "max_steps"),
        ({"loop": None}, "loop"),
        ({"script": None}, "TypeError"),
        ({"features": {"spec": "retroute-1:x", "spec_sha256": "x", "dim": 152}}, "feature rules"),
    ],
)
def test_a_manifest_without_a_course_is_refused(change: dict[str, Any], reason: str, tmp_path: Path) -> None:
    path = write(tmp_path) / "manifest.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(PolicyError, match=reason):
        Router.load(tmp_path)


@pytest.mark.parametrize("key", ["script", "budgets", "max_steps", "loop"])
def test_a_manifest_that_lacks_a_limit_is_refused(key: str, tmp_path: Path) -> None:
    path = write(tmp_path) / "manifest.json"
    manifest = json.loads(path.read_text())
    del manifest[key]
    path.write_text(json.dumps(manifest))
    with pytest.raises(PolicyError, match=key):
        Router.load(tmp_path)
