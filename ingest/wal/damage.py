"""Bytes of a segment that are no whole record."""

from __future__ import annotations

import mmap
import os
from dataclasses import dataclass
from pathlib import Path

from ingest.wal.records import HEADER_BYTES, RECORD_START, is_whole
from ingest.wal.segments import Position, segment_path, sync_folder

_SCAN_FACTOR = 8  # a damaged segment is checked at most so many times its size for whole records


@dataclass(frozen=True, slots=True)
class Damage:
    """Bytes of a segment that are no whole record. `torn`: they look like a write that was cut short, which nobody was
    told to be done; if not, an acknowledged record may be among them."""

    segment: int
    start: int
    end: int
    torn: bool


def damaged(folder: Path, at: Position, size: int, *, final: bool) -> Damage | None:
    """The bad bytes from `at` on in a segment of `size` bytes: up to the next whole record, or to the end of a final
    segment. None in one that is not final when they are completed by now, or when nothing whole follows: then somebody
    may still be writing, and a writer goes on in a new segment if it is torn."""
    path = segment_path(folder, at.segment)
    found = _next_whole(path, at.offset, size)
    if not final and found in (at.offset, size):
        return None
    return Damage(at.segment, at.offset, found, found == size and _torn(path, at.offset, size))


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


def _next_whole(path: Path, start: int, size: int) -> int:
    """Where the next whole record starts, at or after `start`; `size` when none does. The end of a record whose header
    can be believed is looked at first: a body may hold what looks like a record."""
    with (
        path.open("rb") as file,
        mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ) as data,
        memoryview(data) as view,
    ):
        if is_whole(view, start, size):
            return start
        if size - start >= HEADER_BYTES:
            after = start + HEADER_BYTES + int.from_bytes(view[start + 4 : start + 8], "little")
            if after <= size and (after == size or is_whole(view, after, size)):
                return after
        budget = _SCAN_FACTOR * (size - start)
        for match in RECORD_START.finditer(data, start + 1, size):
            at = match.start()
            if is_whole(view, at, size):
                return at
            length = int.from_bytes(view[at + 4 : at + 8], "little")
            budget -= HEADER_BYTES + (length if length <= size - at else 0)
            if budget < 0:
                break
    return size


def _torn(path: Path, start: int, size: int) -> bool:
    """Whether the rest of a segment is the beginning of a record, or zeros, as a power failure leaves them."""
    with path.open("rb") as file:
        file.seek(start)
        rest = file.read(size - start)
    return len(rest) < HEADER_BYTES + int.from_bytes(rest[4:8], "little") or not any(rest)
