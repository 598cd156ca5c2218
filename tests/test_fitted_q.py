"""What is learned of orchestration: laws, and what the learned policy truly gains where the optimum is known."""

from __future__ import annotations

from dataclasses import replace

import mdp
import numpy as np
import pytest

from optimizer.dataset import Floats
from optimizer.rewards import RewardSpec
from optimizer.runtime import DIM, STEP_DENSE, STOP, width
from optimizer.sequential.episodes import EpisodeLog
from optimizer.sequential.fitted_q import fitted_q, greedy, own_columns, returns, stop_margins, tried, utility

NAMES = ("a", "b", STOP)


def log_of(actions: list[list[int]], quality: list[float], **changes: object) -> EpisodeLog:
    """Episodes of the actions a, b, STOP (0, 1, 2), features as a router has them."""
    lengths = [len(one) for one in actions]
    n, starts = sum(lengths), np.cumsum([0, *lengths[:-1]])
    taken = np.concatenate([np.array(one) for one in actions])
    episode = np.repeat(np.arange(len(actions)), lengths)
    step = np.arange(n) - starts[episode]
    features = np.zeros((n, width(NAMES)), dtype=np.float32)
    features[:, DIM] = np.log1p(step)
    log = EpisodeLog(
        features=features,
        actions=taken,
        behaviour=np.full((n, 3), 1 / 3),
        cost_usd=np.zeros(n),
        latency_s=np.zeros(n),
        stop_quality=np.full(n, np.nan),
        episode=episode,
        quality=np.array(quality, dtype=np.float64),
        groups=np.arange(len(actions)),
        time_ns=np.arange(len(actions)),
        action_names=NAMES,
        propensities_logged=True,
    )
    return replace(log, **changes)  # type: ignore[arg-type]


def lower(log: EpisodeLog, sweeps: int = 1) -> Floats:
    learner = fitted_q(log, RewardSpec(1.0), np.ones((len(log.actions), 3), dtype=bool), seed=0, ensemble=2)
    for _ in range(sweeps):
        values = next(learner)
    return values.lower(log.features)


def test_of_one_decision_the_best_is_the_bandits() -> None:
    """Where the prompt says so a is right, else b; 400 episodes of one decision."""
    rng = np.random.default_rng(0)
    kind, action = rng.integers(2, size=400), rng.integers(2, size=400)
    log = log_of([[int(one)] for one in action], (action == kind).astype(float).tolist())
    log.features[:, 3] = kind
    values = lower(log, sweeps=3)
    assert (values[:, :2].argmax(axis=1) == kind).all()
    assert values[np.arange(400), kind] == pytest.approx(1.0, abs=0.05)


def test_stopping_beats_going_on_that_only_costs() -> None:
    """The quality is known at every step and never changes; each further step costs a tenth."""
    rng = np.random.default_rng(1)
    actions = [[0] * int(1 + rng.integers(4)) + [2] for _ in range(300)]
    log = log_of(actions, [0.6] * 300)
    n = len(log.actions)
    cost = np.where(log.actions == 2, 0.0, 0.1)
    log = replace(log, stop_quality=np.where(log.step > 0, 0.6, np.nan), cost_usd=cost)
    values = lower(log, sweeps=2)
    assert (values[log.step > 0].argmax(axis=1) == 2).all()
    assert values[:, 2] == pytest.approx(np.full(n, 0.6), abs=1e-6)
    margins = stop_margins(log, RewardSpec(1.0), seed=0, ensemble=2)
    assert (margins[(log.step > 0) & (log.actions == 0)] > 0.05).all()


def test_going_on_beats_stopping_while_the_answer_gets_better() -> None:
    """An answer is right with 0.2, 0.4, 0.6 or 0.8 after one to four steps, each of which costs 0.01."""
    rng = np.random.default_rng(2)
    actions = [[0] * int(1 + rng.integers(4)) + [2] for _ in range(800)]
    lengths = np.array([len(one) - 1 for one in actions])
    log = log_of(actions, (rng.random(800) < 0.2 * lengths).astype(float).tolist())
    log = replace(log, cost_usd=np.where(log.actions == 2, 0.0, 0.01))
    values = lower(log, sweeps=4)
    assert (values[(log.step > 0) & (log.step < 4)].argmax(axis=1) == 0).all()


def test_without_any_stop_nothing_is_said_of_it() -> None:
    log = log_of([[0, 1], [1, 0], [0, 0], [1, 1]] * 20, [1.0, 0.0] * 40)
    assert np.isnan(stop_margins(log, RewardSpec(1.0), seed=0, ensemble=1)).all()
    values = lower(log)
    assert (values[:, 2] <= values[:, :2].min(axis=1)).all()


def test_the_order_of_episodes_does_not_matter() -> None:
    """But for which episodes the ensemble draws: here all of them belong to one session, which is always drawn."""
    rng = np.random.default_rng(3)
    log = log_of([[int(one), 2] for one in rng.integers(2, size=100)], rng.random(100).tolist())
    log = replace(log, groups=np.zeros(100, dtype=np.int64))
    log.features[:, 3] = np.repeat(rng.normal(size=100), 2)
    order = rng.permutation(100)
    other = lower(log.take(order), sweeps=2)
    assert lower(log, sweeps=2).reshape(100, 2, 3)[order].reshape(-1, 3) == pytest.approx(other, abs=1e-6)


def test_episodes_without_a_score_teach_where_they_lead_to() -> None:
    log = log_of([[0, 2], [1, 2]] * 100, [1.0, 0.0] * 100)
    half = np.where(np.arange(200) < 100, log.quality, np.nan)
    values = lower(replace(log, quality=half), sweeps=2)
    assert np.isfinite(values).all()
    unknown = utility(replace(log, quality=np.full(200, np.nan)), RewardSpec(1.0))
    assert np.isnan(returns(log, unknown)).all()


def test_unsupported_actions_are_never_chosen() -> None:
    values, behaviour = np.array([[1.0, 5.0, 3.0], [2.0, 1.0, 0.0]]), np.array([[0.5, 0.0, 0.5], [1.0, 0.0, 0.0]])
    supported = np.array([[True, False, True], [False, False, False]])
    assert greedy(values, supported, behaviour).tolist() == [[0.0, 0.0, 1.0], [1.0, 0.0, 0.0]]


def test_a_script_that_has_explored_binds_the_app_and_not_the_policy() -> None:
    """In 20 episodes a step is drawn; after b, which is unusual, only the script's a is possible."""
    log = log_of([[1, 0], [0, 0]] * 10, [1.0] * 20)
    behaviour = np.tile([0.8, 0.2, 0.0], (40, 1))
    behaviour[1::4] = [1.0, 0.0, 0.0]
    log = replace(log, behaviour=behaviour)
    assert tried(log)[:, 1].all()
    bound = replace(log, actions=np.zeros(40, dtype=np.int64))  # nothing unusual before it: as it is logged
    assert not tried(bound)[1::4, 1].any()


def test_what_is_told_of_each_action_is_found_in_a_routers_features() -> None:
    log = log_of([[0, 2]], [1.0])
    first = DIM + len(STEP_DENSE)
    assert own_columns(log).tolist() == [[first, first + 1, first + 2], [first + 3, first + 4, first + 5]]
    assert own_columns(mdp.draw(3, 0)).shape == (0, mdp.ACTIONS)


def gain(number: int, sweeps: int = 3) -> float:
    log = mdp.draw(4000, number)
    every = np.ones((len(log.actions), mdp.ACTIONS), dtype=bool)
    learner = fitted_q(log, RewardSpec(1.0), every, seed=0, own=mdp.OWN)
    for _ in range(sweeps):
        values = next(learner)
    return mdp.gain(np.eye(mdp.ACTIONS)[values.lower(mdp.grid()).argmax(axis=1)])


def test_three_quarters_of_what_is_possible_are_learned_from_one_random_step_an_episode() -> None:
    assert gain(0) >= 0.75


@pytest.mark.slow
def test_that_is_no_luck() -> None:
    """Mean of ten logs. Of one log it has a standard deviation of 0.08, so the mean's is 0.025."""
    assert np.mean([gain(number) for number in range(10)]) >= 0.75
