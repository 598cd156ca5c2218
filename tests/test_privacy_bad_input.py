"""Damaged requests: whatever a receiver accepts a privacy policy can edit, and the good records in it stay good."""

from __future__ import annotations

import copy
import json
import random
from typing import Any

import corpus
import pytest

from ingest import otlp
from ingest.privacy import Policy
from ingest.redact import KINDS
from optimizer import prompts

POLICIES = [
    Policy(redact=KINDS, deny=("app.",)),
    Policy(content=False, redact=KINDS, vector=prompts.vector),
]
ODD: list[Any] = [
    *(None, "", 0, -1, 1.5, True, [], {}, "x", [1], {"a": 1}, "9" * 30, [[[]]], 1e308, 2**70, float("nan")),
    *({"key": 5, "value": []}, {"values": 3}, {"stringValue": ["x"]}, {"bytesValue": "?"}, {"intValue": "x"}),
]
FRAMES = {
    "traces": ("resourceSpans", "scopeSpans", "spans"),
    "logs": ("resourceLogs", "scopeLogs", "logRecords"),
}
BODIES = [
    record
    for case in corpus.cases(corpus.GOLDEN)
    for record in case.records()
    if record.kind != "metrics" and len(record.body) < 40_000
]


def damaged(item: Any, draw: random.Random) -> Any:
    """The JSON value with one of its parts replaced by something odd."""
    if draw.random() < 0.8 and item and isinstance(item, dict | list):
        place = draw.choice(list(item) if isinstance(item, dict) else range(len(item)))
        item[place] = damaged(item[place], draw)
        return item
    return copy.deepcopy(draw.choice(ODD))


def sent(draw: random.Random) -> tuple[bytes, str, str]:
    record = draw.choice(BODIES)
    if record.encoding == "json":
        item = json.loads(record.body)
        for _ in range(draw.randint(1, 4)):
            item = damaged(item, draw)
        body = json.dumps(item).encode()
        return body.replace(b"a", b"\xff", 1) if draw.random() < 0.1 else body, record.kind, "json"
    raw = bytearray(record.body)
    for _ in range(draw.randint(1, 6)):
        raw[draw.randrange(len(raw))] = draw.randrange(256)
    return bytes(raw), record.kind, "protobuf"


@pytest.mark.parametrize("seed", range(200))
def test_a_damaged_request_is_edited_or_refused(seed):
    draw = random.Random(seed)
    for _ in range(5):
        body, signal, encoding = sent(draw)
        try:
            before = otlp.decode(body, signal, encoding)
        except otlp.DecodeError:
            continue
        for policy in POLICIES:
            kept = policy.apply(body, signal, encoding)
            after = otlp.decode(kept, signal, encoding)
            assert [s.span_id for s in after.spans] == [s.span_id for s in before.spans]
            assert (len(after.logs), after.rejected) == (len(before.logs), before.rejected)
            assert policy.apply(kept, signal, encoding) is kept


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("signal", ["traces", "logs"])
def test_malformed_frames_cost_only_themselves(policy, signal):
    """And what they hold instead is edited like all else."""
    frames, scopes, records = FRAMES[signal]
    ids = {"traceId": "a0" * 16, "spanId": "0f" * 8}
    good = {scopes: [{records: [ids]}, "ann@example.com", {records: [ids, "ann@example.com"]}]}
    body = json.dumps({frames: [good, "ann@example.com", None, [], {scopes: "ann@example.com"}]}).encode()
    before = otlp.decode(body, signal, "json")
    kept = policy.apply(body, signal, "json")
    after = otlp.decode(kept, signal, "json")
    assert (len(before.spans), len(before.logs), before.rejected) in ((2, 0, 6), (0, 2, 6))
    assert (len(after.spans), len(after.logs), after.rejected) == (len(before.spans), len(before.logs), 6)
    assert b"ann@example.com" not in kept
    assert policy.apply(kept, signal, "json") is kept


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("body", [b"nonsense", b"[]", b'{"resourceSpans": "x"}', b'{"resourceSpans": [3]}'])
def test_what_is_no_request_is_refused(policy, body):
    with pytest.raises(otlp.DecodeError):
        otlp.decode(body, "traces", "json")
    with pytest.raises(otlp.DecodeError):
        policy.apply(body, "traces", "json")


def test_there_is_something_to_damage():
    assert {record.encoding for record in BODIES} == {"json", "protobuf"}
    assert {record.kind for record in BODIES} == {"traces", "logs"}
