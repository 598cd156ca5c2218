"""Looks at judging decisions are counted and charged."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from optimizer.looks import Look, charged, earlier, record


def look(judged: str, from_ns: int, to_ns: int, service: str = "shop", point: str = "chat") -> Look:
    return Look(service, point, from_ns, to_ns, judged)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "runs").mkdir()
    return tmp_path


def test_a_first_look_has_none_before_it(home: Path) -> None:
    assert earlier(home, look("a", 0, 10)) == 0


def test_looks_at_the_same_decisions_count_and_others_do_not(home: Path) -> None:
    before = [look("a", 0, 10), look("b", 11, 20), look("c", 8, 12, service="crm"), look("d", 8, 12, point="plan")]
    record(home, before)
    assert earlier(home, look("e", 5, 12)) == 2
    assert earlier(home, look("e", 21, 30)) == 0


def test_to_judge_the_same_once_more_is_no_further_look(home: Path) -> None:
    for judged in ("a", "b", "a", "c"):
        record(home, [look(judged, 0, 10)])
    assert [earlier(home, look(judged, 0, 10)) for judged in "abcd"] == [0, 1, 2, 3]


def test_a_line_cut_short_costs_itself_only(home: Path) -> None:
    record(home, [look("a", 0, 10)])
    with (home / "runs" / "looks.jsonl").open("a") as file:
        file.write('\n{"service": "sh')
    record(home, [look("b", 0, 10)])
    assert earlier(home, look("c", 0, 10)) == 2


@given(st.floats(0.5, 0.999), st.integers(1, 30))
def test_all_further_looks_together_add_no_more_than_the_first(confidence: float, looks: int) -> None:
    spent = sum(1 - charged(confidence, k) for k in range(1, looks + 1))
    assert spent <= (1 - confidence) * (1 + 1e-9)
    assert charged(confidence, 0) == pytest.approx(confidence)


def test_nightly_looks_at_noise_do_not_end_in_a_false_success() -> None:
    """The same 400 decisions, 20 nightly policies without any effect: at a constant 95 % some night errs far more often
    than in 10 % of cases; charged, within two standard errors of 1,000 cases (0.019) it does not."""
    from scipy.stats import norm

    rng = np.random.default_rng(0)
    nights = rng.normal(size=(1000, 20))  # standardised estimates of 20 policies a case; one-sided errors
    plain = (nights > norm.ppf(0.95)).any(axis=1).mean()
    bars = norm.ppf([charged(0.95, k) for k in range(20)])
    assert plain > 0.5
    assert (nights > bars).any(axis=1).mean() <= 0.10 + 0.019
