"""Request bodies -> rows of calls, in process and in memory: what converter and lake do, without a WAL or a clock."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Literal

import orjson

from ingest import otlp
from ingest.dialects.facts import LlmFacts
from ingest.found import Found
from ingest.logged_calls import LoggedEvent
from ingest.pricing import Price, Prices
from ingest.rows import COLUMNS, FACTS, Batch
from ingest.settler import CALL_COLUMNS, settled_rows
from ingest.spans import LogRecord, Span
from ingest.trace_tree import TraceSpan

Payload = tuple[Literal["traces", "logs"], Literal["protobuf", "json"], bytes]
Records = tuple[Sequence[Span], Sequence[LogRecord]]

PRICES = Prices((Price("gpt-4o-mini", 0.15, 0.6), Price("gpt-4o", 2.5, 10.0), Price("gpt-4.1", 2.0, 8.0)), {})

_OWN = tuple(name for name in TraceSpan.__dataclass_fields__ if name not in ("facts", "logged"))


def decoded(payloads: Iterable[Payload]) -> list[Records]:
    """The spans and log records of each body."""
    batches = (otlp.decode(body, signal, encoding) for signal, encoding, body in payloads)
    return [(batch.spans, batch.logs) for batch in batches]


def settled_calls(requests: Iterable[Records]) -> list[dict[str, Any]]:
    """Rows of `calls`, with their texts, ordered by trace and time, after each request was committed in turn."""
    spans: dict[object, dict[str, Any]] = {}
    events: dict[str, dict[str, Any]] = {}
    contents: list[tuple[object, ...]] = []
    for number, (sent, logs) in enumerate(requests, 1):
        batch = Batch(number)
        batch.add_spans(sent, number)
        batch.add_logs(logs, number)
        for row in batch.rows["span_log"]:
            span: dict[str, Any] = dict(zip(COLUMNS["span_log"], row, strict=True))
            key = span["trace_id"], span["span_id"]
            if key not in spans or _rank(span) >= _rank(spans[key]):
                spans[key] = span
        for row in batch.rows["event_log"]:
            event: dict[str, Any] = dict(zip(COLUMNS["event_log"], row, strict=True))
            events.setdefault(event["event_id"], event)
        contents += batch.rows["content_log"]
    found = Found()
    trace_ids = sorted({s["trace_id"] for s in spans.values()} | {e["trace_id"] for e in events.values()})
    for trace_id in trace_ids:
        of_trace = [_seen(span) for span in spans.values() if span["trace_id"] == trace_id]
        told = [_event(event) for event in events.values() if event["trace_id"] == trace_id]
        found.add(trace_id, of_trace, told)
    rows = settled_rows(found, trace_ids, 0, PRICES, 0)
    texts: dict[tuple[object, object], list[Any]] = {}
    for trace_id, span_id, *told_texts, _ in [*contents, *rows.contents]:
        known = texts.setdefault((trace_id, span_id), [None, None, None])
        for at, value in enumerate(told_texts):
            known[at] = value if value is not None else known[at]
    calls = []
    for row in rows.calls:
        call: dict[str, Any] = dict(zip(CALL_COLUMNS, row, strict=True))
        place = call["content_trace_id"] or call["trace_id"], call["content_span_id"]
        given, answered, _ = texts.get(place, [None, None, None])
        calls.append({**call, "input_text": given, "output_text": answered})
    return sorted(calls, key=lambda call: (call["trace_id"], call["start_ns"] or 0, call["span_id"]))


def _rank(span: dict[str, Any]) -> tuple[Any, ...]:
    """Of copies of a span the highest counts, as the query trace_spans has it."""
    counted = (span["input_tokens"] or 0) + (span["output_tokens"] or 0)
    said = span["input_chars"] + span["output_chars"]
    return span["end_ns"] > 0, span["end_ns"], counted, said, len(span["attributes"])


def _seen(span: dict[str, Any]) -> TraceSpan:
    return TraceSpan(facts=LlmFacts(*(span[name] for name in FACTS)), **{name: span[name] for name in _OWN})


def _event(event: dict[str, Any]) -> LoggedEvent:
    body, attributes = orjson.loads(event["body"]), orjson.loads(event["attributes"])
    return LoggedEvent(
        event["event_id"], event["span_id"], event["name"], event["time_ns"], event["service"], body, attributes
    )
