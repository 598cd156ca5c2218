"""Estimated behaviour: calibrated where there was chance, refused where there was none."""

from __future__ import annotations

import numpy as np
import pytest

from optimizer.dataset import MIN_PROPENSITY, LoggedDataset
from optimizer.evidence import Refused, held_out
from optimizer.fixed_choice import fixed_segments
from optimizer.gate import Estimate
from optimizer.propensity import Behaviour, calibration_error, estimate_behaviour
from optimizer.propensity_text import behaviour_json, sentences
from optimizer.runtime import DENSE, DIM
from optimizer.time_blocks import time_blocks


def draw(behaviour: np.ndarray, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return (rng.random(len(behaviour))[:, None] > np.cumsum(behaviour, axis=1)[:, :-1]).sum(axis=1)


def test_probabilities_follow_the_features() -> None:
    """2,000 rows, two kinds of prompt; the share of each kind is known to 0.015, the fit to within 0.05 on average."""
    features = np.column_stack([np.arange(2000) % 2, np.random.default_rng(1).normal(size=2000)])
    truth = np.where(features[:, :1] == 1, [[0.8, 0.2]], [[0.5, 0.5]])
    found = estimate_behaviour(features, draw(truth), np.arange(2000), 2, seed=0)
    assert found.probabilities.sum(axis=1) == pytest.approx(1.0)
    assert np.abs(found.probabilities - truth).mean() < 0.05
    assert not found.deterministic


def test_a_fixed_rule_is_recognised() -> None:
    features = np.random.default_rng(2).normal(size=(1000, 5))
    actions = (features[:, 2] > 0.3).astype(int)
    assert estimate_behaviour(features, actions, np.arange(1000), 2, seed=0).deterministic


def test_a_coin_is_no_fixed_rule_however_biased() -> None:
    """Accuracy alone would call a 95 to 5 coin 95 % foretold; it stays below the 99 % that mean a rule."""
    features = np.random.default_rng(3).normal(size=(1000, 5))
    found = estimate_behaviour(features, draw(np.tile([0.95, 0.05], (1000, 1))), np.arange(1000), 2, seed=0)
    assert not found.deterministic
    assert found.probabilities[:, 1].mean() == pytest.approx(0.05, abs=0.02)


def test_one_action_is_a_fixed_rule() -> None:
    found = estimate_behaviour(np.zeros((5, 2)), np.zeros(5, dtype=int), np.arange(5), 1, seed=0)
    assert found.deterministic


def test_no_decisions_are_refused() -> None:
    with pytest.raises(ValueError, match="no decisions"):
        estimate_behaviour(np.zeros((0, 2)), np.zeros(0, dtype=int), np.zeros(0, dtype=int), 2, seed=0)


def prompts(n: int, seed: int = 0) -> np.ndarray:
    """Features as the runtime names them: the second is log(1 + words), up to 400 words."""
    rng = np.random.default_rng(seed)
    features = rng.random((n, DIM))
    features[:, DENSE.index("words")] = np.log1p(rng.integers(0, 400, n))
    return features


def long_prompts_go_to_the_first(n: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Above 250 words always action 0; else 0 or 1 by a coin. With which are long."""
    features = prompts(n, seed)
    long = features[:, DENSE.index("words")] > np.log1p(250)
    return features, draw(np.where(long[:, None], [[1.0, 0.0]], [[0.5, 0.5]]), seed), long


@pytest.fixture(scope="module")
def ruled() -> tuple[Behaviour, np.ndarray, np.ndarray]:
    features, actions, long = long_prompts_go_to_the_first(3000)
    return estimate_behaviour(features[:, :40], actions, np.arange(3000), 2, seed=0), actions, long


def test_a_fixed_segment_is_told_as_a_rule_with_its_share(ruled: tuple[Behaviour, np.ndarray, np.ndarray]) -> None:
    found, _, long = ruled
    assert not found.deterministic
    (segment,) = found.fixed
    assert segment.conditions == ("more than 250 words",)
    assert (segment.action, segment.taken) == (0, 1.0)
    assert segment.share == pytest.approx(long.mean())
    told = sentences(behaviour_json(found, ("strong", "cheap")))
    assert told[1].startswith(
        "fixed rule: more than 250 words: strong in 100.0% of these, which are 36% of all decisions"
    )


def test_what_a_fixed_segment_did_not_take_counts_as_untried(ruled: tuple[Behaviour, np.ndarray, np.ndarray]) -> None:
    """So a policy that takes it there is refused; elsewhere the coin is estimated to 0.08 on average."""
    found, actions, long = ruled
    assert found.probabilities[long, 1].max() < MIN_PROPENSITY
    assert np.abs(found.probabilities[~long] - 0.5).mean() < 0.08
    rng = np.random.default_rng(0)
    outcome = rng.random(3000)
    data = LoggedDataset(
        *(prompts(3000), actions, outcome, outcome, outcome, found.probabilities, np.arange(3000), np.arange(3000)),
        action_names=("strong", "cheap"),
        propensities_logged=False,
    )
    evaluation = held_out(data, np.arange(1500), np.arange(1500, 3000), confidence=0.95, seed=0)
    cheap = np.tile([0.0, 1.0], (1500, 1))
    refused = evaluation.change("quality", cheap)
    assert isinstance(refused, Refused)
    assert "did not try" in refused.reason
    kept = np.where(long[1500:, None], [[1.0, 0.0]], cheap)
    assert isinstance(evaluation.change("quality", kept), Estimate)


def test_a_lopsided_coin_is_no_fixed_segment() -> None:
    """97 to 3 everywhere, and enough rows to say so: the tree's purest leaf would have to hold by chance in the other
    half, where 149 sessions without an exception have probability 0.97^149 = 1 %."""
    features = prompts(4000)
    actions = draw(np.tile([0.97, 0.03], (4000, 1)))
    for seed in range(10):
        assert fixed_segments(features, actions, np.arange(4000), seed=seed)[0] == ()


def test_few_sessions_prove_no_rule() -> None:
    """One session of 3,000 decisions, however alike, is one choice."""
    features, actions, _ = long_prompts_go_to_the_first(3000)
    assert fixed_segments(features, actions, np.arange(3000) // 100, seed=0)[0] == ()


def test_calibration_error_of_true_probabilities_is_what_chance_gives() -> None:
    """Over 60 logs the mean error equals its expectation to 10 % (three standard errors)."""
    rng = np.random.default_rng(4)
    truth = rng.dirichlet([2.0, 2.0, 1.0], 1000)
    found = np.array([calibration_error(truth, draw(truth, seed)) for seed in range(60)])
    assert found[:, 0].mean() == pytest.approx(found[:, 1].mean(), rel=0.1)


def test_calibration_error_of_wrong_probabilities_is_how_wrong_they_are() -> None:
    """0.7 is said where 0.5 is true: 20 points, and chance adds none of its own."""
    said = np.tile([0.7, 0.3], (20_000, 1))
    error, noise = calibration_error(said, draw(np.tile([0.5, 0.5], (20_000, 1))))
    assert error == pytest.approx(0.2, abs=0.02)
    assert noise < 0.01


def test_estimates_of_a_soft_choice_are_calibrated_on_rows_not_seen() -> None:
    features = np.random.default_rng(7).normal(size=(3000, 6))
    chance = 1 / (1 + np.exp(-1.5 * features[:, 0] + features[:, 1]))
    actions = draw(np.column_stack([chance, 1 - chance]), 8)
    found = estimate_behaviour(features, actions, np.arange(3000), 2, seed=0)
    assert found.calibration_error < 2.5 * found.calibration_noise
    assert found.calibration_error < 0.04


def test_each_stretch_of_time_is_estimated_by_itself() -> None:
    """First nothing but action 0, then a coin: in the first half action 1 was not tried, in the second it was."""
    features = np.random.default_rng(5).normal(size=(2000, 4))
    late = np.arange(2000) >= 1000
    actions = draw(np.where(late[:, None], [[0.5, 0.5]], [[1.0, 0.0]]))
    found = estimate_behaviour(features, actions, np.arange(2000), 2, seed=0, time_ns=np.arange(2000))
    assert found.blocks == 2
    assert found.probabilities[:990, 1].max() < MIN_PROPENSITY
    assert found.probabilities[1010:, 1].min() > 0.3
    assert found.fixed[0].conditions == ()
    assert found.fixed[0].share == pytest.approx(0.5, abs=0.01)
    assert "over 2 stretches of time" in sentences(behaviour_json(found, ("a", "b")))[0]


def test_shares_that_do_not_change_are_seldom_cut() -> None:
    """A hundred logs at 1 %: four or more have probability 2 %."""
    rng = np.random.default_rng(0)
    cuts = 0
    for _ in range(100):
        actions = rng.choice(3, 1000, p=[0.6, 0.3, 0.1])
        cuts += time_blocks(actions, np.arange(1000), np.arange(1000)).max() > 0
    assert cuts < 4


def test_a_session_counts_once_when_time_is_cut() -> None:
    """Sessions of 50 that stick to their first choice: shares wander, and nothing has changed."""
    rng = np.random.default_rng(1)
    actions = np.repeat(rng.integers(0, 2, 100), 50)
    assert time_blocks(actions, np.arange(5000) // 50, np.arange(5000)).max() == 0


def test_the_floor_is_told() -> None:
    """An action that the features almost rule out is raised to 2 % of its share."""
    features = np.random.default_rng(9).normal(size=(2000, 3))
    chance = np.where(features[:, :1] > 0, [[0.5, 0.5]], [[0.997, 0.003]])
    found = estimate_behaviour(features, draw(chance, 3), np.arange(2000), 2, seed=0)
    assert found.floor == 0.02
    assert found.probabilities.min() > 0.019 * 0.25
    assert 0 <= found.raised_share < 0.01
    assert "raised to the floor of 2%" in sentences(behaviour_json(found, ("a", "b")))[0]


def test_estimates_are_a_function_of_their_seed() -> None:
    features, actions, _ = long_prompts_go_to_the_first(600)
    first, second = (
        estimate_behaviour(features[:, :33], actions, np.arange(600), 2, seed=2, time_ns=np.arange(600)).probabilities
        for _ in range(2)
    )
    assert first.tobytes() == second.tobytes()


def test_nothing_is_said_of_logged_probabilities() -> None:
    assert sentences(None) == []
