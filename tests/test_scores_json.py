"""POST /v1/scores: what is a score, and what is said about what is not."""

from __future__ import annotations

import json

import pytest

from ingest.scores import ScoreError, parse_scores

TRACE, SPAN = "A0" * 16, "0f" * 8


def parse_one(received_ns: int = 7, **fields: object):
    (score,) = parse_scores(json.dumps(fields).encode(), received_ns)
    return score


def test_all_fields_arrive():
    score = parse_one(
        score_id="id", name="quality", value=0.5, label="fair", source="human", explanation="because", time_ns=5,
        trace_id=TRACE, span_id=SPAN, session_id="s", response_id="r",
    )  # fmt: skip
    assert (score.score_id, score.name, score.value, score.label, score.source) == (
        "id",
        "quality",
        0.5,
        "fair",
        "human",
    )
    assert (score.explanation, score.time_ns) == ("because", 5)
    assert (score.trace_id, score.span_id, score.session_id, score.response_id) == (TRACE.lower(), SPAN, "s", "r")


def test_the_time_of_receipt_stands_in_for_a_missing_one():
    assert parse_one(name="q", value=1, session_id="s", received_ns=99).time_ns == 99


def test_true_and_false_are_one_and_zero():
    assert parse_one(name="q", value=True, session_id="s").value == 1.0
    assert parse_one(name="q", value=False, session_id="s").value == 0.0


def test_the_same_score_sent_again_has_the_same_id_and_another_has_not():
    same = {"name": "q", "value": 1, "session_id": "s", "time_ns": 5}
    assert parse_one(**same).score_id == parse_one(**same).score_id
    others = [{"name": "r"}, {"value": 2}, {"session_id": "t"}, {"time_ns": 6}, {"source": "judge"}]
    assert len({parse_one(**(same | other)).score_id for other in [{}, *others]}) == 6


def test_an_empty_list_is_no_scores():
    assert parse_scores(b"[]", 0) == ()


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"name": None}, "name is missing"),
        ({"name": ""}, "name is missing"),
        ({"name": 5}, "name is not text"),
        ({"value": None}, "value or label is missing"),
        ({"value": "0.5"}, "value is not a number"),
        ({"value": [1]}, "value is not a number"),
        ({"trace_id": None}, "one of trace_id, span_id, session_id, response_id is missing"),
        ({"trace_id": "abc"}, "trace_id is not 32 hex digits"),
        ({"trace_id": "0" * 32}, "trace_id is not 32 hex digits"),
        ({"trace_id": "g" * 32}, "trace_id is not 32 hex digits"),
        ({"span_id": TRACE}, "span_id is not 16 hex digits"),
        ({"time_ns": "5"}, "time_ns is not an integer"),
        ({"time_ns": 1.5}, "time_ns is not an integer"),
        ({"time_ns": -1}, "time_ns is not an integer"),
        ({"vlaue": 1}, "unknown key 'vlaue'"),
    ],
)
def test_an_invalid_score_is_refused_with_its_reason(change, says):
    with pytest.raises(ScoreError, match=says) as error:
        parse_one(**({"name": "q", "value": 1, "trace_id": TRACE} | change))
    assert str(error.value).startswith("score 0: ")


@pytest.mark.parametrize(("body", "says"), [(b"", "not JSON"), (b"NaN", "not JSON"), (b"5", "not an object")])
def test_what_is_no_json_object_is_refused(body, says):
    with pytest.raises(ScoreError, match=says):
        parse_scores(body, 0)
