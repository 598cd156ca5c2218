"""The exact value of policies by replay: against hand calculation, against drawing, and what may be done when."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from optimizer import replay_truth
from optimizer.dataset import Floats
from optimizer.replay_truth import Moment, Replay, Script, Steps, of_model, of_route, of_script, value
from optimizer.runtime import STOP, Model, orchestration_features, width
from optimizer.truth import Truth

SCRIPT = Script(arm="big", first_share=0.5, first={"small": 1.0}, later_share=0.3, later_decisions=2, limit=4)


def steps(*rewards: float, cost: float) -> Steps:
    n = len(rewards)
    return Steps(rewards, [cost] * n, [2 * cost] * n, [10] * n, [False] * n, [f"row {k}" for k in range(n)])


def world(**changes: object) -> Replay:
    tasks = {
        "one": (steps(0.0, 0.5, 1.0, cost=3.0), steps(0.25, cost=1.0)),
        "two": (steps(0.5, 0.0, 0.0, 0.0, cost=3.0), steps(1.0, cost=1.0)),
    }
    return Replay(**{"arms": ("big", "small"), "tasks": tasks, "script": SCRIPT, "stop_s": 0.5, **changes})  # type: ignore[arg-type]


def test_fixed_routes_are_worth_what_adding_up_says() -> None:
    big = value(world(), of_route(world(), [("big", 4)]))
    assert big == Truth(cost_usd=(9 + 12) / 2, quality=(1 + 0.5) / 2, latency_s=(18 + 24) / 2)
    once = value(world(), of_route(world(), [("big", 1)]))
    assert once == Truth(cost_usd=3.0, quality=0.25, latency_s=6.5)
    cascade = value(world(), of_route(world(), [("small", 1), ("big", 4)]))
    assert cascade == Truth(cost_usd=(10 + 1) / 2, quality=1.0, latency_s=(20 + 2) / 2)


def test_an_arm_left_is_continued_and_a_used_up_one_is_no_candidate() -> None:
    route = value(world(), of_route(world(), [("big", 1), ("small", 4)]), ["one"])
    assert route == Truth(cost_usd=4.0, quality=0.25, latency_s=8.5)
    moment = world().moment("one", (0, 1))
    assert moment.candidates.tolist() == [True, False, True]
    assert world().begin("one").candidates.tolist() == [True, True, False]
    assert world().after(moment, 0).quality == 0.5
    assert [entry["output"] for entry in world().moment("one", (0, 1, 0)).history] == ["row 0", "row 0", "row 1"]


def test_steps_beyond_the_limit_are_not_taken() -> None:
    assert world().moment("two", (0, 0, 0, 0)).over
    assert not world().moment("two", (0, 0, 0)).over


def test_chance_is_averaged_as_drawing_does() -> None:
    """A policy that decides by tossing a coin: four standard errors of 4,000 draws."""

    def coin(moments: Sequence[Moment]) -> Floats:
        return np.array([moment.candidates / moment.candidates.sum() for moment in moments])

    exact, rng, drawn = value(world(), coin), np.random.default_rng(0), []
    for _ in range(4000):
        moment, extra = world().begin(("one", "two")[rng.integers(2)]), 0.0
        while not moment.over:
            action = int(rng.choice(np.flatnonzero(moment.candidates)))
            if action == 2:
                extra = 0.5
                break
            moment = world().after(moment, action)
        drawn.append((moment.cost_usd, moment.quality, moment.latency_s + extra))
    error = np.std(drawn, axis=0) / np.sqrt(4000)
    apart = np.mean(drawn, axis=0) - [exact.cost_usd, exact.quality, exact.latency_s]
    assert (np.abs(apart) < 4 * error).all()


def test_the_scripts_chances_sum_to_one_and_it_changes_its_arm_once() -> None:
    assert SCRIPT.probabilities([], ["big", "small"]) == {"big": 0.5, "small": 0.5}
    later = SCRIPT.probabilities(["big"], ["big", "small", STOP])
    assert later == pytest.approx({"big": 0.8, "small": 0.1, STOP: 0.1})
    assert SCRIPT.probabilities(["big", "small"], ["big", STOP]) == {"big": 0.0, STOP: 1.0}
    assert SCRIPT.probabilities(["big"] * 3, ["big", "small", STOP]) == {"big": 1.0, "small": 0.0, STOP: 0.0}


def test_a_model_reads_the_history_and_is_kept_to_the_candidates() -> None:
    """A tree that takes the small arm first, then the big one, and stops after a step of that."""
    actions = ("big", "small", STOP)
    count = width(actions) - 2 * len(actions)  # place of log1p(steps of big)
    model = Model(
        "trees",
        actions,
        {
            "feature": np.array([[count, -1, -1]]),
            "threshold": np.array([[0.5, 0.0, 0.0]]),
            "left": np.array([[1, 0, 0]]),
            "right": np.array([[2, 0, 0]]),
            "value": np.array([[[0.0, 0.0, 0.0], [0.5, 1.0, 0.0], [0.0, 0.0, 1.0]]]),
        },
        0.3,
    )

    def features(moment: Moment) -> Floats:
        return orchestration_features({"messages": "how many?", "history": moment.history}, model.actions)

    found = value(world(), of_model(model, world(), features))
    assert found == value(world(), of_route(world(), [("small", 1), ("big", 1)]))
    with pytest.raises(ValueError, match=r"does not know the actions \['big'\]"):
        of_model(model, world(arms=("large", "small")), features)


def test_rewards_are_a_signal_only_where_they_are_shown() -> None:
    assert world().moment("one", (0,)).history[0]["signal"] is None
    assert world(rewards_shown=True).moment("one", (0, 0)).history[1]["signal"] == 0.5


def test_what_is_written_is_read(tmp_path: Path) -> None:
    replay_truth.write(world(), tmp_path, "agent")
    found = replay_truth.read(tmp_path, "agent")
    assert found is not None
    assert (found.arms, found.script, found.stop_s) == (world().arms, SCRIPT, 0.5)
    for policy in (of_script, lambda replay: of_route(replay, [("big", 2), ("small", 1)])):
        assert value(found, policy(found)) == value(world(), policy(world()))
    assert replay_truth.read(tmp_path, "other") is None
