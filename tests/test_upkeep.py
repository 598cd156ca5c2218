"""Upkeep: a busy lake gathers neither files nor snapshots, old days go, and no clock makes anything go too early."""

from __future__ import annotations

import shutil
import statistics
import time
from collections.abc import Iterator
from datetime import date, timedelta
from pathlib import Path

import pyarrow as pa
import pytest

from ingest import upkeep
from ingest.errors import UsageError
from ingest.lake import Lake
from ingest.upkeep import Calendar, Retention, StoredDay, Upkeep, expired

DAY_NS = 86_400_000_000_000
TODAY = date(2026, 6, 30)


def days(*found: tuple[date | None, int, int]) -> list[StoredDay]:
    return [StoredDay(*day) for day in found]


def test_days_older_than_what_is_kept_expire() -> None:
    stored = days(*((TODAY - timedelta(n), 100 - n, 100 - n) for n in range(5)))
    assert expired(stored, TODAY, 2) == [TODAY - timedelta(3), TODAY - timedelta(4)]


@pytest.mark.parametrize("wrong", [date(1970, 1, 1), date(2100, 1, 1), None])
def test_a_day_noted_by_a_wrong_clock_goes_with_its_neighbours(wrong: date | None) -> None:
    stored = days((TODAY - timedelta(9), 1, 10), (wrong, 11, 12), (TODAY - timedelta(8), 13, 20))
    assert expired(stored, TODAY, 9) == []
    assert set(expired(stored, TODAY, 8)) == {wrong, TODAY - timedelta(9)}


def test_nothing_expires_by_a_clock_of_1970() -> None:
    assert expired(days((TODAY, 1, 2)), date(1970, 1, 1), 1) == []


def test_a_leap_of_the_clock_is_believed_after_a_day_of_it() -> None:
    hour = 3600.0
    calendar = Calendar(TODAY)
    assert calendar.today(TODAY + timedelta(1), 0.0) == TODAY + timedelta(1)
    later = date(2100, 1, 1)
    assert calendar.today(later, hour) is None
    assert calendar.today(later, 24 * hour) is None
    assert calendar.today(TODAY + timedelta(1), 24.5 * hour) == TODAY + timedelta(1)
    assert calendar.today(later, 26 * hour) is None
    assert calendar.today(later, 50 * hour) == later


def test_a_first_start_believes_the_clock() -> None:
    assert Calendar(None).today(TODAY, 0.0) == TODAY


class Clock:
    def __init__(self) -> None:
        self.ns = 20_000 * DAY_NS
        self.seconds = 0.0

    def pass_days(self, number: int) -> None:
        self.ns += number * DAY_NS
        self.seconds += number * 86_400.0


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("made") / "home"
    Lake.open(home, write=True).close()
    return home


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def lake(made: Path, tmp_path: Path, clock: Clock) -> Iterator[Lake]:

    home = Path(shutil.copytree(made, tmp_path / "home"))
    with Lake.open(home, write=True, clock=lambda: clock.ns) as lake:
        yield lake


def commit(lake: Lake, number: int, rows: int = 120) -> None:
    """One commit of the converter with spans and texts, and their settling."""

    def table(name: str, row: dict[str, object], count: int = rows) -> pa.Table:
        return pa.Table.from_pylist([{**row, "span_id": str(i)} for i in range(count)], schema=lake.schema(name))

    trace = {"trace_id": str(number), "batch": number}
    lake.write(
        {
            "span_log": table("span_log", trace),
            "content_log": table("content_log", {**trace, "input_text": "Hi"}),
            "ingest_log": pa.Table.from_pylist([{"batch": number}], schema=lake.schema("ingest_log")),
            "settled_calls": table("settled_calls", {"trace_id": str(number)}),
            "settled_traces": pa.Table.from_pylist([trace], schema=lake.schema("settled_traces")),
        }
    )


def held(lake: Lake) -> dict[str, int]:
    counts = lake.sql(
        "select (select count(*) from span_log) as spans, (select count(*) from content_log) as texts, "
        "(select count(*) from settled_calls) as calls, (select count(*) from ingest_log) as batches"
    )
    return counts.row(0, named=True)


FOR_EVER = Retention()


def keeper(lake: Lake, clock: Clock, retention: Retention = FOR_EVER) -> Upkeep:
    return Upkeep(lake, retention, lambda: clock.ns, lambda: clock.seconds)


def test_days_out_of_retention_are_dropped_with_their_files_and_texts_before_facts(lake: Lake, clock: Clock) -> None:
    keep = keeper(lake, clock, Retention(facts_days=3, texts_days=1))
    for number in range(1, 6):
        commit(lake, number)
        clock.pass_days(1)
        keep.drop_old_days()
    assert held(lake) == {"spans": 360, "texts": 120, "calls": 360, "batches": 3}
    assert lake.query("last_batch").row(0)[0] == 5


def test_the_place_in_the_log_outlives_all_retention(lake: Lake, clock: Clock) -> None:
    commit(lake, 7)
    keep = keeper(lake, clock, Retention(facts_days=1))
    for _ in range(3):
        clock.pass_days(1)
        keep.drop_old_days()
    assert held(lake) == {"spans": 0, "texts": 0, "calls": 0, "batches": 1}
    assert lake.query("last_batch").row(0)[0] == 7


def test_a_clock_that_leaps_ahead_drops_nothing(lake: Lake, clock: Clock) -> None:
    commit(lake, 1)
    keep = keeper(lake, clock, Retention(facts_days=3))
    clock.ns += 27_000 * DAY_NS
    commit(lake, 2)
    keep.drop_old_days()
    keeper(lake, clock, Retention(facts_days=30_000)).drop_old_days()
    assert held(lake)["spans"] == 240
    clock.ns -= 27_000 * DAY_NS
    clock.pass_days(1)
    keep.drop_old_days()
    assert held(lake)["spans"] == 240


def test_many_commits_leave_few_files_and_snapshots(
    lake: Lake, clock: Clock, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(upkeep, "ROUND_S", 5.5)
    monkeypatch.setattr(upkeep, "SNAPSHOTS", 5)
    monkeypatch.setattr(upkeep, "MOST_SNAPSHOTS", 10)
    keep = keeper(lake, clock)
    for number in range(1, 13):
        commit(lake, number)
        keep.committed()
        clock.seconds += 1.0
        keep.work()
    assert lake.files() <= 4
    files = sum(1 for _ in (tmp_path / "home/lake/data").rglob("*.parquet"))
    assert files <= 50  # without upkeep 60 and more: each commit leaves five
    assert lake.snapshot() - oldest(lake) <= 12
    assert held(lake) == {"spans": 1440, "texts": 1440, "calls": 1440, "batches": 12}


def oldest(lake: Lake) -> int:
    return lake.sql("select min(snapshot_id) from ducklake_snapshots('lake')").item()


def test_a_pinned_snapshot_stays_readable_and_goes_once_it_is_unpinned(lake: Lake, tmp_path: Path) -> None:
    home = tmp_path / "home"
    commit(lake, 1)
    with Lake.open(home) as reader:
        pinned = reader.pin("run-1")
    commit(lake, 2)
    lake.write({}, replace_traces=["1"])
    lake.compact()
    lake.expire(keep=1, keep_s=0.0, at_most=1)
    lake.clean()
    with Lake.open(home, snapshot=pinned) as reader:
        assert held(reader) == {"spans": 120, "texts": 120, "calls": 120, "batches": 1}
    lake.unpin("run-1")
    lake.unpin("run-1")
    assert lake.expire(keep=1, keep_s=0.0, at_most=1) == 1
    assert held(lake)["spans"] == 240


def test_a_name_that_would_leave_the_folder_cannot_be_pinned(lake: Lake) -> None:
    for name in ("../x", "", ".hidden", "a/b"):
        with pytest.raises(UsageError):
            lake.pin(name)


def test_files_that_a_killed_writer_left_are_swept_and_do_no_harm(lake: Lake, tmp_path: Path) -> None:
    commit(lake, 1)
    folder = tmp_path / "home" / "lake" / "data" / "main" / "span_log"
    whole = next(folder.rglob("*.parquet"))
    torn = whole.with_name("ducklake-torn.parquet")
    torn.write_bytes(whole.read_bytes()[:-20])
    commit(lake, 2)
    lake.compact()
    assert held(lake)["spans"] == 240
    assert lake.sweep(3600.0) == 0
    assert torn.exists()
    lake.sweep(0.0)
    assert not torn.exists()
    assert held(lake)["spans"] == 240


def test_a_reader_in_the_middle_of_upkeep_reads_on(lake: Lake, clock: Clock, tmp_path: Path) -> None:
    with Lake.open(tmp_path / "home") as reader:
        seen = []
        for number in range(1, 5):
            commit(lake, number)
            seen.append(held(reader)["spans"])
            lake.compact()
            lake.expire(keep=1, keep_s=0.0, at_most=1)
            lake.sweep(3600.0)
            seen.append(held(reader)["spans"])
    assert seen == [120, 120, 240, 240, 360, 360, 480, 480]


def test_upkeep_that_fails_stops_nothing(lake: Lake, clock: Clock, tmp_path: Path) -> None:
    commit(lake, 1)
    pins = tmp_path / "home" / "lake" / "pins"
    pins.mkdir()
    (pins / "broken").write_text("not a number")
    keep = keeper(lake, clock)
    clock.seconds += 10_000
    keep.work()
    assert oldest(lake) < lake.snapshot()
    assert held(lake)["spans"] == 120


@pytest.mark.slow
@pytest.mark.parametrize("every_s", [40, 1])
def test_an_hour_of_commits_leaves_a_small_lake_and_slows_none(
    lake: Lake, clock: Clock, tmp_path: Path, every_s: int
) -> None:
    """Snapshots of the last hour are kept, so this is as many as there ever are."""
    keep = keeper(lake, clock)
    number = 3600 // every_s
    spent: list[float] = []
    files: list[int] = []
    for done in range(1, number + 1):
        began = time.process_time()
        commit(lake, done, rows=5)
        spent.append(time.process_time() - began)
        keep.committed()
        clock.seconds += every_s
        keep.work()
        files.append(lake.files())
    disk = sum(1 for _ in (tmp_path / "home/lake/data").rglob("*.parquet"))
    catalogue_mb = (tmp_path / "home/lake/catalog.sqlite").stat().st_size / 1e6
    tenth = number // 10
    early, late = statistics.median(spent[tenth : 2 * tenth]), statistics.median(spent[-tenth:])
    snapshots = lake.snapshot() - oldest(lake)
    print(f"\n{max(files)} files a table, {disk} on disk, {catalogue_mb:.1f} MB, {snapshots} snapshots")
    print(f"{early:.3f} s a commit early, {late:.3f} s late")
    assert held(lake) == {"spans": 5 * number, "texts": 5 * number, "calls": 5 * number, "batches": number}
    assert max(files) <= upkeep.ROUND_S / every_s + 20  # what comes between two rounds, and what they joined
    assert disk <= 3 * 2 * upkeep.ROUND_S / every_s + 100  # of two tables; joined ones are there for a round more
    assert snapshots <= number + 500
    assert catalogue_mb < 50
    assert late < 2 * early
