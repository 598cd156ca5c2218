"""The WAL -> the lake, exactly once; the lake's only writer.

Each commit holds the rows of some records together with the WAL's position after them, so a converter that dies takes
up where its last commit ended. Settling is a second, repeatable step: a trace that was quiet for a while is settled
from memory, if all of it is there, or else from what the lake holds; and again when more of it arrives.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from ingest import otlp, wal
from ingest.declared import declare_scales
from ingest.errors import AppError, WorkError
from ingest.known_ids import KnownIds
from ingest.lake import Lake
from ingest.options import ConverterOptions
from ingest.repricing import Tariff
from ingest.rows import Batch
from ingest.scores import ScoreError, parse_scores
from ingest.settler import portions, schemas, settle_held, settle_traces, tables
from ingest.upkeep import Retention, Upkeep
from ingest.waiting import Arrival, RecordedApart, Waiting
from ingest.wal import Position, Record, WalReader

log = logging.getLogger(__name__)

READ_BYTES = 16 << 20
"""At most about so much of the WAL is held at once."""

TRACES_A_TIME = 1000
"""Traces settled in one transaction."""

RETRY_S = 5.0
"""Between two attempts to write a lake that cannot be written: its disk is full, say, or its catalogue locked."""

_NAP_S = 0.02
_ECHO_NS = 24 * 3600 * 10**9
"""Two accounts of one call arrive within so long."""

TableRows = dict[str, list[tuple[object, ...]]]
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
        self._tariff = Tariff(lake, folder.parent, options.prices, options.discounts)
        self._types = schemas(lake)
        declare_scales(lake, options.scales)
        number, position = lake.query("last_batch").row(0)
        self._batch = int(number)
        self._reader = WalReader(folder, Position.parse(position) if position else Position.START)
        self._damaged = 0
        retention = Retention(options.retention_days, options.contents_days)
        self._upkeep = Upkeep(lake, retention, clock, monotonic)
        known = KnownIds(lake.query("trace_keys")["key"].to_numpy())
        self._waiting = Waiting(lake.query("unsettled_traces").iter_rows(), known, monotonic())
        since_ns = clock() - _ECHO_NS
        self._apart = RecordedApart(
            lake.query("model_scopes").iter_rows(),
            KnownIds(lake.query("response_keys", since_ns=since_ns)["key"].to_numpy()),
            lake.query("echoed_responses", since_ns=since_ns)["response_id"],
        )
        self._writer = ThreadPoolExecutor(1, "writer")
        self._writing: tuple[Future[None], Position | None] | None = None

    def run(self, stop: Callable[[], bool]) -> None:
        """See `run` of the module."""
        self._say({"problem": None})
        try:
            while not self._round(stop):
                pass
        finally:
            self._writer.shutdown()

    def _round(self, stop: Callable[[], bool]) -> bool:
        """Stores a part of the log and settles what is quiet; whether it is time to end."""
        started = time.monotonic()
        stopping = stop()
        records = self._reader.read(READ_BYTES)
        drained = sum(len(record.body) for _, record in records) < READ_BYTES
        rows = self._converted(records) if records else {}
        last_ns = self._clock() if drained else records[-1][1].received_ns
        everything = stopping and drained
        quiet = self._waiting.quiet(
            last_ns, self._monotonic(), self._options.quiet_s, drained=drained, everything=everything
        )
        self._store(rows, records[-1][0] if records else None, quiet)
        if drained:
            self._finish_writing()
        if self._tariff.changed():
            self._finish_writing()
            self._tariff.take(self._clock)
        self._upkeep.work()
        while drained and not stopping and time.monotonic() - started < self._options.commit_s:
            if wal.backlog_bytes(self._folder) > READ_BYTES // 4:
                break  # so much is best begun with at once
            time.sleep(_NAP_S)
            stopping = stop()
        return stopping and not records

    def _converted(self, records: Sequence[tuple[Position, Record]]) -> TableRows:
        """The rows of one commit."""
        batch = Batch(self._batch + 1)
        self._report_damage(batch)
        for _, record in records:
            try:
                _add(batch, record)
            except (otlp.DecodeError, ScoreError) as problem:  # the receiver refuses these; an older one may not have
                _reject(batch, record.received_ns, str(problem))
        self._batch = batch.number
        self._waiting.arrived(batch.arrivals, self._monotonic())
        self._apart.note(batch.arrivals)
        return batch.finished(str(records[-1][0]))

    def _store(self, rows: TableRows, position: Position | None, quiet: Sequence[str]) -> None:
        """Commits rows and the position after them, together with what can be settled from memory; settles the rest of
        the quiet traces from the lake."""
        held: dict[str, Arrival] = {}
        stored: list[str] = []
        for trace_id in quiet:
            whole = self._waiting.whole(trace_id)
            if whole is None or self._apart.doubtful(whole.spans):
                stored.append(trace_id)
            else:
                held[trace_id] = whole
        sizes = {trace_id: len(arrival.spans) + len(arrival.events) for trace_id, arrival in held.items()}
        for ids in portions(held, sizes) if held else [[]]:
            settled = settle_held({id_: held[id_] for id_ in ids}, self._batch, self._tariff.prices, self._clock())
            for name, found in settled.by_table().items():
                rows[name] = [*rows.get(name, ()), *found]
            self._write(rows, position)
            self._waiting.settled(ids)
            rows, position = {}, None
        for at in range(0, len(stored), TRACES_A_TIME):
            self._settle_stored(stored[at : at + TRACES_A_TIME])
        if quiet:
            self._tariff.keep()

    def _write(self, rows: TableRows, position: Position | None) -> None:
        """Commits in a thread of its own, one commit at a time: the next rows are made meanwhile."""
        if found := tables(self._types, rows):
            self._finish_writing()
            self._writing = self._writer.submit(self._lake.write, found), position

    def _finish_writing(self) -> None:
        """Waits for the commit at work, and lets go of the part of the log that it stored."""
        if self._writing is None:
            return
        (commit, position), self._writing = self._writing, None
        commit.result()
        self._upkeep.committed()
        if position is not None:
            wal.release(self._folder, position)

    def _settle_stored(self, trace_ids: Sequence[str]) -> None:
        self._finish_writing()
        arrivals = {trace_id: self._waiting.first_ns(trace_id) for trace_id in trace_ids}
        settle_traces(
            *(self._lake, self._types, arrivals, self._batch, self._tariff.prices, self._clock),
            echoed=self._apart.echoed,
            took=self._waiting.took,
        )
        self._upkeep.committed()
        self._waiting.settled(trace_ids)

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
