"""What an import reads and what comes out of it: the records that the engine and all importers share."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ingest import wal
from ingest.spans import Span

State = Mapping[str, object]
"""Where to go on, as an importer understands it; kept as JSON."""


@dataclass(frozen=True, slots=True)
class Source:
    """One thing to read. `path` is None for an address; `service` is the name for records that carry none."""

    location: str
    path: Path | None
    service: str | None = None
    state: State = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Item:
    """One record of a source: what it became, a problem, or both.

    `line` is its place in the file, None where there are none. `share`: how much of the source has been read. `state`:
    where to go on after this item, for importers that can.
    """

    line: int | None = None
    spans: Sequence[Span] = ()
    scores: Sequence[Mapping[str, object]] = ()
    """Objects of POST /v1/scores."""
    record: wal.Record | None = None
    """A request as it was sent."""
    counted: int = 0
    """Spans in `record`."""
    problem: str | None = None
    share: float = 0.0
    state: State | None = None


@dataclass(frozen=True, slots=True)
class Sample:
    """The beginning of a source, by which its format is known. `kind` is a suffix, "folder" or "url"."""

    location: str
    path: Path | None
    kind: str
    first: Mapping[str, object]
    """The first record; empty where there are none."""

    def has(self, *keys: str) -> bool:
        """Whether the first record has all these keys."""
        return all(key in self.first for key in keys)


@dataclass(frozen=True, slots=True)
class Importer:
    """One foreign format. `about` is a line for people."""

    name: str
    about: str
    recognises: Callable[[Sample], bool]
    read: Callable[[Source], Iterator[Item]]
    resumes: bool = False
    """Whether `read` goes on from `Source.state` by itself; for others what was read is skipped by counting."""
