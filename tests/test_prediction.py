"""Prediction intervals hold the mean of new decisions as often as they say, and are no wider than they must be."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, replace

import numpy as np
import pytest

from optimizer.dataset import Floats
from optimizer.ope.estimators import Evidence
from optimizer.prediction import Doubt, Forecast, forecast, forecast_of

COST = np.array([[1.0, 4.0, 9.0], [2.0, 5.0, 12.0]])
"""Mean outcome by kind of prompt and action."""
BEHAVIOUR = np.array([[0.2, 0.3, 0.5], [0.3, 0.4, 0.3]])
POLICY = np.array([[0.9, 0.05, 0.05], [0.05, 0.9, 0.05]])


def drawn(rng: np.random.Generator, shares: Floats, n: int, session: int) -> tuple[Floats, Floats, Floats, Floats]:
    """Kinds, actions, outcomes and sessions of n decisions; those of a session have a kind and a shift in common."""
    groups = np.arange(n) // session
    kinds = (rng.random(groups[-1] + 1) < 0.4).astype(np.int64)[groups]
    actions = (rng.random(n)[:, None] > shares[kinds].cumsum(axis=1)).sum(axis=1).clip(max=2)
    shift = rng.normal(0.0, 1.0, groups[-1] + 1)[groups] if session > 1 else 0.0
    outcome = COST[kinds, actions] * rng.gamma(4.0, 0.25, n) + shift
    return kinds, actions, outcome, groups


def log(rng: np.random.Generator, n: int, session: int) -> Evidence:
    """A log with a model that knows the actions, not the prompts."""
    kinds, actions, outcome, groups = drawn(rng, BEHAVIOUR, n, session)
    model = np.tile(COST.mean(axis=0), (n, 1))
    return Evidence(outcome, np.ones(n), actions, BEHAVIOUR[kinds], model, groups), POLICY[kinds]


@pytest.mark.parametrize(("n", "m", "session"), [(400, 50, 1), (400, 2000, 1), (2000, 200, 1), (600, 600, 4)])
def test_the_mean_of_new_decisions_lies_inside_as_often_as_said(n: int, m: int, session: int) -> None:
    """500 logs, 95 %: at least 0.95 less three binomial standard errors and the asymptotic part; at most 0.985."""
    rng = np.random.default_rng(n + m)
    after, beside = [], []
    for _ in range(500):
        evidence, policy = log(rng, n, session)
        found = forecast(evidence, policy, confidence=0.95)
        today = float(np.mean((evidence.behaviour * evidence.model).sum(axis=1) + evidence.residual))
        treated = drawn(rng, POLICY, m, session)[2].mean()
        control = drawn(rng, BEHAVIOUR, m, session)[2].mean()
        past, both = found.after(m), found.beside(m, m)
        after.append(past.low <= treated - today <= past.high)
        beside.append(both.low <= treated - control <= both.high)
    assert 0.915 <= np.mean(after) <= 0.985
    assert 0.915 <= np.mean(beside) <= 0.985


def test_more_decisions_narrow_it_down_to_the_error_of_the_estimate() -> None:
    evidence, policy = log(np.random.default_rng(1), 1000, 1)
    found = forecast(evidence, policy, confidence=0.95)
    few, many, all_there_are = (found.after(m) for m in (10, 1000, 10**9))
    width = [one.high - one.low for one in (few, many, all_there_are)]
    assert width[0] > 2 * width[1] > 2 * width[2]
    assert width[2] == pytest.approx(2 * 1.96 * found.policy_error.size, rel=0.02)
    assert few.value == many.value


def test_the_policy_of_today_is_predicted_to_change_nothing() -> None:
    evidence, _ = log(np.random.default_rng(2), 1000, 1)
    found = forecast(evidence, evidence.behaviour, confidence=0.95)
    assert found.value == pytest.approx(0.0, abs=1e-12)
    assert found.error.size == pytest.approx(0.0, abs=1e-12)
    assert found.spread.size == pytest.approx(float(np.std(evidence.outcome)), rel=0.02)


def test_unknown_outcomes_count_through_the_known_ones() -> None:
    evidence, policy = log(np.random.default_rng(3), 4000, 1)
    known = np.random.default_rng(4).random(4000) < 0.5
    half = replace(evidence, outcome=np.where(known, evidence.outcome, np.nan), known=np.full(4000, 0.5))
    whole, part = (forecast(one, policy, confidence=0.95) for one in (evidence, half))
    assert part.spread.size == pytest.approx(whole.spread.size, rel=0.1)
    assert part.policy_error.size > 1.2 * whole.policy_error.size


def test_savings_are_changes_with_the_sign_turned() -> None:
    found = Forecast(-0.002, *(Doubt(size, 50.0) for size in (1e-4, 1e-4, 1e-3, 2e-3)), 0.95, "asymptotic")
    change, saving = found.after(100), found.scaled(-1000.0).after(100)
    assert (saving.value, saving.low, saving.high) == pytest.approx((2.0, -1000 * change.high, -1000 * change.low))


def test_a_forecast_comes_back_from_json() -> None:
    evidence, policy = log(np.random.default_rng(5), 500, 1)
    found = forecast(evidence, policy, confidence=0.9)
    assert forecast_of(json.loads(json.dumps(asdict(found)))) == found
    assert forecast_of(None) is None


def test_one_session_predicts_nothing() -> None:
    evidence, policy = log(np.random.default_rng(6), 50, 50)
    found = forecast(evidence, policy, confidence=0.95).after(10)
    assert (found.low, found.high) == (-math.inf, math.inf)


def test_a_mean_of_no_decisions_is_refused() -> None:
    evidence, policy = log(np.random.default_rng(7), 50, 1)
    with pytest.raises(ValueError, match="a mean needs a decision"):
        forecast(evidence, policy, confidence=0.95).after(0)
