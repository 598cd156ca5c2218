"""Policies of many steps, on an orchestration whose truth is known exactly."""

from __future__ import annotations

from dataclasses import replace

import mdp
import numpy as np
import pytest

from optimizer.dataset import Floats
from optimizer.evidence import Refused
from optimizer.gate import Estimate
from optimizer.ope.intervals import mean_interval
from optimizer.rewards import RewardSpec
from optimizer.sequential.episodes import OUTCOMES, STOP, EpisodeLog
from optimizer.sequential.evaluation import carried, change, doubly_robust, fitted_outcomes, per_decision
from optimizer.sequential.fitted_q import returns, utility


def no_model(log: EpisodeLog) -> Floats:
    return np.zeros((len(OUTCOMES), *log.behaviour.shape))


def expert_for_the_hard(log: EpisodeLog, stage: int = 2) -> Floats:
    """The script, but for one stage, at which hard tasks go to the expert."""
    policy = np.eye(mdp.ACTIONS)[np.asarray(mdp.SCRIPT)[log.step]]
    policy[(log.features[:, 2] == 1) & (log.step == stage)] = np.eye(mdp.ACTIONS)[4]
    return policy


def truth_of_expert(stage: int = 2) -> float:
    policy = mdp.of_script()
    kind, _, _ = mdp.states()
    policy[stage][kind == 2] = np.eye(mdp.ACTIONS)[4]
    return mdp.exact(policy)


def small(**changes: object) -> EpisodeLog:
    """Two episodes: two helpers and STOP; one helper, then the end."""
    log = EpisodeLog(
        features=np.arange(10, dtype=np.float64).reshape(5, 2),
        actions=np.array([0, 1, 2, 0, 1]),
        behaviour=np.full((5, 3), 1 / 3),
        cost_usd=np.array([1.0, 2.0, 0.0, 3.0, 1.0]),
        latency_s=np.ones(5),
        stop_quality=np.full(5, np.nan),
        episode=np.array([0, 0, 0, 1, 1]),
        quality=np.array([1.0, 0.5]),
        groups=np.array([0, 1]),
        time_ns=np.array([0, 1]),
        action_names=("a", "b", STOP),
        propensities_logged=True,
    )
    return replace(log, **changes)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"action_names": ("a", "b", "c")}, "the last action must be STOP"),
        ({"actions": np.array([2, 1, 2, 0, 1])}, "row 0 of episode 0 stops, yet others follow it"),
        ({"episode": np.array([0, 1, 0, 1, 1])}, "order of their 2 episodes"),
        ({"episode": np.array([0, 0, 0, 0, 0])}, "at least one in each"),
        ({"cost_usd": np.zeros(4)}, r"cost_usd must be \(5,\)"),
        ({"behaviour": np.full((5, 3), 0.5)}, "sum to 1"),
        ({"behaviour": np.tile([0.0, 0.5, 0.5], (5, 1))}, "probability 0"),
    ],
)
def test_arrays_that_cannot_be_right_are_refused(changes: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        small(**changes)


def test_steps_and_ends_are_found() -> None:
    log = small()
    assert log.step.tolist() == [0, 1, 2, 0, 1]
    assert log.last.tolist() == [False, False, True, False, True]
    assert log.horizon == 3
    assert returns(log, utility(log, RewardSpec(10.0))).tolist() == pytest.approx([0.7, 0.8, 1.0, 0.1, 0.4])


def test_taking_episodes_keeps_them_whole() -> None:
    taken = small().take(np.array([1, 0, 1]))
    assert taken.actions.tolist() == [0, 1, 0, 1, 2, 0, 1]
    assert taken.episode.tolist() == [0, 0, 1, 1, 1, 2, 2]
    assert taken.quality.tolist() == [0.5, 1.0, 0.5]


def test_the_logged_behaviour_is_worth_what_was_seen() -> None:
    """Without a model its scores are the returns, and every episode stands for itself."""
    log = mdp.draw(300, 0)
    scores = doubly_robust(log, log.behaviour, no_model(log))
    assert scores[0] == pytest.approx(log.quality)
    assert scores[1] == pytest.approx(np.bincount(log.episode, log.cost_usd))
    assert carried(log, log.behaviour) == pytest.approx(np.ones(300))
    assert per_decision(log, log.behaviour)[0].mean() == pytest.approx(log.quality.mean())


def test_stopping_earlier_is_replayed_exactly() -> None:
    """A script that never varies says nothing of other helpers, but all of stopping, where that outcome is known."""
    rng = np.random.default_rng(0)
    n, steps = 50, 4
    behaviour = np.tile([1.0, 0.0], (n * steps, 1))
    stop_quality = rng.random(n * steps)
    log = EpisodeLog(
        features=rng.normal(size=(n * steps, 2)),
        actions=np.zeros(n * steps, dtype=np.int64),
        behaviour=behaviour,
        cost_usd=np.ones(n * steps),
        latency_s=np.ones(n * steps),
        stop_quality=stop_quality,
        episode=np.repeat(np.arange(n), steps),
        quality=rng.random(n),
        groups=np.arange(n),
        time_ns=np.arange(n),
        action_names=("go on", STOP),
        propensities_logged=True,
    )
    policy = np.where((log.step == 2)[:, None], [0.0, 1.0], behaviour)
    wrong_model = rng.random((len(OUTCOMES), n * steps, 2))
    quality, cost, _ = doubly_robust(log, policy, wrong_model)
    assert quality == pytest.approx(stop_quality[log.step == 2])
    assert cost == pytest.approx(np.full(n, 2.0))
    assert carried(log, policy) == pytest.approx(np.ones(n))
    assert log.supported[:, 1].all()


def test_intervals_hold_the_truth_of_another_policy() -> None:
    """Without any model, the weights alone: 95 % of 200 logs, less two standard errors of 1.5 points."""
    truth, hits, weight = truth_of_expert(), 0, []
    for seed in range(200):
        log = mdp.draw(1500, seed)
        policy = expert_for_the_hard(log)
        quality, cost, _ = doubly_robust(log, policy, no_model(log))
        stands = carried(log, policy)
        weight.append(stands.mean())
        found = mean_interval(
            quality - cost, log.groups, confidence=0.95, estimator="sequential DR", effective=0.0, kind="asymptotic"
        )
        hits += found.low <= truth <= found.high
    assert hits / 200 >= 0.92
    assert np.mean(weight) == pytest.approx(1.0, abs=0.02)  # its spread over logs is 0.06, a standard error of 0.004


def test_a_fitted_model_narrows_the_interval_and_leaves_it_on_the_truth() -> None:
    """Four standard errors of one log; the model, of other episodes, takes away at least a tenth of the error."""
    earlier, log = mdp.draw(1500, 0), mdp.draw(1500, 1)
    model = fitted_outcomes(earlier, expert_for_the_hard(earlier), seed=0).predict(log.features)
    policy = expert_for_the_hard(log)
    errors = []
    for guess in (model, no_model(log)):
        quality, cost, _ = doubly_robust(log, policy, guess)
        errors.append(float((quality - cost).std()) / np.sqrt(len(log)))
        assert abs(float((quality - cost).mean()) - truth_of_expert()) < 4 * errors[-1]
    assert errors[0] < 0.9 * errors[1]


def test_a_policy_of_few_effective_episodes_gets_no_number() -> None:
    log = mdp.draw(400, 0)
    found = change(log, expert_for_the_hard(log), no_model(log), no_model(log), confidence=0.95)
    assert isinstance(found["quality"], Refused)
    assert "effective episodes; below 100" in found["quality"].reason


def test_todays_own_change_is_nothing() -> None:
    log = mdp.draw(400, 0)
    found = change(log, log.behaviour, no_model(log), no_model(log), confidence=0.95)
    for outcome in found.values():
        assert isinstance(outcome, Estimate)
        assert (outcome.low, outcome.value, outcome.high) == (0.0, 0.0, 0.0)
