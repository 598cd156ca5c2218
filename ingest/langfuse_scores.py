"""Scores as Langfuse's SDKs send them -> the body of POST /v1/scores, and the answer that the SDK expects. Pure.

    POST /api/public/ingestion   {"batch": [{"id", "type": "score-create", "body": SCORE}, ...]}    SDKs 2 to 4
                                 207 {"successes": [{"id", "status"}], "errors": [{"id", "status", "message"}]}
    POST /api/public/scores      [SCORE, ...]                                                       SDK 5
                                 202 {"message": "Accepted"}, or 207 {"accepted", "rejected", "errors"}
                                 SCORE: 200 {"id"}

Good scores are taken although others of the batch are not. What else the ingestion path carried (traces of SDK 2) is
refused event by event: traces come over OTLP.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import orjson

from ingest import foreign_ids
from ingest.dialects.values import text
from ingest.scores import ScoreError, parse_scores, score_id
from ingest.timestamps import nanoseconds

INGESTION = "/api/public/ingestion"
SCORES = "/api/public/scores"
PATHS = (INGESTION, SCORES)

SOURCES = {"ANNOTATION": "human", "EVAL": "judge", "API": "api"}
"""Langfuse's sources -> what `source` says."""


@dataclass(frozen=True, slots=True)
class Taken:
    """`body`: what goes to the log as the body of POST /v1/scores; empty when no score is good. `status` and `answer`
    go back once that is synced."""

    body: bytes
    scores: int
    rejected: int
    status: int
    answer: Mapping[str, object]


def take(path: str, body: bytes, received_ns: int) -> Taken:
    """Reads a request to one of `PATHS`. Raises ScoreError when it is not a request of theirs at all."""
    try:
        sent = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise ScoreError(f"not JSON: {error}") from None
    return _ingestion(sent, received_ns) if path == INGESTION else _scores(sent, received_ns)


def score(sent: object, received_ns: int, event_id: str | None = None) -> dict[str, object]:
    """One of Langfuse's scores (its API's or its export's names) as an object of POST /v1/scores. Raises ScoreError."""
    if not isinstance(sent, dict):
        raise ScoreError("not an object")

    def said(camel: str, snake: str) -> object:
        found = sent.get(camel)
        return sent.get(snake) if found is None else found

    kind = str(said("dataType", "data_type") or "").upper()
    value, label = said("value", "value"), text(said("stringValue", "string_value"))
    if kind == "CORRECTION":
        raise ScoreError("a correction is no score")
    if kind in ("CATEGORICAL", "TEXT") or isinstance(value, str):
        label = label or text(value)
        value = None
    trace, span, session = (
        text(said(*names))
        for names in (("traceId", "trace_id"), ("observationId", "observation_id"), ("sessionId", "session_id"))
    )
    name = text(sent.get("name"))
    at = nanoseconds(said("timestamp", "timestamp"))
    source = SOURCES.get(str(sent.get("source") or "API").upper(), "api")
    found: dict[str, object] = {
        "name": name,
        "value": value,
        "label": label,
        "trace_id": None if trace is None else foreign_ids.trace_id(trace),
        "span_id": None if span is None else foreign_ids.span_id(span),
        "session_id": session,
        "source": source,
        "explanation": text(sent.get("comment")),
        "time_ns": received_ns if at is None else at,
    }
    target = "/".join(str(found[key] or "") for key in ("trace_id", "span_id", "session_id"))
    identity = text(sent.get("id")) or event_id
    found["score_id"] = identity or score_id(target, str(name), source, at or 0, label if value is None else str(value))
    kept = {key: item for key, item in found.items() if item is not None}
    try:
        parse_scores(orjson.dumps(kept), received_ns)
    except (ScoreError, orjson.JSONEncodeError) as error:
        raise ScoreError(str(error).removeprefix("score 0: ")) from None
    return kept


def _ingestion(sent: object, received_ns: int) -> Taken:
    batch = sent.get("batch") if isinstance(sent, dict) else None
    if not isinstance(batch, list):
        raise ScoreError('expected {"batch": [...]}')
    good: list[dict[str, object]] = []
    successes: list[dict[str, object]] = []
    errors: list[dict[str, object]] = []
    for event in batch:
        named = event if isinstance(event, dict) else {}
        identity = str(named.get("id") or "")
        if named.get("type") in ("sdk-log", "score-delete"):
            successes.append({"id": identity, "status": 201})
            continue
        try:
            if named.get("type") != "score-create":
                raise ScoreError(f"{named.get('type')} is not taken here: send traces over OTLP")
            at = nanoseconds(named.get("timestamp"))
            good.append(score(named.get("body"), received_ns if at is None else at, identity or None))
        except ScoreError as error:
            errors.append({"id": identity, "status": 400, "message": str(error), "error": "InvalidRequestError"})
        else:
            successes.append({"id": identity, "status": 201})
    return _taken(good, len(errors), 207, {"successes": successes, "errors": errors})


def _scores(sent: object, received_ns: int) -> Taken:
    if not isinstance(sent, list):
        one = score(sent, received_ns)
        return _taken([one], 0, 200, {"id": one["score_id"]})
    good: list[dict[str, object]] = []
    errors: list[dict[str, object]] = []
    for index, item in enumerate(sent):
        try:
            good.append(score(item, received_ns))
        except ScoreError as error:
            errors.append({"message": f"score {index}: {error}"})
    if not errors:
        return _taken(good, 0, 202, {"message": "Accepted"})
    return _taken(good, len(errors), 207, {"accepted": len(good), "rejected": len(errors), "errors": errors})


def _taken(good: list[dict[str, object]], rejected: int, status: int, answer: Mapping[str, object]) -> Taken:
    return Taken(orjson.dumps(good) if good else b"", len(good), rejected, status, answer)
