"""The writing side: groups of records, each group one write and one sync."""

from __future__ import annotations

import asyncio
import errno
import os
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from ingest.wal.backlog import Backlog
from ingest.wal.records import Frame, Record, framed, frames
from ingest.wal.segments import Position, consumed, locked, segment_path, segments, sync_folder

MAX_AGE_S = 3600.0
"""How long the oldest record may wait for the lake before no more are taken."""

_RESERVE_BYTES, _RESERVE_SHARE = 256 << 20, 0.05
_MOST_BUFFERS = 1024  # of one write: IOV_MAX of Linux and macOS


class FullError(OSError):
    """The log takes no more for now: what is in it must reach the lake first."""


class Wal:
    """The writing side. Safe from several threads and processes."""

    def __init__(
        self,
        folder: Path,
        *,
        segment_bytes: int = 64 << 20,
        reserve_bytes: int | None = None,
        max_age_s: float = MAX_AGE_S,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """Creates the folder; the first append starts a segment. Raises OSError when the folder cannot be written.

        `reserve_bytes` None: 256 MiB, or a twentieth of a small disk. `max_age_s` limits `append` only.
        """
        folder.mkdir(parents=True, exist_ok=True)
        sync_folder(folder.parent)
        self.folder = folder
        self._segment_bytes = segment_bytes
        disk = os.statvfs(folder)
        share = int(_RESERVE_SHARE * disk.f_blocks * disk.f_frsize)
        self._reserve_bytes = min(_RESERVE_BYTES, share) if reserve_bytes is None else reserve_bytes
        self._max_age_s = max_age_s
        self._clock = clock
        self._waiting = Backlog(folder, monotonic)
        self._mutex = threading.Lock()
        self._lock = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        self._file: int | None = None
        self._end = Position.START
        self._pending: list[tuple[Frame, asyncio.Future[Position]]] = []
        self._flush: asyncio.Task[None] | None = None
        self._thread = ThreadPoolExecutor(1, "wal")

    async def append(self, record: Record, *, packed: bytes | None = None) -> Position:
        """Returns once the record is synced to disk: the position after its group.

        `packed` is the same body as gzip, stored in its stead. Appends that wait for the disk together share one sync.
        Raises OSError (a full disk, say); the record may or may not be found by a reader then. Raises FullError, and
        takes nothing, while the oldest record has waited too long.
        """
        if self.age_s() > self._max_age_s:
            raise FullError(errno.EAGAIN, "the lake is behind: the oldest record waits too long")
        loop = asyncio.get_running_loop()
        synced: asyncio.Future[Position] = loop.create_future()
        self._pending.append((framed(record, packed), synced))
        if self._flush is None or self._flush.done():
            self._flush = loop.create_task(self._write_groups())
        return await synced

    def write(self, records: Sequence[Record]) -> Position:
        """Append a group and sync it, blocking: the position after it. Raises OSError like `append`."""
        return self._commit([framed(record) for record in records])

    def backlog_bytes(self) -> int:
        """`backlog_bytes` of the folder: never less than it is, for up to 0.1 s perhaps more."""
        return self._waiting.size()

    def age_s(self) -> float:
        """How long the oldest record that was not released has waited, as far as this process saw; 0 when none waits.
        Whatever the clock does."""
        return self._waiting.age_s()

    async def drain(self) -> None:
        """Wait until nothing that was given to `append` is pending."""
        while self._flush is not None and not self._flush.done():
            await asyncio.wait([self._flush])

    def close(self) -> None:
        """Finish a write in progress and let go of the files."""
        self._thread.shutdown(wait=True)
        with self._mutex:
            self._leave()
            if self._lock >= 0:
                os.close(self._lock)
                self._lock = -1

    async def _write_groups(self) -> None:
        loop = asyncio.get_running_loop()
        while self._pending:
            group, self._pending = self._pending, []
            try:
                end = await loop.run_in_executor(self._thread, self._commit, [frame for frame, _ in group])
            except Exception as error:
                for _, synced in group:
                    if not synced.done():
                        synced.set_exception(error)
            else:
                for _, synced in group:
                    if not synced.done():
                        synced.set_result(end)

    def _commit(self, group: Sequence[Frame]) -> Position:
        size = sum(len(head) + len(body) for head, body in group)
        with self._mutex, locked(self._lock):
            disk = os.statvfs(self.folder)
            if disk.f_bavail * disk.f_frsize < self._reserve_bytes + size:
                raise FullError(errno.ENOSPC, "the disk is almost full")
            file = self._take_newest()
            try:
                _write(file, group)
                os.fdatasync(file)
            except BaseException:
                first = sum(map(len, group[0]))
                if self._end.offset == 0 and os.fstat(file).st_size < first:  # nothing whole: no reader is in it
                    segment_path(self.folder, self._end.segment).unlink()
                self._leave()  # its tail is in doubt
                raise
            self._end = Position(self._end.segment, self._end.offset + size)
            self._waiting.add(size)
            return self._end

    def _take_newest(self) -> int:
        """The newest segment, ready for an append at its end; a new one where the newest will not do."""
        newest = max(segments(self.folder), default=0)
        if self._file is None or newest < self._end.segment:
            return self._start(newest)
        if newest > self._end.segment:  # another writer's
            self._leave()
            self._file = os.open(segment_path(self.folder, newest), os.O_RDWR | os.O_APPEND | os.O_CLOEXEC)
            self._end = Position(newest, 0)
        size = os.fstat(self._file).st_size
        if size != self._end.offset:
            with open(self._file, "rb", closefd=False) as file:
                for end, _ in frames(file, self._end.offset):
                    self._end = Position(newest, end)
        if size != self._end.offset or size >= self._segment_bytes:
            return self._start(newest)
        return self._file

    def _start(self, newest: int) -> int:
        self._leave()
        number = max(newest, self._end.segment, consumed(self.folder).segment, int(self._clock()) - 1) + 1
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        self._file = os.open(segment_path(self.folder, number), flags, 0o644)
        self._end = Position(number, 0)
        sync_folder(self.folder)
        return self._file

    def _leave(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None


def _write(file: int, group: Sequence[Frame]) -> None:
    """Write all of a group, with as few calls as the system allows and no copy in memory."""
    left = [memoryview(part) for frame in group for part in frame]
    while left:
        written = os.writev(file, left[:_MOST_BUFFERS])
        whole = 0
        while whole < len(left) and written >= len(left[whole]):
            written -= len(left[whole])
            whole += 1
        del left[:whole]
        if written:
            left[0] = left[0][written:]
