"""Small traces for tests: spans as records, and as OTLP/JSON request bodies."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence

from ingest.spans import Event, Span

SECOND = 1_000_000_000
START = 1_760_000_000 * SECOND


def trace_id(number: int) -> str:
    return f"{number:032x}"


def span_id(number: int) -> str:
    return f"{number:016x}"


def span(
    number: int,
    attributes: Mapping[str, object] = {},
    *,
    trace: int = 1,
    parent: int | None = None,
    name: str = "span",
    start_ns: int | None = None,
    end_ns: int | None = None,
    status: str | None = None,
    service: str = "shop",
    events: Sequence[Event] = (),
) -> Span:
    """Span `number` of a trace; by default the spans of a trace start one second after the other."""
    start = START + number * SECOND if start_ns is None else start_ns
    return Span(
        trace_id(trace),
        span_id(number),
        None if parent is None else span_id(parent),
        name,
        "internal",
        start,
        start + SECOND if end_ns is None else end_ns,
        status,  # type: ignore[arg-type]
        "",
        attributes,
        {"service.name": service},
        events=tuple(events),
    )


def chat(
    model: str = "gpt-4o-mini", input_tokens: int | None = 100, output_tokens: int | None = 20, **more: object
) -> dict[str, object]:
    """Attributes of a model call; a dot in a name of `more` is written as two underscores."""
    attributes: dict[str, object] = {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "openai",
        "gen_ai.request.model": model,
    }
    if input_tokens is not None:
        attributes["gen_ai.usage.input_tokens"] = input_tokens
    if output_tokens is not None:
        attributes["gen_ai.usage.output_tokens"] = output_tokens
    return {**attributes, **{key.replace("__", "."): value for key, value in more.items()}}


def agent(name: str = "planner", **more: object) -> dict[str, object]:
    """Attributes of an agent's run."""
    named = {key.replace("__", "."): value for key, value in more.items()}
    return {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": name, **named}


def tool(name: str = "search", **more: object) -> dict[str, object]:
    """Attributes of a tool's run."""
    named = {key.replace("__", "."): value for key, value in more.items()}
    return {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": name, **named}


def traces_body(spans: Iterable[Span]) -> bytes:
    """An ExportTraceServiceRequest in JSON."""
    resources = [
        {
            "resource": {"attributes": _attributes(s.resource)},
            "scopeSpans": [{"scope": {"name": s.scope.name}, "spans": [_span(s)]}],
        }
        for s in spans
    ]
    return json.dumps({"resourceSpans": resources}).encode()


def log(
    event_name: str,
    attributes: Mapping[str, object],
    *,
    time_ns: int = START,
    trace: int | None = None,
    span: int | None = None,
    body: object = None,
) -> dict[str, object]:
    """One log record in OTLP/JSON."""
    record: dict[str, object] = {
        "timeUnixNano": str(time_ns),
        "eventName": event_name,
        "attributes": _attributes(attributes),
    }
    if body is not None:
        record["body"] = _value(body)
    if trace is not None:
        record["traceId"] = trace_id(trace)
    if span is not None:
        record["spanId"] = span_id(span)
    return record


def logs_body(records: Sequence[Mapping[str, object]], service: str = "shop") -> bytes:
    """An ExportLogsServiceRequest in JSON."""
    resource = {"attributes": _attributes({"service.name": service})}
    return json.dumps({"resourceLogs": [{"resource": resource, "scopeLogs": [{"logRecords": list(records)}]}]}).encode()


def _span(span: Span) -> dict[str, object]:
    return {
        "traceId": span.trace_id,
        "spanId": span.span_id,
        **({"parentSpanId": span.parent_span_id} if span.parent_span_id else {}),
        "name": span.name,
        "kind": 1,
        "startTimeUnixNano": str(span.start_ns),
        "endTimeUnixNano": str(span.end_ns),
        "attributes": _attributes(span.attributes),
        "status": {"code": {"ok": 1, "error": 2}[span.status]} if span.status else {},
        "events": [
            {"name": e.name, "timeUnixNano": str(e.time_ns), "attributes": _attributes(e.attributes)}
            for e in span.events
        ],
    }


def _attributes(attributes: Mapping[str, object]) -> list[dict[str, object]]:
    return [{"key": key, "value": _value(value)} for key, value in attributes.items()]


def _value(value: object) -> dict[str, object]:
    match value:
        case bool():
            return {"boolValue": value}
        case int():
            return {"intValue": str(value)}
        case float():
            return {"doubleValue": value}
        case list() | tuple():
            return {"arrayValue": {"values": [_value(item) for item in value]}}
        case dict():
            return {"kvlistValue": {"values": [{"key": k, "value": _value(v)} for k, v in value.items()]}}
        case _:
            return {"stringValue": str(value)}
