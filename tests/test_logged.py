"""From decision rows to a dataset: behaviour as logged, as estimated, or half of each."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from optimizer.decisions import COLUMNS
from optimizer.logged import OTHER, to_dataset, with_behaviour
from optimizer.runtime import DIM


def rows(n: int = 60, **columns: object) -> pl.DataFrame:
    rng = np.random.default_rng(0)
    base = {
        "decision_id": [f"t{i}/0" for i in range(n)],
        "trace_id": [f"t{i}" for i in range(n)],
        "span_id": ["a"] * n,
        "service": ["app"] * n,
        "point": ["chat"] * n,
        "step": [0] * n,
        "time_ns": list(range(n)),
        "group": [f"g{i // 2}" for i in range(n)],
        "action": ["big" if i % 3 else "small" for i in range(n)],
        "candidates": [None] * n,
        "probabilities": [None] * n,
        "propensity": [None] * n,
        "propensity_origin": [None] * n,
        "quality": [0.5] * n,
        "label_source": [None] * n,
        "judge": [None] * n,
        "label_probability": [None] * n,
        "cost_usd": [0.01] * n,
        "billed_usd": [0.01] * n,
        "latency_s": [1.0] * n,
        "features": rng.normal(size=(n, DIM)).tolist(),
    }
    return pl.DataFrame({**base, **columns}, schema=dict(COLUMNS))


def test_logged_probabilities_are_taken_as_they_are() -> None:
    n = 60
    found = to_dataset(
        rows(
            candidates=[["small", "big", "huge"]] * n,
            probabilities=[[0.2, 0.7, 0.1]] * n,
            propensity=[0.7] * n,
            propensity_origin=["logged"] * n,
        ),
        seed=0,
    )
    assert found.data.action_names == ("big", "small", "huge")
    assert found.data.behaviour[0] == pytest.approx([0.7, 0.2, 0.1])
    assert found.data.propensities_logged
    assert found.estimated is None


def test_a_logged_propensity_without_the_others_keeps_its_value() -> None:
    found = to_dataset(rows(propensity=[0.25] * 60, propensity_origin=["logged"] * 60), seed=0)
    assert found.data.propensities == pytest.approx(0.25)
    assert found.data.behaviour.sum(axis=1) == pytest.approx(1.0)


def test_missing_propensities_are_estimated_and_said_so() -> None:
    found = to_dataset(rows(), seed=0)
    assert not found.data.propensities_logged
    assert found.estimated is not None
    kept = with_behaviour(rows(), found.data)
    assert set(kept["propensity_origin"]) == {"estimated"}
    again = to_dataset(kept, seed=1)
    assert again.data.behaviour == pytest.approx(found.data.behaviour)
    assert not again.data.propensities_logged


def test_old_decisions_without_probabilities_may_teach_but_not_judge() -> None:
    """Of 60 decisions the newest 40 % choose and judge."""

    def logged(newest: int) -> bool:
        old = 60 - newest
        return to_dataset(
            rows(
                candidates=[None] * old + [["small", "big"]] * newest,
                probabilities=[None] * old + [[0.2, 0.8]] * newest,
                propensity=[None] * old + [0.8] * newest,
                propensity_origin=[None] * old + ["logged"] * newest,
            ),
            seed=0,
        ).data.propensities_logged

    assert logged(60)
    assert logged(24)
    assert not logged(23)


def test_unknown_outcomes_stay_unknown() -> None:
    found = to_dataset(rows(quality=[None] * 60, cost_usd=[None] * 60, latency_s=[None] * 60), seed=0)
    assert np.isnan(found.data.quality).all()
    assert np.isnan(found.data.cost_usd).all()
    assert np.isnan(found.data.latency_s).all()


def test_judge_label_probabilities_and_sources_are_kept() -> None:
    quality = [0.5, None] * 30
    data = to_dataset(
        rows(
            quality=quality,
            judge=[0.7] + [None] * 59,
            label_probability=[0.25] + [None] * 59,
            label_source=["human"] * 40 + ["check"] * 10 + [None] * 10,
        ),
        seed=0,
    ).data
    assert np.array_equal(data.judge, [0.7] + [np.nan] * 59, equal_nan=True)
    assert np.array_equal(data.label_probability, [0.25] + [np.nan] * 59, equal_nan=True)
    assert data.label_sources == ("human", "", "check")
    assert not data.judge_only
    assert to_dataset(rows(label_source=["judge"] * 60), seed=0).data.judge_only


def test_decisions_of_an_earlier_version_have_no_judge() -> None:
    data = to_dataset(rows().drop("judge", "label_probability", "label_source"), seed=0).data
    assert np.isnan(data.judge).all()
    assert np.isnan(data.label_probability).all()
    assert data.label_sources == ()


def test_actions_beyond_sixteen_are_one() -> None:
    n = 400
    found = to_dataset(rows(n, action=[f"m{i % 20}" for i in range(n)]), seed=0)
    assert len(found.data.action_names) == 16
    assert found.data.action_names[-1] == OTHER
    assert (found.data.actions == 15).sum() == n * 5 // 20


def test_the_longest_durations_are_cut_and_the_share_is_told() -> None:
    found = to_dataset(rows(latency_s=[1.0] * 59 + [1000.0]), seed=0)
    assert found.data.latency_s.max() < 1000
    assert 0 < found.latency_cut_share < 1


def test_no_decisions_are_refused() -> None:
    with pytest.raises(ValueError, match="no decisions"):
        to_dataset(rows().head(0), seed=0)
