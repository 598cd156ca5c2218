"""The replay world on real episodes gives the figures that are known of its data; opt-in by SAMPLE_DATA."""

from __future__ import annotations

from functools import cache

import intercode
import numpy as np
import pytest

from optimizer import replay_truth
from optimizer.runtime import orchestration_features
from optimizer.sequential import evaluation

pytestmark = pytest.mark.skipif(intercode.folder() is None, reason="SAMPLE_DATA names no data folder")
SCHEMA, ONCE = "gpt-3.5-turbo|try_again_schema", "gpt-3.5-turbo|single_turn_schema"


@cache
def world() -> intercode.World:
    return intercode.World.read(intercode.FEW)


@pytest.mark.parametrize(
    ("route", "success", "usd"),
    [
        ([(intercode.INCUMBENT, 10)], 0.737, 150.4),
        ([(SCHEMA, 10)], 0.734, 5.56),
        ([(ONCE, 1), (intercode.INCUMBENT, 10)], 0.825, 68.5),
        ([(ONCE, 1), (SCHEMA, 10), (intercode.INCUMBENT, 10)], 0.843, 60.0),
    ],
)
def test_known_routes_succeed_as_often_and_cost_as_much(
    route: list[tuple[str, int]], success: float, usd: float
) -> None:
    """Within a third of a point, and 2 % of the cost."""
    moments = []
    policy = replay_truth.of_route(world().replay, route)
    found = replay_truth.value(world().replay, policy)
    for task in world().tasks:
        moment = world().replay.begin(task)
        while not moment.over:
            action = int(policy([moment])[0].argmax())
            if action == len(world().replay.arms):
                break
            moment = world().replay.after(moment, action)
        moments.append(moment.quality >= 1)
    assert np.mean(moments) == pytest.approx(success, abs=0.004)
    assert 1000 * found.cost_usd == pytest.approx(usd, rel=0.02)
    assert world().of_route(route, world().tasks).quality == pytest.approx(found.quality)
    assert world().of_route(route, world().tasks).cost_usd == pytest.approx(found.cost_usd)


def test_features_are_those_of_the_router() -> None:
    data = intercode.folder()
    assert data is not None
    import polars as pl

    asked = dict(pl.read_parquet(data / "tasks.parquet").select("task_id", "query").iter_rows())
    task = world().tasks[5]
    moment = world().replay.moment(task, (0, 1, 0))
    context = {"messages": asked[task], "history": list(moment.history)}
    assert world().features(moment) == pytest.approx(orchestration_features(context, world().replay.actions))


def test_a_log_says_what_its_script_is_worth() -> None:
    """Four standard errors over groups, whose episodes are on the same tasks."""
    log = world().draw(world().tasks[:150], 4, seed=0)
    truth = replay_truth.value(world().replay, replay_truth.of_script(world().replay), world().tasks[:150])
    apart = log.quality - truth.quality
    sums = np.bincount(log.groups, apart)
    assert abs(apart.sum()) < 4 * np.sqrt((sums**2).sum())
    assert np.isnan(log.stop_quality[log.first]).all()
    assert (log.behaviour[log.step > 0].max(axis=1) > 0.5).all()


def test_stopping_sooner_is_replayed_on_real_steps() -> None:
    """As the script did, but two steps at most: its own steps tell it without an error but the draw's."""
    log = world().draw(world().tasks, 2, seed=1)
    stop = np.eye(len(log.action_names))[log.stop]
    policy = np.where((log.step >= 2)[:, None], stop, log.behaviour)
    zero = np.zeros((3, *log.behaviour.shape))
    scores = evaluation.doubly_robust(log, policy, zero)
    script = replay_truth.of_script(world().replay)

    def soon(moments: list[replay_truth.Moment]) -> np.ndarray:
        return np.array([stop if len(m.taken) >= 2 else script([m])[0] for m in moments])

    truth = replay_truth.value(world().replay, soon)  # type: ignore[arg-type]
    for score, true in zip(scores[:2], (truth.quality, truth.cost_usd), strict=True):
        sums = np.bincount(log.groups, score - true)
        assert abs(score.mean() - true) < 4 * np.sqrt((sums**2).sum()) / len(log)
