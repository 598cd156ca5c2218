"""The protobuf encoding of OTLP, read with the generated messages (upb)."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterable, Iterator
from typing import Any

from google.protobuf.message import DecodeError as ProtobufError
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from ingest import otlp_repair, redactions
from ingest.otlp_problems import INVALID_SPAN_ID, INVALID_TRACE_ID, DecodeError, Problems
from ingest.spans import Event, LogRecord, Scope, Span, Status

_REQUESTS: dict[str, Any] = {
    "traces": ExportTraceServiceRequest,
    "logs": ExportLogsServiceRequest,
    "metrics": ExportMetricsServiceRequest,
}
_NO_TRACE, _NO_SPAN = bytes(16), bytes(8)
KINDS = ("unspecified", "internal", "server", "client", "producer", "consumer")
STATUSES: tuple[Status | None, ...] = (None, "ok", "error")


def parse(body: bytes, signal: str, problems: Problems) -> Any:
    """The request message. upb refuses a whole request for one bad text: then the texts are repaired and noted."""
    message = _REQUESTS[signal]
    try:
        return message.FromString(body)
    except ProtobufError as error:
        try:
            repaired, texts = otlp_repair.repair(body, message.DESCRIPTOR)
            request = message.FromString(repaired)
        except ProtobufError:
            raise DecodeError(f"not a protobuf {message.DESCRIPTOR.name}: {error}") from None
        problems.note("text that is not UTF-8, repaired", texts)
        return request


def spans(request: Any, problems: Problems) -> Iterator[Span]:
    """The spans of an ExportTraceServiceRequest whose ids are valid."""
    time = problems.time
    for resource_spans in request.resource_spans:
        resource = attributes(resource_spans.resource.attributes)
        for scope_spans in resource_spans.scope_spans:
            scope = Scope(scope_spans.scope.name, scope_spans.scope.version)
            for span in scope_spans.spans:
                trace_id, span_id, parent, status = span.trace_id, span.span_id, span.parent_span_id, span.status
                if not _valid(trace_id, span_id, problems):
                    continue
                kind, code, events, links = span.kind, status.code, span.events, span.links
                yield Span(
                    trace_id.hex(),
                    span_id.hex(),
                    parent.hex() if len(parent) == 8 and parent != _NO_SPAN else None,
                    span.name,
                    KINDS[kind] if 0 <= kind < len(KINDS) else KINDS[0],
                    time(span.start_time_unix_nano),
                    time(span.end_time_unix_nano),
                    STATUSES[code] if 0 <= code < len(STATUSES) else None,
                    status.message,
                    attributes(span.attributes),
                    resource,
                    scope,
                    tuple([Event(e.name, time(e.time_unix_nano), attributes(e.attributes)) for e in events])
                    if events
                    else (),
                    tuple([(link.trace_id.hex(), link.span_id.hex()) for link in links if _linked(link)])
                    if links
                    else (),
                )


def logs(request: Any, problems: Problems) -> Iterator[LogRecord]:
    """The log records of an ExportLogsServiceRequest; the observed time where there is no other."""
    for resource_logs in request.resource_logs:
        resource = attributes(resource_logs.resource.attributes)
        for scope_logs in resource_logs.scope_logs:
            scope = Scope(scope_logs.scope.name, scope_logs.scope.version)
            for record in scope_logs.log_records:
                said = attributes(record.attributes)
                trace_id, span_id = record.trace_id, record.span_id
                yield LogRecord(
                    problems.time(record.time_unix_nano or record.observed_time_unix_nano),
                    record.event_name or str(said.get("event.name") or ""),
                    _value(record.body),
                    said,
                    resource,
                    trace_id.hex() if len(trace_id) == 16 and trace_id != _NO_TRACE else None,
                    span_id.hex() if len(span_id) == 8 and span_id != _NO_SPAN else None,
                    scope,
                )


def metric_points(request: Any) -> int:
    """The number of data points in an ExportMetricsServiceRequest."""
    points = 0
    for resource_metrics in request.resource_metrics:
        for scope_metrics in resource_metrics.scope_metrics:
            for metric in scope_metrics.metrics:
                if data := metric.WhichOneof("data"):
                    points += len(getattr(metric, data).data_points)
    return points


def attributes(pairs: Iterable[Any]) -> dict[str, object]:
    """Attributes as plain values."""
    found: dict[str, object] = {}
    for pair in pairs:
        value = pair.value
        found[pair.key] = value.string_value or _other(value)  # most are texts, and to ask which it is costs more
    return found


def redacted(group: Any) -> dict[str, int]:
    """The counts in a resource group that tells of redactions (see redactions.py); empty for any other."""
    if len(group.resource.attributes) != 1 or getattr(group, "scope_spans", None) or getattr(group, "scope_logs", None):
        return {}
    return redactions.counts(attributes(group.resource.attributes))


def redactions_in(request: Any, signal: str) -> dict[str, int]:
    """What the last resource group of a request tells of redactions."""
    groups = request.resource_spans if signal == "traces" else request.resource_logs
    return redacted(groups[-1]) if groups else {}


def count_spans(request: Any, problems: Problems) -> int:
    """The number of spans that `spans` would yield."""
    return sum(
        _valid(span.trace_id, span.span_id, problems)
        for resource_spans in request.resource_spans
        for scope_spans in resource_spans.scope_spans
        for span in scope_spans.spans
    )


def count_logs(request: Any) -> int:
    """The number of log records that `logs` would yield."""
    return sum(
        len(scope_logs.log_records)
        for resource_logs in request.resource_logs
        for scope_logs in resource_logs.scope_logs
    )


def _valid(trace_id: bytes, span_id: bytes, problems: Problems) -> bool:
    if len(trace_id) != 16 or trace_id == _NO_TRACE:
        problems.reject(INVALID_TRACE_ID)
        return False
    if len(span_id) != 8 or span_id == _NO_SPAN:
        problems.reject(INVALID_SPAN_ID)
        return False
    return True


def _linked(link: Any) -> bool:
    return len(link.trace_id) == 16 and len(link.span_id) == 8


def _value(value: Any) -> object:
    return value.string_value or _other(value)


def _other(value: Any) -> object:
    """A value that is no text, or the empty one."""
    if number := value.int_value:
        return number
    match value.WhichOneof("value"):
        case "string_value":
            return ""
        case "int_value":
            return 0
        case "bool_value":
            return value.bool_value
        case "double_value":
            return value.double_value
        case "array_value":
            return [_value(item) for item in value.array_value.values]
        case "kvlist_value":
            return attributes(value.kvlist_value.values)
        case "bytes_value":
            return b64encode(value.bytes_value).decode()
    return None
