"""Inflate a body, never beyond a limit."""

from __future__ import annotations

import sys
from typing import Any, Literal

from isal import isal_zlib

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

Coding = Literal["gzip", "deflate", "zstd"]

BROKEN: type[Exception] = isal_zlib.error  # type: ignore[assignment]  # its stub calls the class an instance
_MEMBERS = 64  # a body of many tiny members would cost quadratic time
_SMALLEST_WINDOW = 23  # log2 of bytes: what every zstd decoder must allow
_LARGEST_WINDOW = 27


class InflateError(ValueError):
    """The body is not whole, valid compressed data."""


class TooLargeError(ValueError):
    """The inflated body passes the limit."""


def inflate(body: bytes, limit: int, coding: Coding = "gzip") -> bytes:
    """The inflated bytes of a whole body of at most 64 members (frames).

    Raises `InflateError` when it is broken, `TooLargeError` when it inflates to more than `limit` bytes; no more than
    `limit + 1` bytes are ever produced.
    """
    parts: list[bytes] = []
    left, rest = limit, body
    for _ in range(_MEMBERS):
        member = _member(coding, limit)
        try:
            part = member.decompress(rest, left + 1)
        except (BROKEN, zstd.ZstdError) as error:
            raise InflateError(f"not valid {coding}: {error}") from None
        if len(part) > left:
            raise TooLargeError(f"inflates to more than {limit} bytes")
        if not member.eof:
            raise InflateError(f"{coding} data ends early")
        parts.append(part)
        left, rest = left - len(part), member.unused_data
        if not rest:
            return parts[0] if len(parts) == 1 else b"".join(parts)
    raise InflateError(f"more than {_MEMBERS} {coding} members")


def _member(coding: Coding, limit: int) -> Any:
    if coding != "zstd":
        return isal_zlib.decompressobj(wbits=31 if coding == "gzip" else 15)
    window = min(max(limit.bit_length(), _SMALLEST_WINDOW), _LARGEST_WINDOW)  # a frame may be as large as its content
    return zstd.ZstdDecompressor(options={zstd.DecompressionParameter.window_log_max: window})
