"""Records as bytes: header, checksum and body of each, and what is a whole one. Pure but for the reading of a file."""

from __future__ import annotations

import os
import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO, Literal, get_args

from isal import isal_zlib

from ingest.errors import HomeError
from ingest.inflate import inflate

Kind = Literal["traces", "logs", "metrics", "scores"]
Encoding = Literal["protobuf", "json"]

_KINDS: tuple[Kind, ...] = get_args(Kind)
_ENCODINGS: tuple[Encoding, ...] = get_args(Encoding)
_VERSION = 1
_HEADER = struct.Struct("<BBBxIIq")
_CHECKSUM = struct.Struct("<I")
HEADER_BYTES = _HEADER.size + _CHECKSUM.size
RECORD_START = re.compile(
    b"(?=" + re.escape(bytes([_VERSION])) + b"[\0-%c][\0-%c]\0)" % (len(_KINDS) - 1, len(_ENCODINGS) - 1)
)
"""Where a record may begin."""


@dataclass(frozen=True, slots=True)
class Record:
    """One request as it was acknowledged. `body` is plain (inflated)."""

    kind: Kind
    encoding: Encoding
    received_ns: int
    body: bytes


Frame = tuple[bytes, bytes]
"""A record as it is written: its header with the checksum, its body. Apart, because joining would copy the body."""


def framed(record: Record, packed: bytes | None = None) -> Frame:
    """The record's frame. `packed` is its body as gzip, stored in its stead."""
    body = record.body if packed is None or not record.body else packed
    plain = 0 if body is record.body else len(record.body)
    head = _HEADER.pack(
        _VERSION, _KINDS.index(record.kind), _ENCODINGS.index(record.encoding), len(body), plain, record.received_ns
    )
    return head + _CHECKSUM.pack(_crc(head, body)), body


def frames(file: BinaryIO, start: int) -> Iterator[tuple[int, Frame]]:
    """The whole records from `start` on, each with the offset after it. Stops at the first that is not whole."""
    left = os.fstat(file.fileno()).st_size - start
    file.seek(start)
    while left >= HEADER_BYTES:
        head = file.read(HEADER_BYTES)
        length = int.from_bytes(head[4:8], "little")
        if len(head) < HEADER_BYTES or length > left - HEADER_BYTES:
            return
        body = file.read(length)
        (expected,) = _CHECKSUM.unpack_from(head, _HEADER.size)
        if _crc(head[: _HEADER.size], body) != expected:
            return
        start += HEADER_BYTES + length
        left -= HEADER_BYTES + length
        yield start, (head, body)


def is_whole(data: memoryview, at: int, size: int) -> bool:
    """Whether a whole record starts at `at` in the `size` bytes of a segment."""
    if size - at < HEADER_BYTES:
        return False
    version, kind, encoding, length, _, _ = _HEADER.unpack_from(data, at)
    begin = at + HEADER_BYTES
    if version != _VERSION or kind >= len(_KINDS) or encoding >= len(_ENCODINGS) or length > size - begin:
        return False
    (expected,) = _CHECKSUM.unpack_from(data, at + _HEADER.size)
    return bool(_crc(data[at : at + _HEADER.size], data[begin : begin + length]) == expected)


def parsed(frame: Frame) -> Record:
    """The record of a whole frame. Raises HomeError for one of a later version of the log."""
    head, body = frame
    version, kind, encoding, _, plain, received_ns = _HEADER.unpack_from(head)
    if version > _VERSION:
        raise HomeError(f"The write-ahead log holds records of version {version}; this retroute reads {_VERSION}.")
    return Record(_KINDS[kind], _ENCODINGS[encoding], received_ns, inflate(body, plain) if plain else body)


def _crc(head: bytes | memoryview, body: bytes | memoryview) -> int:
    return int(isal_zlib.crc32(body, isal_zlib.crc32(head)))
