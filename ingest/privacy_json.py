"""A JSON request as the policy of privacy.py wants it: what is not to be kept is edited out, all else stays as sent."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import orjson

from ingest import otlp_json
from ingest.otlp_problems import Problems
from ingest.otlp_protobuf import KINDS, STATUSES
from ingest.redactions import REDACTED, merged
from ingest.sealing import seal_log, seal_resource, seal_span
from ingest.sketches import name as short
from ingest.spans import LogRecord, Scope, Span

if TYPE_CHECKING:
    from ingest.privacy import Wishes

_FRAMES = {
    "traces": (("resourceSpans", "resource_spans"), ("scopeSpans", "scope_spans"), ("spans",)),
    "logs": (("resourceLogs", "resource_logs"), ("scopeLogs", "scope_logs"), ("logRecords", "log_records")),
}
_IDS = ("traceId", "trace_id", "spanId", "span_id", "parentSpanId", "parent_span_id")
_TIMES = (
    *("startTimeUnixNano", "start_time_unix_nano", "endTimeUnixNano", "end_time_unix_nano"),
    *("timeUnixNano", "time_unix_nano", "observedTimeUnixNano", "observed_time_unix_nano"),
)
_AS_SENT = frozenset({*_IDS, *_TIMES, "kind", "code", "severityNumber", "severity_number"})
"""Ids, times and enumerations, which may be texts in JSON."""
_INTS = ("intValue", "int_value")
_BYTES = ("bytesValue", "bytes_value")


def edited(body: bytes, signal: str, wishes: Wishes, problems: Problems) -> bytes:
    """The request's new bytes. Raises DecodeError when the body is none."""
    request: Any = otlp_json.parse(body, signal, problems)
    if signal == "metrics":
        return _counted_only(otlp_json.metric_points(request))
    names = _FRAMES[signal]
    groups: list[Any] = otlp_json.groups(request, names[0][0])
    known = merged(otlp_json.redacted(group, names[1][0]) for group in groups)
    groups = [group for group in groups if not otlp_json.redacted(group, names[1][0])]
    if wishes.redactor is not None or wishes.denied_keys or wishes.denied_prefixes:
        groups = [_edit(group, "", wishes) for group in groups]
        request = {key: _edit(value, key, wishes) for key, value in request.items() if key not in names[0]}
    if not wishes.content:
        groups = _sealed({names[0][0]: groups}, signal, wishes, problems)
        request = {}
    if counts := merged((known, wishes.found)):
        groups.append({"resource": {"attributes": _written({REDACTED: counts})}})
    return _dumped({**{key: value for key, value in request.items() if key not in names[0]}, names[0][0]: groups})


def _edit(item: Any, key: str, wishes: Wishes) -> Any:
    """An object, list or text of the request with what is denied dropped and what is redacted marked. `key`: what it is
    called, in attributes by their own key."""
    if isinstance(item, dict):
        name = item.get("key")
        if isinstance(name, str) and "value" in item:
            return {**item, "key": wishes.text(name, "id"), "value": _edit(item["value"], name, wishes)}
        return _object(item, key, wishes)
    if isinstance(item, list):
        return [_edit(part, key, wishes) for part in item if not _is_denied(part, key, wishes)]
    if isinstance(item, str):
        return wishes.text(item, key)
    return str(item) if isinstance(item, float) and item - item != 0 else item  # JSON has no NaN and no infinity


def _object(item: Mapping[str, Any], key: str, wishes: Wishes) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in item.items():
        if name in _AS_SENT:
            found[name] = value
        elif name in _INTS and (mark := _card(value, wishes)):
            found["stringValue"] = mark
        elif name in _BYTES and isinstance(value, str):
            found[name] = _raw(value, wishes)
        elif name in ("kvlistValue", "kvlist_value") and key == "body" and isinstance(value, dict):
            pairs = [part for part in value.get("values") or () if not _is_denied(part, "attributes", wishes)]
            found[name] = _edit({**value, "values": pairs}, key, wishes)
        else:
            at = name if name in ("attributes", "body") or not key else key
            found[name] = _edit(value, at, wishes)
    return found


def _is_denied(part: object, key: str, wishes: Wishes) -> bool:
    return (
        key == "attributes"
        and isinstance(part, dict)
        and isinstance(part.get("key"), str)
        and wishes.denies(part["key"])
    )


def _card(value: object, wishes: Wishes) -> str | None:
    try:
        mark = wishes.number(int(str(value)))
    except ValueError:
        return None
    return mark if isinstance(mark, str) else None


def _raw(value: str, wishes: Wishes) -> str:
    try:
        plain = otlp_json.from_base64(value)
    except ValueError:
        return value
    new = wishes.raw(plain)
    return value if new == plain else b64encode(new).decode()


def _sealed(request: Mapping[str, Any], signal: str, wishes: Wishes, problems: Problems) -> list[dict[str, Any]]:
    """The request's groups made anew of what can be read of its records. One that is rejected leaves an empty one that
    will be."""
    frames, records = (names[0] for names in _FRAMES[signal][1:])
    groups: dict[int, dict[str, Any]] = {}
    scopes: dict[tuple[int, Scope], list[dict[str, Any]]] = {}
    found: list[Span | LogRecord] = []
    found += otlp_json.spans(request, problems) if signal == "traces" else otlp_json.logs(request, problems)
    for record in found:
        at = id(record.resource)
        if at not in groups:
            groups[at] = {"resource": {"attributes": _written(seal_resource(record.resource))}, frames: []}
        if (at, record.scope) not in scopes:
            scope = {"name": short(record.scope.name) or "", "version": short(record.scope.version) or ""}
            scopes[at, record.scope] = []
            groups[at][frames].append({"scope": scope, records: scopes[at, record.scope]})
        sealed = _span(record, wishes) if isinstance(record, Span) else _log(record, wishes)
        scopes[at, record.scope].append(sealed)
    if problems.rejected:
        groups[0] = {frames: [{records: [{"attributes": {}}] * problems.rejected}]}
    return list(groups.values())


def _span(span: Span, wishes: Wishes) -> dict[str, Any]:
    sealed = seal_span(span, wishes.vector)
    return {
        "traceId": span.trace_id,
        "spanId": span.span_id,
        "parentSpanId": span.parent_span_id or "",
        "kind": KINDS.index(span.kind),
        "startTimeUnixNano": str(span.start_ns),
        "endTimeUnixNano": str(span.end_ns),
        "name": sealed.name,
        "status": {"code": STATUSES.index(span.status)},
        "attributes": _written(sealed.attributes),
        "events": [
            {"name": event, "timeUnixNano": str(time_ns), "attributes": _written(attributes)}
            for event, time_ns, attributes in sealed.events
        ],
        "links": [{"traceId": trace_id, "spanId": span_id} for trace_id, span_id in span.links],
    }


def _log(log: LogRecord, wishes: Wishes) -> dict[str, Any]:
    sealed = seal_log(log, wishes.vector)
    return {
        "traceId": log.trace_id or "",
        "spanId": log.span_id or "",
        "timeUnixNano": str(log.time_ns),
        "eventName": sealed.name,
        "attributes": _written(sealed.attributes),
    }


def _written(attributes: Mapping[str, object]) -> list[dict[str, Any]]:
    return [{"key": key, "value": _value(value)} for key, value in attributes.items()]


def _value(value: object) -> dict[str, Any]:
    match value:
        case bool():
            return {"boolValue": value}
        case int():
            return {"intValue": str(value)}
        case float():
            return {"doubleValue": value if value - value == 0 else str(value)}  # NaN and infinities are texts
        case list():
            return {"arrayValue": {"values": [_value(item) for item in value]}}
        case dict():
            return {"kvlistValue": {"values": _written(value)}}
        case str():
            return {"stringValue": value}
    return {}


def _counted_only(points: int) -> bytes:
    """A request of nothing but so many data points: metrics are only counted."""
    metric: dict[str, object] = {"gauge": {"dataPoints": [{}] * points}}
    return orjson.dumps({"resourceMetrics": [{"scopeMetrics": [{"metrics": [metric]}]}]} if points else {})


def _dumped(request: Mapping[str, object]) -> bytes:
    try:
        return orjson.dumps(request)
    except TypeError:  # an integer beyond 64 bits
        return orjson.dumps(orjson.loads(json.dumps(request)))
