"""The curve of prices: its band holds everywhere at once, and it costs no further fit."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from worlds import World, two_models

from optimizer import frontier
from optimizer.dataset import Floats
from optimizer.evidence import Evaluation
from optimizer.frontier import PRICES, PricePoint, price_curve
from optimizer.gate import Estimate
from optimizer.learners.linear import Heads
from optimizer.ope.estimators import Evidence
from optimizer.rewards import RewardSpec

REWARD = RewardSpec(0.02)


def world(n: int = 600) -> World:
    """Quality of the cheap model falls with the second feature, so that each price draws its own line."""
    made = two_models(n, seed=5)
    rng = np.random.default_rng(6)
    hard = made.features[:, 1]
    right = 1 / (1 + np.exp(hard))
    return replace(made, quality=np.column_stack([made.quality[:, 0], (rng.random(n) < right) * 1.0]))


def heads() -> Heads:
    """Linear in the second feature, as if learned elsewhere."""
    quality, cost = np.zeros((5, 2)), np.zeros((5, 2))
    quality[-1], cost[-1] = (0.7, 0.5), (0.010, 0.001)
    quality[1] = (0.0, -0.22)
    return Heads(np.zeros(4), np.ones(4), quality, cost, ("dear", "cheap"))


def evaluation(of: World, seed: int, confidence: float = 0.95, per_group: int = 1) -> Evaluation:
    """A log of the world, with an outcome model that knows nothing but the mean."""
    data = of.draw(seed)
    data = replace(data, groups=data.groups // per_group)
    outcomes = {}
    for metric in ("cost_usd", "quality", "latency_s"):
        outcome: Floats = getattr(data, metric)
        model = np.full(data.behaviour.shape, outcome.mean())
        outcomes[metric] = Evidence(outcome, np.ones(len(data)), data.actions, data.behaviour, model, data.groups)
    return Evaluation(data, outcomes, confidence)  # type: ignore[arg-type]


def curve(of: World, seed: int = 0, confidence: float = 0.95) -> tuple[PricePoint, ...]:
    return price_curve(heads(), evaluation(of, seed, confidence), REWARD, epsilon=0.05, seed=0)


def test_dearer_quality_buys_more_of_it_at_more_cost() -> None:
    found = curve(world())
    assert 10 <= len(found) <= len(PRICES)
    values = [point.value_usd for point in found]
    assert values == sorted(values)
    costs = [point.cost_usd.value for point in found]
    assert costs[-1] > 2 * costs[0]
    assert found[-1].quality.value > found[0].quality.value


def test_band_is_wider_than_the_interval_of_one_point() -> None:
    of = world()
    judged = evaluation(of, 0)
    for point in curve(of):
        single = judged.value("quality", policy_of(point, of), "DR")
        assert isinstance(single, Estimate)
        assert point.quality.value == pytest.approx(single.value)
        assert 1.1 < (point.quality.high - point.quality.low) / (single.high - single.low) < 2
        assert point.quality.kind == "asymptotic"


def test_the_newest_of_many_decisions_draw_the_curve(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frontier, "MOST_ROWS", 200)
    judged = evaluation(world(), 0)
    newest = np.argsort(judged.data.time_ns)[-200:]
    fewer = price_curve(heads(), judged, REWARD, epsilon=0.05, seed=0)
    assert fewer
    assert fewer == price_curve(heads(), judged.take(newest), REWARD, epsilon=0.05, seed=0)


def test_same_seed_same_curve() -> None:
    assert curve(world()) == curve(world())


def test_policies_that_the_log_does_not_support_are_left_out() -> None:
    made = world()
    never = replace(made, behaviour=np.tile([0.995, 0.005], (600, 1)))
    assert curve(never) == ()


def test_without_a_quality_there_is_no_curve() -> None:
    judged = evaluation(world(), 0)
    evidence = judged.outcomes["quality"]
    blind = replace(evidence, model=np.full_like(evidence.model, np.nan))
    outcomes = {**judged.outcomes, "quality": blind}
    found = price_curve(heads(), replace(judged, outcomes=outcomes), REWARD, epsilon=0.05, seed=0)
    assert found == ()


def policy_of(point: PricePoint, of: World) -> Floats:
    quality, cost = heads().predict(of.features)
    chosen = RewardSpec(point.value_usd).utility(quality, cost).argmax(axis=1)
    policy: Floats = 0.95 * np.eye(2)[chosen] + 0.025
    return policy


def covers(of: World, found: tuple[PricePoint, ...], narrower: float = 1.0) -> bool:
    """Whether every interval holds what the policy of its price is truly worth on these contexts."""
    for point in found:
        policy = policy_of(point, of)
        for estimate, truth in ((point.quality, of.quality), (point.cost_usd, of.cost_usd)):
            half = narrower * (estimate.high - estimate.low) / 2
            if abs(estimate.value - of.value(policy, truth)) > half:
                return False
    return True


def test_band_covers_the_whole_curve_at_once_and_pointwise_intervals_do_not() -> None:
    """50 logs at 90 %: at least 0.9 less two binomial standard errors. The contexts are fixed, so the band covers more
    often than its level; the intervals of single points, at the same level, miss somewhere far more often."""
    of = world(400)
    bands = [curve(of, seed, 0.9) for seed in range(50)]
    assert np.mean([covers(of, found) for found in bands]) >= 0.815
    pointwise = 1.645 / 2.6  # about what the band is wider by
    assert np.mean([covers(of, found, pointwise) for found in bands]) < 0.815


@pytest.mark.parametrize("per_group", [1, 4])
def test_groups_are_the_unit(per_group: int) -> None:
    """Four copies of each decision in one group carry no more evidence than one."""
    of = world(300)
    judged = evaluation(of, 1)
    rows = np.repeat(np.arange(300), per_group)
    copied = judged.take(rows)
    once = price_curve(heads(), judged, REWARD, epsilon=0.05, seed=0)
    again = price_curve(heads(), copied, REWARD, epsilon=0.05, seed=0)
    for one, other in zip(once, again, strict=True):
        assert other.quality.high - other.quality.low == pytest.approx(one.quality.high - one.quality.low, rel=1e-6)
