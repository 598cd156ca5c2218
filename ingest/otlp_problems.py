"""What was wrong with a request: as a whole, or with some of its records."""

from __future__ import annotations

from collections import Counter

_LATEST_NS = 2**63 - 1
INVALID_TRACE_ID = "invalid trace id (16 bytes, not all zero)"
INVALID_SPAN_ID = "invalid span id (8 bytes, not all zero)"


class DecodeError(ValueError):
    """The body is not a request of the signal and encoding that it is said to be."""


class Problems:
    """Counts of what was rejected or repaired. Its size does not grow with the number of bad records."""

    _KINDS = 20

    def __init__(self) -> None:
        self.rejected = 0
        self._counts: Counter[str] = Counter()

    def note(self, text: str, count: int = 1) -> None:
        """Something was repaired or left out of a record that is kept."""
        known = text in self._counts or len(self._counts) < self._KINDS
        self._counts[text if known else "other problems"] += count

    def reject(self, text: str) -> None:
        """A record is left out."""
        self.rejected += 1
        self.note(text)

    def texts(self) -> tuple[str, ...]:
        """One sentence a kind, with its count: "invalid span id (3 times)"."""
        return tuple(text if count == 1 else f"{text} ({count} times)" for text, count in self._counts.items())

    def time(self, time_ns: int) -> int:
        """`time_ns`, or 0 with a note when it does not fit a signed 64-bit integer."""
        if 0 <= time_ns <= _LATEST_NS:
            return time_ns
        self.note("time out of range, kept as 0")
        return 0
