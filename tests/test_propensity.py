"""Estimated behaviour: calibrated where there was chance, refused where there was none."""

from __future__ import annotations

import numpy as np
import pytest

from optimizer.propensity import estimate_behaviour


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
