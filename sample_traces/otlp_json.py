"""OTLP/JSON: attributes, spans, evaluation events, requests, and the file of requests.

64-bit integers are decimal strings and ids lower-case hex, as the OTLP specification writes JSON.
"""

from __future__ import annotations

import gzip
import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

SCHEMA = "https://opentelemetry.io/schemas/1.38.0"
REQUEST_SIZE = 200  # records per request
Json = dict[str, object]


@dataclass(frozen=True)
class Item:
    """A span or log record, the scope it was made in, and when it was sent."""

    signal: str  # "spans" | "logRecords"
    scope: str
    time_ns: int
    body: Json


def span(
    *,
    trace_id: str,
    span_id: str,
    parent: str | None,
    name: str,
    client: bool,
    start_ns: int,
    end_ns: int,
    attributes: Mapping[str, object],
    failed: bool = False,
) -> Json:
    """One span."""
    return {
        "traceId": trace_id,
        "spanId": span_id,
        **({"parentSpanId": parent} if parent else {}),
        "name": name,
        "kind": 3 if client else 1,
        "startTimeUnixNano": str(start_ns),
        "endTimeUnixNano": str(end_ns),
        "attributes": encode(attributes),
        "status": {"code": 2} if failed else {},
    }


def evaluation(
    *, trace_id: str, span_id: str, name: str, value: float, time_ns: int, response_id: str | None = None
) -> Json:
    """One `gen_ai.evaluation.result` event as a log record."""
    attributes: dict[str, object] = {"gen_ai.evaluation.name": name, "gen_ai.evaluation.score.value": float(value)}
    if response_id:
        attributes["gen_ai.response.id"] = response_id
    return {
        "timeUnixNano": str(time_ns),
        "observedTimeUnixNano": str(time_ns),
        "severityNumber": 9,
        "eventName": "gen_ai.evaluation.result",
        "attributes": encode(attributes),
        "traceId": trace_id,
        "spanId": span_id,
    }


def encode(attributes: Mapping[str, object]) -> list[Json]:
    """Attributes as key and typed value; unknown (None) ones are left out."""
    return [{"key": key, "value": _value(value)} for key, value in attributes.items() if value is not None]


def compact(value: object) -> str:
    """JSON without blanks, as it is put into string attributes."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def write_requests(path: Path, resource: Mapping[str, object], items: Sequence[Item]) -> None:
    """One export request per line, gzipped, in order of time; spans and logs travel apart, as SDKs send them."""
    timed = []
    for signal in ("spans", "logRecords"):
        ordered = sorted((item for item in items if item.signal == signal), key=lambda item: item.time_ns)
        for first in range(0, len(ordered), REQUEST_SIZE):
            batch = ordered[first : first + REQUEST_SIZE]
            timed.append((batch[-1].time_ns, compact(_request(signal, resource, batch))))
    text = "".join(line + "\n" for _, line in sorted(timed))
    buffer = io.BytesIO()
    with gzip.GzipFile(filename="", mode="wb", fileobj=buffer, compresslevel=9, mtime=0) as file:
        file.write(text.encode())
    path.write_bytes(buffer.getvalue())


def _request(signal: str, resource: Mapping[str, object], batch: Sequence[Item]) -> Json:
    outer, inner = ("resourceSpans", "scopeSpans") if signal == "spans" else ("resourceLogs", "scopeLogs")
    scopes: dict[str, list[Json]] = {}
    for item in batch:
        scopes.setdefault(item.scope, []).append(item.body)
    parts = [
        {"scope": {"name": s, "version": "1"}, signal: bodies, "schemaUrl": SCHEMA} for s, bodies in scopes.items()
    ]
    return {outer: [{"resource": {"attributes": encode(resource)}, inner: parts}]}


def _value(value: object) -> Json:
    if isinstance(value, bool):
        return {"boolValue": value}
    if isinstance(value, int):
        return {"intValue": str(value)}
    if isinstance(value, float):
        return {"doubleValue": value}
    return {"stringValue": str(value)}
