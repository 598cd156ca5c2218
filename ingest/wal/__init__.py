"""The write-ahead log: what has been acknowledged is here until the lake has it.

A folder of append-only segments `NNNNNNNNNNNN.wal`; a segment is a row of records:

    version u8, kind u8, encoding u8, -, stored u32, plain u32, received_ns i64, crc32 u32     (24 bytes, little endian)
    body                                                                                       (`stored` bytes)

`plain` is 0 for a body stored as it is, else the length of the body once inflated from gzip. The checksum covers both.

Several processes may append (a collector and an importer). They take turns under an flock on `lock`, write only to the
newest segment, and start a new one when it is full or does not end in a whole record. Hence:

- a segment followed by a newer one is final, and a reader may leave it, whatever its last bytes are;
- positions are totally ordered, and everything after a position is either unread or torn;
- segments only grow: nothing is cut off or written over that a reader may have seen;
- a writer never touches a segment from before its own start: after a power failure that may be shorter than what the
  reader saw. Numbers rise with the clock, so that even an emptied folder does not fall back behind a stored position.

Bytes that are no whole record are passed over as far as the next one: at the end of a final segment, and anywhere when
a whole record follows. The reader says where (`Damage`); `quarantine` keeps them in `damaged/` before the release.

A writer leaves `reserve_bytes` of the disk free, so that what it has taken can still be stored in the lake, and the log
shrinks again.

`consumed` holds the position of the last `release`. It is a hint for back pressure and progress; the truth about what
has been read is stored by the reader, together with what it made of it.
"""

from __future__ import annotations

from ingest.wal.damage import Damage, quarantine
from ingest.wal.reader import WalReader
from ingest.wal.records import Encoding, Kind, Record
from ingest.wal.segments import Position, backlog_bytes, consumed, release, segment_path, segments, sync_folder
from ingest.wal.writer import MAX_AGE_S, FullError, Wal

__all__ = [
    "MAX_AGE_S",
    "Damage",
    "Encoding",
    "FullError",
    "Kind",
    "Position",
    "Record",
    "Wal",
    "WalReader",
    "backlog_bytes",
    "consumed",
    "quarantine",
    "release",
    "segment_path",
    "segments",
    "sync_folder",
]
