"""What is expected of an action is the mean of the logged decisions most like the one asked about."""

from __future__ import annotations

import numpy as np
import pytest

from optimizer.similar import LEAST, NEAREST, expected


def log(n: int = 4000, seed: int = 1) -> tuple[np.ndarray, list[str], np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    known = rng.normal(size=(n, 3)) * [1.0, 100.0, 0.0]
    actions = rng.choice(["cheap", "strong"], n)
    hard = known[:, 0] > 0
    quality = (rng.random(n) < np.where(hard & (actions == "cheap"), 0.2, 0.9)).astype(float)
    return known, actions.tolist(), np.where(actions == "cheap", 0.01, 0.1) * np.exp(known[:, 0]), quality


@pytest.mark.parametrize(("x", "truth"), [(1.5, 0.2), (-1.5, 0.9)])
def test_the_mean_follows_the_decision(x: float, truth: float) -> None:
    found = expected(np.array([x, 0.0, 0.0]), *log())
    cheap = found["cheap"]
    assert cheap.neighbours == NEAREST
    assert cheap.quality is not None
    assert cheap.cost_usd is not None
    assert cheap.quality.low < truth < cheap.quality.high
    assert cheap.quality.kind == "assumption"
    assert cheap.cost_usd.value == pytest.approx(0.01 * np.exp(x), rel=0.2)


def test_intervals_cover_at_about_their_level() -> None:
    # 200 logs, truth 0.9: of a nominal 95 %, a standard error of 1.5 points; bounds at 3 of them.
    at = np.array([-1.5, 0.0, 0.0])
    inside = 0
    for seed in range(200):
        quality = expected(at, *log(600, seed))["strong"].quality
        assert quality is not None
        inside += quality.low <= 0.9 <= quality.high
    assert inside / 200 >= 0.905


def test_too_few_outcomes_are_no_estimate() -> None:
    known, _, cost, quality = log(40)
    quality[LEAST - 1 :] = np.nan
    found = expected(known[0], known, ["one"] * 40, cost, quality)["one"]
    assert found.quality is None
    assert found.cost_usd is not None
    assert expected(known[0], known[:0], [], cost[:0], quality[:0]) == {}


def test_equal_outcomes_do_not_look_certain() -> None:
    known, _, cost, _ = log(60)
    found = expected(known[0], known, ["one"] * 60, cost, np.ones(60))["one"]
    assert found.quality is not None
    assert found.quality.high == 1.0
    assert found.quality.low < 0.99
