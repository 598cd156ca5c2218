"""Bounds for choices of several steps that something nobody logged has moved: they hold the truth, and only so far."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from optimizer.dataset import Floats
from optimizer.evidence import Refused
from optimizer.sequential import evaluation
from optimizer.sequential.episodes import STOP, EpisodeLog
from optimizer.sequential.hidden_causes import change_bounds

NAMES = ("strong", "weak", STOP)
STEPS = 2
ODDS = 2.0
"""By how much luck that nobody logs raises or lowers the odds of the strong helper, at each step anew."""
LUCK, EFFECT = 0.2, 0.1
"""What luck and the strong helper add to the chance of a right answer, per step."""


def draw(episodes: int, seed: int) -> EpisodeLog:
    """Lucky tasks go to the strong helper more often, so it seems better than it is."""
    rng = np.random.default_rng(seed)
    lucky = rng.random((episodes, STEPS)) < 0.5
    strong = rng.random((episodes, STEPS)) < np.where(lucky, ODDS / (1 + ODDS), 1 / (1 + ODDS))
    right = rng.random(episodes) < 0.1 + (LUCK * lucky + EFFECT * strong).sum(axis=1)
    n = episodes * STEPS
    step = np.tile(np.arange(STEPS), episodes)
    return EpisodeLog(
        features=np.column_stack([step, np.ones(n)]).astype(np.float64),
        actions=np.where(strong, 0, 1).ravel(),
        behaviour=np.tile([0.5, 0.5, 0.0], (n, 1)),
        cost_usd=np.full(n, 0.01),
        latency_s=np.ones(n),
        stop_quality=np.full(n, np.nan),
        episode=np.repeat(np.arange(episodes), STEPS),
        quality=right.astype(np.float64),
        groups=np.arange(episodes),
        time_ns=np.arange(episodes),
        action_names=NAMES,
        propensities_logged=False,
    )


LOG = draw(4_000, 0)
TRUE_CHANGE = EFFECT * STEPS / 2
"""Of always taking the strong helper, against half of the time."""


def always_strong(log: EpisodeLog) -> Floats:
    return np.tile([1.0, 0.0, 0.0], (len(log.actions), 1))


def guess(log: EpisodeLog, value: float = 0.5) -> Floats:
    """Future outcomes by a model that knows nothing."""
    return np.full((len(evaluation.OUTCOMES), *log.behaviour.shape), value)


def test_the_bounds_hold_the_truth_where_the_estimate_is_far_off() -> None:
    """The cause moves the odds exactly as far as is allowed for; 20 logs, whose limits may miss at 95 % in one."""
    held, misled = 0, 0
    for seed in range(20):
        log = draw(1_500, seed)
        known = (log, always_strong(log), guess(log), guess(log))
        found = change_bounds(*known, ODDS, confidence=0.95)
        held += found.low_limit <= TRUE_CHANGE <= found.high_limit
        naive = change_bounds(*known, 1.0, confidence=0.95)
        misled += naive.low_limit > TRUE_CHANGE
    assert held >= 19
    assert misled >= 15


def test_without_hidden_causes_both_bounds_are_the_doubly_robust_change() -> None:
    policy, model = always_strong(LOG), guess(LOG, 0.4)
    known = evaluation.change(LOG, policy, model, model, confidence=0.95)["quality"]
    assert not isinstance(known, Refused)
    found = change_bounds(LOG, policy, model, model, 1.0, confidence=0.95)
    assert [found.low, found.high] == pytest.approx([known.value] * 2)


def test_the_bounds_only_widen_and_half_of_the_episodes_are_half_as_uncertain() -> None:
    known = (LOG, always_strong(LOG), guess(LOG), guess(LOG))
    found = [change_bounds(*known, gamma, confidence=0.95) for gamma in (1.0, 1.1, 1.5, 2.0, 5.0)]
    assert np.all(np.diff([one.low for one in found]) < 0)
    assert np.all(np.diff([one.high for one in found]) > 0)
    half = change_bounds(*known, 1.5, confidence=0.95, share=0.5)
    assert [half.low, half.high] == pytest.approx([found[2].low / 2, found[2].high / 2])


def test_two_steps_are_more_uncertain_than_one() -> None:
    """A step that the log always takes alike adds nothing."""
    first = (LOG.step == 0)[:, None]
    fixed = replace(
        LOG,
        actions=np.where(LOG.step == 0, 0, LOG.actions),
        behaviour=np.where(first, always_strong(LOG), LOG.behaviour),
    )
    one, both = (
        change_bounds(log, always_strong(log), guess(log), guess(log), 1.5, confidence=0.95) for log in (fixed, LOG)
    )
    assert 0 < one.high - one.low < 0.8 * (both.high - both.low)


def test_where_the_log_always_does_as_the_policy_nothing_is_hidden() -> None:
    certain = replace(LOG, actions=np.zeros_like(LOG.actions), behaviour=always_strong(LOG))
    found = change_bounds(certain, certain.behaviour, guess(LOG), guess(LOG), 5.0, confidence=0.95)
    assert [found.low, found.high] == pytest.approx([0.0, 0.0])


def test_unscored_episodes_widen_the_limits_and_move_no_bound_by_more() -> None:
    """Half of the scores, whatever they are: the bounds stay within three standard errors."""
    scored = np.random.default_rng(1).random(len(LOG)) < 0.5
    part = replace(LOG, quality=np.where(scored, LOG.quality, np.nan))
    every, half = (
        change_bounds(log, always_strong(log), guess(log), guess(log), 1.5, confidence=0.95) for log in (LOG, part)
    )
    error = (half.low - half.low_limit) / 1.96
    assert error > (every.low - every.low_limit) / 1.96
    assert abs(half.low - every.low) < 3 * error


def test_odds_cannot_be_less_wrong_than_not_at_all() -> None:
    with pytest.raises(ValueError, match="at least 1"):
        change_bounds(LOG, always_strong(LOG), guess(LOG), guess(LOG), 0.9, confidence=0.95)
