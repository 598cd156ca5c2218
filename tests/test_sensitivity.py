"""Bounds under hidden confounding: they contain the truth, are as narrow as they can be, and say when a claim tips."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from optimizer.dataset import Floats
from optimizer.ope.estimators import Evidence, doubly_robust, today
from optimizer.ope.sensitivity import MOST_GAMMA, change_bounds, tipping_point

ARMS = 3
CONFIDENCE = 0.95
LOGS = 200
TOLERANCE = 2 * np.sqrt(0.05 * 0.95 / LOGS)
"""Two binomial standard errors of a coverage of 0.95 in 200 logs."""


class Confounded:
    """A hidden coin moves the odds of every arm by at most `gamma`, and the outcome with it.

    `outcome`: "quality" is 0 or 1, "cost" has a heavy tail. The behaviour is the true one given the features alone.
    """

    def __init__(self, gamma: float, outcome: str = "quality", *, model: bool = True) -> None:
        self.gamma, self.outcome, self.model = gamma, outcome, model
        self.truth = self._draw(np.random.default_rng(999), 400_000)[2]

    def draw(self, rng: np.random.Generator, n: int) -> tuple[Evidence, Floats]:
        return self._draw(rng, n)[:2]

    def _draw(self, rng: np.random.Generator, n: int) -> tuple[Evidence, Floats, float]:
        features = rng.normal(size=(n, 2))
        hidden = rng.random(n) < 0.5
        lean = np.log(self.gamma) / 4 * np.array([1.0, 0.0, -1.0])
        logits = 0.5 * features @ np.array([[1.0, -1.0, 0.0], [0.0, 0.5, -1.0]])
        given = [np.exp(logits + sign * lean) for sign in (-1, 1)]
        low, high = (part / part.sum(axis=1, keepdims=True) for part in given)
        behaviour = (low + high) / 2
        chosen = np.where(hidden[:, None], high, low)
        odds = (chosen / (1 - chosen)) / (behaviour / (1 - behaviour))
        assert max(odds.max(), (1 / odds).max()) <= self.gamma + 1e-9
        actions = (rng.random(n)[:, None] > np.cumsum(chosen, axis=1)[:, :-1]).sum(axis=1)
        base = 1 / (1 + np.exp(-(features @ np.array([[0.6, 0.0, -0.4], [0.2, -0.6, 0.3]]))))
        mean = np.clip(base + 0.25 * np.where(hidden, 1.0, -1.0)[:, None], 0, 1)
        if self.outcome == "quality":
            seen = (rng.random(n) < mean[np.arange(n), actions]) * 1.0
        else:
            mean = np.exp(2 * mean)
            seen = mean[np.arange(n), actions] * rng.lognormal(-0.5, 1.0, n)
        guess = np.exp(2 * base) if self.outcome == "cost" else base
        policy = np.full((n, ARMS), 0.02)
        policy[np.arange(n), base.argmax(axis=1)] += 0.94
        evidence = Evidence(seen, np.ones(n), actions, behaviour, guess if self.model else 0 * guess, np.arange(n))
        return evidence, policy, float(((policy - chosen) * mean).sum(axis=1).mean())


def worst_case(rng: np.random.Generator, n: int) -> tuple[Evidence, Floats]:
    """Arm 1 is chosen with the odds 2 where it would succeed and 1 / 2 where it would fail: as bad as Gamma = 2 allows.

    It succeeds half the time but looks as if two thirds of the time. Always taking it changes 7 / 12 into 1 / 2.
    """
    good = rng.random(n) < 0.5
    actions = (rng.random(n) < np.where(good, 2 / 3, 1 / 3)).astype(np.int64)
    seen = np.where(actions == 1, good, rng.random(n) < 0.5) * 1.0
    half = np.full((n, 2), 0.5)
    evidence = Evidence(seen, np.ones(n), actions, half, np.tile([0.5, 2 / 3], (n, 1)), np.arange(n))
    return evidence, np.tile([0.0, 1.0], (n, 1))


WORST_TRUTH = -1 / 12


@pytest.mark.parametrize("gamma", [1.0, 1.5, 3.0])
@pytest.mark.parametrize(("outcome", "model"), [("quality", True), ("quality", False), ("cost", True)])
def test_the_limits_contain_the_truth_where_gamma_is_at_most_the_declared_one(
    gamma: float, outcome: str, model: bool
) -> None:
    world, rng = Confounded(gamma, outcome, model=model), np.random.default_rng(0)
    found = [change_bounds(*world.draw(rng, 1500), gamma, confidence=CONFIDENCE) for _ in range(LOGS)]
    covered = np.mean([one.low_limit <= world.truth <= one.high_limit for one in found])
    assert covered >= CONFIDENCE - TOLERANCE


@pytest.mark.parametrize("n", [300, 3000])
def test_the_limits_contain_the_truth_in_the_worst_case(n: int) -> None:
    """At the very bound each side has 0.975. Taking the log at its word (Gamma = 1) is nearly always wrong here."""
    rng = np.random.default_rng(1)
    logs = [worst_case(rng, n) for _ in range(LOGS)]
    honest = np.mean([change_bounds(*log, 2.0, confidence=CONFIDENCE).low_limit <= WORST_TRUTH for log in logs])
    naive = np.mean([change_bounds(*log, 1.0, confidence=CONFIDENCE).low_limit <= WORST_TRUTH for log in logs])
    assert honest >= 0.975 - 2 * np.sqrt(0.025 * 0.975 / LOGS)
    assert naive < 0.5


def test_the_bound_is_the_sharp_one() -> None:
    """In the worst case the truth is the bound itself; five standard errors at n = 40,000 are 0.02."""
    evidence, policy = worst_case(np.random.default_rng(2), 40_000)
    assert change_bounds(evidence, policy, 2.0, confidence=CONFIDENCE).low == pytest.approx(WORST_TRUTH, abs=0.02)


@pytest.mark.parametrize("gamma", [1.2, 2.0])
def test_the_bound_of_a_binary_outcome_is_near_the_sharp_one(gamma: float) -> None:
    """With success m at b = 1 / 2 the sharp bound is max(m lo, 1 - (1 - m) hi), lo = (1 + 1 / Gamma) / 2 and
    hi = (1 + Gamma) / 2. Five cells come within 6 % of its distance from the point; quantiles of
    what the outcome is above its prediction alone would not."""
    rng, n = np.random.default_rng(11), 40_000
    good = rng.random(n)
    half, policy = np.full((n, 2), 0.5), np.tile([0.0, 1.0], (n, 1))
    seen = (rng.random(n) < good) * 1.0
    evidence = Evidence(seen, np.ones(n), rng.integers(0, 2, n), half, np.column_stack([good, good]), np.arange(n))
    sharp = float(np.maximum(good * (1 + 1 / gamma) / 2, 1 - (1 - good) * (1 + gamma) / 2).mean() - good.mean())
    point = change_bounds(evidence, policy, 1.0, confidence=CONFIDENCE).low
    found = change_bounds(evidence, policy, gamma, confidence=CONFIDENCE).low
    assert found - point == pytest.approx(sharp, rel=0.06)


@pytest.mark.parametrize("gamma", [1.5, 3.0])
def test_a_good_model_of_the_cost_leaves_little_to_hidden_causes(gamma: float) -> None:
    """Costs are within 10 % of what the model says, so a hidden cause can move their mean by less than 10 %, although
    the costs themselves differ by a factor of 20."""
    rng, n = np.random.default_rng(10), 4000
    size = np.exp(rng.uniform(-1.5, 1.5, n))
    actions = rng.integers(0, 2, n)
    half, policy = np.full((n, 2), 0.5), np.tile([0.0, 1.0], (n, 1))
    cost = size * rng.uniform(0.9, 1.1, n)
    evidence = Evidence(cost, np.ones(n), actions, half, np.column_stack([size, size]), np.arange(n))
    found = change_bounds(evidence, policy, gamma, confidence=CONFIDENCE)
    assert 0 < found.high - found.low < 0.1 * size.mean()


seeds = st.integers(0, 10_000)


@given(seeds, st.sampled_from(["quality", "cost"]))
@settings(max_examples=20, deadline=None)
def test_bounds_widen_with_gamma_and_are_the_point_at_one(seed: int, outcome: str) -> None:
    evidence, policy = WORLDS[outcome].draw(np.random.default_rng(seed), 300)
    found = [change_bounds(evidence, policy, gamma, confidence=CONFIDENCE) for gamma in (1.0, 1.1, 1.7, 3.0, 10.0)]
    point = float((doubly_robust(evidence, policy) - today(evidence)).mean())
    assert found[0].low == pytest.approx(point)
    assert found[0].high == pytest.approx(point)
    for narrow, wide in pairwise(found):
        assert wide.low <= narrow.low + 1e-9
        assert wide.high >= narrow.high - 1e-9


WORLDS = {name: Confounded(1.5, name) for name in ("quality", "cost")}


@given(seeds)
@settings(max_examples=10, deadline=None)
def test_bounds_of_the_opposite_outcome_are_mirrored(seed: int) -> None:
    evidence, policy = WORLDS["cost"].draw(np.random.default_rng(seed), 300)
    other = replace(evidence, outcome=-evidence.outcome, model=-evidence.model)
    found, mirrored = (change_bounds(one, policy, 2.0, confidence=CONFIDENCE) for one in (evidence, other))
    # Cells of equal size may be cut one row apart from the other side.
    assert mirrored.low == pytest.approx(-found.high, rel=0.05)
    assert mirrored.high == pytest.approx(-found.low, rel=0.05)


def test_where_the_log_always_takes_the_policys_action_nothing_is_in_doubt() -> None:
    n = 200
    certain = np.tile([1.0, 0.0], (n, 1))
    outcome = np.random.default_rng(3).random(n)
    evidence = Evidence(outcome, np.ones(n), np.zeros(n, dtype=np.int64), certain, certain, np.arange(n))
    found = change_bounds(evidence, certain, 10.0, confidence=CONFIDENCE)
    assert (found.low, found.high) == pytest.approx((0.0, 0.0))
    assert tipping_point(evidence, certain, -0.01) == MOST_GAMMA


def test_the_tipping_point_is_where_the_bound_meets_the_threshold() -> None:
    """By the formula the bound of the worst case is 1 / 12 - (Gamma - 1) / 6, so it meets 0 at Gamma = 1.5; the limit,
    0.0075 below at n = 40,000, 0.045 earlier. Five standard errors are 0.12."""
    evidence, policy = worst_case(np.random.default_rng(4), 40_000)
    tipping = tipping_point(evidence, policy, 0.0)
    assert tipping == pytest.approx(1.45, abs=0.12)
    assert change_bounds(evidence, policy, tipping, confidence=0.95).low_limit >= 0
    assert change_bounds(evidence, policy, tipping + 0.01, confidence=0.95).low_limit < 0


def test_a_claim_that_does_not_hold_at_all_has_no_tipping_point() -> None:
    evidence, policy = worst_case(np.random.default_rng(5), 1000)
    assert tipping_point(evidence, policy, 0.5) is None
    assert tipping_point(evidence, policy, 0.0, stays="below") is None


def test_a_fall_has_a_tipping_point_from_above() -> None:
    evidence, policy = worst_case(np.random.default_rng(6), 40_000)
    falling = replace(evidence, outcome=1 - evidence.outcome, model=1 - evidence.model)
    above, below = tipping_point(evidence, policy, 0.0), tipping_point(falling, policy, 0.0, stays="below")
    assert above == pytest.approx(below, abs=0.01)


def test_missing_outcomes_count_by_their_chance() -> None:
    """Half of 40,000 outcomes missing at random leaves the bound where it is, within five standard errors of 0.005."""
    evidence, policy = worst_case(np.random.default_rng(7), 40_000)
    outcome = evidence.outcome.copy()
    outcome[np.random.default_rng(8).random(len(outcome)) < 0.5] = np.nan
    partly = replace(evidence, outcome=outcome, known=np.full(40_000, 0.5))
    assert change_bounds(partly, policy, 2.0, confidence=CONFIDENCE).low == pytest.approx(WORST_TRUTH, abs=0.025)


def test_a_gamma_below_one_and_a_log_without_outcomes_are_refused() -> None:
    evidence, policy = worst_case(np.random.default_rng(9), 100)
    with pytest.raises(ValueError, match="at least 1"):
        change_bounds(evidence, policy, 0.5, confidence=CONFIDENCE)
    blank = replace(evidence, outcome=np.full(100, np.nan))
    with pytest.raises(ValueError, match="no decision with a known outcome"):
        change_bounds(blank, policy, 2.0, confidence=CONFIDENCE)
