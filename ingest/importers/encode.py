"""Spans -> an OTLP request in JSON: what importers make goes the way that everything sent goes. Pure."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping

import orjson

from ingest.spans import Attributes, Scope, Span

_KINDS = {"internal": 1, "server": 2, "client": 3, "producer": 4, "consumer": 5}
_STATUS = {"ok": 1, "error": 2}
_LARGEST = 2**63


def traces_request(spans: Iterable[Span]) -> bytes:
    """An ExportTraceServiceRequest. Attributes that are None are left out."""
    resources: dict[bytes, tuple[Attributes, dict[Scope, list[dict[str, object]]]]] = {}
    for span in spans:
        key = orjson.dumps(span.resource, option=orjson.OPT_SORT_KEYS, default=str)
        _, scopes = resources.setdefault(key, (span.resource, {}))
        scopes.setdefault(span.scope, []).append(_span(span))
    found = [
        {
            "resource": {"attributes": _attributes(resource)},
            "scopeSpans": [
                {"scope": {"name": scope.name, "version": scope.version}, "spans": listed}
                for scope, listed in scopes.items()
            ],
        }
        for resource, scopes in resources.values()
    ]
    return orjson.dumps({"resourceSpans": found})


def _span(span: Span) -> dict[str, object]:
    found: dict[str, object] = {
        "traceId": span.trace_id,
        "spanId": span.span_id,
        "name": _clean(span.name),
        "kind": _KINDS.get(span.kind, 1),
        "startTimeUnixNano": str(span.start_ns),
        "endTimeUnixNano": str(span.end_ns),
        "attributes": _attributes(span.attributes),
    }
    if span.parent_span_id:
        found["parentSpanId"] = span.parent_span_id
    if span.status:
        found["status"] = {"code": _STATUS[span.status], "message": _clean(span.status_message)}
    if span.events:
        found["events"] = [
            {"name": _clean(e.name), "timeUnixNano": str(e.time_ns), "attributes": _attributes(e.attributes)}
            for e in span.events
        ]
    if span.links:
        found["links"] = [{"traceId": trace, "spanId": at} for trace, at in span.links]
    return found


def _attributes(attributes: Mapping[str, object]) -> list[dict[str, object]]:
    return [{"key": _clean(key), "value": _value(value)} for key, value in attributes.items() if value is not None]


def _value(value: object) -> dict[str, object]:
    match value:
        case None:
            return {}
        case bool():
            return {"boolValue": value}
        case int() if -_LARGEST <= value < _LARGEST:
            return {"intValue": str(value)}
        case float():
            return {"doubleValue": value if value == value and abs(value) != float("inf") else str(value)}
        case bytes():
            return {"bytesValue": base64.b64encode(value).decode()}
        case list() | tuple():
            return {"arrayValue": {"values": [_value(item) for item in value]}}
        case dict():
            return {"kvlistValue": {"values": [{"key": _clean(str(k)), "value": _value(v)} for k, v in value.items()]}}
        case _:
            return {"stringValue": _clean(str(value))}


def _clean(text: str) -> str:
    """Text that is valid UTF-8: a broken surrogate becomes a question mark."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()
