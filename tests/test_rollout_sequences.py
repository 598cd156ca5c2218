"""Intervals that may be looked at as often as one likes, and the test of the ratio of arms: both proved by simulation.

Of 300 paths of an interval that covers 95 % exactly, fewer than 273 stay inside with probability 0.001 (binomial), so
`LEAST` = 273 / 300 is the least share that a test may ask for; all of ours stay far above it.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from optimizer.dataset import Bools, Floats
from optimizer.ope.sequences import (
    FEWEST,
    Difference,
    bounded_difference,
    contributions,
    difference,
    log_wealth,
    ratio_p_value,
)

PATHS, LEAST = 300, 273 / 300
ALPHA = 0.05


def arms(n: int, share: float, seed: int) -> tuple[Bools, Floats, np.random.Generator]:
    rng = np.random.default_rng(seed)
    return rng.random(n) < share, np.full(n, share), rng


def passed_or_not(n: int, share: float, better: float, seed: int) -> tuple[Floats, Bools, Floats, float]:
    """Outcomes 0 or 1, right in 80 % of controls; the true difference last."""
    treated, shares, rng = arms(n, share, seed)
    return (rng.random(n) < np.where(treated, 0.8 + better, 0.8)).astype(float), treated, shares, better


def costs(n: int, share: float, seed: int) -> tuple[Floats, Bools, Floats, float]:
    """Lognormal costs with the spread of a real bill (mean 1.65 times the median); treatment costs half."""
    treated, shares, rng = arms(n, share, seed)
    return np.exp(rng.normal(0, 1, n)) * np.where(treated, 0.5, 1.0), treated, shares, -0.5 * np.exp(0.5)


def growing(n: int, seed: int) -> tuple[Floats, Bools, Floats, float]:
    """A canary of 5 %, then 20 %, then half, while quality sinks by 20 points for everyone."""
    rng = np.random.default_rng(seed)
    shares = np.repeat([0.05, 0.2, 0.5], n // 3)
    treated = rng.random(len(shares)) < shares
    likely = np.linspace(0.9, 0.7, len(shares)) - 0.05 * treated
    return (rng.random(len(shares)) < likely).astype(float), treated, shares, -0.05


CASES = {
    "even": lambda seed: passed_or_not(1_500, 0.5, 0.0, seed),
    "few treated, worse": lambda seed: passed_or_not(1_500, 0.05, -0.1, seed),
    "better": lambda seed: passed_or_not(1_500, 0.2, 0.1, seed),
    "growing canary, drift": lambda seed: growing(1_500, seed),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_a_bounded_difference_stays_inside_at_all_times(case) -> None:  # type: ignore[no-untyped-def]
    """The true difference is outside at some time exactly when the wealth against it has once reached 2 / alpha: all
    1,500 times of each path are looked at."""
    inside = 0
    for seed in range(PATHS):
        y, treated, share, truth = case(seed)
        x = contributions(y, treated, share)
        most = max(log_wealth(x, share, truth).max(), log_wealth(-x, share, -truth).max())
        inside += bool(most < np.log(2 / ALPHA))
    assert inside / PATHS >= LEAST


def test_the_interval_leaves_out_a_mean_exactly_when_the_wealth_against_it_is_large() -> None:
    y, treated, share, _ = passed_or_not(600, 0.3, -0.3, seed=1)
    found = bounded_difference(y, treated, share, confidence=1 - ALPHA)
    assert found is not None
    assert found.high < 0
    x = contributions(y, treated, share)
    assert log_wealth(x, share, found.low)[-1] == pytest.approx(np.log(2 / ALPHA), abs=1e-4)
    assert log_wealth(-x, share, -found.high)[-1] == pytest.approx(np.log(2 / ALPHA), abs=1e-4)


def test_a_contribution_knows_only_earlier_units() -> None:
    """Or its mean would not be the difference: an outcome moves its own contribution by 1 / p, and later ones."""
    y, treated, share, _ = passed_or_not(50, 0.3, 0.0, seed=4)
    other = y.copy()
    other[20] = 1 - y[20]
    moved = contributions(other, treated, share) - contributions(y, treated, share)
    weight = 1 / share[20] if treated[20] else -1 / (1 - share[20])
    assert moved[20] == pytest.approx((other[20] - y[20]) * weight)
    assert not moved[:20].any()
    assert moved[21:].any()


def looks(y: Floats, treated: Bools, share: Floats, of, every: int) -> Iterator[Difference]:  # type: ignore[no-untyped-def]
    for n in range(every, len(y) + 1, every):
        if found := of(y[:n], treated[:n], share[:n], confidence=1 - ALPHA):
            yield found


@pytest.mark.parametrize("share", [0.5, 0.2])
def test_a_difference_of_costs_stays_inside_at_all_looks(share: float) -> None:
    inside = 0
    for seed in range(PATHS):
        y, treated, shares, truth = costs(2_000, share, seed)
        inside += all(found.low <= truth <= found.high for found in looks(y, treated, shares, difference, 50))
    assert inside / PATHS >= LEAST


def fixed(y: Floats, treated: Bools, share: Floats, *, confidence: float) -> Difference:
    """The interval of a single look, as in any textbook: what must not pass for one of many."""
    a, b = y[treated], y[~treated]
    half = 1.96 * float(np.sqrt(a.var() / max(len(a), 1) + b.var() / max(len(b), 1)))
    value = float(a.mean() - b.mean())
    return Difference(value, value - half, value + half, "anytime-valid", len(y))


def test_an_interval_for_one_look_would_fail_these_tests() -> None:
    for paths in (
        [costs(2_000, 0.5, seed) for seed in range(100)],
        [passed_or_not(1_500, 0.5, 0.0, seed) for seed in range(100)],
    ):
        inside = sum(
            all(found.low <= truth <= found.high for found in looks(y, treated, share, fixed, 20))
            for y, treated, share, truth in paths
        )
        assert inside / 100 < 0.85


def test_the_value_is_the_difference_of_the_arms_and_lies_inside() -> None:
    y, treated, share, _ = passed_or_not(800, 0.3, -0.1, seed=2)
    for of in (bounded_difference, difference):
        found = of(y, treated, share, confidence=0.95)
        assert found is not None
        assert found.value == pytest.approx(y[treated].mean() - y[~treated].mean())
        assert found.low <= found.value <= found.high


def test_a_growing_canary_is_not_fooled_by_drift() -> None:
    """Treatment is the larger the later, and later everyone is worse: pooled means blame treatment for it."""
    errors, pooled = [], []
    for seed in range(20):
        y, treated, share, truth = growing(6_000, seed)
        found = bounded_difference(y, treated, share, confidence=0.95)
        assert found is not None
        errors.append(found.value - truth)
        pooled.append(y[treated].mean() - y[~treated].mean() - truth)
    # Standard error of one: sqrt(0.16 * mean of 1 / (p (1 - p)) / n) = 0.017, of the mean of 20: 0.0037.
    assert abs(np.mean(errors)) < 4 * 0.0037
    assert np.mean(pooled) < -0.03


def test_intervals_narrow_and_find_what_is_there() -> None:
    y, treated, share, truth = passed_or_not(20_000, 0.2, -0.05, seed=3)
    found = bounded_difference(y, treated, share, confidence=0.95)
    assert found is not None
    assert found.low < truth < found.high < 0
    # A single look would be 0.0278 wide; holding at all times may cost twice that.
    assert found.high - found.low < 2 * 0.0278


def test_too_little_is_no_interval_and_not_a_zero() -> None:
    y, treated, share = np.ones(4), np.array([True] * 4), np.full(4, 0.5)
    assert bounded_difference(y, treated, share, confidence=0.95) is None
    few = np.arange(4 * FEWEST) < FEWEST - 1
    assert difference(np.ones(4 * FEWEST), few, np.full(4 * FEWEST, 0.25), confidence=0.95) is None
    two = bounded_difference(np.array([0.0, 1.0]), np.array([True, False]), np.full(2, 0.5), confidence=0.95)
    assert two is not None
    assert (two.low, two.high) == (-1, 1)


@pytest.mark.parametrize(
    ("y", "share"), [([0.5, 1.5], [0.5, 0.5]), ([-0.1, 1.0], [0.5, 0.5]), ([0.5, 0.5], [0.5, 1.0]), ([0.5], [0.5, 0.5])]
)
def test_what_the_interval_does_not_hold_for_is_refused(y: list[float], share: list[float]) -> None:
    with pytest.raises(ValueError, match="must"):
        bounded_difference(np.array(y), np.array([True, False]), np.array(share), confidence=0.95)


@pytest.mark.parametrize("share", [0.05, 0.2, 0.5])
def test_a_ratio_that_is_right_is_seldom_doubted_at_any_time(share: float) -> None:
    """The smallest p-value of a whole path is at most 0.05 in at most 5 % of paths: 27 of 300 (binomial, 0.001)."""
    doubted = sum(ratio_p_value(*arms(3_000, share, seed)[:2]) <= ALPHA for seed in range(PATHS))
    assert doubted <= 27


def test_a_ratio_that_is_wrong_is_caught() -> None:
    """A fifth of the treated units get lost: 16.7 % instead of 20 %."""
    caught = 0
    for seed in range(50):
        treated, share, rng = arms(4_000, 0.2, seed)
        kept = ~treated | (rng.random(4_000) < 0.8)
        caught += ratio_p_value(treated[kept], share[kept]) < 0.01
    assert caught >= 45


def test_the_ratio_is_that_of_each_stage() -> None:
    rng = np.random.default_rng(5)
    share = np.repeat([0.05, 0.5], 1_000)
    assert ratio_p_value(rng.random(2_000) < share, share) > 0.05
    assert ratio_p_value(rng.random(2_000) < 0.275, share) < 1e-6
    assert ratio_p_value(np.array([False, False]), np.zeros(2)) == 1.0
    assert ratio_p_value(np.array([False, True]), np.zeros(2)) == 0.0
    assert ratio_p_value(np.zeros(0, dtype=bool), np.zeros(0)) == 1.0
