"""OTLP files: what an OpenTelemetry Collector's file exporter, a debugging tap or `sample_traces` leaves behind.

    .jsonl    one OTLP/JSON request a line
    .json     one request, a list of requests, or one a line
    .pb       one protobuf request, or requests each preceded by its length (4 bytes, big endian)

each optionally .gz. What cannot be read is reported with file and line; the rest is imported.
"""

from __future__ import annotations

import contextlib
import dataclasses
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, cast

import orjson
from isal import igzip

from ingest import otlp, wal
from ingest.errors import HomeError, UsageError
from ingest.home import collector_runs, open_home
from ingest.inflate import BROKEN
from ingest.options import ConverterOptions

_SUFFIXES = (".json", ".jsonl", ".pb")
_SIGNALS: dict[otlp.Signal, tuple[str, str]] = {
    "traces": ("resourceSpans", "resource_spans"),
    "logs": ("resourceLogs", "resource_logs"),
    "metrics": ("resourceMetrics", "resource_metrics"),
}
_NOT_OTLP = "not an OTLP request: none of resourceSpans, resourceLogs, resourceMetrics"
_GROUP_BYTES = 4 << 20  # appended to the log with one sync
_COMPLAINTS = 20  # a file; a damaged archive can have thousands
_BACKLOG_BYTES = 512 << 20  # half of what makes a collector answer 503


@dataclass(frozen=True, slots=True)
class Imported:
    """A request, a problem, or a request some records of which were rejected (both)."""

    path: Path
    line: int | None
    record: wal.Record | None
    problem: str | None = None
    spans: int = 0

    def complaint(self) -> str:
        """The problem with its place, as `file:line: problem`."""
        place = str(self.path) if self.line is None else f"{self.path}:{self.line}"
        return f"{place}: {self.problem}"


@dataclass(frozen=True, slots=True)
class ImportReport:
    """What an import did. `spans` counts spans sent, also those that the lake has already."""

    files: int
    records: int
    spans: int
    problems: tuple[str, ...]


def import_paths(
    home: Path, paths: Sequence[Path], options: ConverterOptions, progress: Callable[[int], None] | None = None
) -> ImportReport:
    """Import files and folders; returns when all is in the lake. Works beside a running collector, or without one.

    `progress` gets the number of requests so far. Raises UsageError for a path that does not exist, HomeError for a
    home that cannot be used.
    """
    found = files(paths)
    open_home(home, create=True)
    log = wal.Wal(home / "wal")
    group: list[wal.Record] = []
    records = spans = size = 0
    end = wal.Position.START
    problems: list[str] = []
    bad: Counter[Path] = Counter()
    try:
        for item in read_paths(found):
            if item.problem is not None:
                bad[item.path] += 1
                if bad[item.path] <= _COMPLAINTS:
                    problems.append(item.complaint())
            if item.record is None:
                continue
            group.append(item.record)
            records, spans, size = records + 1, spans + item.spans, size + len(item.record.body)
            if size >= _GROUP_BYTES:
                end = log.write(group)
                group, size = [], 0
                if log.backlog_bytes() > _BACKLOG_BYTES:
                    _drain(home, end, options)
            if progress is not None:
                progress(records)
        if group:
            end = log.write(group)
    finally:
        log.close()
    if records:
        _drain(home, end, options)
    problems += [f"{path}: {n - _COMPLAINTS} more of its parts are bad" for path, n in bad.items() if n > _COMPLAINTS]
    return ImportReport(len(found), records, spans, tuple(problems))


def files(paths: Sequence[Path]) -> list[Path]:
    """The OTLP files that `paths` name; folders are walked, in order of name. Raises UsageError for a missing one."""
    found: list[Path] = []
    for path in paths:
        if path.is_dir():
            found += sorted(p for p in path.rglob("*") if p.is_file() and _suffix(p) in _SUFFIXES)
        elif not path.exists():
            raise UsageError(f"{path} does not exist.")
        elif _suffix(path) not in _SUFFIXES:
            raise UsageError(f"{path} is not an OTLP file by its name.", f"Known are {', '.join(_SUFFIXES)}, also .gz.")
        else:
            found.append(path)
    return found


def read_paths(paths: Sequence[Path]) -> Iterator[Imported]:
    """The requests and problems of files and folders, in order. Raises UsageError for a path that does not exist."""
    for path in files(paths):
        try:
            with _opened(path) as file:
                yield from _read(path, file)
        except (OSError, EOFError, BROKEN) as error:
            yield Imported(path, None, None, f"cannot be read to its end: {error}")


def _read(path: Path, file: IO[bytes]) -> Iterator[Imported]:
    suffix = _suffix(path)
    if suffix == ".jsonl":
        for number, line in enumerate(file, 1):
            yield from _json(path, number, line)
        return
    body = file.read()
    if suffix == ".pb":
        parts = _framed(body)
        for number, part in enumerate(parts or [body], 1):
            yield _protobuf(path, number if parts else None, part)
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


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[IO[bytes]]:
    """The content, inflated if it is gzip; by its first bytes, since some taps keep bodies compressed as they came."""
    with path.open("rb") as file:
        packed = file.peek(2)[:2] == b"\x1f\x8b"
        yield cast(IO[bytes], igzip.IGzipFile(fileobj=file, mode="rb")) if packed else file  # type: ignore[no-untyped-call]


def _suffix(path: Path) -> str:
    return path.with_suffix("").suffix if path.suffix == ".gz" else path.suffix


def _drain(home: Path, end: wal.Position, options: ConverterOptions) -> None:
    """Wait until the lake has everything before `end`: by the collector's converter, or by running one here."""
    waited = False
    while (done := wal.consumed(home / "wal")) < end:
        if collector_runs(home):
            waited = True
            time.sleep(0.1)
            continue
        from ingest import converter

        try:
            converter.run(home, options, lambda: True)
            return
        except HomeError:
            if not collector_runs(home) and wal.consumed(home / "wal") == done:
                raise
    if waited:
        time.sleep(options.quiet_s + options.commit_s)  # until the collector has settled the traces, too
