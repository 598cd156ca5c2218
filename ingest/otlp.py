"""OTLP request bodies -> records. Pure; protobuf and JSON of one message give equal records.

    decode    the records of a request, with what had to be left out and why
    inspect   only the counts of that, quickly: what a receiver needs before it acknowledges

A body that cannot be read raises `DecodeError` as a whole. Otherwise nothing good is lost to something bad beside it:
spans with invalid ids are rejected one by one, texts that are not UTF-8 are repaired. Metrics are only counted: they
repeat what spans say.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from ingest import otlp_json, otlp_protobuf
from ingest.otlp_problems import DecodeError, Problems
from ingest.spans import Batch

__all__ = ["Counts", "DecodeError", "Encoding", "Signal", "decode", "inspect"]

Signal = Literal["traces", "logs", "metrics"]
Encoding = Literal["protobuf", "json"]


@dataclass(frozen=True, slots=True)
class Counts:
    """What a request carries. `rejected` are not among `spans` and `logs`; `problems` say why, and what was mended."""

    spans: int = 0
    logs: int = 0
    metric_points: int = 0
    rejected: int = 0
    problems: tuple[str, ...] = ()


def decode(body: bytes, signal: Signal, encoding: Encoding) -> Batch:
    """The records in an Export{Trace,Logs,Metrics}ServiceRequest. Raises `DecodeError` if it is not one."""
    problems = Problems()
    reader = otlp_protobuf if encoding == "protobuf" else otlp_json
    request = reader.parse(body, signal, problems)
    if signal == "metrics":
        return Batch(metric_points=reader.metric_points(request), problems=problems.texts())
    marks = reader.redactions_in(request, signal)
    if signal == "logs":
        logs = tuple(reader.logs(request, problems))
        return Batch(logs=logs, rejected=problems.rejected, problems=problems.texts(), redacted=marks)
    spans = tuple(reader.spans(request, problems))
    return Batch(spans=spans, rejected=problems.rejected, problems=problems.texts(), redacted=marks)


def inspect(body: bytes, signal: Signal, encoding: Encoding) -> Counts:
    """The counts of `decode`, for protobuf at about a tenth of its cost. Raises `DecodeError` in the same cases.

    Notes on single values (a time out of range) are left to `decode`; every rejection is found.
    """
    if encoding == "protobuf":
        problems = Problems()
        request = otlp_protobuf.parse(body, signal, problems)
        if signal == "metrics":
            return Counts(metric_points=otlp_protobuf.metric_points(request), problems=problems.texts())
        if signal == "logs":
            return Counts(logs=otlp_protobuf.count_logs(request), problems=problems.texts())
        spans = otlp_protobuf.count_spans(request, problems)
        return Counts(spans=spans, rejected=problems.rejected, problems=problems.texts())
    batch = decode(body, signal, encoding)
    return Counts(len(batch.spans), len(batch.logs), batch.metric_points, batch.rejected, batch.problems)
