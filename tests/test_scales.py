"""Scores on a declared scale: in Python and in the lake the same, for old scores too once the scale changes."""

from __future__ import annotations

import json
import time

import pytest
from otlp_traces import trace_id

from ingest import scales, wal
from ingest.converter import run
from ingest.lake import Lake
from ingest.options import ConverterOptions
from ingest.scales import Scale
from optimizer import config

SCALES = (
    Scale("stars", 1, 5),
    Scale("toxicity", invert=True),
    Scale("tone", labels={"Friendly": 1.0, "rude": 0.0}),
    Scale("mixed", 0, 10, labels={"good": 0.9}),
)
CASES = [
    ("stars", 5, None, 1.0),
    ("stars", 1, None, 0.0),
    ("stars", 4, None, 0.75),
    ("stars", 6, None, None),
    ("stars", 0.5, "pass", None),
    ("stars", None, "pass", 1.0),
    ("toxicity", 0.25, None, 0.75),
    ("toxicity", -1, None, None),
    ("tone", None, "friendly", 1.0),
    ("tone", None, "RUDE", 0.0),
    ("tone", None, "odd", None),
    ("tone", None, "pass", None),
    ("tone", 0.3, "odd", 0.3),
    ("mixed", 5, None, 0.5),
    ("mixed", 5, "good", 0.9),
    ("plain", 0.4, None, 0.4),
    ("plain", 7, None, None),
    ("plain", 7, "fail", 0.0),
    ("plain", None, "Passed", 1.0),
    ("plain", None, "true", 1.0),
    ("plain", None, "great", None),
]


def store(home, scores, options):
    log = wal.Wal(home / "wal")
    log.write([wal.Record("scores", "json", time.time_ns(), json.dumps(score).encode()) for score in scores])
    log.close()
    run(home, options, lambda: True)


@pytest.mark.parametrize(("name", "value", "label", "expected"), CASES)
def test_a_score_means_what_its_scale_says(name, value, label, expected):
    scale = {scale.name: scale for scale in SCALES}.get(name)
    found = scales.value01(scale, value, label)
    assert found == (None if expected is None else pytest.approx(expected))


def test_the_lake_maps_every_score_as_python_does_and_again_after_the_scale_changes(tmp_path):
    scores = [
        {"trace_id": trace_id(1), "score_id": str(n), "name": name}
        | ({} if value is None else {"value": value})
        | ({} if label is None else {"label": label})
        for n, (name, value, label, _) in enumerate(CASES)
    ]
    store(tmp_path, scores, ConverterOptions(scales=SCALES))
    with Lake.open(tmp_path) as lake:
        found = dict(lake.sql("select score_id::int, value01 from scores").rows())
    for n, (name, value, label, expected) in enumerate(CASES):
        assert found[n] == (None if expected is None else pytest.approx(expected)), (name, value, label)
    run(tmp_path, ConverterOptions(), lambda: True)
    with Lake.open(tmp_path) as lake:
        assert lake.sql("select value01 from scores where score_id = '0'").item() is None
        assert lake.sql("select value01 from scores where score_id = '6'").item() == 0.25


def test_the_same_scales_are_stored_once(tmp_path):
    for _ in range(3):
        run(tmp_path, ConverterOptions(scales=SCALES), lambda: True)
    with Lake.open(tmp_path) as lake:
        assert lake.sql("select max(version) from score_scales").item() == 1
        assert len(lake.query("score_scales")) == 1 + len(SCALES) + 3


def test_of_copies_of_a_score_the_last_one_counts_and_all_are_kept(tmp_path):
    score = {"trace_id": trace_id(1), "name": "q", "score_id": "a", "source": "user"}
    store(tmp_path, [score | {"value": 0.1}, score | {"value": 0.7}], ConverterOptions())
    other = score | {"trace_id": trace_id(2), "value": 0.3}
    store(tmp_path, [score | {"value": 0.9}, other], ConverterOptions())
    with Lake.open(tmp_path) as lake:
        assert lake.sql("select value from scores order by value").to_series().to_list() == [0.3, 0.9]
        assert lake.sql("select count(*) from score_history").item() == 4


def test_scales_are_read_from_the_settings(tmp_path):
    (tmp_path / "retroute.toml").write_text(
        '[scores.stars]\nmin = 1\nmax = 5\n[scores."my tone"]\nlabels = { good = 1, bad = 0.0 }\n'
        "[scores.t]\ninvert = true"
    )
    stars, tone, t = config.load(tmp_path, {}, {}).scores
    assert (stars, t) == (Scale("stars", 1, 5), Scale("t", invert=True))
    assert (tone.name, dict(tone.labels)) == ("my tone", {"good": 1.0, "bad": 0.0})


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[scores.q]\nmin = 5\nmax = 1", "scores.q: min must be below max"),
        ("[scores.q]\nlabels = { good = 2 }", "scores.q.labels must be a table of labels"),
        ("[scores.q]\nlabels = 1", "scores.q.labels must be a table of labels"),
        ("[scores.q]\nmin = 'a'", "scores.q.min must be a number"),
        ("[scores.q]\ninverted = true", "unknown key 'inverted'"),
        ("scores = 1", "scores must be a table"),
    ],
)
def test_a_scale_that_cannot_be_meant_is_refused(tmp_path, text, says):
    (tmp_path / "retroute.toml").write_text(text)
    with pytest.raises(config.ConfigError) as refused:
        config.load(tmp_path, {}, {})
    assert says in refused.value.message
