"""Planned labels: known probabilities, unbiased estimates, less variance than labels at random."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from optimizer.dataset import Floats
from optimizer.label_plan import (
    FLOOR,
    PER_ACTION,
    draw,
    expected_half_width,
    importance,
    inclusion,
    plan,
    smallest_budget,
    smallest_sufficient,
)
from optimizer.ope.estimators import Evidence, doubly_robust, today

N = 2000
BUDGET = 400


def world(seed: int = 0) -> tuple[Evidence, Floats, Floats]:
    """Evidence with all outcomes known, a policy, and the spread of quality: wide on odd prompts, narrow on even."""
    rng = np.random.default_rng(seed)
    behaviour = np.tile([0.7, 0.2, 0.1], (N, 1))
    actions = (rng.random(N)[:, None] > np.cumsum(behaviour, axis=1)[:, :-1]).sum(axis=1)
    spread = np.where(np.arange(N) % 2, 0.3, 0.02)
    outcome = np.clip(0.5 + 0.1 * actions + spread * rng.normal(size=N), 0, 1)
    model = np.tile([0.45, 0.65, 0.6], (N, 1))  # wrong on purpose
    policy = np.tile([0.1, 0.1, 0.8], (N, 1))
    return Evidence(outcome, np.ones(N), actions.astype(np.int64), behaviour, model, np.arange(N)), policy, spread


def needs(evidence: Evidence, policy: Floats, spread: Floats) -> Floats:
    taken = policy[evidence.rows, evidence.actions] / evidence.behaviour[evidence.rows, evidence.actions]
    return importance(taken, spread)


def estimates(evidence: Evidence, policy: Floats, chances: Floats, repeats: int) -> Floats:
    """The change of quality by `repeats` draws of which outcomes are known."""
    found = []
    for seed in range(repeats):
        outcome = np.full(N, np.nan)
        rows = draw(chances, evidence.actions, seed)
        outcome[rows] = evidence.outcome[rows]
        seen = Evidence(outcome, chances, evidence.actions, evidence.behaviour, evidence.model, evidence.groups)
        found.append(float((doubly_robust(seen, policy) - today(seen)).mean()))
    return np.array(found)


def test_the_estimate_from_planned_labels_is_unbiased_and_varies_less_than_from_as_many_at_random() -> None:
    """400 draws of 400 labels of 2,000. Mean within 4 standard errors of the estimate with all labels (6e-5 by
    chance); variances must differ by 30 %, three of the ratio's standard errors of 10 %."""
    evidence, policy, spread = world()
    truth = float((doubly_robust(evidence, policy) - today(evidence)).mean())
    planned = estimates(evidence, policy, inclusion(needs(evidence, policy, spread), evidence.actions, BUDGET), 400)
    uniform = estimates(evidence, policy, np.full(N, BUDGET / N), 400)
    assert abs(planned.mean() - truth) < 4 * planned.std() / 20
    assert planned.var() < 0.7 * uniform.var()


def test_ignoring_the_known_probabilities_is_biased() -> None:
    evidence, policy, spread = world()
    odd = evidence.outcome + np.where(np.arange(N) % 2, 0.0, 0.3)  # quality differs where labels are rare
    evidence = Evidence(odd, evidence.known, evidence.actions, evidence.behaviour, evidence.model, evidence.groups)
    chances = inclusion(needs(evidence, policy, spread), evidence.actions, BUDGET)
    truth = float((doubly_robust(evidence, policy) - today(evidence)).mean())
    found = []
    for seed in range(100):
        outcome = np.full(N, np.nan)
        rows = draw(chances, evidence.actions, seed)
        outcome[rows] = odd[rows]
        blind = Evidence(outcome, np.full(N, 0.2), evidence.actions, evidence.behaviour, evidence.model, np.arange(N))
        found.append(float((doubly_robust(blind, policy) - today(blind)).mean()))
    assert abs(np.mean(found) - truth) > 4 * np.std(found) / 10


def test_rows_are_drawn_with_their_probabilities() -> None:
    """4,000 draws: a share is within 5 standard errors of its probability for all of 60 rows (false alarm 4e-5)."""
    actions = np.repeat([0, 1, 2], 20)
    chances = np.random.default_rng(0).uniform(0.05, 1.0, 60)
    hits = np.zeros(60)
    for seed in range(4000):
        hits[draw(chances, actions, seed)] += 1
    assert (np.abs(hits / 4000 - chances) <= 5 * np.sqrt(chances * (1 - chances) / 4000) + 1e-9).all()


@settings(max_examples=50)
@given(st.integers(0, 1000), st.integers(1, 400), st.floats(0, 1))
def test_probabilities_keep_their_floors_and_sum_to_the_budget(seed: int, n: int, part: float) -> None:
    rng = np.random.default_rng(seed)
    actions = rng.integers(0, 4, n)
    least = smallest_budget(actions)
    budget = least + int(part * (n - least))
    chances = inclusion(rng.exponential(size=n) * (rng.random(n) < 0.7), actions, budget)
    assert chances.sum() == pytest.approx(budget, abs=1.0)
    assert chances.min() >= FLOOR - 1e-12
    assert chances.max() <= 1 + 1e-12
    drawn = np.bincount(actions[draw(chances, actions, seed)], minlength=4)
    assert (drawn >= np.minimum(PER_ACTION, np.bincount(actions, minlength=4)) - 1e-9).all()


def test_too_small_a_budget_is_refused() -> None:
    with pytest.raises(ValueError, match="the floors take 60"):
        inclusion(np.ones(600), np.repeat([0, 1], 300), 40)


def test_the_smallest_sufficient_budget_reaches_the_wanted_width_and_one_less_does_not() -> None:
    evidence, policy, spread = world()
    need = needs(evidence, policy, spread)

    def width(budget: int) -> float:
        return expected_half_width(need, inclusion(need, evidence.actions, budget), 0.1, N, N // 5, 1.96)

    wanted = width(700) + 1e-9
    found = smallest_sufficient(need, evidence.actions, wanted, 0.1, N, N // 5, 1.96)
    assert width(found) <= wanted < width(found - 1)
    assert smallest_sufficient(need, evidence.actions, 0.0, 0.1, N, N // 5, 1.96) == N


def test_the_same_seed_draws_the_same_rows() -> None:
    evidence, policy, spread = world()
    need = needs(evidence, policy, spread)
    first, second = (
        plan(need, evidence.actions, 300, settled=0.1, rows=N, judged=N // 5, z=1.96, seed=3) for _ in range(2)
    )
    assert first.picked.tolist() == second.picked.tolist()
    assert len(first.picked) == pytest.approx(300, abs=3)
