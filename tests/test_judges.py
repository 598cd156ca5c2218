"""Agreement of a judge with others: what the formulas say on tables by hand, and that intervals cover."""

from __future__ import annotations

import numpy as np
import pytest

from optimizer.judges import LEAST, agreement, curve, wilson


def test_kappa_of_a_table_by_hand() -> None:
    # 45 both pass, 25 both fail, 15 and 15 apart: 0.7 alike, 0.52 by chance.
    judge = np.repeat([1.0, 0.0, 1.0, 0.0], [45, 25, 15, 15])
    other = np.repeat([1.0, 0.0, 0.0, 1.0], [45, 25, 15, 15])
    found = agreement(judge, other)
    assert found.pairs == 100
    assert found.alike == pytest.approx(0.7)
    assert found.kappa is not None
    assert found.kappa.value == pytest.approx((0.7 - 0.52) / (1 - 0.52))
    assert found.kappa.low < found.kappa.value < found.kappa.high
    assert found.bias is not None
    assert found.bias.value == pytest.approx(0.0)


def pairs(n: int, seed: int, noise: float = 0.3) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    truth = rng.random(n) < 0.6
    wrong = rng.random(n) < noise
    return (truth ^ wrong).astype(float), truth.astype(float)


def test_intervals_of_kappa_and_correlation_cover_at_their_level() -> None:
    # Truth by a log of a million; 300 logs of 200 pairs: a standard error of 1.3 points at 95 %, bounds at 3 of them.
    truth = agreement(*pairs(1_000_000, 1))
    assert truth.kappa is not None
    assert truth.correlation is not None
    inside = {"kappa": 0, "correlation": 0}
    for seed in range(300):
        found = agreement(*pairs(200, seed + 2))
        for name in inside:
            one, right = getattr(found, name), getattr(truth, name)
            inside[name] += one.low <= right.value <= one.high
    assert inside["kappa"] / 300 >= 0.912
    assert inside["correlation"] / 300 >= 0.912


def test_a_judge_like_the_others_agrees_wholly_and_one_at_random_not_at_all() -> None:
    _, other = pairs(400, 3)
    same = agreement(other, other)
    assert same.kappa is not None
    assert same.kappa.value == pytest.approx(1.0)
    random = agreement(np.random.default_rng(9).permutation(other), other)
    assert random.kappa is not None
    assert random.kappa.low < 0 < random.kappa.high


def test_few_pairs_or_one_verdict_are_refused_in_words() -> None:
    assert agreement(np.zeros(0), np.zeros(0)).refused == "nothing was scored by both"
    few = agreement(np.ones(LEAST - 1), np.ones(LEAST - 1))
    assert (few.kappa, few.refused) == (None, f"only {LEAST - 1} scored by both; {LEAST} are needed")
    one = agreement(np.ones(50), np.ones(50))
    assert one.kappa is None
    assert one.correlation is None
    assert "one verdict" in one.refused
    assert one.alike == 1.0


def test_the_reliability_curve_is_by_tenths_of_what_the_judge_gave() -> None:
    judge = np.array([0.05] * 10 + [0.95] * 30 + [1.0] * 10)
    other = np.array([0.0] * 8 + [1.0] * 2 + [1.0] * 30 + [0.0] * 10)
    low, high = curve(judge, other)
    assert (low.low, low.pairs, low.judge) == (0.0, 10, pytest.approx(0.05))
    assert (high.low, high.pairs) == (0.9, 40)
    assert high.other.value == pytest.approx(0.75)
    assert high.other.low < 0.75 < high.other.high
    assert wilson(0.0, 10)[1] == pytest.approx(0.2775, abs=1e-4)
    assert wilson(0.5, 0) == (0.0, 1.0)
