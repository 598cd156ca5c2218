"""The records that all producers of telemetry share.

Ids are lower-case hex (trace 32, span 16 digits), times integer nanoseconds UTC. `None` means unknown, never zero.
Attribute values are plain JSON-like Python values: str, bool, int, float, list, dict, None; bytes become base64 text.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Literal

from ingest.records import record

Status = Literal["ok", "error"]
Attributes = Mapping[str, object]


@record
class Event:
    """Something that happened within a span."""

    name: str
    time_ns: int
    attributes: Attributes


@record
class Scope:
    """The instrumentation that made a record."""

    name: str = ""
    version: str = ""


@record
class Span:
    """One span as it was sent. `start_ns` and `end_ns` are raw: 0 and end < start happen."""

    trace_id: str
    span_id: str
    parent_span_id: str | None
    name: str
    kind: str
    start_ns: int
    end_ns: int
    status: Status | None
    status_message: str
    attributes: Attributes
    resource: Attributes
    scope: Scope = Scope()
    events: tuple[Event, ...] = ()
    links: tuple[tuple[str, str], ...] = ()

    @property
    def service(self) -> str:
        """`service.name` of the resource; "unknown_service" when absent."""
        return str(self.resource.get("service.name") or "unknown_service")


@record
class LogRecord:
    """One log record as it was sent. Ids are None when it has no span context."""

    time_ns: int
    event_name: str
    body: object
    attributes: Attributes
    resource: Attributes
    trace_id: str | None = None
    span_id: str | None = None
    scope: Scope = Scope()

    @property
    def service(self) -> str:
        """`service.name` of the resource; "unknown_service" when absent."""
        return str(self.resource.get("service.name") or "unknown_service")


@record
class Score:
    """A judgement of an outcome. At least one target id is set. `value` is the number as sent, `probability` that with
    which the target was to be scored (None: nobody drew it)."""

    score_id: str
    name: str
    value: float | None
    time_ns: int
    source: str
    trace_id: str | None = None
    span_id: str | None = None
    session_id: str | None = None
    response_id: str | None = None
    label: str | None = None
    explanation: str | None = None
    probability: float | None = None


@record
class Batch:
    """What one OTLP request carried, with what had to be left out and why."""

    spans: tuple[Span, ...] = ()
    logs: tuple[LogRecord, ...] = ()
    metric_points: int = 0
    rejected: int = 0
    problems: tuple[str, ...] = field(default=())
    redacted: Mapping[str, int] = field(default_factory=dict)
    """Kind -> number of marks that a privacy policy set before the request was stored."""
