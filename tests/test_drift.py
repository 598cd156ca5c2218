"""Drift between the rows that chose and the rows that judge: seldom cried, never slept through."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from optimizer.dataset import Bools, Floats
from optimizer.drift import MIN_ROWS, Drift, compare
from optimizer.ope.association import association, holm
from optimizer.ope.estimators import Evidence

NAMES = ("large", "small", "tiny")
LOGS = 200
TOLERANCE = 2 * np.sqrt(0.05 * 0.95 / LOGS)
"""Two binomial standard errors of a false alarm rate of 0.05 in 200 logs."""


class Log:
    """Two parts of `n` decisions each; what happens to the later one is what a test asks for."""

    def __init__(
        self, seed: int, n: int = 1000, *, worse: float = 0.0, mix: float = 0.0, share: float = 0.0, session: int = 1
    ) -> None:
        rng = np.random.default_rng(seed)
        rows = 2 * n
        self.later: Bools = np.arange(rows) >= n
        self.groups = np.arange(rows) // session
        shared = rng.normal(size=(rows // session + 1, 6))[self.groups]
        self.features: Floats = shared + (0.0 if session == 1 else 0.5) * rng.normal(size=(rows, 6))
        self.features[:, 0] += mix * self.later
        behaviour = np.tile([0.5, 0.3, 0.2], (rows, 1)) + share * self.later[:, None] * np.array([-1.0, 1.0, 0.0])
        self.actions = (rng.random(rows)[:, None] > np.cumsum(behaviour, axis=1)[:, :-1]).sum(axis=1)
        luck = rng.random(rows // session + 1)[self.groups] if session > 1 else rng.random(rows)
        base = 1 / (1 + np.exp(-(self.features[:, :3] + np.array([0.8, 0.5, 0.0]))))
        fallen = base - worse * self.later[:, None] * np.array([0.0, 1.0, 0.0])
        quality = (luck < np.clip(fallen[np.arange(rows), self.actions], 0, 1)) * 1.0
        size = np.exp(0.3 * self.features[:, 1]) * rng.lognormal(0, 1, rows)
        cost = size * np.array([0.01, 0.003, 0.001])[self.actions]
        rough = np.full((rows, 3), 0.6) + 0.15 * self.features[:, :3]  # a model that is right in tendency only
        known = np.ones(rows)
        self.evidence = {
            "quality": Evidence(quality, known, self.actions, behaviour, rough, self.groups),
            "cost_usd": Evidence(
                cost, known, self.actions, behaviour, np.tile([0.02, 0.006, 0.002], (rows, 1)), self.groups
            ),
        }

    def compared(self) -> Drift:
        return compare(self.features, self.evidence, self.later, NAMES, seed=0)


@pytest.mark.parametrize("session", [1, 8])
def test_a_log_that_stays_as_it_is_seldom_raises_an_alarm(session: int) -> None:
    false = np.mean([bool(Log(seed, 800, session=session).compared().alarms()) for seed in range(LOGS)])
    assert false <= 0.05 + TOLERANCE


def test_an_arm_that_lost_ten_points_is_found_in_two_thousand_decisions() -> None:
    """Of 2,000 decisions before and after, 30 % go to "small": a shift of 10 points is four standard errors of 0.026,
    and 2.9 are needed. The alarm names the arm."""
    alarms = [Log(seed, 2000, worse=0.10).compared().alarms("outcome") for seed in range(60)]
    found = [[shift.what for shift in one] for one in alarms]
    assert np.mean(["quality of small" in one for one in found]) >= 0.8


def test_another_mix_is_told_from_another_outcome() -> None:
    """Prompts move by one standard deviation and the model is blind to them: the mix is found, and blamed on no arm
    more often than chance allows (5 % and two standard errors of 60 logs)."""
    logs = [Log(seed, mix=1.0) for seed in range(60)]
    for log in logs:
        quality = log.evidence["quality"]
        log.evidence["quality"] = replace(quality, model=np.full_like(quality.model, 0.6))
    found = [log.compared() for log in logs]
    assert np.mean([bool(one.alarms("mix")) for one in found]) >= 0.95
    assert np.mean([bool(one.alarms("outcome")) for one in found]) <= 0.05 + 2 * np.sqrt(0.05 * 0.95 / 60)


def test_other_shares_are_told_from_another_outcome() -> None:
    found = [Log(seed, share=0.15).compared() for seed in range(30)]
    assert np.mean([bool(one.alarms("behaviour")) for one in found]) >= 0.95
    assert np.mean([bool(one.alarms("outcome")) for one in found]) <= 0.05 + 2 * np.sqrt(0.05 * 0.95 / 30)


def test_a_shift_too_small_to_matter_is_no_alarm_however_certain() -> None:
    log = Log(0, 1000)
    exact = log.evidence["quality"].model * 0 + 0.5
    outcome = np.where(log.later, 0.503, 0.5) + np.random.default_rng(1).normal(0, 0.001, 2000)
    still = Evidence(outcome, np.ones(2000), log.actions, log.evidence["quality"].behaviour, exact, log.groups)
    found = compare(log.features, {"quality": still}, log.later, NAMES, seed=0)
    assert not found.alarms("outcome")
    assert min(shift.p_value for shift in found.shifts) < 1e-6


def test_what_has_too_few_outcomes_is_named_and_not_tested() -> None:
    log = Log(0)
    quality = log.evidence["quality"]
    outcome = np.where((log.actions == 2) & log.later, np.nan, quality.outcome)
    rare = Evidence(outcome, quality.known, quality.actions, quality.behaviour, quality.model, quality.groups)
    found = compare(log.features, {"quality": rare}, log.later, NAMES, seed=0)
    assert found.untested == (f"quality of tiny: fewer than {MIN_ROWS} known outcomes before or after",)
    assert "quality of tiny" not in [shift.what for shift in found.shifts]


def test_too_few_sessions_are_not_compared() -> None:
    log = Log(0, 40, session=10)
    found = log.compared()
    assert not found.shifts
    assert "fewer than 10 sessions" in found.untested[0]


def test_an_alarm_says_what_moved_and_comes_first() -> None:
    found = Log(3, 4000, worse=0.3).compared()
    assert found.shifts[0].alarm
    assert found.shifts[0].what == "quality of small"
    assert found.shifts[0].size == pytest.approx(-0.3, abs=0.1)
    assert "quality of small moved by -0." in found.shifts[0].reason


def test_the_same_rows_give_the_same_answer() -> None:
    assert Log(5).compared() == Log(5).compared()


def test_no_outcome_is_refused() -> None:
    with pytest.raises(ValueError, match="no outcome"):
        compare(np.zeros((2, 1)), {}, np.array([True, False]), NAMES, seed=0)


def test_holm_rejects_stepwise() -> None:
    assert holm([0.04, 0.01, 0.03], 0.05).tolist() == [False, True, False]
    assert holm([0.02, 0.01, 0.03], 0.05).tolist() == [True, True, True]
    assert holm([0.02, 0.06, 0.9], 0.05).tolist() == [False, False, False]


def test_association_without_variation_is_no_finding() -> None:
    ones = np.ones(10)
    assert association(ones, np.arange(10.0), np.arange(10)).p_value == 1.0
    assert association(np.arange(10.0), ones, np.arange(10)).p_value == 1.0
    assert association(np.arange(10.0), np.arange(10.0), np.zeros(10, dtype=np.int64)).p_value == 1.0
