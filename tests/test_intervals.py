"""Intervals hold what they promise."""

from __future__ import annotations

import numpy as np
import pytest

from optimizer.ope.intervals import mean_interval


def interval(scores: np.ndarray, groups: np.ndarray | None = None, confidence: float = 0.95):
    groups = np.arange(len(scores)) if groups is None else groups
    return mean_interval(scores, groups, confidence=confidence, estimator="DR", effective=len(scores))


def coverage(draw, truth: float, repeats: int = 600) -> float:
    rng = np.random.default_rng(0)
    hits = 0
    for _ in range(repeats):
        found = interval(draw(rng))
        hits += found.low <= truth <= found.high
    return hits / repeats


def test_normal_scores_are_covered() -> None:
    """600 repeats at 95 %: two binomial standard errors are 0.018."""
    assert coverage(lambda rng: rng.normal(1.0, 2.0, 40), 1.0) >= 0.95 - 0.018


def test_a_few_heavy_weights_widen_the_interval() -> None:
    """Scores of an arm with probability 0.1: ten times the outcome, or 0. The Student quantile at the kurtosis' degrees
    of freedom keeps coverage within 4 points of nominal at 20 effective decisions, where the normal one loses more."""
    assert coverage(lambda rng: (rng.random(200) < 0.1) * 10.0 * (rng.random(200) < 0.7), 0.7) >= 0.91


def test_rows_of_one_session_count_once() -> None:
    rng = np.random.default_rng(1)
    per_session = rng.normal(size=50)
    repeated, groups = np.repeat(per_session, 10), np.repeat(np.arange(50), 10)
    clustered, single = interval(repeated, groups), interval(per_session)
    assert clustered.low == pytest.approx(single.low)
    assert clustered.high == pytest.approx(single.high)
    assert interval(repeated).high < clustered.high


def test_more_confidence_is_wider() -> None:
    scores = np.random.default_rng(2).normal(size=100)
    assert interval(scores, confidence=0.99).high > interval(scores, confidence=0.9).high


def test_identical_scores_have_no_width_and_one_score_has_no_bound() -> None:
    assert (interval(np.ones(10)).low, interval(np.ones(10)).high) == (1.0, 1.0)
    assert interval(np.array([2.0])).high == float("inf")
