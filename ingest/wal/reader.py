"""The reading side: records in order, and past what is damaged."""

from __future__ import annotations

import os
from pathlib import Path

from ingest.wal.damage import Damage, damaged
from ingest.wal.records import Record, frames, parsed
from ingest.wal.segments import Position, no_writer, segment_path, segments


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
                for end, frame in frames(file, start):
                    record = parsed(frame)
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
        if final:
            return damaged(self.folder, at, size, final=True)
        if self._scanned == (at, size):
            return None
        with no_writer(self.folder):
            size = segment_path(self.folder, at.segment).stat().st_size
            part = damaged(self.folder, at, size, final=False)
        self._scanned = (at, size)
        return part
