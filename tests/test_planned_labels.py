"""Decisions drawn to be scored: their probabilities come back with the scores and are what a later run judges by."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import orjson
import polars as pl
import pytest
from test_pipeline import PRICES, SETTINGS, write_log

from ingest.errors import WorkError
from ingest.importers.otlp_files import import_paths
from ingest.options import ConverterOptions
from optimizer import cli, pipeline
from optimizer.logged import to_dataset
from optimizer.planned_labels import COLUMNS, MAX_NEWER, keep, read, settled, with_probabilities


def plan(drawn: list[str], others: list[str] = (), scored: list[str] = (), chance: float = 0.25) -> pl.DataFrame:  # type: ignore[assignment]
    traces = [*drawn, *others, *scored]
    return pl.DataFrame(
        {
            "service": ["app"] * len(traces),
            "trace_id": traces,
            "probability": [1.0 if trace in scored else chance for trace in traces],
            "drawn": [trace in drawn for trace in traces],
            "scored": [trace in scored for trace in traces],
        },
        schema=COLUMNS,
    )


def decisions(traces: str, scored: str, judged: str = "") -> pl.DataFrame:
    """One decision for each letter."""
    return pl.DataFrame(
        {
            "service": ["app"] * len(traces),
            "trace_id": list(traces),
            "time_ns": range(len(traces)),
            "quality": [0.5 if t in scored + judged else None for t in traces],
            "label_source": ["human" if t in scored else "judge" if t in judged else None for t in traces],
        },
        schema_overrides={"quality": pl.Float64, "label_source": pl.String},
    )


def probabilities(rows: pl.DataFrame, *plans: pl.DataFrame) -> list[float | None]:
    return with_probabilities(rows, plans)["label_probability"].to_list()


def test_a_decision_that_a_plan_covers_has_its_probability_and_others_have_none() -> None:
    covered = plan(["a"], ["b"], ["c"])
    assert probabilities(decisions("abcd", "ac"), covered) == [0.25, 0.25, 1.0, None]


def test_a_score_that_nobody_drew_may_teach_but_not_judge() -> None:
    assert probabilities(decisions("abc", "abc"), plan(["a"], ["b"], ["c"])) == [0.25, 0.0, 1.0]


def test_a_plan_whose_scores_did_not_come_back_says_nothing() -> None:
    assert probabilities(decisions("ab", ""), plan(["a"], ["b"])) == [None, None]
    assert probabilities(decisions("ab", "", judged="ab"), plan(["a"], ["b"])) == [None, None]


@pytest.mark.parametrize(("missing", "known"), [(0, True), (2, True), (3, False)])
def test_a_few_scores_may_fail_to_come(missing: int, known: bool) -> None:
    traces = [f"t{k}" for k in range(100)]
    rows = pl.DataFrame(
        {
            "service": ["app"] * 100,
            "trace_id": traces,
            "quality": [None] * missing + [0.5] * (100 - missing),
            "label_source": ["human"] * 100,
        }
    )
    found = probabilities(rows, plan(traces))
    assert found == (pytest.approx([0.25 * (1 - missing / 100)] * 100) if known else [None] * 100)


def test_the_newest_plan_that_came_back_counts_and_older_ones_where_it_is_silent() -> None:
    first, second, open_plan = plan(["a"], ["b"]), plan(["b"], ["c"], ["a"], chance=0.5), plan(["c"], chance=0.9)
    assert probabilities(decisions("abc", "ab"), open_plan, second, first) == [1.0, 0.5, 0.5]
    assert probabilities(decisions("abc", "a"), open_plan, second, first) == [0.25, 0.25, None]


def test_decisions_newer_than_a_plan_wait_for_the_next_one_unless_they_are_many() -> None:
    def kept(covered: int, newer: int, scored_newer: bool = False) -> int:
        rows = pl.DataFrame(
            {
                "time_ns": range(covered + newer),
                "label_probability": [0.1] * covered + [None] * newer,
                "quality": [None] * covered + [0.5 if scored_newer else None] * newer,
            },
            schema_overrides={"label_probability": pl.Float64, "quality": pl.Float64},
        )
        return len(settled(rows))

    assert kept(90, 0) == 90
    assert kept(90, int(90 * MAX_NEWER)) == 90
    assert kept(90, int(90 * MAX_NEWER) + 1) == 121
    assert kept(90, 20, scored_newer=True) == 110
    assert kept(0, 20) == 20


def test_plans_are_kept_once_and_read_newest_first(tmp_path: Path) -> None:
    first, second = plan(["a"]), plan(["b"])
    for order, one in enumerate((first, second, second)):
        keep(tmp_path, one, order)
    keep(tmp_path, plan([]), 9)
    found = read(tmp_path)
    assert [one["trace_id"].to_list() for one in found] == [["b"], ["a"]]
    (tmp_path / "label_plans" / "00000000000000000003.parquet").write_text("x")
    with pytest.raises(WorkError, match="cannot read"):
        read(tmp_path)


@pytest.fixture(scope="module")
def judged_home(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, float], dict]:
    """A home whose only scores are a judge's, the truth by trace, and its first night. The judge gives 0.8 for what is
    right and 0.4 for what is wrong, with noise."""
    folder = tmp_path_factory.mktemp("judged")
    spans, logs = write_log(folder / "log.jsonl", 1300).read_bytes().split(b"\n")
    records = orjson.loads(logs)["resourceLogs"][0]["scopeLogs"][0]["logRecords"]
    truth = {one["traceId"]: one["attributes"][1]["value"]["doubleValue"] for one in records}
    (folder / "log.jsonl").write_bytes(spans)
    home = folder / "home"
    import_paths(home, [folder / "log.jsonl"], ConverterOptions(quiet_s=0.0, prices=PRICES))
    noise = np.random.default_rng(3).normal(0, 0.08, len(truth))
    rows = [
        {"trace_id": trace, "name": "quality", "source": "judge", "value": float(np.clip(0.4 + 0.4 * y + e, 0, 1))}
        for (trace, y), e in zip(truth.items(), noise, strict=True)
    ]
    write_csv(folder / "judge.csv", rows)
    assert cli.run(["scores", "import", "--home", str(home), str(folder / "judge.csv")]) == 0
    return home, truth, pipeline.nightly(home, SETTINGS)["services"]["app"]


def write_csv(file: Path, rows: list[dict]) -> None:
    with file.open("w", newline="") as handle:
        writer = csv.DictWriter(handle, rows[0].keys())
        writer.writeheader()
        writer.writerows(rows)


def reason(said: dict, condition: str) -> dict:
    return next(one for one in said["reasons"] if one["condition"] == condition)


def test_a_judge_alone_is_never_deployed_and_says_what_would_help(judged_home) -> None:
    _, _, said = judged_home
    assert said["verdict"] == "promising"
    found = reason(said, "quality is more than a judge's opinion")
    assert not found["holds"]
    assert "about that judge" in found["got"]
    assert "60 decisions scored by people" in found["remedy"]
    assert "retroute plan --labels" in found["remedy"]
    assert said["quality_change"]["kind"] == "assumption"
    assert sum(not one["holds"] for one in said["reasons"]) == 1


def test_planned_scores_come_back_and_are_judged_by_their_probabilities(
    judged_home, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    home, truth, _ = judged_home
    file = tmp_path / "to-score.csv"
    assert cli.run(["plan", "--home", str(home), "--labels", "--budget", "450", "-o", str(file)]) == 0
    rows = list(csv.DictReader(file.read_text().splitlines()))
    assert len(rows) == pytest.approx(450, abs=3)
    write_csv(file, [row | {"value": str(truth[row["trace_id"]])} for row in rows])
    assert cli.run(["scores", "import", "--home", str(home), str(file)]) == 0
    said = pipeline.nightly(home, SETTINGS)["services"]["app"]
    decided = pl.read_parquet(sorted((home / "runs").glob("2*"))[-1] / "decisions.parquet")
    drawn = {row["trace_id"]: float(row["probability"]) for row in rows}
    assert set(decided.filter(pl.col("quality").is_not_null())["trace_id"]) == set(drawn)
    assert decided["label_probability"].null_count() == 0
    known = dict(decided.select("trace_id", "label_probability").iter_rows())
    assert all(known[trace] == pytest.approx(chance, abs=1e-6) for trace, chance in drawn.items())
    data = to_dataset(decided, seed=0).data
    assert data.label_sources == ("human",)
    assert not np.isnan(data.judge).any()
    assert reason(said, "quality is more than a judge's opinion")["got"] == "scored by people"
    scored = reason(said, "outcomes are scored")
    assert scored["holds"]
    assert "35% of decisions carry a score, drawn with known probabilities" in scored["got"]
    change = said["quality_change"]
    assert change["kind"] == "asymptotic"
    assert change["low"] < 0.36 < change["high"]  # always the cheap model: 0.9 - (0.4 * 0.9 + 0.6 * 0.3)
    assert said["verdict"] in ("deploy", "promising")
    assert [one["condition"] for one in said["reasons"] if not one["holds"]] in ([], ["enough decisions"])
