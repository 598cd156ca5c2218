"""The replay world on real attempts at the game of 24 gives the figures that are known of its data, and logs of it say
what policies are worth; opt-in by SAMPLE_DATA."""

from __future__ import annotations

from functools import cache

import game24
import numpy as np
import pytest
from intercode import World

from optimizer import replay_truth
from optimizer.dataset import Bools
from optimizer.gate import Estimate
from optimizer.sequential import evaluation
from optimizer.sequential.episodes import EpisodeLog
from optimizer.sequential.study import per_episode

pytestmark = pytest.mark.skipif(game24.folder() is None, reason="SAMPLE_DATA names no data folder")
SEARCHES = [(game24.SEARCH, 5)]


@cache
def world() -> World:
    return game24.read()


@pytest.mark.parametrize(
    ("route", "right", "usd"),
    [
        ([(game24.SEARCH, 1)], 0.587, 0.747),
        (SEARCHES, 0.680, 0.747),
    ],
)
def test_searches_are_right_as_often_and_cost_as_much(route: list[tuple[str, int]], right: float, usd: float) -> None:
    found = world().of_route(route, world().tasks)
    assert found.quality == pytest.approx(right, abs=0.001)
    assert found.cost_usd == pytest.approx(usd, abs=0.001)


def test_an_attempt_alone_costs_a_few_cents_at_most_and_is_seldom_right() -> None:
    """An answer is right in 7.8 % of all hundred attempts of a puzzle: within three standard errors of 75 puzzles."""
    found = world().of_route([(game24.ANSWER, 1)], world().tasks)
    assert abs(found.quality - 0.078) < 3 * np.sqrt(0.078 * 0.922 / 75)
    assert found.cost_usd < 0.02


def test_cheap_attempts_before_the_search_save_and_lose_nothing() -> None:
    """The search follows where they failed, so no puzzle is lost."""
    first, alone = (world().of_route(route, world().tasks) for route in ([(game24.ANSWER, 3), *SEARCHES], SEARCHES))
    assert first.quality >= alone.quality
    assert first.cost_usd < alone.cost_usd


def test_replay_and_routes_agree() -> None:
    route = [(game24.ANSWER, 2), (game24.THOUGHT, 1), *SEARCHES]
    replayed = replay_truth.value(world().replay, replay_truth.of_route(world().replay, route))
    found = world().of_route(route, world().tasks)
    assert found.quality == pytest.approx(replayed.quality)
    assert found.cost_usd == pytest.approx(replayed.cost_usd)


def test_a_log_says_what_its_script_is_worth() -> None:
    """Four standard errors over puzzles, each of which has its episodes."""
    log = world().draw(world().tasks, 6, seed=0)
    truth = replay_truth.value(world().replay, replay_truth.of_script(world().replay))
    for seen, true in ((log.quality, truth.quality), (per_episode(log)[1], truth.cost_usd)):
        sums = np.bincount(log.groups, seen - true)
        assert abs(sums.sum()) < 4 * np.sqrt((sums**2).sum())


def test_always_the_search_is_estimated_from_logs_that_explore() -> None:
    """Without any model: 95 % intervals of ten logs miss the truth in two at most (binomial, 1 %: in three)."""
    truth, held = world().of_route([(game24.SEARCH, game24.LIMIT)], world().tasks), 0
    for seed in range(10):
        log = world().draw(world().tasks, 6, seed=seed)
        policy = np.eye(len(log.action_names))[np.where(may_search(log), 0, log.stop)]
        model = np.zeros((len(evaluation.OUTCOMES), *log.behaviour.shape))
        found = evaluation.value(log, policy, model, confidence=0.95)["quality"]
        assert isinstance(found, Estimate)
        held += found.low <= truth.quality <= found.high
    assert held >= 8


def may_search(log: EpisodeLog) -> Bools:
    """(n,) where the search has an answer left: it gives five."""
    counts = log.features[:, -2 * len(log.action_names)]
    return np.asarray(np.expm1(counts) < 4.5)
