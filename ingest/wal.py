"""The write-ahead log: what has been acknowledged is here until the lake has it.

A folder of append-only segments `NNNNNNNNNNNN.wal`; a segment is a row of records:

    version u8, kind u8, encoding u8, -, stored u32, plain u32, received_ns i64, crc32 u32     (24 bytes, little endian)
    body                                                                                       (`stored` bytes)

`plain` is 0 for a body stored as it is, else the length of the body once inflated from gzip. The checksum covers both.

Several processes may append (a collector and an importer). They take turns under an flock on `lock`, write only to the
newest segment, and start a new one when it is full or does not end in a whole record. Hence:

- a segment followed by a newer one is final, and a reader may leave it, whatever its last bytes are;
- positions are totally ordered, and everything after a position is either unread or torn;
- segments only grow: nothing is cut off or written over that a reader may have seen;
- a writer never touches a segment from before its own start: after a power failure that may be shorter than what the
  reader saw. Numbers rise with the clock, so that even an emptied folder does not fall back behind a stored position.

`consumed` holds the position of the last `release`. It is a hint for back pressure and progress; the truth about what
has been read is stored by the reader, together with what it made of it.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import re
import struct
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, ClassVar, Literal, get_args

from isal import isal_zlib

from ingest.errors import HomeError
from ingest.inflate import inflate

Kind = Literal["traces", "logs", "metrics", "scores"]
Encoding = Literal["protobuf", "json"]

_KINDS: tuple[Kind, ...] = get_args(Kind)
_ENCODINGS: tuple[Encoding, ...] = get_args(Encoding)
_VERSION = 1
_HEADER = struct.Struct("<BBBxIIq")
_CHECKSUM = struct.Struct("<I")
_HEADER_BYTES = _HEADER.size + _CHECKSUM.size
_SEGMENT = re.compile(r"(\d{12})\.wal")


@dataclass(frozen=True, slots=True)
class Record:
    """One request as it was acknowledged. `body` is plain (inflated)."""

    kind: Kind
    encoding: Encoding
    received_ns: int
    body: bytes


@dataclass(frozen=True, slots=True, order=True)
class Position:
    """A place between two records. `str` and `parse` are inverse to each other."""

    segment: int
    offset: int

    START: ClassVar[Position]

    def __str__(self) -> str:
        return f"{self.segment:012d}:{self.offset}"

    @classmethod
    def parse(cls, text: str) -> Position:
        """Raises ValueError unless `text` came from `str`."""
        segment, _, offset = text.partition(":")
        return cls(int(segment), int(offset))


Position.START = Position(0, 0)


def segments(folder: Path) -> list[int]:
    """The numbers of the segments present, oldest first."""
    try:
        names = [path.name for path in folder.iterdir()]
    except FileNotFoundError:
        return []
    return sorted(int(match[1]) for match in map(_SEGMENT.fullmatch, names) if match)


def segment_path(folder: Path, number: int) -> Path:
    return folder / f"{number:012d}.wal"


def consumed(folder: Path) -> Position:
    """The position of the last `release`; the start when there was none."""
    try:
        return Position.parse((folder / "consumed").read_text())
    except (FileNotFoundError, ValueError):
        return Position.START


def backlog_bytes(folder: Path) -> int:
    """Bytes that were appended and not yet released."""
    done, total = consumed(folder), 0
    for number in segments(folder):
        if number >= done.segment:
            with contextlib.suppress(FileNotFoundError):
                size = segment_path(folder, number).stat().st_size
                total += max(0, size - done.offset) if number == done.segment else size
    return total


def waiting_since_ns(folder: Path) -> int | None:
    """When the oldest record that was not released was received; None when all are."""
    done = consumed(folder)
    for number in segments(folder):
        if number >= done.segment:
            with contextlib.suppress(FileNotFoundError), segment_path(folder, number).open("rb") as file:
                file.seek(done.offset if number == done.segment else 0)
                head = file.read(_HEADER.size)
                if len(head) == _HEADER.size:
                    return int(_HEADER.unpack(head)[-1])
    return None


def release(folder: Path, position: Position) -> None:
    """Say that everything before `position` is stored elsewhere for good: unlinks the segments that are fully consumed.

    Call it after each commit. The newest segment always stays.
    """
    numbers = segments(folder)
    for number in numbers[:-1]:
        path = segment_path(folder, number)
        if number < position.segment or (number == position.segment and path.stat().st_size <= position.offset):
            path.unlink()
    if position != consumed(folder):
        fresh = folder / "consumed.new"
        fresh.write_text(str(position))
        fresh.replace(folder / "consumed")


class Wal:
    """The writing side. Safe from several threads and processes."""

    def __init__(self, folder: Path, *, segment_bytes: int = 64 << 20, clock: Callable[[], float] = time.time) -> None:
        """Creates the folder; the first append starts a segment. Raises OSError when the folder cannot be written."""
        folder.mkdir(parents=True, exist_ok=True)
        sync_folder(folder.parent)
        self.folder = folder
        self._segment_bytes = segment_bytes
        self._clock = clock
        self._mutex = threading.Lock()
        self._lock = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        self._file: int | None = None
        self._end = Position.START
        self._pending: list[tuple[bytes, asyncio.Future[Position]]] = []
        self._flush: asyncio.Task[None] | None = None
        self._thread = ThreadPoolExecutor(1, "wal")
        self._backlog = 0
        self._looked = -1.0

    async def append(self, record: Record, *, packed: bytes | None = None) -> Position:
        """Returns once the record is synced to disk: the position after its group.

        `packed` is the same body as gzip, stored in its stead. Appends that wait for the disk together share one sync.
        Raises OSError (a full disk, say); the record may or may not be found by a reader then.
        """
        loop = asyncio.get_running_loop()
        synced: asyncio.Future[Position] = loop.create_future()
        self._pending.append((_frame(record, packed), synced))
        if self._flush is None or self._flush.done():
            self._flush = loop.create_task(self._write_groups())
        return await synced

    def write(self, records: Sequence[Record]) -> Position:
        """Append a group and sync it, blocking: the position after it. Raises OSError like `append`."""
        return self._commit([_frame(record, None) for record in records])

    def backlog_bytes(self) -> int:
        """`backlog_bytes` of the folder: never less than it is, for up to 0.1 s perhaps more."""
        now = time.monotonic()
        if now - self._looked > 0.1:
            self._backlog = backlog_bytes(self.folder)
            self._looked = now
        return self._backlog

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

    def _commit(self, frames: Sequence[bytes]) -> Position:
        with self._mutex, _flock(self._lock):
            file = self._take_newest()
            data = memoryview(b"".join(frames))
            try:
                written = 0
                while written < len(data):
                    written += os.write(file, data[written:])
                os.fdatasync(file)
            except BaseException:
                self._leave()  # its tail is in doubt
                raise
            self._end = Position(self._end.segment, self._end.offset + len(data))
            self._backlog += len(data)
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
                for end, _, _ in _frames(file, self._end.offset):
                    self._end = Position(newest, end)
        if size != self._end.offset or size >= self._segment_bytes:
            return self._start(newest)
        return self._file

    def _start(self, newest: int) -> int:
        self._leave()
        number = max(newest + 1, self._end.segment + 1, int(self._clock()))
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        self._file = os.open(segment_path(self.folder, number), flags, 0o644)
        self._end = Position(number, 0)
        sync_folder(self.folder)
        return self._file

    def _leave(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None


class WalReader:
    """The reading side; one per home, the converter's. Deletes nothing."""

    def __init__(self, folder: Path, position: Position = Position.START) -> None:
        self.folder = folder
        self.position = position
        self.skipped_bytes = 0
        """Bytes at the ends of final segments that are no whole records: writes that were never acknowledged."""

    def read(self, max_bytes: int) -> list[tuple[Position, Record]]:
        """The next records, each with the position after it: until their bodies reach `max_bytes`, or all there are.

        Empty when all is read for now. Raises HomeError for a record of a later version of the log.
        """
        found: list[tuple[Position, Record]] = []
        taken = 0
        while True:
            ahead = [number for number in segments(self.folder) if number >= self.position.segment]
            if not ahead:
                return found
            current, final = ahead[0], len(ahead) > 1  # final before it is read: see the module
            start = self.position.offset if current == self.position.segment else 0
            with segment_path(self.folder, current).open("rb") as file:
                for end, head, body in _frames(file, start):
                    record = _record(head, body)
                    taken += len(record.body)
                    start = end
                    self.position = Position(current, end)
                    found.append((self.position, record))
                    if taken >= max_bytes:
                        return found
                size = os.fstat(file.fileno()).st_size
            if not final:
                return found
            self.skipped_bytes += max(0, size - start)
            self.position = Position(ahead[1], 0)


def sync_folder(folder: Path) -> None:
    """Make new and renamed names in a folder durable."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _frame(record: Record, packed: bytes | None) -> bytes:
    body = record.body if packed is None or not record.body else packed
    plain = 0 if body is record.body else len(record.body)
    head = _HEADER.pack(
        _VERSION, _KINDS.index(record.kind), _ENCODINGS.index(record.encoding), len(body), plain, record.received_ns
    )
    return b"".join((head, _CHECKSUM.pack(isal_zlib.crc32(body, isal_zlib.crc32(head))), body))


def _frames(file: BinaryIO, start: int) -> Iterator[tuple[int, bytes, bytes]]:
    """The whole records from `start` on: the offset after it, header, body. Stops at the first that is not whole."""
    left = os.fstat(file.fileno()).st_size - start
    file.seek(start)
    while left >= _HEADER_BYTES:
        head = file.read(_HEADER_BYTES)
        length = int.from_bytes(head[4:8], "little")
        if len(head) < _HEADER_BYTES or length > left - _HEADER_BYTES:
            return
        body = file.read(length)
        (expected,) = _CHECKSUM.unpack_from(head, _HEADER.size)
        if isal_zlib.crc32(body, isal_zlib.crc32(head[: _HEADER.size])) != expected:
            return
        start += _HEADER_BYTES + length
        left -= _HEADER_BYTES + length
        yield start, head, body


def _record(head: bytes, body: bytes) -> Record:
    version, kind, encoding, _, plain, received_ns = _HEADER.unpack_from(head)
    if version > _VERSION:
        raise HomeError(f"The write-ahead log holds records of version {version}; this retroute reads {_VERSION}.")
    return Record(_KINDS[kind], _ENCODINGS[encoding], received_ns, inflate(body, plain) if plain else body)


@contextlib.contextmanager
def _flock(file: int) -> Iterator[None]:
    fcntl.flock(file, fcntl.LOCK_EX)
    try:
        yield
    finally:
        fcntl.flock(file, fcntl.LOCK_UN)
