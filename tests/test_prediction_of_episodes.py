"""Prediction intervals of orchestrations hold the mean of new episodes as often as they say."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import mdp
import numpy as np
import pytest

from optimizer.dataset import Floats
from optimizer.evidence import Metric, Refused, savings
from optimizer.gate import Estimate
from optimizer.ope.estimators import Evidence
from optimizer.prediction import Forecast, forecast, forecast_of, forecasts_json
from optimizer.rollout.predicted import predicted
from optimizer.sequential import evaluation
from optimizer.sequential.episodes import OUTCOMES, EpisodeLog
from optimizer.sequential.forecasts import Judged, forecasts
from optimizer.summary import estimate_json

Rule = Callable[[Floats], Floats]
"""features (m, d) of the orchestration -> (m, a)."""
EPSILON = 0.3


def script(features: Floats) -> Floats:
    stage = features[:, -2].astype(int)
    return np.eye(mdp.ACTIONS)[np.asarray(mdp.SCRIPT)[stage]]


def explored(features: Floats) -> Floats:
    """What made the logs."""
    return (1 - EPSILON) * script(features) + EPSILON / mdp.ACTIONS


def expert_for_the_hard(features: Floats) -> Floats:
    """As the logs, but for hard tasks often the expert at the third step."""
    policy = explored(features)
    rows = (features[:, -2] == 2) & (features[:, 2] == 1)
    policy[rows] = 0.7 * policy[rows] + 0.3 * np.eye(mdp.ACTIONS)[4]
    return policy


def played(rule: Rule, episodes: int, rng: np.random.Generator) -> tuple[Floats, Floats]:
    """Quality and cost (episodes,) of new ones, played to their end."""
    kind = rng.integers(mdp.TYPES, size=episodes)
    progress, last = np.zeros(episodes, dtype=np.int64), np.full(episodes, mdp.ACTIONS)
    alive, cost = np.ones(episodes, dtype=bool), np.zeros(episodes)
    for stage in range(mdp.STAGES):
        chances = rule(mdp.features(kind, progress, last, np.full(episodes, stage)))
        action = (rng.random(episodes)[:, None] > chances.cumsum(axis=1)).sum(axis=1).clip(max=mdp.ACTIONS - 1)
        action = np.where(alive, action, mdp.ACTIONS - 1)
        cost += mdp.COST[action]
        progress += (rng.random(episodes) < mdp.CHANCE[kind, last, np.minimum(action, 4)]) & (action < 5)
        progress = np.minimum(progress, mdp.PROGRESS - 1)
        last, alive = action, alive & (action < mdp.ACTIONS - 1)
    return (rng.random(episodes) < mdp.QUALITY[progress]).astype(np.float64), cost


def judged(log: EpisodeLog, rule: Rule, model: evaluation.FittedOutcomes | None = None, share: float = 1.0) -> Judged:
    none = np.zeros((len(OUTCOMES), *log.behaviour.shape))
    guess = none if model is None else model.predict(log.features)
    return Judged(log, rule(log.features), guess, guess, share)


def ahead(of: Judged) -> dict[Metric, Forecast | Refused]:
    changes = evaluation.change(of.log, of.policy, of.model, of.today, confidence=0.95)
    return forecasts(of, changes, confidence=0.95)


def known(of: Judged, metric: Metric) -> Forecast:
    found = ahead(of)[metric]
    assert isinstance(found, Forecast)
    return found


PARTS = ((60, 1.0), (600, 0.5))
"""New episodes, and the share of them under the policy."""
LOGS = 120


def test_the_mean_of_new_episodes_lies_inside_as_often_as_said() -> None:
    """120 logs of 1,000 episodes, seeds 0-119, nominal 95 %: at least 0.95 less three binomial standard errors of 2.0
    points in each of eight cells, and of all at most 0.985, which intervals a quarter too wide would exceed."""
    teaching = mdp.draw(1500, 10_000, one_step=False, epsilon=EPSILON)
    model = evaluation.fitted_outcomes(teaching, teaching.behaviour, seed=0)
    rng = np.random.default_rng(7)
    hits: dict[tuple[int, Metric, str], list[bool]] = {}
    for seed in range(LOGS):
        of = judged(mdp.draw(1000, seed, one_step=False, epsilon=EPSILON), expert_for_the_hard, model)
        changes = evaluation.change(of.log, of.policy, of.model, of.today, confidence=0.95)
        today = evaluation.doubly_robust(of.log, of.log.behaviour, of.today).mean(axis=1)
        for m, share in PARTS:
            found = forecasts(replace(of, share=share), changes, confidence=0.95)
            part = rng.random(m) < share
            routed, rest, control = (played(rule, m, rng) for rule in (expert_for_the_hard, explored, explored))
            for metric in ("quality", "cost_usd"):
                place, one = OUTCOMES.index(metric), found[metric]
                assert isinstance(one, Forecast)
                mean = float(np.where(part, routed[place], rest[place]).mean())
                alone, both = one.after(m), one.beside(m, m)
                hits.setdefault((m, metric, "after"), []).append(alone.low <= mean - today[place] <= alone.high)
                change = mean - float(control[place].mean())
                hits.setdefault((m, metric, "beside"), []).append(both.low <= change <= both.high)
    assert {cell: np.mean(of) for cell, of in hits.items() if np.mean(of) < 0.89} == {}
    assert np.mean(list(hits.values())) <= 0.985


def test_the_spread_is_that_of_the_policys_own_episodes() -> None:
    """5,000 logged episodes for 50,000 played ones: 10 %, three standard errors of the weights' standard deviation."""
    of = judged(mdp.draw(5000, 1, one_step=False, epsilon=EPSILON), expert_for_the_hard)
    quality, cost = played(expert_for_the_hard, 50_000, np.random.default_rng(2))
    assert known(of, "quality").spread.size == pytest.approx(float(quality.std()), rel=0.1)
    assert known(of, "cost_usd").spread.size == pytest.approx(float(cost.std()), rel=0.1)
    assert known(of, "cost_usd").today_spread.size == pytest.approx(
        float(np.bincount(of.log.episode, of.log.cost_usd).std()), rel=0.01
    )


def test_where_stopping_is_known_the_spread_is_that_of_the_stopped_episodes() -> None:
    """All stop before the fourth decision: the cost of the first three, and the quality that was known there. The cost
    is 0.07 always; the estimated mean is off by at most three standard errors of 0.07 sqrt(var(w) / 3000) = 0.0011."""
    log = mdp.draw(3000, 3, one_step=False, epsilon=EPSILON)
    log = replace(log, stop_quality=mdp.QUALITY[log.features[:, 3].astype(int)])
    policy = np.where((log.step == 3)[:, None], np.eye(mdp.ACTIONS)[5], script(log.features))
    nothing = np.zeros((len(OUTCOMES), *log.behaviour.shape))
    of = Judged(log, policy, nothing, nothing)

    def stopped(features: Floats) -> Floats:
        return np.where(features[:, -2:-1] == 3, np.eye(mdp.ACTIONS)[5], script(features))

    _, cost = played(stopped, 10_000, np.random.default_rng(4))
    assert known(of, "cost_usd").spread.size == pytest.approx(float(cost.std()), abs=3.2e-3)
    assert (
        0.0 < known(of, "quality").spread.size < 0.35
    )  # a probability, not yet a draw: half as wide as right or wrong


def test_an_episode_of_one_decision_is_a_decision() -> None:
    rng = np.random.default_rng(5)
    n, behaviour, policy = 800, np.tile([0.4, 0.6], (800, 1)), np.tile([0.9, 0.1], (800, 1))
    actions = (rng.random(n) > 0.4).astype(np.int64)
    cost, model = rng.gamma(2.0, 1.0, n) * (1 + actions), rng.random((n, 2))
    log = EpisodeLog(
        features=np.zeros((n, 1)),
        actions=actions,
        behaviour=np.column_stack([behaviour, np.zeros(n)]),
        cost_usd=cost,
        latency_s=np.ones(n),
        stop_quality=np.full(n, np.nan),
        episode=np.arange(n),
        quality=rng.random(n),
        groups=np.arange(n) // 2,
        time_ns=np.arange(n),
        action_names=("small", "large", "STOP"),
        propensities_logged=True,
    )
    values = np.zeros((len(OUTCOMES), n, 3))
    values[1, :, :2] = model
    found = known(Judged(log, np.column_stack([policy, np.zeros(n)]), values, values), "cost_usd")
    single = forecast(Evidence(cost, np.ones(n), actions, behaviour, model, log.groups), policy, confidence=0.95)
    for name in ("error", "policy_error", "spread"):
        assert getattr(found, name).size == pytest.approx(getattr(single, name).size)
        assert getattr(found, name).freedom == pytest.approx(getattr(single, name).freedom)


def test_what_is_refused_is_not_predicted() -> None:
    log = mdp.draw(300, 6, one_step=False, epsilon=EPSILON)
    of = judged(replace(log, cost_usd=np.where(log.episode == 3, np.nan, log.cost_usd)), explored)
    said = forecasts_json(ahead(of))
    assert said["savings_usd_per_1k"] is None
    assert forecast_of(said["quality_change"]) is not None
    assert forecasts_json({}) == dict.fromkeys(said)


def test_a_rollout_shows_what_was_predicted_of_its_episodes() -> None:
    of = judged(mdp.draw(1000, 8, one_step=False, epsilon=EPSILON), expert_for_the_hard)
    changes = evaluation.change(of.log, of.policy, of.model, of.today, confidence=0.95)
    cost = changes["cost_usd"]
    assert isinstance(cost, Estimate)
    kept = forecasts_json(forecasts(of, changes, confidence=0.95))
    said = predicted({"savings_usd_per_1k": estimate_json(savings(cost)), "predicted": kept})["cost_usd_per_1k"]
    told = forecast_of(said["forecast"])
    assert told is not None
    assert told.scaled(-1.0).value == pytest.approx(said["value"]) == pytest.approx(1000 * cost.value)
    few, many = told.beside(30, 30), told.beside(3000, 3000)
    assert few.high - few.low > many.high - many.low > said["high"] - said["low"]
