"""The lake: one writer, any number of readers, transactions, free SQL that cannot write."""

from __future__ import annotations

import multiprocessing
import shutil
import threading
import time
from collections.abc import Iterator
from datetime import date
from pathlib import Path

import pyarrow as pa
import pytest

from ingest import lake as lakes
from ingest.errors import HomeError, UsageError, WorkError
from ingest.lake import Lake
from ingest.lake_files import data_folder, write_file


@pytest.fixture(scope="module")
def empty(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("empty") / "home"
    Lake.open(home, write=True).close()
    return home


@pytest.fixture
def home(empty: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(empty, tmp_path / "it's home"))


@pytest.fixture
def writer(home: Path) -> Iterator[Lake]:
    with Lake.open(home, write=True) as lake:
        yield lake


@pytest.fixture(scope="module")
def reader(empty: Path) -> Iterator[Lake]:
    with Lake.open(empty) as lake:
        yield lake


def calls(lake: Lake, *rows: dict[str, object]) -> dict[str, pa.Table]:
    return {"settled_calls": pa.Table.from_pylist(list(rows), schema=lake.schema("settled_calls"))}


def costs(lake: Lake) -> list[tuple[object, ...]]:
    return lake.sql("select trace_id, cost_usd from calls order by all").rows()


def test_reader_sees_each_write_while_the_writer_stays_open(home: Path, writer: Lake) -> None:
    with Lake.open(home) as reader:
        assert costs(reader) == []
        before = reader.snapshot()
        writer.write(calls(writer, {"trace_id": "a", "cost_usd": 1.0}))
        assert costs(reader) == [("a", 1.0)]
        assert reader.snapshot() > before


def test_reader_in_another_thread_never_fails_or_sees_half_a_write(home: Path, writer: Lake) -> None:
    seen: list[set[int]] = []
    failures: list[BaseException] = []
    done = threading.Event()

    def read() -> None:
        try:
            with Lake.open(home) as reader:
                while not done.is_set():
                    found = reader.sql(
                        "select (select count(*) from calls) as calls, (select count(*) from span_roles) as roles"
                    ).row(0)
                    seen.append({found[0] - found[1]})
        except BaseException as problem:
            failures.append(problem)

    thread = threading.Thread(target=read)
    thread.start()
    roles = writer.schema("span_roles")
    number, until = 0, time.monotonic() + 60
    while number < 12 or (len(seen) < 3 and not failures and time.monotonic() < until):
        rows = [{"trace_id": str(number), "span_id": str(i), "role": "own"} for i in range(150)]
        both = calls(writer, *({"trace_id": row["trace_id"], "span_id": row["span_id"]} for row in rows))
        writer.write({**both, "span_roles": pa.Table.from_pylist(rows, schema=roles)}, replace_traces=[str(number - 1)])
        number += 1
    done.set()
    thread.join()
    assert not failures
    assert len(seen) >= 3
    assert all(difference == {0} for difference in seen)


def test_replaced_traces_lose_their_old_rows_and_no_others(writer: Lake) -> None:
    writer.write(calls(writer, {"trace_id": "a", "cost_usd": 1.0}, {"trace_id": "b", "cost_usd": 2.0}))
    writer.write(calls(writer, {"trace_id": "a", "cost_usd": 3.0}), replace_traces=["a"])
    assert costs(writer) == [("a", 3.0), ("b", 2.0)]


def test_a_failed_write_changes_nothing(writer: Lake) -> None:
    writer.write(calls(writer, {"trace_id": "a", "cost_usd": 1.0}))
    wrong = pa.table({"nowhere": ["x"]})
    with pytest.raises(WorkError, match="cannot be written"):
        writer.write({**calls(writer, {"trace_id": "a", "cost_usd": 2.0}), "span_roles": wrong}, replace_traces=["a"])
    assert costs(writer) == [("a", 1.0)]


@pytest.mark.parametrize("rows", [1, 500])
def test_compaction_keeps_every_row_and_old_snapshots(home: Path, writer: Lake, rows: int) -> None:
    for number in range(6):
        writer.write(calls(writer, *({"trace_id": str(number), "cost_usd": float(i)} for i in range(rows))))
    writer.write({}, replace_traces=["0"])
    pinned, before = writer.snapshot(), costs(writer)
    writer.compact()
    assert costs(writer) == before
    writer.write({}, replace_traces=["1"])
    with Lake.open(home, snapshot=pinned) as reader:
        assert costs(reader) == before
    assert len(costs(writer)) == 4 * rows


def test_rows_survive_closing_and_opening(home: Path) -> None:
    with Lake.open(home, write=True) as writer:
        writer.write(calls(writer, {"trace_id": "a", "start_ns": 2**62, "stream": True, "ttft_s": 0.1}))
    with Lake.open(home, write=True), Lake.open(home) as reader:
        assert reader.sql("select start_ns, stream, ttft_s from calls").rows() == [(2**62, True, 0.1)]


@pytest.mark.parametrize("table", ["settled_calls", "span_log"])
@pytest.mark.parametrize("rows", [1, 101])
def test_odd_values_come_back_as_they_went_in(writer: Lake, table: str, rows: int) -> None:
    """One row is kept in the catalogue of the first table; 101 rows, and every row with texts, in a file."""
    names = ["a\x00b", "it's", 'quo"te', "\\", "new\nline", "😀", "", None, "NULL", "[a, b]", "{'x': 1}", "x'00'"]
    bounds = {"start_ns": 2**63 - 1, "end_ns": -(2**63), "reported_cost_usd": 0.1 + 0.2, "ttft_s": 5e-324}
    for name in names:
        sent = [{"trace_id": "a", "name": name, **bounds}] * rows
        writer.write({table: pa.Table.from_pylist(sent, schema=writer.schema(table))})
    query = f"select name, start_ns, end_ns, reported_cost_usd, ttft_s from {table}"
    expected = {(name, *bounds.values()) for name in names}
    assert set(writer.sql(query).rows()) == expected
    writer.compact()
    assert set(writer.sql(query).rows()) == expected
    assert len(writer.sql(query)) == len(names) * rows


def test_a_moved_home_is_still_readable(home: Path, tmp_path: Path) -> None:
    with Lake.open(home, write=True) as writer:
        writer.write(calls(writer, *({"trace_id": str(i), "cost_usd": 1.0} for i in range(200))))
    home.rename(tmp_path / "moved")
    with Lake.open(tmp_path / "moved") as reader:
        assert len(costs(reader)) == 200


def test_a_commit_is_of_the_day_when_its_files_were_written(home: Path, writer: Lake) -> None:
    """Retention drops a day by the commits that it knows of it: none may be on another day than its rows."""
    day, schema = date(2026, 1, 1), writer.schema("span_log")
    spans = pa.Table.from_pylist([{"trace_id": "a", "batch": 1}], schema=schema)
    file = write_file(data_folder(home / "lake") / "span_log", spans, schema, day)
    batch = pa.Table.from_pylist([{"batch": 1}], schema=writer.schema("ingest_log"))
    writer.write({"ingest_log": batch}, files={"span_log": file})
    found = writer.sql("select day, 'spans' as what from span_log union all select day, 'batch' from ingest_log")
    assert sorted(found.rows()) == [(day, "batch"), (day, "spans")]


def test_a_home_may_look_like_a_partition(tmp_path: Path) -> None:
    with Lake.open(tmp_path / "trace_id=b" / "home", write=True) as writer:
        writer.write(calls(writer, *({"trace_id": "a", "cost_usd": 1.0} for _ in range(200))))
        assert costs(writer) == [("a", 1.0)] * 200


def test_a_new_home_gets_a_lake(tmp_path: Path) -> None:
    with Lake.open(tmp_path / "new", write=True) as writer:
        assert writer.query("counts").row(0) == (0, 0, 0, 0, 0)


def test_reading_without_a_lake_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(HomeError):
        Lake.open(tmp_path)
    (tmp_path / "home.json").write_text('{"format": 1}')
    with pytest.raises(HomeError, match="no lake") as caught:
        Lake.open(tmp_path)
    assert "collect" in caught.value.hint


def test_a_second_writer_is_refused_after_a_while(home: Path, writer: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lakes, "PATIENCE_S", 0.2)
    with pytest.raises(HomeError, match="another process writes"):
        Lake.open(home, write=True)


def test_the_lock_is_free_after_closing(home: Path) -> None:
    Lake.open(home, write=True).close()
    with Lake.open(home, write=True) as again:
        assert again.snapshot() >= 0


def _hold(home: str, ready: object) -> None:
    with Lake.open(Path(home), write=True):
        ready.set()  # type: ignore[attr-defined]
        threading.Event().wait()


def test_a_killed_writer_leaves_no_lock(home: Path) -> None:
    spawn = multiprocessing.get_context("spawn")
    ready = spawn.Event()
    process = spawn.Process(target=_hold, args=(str(home), ready))
    process.start()
    assert ready.wait(30)
    process.kill()
    process.join()
    process.close()
    Lake.open(home, write=True).close()


def test_a_lake_of_a_newer_version_is_refused(home: Path) -> None:
    with Lake.open(home, write=True) as writer:
        writer._connection.execute("insert into schema_migrations values (999, 'later')")
    for write in (True, False):
        with pytest.raises(HomeError, match="newer version"):
            Lake.open(home, write=write)


@pytest.mark.parametrize(
    "statement",
    [
        "insert into settled_calls (trace_id) values ('x')",
        "delete from settled_calls",
        "drop view calls",
        "create table t (x int)",
        "copy calls to 'out.csv'",
        "explain analyze copy calls to 'out.csv'",
        "attach 'other.db'",
        "set threads = 1",
        "select * from ducklake_delete_orphaned_files('lake', cleanup_all => true)",
        "call ducklake_merge_adjacent_files('lake')",
        "select 1; select 2",
        "",
        "select nope from calls",
        "select * from read_csv('/etc/passwd')",
        "selec 1",
    ],
)
def test_free_sql_cannot_write_or_reach_outside(
    reader: Lake, statement: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError) as caught:
        reader.sql(statement)
    assert caught.value.message
    assert not list(tmp_path.iterdir())


def test_free_sql_error_carries_duckdbs_message(reader: Lake) -> None:
    with pytest.raises(UsageError, match='column "modell" not found'):
        reader.sql("select modell from calls")


@pytest.mark.parametrize("statement", ["from calls", "show tables", "describe calls", "explain select 1", "values (1)"])
def test_free_sql_may_look_at_everything(reader: Lake, statement: str) -> None:
    assert reader.sql(statement).width > 0
