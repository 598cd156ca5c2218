"""Scores that say how likely their target was to be scored: stored as sent, and what an estimate needs to be right."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from otlp_traces import trace_id
from test_decisions import CALLS, SCORES, SECOND, call, message, score

from ingest.importers.engine import import_sources
from ingest.importers.sources import Source
from ingest.lake import Lake
from ingest.options import ConverterOptions
from ingest.score_files import IMPORTER
from ingest.score_files import score as file_score
from ingest.scores import ScoreError, parse_scores
from optimizer.decisions import find_decisions
from optimizer.evidence import Evaluation, cross_fitted
from optimizer.gate import Estimate
from optimizer.logged import to_dataset
from optimizer.planned_labels import COLUMNS, settled, with_probabilities

STATED = {**SCORES, "probability": pl.Float64}


@pytest.mark.parametrize("value", [1, 1.0, 0.25, 1e-6])
def test_a_probability_arrives(value: float) -> None:
    (found,) = parse_scores(json.dumps({"name": "q", "value": 1, "session_id": "s", "probability": value}).encode(), 7)
    assert found.probability == value


def test_none_is_no_probability() -> None:
    (found,) = parse_scores(b'{"name": "q", "value": 1, "session_id": "s", "probability": null}', 7)
    assert found.probability is None


@pytest.mark.parametrize("value", [0, -0.5, 1.0001, 25, "0.5", True, [0.5]])
def test_what_is_no_probability_is_refused(value: object) -> None:
    body = json.dumps([{"name": "q", "value": 1, "session_id": "s", "probability": value}]).encode()
    with pytest.raises(ScoreError, match=r"score 0: probability .* is not a number above 0 and at most 1"):
        parse_scores(body, 7)


def test_files_carry_probabilities_and_a_wrong_one_is_named(tmp_path: Path) -> None:
    path, home = tmp_path / "scores.csv", tmp_path / "home"
    pl.DataFrame(
        {
            "trace_id": [trace_id(1), trace_id(2), trace_id(3)],
            "name": ["q"] * 3,
            "value": [0.5, 1.0, 0.0],
            "probability": [0.25, None, 1.5],
        }
    ).write_csv(path)
    report = import_sources(home, [(IMPORTER, Source(str(path), path))], ConverterOptions())
    assert report.scores == 2
    assert "probability 1.5 is not a number above 0 and at most 1" in report.problems[0]
    with Lake.open(home) as lake:
        assert lake.query("scores").select("probability").to_series().sort(nulls_last=True).to_list() == [0.25, None]
        assert lake.sql("select count(probability) from score_history").item() == 1


def test_a_probability_in_words_is_refused_too() -> None:
    row = {"name": "q", "value": 1, "trace_id": trace_id(1)}
    assert file_score({**row, "probability": "0.125"}, 7)["probability"] == 0.125
    assert "probability" not in file_score({**row, "probability": ""}, 7)
    with pytest.raises(ScoreError, match="probability 'often' is not a number"):
        file_score({**row, "probability": "often"}, 7)


def decided(traces: int, stated: dict[int, float | None], services: int = 1) -> pl.DataFrame:
    """Traces a second apart; those in `stated` have a score, with that probability."""
    calls = [
        call(f"t{n}", service="app" if n % services == 0 else "other", start_ns=n * SECOND, end_ns=(n + 1) * SECOND)
        for n in range(traces)
    ]
    scores = [{**score(f"t{n}", 0.5), "score_id": str(n), "probability": chance} for n, chance in stated.items()]
    return find_decisions(
        pl.DataFrame(calls, schema=CALLS), pl.DataFrame(scores, schema=STATED), {"app": "quality", "other": "quality"}
    )


def test_where_all_scores_have_one_the_rest_was_drawn_and_not_picked() -> None:
    found = decided(5, {1: 0.25, 3: 0.5})["label_probability"].to_list()
    assert found == [1.0, 0.25, 1.0, 0.5, None]  # the last one may still be scored


def test_it_counts_from_the_last_score_on_that_has_none() -> None:
    assert decided(6, {0: 0.5, 2: None, 4: 0.5})["label_probability"].to_list() == [None, None, None, 1.0, 0.5, None]
    assert decided(4, {0: 0.5, 1: 0.5, 3: None})["label_probability"].to_list() == [None] * 4


def test_each_service_stands_by_itself() -> None:
    found = decided(6, {0: 0.5, 1: None, 2: 0.25, 3: 0.5}, services=2)
    assert found.filter(pl.col("service") == "app")["label_probability"].to_list() == [0.5, 0.25, None]
    assert found.filter(pl.col("service") == "other")["label_probability"].to_list() == [None, 0.5, None]


def test_without_the_column_nothing_is_known() -> None:
    found = find_decisions(
        pl.DataFrame([call()], schema=CALLS), pl.DataFrame([score()], schema=SCORES), {"app": "quality"}
    )
    assert found["label_probability"].to_list() == [None]


def test_a_plan_goes_before_what_a_score_states() -> None:
    rows = decided(3, {0: 0.5, 1: 0.5, 2: 0.5}).with_columns(label_source=pl.lit("human"))
    plan = pl.DataFrame(
        {"service": ["app"], "trace_id": ["t1"], "probability": [0.125], "drawn": [True], "scored": [False]},
        schema=COLUMNS,
    )
    assert with_probabilities(rows, [plan])["label_probability"].to_list() == [0.5, 0.125, 0.5]
    assert with_probabilities(rows, [])["label_probability"].to_list() == [0.5, 0.5, 0.5]


def test_decisions_newer_than_the_newest_score_wait() -> None:
    rows = with_probabilities(decided(9, dict.fromkeys(range(0, 8, 2), 0.5)), [])
    assert len(settled(rows)) == 7


N = 2000
GOOD = {("small", 0): 0.3, ("small", 1): 0.7, ("big", 0): 0.8, ("big", 1): 0.6}
KEPT = {0: 0.9, 1: 0.15}
"""A bad answer is far more likely to be looked at."""


@pytest.fixture(scope="module")
def world() -> tuple[pl.DataFrame, pl.DataFrame]:
    """Calls drawn evenly between two models for two kinds of prompts; scores that mostly fall on bad answers."""
    rng = np.random.default_rng(11)
    calls, scores = [], []
    for n in range(N):
        kind, action = int(rng.random() < 0.5), ("small", "big")[int(rng.random() < 0.5)]
        good = int(rng.random() < GOOD[action, kind])
        calls.append(
            call(
                f"t{n}",
                start_ns=n * SECOND,
                end_ns=(n + 1) * SECOND,
                input_text=message(("Tell a story", "What is 2 + 3?")[kind]),
                policy_action=action,
                policy_propensity=0.5,
                policy_candidates='["small", "big"]',
                policy_probabilities="[0.5, 0.5]",
            )
        )
        if rng.random() < KEPT[good]:
            said = {"score_id": str(n), "probability": KEPT[good], "source": "human"}
            scores.append({**score(f"t{n}", float(good)), **said})
    return pl.DataFrame(calls, schema=CALLS), pl.DataFrame(scores, schema=STATED)


def judged(calls: pl.DataFrame, scores: pl.DataFrame) -> Evaluation:
    data = to_dataset(settled(with_probabilities(find_decisions(calls, scores, {"app": "quality"}), [])), seed=0).data
    return cross_fitted(data, confidence=0.95, seed=0)


def errors(evaluation: Evaluation, action: str) -> float:
    """How many standard errors the quality of always taking an action is from the truth."""
    names = evaluation.data.action_names
    found = evaluation.value("quality", np.tile(np.eye(2)[names.index(action)], (len(evaluation.data), 1)))
    assert isinstance(found, Estimate)
    truth = (GOOD[action, 0] + GOOD[action, 1]) / 2
    return (found.value - truth) / ((found.high - found.low) / (2 * 1.96))


def test_scores_that_depend_on_the_outcome_mislead_unless_they_say_how_likely_they_were(
    world: tuple[pl.DataFrame, pl.DataFrame],
) -> None:
    calls, scores = world
    with_them, without = judged(calls, scores), judged(calls, scores.drop("probability"))
    assert with_them.labels_drawn
    assert not without.labels_drawn
    for action in ("small", "big"):
        assert abs(errors(with_them, action)) < 4
        assert errors(without, action) < -4  # far too low: mostly bad answers were looked at
