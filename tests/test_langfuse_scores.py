"""Scores as Langfuse's SDKs 3 and 5 send them: what is stored, and the answers that the SDKs expect."""

from __future__ import annotations

import asyncio
import json

import httpx
import pytest

from ingest.foreign_ids import span_id, trace_id
from ingest.intake import ReceiverOptions
from ingest.langfuse_scores import INGESTION, SCORES, take
from ingest.receiver import Receiver
from ingest.scores import ScoreError, parse_scores
from ingest.wal import Wal, WalReader

TRACE, SPAN = "b9775318d22c4b106b15672db9cbff0c", "ee2316f15f39c74d"
BATCH = {  # as the Python SDK 3.15 sends it
    "batch": [
        {
            "id": "e1",
            "type": "score-create",
            "timestamp": "2026-11-30T08:29:53.432592Z",
            "body": {"id": "c78", "traceId": TRACE, "observationId": SPAN, "name": "helpfulness", "value": 0.75,
                     "environment": "staging", "comment": "ok", "dataType": "NUMERIC"},
        },
        {
            "id": "e2",
            "type": "score-create",
            "timestamp": "2026-11-30T08:29:53.432810Z",
            "body": {"id": "208", "traceId": TRACE, "name": "thumbs", "value": 1.0, "dataType": "BOOLEAN"},
        },
        {
            "id": "e3",
            "type": "score-create",
            "timestamp": "2026-11-30T08:29:53.432843Z",
            "body": {"id": "ada", "traceId": TRACE, "name": "tone", "value": "friendly", "dataType": "CATEGORICAL"},
        },
    ],
    "metadata": {"batch_size": 3, "sdk_name": "python", "sdk_version": "3.15.0", "public_key": "pk"},
}  # fmt: skip


def taken(path, body):
    return take(path, json.dumps(body).encode(), 5)


def test_a_batch_of_the_third_sdk_is_stored_and_answered_207():
    found = taken(INGESTION, BATCH)
    assert (found.status, found.answer["errors"]) == (207, [])
    assert found.answer["successes"] == [{"id": f"e{n}", "status": 201} for n in (1, 2, 3)]
    numeric, boolean, category = parse_scores(found.body, 5)
    assert (numeric.score_id, numeric.trace_id, numeric.span_id, numeric.value) == ("c78", TRACE, SPAN, 0.75)
    assert (numeric.explanation, numeric.time_ns) == ("ok", 1796027393432592000)
    assert (boolean.value, category.value, category.label) == (1.0, None, "friendly")


def test_a_list_of_the_fifth_sdk_is_answered_202_and_a_partly_bad_one_207():
    good = {"id": "a", "traceId": TRACE, "name": "quality", "value": 0.9, "timestamp": "2026-11-30T08:29:38.672317Z"}
    assert (taken(SCORES, [good]).status, taken(SCORES, [good]).answer) == (202, {"message": "Accepted"})
    found = taken(SCORES, [good, {"name": "q", "value": 1}, {"traceId": TRACE, "value": 1}])
    assert (found.status, found.scores, found.rejected) == (207, 1, 2)
    assert found.answer["accepted"] == 1
    assert "score 1: one of trace_id" in found.answer["errors"][0]["message"]
    assert "score 2: name is missing" in found.answer["errors"][1]["message"]


def test_one_score_alone_is_answered_with_its_id():
    found = taken(SCORES, {"traceId": TRACE, "name": "q", "value": True, "source": "ANNOTATION"})
    (score,) = parse_scores(found.body, 5)
    assert (found.status, found.answer) == (200, {"id": score.score_id})
    assert (score.value, score.source) == (1.0, "human")


def test_other_events_are_refused_one_by_one():
    found = taken(INGESTION, {"batch": [{"id": "t", "type": "trace-create", "body": {}}, *BATCH["batch"]]})
    assert found.scores == 3
    (error,) = found.answer["errors"]
    assert (error["id"], error["status"]) == ("t", 400)
    assert "OTLP" in error["message"]


def test_ids_that_are_not_opentelemetrys_are_made_the_same_way_each_time():
    (score,) = parse_scores(
        taken(SCORES, {"traceId": "my trace", "observationId": "o", "name": "q", "value": 1}).body, 5
    )
    assert (score.trace_id, score.span_id) == (trace_id("my trace"), span_id("o"))
    uuid = "0af76519-16cd-43dd-8448-eb211c80319c"
    assert trace_id(uuid) == uuid.replace("-", "")
    assert trace_id(TRACE.upper()) == TRACE


@pytest.mark.parametrize(
    ("path", "body"), [(INGESTION, b"{}"), (INGESTION, b"[]"), (SCORES, b"nonsense"), (SCORES, b"5")]
)
def test_what_is_no_such_request_is_refused(path, body):
    with pytest.raises(ScoreError):
        take(path, body, 0)


def test_the_receiver_stores_them_as_scores_before_it_answers(tmp_path):
    app = Receiver(Wal(tmp_path), ReceiverOptions())

    async def post(path, body):
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://c") as client:
            return await client.post(path, json=body)

    answer = asyncio.run(post(INGESTION, BATCH))
    assert (answer.status_code, len(answer.json()["successes"])) == (207, 3)
    assert asyncio.run(post(SCORES, [{"name": "q"}])).status_code == 207
    assert asyncio.run(post(INGESTION, {"no": "batch"})).status_code == 400
    (record,) = [record for _, record in WalReader(tmp_path).read(1 << 20)]
    assert record.kind == "scores"
    assert [score.name for score in parse_scores(record.body, 0)] == ["helpfulness", "thumbs", "tone"]
    assert (app.intake.received["scores"], app.intake.received["rejected"]) == (3, 1)
