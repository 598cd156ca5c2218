"""Recorded OTLP sent again through the real OpenTelemetry SDK.

Ids, times, attributes, parents, links, events, resources and scopes stay as they were recorded.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from opentelemetry._logs import LogRecord
from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http import Compression
from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk._logs import ReadableLogRecord
from opentelemetry.sdk._logs.export import LogRecordExportResult
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import Event, ReadableSpan
from opentelemetry.sdk.trace.export import SpanExportResult
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import (
    Link,
    NonRecordingSpan,
    SpanContext,
    SpanKind,
    Status,
    StatusCode,
    TraceFlags,
    set_span_in_context,
)

from ingest import spans as records
from ingest.errors import WorkError
from ingest.otlp import decode

BATCH = 512
"""Records per request: what the SDK's batch processor sends by default."""

SAMPLED = TraceFlags(TraceFlags.SAMPLED)


@dataclass(frozen=True)
class Sent:
    """What a collector acknowledged: distinct spans, as (trace id, span id), and distinct evaluation events."""

    spans: frozenset[tuple[str, str]]
    evaluations: int


class Rebuilder:
    """Decoded records -> the SDK's. Resources and scopes are built once and shared."""

    def __init__(self) -> None:
        self._resources: dict[str, Resource] = {}
        self._scopes: dict[records.Scope, InstrumentationScope] = {}

    def span(self, span: records.Span) -> ReadableSpan:
        trace_id = int(span.trace_id, 16)
        parent = _context(trace_id, span.parent_span_id) if span.parent_span_id else None
        status = Status(StatusCode.ERROR, span.status_message) if span.status == "error" else _UNREMARKABLE[span.status]
        return ReadableSpan(
            name=span.name,
            context=_context(trace_id, span.span_id),
            parent=parent,
            resource=self._resource(span.resource),
            attributes=span.attributes,  # type: ignore[arg-type]
            events=[Event(event.name, event.attributes, event.time_ns) for event in span.events],  # type: ignore[arg-type]
            links=[Link(_context(int(trace, 16), linked)) for trace, linked in span.links],
            kind=_kind(span.kind),
            status=status,
            start_time=span.start_ns,
            end_time=span.end_ns,
            instrumentation_scope=self._scope(span.scope),
        )

    def log(self, log: records.LogRecord) -> ReadableLogRecord:
        context = Context()  # not the caller's: a record without a span has none
        if log.trace_id and log.span_id:
            context = set_span_in_context(NonRecordingSpan(_context(int(log.trace_id, 16), log.span_id)), context)
        record = LogRecord(  # type: ignore[call-overload]  # attributes of any JSON type
            timestamp=log.time_ns,
            observed_timestamp=log.time_ns,
            context=context,
            body=log.body,
            attributes=log.attributes,
            event_name=log.event_name,
        )
        return ReadableLogRecord(record, self._resource(log.resource), self._scope(log.scope))

    def _resource(self, attributes: records.Attributes) -> Resource:
        key = json.dumps(attributes, sort_keys=True)
        if key not in self._resources:
            self._resources[key] = Resource(attributes)  # type: ignore[arg-type]
        return self._resources[key]

    def _scope(self, scope: records.Scope) -> InstrumentationScope:
        if scope not in self._scopes:
            self._scopes[scope] = InstrumentationScope(scope.name, scope.version)
        return self._scopes[scope]


_UNREMARKABLE: Mapping[records.Status | None, Status] = {"ok": Status(StatusCode.OK), None: Status(StatusCode.UNSET)}


def _context(trace_id: int, span_id: str) -> SpanContext:
    return SpanContext(trace_id, int(span_id, 16), is_remote=False, trace_flags=SAMPLED)


def _kind(name: str) -> SpanKind:
    return SpanKind.__members__.get(name.upper().removeprefix("SPAN_KIND_"), SpanKind.INTERNAL)


def read(files: Sequence[Path]) -> Iterator[records.Batch]:
    """The requests of .jsonl.gz files, in order. Raises WorkError for a line that is not OTLP."""
    for file in files:
        with gzip.open(file, "rb") as lines:
            for number, line in enumerate(lines, start=1):
                signal: Literal["traces", "logs"] = "logs" if line.lstrip().startswith(b'{"resourceLogs"') else "traces"
                try:
                    yield decode(line, signal, "json")
                except ValueError as error:
                    raise WorkError(f"{file}, line {number}: not an OTLP request: {error}") from None


def send(
    batches: Iterator[records.Batch], url: str, headers: Mapping[str, str], progress: Callable[[int], None]
) -> Sent:
    """Exports every span and log record to a collector over HTTP with gzip. `progress` gets the records sent so far.

    Raises WorkError when the collector does not acknowledge a batch."""
    to_traces = OTLPSpanExporter(f"{url}/v1/traces", headers=dict(headers), timeout=30, compression=Compression.Gzip)
    to_logs = OTLPLogExporter(f"{url}/v1/logs", headers=dict(headers), timeout=30, compression=Compression.Gzip)
    rebuild = Rebuilder()
    sent: set[tuple[str, str]] = set()
    evaluations: set[tuple[Any, ...]] = set()
    done = 0

    def export_spans(part: Sequence[records.Span]) -> None:
        if to_traces.export([rebuild.span(span) for span in part]) is not SpanExportResult.SUCCESS:
            raise WorkError(f"the collector at {url} did not accept {len(part)} spans")
        sent.update((span.trace_id, span.span_id) for span in part)

    def export_logs(part: Sequence[records.LogRecord]) -> None:
        if to_logs.export([rebuild.log(log) for log in part]) is not LogRecordExportResult.SUCCESS:
            raise WorkError(f"the collector at {url} did not accept {len(part)} log records")
        evaluations.update(_evaluation(log) for log in part if log.event_name == "gen_ai.evaluation.result")

    spans: list[records.Span] = []
    logs: list[records.LogRecord] = []
    try:
        for batch in batches:
            spans += batch.spans
            logs += batch.logs
            while len(spans) >= BATCH:
                export_spans(spans[:BATCH])
                del spans[:BATCH]
                done += BATCH
                progress(done)
            while len(logs) >= BATCH:
                export_logs(logs[:BATCH])
                del logs[:BATCH]
                done += BATCH
                progress(done)
        if spans:
            export_spans(spans)
        if logs:
            export_logs(logs)
        progress(done + len(spans) + len(logs))
    finally:
        to_traces.shutdown()  # type: ignore[no-untyped-call]
        to_logs.shutdown()  # type: ignore[no-untyped-call]
    return Sent(frozenset(sent), len(evaluations))


def _evaluation(log: records.LogRecord) -> tuple[Any, ...]:
    return (log.trace_id, log.span_id, log.time_ns, log.attributes.get("gen_ai.evaluation.name"))
