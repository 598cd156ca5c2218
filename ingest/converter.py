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
from contextlib import ExitStack
from pathlib import Path

from ingest import wal
from ingest.arrivals import whole
from ingest.declared import declare_scales
from ingest.errors import AppError, WorkError
from ingest.known_ids import KnownIds
from ingest.lake import Lake
from ingest.options import ConverterOptions
from ingest.portions import PORTION_BYTES, Portion, PortionReader, Portions, TableRows
from ingest.portions_child import PortionsChild
from ingest.repricing import Tariff
from ingest.settler import portions, schemas, settle_held, settle_traces, tables
from ingest.upkeep import Retention, Upkeep
from ingest.waiting import Arrival, RecordedApart, Waiting
from ingest.wal import Position

log = logging.getLogger(__name__)

TRACES_A_TIME = 1000
"""Traces settled in one transaction."""

RETRY_S = 5.0
"""Between two attempts to write a lake that cannot be written: its disk is full, say, or its catalogue locked."""

_NAP_S = 0.02
_ECHO_NS = 24 * 3600 * 10**9
"""Two accounts of one call arrive within so long."""

Say = Callable[[Mapping[str, object]], None]


def run(
    home: Path,
    options: ConverterOptions,
    stop: Callable[[], bool],
    say: Say = lambda _: None,
    *,
    apart: bool = False,
) -> None:
    """Converts until `stop()`; then what is in the WAL by then is stored and every trace settled.

    A lake that cannot be written is opened again after a while: the WAL keeps what is not in it. `say` is told the
    state for health whenever it changes. `apart`: a process of its own reads the WAL. Raises HomeError when another
    process writes to the home's lake, or a newer version wrote its WAL; WorkError when the lake cannot be written
    although it is time to stop.
    """
    trouble = False
    while True:
        try:
            with ExitStack() as stack:
                child = (
                    stack.enter_context(PortionsChild(home)) if apart else None
                )  # it starts while the lake is opened
                lake = stack.enter_context(Lake.open(home, write=True))
                Converter(lake, home / "wal", options, say=say, child=child).run(stop)
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
        child: PortionsChild | None = None,
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
        start = Position.parse(position) if position else Position.START
        self._portions: Portions
        if child is None:
            self._portions = PortionReader(folder, start, self._batch, clock)
        else:
            child.begin(start, self._batch, self._types)
            self._portions = child
        self._skipped_bytes = 0
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
        stopping = self._portions.idle and stop()
        portion = self._portions.read()
        self._note(portion)
        quiet = self._waiting.quiet(
            portion.until_ns,
            self._monotonic(),
            self._options.quiet_s,
            drained=portion.drained,
            everything=stopping and portion.drained,
        )
        self._store(portion, quiet)
        if portion.drained:
            self._finish_writing()
        if self._tariff.changed():
            self._finish_writing()
            self._tariff.take(self._clock)
        self._upkeep.work()
        if portion.drained and not stopping:
            self._rest(started + self._options.commit_s, stop)
        return stopping and portion.position is None

    def _rest(self, until_s: float, stop: Callable[[], bool]) -> None:
        """Waits for the next commit to be due."""
        while time.monotonic() < until_s and not stop():
            if wal.backlog_bytes(self._folder) > PORTION_BYTES // 4:
                break  # so much is best begun with at once
            time.sleep(_NAP_S)

    def _note(self, portion: Portion) -> None:
        """Learns what a portion brings."""
        self._batch = portion.number
        arrivals = whole(portion.arrivals)
        self._waiting.arrived(arrivals, self._monotonic())
        self._apart.note(arrivals)
        if portion.skipped_bytes > self._skipped_bytes:
            self._skipped_bytes = portion.skipped_bytes
            self._say({"damaged_wal_bytes": self._skipped_bytes})

    def _store(self, portion: Portion, quiet: Sequence[str]) -> None:
        """Commits a portion, together with what can be settled from memory; settles the rest of the quiet traces from
        the lake."""
        held: dict[str, Arrival] = {}
        stored: list[str] = []
        for trace_id in quiet:
            arrival = self._waiting.whole(trace_id)
            if arrival is None or self._apart.doubtful(arrival.spans):
                stored.append(trace_id)
            else:
                held[trace_id] = arrival
        rows, files, position = portion.rows, portion.files, portion.position
        sizes = {trace_id: len(arrival.spans) + len(arrival.events) for trace_id, arrival in held.items()}
        for ids in portions(held, sizes) if held else [[]]:
            settled = settle_held({id_: held[id_] for id_ in ids}, self._batch, self._tariff.prices, self._clock())
            self._write(_joined(rows, settled.by_table()), files, position)
            self._waiting.settled(ids)
            rows, files, position = {}, {}, None
        for at in range(0, len(stored), TRACES_A_TIME):
            self._settle_stored(stored[at : at + TRACES_A_TIME])
        if quiet:
            self._tariff.keep()

    def _write(self, rows: TableRows, files: Mapping[str, Path], position: Position | None) -> None:
        """Commits in a thread of its own, one commit at a time: the next rows are made meanwhile."""
        found = tables(self._types, rows)
        if found or files:
            self._finish_writing()
            self._writing = self._writer.submit(self._lake.write, found, files=files), position

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


def _joined(rows: TableRows, more: TableRows) -> TableRows:
    return {name: [*rows.get(name, ()), *more.get(name, ())] for name in (*rows, *(more.keys() - rows.keys()))}
