"""`retroute plan`: from a run that was judged, what would decide what it leaves open, and as a bundle for a router."""

from __future__ import annotations

import csv
import json
import shutil
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from conftest import Demo

from ingest.home import open_home
from optimizer import cli, planned, runs
from optimizer.bundle import read_policy, write_policy
from optimizer.runtime import DIM, Model, Router

ESTIMATE = {
    "estimator": "DR", "value": 0.02, "low": -0.03, "high": 0.07, "episodes": 120, "effective": 40.0,
    "kind": "asymptotic", "reason": None,
}  # fmt: skip
REFUSED = {**dict.fromkeys(ESTIMATE), "reason": "the logs never tried it"}
N = 600


def add_run(
    home: Path, run_id: str = "r1", *, verdict: str = "promising", models: int = 2, scored: float = 0.7
) -> None:
    """A judged run of one service, `assistant`: a dear model for 80 % of the decisions, a cheap one for the rest."""
    folder = home / "runs" / run_id
    folder.mkdir(parents=True)
    rng = np.random.default_rng(1)
    taken = (rng.random(N) < 0.2) * (models - 1)
    quality = np.where(rng.random(N) < scored, rng.random(N) < 0.7, np.nan)
    names = ["dear", "cheap"][:models]
    pl.DataFrame(
        {
            "service": ["assistant"] * N,
            "trace_id": [f"{k:032x}" for k in range(N)],
            "group": [f"{k:032x}" for k in range(N)],
            "time_ns": np.arange(N) * 432_000_000_000,  # 200 a day
            "action": [names[k] for k in taken],
            "candidates": [names] * N,
            "probabilities": [[0.8, 0.2][:models] if models > 1 else [1.0]] * N,
            "propensity": np.where(taken, 0.2, 0.8) if models > 1 else np.ones(N),
            "propensity_origin": ["logged"] * N,
            "quality": quality,
            "cost_usd": np.where(taken, 0.001, 0.01),
            "latency_s": np.ones(N),
            "features": pl.Series(rng.normal(size=(N, DIM)).astype(np.float32), dtype=pl.Array(pl.Float32, DIM)),
        }
    ).with_columns(pl.col("quality").fill_nan(None)).write_parquet(folder / "decisions.parquet")
    suggested = verdict != "cannot_tell"
    learned = {
        "point": "chat", "quality_name": "stars", "label": "always cheap" if suggested else None,
        "refused": "" if suggested else "too few",
    }  # fmt: skip
    said = {
        "verdict": verdict, "quality_change": ESTIMATE if suggested else REFUSED,
        "limits": {"quality_margin": 0.01, "confidence": 0.95, "latency_s": None},
    }  # fmt: skip
    (folder / "training.json").write_text(json.dumps({"assistant": learned}))
    (folder / "verdicts.json").write_text(json.dumps({"services": {"assistant": said}}))
    (folder / "manifest.json").write_text(json.dumps({"format": 1, "run_id": run_id, "services": ["assistant"]}))
    if suggested:
        write_policy(
            runs.policy_folder(folder, "assistant"),
            Model("constant", ("dear", "cheap"), {"values": np.array([0.0, 1.0])}),
            policy_id="assistant",
            version=run_id,
            revision=1,
            virtual_model="assistant",
            incumbent="dear",
            evaluation={},
            created_at="2026-01-01T00:00:00+00:00",
        )


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return open_home(tmp_path / "home", create=True)


def run(home: Path, *arguments: str) -> int:
    return cli.run(["plan", "--home", str(home), *arguments])


def said(home: Path, capsys: pytest.CaptureFixture[str], *arguments: str) -> dict:
    assert run(home, "--json", *arguments) == 0
    return json.loads(capsys.readouterr().out)["services"]


def test_an_open_question_gets_an_experiment_with_its_price_and_length(home, capsys) -> None:
    add_run(home)
    plan = said(home, capsys)["assistant"]["plan"]
    assert plan["arms"] == ["dear", "cheap"]
    (part,) = plan["segments"]
    assert part["chosen"] == "cheap"
    assert sum(part["draw"].values()) == pytest.approx(1)
    assert plan["cost_usd_per_day"]["high"] < 0
    assert plan["quality_at_risk"] <= 0.01
    assert plan["decisions_per_day"] == pytest.approx(200, rel=0.01)
    assert plan["days"] == pytest.approx(plan["decisions"] / plan["decisions_per_day"])


def test_the_text_says_who_is_drawn_what_it_costs_and_how_long(home, capsys) -> None:
    add_run(home)
    assert run(home) == 0
    text = capsys.readouterr().out
    for part in ("'always cheap'", "cheap ", "(today 20%)", "Saves $", "a day [$", "points", "days at 200 a day"):
        assert part in text
    assert "If the estimates stand" in text


@pytest.mark.parametrize("verdict", ["deploy", "keep"])
def test_what_is_decided_needs_no_plan_and_says_so(home, capsys, verdict) -> None:
    add_run(home, verdict=verdict)
    assert run(home) == 0
    assert "Decided: nothing to find out." in capsys.readouterr().out
    assert said(home, capsys)["assistant"]["plan"] is None
    assert said(home, capsys, "--labels")["assistant"]["traces"] == []


@pytest.mark.parametrize(
    "columns",
    [
        {},
        {"quality": pl.lit(None, pl.Float64)},
        {"cost_usd": pl.lit(None, pl.Float64)},
        {"time_ns": pl.lit(0, pl.Int64)},
        {"quality": pl.lit(1.0)},
    ],
    ids=["few", "no score", "no cost", "no time", "always right"],
)
@pytest.mark.parametrize("verdict", ["promising", "cannot_tell"])
def test_a_thin_log_gets_a_plan_without_numbers_that_nobody_knows(home, capsys, columns, verdict) -> None:
    add_run(home, verdict=verdict)
    file = home / "runs" / "r1" / "decisions.parquet"
    pl.read_parquet(file).head(60).with_columns(**columns).write_parquet(file)
    plan = said(home, capsys)["assistant"]["plan"]
    assert plan["decisions"] > 0
    assert (plan["cost_usd_per_day"]["value"] is None) == (bool(columns.keys() & {"cost_usd", "time_ns"}))
    assert (plan["days"] is None) == ("time_ns" in columns)
    assert run(home) == 0
    assert run(home, "--labels") == 0
    text = capsys.readouterr().out
    assert not {"nan", "inf", "None"} & set(text.replace(",", " ").split())


def test_decisions_of_one_session_say_what_they_lack(home, capsys) -> None:
    add_run(home)
    file = home / "runs" / "r1" / "decisions.parquet"
    pl.read_parquet(file).with_columns(group=pl.lit("one")).write_parquet(file)
    assert run(home) == 0
    assert run(home, "--labels") == 0
    assert capsys.readouterr().out.count("only 1 session") == 2


def test_a_log_of_one_model_says_what_it_lacks(home, capsys) -> None:
    add_run(home, verdict="cannot_tell", models=1)
    assert run(home) == 0
    assert "a second one" in capsys.readouterr().out


def test_the_newest_run_is_read_and_must_be_judged(home, capsys) -> None:
    add_run(home, "r1", verdict="deploy")
    add_run(home, "r2")
    assert said(home, capsys)["assistant"]["run_id"] == "r2"
    (home / "runs" / "r2" / "verdicts.json").unlink()
    assert run(home) == 2
    assert "retroute evaluate" in capsys.readouterr().err


def test_labels_are_written_with_their_probabilities_and_can_be_imported_back(home, tmp_path, capsys) -> None:
    add_run(home)
    file = tmp_path / "to-score.csv"
    assert run(home, "--labels", "--budget", "100", "-o", str(file)) == 0
    assert "100 of" in capsys.readouterr().out
    rows = list(csv.DictReader(file.read_text().splitlines()))
    decisions = pl.read_parquet(home / "runs" / "r1" / "decisions.parquet")
    unscored = set(decisions.filter(pl.col("quality").is_null())["trace_id"])
    assert {row["trace_id"] for row in rows} <= unscored
    assert len({row["trace_id"] for row in rows}) == len(rows) == pytest.approx(100, abs=2)
    assert all(0.02 <= float(row["probability"]) <= 1 for row in rows)
    assert {row["name"] for row in rows} == {"stars"}
    with file.open("w", newline="") as handle:
        writer = csv.DictWriter(handle, rows[0].keys())
        writer.writeheader()
        writer.writerows([row | {"value": "0.5"} for row in rows])
    assert cli.run(["scores", "import", "--home", str(home), "--json", str(file)]) == 0
    assert json.loads(capsys.readouterr().out)["scores"] == len(rows)


def test_too_small_a_budget_is_wrong_usage(home, capsys) -> None:
    add_run(home)
    assert run(home, "--labels", "--budget", "5") == 2
    assert "too few" in capsys.readouterr().err


def test_all_scored_says_so(home, capsys) -> None:
    add_run(home, scored=1.1)
    assert run(home, "--labels") == 0
    assert "Every decision has a score." in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--budget", "3"], "belong to --labels"),
        (["-o", "x.csv"], "belong to --labels"),
        (["--export", "x"], "one service"),
        (["--export", "x", "--labels", "--service", "assistant"], "one service"),
        (["--service", "asistant"], "no verdict on service 'asistant'"),
    ],
)
def test_wrong_usage_ends_with_2_and_a_hint(home, capsys, arguments, message) -> None:
    add_run(home)
    assert run(home, *arguments) == 2
    error = capsys.readouterr().err
    assert message in error
    assert "hint: " in error


def test_the_exported_router_draws_by_the_plan_and_logs_it(home, tmp_path, capsys) -> None:
    """4,000 draws: each share within 4 standard errors of the plan's."""
    add_run(home)
    (part,) = said(home, capsys)["assistant"]["plan"]["segments"]
    assert run(home, "--service", "assistant", "--export", str(tmp_path / "out")) == 0
    assert capsys.readouterr().out == f"{tmp_path / 'out'}\n"
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"config.yaml", "policy_router.py", "policy"}
    router = Router.load(tmp_path / "out" / "policy", draw=np.random.default_rng(0).random)
    drawn = [router.decide({"messages": "hello"}) for _ in range(4000)]
    for arm, share in part["draw"].items():
        found = np.mean([decision.action == arm for decision in drawn])
        assert found == pytest.approx(share, abs=4 * np.sqrt(share * (1 - share) / 4000))
    assert all(decision.propensity == pytest.approx(part["draw"][decision.action]) for decision in drawn)


def test_nothing_is_exported_for_a_decided_service(home, tmp_path, capsys) -> None:
    add_run(home, verdict="deploy")
    assert run(home, "--service", "assistant", "--export", str(tmp_path / "out")) == 1
    assert "retroute export" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_the_demos_open_questions_get_plans_and_its_rule_is_repeated_by_the_router(
    finished_demo: Demo, tmp_path, capsys
) -> None:
    services = said(finished_demo.home, capsys)
    assert {name for name, one in services.items() if one["decided"]} == {"assistant", "classifier", "sql-agent"}
    faq = services["faq"]["plan"]
    assert faq["base"] == "today"
    assert 0.5 < faq["randomised_share"] < 0.65
    assert faq["cost_usd_per_day"]["kind"] == "assumption"
    assert run(finished_demo.home, "--service", "faq", "--export", str(tmp_path / "faq")) == 0
    assert "repeats 99" in capsys.readouterr().err
    model, manifest = read_policy(tmp_path / "faq" / "policy")
    assert manifest["exploration"]["min_propensity"] >= 0.02 - 1e-9
    (question,) = planned.questions(finished_demo.home, ["faq"])
    features = question.data.features
    drawn = model.probabilities(features, np.ones((len(features), len(model.actions)), dtype=bool)).mean(axis=0)
    expected = sum(part["share"] * np.array(list(part["draw"].values())) for part in faq["segments"])
    assert drawn == pytest.approx(expected, abs=0.01)


def test_an_open_question_of_many_steps_is_answered_by_drawing_one_of_them(
    finished_demo: Demo, tmp_path, capsys
) -> None:
    home = tmp_path / "home"
    shutil.copytree(finished_demo.home / "runs", home / "runs")
    shutil.copyfile(finished_demo.home / "home.json", home / "home.json")
    (verdicts,) = home.glob("runs/*/verdicts.json")
    judged = json.loads(verdicts.read_text())
    text = "about 900 more traces that explore as these do"
    judged["services"]["sql-agent"] |= {
        "verdict": "cannot_tell",
        "plan": {"text": text, "decisions_needed": 900, "days": 3.0},
    }
    verdicts.write_text(json.dumps(judged))
    assert run(home, "--service", "sql-agent") == 0
    assert text in capsys.readouterr().out
    assert said(home, capsys, "--service", "sql-agent")["sql-agent"]["steps"]["decisions_needed"] == 900
    assert run(home, "--service", "sql-agent", "--export", str(tmp_path / "out")) == 0
    router = Router.load(tmp_path / "out" / "policy", draw=np.random.default_rng(0).random)
    first = [router.decide({"messages": "hello", "history": []}) for _ in range(2000)]
    drawn = [decision for decision in first if decision.explored]
    assert len(drawn) == pytest.approx(400, abs=4 * np.sqrt(2000 * 0.2 * 0.8))
    assert {decision.action for decision in first if not decision.explored} == {"gpt-4|try_again"}
    entry = {"action": "chat-bison-001|try_again_schema", "explored": True}
    after = [router.decide({"messages": "hello", "history": [entry]}) for _ in range(200)]
    assert {decision.action for decision in after} == {"gpt-4|try_again"}
