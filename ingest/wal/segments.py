"""The folder: its segments, positions in them, the lock that writers take turns under, and how far it was released."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

_SEGMENT = re.compile(r"(\d{12})\.wal")


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
    """Where the segment of a number is."""
    return folder / f"{number:012d}.wal"


def consumed(folder: Path) -> Position:
    """The position of the last `release`; the start when there was none."""
    try:
        return Position.parse((folder / "consumed").read_text())
    except (FileNotFoundError, ValueError):
        return Position.START


def newest_end(folder: Path) -> Position:
    """Where the newest segment ends now; the start when there is none."""
    for number in reversed(segments(folder)):
        with contextlib.suppress(FileNotFoundError):
            return Position(number, segment_path(folder, number).stat().st_size)
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


def sync_folder(folder: Path) -> None:
    """Make new and renamed names in a folder durable."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextlib.contextmanager
def no_writer(folder: Path) -> Iterator[None]:
    """No record is half written inside of this."""
    try:
        lock = os.open(folder / "lock", os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        yield
        return
    try:
        with locked(lock):
            yield
    finally:
        os.close(lock)


@contextlib.contextmanager
def locked(file: int) -> Iterator[None]:
    """No other holder of the lock file is inside of this."""
    fcntl.flock(file, fcntl.LOCK_EX)
    try:
        yield
    finally:
        fcntl.flock(file, fcntl.LOCK_UN)
