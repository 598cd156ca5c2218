"""Runs imports: source -> importer -> the write-ahead log -> the lake, with or without a running collector.

What was read is synced group by group, and after each group `imports/` in the home notes how far the source got. An
import that was interrupted goes on there; a source that was imported and has not changed since is left alone. All ids
come from the source, so reading something twice stores it once.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import orjson

from ingest import wal
from ingest.errors import HomeError
from ingest.home import collector_runs, open_home, replace_file
from ingest.importers.encode import traces_request
from ingest.importers.sources import Importer, Item, Source
from ingest.options import ConverterOptions
from ingest.privacy import OFF, Policy
from ingest.spans import Span

GROUP_BYTES = 4 << 20
"""So much is synced at once."""

GROUP_SPANS = 2000
COMPLAINTS = 20
"""Of one source; a damaged archive can have thousands."""

_BACKLOG_BYTES = 512 << 20  # half of what makes a collector answer 503

Progress = Callable[[str, float, int], None]
"""(source, how much of it is read, requests and records so far)"""


@dataclass(frozen=True, slots=True)
class ImportReport:
    """What an import did. `files` counts sources, `unchanged` those that were left alone; `spans` and `scores` what was
    sent on, also what the lake has already."""

    files: int
    records: int
    spans: int
    problems: tuple[str, ...]
    scores: int = 0
    unchanged: int = 0


def import_sources(
    home: Path,
    sources: Sequence[tuple[Importer, Source]],
    options: ConverterOptions,
    progress: Progress | None = None,
    *,
    again: bool = False,
    policy: Policy = OFF,
) -> ImportReport:
    """Imports all sources, one after the other; returns when all is in the lake. `again` reads what is unchanged, too;
    `policy` says what is kept.

    Raises HomeError for a home that cannot be used, and what an importer raises, after what it gave is in the lake.
    """
    open_home(home, create=True)
    run = _Run(home, options, progress, policy)
    try:
        for importer, source in sources:
            run.read(importer, source, again)
    finally:
        run.finish()
    return run.report(len(sources))


@dataclass
class _Run:
    """One import under way."""

    home: Path
    options: ConverterOptions
    progress: Progress | None
    policy: Policy
    records: int = 0
    spans: int = 0
    scores: int = 0
    unchanged: int = 0
    problems: list[str] = field(default_factory=list)
    end: wal.Position = wal.Position.START

    def __post_init__(self) -> None:
        self._log = wal.Wal(self.home / "wal")
        self._requests: list[wal.Record] = []
        self._spans: list[Span] = []
        self._scores: list[Mapping[str, object]] = []
        self._size = 0

    def read(self, importer: Importer, source: Source, again: bool) -> None:
        journal = Journal.of(self.home, importer, source)
        if journal.finished and not again:
            if not importer.resumes:
                self.unchanged += 1
                return
        elif again:
            journal = replace(journal, items=0, state={}, finished=False)
        skip = 0 if importer.resumes else journal.items
        taken, bad, state = journal.items - skip, 0, journal.state
        try:
            for seen, item in enumerate(importer.read(replace(source, state=state)), 1):
                if seen <= skip:
                    taken = seen
                    continue
                if item.problem is not None:
                    bad += 1
                    if bad <= COMPLAINTS:
                        self.problems.append(complaint(source, item))
                full = self._add(item)
                taken, state = taken + 1, item.state or state
                if full:
                    self._flush()
                    journal = journal.at(taken, state)
                if self.progress is not None and (item.record or item.spans or item.scores):
                    self.progress(source.location, item.share, self.records)
            self._flush()
            journal.at(taken, state, finished=True)
        except BaseException:
            self._flush()  # when even this fails, the journal stays behind, and the next import reads it again
            if taken > journal.items:
                journal.at(taken, state)
            raise
        if bad > COMPLAINTS:
            self.problems.append(f"{source.location}: {bad - COMPLAINTS} more of its parts are bad")

    def finish(self) -> None:
        """Lets go of the log and waits until the lake has everything."""
        self._log.close()
        if self.end != wal.Position.START:
            drain(self.home, self.end, self.options)

    def report(self, sources: int) -> ImportReport:
        return ImportReport(sources, self.records, self.spans, tuple(self.problems), self.scores, self.unchanged)

    def _add(self, item: Item) -> bool:
        """Takes one item up; whether it is time to sync."""
        if item.record is not None:
            self._requests.append(item.record)
            self._size += len(item.record.body)
            self.spans += item.counted
        self._spans += item.spans
        self._scores += item.scores
        self.spans += len(item.spans)
        self.scores += len(item.scores)
        self.records += bool(item.record or item.spans or item.scores)
        self._size += sum(_weight(span) for span in item.spans)
        held = len(self._spans) + len(self._scores)
        return self._size >= GROUP_BYTES or held >= GROUP_SPANS

    def _flush(self) -> None:
        """Syncs what was taken up."""
        group, now = list(self._requests), time.time_ns()
        if self._spans:
            group.append(wal.Record("traces", "json", now, traces_request(self._spans)))
        if self._scores:
            group.append(wal.Record("scores", "json", now, orjson.dumps(self._scores)))
        if group:
            self.end = self._log.write([self._kept(record) for record in group])
            if self._log.backlog_bytes() > _BACKLOG_BYTES:
                drain(self.home, self.end, self.options)
        self._requests, self._spans, self._scores, self._size = [], [], [], 0

    def _kept(self, record: wal.Record) -> wal.Record:
        body = self.policy.apply(record.body, record.kind, record.encoding)
        return record if body is record.body else replace(record, body=body)


@dataclass(frozen=True, slots=True)
class Journal:
    """How far a source got: `items` of it are synced. `stamp` is what tells that it has not changed."""

    file: Path
    importer: str
    location: str
    stamp: Sequence[int]
    items: int = 0
    state: Mapping[str, object] = field(default_factory=dict)
    finished: bool = False

    @classmethod
    def of(cls, home: Path, importer: Importer, source: Source) -> Journal:
        """The journal of a source; a new one when there is none, or the source has changed."""
        location = source.location if source.path is None else str(source.path.resolve())
        key = hashlib.sha256(f"{importer.name}\0{location}\0{source.service or ''}".encode()).hexdigest()[:24]
        fresh = cls(home / "imports" / f"{key}.json", importer.name, location, _stamp(source.path))
        try:
            found = json.loads(fresh.file.read_text())
            if found["stamp"] != list(fresh.stamp):
                return fresh
            return replace(fresh, items=found["items"], state=found["state"], finished=found["finished"])
        except (OSError, ValueError, KeyError, TypeError):
            return fresh

    def at(self, items: int, state: Mapping[str, object], *, finished: bool = False) -> Journal:
        """Notes how far it got."""
        self.file.parent.mkdir(exist_ok=True)
        said = {
            "importer": self.importer,
            "location": self.location,
            "stamp": list(self.stamp),
            "items": items,
            "state": dict(state),
            "finished": finished,
        }
        replace_file(self.file, json.dumps(said) + "\n")
        return replace(self, items=items, state=state, finished=finished)


def complaint(source: Source, item: Item) -> str:
    """A problem with its place, as `source:line: problem`."""
    place = source.location if item.line is None else f"{source.location}:{item.line}"
    return f"{place}: {item.problem}"


def drain(home: Path, end: wal.Position, options: ConverterOptions) -> None:
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


def _weight(span: Span) -> int:
    """About how many bytes a span is: its texts."""
    return 300 + sum(len(value) for value in span.attributes.values() if isinstance(value, str))


def _stamp(path: Path | None) -> list[int]:
    if path is None:
        return []
    found = [p for p in path.iterdir() if p.is_file()] if path.is_dir() else [path]
    stats = [p.stat() for p in found]
    return [len(stats), sum(s.st_size for s in stats), max((s.st_mtime_ns for s in stats), default=0)]
