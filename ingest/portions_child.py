"""Portions of the log made in a process of their own, so that reading and storing use two processors.

The child makes portion after portion once it is asked, one ahead of the converter, until it has read all there is. Rows
with texts it writes to files for the lake: only their paths, and what settling needs, go through the pipe. Nothing is
lost with it: the position in the log is stored with the rows.
"""

from __future__ import annotations

import gc
import multiprocessing
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from multiprocessing.connection import Connection
from operator import attrgetter
from pathlib import Path
from typing import Any, Self

import pyarrow as pa

from ingest.arrow_tables import table
from ingest.dialects.facts import LlmFacts
from ingest.errors import WorkError
from ingest.lake_files import data_folder, registrable, write_file
from ingest.logged_calls import LoggedEvent
from ingest.portions import Portion, PortionReader
from ingest.rows import COLUMNS, FACTS
from ingest.trace_tree import TraceSpan
from ingest.waiting import Arrival
from ingest.wal import Position

COLLECT = (50_000, 20, 100)
"""A portion is some hundred thousand objects, none of them circular: looking for circles took a tenth of the time."""
_FILED = ("span_log", "content_log", "event_log")
_END_S = 5.0

_OWN = tuple(name for name in TraceSpan.__dataclass_fields__ if name != "facts")
_own_of, _facts_of = attrgetter(*_OWN), attrgetter(*FACTS)
_BEFORE_FACTS = tuple(TraceSpan.__dataclass_fields__).index("facts")

Flat = tuple[str, int, int, list[tuple[tuple[object, ...], tuple[object, ...]]], list[LoggedEvent]]


class PortionsChild:
    """The child, and the portions that it makes. A context manager; `begin` comes before the first `read`."""

    def __init__(self, home: Path) -> None:
        """Starts it on a home's log, for the home's lake; returns before it is up."""
        context = multiprocessing.get_context("spawn")
        self._ours, theirs = context.Pipe()
        self._process = context.Process(target=_work, args=(str(home), theirs), name="reader", daemon=True)
        self._process.start()
        theirs.close()
        self.idle = True

    def begin(self, position: Position, number: int, schemas: Mapping[str, pa.Schema]) -> None:
        """Where in the log and after which commit it begins, and the tables that it makes files of."""
        self._ours.send((position, number, {name: schemas[name] for name in _FILED}))

    def read(self) -> Portion:
        """The next portion. Raises what its reading raised; WorkError when the child is dead."""
        try:
            if self.idle:
                self._ours.send(None)
            portion, flat = self._ours.recv()
        except (EOFError, OSError) as problem:
            raise WorkError(f"the process that reads the write-ahead log ended: {problem!r}") from problem
        if portion is None:
            raise flat
        self.idle = portion.drained
        found: Portion = replace(portion, arrivals=whole(flat))
        return found

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._ours.close()  # which ends it
        self._process.join(_END_S)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()
        self._process.close()


def flattened(arrivals: Mapping[str, Arrival]) -> list[Flat]:
    """Arrivals as tuples, which go through a pipe five times as fast as the records."""
    return [
        (
            *(trace_id, arrival.first_ns, arrival.last_ns),
            [(_own_of(span), _facts_of(span.facts)) for span in arrival.spans],
            arrival.events,
        )
        for trace_id, arrival in arrivals.items()
    ]


def whole(flat: Iterable[Flat]) -> dict[str, Arrival]:
    """The inverse of `flattened`."""
    found = {}
    for trace_id, first_ns, last_ns, spans, events in flat:
        made = [_span(own, facts) for own, facts in spans]
        found[trace_id] = Arrival(first_ns, last_ns, made, events)
    return found


def _span(own: tuple[Any, ...], facts: tuple[Any, ...]) -> TraceSpan:
    values = [*own[:_BEFORE_FACTS], LlmFacts(*facts), *own[_BEFORE_FACTS:]]
    return TraceSpan(*values)


def _work(home: str, theirs: Connection) -> None:
    """The child's main function: ends when the other end of the pipe is closed."""
    gc.set_threshold(*COLLECT)
    try:
        position, number, schemas = theirs.recv()
        reader = PortionReader(Path(home) / "wal", position, number)
        data = data_folder(Path(home) / "lake")
        while True:
            theirs.recv()
            while not _send(reader, data, schemas, theirs):
                pass
    except (EOFError, BrokenPipeError, ConnectionResetError, KeyboardInterrupt):
        return


def _send(reader: PortionReader, data: Path, schemas: Mapping[str, pa.Schema], theirs: Connection) -> bool:
    """Makes a portion and sends it, or what went wrong; whether that was all for now."""
    try:
        portion = reader.read()
        flat = flattened(portion.arrivals)
        files = _files(portion, data, schemas) if registrable(data) else {}
    except Exception as problem:
        theirs.send((None, problem))
        return True
    rows = {name: found for name, found in portion.rows.items() if name not in files}
    drained = portion.drained
    portion = replace(portion, rows=rows, files=files, arrivals={})
    theirs.send((portion, flat))
    return drained


def _files(portion: Portion, data: Path, schemas: Mapping[str, pa.Schema]) -> dict[str, Path]:
    day = datetime.fromtimestamp(time.time(), UTC).date()
    found = {}
    for name in _FILED:
        rows: Sequence[tuple[object, ...]] = portion.rows.get(name, ())
        if rows:
            found[name] = write_file(data / name, table(schemas[name], COLUMNS[name], rows), schemas[name], day)
    return found
