"""What was appended and not yet released: how many bytes, and how long the oldest of it has waited."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from pathlib import Path

from ingest.wal.segments import Position, backlog_bytes, consumed, newest_end

_LOOK_S = 0.1


class Backlog:
    """Looks at the folder at most every 0.1 s; in between it only grows, by what is added."""

    def __init__(self, folder: Path, monotonic: Callable[[], float]) -> None:
        self._folder = folder
        self._monotonic = monotonic
        self._looked = -1.0
        self._bytes = 0
        self._marks: deque[tuple[Position, float]] = deque()

    def add(self, size: int) -> None:
        """So many bytes were appended."""
        self._bytes += size

    def size(self) -> int:
        """Bytes."""
        self._look()
        return self._bytes

    def age_s(self) -> float:
        """Since the end of what is still there was first seen; 0 when all is released."""
        self._look()
        return self._monotonic() - self._marks[0][1] if self._marks else 0.0

    def _look(self) -> None:
        now = self._monotonic()
        if now - self._looked <= _LOOK_S:
            return
        self._looked = now
        self._bytes = backlog_bytes(self._folder)
        done, end = consumed(self._folder), newest_end(self._folder)
        while self._marks and self._marks[0][0] <= done:
            self._marks.popleft()
        if self._bytes and end > (self._marks[-1][0] if self._marks else done):
            self._marks.append((end, now))
