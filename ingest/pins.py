"""Pinned snapshots of the lake: one small file each in `lake/pins`, so that a process that only reads can pin, too.

A pinned snapshot stays readable, and so do its files, until it is unpinned.
"""

from __future__ import annotations

import re
from pathlib import Path

from ingest.errors import UsageError
from ingest.home import replace_file

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")


def pin(lake: Path, name: str, snapshot: int) -> None:
    """Pin a snapshot under a name, which may be pinned already: the new one takes its place. Raises UsageError for a
    name that cannot be a file's."""
    file = _file(lake, name)
    file.parent.mkdir(exist_ok=True)
    replace_file(file, f"{snapshot}\n")


def unpin(lake: Path, name: str) -> None:
    """Let go of what is pinned under a name, if anything is."""
    _file(lake, name).unlink(missing_ok=True)


def pinned(lake: Path) -> set[int]:
    """The pinned snapshots. Raises ValueError for a file that holds none: better no expiry than a wrong one."""
    folder = lake / "pins"
    return {int(file.read_text()) for file in folder.glob("[!.]*")} if folder.is_dir() else set()


def _file(lake: Path, name: str) -> Path:
    if not _NAME.fullmatch(name):
        raise UsageError(f"{name!r} cannot name a pin.", "Use letters, digits, '.', '_' and '-'.")
    return lake / "pins" / name
