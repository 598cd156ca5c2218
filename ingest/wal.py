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

Bytes that are no whole record are passed over as far as the next one: at the end of a final segment, and anywhere when
a whole record follows. The reader says where (`Damage`); `quarantine` keeps them in `damaged/` before the release.

A writer leaves `reserve_bytes` of the disk free, so that what it has taken can still be stored in the lake, and the log
shrinks again.

`consumed` holds the position of the last `release`. It is a hint for back pressure and progress; the truth about what
has been read is stored by the reader, together with what it made of it.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import fcntl
import mmap
import os
import re
import struct
import threading
import time
from collections import deque
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
_RECORD_START = re.compile(
    b"(?=" + re.escape(bytes([_VERSION])) + b"[\0-%c][\0-%c]\0)" % (len(_KINDS) - 1, len(_ENCODINGS) - 1)
)
_SCAN_FACTOR = 8  # a damaged segment is checked at most so many times its size for whole records
_RESERVE_BYTES, _RESERVE_SHARE = 256 << 20, 0.05

MAX_AGE_S = 3600.0
"""How long the oldest record may wait for the lake before no more are taken."""


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


@dataclass(frozen=True, slots=True)
class Damage:
    """Bytes of a segment that are no whole record. `torn`: they look like a write that was cut short, which nobody was
    told to be done; if not, an acknowledged record may be among them."""

    segment: int
    start: int
    end: int
    torn: bool


class FullError(OSError):
    """The log takes no more for now: what is in it must reach the lake first."""


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


def quarantine(folder: Path, damage: Damage) -> Path:
    """Copy damaged bytes to `damaged/`: the file, synced. Doing it again changes nothing."""
    kept = folder / "damaged"
    kept.mkdir(exist_ok=True)
    file = kept / f"{damage.segment:012d}-{damage.start:09d}.part"
    with segment_path(folder, damage.segment).open("rb") as source:
        source.seek(damage.start)
        data = source.read(damage.end - damage.start)
    with file.open("wb") as target:
        target.write(data)
        target.flush()
        os.fsync(target.fileno())
    sync_folder(kept)
    return file


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
        self._monotonic = monotonic
        self._marks: deque[tuple[Position, float]] = deque()
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
        Raises OSError (a full disk, say); the record may or may not be found by a reader then. Raises FullError, and
        takes nothing, while the oldest record has waited too long.
        """
        if self.age_s() > self._max_age_s:
            raise FullError(errno.EAGAIN, "the lake is behind: the oldest record waits too long")
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
        self._look()
        return self._backlog

    def age_s(self) -> float:
        """How long the oldest record that was not released has waited, as far as this process saw; 0 when none waits.
        Whatever the clock does."""
        self._look()
        return self._monotonic() - self._marks[0][1] if self._marks else 0.0

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

    def _look(self) -> None:
        now = self._monotonic()
        if now - self._looked <= 0.1:
            return
        self._looked = now
        self._backlog = backlog_bytes(self.folder)
        done, end = consumed(self.folder), self._newest_end()
        while self._marks and self._marks[0][0] <= done:
            self._marks.popleft()
        if self._backlog and end > (self._marks[-1][0] if self._marks else done):
            self._marks.append((end, now))

    def _newest_end(self) -> Position:
        for number in reversed(segments(self.folder)):
            with contextlib.suppress(FileNotFoundError):
                return Position(number, segment_path(self.folder, number).stat().st_size)
        return Position.START

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
            data = memoryview(b"".join(frames))
            disk = os.statvfs(self.folder)
            if disk.f_bavail * disk.f_frsize < self._reserve_bytes + len(data):
                raise FullError(errno.ENOSPC, "the disk is almost full")
            file = self._take_newest()
            written = 0
            try:
                while written < len(data):
                    written += os.write(file, data[written:])
                os.fdatasync(file)
            except BaseException:
                if self._end.offset == 0 and written < len(frames[0]):  # nothing whole, so no reader is past its start
                    segment_path(self.folder, self._end.segment).unlink()
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


class WalReader:
    """The reading side; one per home, the converter's. Deletes nothing."""

    def __init__(self, folder: Path, position: Position = Position.START) -> None:
        self.folder = folder
        self.position = position
        self.damage: list[Damage] = []
        """What was passed over, in order."""
        self._scanned = (Position.START, 0)

    @property
    def skipped_bytes(self) -> int:
        """The size of what was passed over."""
        return sum(part.end - part.start for part in self.damage)

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
            part = self._damaged(Position(current, start), size, final) if size > start else None
            if part is not None:
                self.damage.append(part)
                self.position = Position(current, part.end)
            elif not final:
                return found
            if final and (part is None or part.end == size):
                self.position = Position(ahead[1], 0)

    def _damaged(self, at: Position, size: int, final: bool) -> Damage | None:
        """The bad bytes from `at` on, up to the next whole record, or to the end of a final segment. None when there is
        no such record: then somebody may still be writing, and a writer goes on in a new segment if it is torn."""
        if not final:
            if self._scanned == (at, size):
                return None
            with _no_writer(self.folder):
                size = segment_path(self.folder, at.segment).stat().st_size
                found = _next_whole(segment_path(self.folder, at.segment), at.offset, size)
            self._scanned = (at, size)
            if found in (at.offset, size):  # it has been completed meanwhile, or nothing follows
                return None
            return Damage(at.segment, at.offset, found, False)
        found = _next_whole(segment_path(self.folder, at.segment), at.offset, size)
        return Damage(at.segment, at.offset, found, found == size and self._torn(at, size))

    def _torn(self, at: Position, size: int) -> bool:
        """Whether the rest of a segment is the beginning of a record, or zeros, as a power failure leaves them."""
        with segment_path(self.folder, at.segment).open("rb") as file:
            file.seek(at.offset)
            rest = file.read(size - at.offset)
        return len(rest) < _HEADER_BYTES + int.from_bytes(rest[4:8], "little") or not any(rest)


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


def _next_whole(path: Path, start: int, size: int) -> int:
    """Where the next whole record starts, at or after `start`; `size` when none does. The end of a record whose header
    can be believed is looked at first: a body may hold what looks like a record."""
    with (
        path.open("rb") as file,
        mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ) as data,
        memoryview(data) as view,
    ):
        if _whole(view, start, size):
            return start
        if size - start >= _HEADER_BYTES:
            after = start + _HEADER_BYTES + int.from_bytes(view[start + 4 : start + 8], "little")
            if after <= size and (after == size or _whole(view, after, size)):
                return after
        budget = _SCAN_FACTOR * (size - start)
        for match in _RECORD_START.finditer(data, start + 1, size):
            at = match.start()
            if _whole(view, at, size):
                return at
            length = int.from_bytes(view[at + 4 : at + 8], "little")
            budget -= _HEADER_BYTES + (length if length <= size - at else 0)
            if budget < 0:
                break
    return size


def _whole(data: memoryview, at: int, size: int) -> bool:
    if size - at < _HEADER_BYTES:
        return False
    version, kind, encoding, length, _, _ = _HEADER.unpack_from(data, at)
    begin = at + _HEADER_BYTES
    if version != _VERSION or kind >= len(_KINDS) or encoding >= len(_ENCODINGS) or length > size - begin:
        return False
    (expected,) = _CHECKSUM.unpack_from(data, at + _HEADER.size)
    crc = isal_zlib.crc32(data[begin : begin + length], isal_zlib.crc32(data[at : at + _HEADER.size]))
    return bool(crc == expected)


def _record(head: bytes, body: bytes) -> Record:
    version, kind, encoding, _, plain, received_ns = _HEADER.unpack_from(head)
    if version > _VERSION:
        raise HomeError(f"The write-ahead log holds records of version {version}; this retroute reads {_VERSION}.")
    return Record(_KINDS[kind], _ENCODINGS[encoding], received_ns, inflate(body, plain) if plain else body)


@contextlib.contextmanager
def _no_writer(folder: Path) -> Iterator[None]:
    """No record is half written inside of this."""
    try:
        lock = os.open(folder / "lock", os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        yield
        return
    try:
        with _flock(lock):
            yield
    finally:
        os.close(lock)


@contextlib.contextmanager
def _flock(file: int) -> Iterator[None]:
    fcntl.flock(file, fcntl.LOCK_EX)
    try:
        yield
    finally:
        fcntl.flock(file, fcntl.LOCK_UN)
