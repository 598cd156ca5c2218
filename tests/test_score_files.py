"""Scores from files: every form gives the same scores, once however often it is read; problems name file and line."""

from __future__ import annotations

import json

import polars as pl
import pytest
from otlp_traces import trace_id

from ingest.importers.engine import import_sources
from ingest.importers.sources import Source
from ingest.lake import Lake
from ingest.options import ConverterOptions
from ingest.score_files import IMPORTER
from optimizer import cli

ROWS = [
    {"trace_id": trace_id(1), "name": "quality", "value": 0.25, "source": "judge", "time": "2026-01-02T03:04:05Z"},
    {"trace_id": trace_id(2), "name": "quality", "value": 1.0, "comment": "great"},
    {"trace_id": trace_id(2), "name": "tone", "label": "pass"},
]
TIME_NS = 1767323045 * 10**9


def written(folder, form, rows=ROWS):
    path = folder / f"scores.{form}"
    if form == "jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    elif form == "json":
        path.write_text(json.dumps(rows))
    else:
        frame = pl.DataFrame(rows)
        frame.write_csv(path) if form == "csv" else frame.write_parquet(path)
    return path


def imported(home, path, again=False):
    return import_sources(home, [(IMPORTER, Source(str(path), path))], ConverterOptions(), again=again)


@pytest.mark.parametrize("form", ["csv", "jsonl", "json", "parquet"])
def test_every_form_of_file_gives_the_same_scores_once(tmp_path, form):
    path, home = written(tmp_path, form), tmp_path / "home"
    report = imported(home, path)
    assert (report.scores, report.problems) == (3, ())
    assert imported(home, path).unchanged == 1
    assert imported(home, path, again=True).scores == 3
    with Lake.open(home) as lake:
        rows = lake.sql("select trace_id, name, value, label, source, explanation from scores order by 1, 2").rows()
        assert rows == [
            (trace_id(1), "quality", 0.25, None, "judge", None),
            (trace_id(2), "quality", 1.0, None, None, "great"),
            (trace_id(2), "tone", None, "pass", None, None),
        ]
        assert lake.sql("select time_ns from scores where source = 'judge'").item() == TIME_NS
        assert lake.sql("select count(*) from score_history").item() == 6


def test_of_rows_without_a_time_the_later_one_counts_last(tmp_path):
    rows = [{"trace_id": trace_id(1), "name": "q", "value": value} for value in (0.1, 0.9, 0.5)]
    imported(tmp_path / "home", written(tmp_path, "jsonl", rows))
    with Lake.open(tmp_path / "home") as lake:
        assert lake.sql("select value from scores order by time_ns").to_series().to_list() == [0.1, 0.9, 0.5]


def test_langfuses_score_export_is_read(tmp_path):
    rows = [
        {"id": "s1", "timestamp": "2026-05-29 13:46:19.963000", "trace_id": "t", "observation_id": "o", "name": "tone",
         "value": 2, "source": "EVAL", "comment": "c", "data_type": "CATEGORICAL", "string_value": "neutral"},
    ]  # fmt: skip
    imported(tmp_path / "home", written(tmp_path, "jsonl", rows))
    with Lake.open(tmp_path / "home") as lake:
        assert lake.sql("select score_id, value, label, source from scores").rows() == [
            ("s1", None, "neutral", "judge")
        ]


def test_a_bad_row_is_named_with_its_line_and_the_rest_is_imported(tmp_path, capsys):
    path = tmp_path / "scores.csv"
    path.write_text(f"name,value,trace_id\nq,0.5,{trace_id(1)}\nq,good,{trace_id(2)}\nq,1,\n")
    assert cli.run(["scores", "import", "--home", str(tmp_path / "home"), "--json", str(path)]) == 1
    printed = capsys.readouterr()
    assert json.loads(printed.out)["scores"] == 1
    assert f"{path}:3: value 'good' is not a number; words belong into a column `label`" in printed.err
    assert f"{path}:4: one of trace_id, span_id, session_id, response_id is missing" in printed.err


def test_a_file_that_holds_no_scores_by_its_name_is_refused(tmp_path, capsys):
    (tmp_path / "scores.xlsx").write_bytes(b"PK")
    assert cli.run(["scores", "import", "--home", str(tmp_path / "home"), str(tmp_path / "scores.xlsx")]) == 2
    assert "Known are .jsonl" in capsys.readouterr().err
