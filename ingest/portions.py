"""The WAL in portions: what one commit takes, as rows, and what waits to be settled because of it."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from ingest import otlp, wal
from ingest.arrivals import Arrived
from ingest.rows import Batch
from ingest.scores import ScoreError, parse_scores
from ingest.wal import Position, Record, WalReader

log = logging.getLogger(__name__)

PORTION_BYTES = 8 << 20
"""At most about so much of the WAL is held at once."""

TableRows = Mapping[str, Sequence[tuple[object, ...]]]


@dataclass(frozen=True)
class Portion:
    """Some records of the log, in order; none when there were none."""

    number: int
    """Of the commit that stores it."""
    position: Position | None
    """After its last record; None when it has none."""
    until_ns: int
    """All that was received before is in it, or came before it."""
    drained: bool
    """It holds all that there was."""
    rows: TableRows = field(default_factory=dict)
    files: Mapping[str, Path] = field(default_factory=dict)
    """Of tables whose rows are in a file already."""
    arrivals: Mapping[str, Arrived] = field(default_factory=dict)
    skipped_bytes: int = 0
    """Of the log's damaged parts so far."""


class Portions(Protocol):
    """A source of portions."""

    @property
    def idle(self) -> bool:
        """Whether the next portion is not begun yet: it will hold all that is in the log when it is asked for."""

    def read(self) -> Portion:
        """The next one."""


class PortionReader:
    """Reads and converts when it is asked. `clock` gives nanoseconds UTC."""

    idle = True

    def __init__(self, folder: Path, position: Position, number: int, clock: Callable[[], int] = time.time_ns) -> None:
        """Begins after a position of the log and after commit `number`."""
        self._reader = WalReader(folder, position)
        self._folder = folder
        self._number = number
        self._clock = clock
        self._damaged = 0

    def read(self) -> Portion:
        """The next portion. Raises HomeError for a log of a later version."""
        records = self._reader.read(PORTION_BYTES)
        drained = sum(len(record.body) for _, record in records) < PORTION_BYTES
        until_ns = self._clock() if drained else records[-1][1].received_ns
        if not records:
            return Portion(self._number, None, until_ns, drained)
        batch = self._converted(records)
        position = records[-1][0]
        rows = batch.finished(str(position))
        skipped = self._reader.skipped_bytes
        return Portion(batch.number, position, until_ns, drained, rows, {}, batch.arrivals, skipped)

    def _converted(self, records: Sequence[tuple[Position, Record]]) -> Batch:
        self._number += 1
        batch = Batch(self._number)
        self._report_damage(batch)
        for _, record in records:
            try:
                _add(batch, record)
            except (otlp.DecodeError, ScoreError) as problem:  # the receiver refuses these; an older one may not have
                _reject(batch, record.received_ns, str(problem))
        return batch

    def _report_damage(self, batch: Batch) -> None:
        """Damaged parts of the log are copied before the log is released, and show in the lake as rejected."""
        for part in self._reader.damage[self._damaged :]:
            kept = wal.quarantine(self._folder, part)
            size = part.end - part.start
            if part.torn:
                log.warning("%d bytes of a write cut short are in %s", size, kept)
                continue
            said = f"{size} bytes of the write-ahead log were damaged; they are kept in {kept.name}"
            log.error("%s", said)
            _reject(batch, self._clock(), said)
        self._damaged = len(self._reader.damage)


def _reject(batch: Batch, received_ns: int, problem: str) -> None:
    minute = batch.minute(received_ns)
    minute.rejected += 1
    minute.problem = minute.problem or problem


def _add(batch: Batch, record: Record) -> None:
    """Adds all of one record, or raises and adds nothing but its being there."""
    minute = batch.minute(record.received_ns)
    minute.requests += 1
    if record.kind == "scores":
        for score in parse_scores(record.body, record.received_ns):
            batch.add_score(score, record.received_ns)
        return
    found = otlp.decode(record.body, record.kind, record.encoding)
    minute.spans += len(found.spans)
    minute.logs += len(found.logs)
    minute.metric_points += found.metric_points
    minute.rejected += found.rejected
    minute.redacted.update(found.redacted)
    minute.problem = minute.problem or next(iter(found.problems), None)
    batch.add_spans(found.spans, record.received_ns)
    batch.add_logs(found.logs, record.received_ns)
