"""What a request takes in memory once parsed, estimated without parsing it. Pure.

An empty message is 2 bytes on the wire and up to 200 parsed: 64 MiB of empty spans are 6 GB. Exporters send 3 to 10
times the body, so a request that passes a limit far above that is not telemetry.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache
from typing import Any

from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from ingest.otlp import Encoding, Signal

_REQUESTS: dict[Signal, Any] = {
    "traces": ExportTraceServiceRequest,
    "logs": ExportLogsServiceRequest,
    "metrics": ExportMetricsServiceRequest,
}
_SMALL_BYTES = bytes(range(5))
_SUSPICIOUS = 1 / 8  # share of small bytes; in telemetry, which is mostly text, a few percent
_MESSAGE_BYTES, _RECORD_BYTES = 64, 200  # measured with upb: 44 to 64; a span 175
_DEPTH = 200  # of messages; the parser refuses 100
_OBJECT_BYTES = 72  # an empty JSON list or object with the pointer to it


@dataclass(eq=False)
class _Kind:
    cost: int
    children: dict[int, _Kind] = field(default_factory=dict)
    record: bool = False


def weight(body: bytes, signal: Signal, encoding: Encoding, at_most: int) -> int:
    """Bytes of memory, roughly; counting ends once they pass `at_most`. Of a body whose parts are mostly long only the
    records are counted."""
    if encoding == "json":
        return (body.count(b"{") + body.count(b"[")) * _OBJECT_BYTES
    small = len(body) - len(body.translate(None, _SMALL_BYTES))
    return _messages(body, _kinds(_REQUESTS[signal].DESCRIPTOR), small > _SUSPICIOUS * len(body), at_most)


@cache
def _kinds(descriptor: Any) -> _Kind:
    known: dict[str, _Kind] = {}

    def kind(of: Any) -> _Kind:
        found = known.get(of.full_name)
        if found is None:
            record = of.name in ("Span", "LogRecord", "Metric")
            found = known[of.full_name] = _Kind(_RECORD_BYTES if record else _MESSAGE_BYTES, record=record)
            found.children.update({f.number: kind(f.message_type) for f in of.fields if f.message_type is not None})
        return found

    return kind(descriptor)


def _messages(body: bytes, kind: _Kind, deep: bool, at_most: int) -> int:
    total, at, end = 0, 0, len(body)
    outer: list[tuple[int, int, _Kind]] = []
    try:
        while True:
            if at >= end:
                if not outer:
                    return total
                at, end, kind = outer.pop()
                continue
            tag, at = _varint(body, at)
            wire = tag & 7
            if wire == 2:
                length, at = _varint(body, at)
                child = kind.children.get(tag >> 3)
                if child is None:
                    at += length
                    continue
                total += child.cost
                if total > at_most:
                    return total
                if length and (deep or not child.record):
                    if len(outer) == _DEPTH:
                        return total
                    outer.append((at + length, end, kind))
                    end, kind = at + length, child
                else:
                    at += length
            elif wire == 0:
                _, at = _varint(body, at)
            else:
                at += {1: 8, 5: 4}.get(wire, 0)
    except IndexError:  # broken: the parser says so
        return total


def _varint(body: bytes, at: int) -> tuple[int, int]:
    byte = body[at]
    if byte < 0x80:
        return byte, at + 1
    value = 0
    for shift in range(0, 70, 7):
        byte = body[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
    raise IndexError
