"""What was predicted of a policy beside what it then did, as a run folder keeps it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from optimizer import realised, runs

RUN = "20260101T000000"


def figure(value: float, half: float) -> dict[str, Any]:
    base = {"estimator": "blend", "value": value, "low": value - half, "high": value + half, "kind": "asymptotic"}
    return {**base, "episodes": 900, "effective": 400.0, "reason": None}


def row(policy: str, cost: float, quality: float) -> dict[str, Any]:
    figures = {"cost_usd_per_1k": figure(cost, 0.5), "quality": figure(quality, 0.02), "latency_s": figure(1.0, 0.1)}
    return {"policy": policy, "label": policy, **figures}


def judged(cost: float = 10.0, quality: float = 0.8) -> dict[str, Any]:
    frontier = [
        {"label": "a", "cost_usd_per_1k": figure(9.0, 0.1), "quality": figure(0.9, 0.01), "chosen": False},
        {"label": "b", "cost_usd_per_1k": figure(9.8, 0.4), "quality": figure(0.9, 0.01), "chosen": True},
    ]
    return {"table": [row("today", 20.0, 0.8), row("suggested", cost, quality)], "frontier": frontier}


def decisions(n: int = 400, quality: float = 0.8, cost: float = 0.010) -> pl.DataFrame:
    rng = np.random.default_rng(0)
    return pl.DataFrame(
        {
            "trace_id": [f"t{i}" for i in range(n)],
            "group": [f"s{i // 2}" for i in range(n)],
            "quality": (np.arange(n) % 10 < round(10 * quality)) * 1.0,
            "cost_usd": cost * rng.uniform(0.9, 1.1, n),
            "latency_s": rng.uniform(0.8, 1.2, n),
        }
    )


def versions(n: int = 400, arm: str | None = "treatment", version: str = RUN) -> pl.DataFrame:
    schema = {"trace_id": pl.String, "policy_version": pl.String, "policy_arm": pl.String}
    return pl.DataFrame([{"trace_id": f"t{i}", "policy_version": version, "policy_arm": arm} for i in range(n)], schema)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "runs" / RUN).mkdir(parents=True)
    runs.write_json(tmp_path / "runs" / RUN / "verdicts.json", {"services": {"shop": judged()}})
    return tmp_path


def told(home: Path, rows: pl.DataFrame, seen: pl.DataFrame) -> list[dict[str, Any]]:
    return realised.in_force(home, "shop", realised.marked(rows, seen), 0.95)


def test_a_policy_that_does_as_predicted_holds(home: Path) -> None:
    (found,) = told(home, decisions(), versions())
    assert (found["run_id"], found["decisions"]) == (RUN, 400)
    figures = {one["metric"]: one for one in found["figures"]}
    assert [one["held"] for one in figures.values()] == [True, True, True]
    assert figures["cost_usd_per_1k"]["seen"]["value"] == pytest.approx(1000 * decisions()["cost_usd"].mean())
    assert figures["quality"]["low"] < figures["quality"]["predicted"]["low"]  # what is seen has an error of its own


def test_a_policy_that_does_worse_is_said_to_have_failed(home: Path) -> None:
    (found,) = told(home, decisions(quality=0.6, cost=0.02), versions())
    assert [one["held"] for one in found["figures"]] == [False, False, True]


def test_the_control_arm_is_todays_routing_and_does_not_count(home: Path) -> None:
    mixed = pl.concat([versions(400).head(300), versions(400, "control").tail(100)])
    (found,) = told(home, decisions(), mixed)
    assert found["decisions"] == 300
    assert told(home, decisions(), versions(arm="control")) == []
    (alone,) = told(home, decisions(), versions(arm=None))  # a router without a roll-out logs no arm
    assert alone["decisions"] == 400


@pytest.mark.parametrize("version", ["20250101T000000", "../../etc", "today", ""])
def test_a_version_that_is_no_run_of_this_home_is_left_out(version: str, home: Path) -> None:
    assert told(home, decisions(), versions(version=version)) == []


def test_a_damaged_earlier_run_is_left_out(home: Path) -> None:
    (home / "runs" / RUN / "verdicts.json").write_text("{half")
    assert told(home, decisions(), versions()) == []


def test_too_few_known_outcomes_are_refused(home: Path) -> None:
    few = decisions().with_columns(quality=pl.when(pl.int_range(pl.len()) < 5).then("quality"))
    (found,) = told(home, few, versions())
    quality = found["figures"][1]
    assert quality["held"] is None
    assert quality["seen"]["reason"] == "only 5 of 400 decisions have a known outcome"


def test_what_chose_and_what_judged_stand_beside_each_other() -> None:
    cost, quality = realised.since_chosen(judged(quality=0.8))
    assert (cost["predicted"]["value"], cost["seen"]["value"], cost["held"]) == (9.8, 10.0, True)
    assert quality["held"] is False  # 0.9 where it was chosen, 0.8 where it was judged
    assert realised.since_chosen({**judged(), "frontier": []}) == []


def test_decisions_of_no_policy_of_ours_have_no_version() -> None:
    found = realised.marked(decisions(3), versions(0))
    assert found["policy_version"].to_list() == [None] * 3
    assert found["trace_id"].to_list() == ["t0", "t1", "t2"]


def test_an_episode_has_the_version_and_arm_that_decided_all_of_it() -> None:
    """A session of two traces, as its traces stand under its id; others that two versions or both arms decided."""
    rows = [
        ("alone", "r1", "treatment"), ("session", "r1", "treatment"), ("session", "r1", "treatment"),
        ("replaced", "r1", "treatment"), ("replaced", "r2", "treatment"),
        ("both arms", "r1", "treatment"), ("both arms", "r1", "control"),
    ]  # fmt: skip
    found = realised.by_episode(pl.DataFrame(rows, versions(0).schema, orient="row"))
    assert found.rows() == [("alone", "r1", "treatment"), ("session", "r1", "treatment")]
