"""Inflate a gzip body, never beyond a limit."""

from __future__ import annotations

from isal import isal_zlib

BROKEN: type[Exception] = isal_zlib.error  # type: ignore[assignment]  # its stub calls the class an instance
_MEMBERS = 64  # a body of many tiny members would cost quadratic time


class InflateError(ValueError):
    """The body is not whole, valid gzip."""


class TooLargeError(ValueError):
    """The inflated body passes the limit."""


def inflate(body: bytes, limit: int) -> bytes:
    """The inflated bytes of a whole gzip body of at most 64 members.

    Raises `InflateError` when it is broken, `TooLargeError` when it inflates to more than `limit` bytes; no more than
    `limit + 1` bytes are ever produced.
    """
    parts: list[bytes] = []
    left, rest = limit, body
    for _ in range(_MEMBERS):
        member = isal_zlib.decompressobj(wbits=31)
        try:
            part = member.decompress(rest, left + 1)
        except BROKEN as error:
            raise InflateError(f"not valid gzip: {error}") from None
        if len(part) > left:
            raise TooLargeError(f"inflates to more than {limit} bytes")
        if not member.eof:
            raise InflateError("gzip data ends early")
        parts.append(part)
        left, rest = left - len(part), member.unused_data
        if not rest:
            return parts[0] if len(parts) == 1 else b"".join(parts)
    raise InflateError(f"more than {_MEMBERS} gzip members")
