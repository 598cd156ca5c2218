"""Portions of the log made in a process of their own, so that reading and storing use two processors.

The child makes portion after portion once it is asked, one ahead of the converter, until it has read all there is. Rows
with texts it writes to files for the lake: only their paths, and what settling needs, go through the pipe. Nothing is
lost with it: the position in the log is stored with the rows.
"""

from __future__ import annotations

import contextlib
import gc
import multiprocessing
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Self

import pyarrow as pa

from ingest.arrow_tables import table
from ingest.errors import WorkError
from ingest.lake_files import data_folder, registrable, write_file
from ingest.portions import Portion, PortionReader
from ingest.rows import COLUMNS
from ingest.wal import Position
from ingest.without_pandas import without_pandas

_FILED = ("span_log", "content_log", "event_log")
_END_S = 5.0


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
            found = self._ours.recv()
        except (EOFError, OSError) as problem:
            raise WorkError(f"the process that reads the write-ahead log ended: {problem!r}") from problem
        if not isinstance(found, Portion):
            raise found
        self.idle = found.drained
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


def _work(home: str, theirs: Connection) -> None:
    """The child's main function: ends when the other end of the pipe is closed."""
    without_pandas()
    gc.disable()  # between portions it is asked for: the many objects of one are not circular
    gc.freeze()
    with contextlib.suppress(EOFError, BrokenPipeError, ConnectionResetError), ThreadPoolExecutor(1) as sender:
        position, number, schemas = theirs.recv()
        reader = PortionReader(Path(home) / "wal", position, number)
        data = data_folder(Path(home) / "lake")
        while True:
            theirs.recv()
            sending: Future[None] | None = None
            drained = False
            while not drained:
                found = _read(reader)
                drained = isinstance(found, Exception) or found.drained
                if sending is not None:
                    sending.result()
                sending = sender.submit(_send, found, data, schemas, theirs)
                del found
                gc.collect()
            if sending is not None:
                sending.result()


def _read(reader: PortionReader) -> Portion | Exception:
    try:
        return reader.read()
    except Exception as problem:
        return problem


def _send(found: Portion | Exception, data: Path, schemas: Mapping[str, pa.Schema], theirs: Connection) -> None:
    """Sends a portion, its texts put into files, or what went wrong. Arrow writes the files without Python's lock: the
    next portion is read meanwhile."""
    if isinstance(found, Portion) and registrable(data):
        try:
            files = _files(found, data, schemas)
        except OSError as problem:
            found = problem
        else:
            rows = {name: made for name, made in found.rows.items() if name not in files}
            found = replace(found, rows=rows, files=files)
    theirs.send(found)


def _files(portion: Portion, data: Path, schemas: Mapping[str, pa.Schema]) -> dict[str, Path]:
    day = datetime.fromtimestamp(time.time(), UTC).date()
    found = {}
    for name in _FILED:
        rows: Sequence[tuple[object, ...]] = portion.rows.get(name, ())
        if rows:
            found[name] = write_file(data / name, table(schemas[name], COLUMNS[name], rows), schemas[name], day)
    return found
