"""The write-ahead log: nothing acknowledged is lost, skipped or read twice."""

from __future__ import annotations

import asyncio
import errno
import gzip
import os
import struct
import zlib
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ingest import wal
from ingest.errors import HomeError
from ingest.wal import Position, Record, Wal, WalReader
from ingest.wal.records import framed

records = st.builds(
    Record,
    st.sampled_from(["traces", "logs", "metrics", "scores"]),
    st.sampled_from(["protobuf", "json"]),
    st.integers(0, 2**63 - 1),
    st.binary(max_size=40),
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "wal"


def record(n: int, size: int = 10) -> Record:
    return Record("traces", "protobuf", n, b"%d" % n + b"." * size)


def read_all(folder: Path, position: Position = Position.START) -> list[Record]:
    return [found for _, found in WalReader(folder, position).read(1 << 40)]


def write(folder: Path, *numbers: int, **options: int) -> Position:
    log = Wal(folder, **options)
    try:
        return log.write([record(n) for n in numbers])
    finally:
        log.close()


@settings(max_examples=60, deadline=None)
@given(st.lists(st.lists(records, min_size=1, max_size=4), max_size=6), st.integers(1, 200), st.integers(1, 200))
def test_what_is_written_is_read_once_in_order(tmp_path_factory, groups, segment_bytes, max_bytes):
    """However the segments are cut and however much is read at a time, also when every read is by a new reader."""
    folder = tmp_path_factory.mktemp("law") / "wal"
    log = Wal(folder, segment_bytes=segment_bytes)
    for group in groups:
        log.write(group)
    log.close()
    written = [item for group in groups for item in group]
    assert read_all(folder) == written
    position, found = Position.START, []
    while part := WalReader(folder, Position.parse(str(position))).read(max_bytes):
        assert [end for end, _ in part] == sorted({end for end, _ in part} | {position})[1:]
        position = part[-1][0]
        found += [item for _, item in part]
    assert found == written


def test_every_position_between_records_resumes_exactly_there(folder):
    log = Wal(folder, segment_bytes=150)
    for n in range(12):
        log.write([record(n)])
    log.close()
    assert len(wal.segments(folder)) == 3
    for n, (position, _) in enumerate(WalReader(folder).read(1 << 30)):
        assert [r.received_ns for r in read_all(folder, position)] == list(range(n + 1, 12))


def test_appends_that_wait_for_the_disk_together_share_one_sync(folder, monkeypatch):
    syncs = []
    monkeypatch.setattr(os, "fdatasync", lambda file, sync=os.fdatasync: (syncs.append(file), sync(file)))
    log = Wal(folder)

    async def run() -> None:
        await asyncio.gather(*(log.append(record(n)) for n in range(100)))

    asyncio.run(run())
    log.close()
    assert [r.received_ns for r in read_all(folder)] == list(range(100))
    assert 1 <= len(syncs) <= 3


def test_append_returns_only_after_the_sync(folder, monkeypatch):
    synced = []
    monkeypatch.setattr(os, "fdatasync", lambda file: synced.append(os.fstat(file).st_size))
    log = Wal(folder)

    async def run() -> None:
        position = await log.append(record(1))
        assert synced[-1] == position.offset

    asyncio.run(run())
    log.close()


def test_a_gzip_body_is_stored_as_it_came_and_read_plain(folder):
    plain = b"the same again " * 1000
    log = Wal(folder)
    asyncio.run(log.append(Record("logs", "json", 5, plain), packed=gzip.compress(plain)))
    log.close()
    assert wal.backlog_bytes(folder) < 300
    assert read_all(folder) == [Record("logs", "json", 5, plain)]


@pytest.mark.parametrize("keep", [1, 4, 23, 24, 25, 34])
def test_a_torn_tail_hides_nothing_before_or_after_it(folder, keep):
    write(folder, 1, 2)
    (number,) = wal.segments(folder)
    path = wal.segment_path(folder, number)
    size = path.stat().st_size // 2
    assert size == 35  # 24 of header, 11 of body
    with path.open("ab") as file:
        file.write(path.read_bytes()[:keep])
    reader = WalReader(folder)
    assert [r.received_ns for _, r in reader.read(1 << 30)] == [1, 2]
    assert reader.read(1 << 30) == []
    write(folder, 3)
    assert [r.received_ns for _, r in reader.read(1 << 30)] == [3]
    assert reader.skipped_bytes == keep


def test_a_tail_of_zeros_after_a_power_failure_is_torn(folder):
    write(folder, 1)
    (number,) = wal.segments(folder)
    with wal.segment_path(folder, number).open("ab") as file:
        file.write(bytes(5000))
    write(folder, 2)
    assert [r.received_ns for r in read_all(folder)] == [1, 2]


def test_a_flipped_bit_is_never_read_as_data_and_costs_its_record_only(folder):
    write(folder, 1, 2, 3)
    (number,) = wal.segments(folder)
    path = wal.segment_path(folder, number)
    data = bytearray(path.read_bytes())
    size = len(data) // 3
    for at in range(size, 2 * size):
        damaged = bytearray(data)
        damaged[at] ^= 4
        path.write_bytes(damaged)
        reader = WalReader(folder)
        assert [r.received_ns for _, r in reader.read(1 << 30)] == [1, 3]
        assert reader.damage == [wal.Damage(number, size, 2 * size, torn=False)]


def test_a_reader_waits_for_the_rest_of_a_record_that_is_being_written(folder):
    write(folder, 1, 2)
    (number,) = wal.segments(folder)
    path = wal.segment_path(folder, number)
    data = path.read_bytes()
    path.write_bytes(data[:-5])
    reader = WalReader(folder)
    assert [r.received_ns for _, r in reader.read(1 << 30)] == [1]
    path.write_bytes(data)
    assert [r.received_ns for _, r in reader.read(1 << 30)] == [2]


def test_a_new_writer_never_touches_what_an_earlier_one_left(folder):
    """After a power failure a segment can be shorter than what the reader saw: its position must not be reused."""
    write(folder, 1, 2)
    seen = WalReader(folder)
    seen.read(1 << 30)
    (number,) = wal.segments(folder)
    os.truncate(wal.segment_path(folder, number), 20)
    write(folder, 3)
    assert [r.received_ns for r in read_all(folder, seen.position)] == [3]


def test_numbers_rise_even_when_the_folder_was_emptied(folder):
    write(folder, 1)
    position = WalReader(folder)
    position.read(1 << 30)
    for number in wal.segments(folder):
        wal.segment_path(folder, number).unlink()
    (folder / "consumed").unlink(missing_ok=True)
    log = Wal(folder, clock=lambda: position.position.segment + 1.0)
    log.write([record(2)])
    log.close()
    assert [r.received_ns for r in read_all(folder, position.position)] == [2]


def test_two_writers_at_once_lose_nothing_and_the_reader_follows(folder):
    first, second = Wal(folder, segment_bytes=500), Wal(folder, segment_bytes=300)
    reader = WalReader(folder)
    found = []
    for n in range(0, 60, 3):
        first.write([record(n)])
        second.write([record(n + 1), record(n + 2)])
        found += [r.received_ns for _, r in reader.read(70)]
    while part := reader.read(70):
        found += [r.received_ns for _, r in part]
    first.close()
    second.close()
    assert found == list(range(60))


def test_a_writer_leaves_a_segment_that_another_writer_tore(folder):
    first, second = Wal(folder), Wal(folder)
    first.write([record(1)])
    second.write([record(2)])
    newest = wal.segment_path(folder, wal.segments(folder)[-1])
    with newest.open("ab") as file:
        file.write(b"half a rec")  # killed in the middle
    first.write([record(3)])
    first.close()
    second.close()
    assert [r.received_ns for r in read_all(folder)] == [1, 2, 3]


def test_a_failed_write_fails_its_appends_and_the_next_one_succeeds(folder, monkeypatch):
    log = Wal(folder)
    log.write([record(1)])

    def full(file: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    async def run() -> None:
        with monkeypatch.context() as patch:
            patch.setattr(os, "fdatasync", full)
            results = await asyncio.gather(*(log.append(record(n)) for n in (2, 3)), return_exceptions=True)
            assert all(isinstance(result, OSError) for result in results)
        await log.append(record(4))

    asyncio.run(run())
    log.close()
    found = [r.received_ns for r in read_all(folder)]
    assert found[0] == 1
    assert found[-1] == 4
    assert len(wal.segments(folder)) == 2


def test_release_unlinks_what_is_consumed_and_keeps_the_newest_segment(folder):
    log = Wal(folder, segment_bytes=1)
    for n in range(4):
        log.write([record(n)])
    log.close()
    reader = WalReader(folder)
    total = wal.backlog_bytes(folder)
    for left in (3, 2, 1, 0):
        ((position, _),) = reader.read(1)
        wal.release(folder, position)
        assert wal.backlog_bytes(folder) == total * left // 4
        assert wal.consumed(folder) == position
        assert len(wal.segments(folder)) == max(left, 1)
    assert read_all(folder, reader.position) == []


def test_a_record_of_a_later_version_is_refused_not_skipped(folder):
    write(folder, 1)
    (number,) = wal.segments(folder)
    path = wal.segment_path(folder, number)
    data = path.read_bytes()
    head, body = b"\x09" + data[1:20], data[24:]
    path.write_bytes(head + struct.pack("<I", zlib.crc32(body, zlib.crc32(head))) + body)
    with pytest.raises(HomeError, match="version 9"):
        read_all(folder)


def test_positions_are_ordered_as_read():
    texts = ["000000000001:0", "000000000001:90", "000000000001:100", "000000000002:0"]
    positions = [Position.parse(text) for text in texts]
    assert positions == sorted(positions)
    assert [str(position) for position in positions] == texts
    with pytest.raises(ValueError, match="invalid literal"):
        Position.parse("nowhere")


def test_an_empty_or_missing_folder_reads_as_empty(tmp_path):
    assert read_all(tmp_path / "none") == []
    assert wal.backlog_bytes(tmp_path / "none") == 0


def test_a_damaged_record_in_a_segment_still_in_use_is_passed_over(folder):
    log = Wal(folder)
    log.write([record(1), record(2)])
    path = wal.segment_path(folder, wal.segments(folder)[0])
    with path.open("r+b") as file:
        file.seek(40)
        file.write(b"\xff")
    reader = WalReader(folder)
    assert [r.received_ns for _, r in reader.read(1 << 30)] == [1]
    log.write([record(3)])
    log.close()
    assert [r.received_ns for _, r in reader.read(1 << 30)] == [3]
    assert [(part.start, part.end, part.torn) for part in reader.damage] == [(35, 70, False)]


@given(st.data())
@settings(max_examples=40, deadline=None)
def test_whatever_is_damaged_the_other_records_are_read(tmp_path_factory, data):
    """Any stretch of bytes overwritten: no record outside of it is lost, and nothing is read that was not written."""
    folder = tmp_path_factory.mktemp("damage") / "wal"
    sizes = data.draw(st.lists(st.integers(0, 60), min_size=1, max_size=8))
    log = Wal(folder)
    ends = [log.write([record(n, size)]).offset for n, size in enumerate(sizes)]
    log.close()
    path = wal.segment_path(folder, wal.segments(folder)[0])
    start = data.draw(st.integers(0, ends[-1] - 1))
    junk = data.draw(st.binary(min_size=1, max_size=ends[-1] - start))
    with path.open("r+b") as file:
        file.seek(start)
        file.write(junk)
    write(folder, 1000)
    found = [r.received_ns for r in read_all(folder)]
    spared = [n for n, end in enumerate(ends) if end <= start or (ends[n - 1] if n else 0) >= start + len(junk)]
    assert set(spared) | {1000} <= set(found)
    assert found == sorted(set(found))
    assert set(found) <= {*range(len(sizes)), 1000}


def test_a_body_that_looks_like_a_record_is_not_read_as_one(folder):
    inner = b"".join(framed(record(7)))
    log = Wal(folder)
    log.write([Record("traces", "protobuf", 1, inner), record(2)])
    log.close()
    path = wal.segment_path(folder, wal.segments(folder)[0])
    data = bytearray(path.read_bytes())
    data[20] ^= 1  # the checksum
    path.write_bytes(data)
    assert [r.received_ns for r in read_all(folder)] == [2]


def test_damaged_bytes_are_kept(folder):
    write(folder, 1)
    (number,) = wal.segments(folder)
    with wal.segment_path(folder, number).open("ab") as file:
        file.write(b"half a rec")
    write(folder, 2)
    reader = WalReader(folder)
    reader.read(1 << 30)
    (part,) = reader.damage
    assert part.torn
    assert wal.quarantine(folder, part).read_bytes() == wal.quarantine(folder, part).read_bytes() == b"half a rec"


def test_a_write_that_cannot_be_finished_leaves_no_segment_behind(folder, monkeypatch):
    """As on a full disk, where every attempt would leave one more."""
    write(folder, 1)
    log = Wal(folder)

    def full(file: int, parts: list[memoryview]) -> int:
        if len(parts[0]) > 10:
            return os.write(file, parts[0][:10])
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "writev", full)
        for _ in range(5):
            with pytest.raises(OSError, match="No space"):
                log.write([record(2)])
    assert len(wal.segments(folder)) == 1
    log.write([record(3)])
    log.close()
    assert [r.received_ns for r in read_all(folder)] == [1, 3]


@pytest.mark.parametrize("at_once", [1, 7, 24, 36, 1000])
def test_a_group_is_whole_however_little_is_written_at_once(folder, monkeypatch, at_once):
    def short(file: int, parts: list[memoryview]) -> int:
        return os.write(file, b"".join(parts)[:at_once])

    monkeypatch.setattr(os, "writev", short)
    group = [record(1), Record("logs", "json", 2, b""), record(3, size=50)]
    log = Wal(folder)
    log.write(group)
    log.close()
    assert read_all(folder) == group


def test_a_group_of_any_number_is_written(folder):
    """More parts than the system takes in one call."""
    write(folder, *range(1500))
    assert [r.received_ns for r in read_all(folder)] == list(range(1500))


def test_the_reserve_of_the_disk_is_left_to_the_lake(folder):
    log = Wal(folder, reserve_bytes=1 << 60)
    with pytest.raises(wal.FullError, match="almost full"):
        log.write([record(1)])
    log.close()
    assert wal.segments(folder) == []


def test_no_more_is_taken_while_the_oldest_record_waits_too_long(folder):
    now = [0.0]
    log = Wal(folder, max_age_s=60.0, monotonic=lambda: now[0])

    async def run() -> None:
        position = await log.append(record(1))
        now[0] = 1.0
        assert log.age_s() == 0.0
        now[0] = 61.5
        assert log.age_s() == 60.5
        with pytest.raises(wal.FullError, match="behind"):
            await log.append(record(2))
        wal.release(folder, position)
        now[0] = 62.0
        assert log.age_s() == 0.0
        await log.append(record(3))

    asyncio.run(run())
    log.close()
    assert [r.received_ns for r in read_all(folder)] == [1, 3]


@pytest.mark.parametrize("leap", [0.0, 4_102_444_800.0])
def test_a_leap_of_the_clock_keeps_segments_in_order(folder, leap):
    now = [1_790_000_000.0]
    reader = WalReader(folder)
    found = []
    for n, time_s in enumerate((now[0], leap, now[0] + 60)):
        log = Wal(folder, clock=lambda time_s=time_s: time_s)
        log.write([record(n)])
        log.close()
        found += [r.received_ns for _, r in reader.read(1 << 30)]
        wal.release(folder, reader.position)
    assert found == [0, 1, 2]
