"""OTLP files: what an OpenTelemetry Collector's file exporter, a debugging tap or `sample_traces` leaves behind.

    .jsonl    one OTLP/JSON request a line
    .json     one request, a list of requests, or one a line
    .pb       one protobuf request, or requests each preceded by its length (4 bytes, big endian)

each also as gzip or zstd, as is each request of a file with lengths (the file exporter's `compression: zstd`, which
names such a file as it likes). What cannot be read is reported with file and line; the rest is imported.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import orjson

from ingest import otlp, wal
from ingest.errors import UsageError
from ingest.importers.engine import ImportReport, import_sources
from ingest.importers.opened import opened, suffix
from ingest.importers.sources import Importer, Item, Sample, Source
from ingest.inflate import BROKEN
from ingest.options import ConverterOptions
from ingest.privacy import OFF, Policy

SUFFIXES = (".json", ".jsonl", ".pb")
_SIGNALS: dict[otlp.Signal, tuple[str, str]] = {
    "traces": ("resourceSpans", "resource_spans"),
    "logs": ("resourceLogs", "resource_logs"),
    "metrics": ("resourceMetrics", "resource_metrics"),
}
_NOT_OTLP = "not an OTLP request: none of resourceSpans, resourceLogs, resourceMetrics"
_ZSTD = b"\x28\xb5\x2f\xfd"
_INFLATED_BYTES = 256 << 20  # of one request


@dataclass(frozen=True, slots=True)
class Imported:
    """A request, a problem, or a request some records of which were rejected (both)."""

    path: Path
    line: int | None
    record: wal.Record | None
    problem: str | None = None
    spans: int = 0
    share: float = 0.0

    def complaint(self) -> str:
        """The problem with its place, as `file:line: problem`."""
        place = str(self.path) if self.line is None else f"{self.path}:{self.line}"
        return f"{place}: {self.problem}"


def import_paths(
    home: Path,
    paths: Sequence[Path],
    options: ConverterOptions,
    progress: Callable[[int], None] | None = None,
    *,
    policy: Policy = OFF,
) -> ImportReport:
    """Import files and folders of OTLP, also those imported before; see `engine.import_sources`.

    `progress` gets the number of requests so far. Raises UsageError for a path that does not exist.
    """
    sources = [(IMPORTER, Source(str(path), path)) for path in files(paths)]
    told = None if progress is None else lambda _source, _share, records: progress(records)
    return import_sources(home, sources, options, told, again=True, policy=policy)


def files(paths: Sequence[Path]) -> list[Path]:
    """The OTLP files that `paths` name; folders are walked, in order of name. Raises UsageError for a missing one."""
    found: list[Path] = []
    for path in paths:
        if path.is_dir():
            found += sorted(p for p in path.rglob("*") if p.is_file() and suffix(p) in SUFFIXES)
        elif not path.exists():
            raise UsageError(f"{path} does not exist.")
        elif suffix(path) not in SUFFIXES:
            raise UsageError(f"{path} is not an OTLP file by its name.", f"Known are {', '.join(SUFFIXES)}, also .gz.")
        else:
            found.append(path)
    return found


def read_paths(paths: Sequence[Path]) -> Iterator[Imported]:
    """The requests and problems of files and folders, in order. Raises UsageError for a path that does not exist."""
    for path in files(paths):
        yield from read_file(path)


def read_file(path: Path) -> Iterator[Imported]:
    """The requests and problems of one file."""
    try:
        with opened(path) as (file, share):
            for item in _read(path, file):
                yield dataclasses.replace(item, share=share())
    except (OSError, EOFError, BROKEN) as error:
        yield Imported(path, None, None, f"cannot be read to its end: {error}")


def _read_source(source: Source) -> Iterator[Item]:
    assert source.path is not None
    for found in read_file(source.path):
        yield Item(found.line, record=found.record, counted=found.spans, problem=found.problem, share=found.share)


def _recognises(sample: Sample) -> bool:
    return sample.kind == ".pb" or any(name in sample.first for names in _SIGNALS.values() for name in names)


IMPORTER = Importer("otlp", "OTLP requests: JSON, JSON lines, protobuf", _recognises, _read_source)


def _read(path: Path, file: IO[bytes]) -> Iterator[Imported]:
    packed = file.peek(8)[4:8] == _ZSTD  # type: ignore[attr-defined]
    if suffix(path) == ".jsonl" and not packed:
        for number, line in enumerate(file, 1):
            yield from _json(path, number, line)
        return
    body = file.read()
    if suffix(path) == ".pb" or packed:
        parts = _framed(body)
        for number, part in enumerate(parts or [body], 1):
            yield from _framed_request(path, number if parts else None, part)
        return
    try:
        whole = orjson.loads(body)
    except orjson.JSONDecodeError:
        lines = [(number, line) for number, line in enumerate(body.splitlines(), 1) if line.strip()]
        if len(lines) > 1 and lines[0][1].rstrip().endswith(b"}"):
            for number, line in lines:
                yield from _json(path, number, line)
            return
        whole = None
    if isinstance(whole, list):
        for number, request in enumerate(whole, 1):
            for item in _json(path, None, orjson.dumps(request)):
                problem = item.problem and f"request {number}: {item.problem}"
                yield dataclasses.replace(item, problem=problem)
    else:
        yield from _json(path, None, body)


def _json(path: Path, line: int | None, body: bytes) -> Iterator[Imported]:
    body = body.strip()
    if not body:
        return
    found = False
    for signal, names in _SIGNALS.items():
        if any(b'"%b"' % name.encode() in body for name in names):
            found = True
            try:
                counts = otlp.inspect(body, signal, "json")
            except otlp.DecodeError as error:
                yield Imported(path, line, None, str(error))
                return
            if counts != otlp.Counts():
                yield _imported(path, line, wal.Record(signal, "json", time.time_ns(), body), counts)
    if not found:
        yield Imported(path, line, None, _unknown(body))


def _framed_request(path: Path, number: int | None, part: bytes) -> Iterator[Imported]:
    if part.startswith(_ZSTD):
        import pyarrow as pa

        try:
            part = pa.CompressedInputStream(pa.BufferReader(part), "zstd").read(_INFLATED_BYTES)
        except (pa.ArrowException, OSError) as error:
            yield Imported(path, number, None, f"not zstd: {error}")
            return
        if part.startswith((b"{", b"[")):
            yield from _json(path, number, part)
            return
    yield _protobuf(path, number, part)


def _unknown(body: bytes) -> str:
    try:
        otlp.inspect(body, "traces", "json")
    except otlp.DecodeError as error:
        return str(error)
    return _NOT_OTLP


def _protobuf(path: Path, line: int | None, body: bytes) -> Imported:
    """A protobuf request does not say its signal: the one in which its content makes sense."""
    problem = _NOT_OTLP if body else None
    for signal in _SIGNALS:
        try:
            counts = otlp.inspect(body, signal, "protobuf")
        except otlp.DecodeError as error:
            problem = problem if problem != _NOT_OTLP else str(error)
            continue
        timed = counts.logs and any(record.time_ns for record in otlp.decode(body, signal, "protobuf").logs)
        if counts.spans or timed or counts.metric_points:
            return _imported(path, line, wal.Record(signal, "protobuf", time.time_ns(), body), counts)
    return Imported(path, line, None, problem)


def _imported(path: Path, line: int | None, record: wal.Record, counts: otlp.Counts) -> Imported:
    problem = f"{counts.rejected} records rejected: {'; '.join(counts.problems)}" if counts.rejected else None
    return Imported(path, line, record, problem, counts.spans)


def _framed(body: bytes) -> list[bytes]:
    """The messages of a file of length-prefixed messages; none if it is not such a file."""
    parts, at = [], 0
    while at + 4 <= len(body):
        end = at + 4 + int.from_bytes(body[at : at + 4], "big")
        parts.append(body[at + 4 : end])
        at = end
    return parts if at == len(body) else []
