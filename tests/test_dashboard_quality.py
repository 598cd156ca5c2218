"""The page Quality signals: what scores cover, how late they come, and whether a judge agrees with others."""

from __future__ import annotations

import re
import shutil
from functools import partial
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from pages_shown import html, text
from pages_shown import show as show_page
from trace_fixture import BIG, SHOP, SMALL, write

from dashboard import data, quality_charts, quality_data, quality_sections
from dashboard.theme import LIGHT
from dashboard.views import frame
from ingest.lake import Lake
from optimizer.judges import agreement

PATIENCE_S = 60
TRACES = 70


show = partial(show_page, "quality")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("made") / "home", TRACES)


@pytest.fixture
def home(made: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("RETROUTE_HOME", str(made))
    return made


def signals(service: str | None = SHOP) -> quality_data.Signals:
    return quality_data.load(service, None, None, frame.newest(data.runs()))


# ---- states


def test_an_empty_home_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RETROUTE_HOME", str(tmp_path))
    at = show()
    assert not at.exception
    assert f"retroute collect --home {tmp_path}" in text(at)


def test_without_a_score_it_says_how_to_send_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RETROUTE_HOME", str(tmp_path))
    Lake.open(tmp_path, write=True).close()
    at = show()
    assert not at.exception
    assert "Nothing has been scored yet" in text(at)
    assert "POST http://127.0.0.1:4318/v1/scores" in text(at)


def test_few_scores_and_no_judge_refuse_what_they_cannot_tell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RETROUTE_HOME", str(tmp_path))
    write(tmp_path, 2, judge=False)
    shutil.rmtree(tmp_path / "runs")
    at = show()
    assert not at.exception
    assert "No judge's score stands beside one that a person or a program gave." in text(at)


def test_too_few_pairs_are_refused_in_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RETROUTE_HOME", str(tmp_path))
    write(tmp_path, 6)
    at = show(service=SHOP)
    assert not at.exception
    assert "Not estimated" in text(at)
    assert "scored by both; 20 are needed" in text(at)


def test_days_without_a_score_say_so(home: Path) -> None:
    at = show(**{"from": "2031-01-01", "to": "2031-01-02"})
    assert not at.exception
    assert "No score here" in text(at)


def test_a_damaged_run_and_lake_are_states(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    copy = tmp_path / "home"
    shutil.copytree(made, copy)
    monkeypatch.setenv("RETROUTE_HOME", str(copy))
    for file in (copy / "runs").glob("*/verdicts.json"):
        file.write_text("{")
    at = show()
    assert not at.exception
    assert "is left out" in text(at)
    assert "What is scored" in text(at)
    (copy / "lake" / "catalog.sqlite").write_bytes(b"no database")
    broken = show()
    assert not broken.exception
    assert "This home cannot be read" in text(broken)


# ---- numbers


def test_the_full_page_shows_every_part(home: Path) -> None:
    at = show(service=SHOP)
    assert not at.exception
    told = text(at)
    for part in (
        "What is scored",
        "Coverage and delay by model",
        "Over time",
        "The judge against others",
        "Not on a scale",
    ):
        assert part in told
    assert "80% of 70 traces have the score that means quality." in told
    assert "llm-judge" in told
    assert "stars" in told
    assert "say with what probability they were to be given, at least 50%" in told


def test_coverage_by_model_is_the_lakes_and_links_to_what_is_missing(home: Path) -> None:
    at = show(service=SHOP)
    with Lake.open(home) as lake:
        for model in (BIG, SMALL):
            used = {"service": SHOP, "model": model, "most": 1}
            traces = lake.query("traces_found", **used)["found"][0]
            left = lake.query("traces_found", **used, unscored=True)["found"][0]
            link = f'href="traces?service={SHOP}&amp;model={model}&amp;unscored=1" target="_self">{left} unscored</a>'
            row = re.search(rf"<tr><td>{model}</td><td[^>]*>(\d+)</td>", html(at))
            assert row is not None
            assert int(row[1]) == traces
            assert link in html(at)


def test_signals_are_counted_as_the_scores_view_has_them(home: Path) -> None:
    rows = quality_data.by_name(signals(None))
    with Lake.open(home) as lake:
        true = lake.sql(
            "select s.name, s.source, count(*) as scores, count(*) - count(value01) as unmapped, avg(value01) as mean, "
            "quantile_cont((time_ns - t.end_ns) / 1e9, 0.5) as delay from scores s "
            "join traces t on t.trace_id = s.trace_id group by s.name, s.source order by scores desc, name"
        )
    assert rows.select("name", "source", "scores", "unmapped").rows() == true.drop("mean", "delay").rows()
    assert rows["mean"].drop_nulls().to_list() == pytest.approx(true["mean"].drop_nulls().to_list())
    assert rows["delay_p50_s"].to_list() == pytest.approx(true["delay"].to_list())


def test_the_judge_is_compared_where_both_scored_the_same(home: Path) -> None:
    (pair,) = quality_data.pairs(signals())
    scored = [i for i in range(TRACES) if i % 5]
    human = np.array([float(i % 2) for i in scored])
    judge = np.array([1 - i % 2 if i % 4 == 0 else i % 2 * 0.8 for i in scored], dtype=float)
    true = agreement(judge, human)
    assert (pair.judge, pair.other, pair.of) == ("judge", "quality", "trace")
    assert pair.found.pairs == len(scored)
    assert pair.found.kappa == true.kappa
    at = show(service=SHOP)
    shown = dict(re.findall(r'data-metric="(\w+)" data-value="([^"]+)"', html(at)))
    assert true.kappa is not None
    assert true.bias is not None
    assert float(shown["kappa"]) == pytest.approx(true.kappa.value)
    assert float(shown["bias"]) == pytest.approx(true.bias.value)


def test_only_the_newest_of_very_many_scores_are_looked_at(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quality_data, "MOST", 40)
    found = signals(None)
    assert found.cut
    assert 20 <= found.scores.height <= 41
    models = quality_data.by_model(found)
    assert (models["scored"] <= models["traces"]).all()
    assert "the newest 40 are looked at" in text(show())
    assert signals(SHOP).scores.height >= 4  # whose scores are all older than those


def test_uneven_coverage_is_said_in_words() -> None:
    schema = {"service": pl.String, "model": pl.String, "traces": pl.Int64, "scored": pl.Int64}
    rows = pl.DataFrame([(SHOP, "a", 100, 90), (SHOP, "b", 100, 40), (SHOP, "c", 5, 0)], schema=schema, orient="row")
    assert quality_sections.uneven(rows).startswith("Coverage is uneven: shop: 40% of b but 90% of a.")
    assert quality_sections.uneven(rows.head(1)) == ""


def test_charts_hold_the_numbers_they_are_given(home: Path) -> None:
    (pair,) = quality_data.pairs(signals())
    drawn = quality_charts.reliability(pair.found.curve, LIGHT).to_dict()
    data_of = [rows for rows in drawn["datasets"].values() if rows and "pairs" in rows[0]]
    assert sum(row["pairs"] for row in data_of[0]) == pair.found.pairs
    days = quality_data.by_day(signals()).filter(pl.col("name") == "quality")
    (rows,) = quality_charts.days(days, LIGHT).to_dict()["datasets"].values()
    assert [row["mean"] for row in rows] == pytest.approx([100 * mean for mean in days["mean"]])
    assert all(row["low"] <= row["mean"] <= row["high"] for row in rows)
    spread = quality_data.distribution(signals())
    assert spread.group_by("model").agg(pl.col("share").sum())["share"].to_list() == pytest.approx([1.0, 1.0])
