"""Files as they lie about: plain, gzip or zstd, by their first bytes; with how much of one has been read."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, cast

from isal import igzip

_GZIP, _ZSTD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"
_PACKED = (".gz", ".zst", ".zstd")

Share = Callable[[], float]
"""How much of a file has been read, from 0 to 1."""


@contextlib.contextmanager
def opened(path: Path) -> Iterator[tuple[IO[bytes], Share]]:
    """The content, inflated, and how much of the file has been read. Raises OSError."""
    with path.open("rb") as file:
        size = max(1, path.stat().st_size)
        head = file.peek(4)[:4]

        def share() -> float:
            return min(1.0, file.tell() / size)

        if head[:2] == _GZIP:
            yield cast(IO[bytes], igzip.IGzipFile(fileobj=file, mode="rb")), share  # type: ignore[no-untyped-call]
        elif head == _ZSTD:
            import pyarrow as pa

            stream = pa.CompressedInputStream(pa.PythonFile(file, mode="r"), "zstd")
            yield cast(IO[bytes], io.BufferedReader(stream)), share
        else:
            yield file, share


def suffix(path: Path) -> str:
    """The last suffix in lower case, or the one before it for a packed file."""
    return (path.with_suffix("").suffix if path.suffix in _PACKED else path.suffix).lower()
