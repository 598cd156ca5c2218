"""Who gains and who loses: segments known before the decision, intervals that hold together, worst cases as a model
expects them, and the difference to the version before."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from worlds import World, two_models

from optimizer import bundle, regressions, runs, versions
from optimizer.dataset import Floats, LoggedDataset, split
from optimizer.evidence import Evaluation, Refused, held_out
from optimizer.gate import Estimate, Limits
from optimizer.regressions import LEAST, Segment, adjusted, flag, parts, segments, worst
from optimizer.runtime import DENSE, DIM, Model

LIMITS = Limits()


def judged(data: LoggedDataset) -> tuple[LoggedDataset, Evaluation]:
    found = split(data.groups, data.time_ns)
    known = np.concatenate([found.train, found.choose])
    return data.take(known), held_out(data, known, found.certify, confidence=0.95, seed=0)


def always_cheap(evaluation: Evaluation) -> Floats:
    return np.tile([0.0, 1.0], (len(evaluation.data), 1))


def by_half(evaluation: Evaluation) -> list[Segment]:
    even = evaluation.data.features[:, 0] == 1
    return [Segment("Prompts", "even", even), Segment("Prompts", "odd", ~even)]


def test_a_mean_that_is_fine_does_not_hide_a_segment_that_loses() -> None:
    """The cheap model is 30 points better on even prompts and 40 worse on odd ones: 5 points worse in the mean."""
    _, evaluation = judged(two_models(4000, gap=0.3).draw(0))
    even, odd = parts(evaluation, always_cheap(evaluation), by_half(evaluation), LIMITS)
    assert (even.quality_flag(0.01), odd.quality_flag(0.01)) == ("better", "worse")
    assert isinstance(odd.quality, Estimate)
    assert odd.quality.low < -0.24 < odd.quality.high  # three in five are changed
    assert (even.cost_flag, odd.cost_flag) == ("better", "better")
    assert even.changed == pytest.approx(0.6)


def test_more_segments_widen_every_interval() -> None:
    _, evaluation = judged(two_models(2000).draw(0))
    policy, halves = always_cheap(evaluation), by_half(evaluation)
    few, many = parts(evaluation, policy, halves, LIMITS), parts(evaluation, policy, halves * 5, LIMITS)
    for one, other in zip(few, many, strict=False):
        assert isinstance(one.quality, Estimate)
        assert isinstance(other.quality, Estimate)
        assert other.quality.low < one.quality.low
        assert other.quality.high > one.quality.high
    assert adjusted(0.95, 5) == pytest.approx(1 - 0.05 / 10)


def test_intervals_of_a_policy_that_changes_nothing_flag_no_segment() -> None:
    """Six segments of pure chance in each of six logs: at 95 % together one log in twenty flags any."""
    rng, flagged = np.random.default_rng(0), 0
    for seed in range(6):
        world = two_models(1200, seed=seed)
        same = replace(world, quality=np.tile(world.quality[:, :1], (1, 2)))
        _, evaluation = judged(same.draw(seed))
        drawn = [Segment("Chance", str(k), rng.random(len(evaluation.data)) < 0.5) for k in range(6)]
        found = parts(evaluation, always_cheap(evaluation), drawn, LIMITS)
        flagged += any(one.quality_flag(0.0) in ("better", "worse") for one in found)
    assert flagged <= 2  # more than 2 of 6 at 5 % each has a chance of 0.2 %, and the seeds are fixed


@pytest.mark.parametrize(
    ("low", "high", "said"),
    [(-0.3, -0.02, "worse"), (-0.3, -0.005, "unclear"), (-0.009, 0.1, "inside"), (0.001, 0.1, "better")],
)
def test_a_segment_is_flagged_only_where_its_whole_interval_is_past_the_limit(
    low: float, high: float, said: str
) -> None:
    change = Estimate("DR", (low + high) / 2, low, high, 100, 100.0, "asymptotic")
    assert flag(change, 0.01) == said
    assert flag(Refused("why"), 0.01) == "refused"


def prompts(n: int = 2000) -> World:
    """The world with features that have names: half the prompts long, a tenth with tools."""
    world = two_models(n)
    features = np.zeros((n, DIM))
    features[:, 0] = np.log1p(np.where(np.arange(n) % 2 == 0, 40, 400))
    features[: n // 10 * 10 : 10, DENSE.index("tools")] = np.log1p(3)
    return replace(world, features=features)


def test_found_segments_are_those_that_hold_enough_decisions_and_part_the_log() -> None:
    known, evaluation = judged(prompts().draw(0))
    large, small = segments(known, evaluation.data, always_cheap(evaluation), {})
    names = {(one.dimension, one.name): int(one.rows.sum()) for one in large}
    assert names[("Prompt length", "up to 40 characters")] == 200
    assert ("Tools", "tools offered") not in names  # 40 of 400: fewer than `LEAST`
    assert not any(one.dimension in ("Code", "Suggested", "Session") for one in large)  # one value: nothing to tell
    assert all(one.rows.sum() >= LEAST for one in large)
    assert all(one.rows.sum() < LEAST for one in small)


def test_stated_segments_come_first_and_small_ones_are_named() -> None:
    known, evaluation = judged(prompts().draw(0))
    stated = {"acme": np.arange(400) < 60, "tiny": np.arange(400) < 7}
    large, small = segments(known, evaluation.data, always_cheap(evaluation), stated)
    assert (large[0].dimension, large[0].name) == (regressions.STATED, "acme")
    assert ("tiny", 7) in [(one.name, int(one.rows.sum())) for one in small]


def test_the_worst_decisions_are_where_the_model_expects_the_deepest_fall() -> None:
    _, evaluation = judged(two_models(3000, gap=0.3).draw(0))
    policy = always_cheap(evaluation)
    found = worst(evaluation, policy)
    model = evaluation.outcomes["quality"].model
    falls = ((policy - evaluation.data.behaviour) * model).sum(axis=1)
    assert [one.quality - one.quality_today for one in found] == pytest.approx(np.sort(falls)[:10])
    assert all(evaluation.data.features[one.row, 0] == 0 for one in found)  # odd prompts
    assert {(one.today, one.suggested) for one in found} == {("dear", "cheap")}


def test_a_policy_like_todays_has_no_worst_decisions() -> None:
    _, evaluation = judged(two_models(1000).draw(0))
    assert worst(evaluation, evaluation.data.behaviour) == []


def test_json_names_the_traces_of_the_worst_and_counts_its_intervals() -> None:
    known, evaluation = judged(prompts().draw(0))
    ids = [{"trace_id": f"t{row}", "time_ns": row} for row in range(400)]
    policy = always_cheap(evaluation)
    said = regressions.to_json(known, evaluation, policy, LIMITS, stated={}, decisions=ids)
    assert said["intervals"] == 2 * len(said["segments"])
    assert said["each"] == pytest.approx(1 - 0.05 / said["intervals"])
    assert [one["trace_id"] for one in said["worst"]] == [f"t{one.row}" for one in worst(evaluation, policy)]
    nothing = regressions.to_json(known, evaluation, None, LIMITS, stated={}, decisions=ids)
    assert nothing["refused"]
    assert nothing["segments"] == []


# ---- the version before


def constant(action: str, names: tuple[str, ...] = ("dear", "cheap")) -> Model:
    return Model("constant", names, {"values": np.array([float(name == action) for name in names])}, 0.0)


def write(home: Path, run_id: str, model: Model) -> None:
    folder = home / "runs" / run_id
    folder.mkdir(parents=True)
    runs.write_json(folder / "manifest.json", {"run_id": run_id})
    bundle.write_policy(
        runs.policy_folder(folder, "shop"),
        model,
        policy_id="shop",
        version=run_id,
        revision=1,
        virtual_model="shop",
        evaluation={},
        created_at="2026-03-01T00:00:00+00:00",
        incumbent=model.actions[0],
    )


def test_the_version_before_is_the_one_in_force_else_the_newest_earlier_one(tmp_path: Path) -> None:
    for name in ("20260101T000000", "20260102T000000", "20260104T000000"):
        write(tmp_path, name, constant("dear"))
    found = versions.previous(tmp_path, "shop", "20260103T000000")
    assert found is not None
    assert (found.run_id, found.in_force) == ("20260102T000000", False)
    runs.set_active(tmp_path, {"shop": "20260101T000000"})
    found = versions.previous(tmp_path, "shop", "20260103T000000")
    assert found is not None
    assert (found.run_id, found.in_force) == ("20260101T000000", True)
    assert versions.previous(tmp_path, "shop", "20260101T000000") is None


def test_difference_between_versions_on_the_same_decisions(tmp_path: Path) -> None:
    write(tmp_path, "20260101T000000", constant("dear"))
    _, evaluation = judged(prompts().draw(0))
    policy = np.where((evaluation.data.features[:, 0] < 5)[:, None], [0.0, 1.0], [1.0, 0.0])
    said = versions.to_json(tmp_path, "shop", "20260102T000000", constant("cheap"), evaluation, policy)
    assert said is not None
    assert said["agreement"] == pytest.approx(0.5)
    assert said["moved"] == pytest.approx(0.5)
    shares = {row["action"]: (row["before"], row["after"]) for row in said["actions"]}
    assert shares == {"dear": (1.0, 0.5), "cheap": (0.0, 0.5)}
    truth = 1000 * 0.009 * 0.5
    assert said["savings_usd_per_1k"]["low"] < truth < said["savings_usd_per_1k"]["high"]


def test_a_version_that_knows_other_actions_is_not_compared_and_says_so(tmp_path: Path) -> None:
    write(tmp_path, "20260101T000000", constant("gone", ("dear", "gone")))
    _, evaluation = judged(prompts().draw(0))
    policy = always_cheap(evaluation)
    said = versions.to_json(tmp_path, "shop", "20260102T000000", constant("cheap"), evaluation, policy)
    assert said is not None
    assert (said["gone"], said["new"]) == (["gone"], ["cheap"])
    assert "gone" in said["refused"]
    assert said["actions"] == []


def test_a_first_version_has_none_before_it(tmp_path: Path) -> None:
    _, evaluation = judged(prompts().draw(0))
    policy = always_cheap(evaluation)
    assert versions.to_json(tmp_path, "shop", "20260102T000000", constant("cheap"), evaluation, policy) is None
