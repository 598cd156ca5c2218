"""Bounds by logarithmic smoothing: they hold at any size and exploration, with nothing but the probabilities."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from optimizer.dataset import Floats
from optimizer.ope.bounds import least_mean, log_product, smoothed_change, smoothed_value
from optimizer.ope.estimators import Evidence, weights

ARMS = 3
CONFIDENCE = 0.95
LOGS = 200
TOLERANCE = 2 * np.sqrt(0.05 * 0.95 / LOGS)
"""Two binomial standard errors of a coverage of 0.95 in 200 logs."""


class World:
    """An incumbent arm with probability 1 - exploration, and a policy that knows better. Sessions share their luck."""

    def __init__(self, exploration: float, session: int = 1) -> None:
        self.exploration, self.session = exploration, session
        _, _, self.value, self.change = self.draw(np.random.default_rng(99), 100_000)

    def draw(self, rng: np.random.Generator, n: int) -> tuple[Evidence, Floats, float, float]:
        groups = np.arange(n) // self.session
        place = rng.normal(size=n // self.session + 1)[groups]
        quality = 1 / (1 + np.exp(-np.column_stack([place, 0.3 - place, 0.5 * place + 0.2])))
        behaviour = np.full((n, ARMS), self.exploration / ARMS)
        behaviour[:, 0] += 1 - self.exploration
        actions = (rng.random(n)[:, None] > np.cumsum(behaviour, axis=1)[:, :-1]).sum(axis=1)
        outcome = (rng.random(n // self.session + 1)[groups] < quality[np.arange(n), actions]) * 1.0
        policy = np.eye(ARMS)[quality.argmax(axis=1)]
        evidence = Evidence(outcome, np.ones(n), actions, behaviour, np.zeros((n, ARMS)), groups)
        value = float((policy * quality).sum(axis=1).mean())
        return evidence, policy, value, value - float((behaviour * quality).sum(axis=1).mean())


@pytest.mark.parametrize(("n", "session"), [(200, 1), (1000, 1), (1000, 10)])
@pytest.mark.parametrize("exploration", [0.5, 0.1, 0.02])
def test_value_and_change_are_covered(exploration: float, n: int, session: int) -> None:
    world, rng = World(exploration, session), np.random.default_rng(1)
    value, change = [], []
    for _ in range(LOGS):
        evidence, policy, _, _ = world.draw(rng, n)
        low, high = smoothed_value(evidence, policy, confidence=CONFIDENCE)
        value.append(low <= world.value <= high)
        low, high = smoothed_change(evidence, policy, confidence=CONFIDENCE)
        change.append(low <= world.change <= high)
    assert min(np.mean(value), np.mean(change)) >= CONFIDENCE - TOLERANCE


def test_the_product_is_one_on_average_at_the_true_mean_unless_one_peeks() -> None:
    """2,000 logs of 100 decisions. The best l of hindsight, in place of the average over a few, is told apart."""
    world, rng = World(0.5), np.random.default_rng(2)
    honest, peeking = [], []
    for _ in range(2000):
        evidence, policy, _, _ = world.draw(rng, 100)
        scores = weights(evidence, policy) * evidence.outcome
        honest.append(np.exp(log_product(scores, np.ones(100), 0.025)(world.value)))
        tried = np.geomspace(1e-3, 10, 20)
        peeking.append(np.exp(max(np.log((1 + one * scores) / (1 + one * world.value)).sum() for one in tried)))
    assert np.mean(honest) <= 1 + 2 * np.std(honest) / np.sqrt(len(honest))
    assert np.mean(peeking) > 1 + 2 * np.std(peeking) / np.sqrt(len(peeking))


def test_it_is_at_most_1_9_times_as_wide_as_the_normal_interval_of_its_scores() -> None:
    """By theory sqrt(2 log 40) / 1.96 = 1.39, and at most 1.7 with the price of five values of l."""
    evidence, policy, _, _ = World(0.5).draw(np.random.default_rng(3), 8000)
    low, high = smoothed_change(evidence, policy, confidence=CONFIDENCE)
    more = weights(evidence, policy) - 1
    halves = [(more * outcome).std() for outcome in (evidence.outcome, 1 - evidence.outcome)]
    normal = 1.96 * sum(halves) / np.sqrt(8000)
    shift = abs((more * evidence.outcome).mean() + (more * (1 - evidence.outcome)).mean())
    assert high - low <= 1.9 * normal + shift


def test_todays_policy_is_bounded_closely_around_no_change() -> None:
    evidence, _, _, _ = World(0.5).draw(np.random.default_rng(4), 1000)
    low, high = smoothed_change(evidence, evidence.behaviour, confidence=CONFIDENCE)
    assert -0.1 < low <= 0 <= high < 0.1


def test_more_decisions_and_less_confidence_bound_closer() -> None:
    world = World(0.5)
    few, policy, _, _ = world.draw(np.random.default_rng(5), 500)
    many, other, _, _ = world.draw(np.random.default_rng(6), 20_000)
    assert least_mean(few.outcome, few.groups, 0.1) > least_mean(few.outcome, few.groups, 0.01)
    wide = smoothed_value(few, policy, confidence=CONFIDENCE)
    narrow = smoothed_value(many, other, confidence=CONFIDENCE)
    assert narrow[1] - narrow[0] < wide[1] - wide[0]


def test_outcomes_that_are_unknown_or_out_of_range_are_refused() -> None:
    evidence, policy, _, _ = World(0.5).draw(np.random.default_rng(7), 20)
    for wrong, said in ((np.nan, "no known outcome"), (2.0, r"lie in \[0, 1\]")):
        outcome = evidence.outcome.copy()
        outcome[3] = wrong
        with pytest.raises(ValueError, match=said):
            smoothed_value(replace(evidence, outcome=outcome), policy, confidence=CONFIDENCE)
