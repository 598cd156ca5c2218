"""The WAL -> the lake, exactly once; the lake's only writer.

Each commit holds the rows of some records together with the WAL's position after them, so a converter that dies takes
up where its last commit ended. Settling is a second, repeatable step: a trace that was quiet for a while is settled
from what the lake holds, and again when more of it arrives.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from ingest import otlp, wal
from ingest.declared import declare_scales
from ingest.lake import Lake
from ingest.options import ConverterOptions
from ingest.prices.shelf import PriceRecord, home_prices
from ingest.rows import COLUMNS, Batch
from ingest.scores import ScoreError, parse_scores
from ingest.settler import schemas, settle_traces, table
from ingest.wal import Position, Record, WalReader

log = logging.getLogger(__name__)

READ_BYTES = 8 << 20
"""At most about so much of the WAL is held at once."""

TRACES_A_TIME = 1000
"""Traces settled in one transaction."""

COMPACT_AFTER = 200
"""Commits after which small files are joined."""

_NAP_S = 0.02


def run(home: Path, options: ConverterOptions, stop: Callable[[], bool]) -> None:
    """Converts until `stop()`; then what is in the WAL by then is stored and every trace settled.

    Raises HomeError when another process writes to the home's lake, or a newer version wrote its WAL.
    """
    with Lake.open(home, write=True) as lake:
        Converter(lake, home / "wal", options).run(stop)


class Converter:
    """One converter at work. `clock` gives nanoseconds UTC."""

    def __init__(
        self, lake: Lake, folder: Path, options: ConverterOptions, clock: Callable[[], int] = time.time_ns
    ) -> None:
        self._lake = lake
        self._folder = folder
        self._options = options
        self._clock = clock
        self._prices = home_prices(folder.parent, options.prices, options.discounts)
        self._price_record = PriceRecord(lake, self._prices)
        self._types = schemas(lake)
        declare_scales(lake, options.scales)
        number, position = lake.query("last_batch").row(0)
        self._batch = int(number)
        self._reader = WalReader(folder, Position.parse(position) if position else Position.START)
        self._commits = 0
        waiting = lake.query("unsettled_traces").iter_rows()
        self._waiting: dict[str, tuple[int, int]] = {trace_id: (first, first) for trace_id, first in waiting}
        """trace id -> when the first and the last of what is not settled yet arrived (ns)."""

    def run(self, stop: Callable[[], bool]) -> None:
        """See `run` of the module."""
        while True:
            started = time.monotonic()
            stopping = stop()
            records = self._reader.read(READ_BYTES)
            drained = sum(len(record.body) for _, record in records) < READ_BYTES
            if records:
                self._convert(records)
            last_ns = self._clock() if drained else records[-1][1].received_ns
            quiet = self._quiet(last_ns, everything=stopping and drained)
            for at in range(0, len(quiet), TRACES_A_TIME):
                self._settle(quiet[at : at + TRACES_A_TIME])
            if self._commits >= COMPACT_AFTER:
                self._lake.compact()
                self._commits = 0
            if stopping and not records:
                return
            while drained and not stopping and time.monotonic() - started < self._options.commit_s:
                time.sleep(_NAP_S)
                stopping = stop()

    def _convert(self, records: Sequence[tuple[Position, Record]]) -> None:
        batch = Batch(self._batch + 1)
        for _, record in records:
            try:
                _add(batch, record)
            except (otlp.DecodeError, ScoreError) as problem:  # the receiver refuses these; an older one may not have
                minute = batch.minute(record.received_ns)
                minute.rejected += 1
                minute.problem = minute.problem or str(problem)
        position = records[-1][0]
        rows = batch.finished(str(position))
        self._lake.write({name: table(self._types[name], COLUMNS[name], found) for name, found in rows.items()})
        self._batch = batch.number
        self._commits += 1
        for trace_id, (first, last) in batch.arrivals.items():
            known = self._waiting.get(trace_id)
            self._waiting[trace_id] = (min(first, known[0]), max(last, known[1])) if known else (first, last)
        wal.release(self._folder, position)

    def _quiet(self, now_ns: int, *, everything: bool) -> list[str]:
        since = now_ns - int(self._options.quiet_s * 1e9)
        return [trace for trace, (_, last) in self._waiting.items() if everything or last <= since]

    def _settle(self, trace_ids: Sequence[str]) -> None:
        arrivals = {trace_id: self._waiting[trace_id][0] for trace_id in trace_ids}
        settle_traces(self._lake, self._types, arrivals, self._batch, self._prices, self._clock)
        self._price_record.keep()
        self._commits += 1
        for trace_id in trace_ids:
            del self._waiting[trace_id]


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
    minute.problem = minute.problem or next(iter(found.problems), None)
    batch.add_spans(found.spans, record.received_ns)
    batch.add_logs(found.logs, record.received_ns)
