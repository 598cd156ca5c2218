"""Laws of the off-policy estimators."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from optimizer.dataset import Floats
from optimizer.ope.estimators import ESTIMATORS, Evidence, direct, doubly_robust, effective, ips, snips, today


def evidence(seed: int = 0, n: int = 200, a: int = 3, missing: float = 0.0) -> Evidence:
    rng = np.random.default_rng(seed)
    behaviour = rng.dirichlet(np.ones(a) * 3, size=n) * 0.94 + 0.02
    behaviour /= behaviour.sum(axis=1, keepdims=True)
    actions = np.array([rng.choice(a, p=row) for row in behaviour])
    outcome = rng.random(n)
    outcome[rng.random(n) < missing] = np.nan
    return Evidence(outcome, np.full(n, 1 - missing), actions, behaviour, rng.random((n, a)), np.arange(n))


def some_policy(seed: int, n: int = 200, a: int = 3) -> Floats:
    policy: Floats = np.random.default_rng(seed).dirichlet(np.ones(a), size=n)
    return policy


seeds = st.integers(0, 10_000)


@given(seeds)
@settings(max_examples=25, deadline=None)
def test_on_policy_self_normalised_value_is_the_mean_outcome(seed: int) -> None:
    found = evidence(seed)
    assert snips(found, found.behaviour).mean() == pytest.approx(found.outcome.mean())


@given(seeds)
@settings(max_examples=25, deadline=None)
def test_doubly_robust_with_a_zero_model_is_importance_sampling(seed: int) -> None:
    found = evidence(seed)
    blank = Evidence(found.outcome, found.known, found.actions, found.behaviour, 0 * found.model, found.groups)
    policy = some_policy(seed + 1)
    assert doubly_robust(blank, policy) == pytest.approx(ips(found, policy))


@given(seeds)
@settings(max_examples=25, deadline=None)
def test_a_perfect_model_makes_doubly_robust_the_direct_method(seed: int) -> None:
    found = evidence(seed)
    model = found.model.copy()
    model[np.arange(len(model)), found.actions] = found.outcome
    perfect = Evidence(found.outcome, found.known, found.actions, found.behaviour, model, found.groups)
    policy = some_policy(seed + 1)
    assert doubly_robust(perfect, policy) == pytest.approx(direct(perfect, policy))


@given(seeds, st.permutations(range(200)))
@settings(max_examples=15, deadline=None)
def test_the_order_of_decisions_changes_nothing(seed: int, order: list[int]) -> None:
    found, policy, rows = evidence(seed, missing=0.2), some_policy(seed + 1), np.array(order)
    shuffled = Evidence(
        found.outcome[rows],
        found.known[rows],
        found.actions[rows],
        found.behaviour[rows],
        found.model[rows],
        found.groups[rows],
    )
    for estimator in ESTIMATORS.values():
        assert estimator(shuffled, policy[rows]).mean() == pytest.approx(estimator(found, policy).mean())


def test_todays_value_is_the_doubly_robust_value_of_the_behaviour() -> None:
    found = evidence(3, missing=0.3)
    assert today(found) == pytest.approx(doubly_robust(found, found.behaviour))


def test_missing_outcomes_are_made_up_for_by_the_known_ones() -> None:
    """Outcomes are missing at random for 40 % of 20,000 rows; 5 standard errors of the difference are 0.02."""
    whole = evidence(5, n=20_000)
    outcome = whole.outcome.copy()
    outcome[np.random.default_rng(6).random(len(outcome)) < 0.4] = np.nan
    partial = Evidence(outcome, np.full(20_000, 0.6), whole.actions, whole.behaviour, whole.model, whole.groups)
    assert ips(partial, whole.behaviour).mean() == pytest.approx(whole.outcome.mean(), abs=0.02)
    assert today(partial).mean() == pytest.approx(whole.outcome.mean(), abs=0.02)
    assert snips(partial, whole.behaviour).mean() == pytest.approx(whole.outcome.mean(), abs=0.02)


def test_doubly_robust_finds_the_truth_of_another_policy() -> None:
    """The outcome of action k is k / 2 plus noise, so a policy's value is its mean action / 2. Five standard errors at
    n = 20,000 with weights up to 50 are below 0.05."""
    rng = np.random.default_rng(1)
    base = evidence(8, n=20_000)
    outcome = base.actions / 2 + rng.normal(0, 0.1, 20_000)
    policy = some_policy(9, n=20_000)
    truth = float((policy @ (np.arange(3) / 2)).mean())
    wrong_model = Evidence(outcome, base.known, base.actions, base.behaviour, base.model, base.groups)
    assert doubly_robust(wrong_model, policy).mean() == pytest.approx(truth, abs=0.05)
    assert snips(wrong_model, policy).mean() == pytest.approx(truth, abs=0.05)


def test_equal_weights_count_every_decision() -> None:
    assert effective(np.full(50, 3.0)) == pytest.approx(50)
    assert effective(np.array([1.0, 0.0, 0.0])) == pytest.approx(1)
    assert effective(np.zeros(3)) == 0


def test_shapes_that_do_not_fit_are_refused() -> None:
    found = evidence()
    with pytest.raises(ValueError, match="model must be"):
        Evidence(found.outcome, found.known, found.actions, found.behaviour, found.model[:, :2], found.groups)
