"""Estimators that part by more than chance are named, with what that means."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from optimizer.dataset import Floats
from optimizer.ope.agreement import disagreement
from optimizer.ope.estimators import Evidence


def log(seed: int, wrong: float = 0.0, n: int = 800) -> tuple[Evidence, Floats]:
    """Two actions, right seven and four times out of ten; the model is `wrong` above the truth for the second."""
    rng = np.random.default_rng(seed)
    actions = (rng.random(n) < 0.4).astype(np.int64)
    outcome = (rng.random(n) < np.where(actions == 1, 0.4, 0.7)) * 1.0
    model = np.column_stack([np.full(n, 0.7), np.full(n, 0.4 + wrong)])
    evidence = Evidence(outcome, np.ones(n), actions, np.tile([0.6, 0.4], (n, 1)), model, np.arange(n))
    return evidence, np.tile([0.1, 0.9], (n, 1))


def test_a_wrong_model_is_named() -> None:
    said = disagreement(*log(0, wrong=0.3))
    assert said.startswith("DM and ")
    assert "the outcome model" in said


def test_probabilities_that_were_not_those_used_are_named() -> None:
    """The rare action was taken more often than logged, and the model is right: only the weights are off."""
    evidence, _ = log(1)
    outcome = np.where(evidence.actions == 1, evidence.outcome, 1.0)
    told = replace(evidence, behaviour=np.tile([0.9, 0.1], (800, 1)), outcome=outcome)
    assert "SNIPS" in disagreement(told, np.tile([0.5, 0.5], (800, 1)))


def test_agreeing_estimators_are_seldom_accused() -> None:
    """200 logs of a right model; at most a tenth by chance, and two binomial standard errors."""
    accused = np.mean([disagreement(*log(seed)) != "" for seed in range(200)])
    assert accused <= 0.1 + 0.042


def test_estimators_that_cannot_differ_do_not() -> None:
    evidence, _ = log(2)
    alike = replace(evidence, outcome=np.full(800, 0.5), model=np.full((800, 2), 0.5))
    assert disagreement(alike, np.tile([0.1, 0.9], (800, 1))) == ""
