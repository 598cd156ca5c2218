"""The WAL -> the lake, exactly once; the lake's only writer.

Each commit holds the rows of some records together with the WAL's position after them, so a converter that dies takes
up where its last commit ended. Settling is a second, repeatable step: a trace that was quiet for a while is settled
from what the lake holds, and again when more of it arrives.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ingest import otlp, wal
from ingest.declared import declare_scales
from ingest.errors import AppError, WorkError
from ingest.lake import Lake
from ingest.options import ConverterOptions
from ingest.prices.shelf import PriceRecord, home_prices
from ingest.rows import COLUMNS, Batch
from ingest.scores import ScoreError, parse_scores
from ingest.settler import schemas, settle_traces, table
from ingest.upkeep import Retention, Upkeep
from ingest.wal import Position, Record, WalReader

log = logging.getLogger(__name__)

READ_BYTES = 8 << 20
"""At most about so much of the WAL is held at once."""

TRACES_A_TIME = 1000
"""Traces settled in one transaction."""

RETRY_S = 5.0
"""Between two attempts to write a lake that cannot be written: its disk is full, say, or its catalogue locked."""

_NAP_S = 0.02

Say = Callable[[Mapping[str, object]], None]


def run(home: Path, options: ConverterOptions, stop: Callable[[], bool], say: Say = lambda _: None) -> None:
    """Converts until `stop()`; then what is in the WAL by then is stored and every trace settled.

    A lake that cannot be written is opened again after a while: the WAL keeps what is not in it. `say` is told the
    state for health whenever it changes. Raises HomeError when another process writes to the home's lake, or a newer
    version wrote its WAL; WorkError when the lake cannot be written although it is time to stop.
    """
    trouble = False
    while True:
        try:
            with Lake.open(home, write=True) as lake:
                Converter(lake, home / "wal", options, say=say).run(stop)
            return
        except (AppError, OSError) as problem:
            if stop() or not (trouble or isinstance(problem, WorkError | OSError)):
                raise
            trouble = True
            log.error("%s; trying again in %.0f s", problem, RETRY_S)
            say({"problem": str(problem)})
        until = time.monotonic() + RETRY_S
        while time.monotonic() < until and not stop():
            time.sleep(_NAP_S)


@dataclass(slots=True)
class _Wait:
    """When what is not settled yet of a trace arrived: the first and the last of it by the clock of the receipt (ns),
    and the last by the converter's own (seconds of any origin), which nobody sets back."""

    first_ns: int
    last_ns: int
    seen_s: float


class Converter:
    """One converter at work. `clock` gives nanoseconds UTC, `monotonic` seconds of any origin."""

    def __init__(
        self,
        lake: Lake,
        folder: Path,
        options: ConverterOptions,
        clock: Callable[[], int] = time.time_ns,
        monotonic: Callable[[], float] = time.monotonic,
        say: Say = lambda _: None,
    ) -> None:
        self._lake = lake
        self._folder = folder
        self._options = options
        self._clock = clock
        self._monotonic = monotonic
        self._say = say
        self._prices = home_prices(folder.parent, options.prices, options.discounts)
        self._price_record = PriceRecord(lake, self._prices)
        self._types = schemas(lake)
        declare_scales(lake, options.scales)
        number, position = lake.query("last_batch").row(0)
        self._batch = int(number)
        self._reader = WalReader(folder, Position.parse(position) if position else Position.START)
        self._damaged = 0
        retention = Retention(options.retention_days, options.contents_days)
        self._upkeep = Upkeep(lake, retention, clock, monotonic)
        now = monotonic()
        waiting = lake.query("unsettled_traces").iter_rows()
        self._waiting = {trace_id: _Wait(first, first, now) for trace_id, first in waiting}

    def run(self, stop: Callable[[], bool]) -> None:
        """See `run` of the module."""
        self._say({"problem": None})
        while True:
            started = time.monotonic()
            stopping = stop()
            records = self._reader.read(READ_BYTES)
            drained = sum(len(record.body) for _, record in records) < READ_BYTES
            if records:
                self._convert(records)
            last_ns = self._clock() if drained else records[-1][1].received_ns
            quiet = self._quiet(last_ns, drained=drained, everything=stopping and drained)
            for at in range(0, len(quiet), TRACES_A_TIME):
                self._settle(quiet[at : at + TRACES_A_TIME])
            self._upkeep.work()
            if stopping and not records:
                return
            while drained and not stopping and time.monotonic() - started < self._options.commit_s:
                time.sleep(_NAP_S)
                stopping = stop()

    def _convert(self, records: Sequence[tuple[Position, Record]]) -> None:
        batch = Batch(self._batch + 1)
        self._report_damage(batch)
        for _, record in records:
            try:
                _add(batch, record)
            except (otlp.DecodeError, ScoreError) as problem:  # the receiver refuses these; an older one may not have
                _reject(batch, record.received_ns, str(problem))
        position = records[-1][0]
        rows = batch.finished(str(position))
        self._lake.write({name: table(self._types[name], COLUMNS[name], found) for name, found in rows.items()})
        self._batch = batch.number
        self._upkeep.committed()
        now = self._monotonic()
        for trace_id, (first, last) in batch.arrivals.items():
            known = self._waiting.get(trace_id)
            if known is None:
                self._waiting[trace_id] = _Wait(first, last, now)
            else:
                self._waiting[trace_id] = _Wait(min(first, known.first_ns), max(last, known.last_ns), now)
        wal.release(self._folder, position)

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
        if self._damaged:
            self._say({"damaged_wal_bytes": self._reader.skipped_bytes})

    def _quiet(self, now_ns: int, *, drained: bool, everything: bool) -> list[str]:
        """The traces to settle: by the clock of their receipts or, in case it leapt, by the converter's own."""
        since_ns = now_ns - int(self._options.quiet_s * 1e9)
        since_s = self._monotonic() - self._options.quiet_s
        return [
            trace
            for trace, wait in self._waiting.items()
            if everything or wait.last_ns <= since_ns or (drained and wait.seen_s <= since_s)
        ]

    def _settle(self, trace_ids: Sequence[str]) -> None:
        arrivals = {trace_id: self._waiting[trace_id].first_ns for trace_id in trace_ids}
        settle_traces(self._lake, self._types, arrivals, self._batch, self._prices, self._clock)
        self._price_record.keep()
        self._upkeep.committed()
        for trace_id in trace_ids:
            del self._waiting[trace_id]


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
