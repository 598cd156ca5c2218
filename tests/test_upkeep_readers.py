"""Upkeep under readers in processes of their own: no query fails, none sees less than the one before."""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Sequence
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from ingest import upkeep
from ingest.lake import Lake
from ingest.upkeep import Retention, Upkeep

READERS = 2
ROUNDS = 4
CALLS = 150  # a commit; more than the catalogue takes, so that each leaves files
QUESTION = "select service, count(*) as calls, count(input_text) as texts from calls group by service"


def read(home: str, asked: Any, done: Event, results: Any) -> None:
    """Asks until it is told to stop; puts the counts it got, or its error."""
    seen: list[tuple[int, int]] = []
    try:
        with Lake.open(Path(home)) as lake:
            while not done.is_set():
                found = lake.sql(QUESTION)
                seen.append((int(found["calls"].sum()), int(found["texts"].sum())))
                asked.value += 1
        results.put(seen)
    except BaseException as problem:
        results.put(f"after {len(seen)} queries: {problem!r}")


def commit(lake: Lake, number: int) -> None:
    rows = [
        {
            "trace_id": str(number),
            "span_id": str(i),
            "content_span_id": str(i),
            "service": f"service {i % 3}",
            "input_text": "Hi",
            "batch": number,
        }
        for i in range(CALLS)
    ]
    tables = {}
    for name in ("settled_calls", "content_log"):
        schema = lake.schema(name)
        tables[name] = pa.Table.from_pylist(
            [{k: v for k, v in row.items() if k in schema.names} for row in rows], schema
        )
    lake.write(tables)


def wait_for_queries(asked: Sequence[Any], number: int, results: Any) -> None:
    """Until each reader has asked so many times more: what it was in the middle of is over."""
    goals = [counter.value + number for counter in asked]
    until = time.monotonic() + 60
    while any(counter.value < goal for counter, goal in zip(asked, goals, strict=True)):
        assert results.empty(), results.get()
        assert time.monotonic() < until, [counter.value for counter in asked]
        time.sleep(0.005)


def test_readers_notice_no_upkeep(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (
        "SNAPSHOTS",
        "MOST_SNAPSHOTS",
    ):  # more than pass by in a query: one of a forgotten snapshot finds nothing
        monkeypatch.setattr(upkeep, name, 30)
    home, seconds = tmp_path / "home", [0.0]
    spawn = multiprocessing.get_context("spawn")
    done, results = spawn.Event(), spawn.Queue()
    asked = [spawn.Value("i", 0) for _ in range(READERS)]
    with Lake.open(home, write=True) as lake:
        commit(lake, 0)
        keep = Upkeep(lake, Retention(), monotonic=lambda: seconds[0])
        readers = [spawn.Process(target=read, args=(str(home), counter, done, results)) for counter in asked]
        for reader in readers:
            reader.start()
        try:
            wait_for_queries(asked, 1, results)
            for number in range(ROUNDS):
                commit(lake, 2 * number + 1)
                commit(lake, 2 * number + 2)
                keep.committed()
                seconds[0] += upkeep.HOUR_S if number % 2 else upkeep.ROUND_S
                keep.work()
                wait_for_queries(asked, 2, results)  # upkeep leaves a query five minutes for the files it began with
            kept = lake.sql("select count(*) from ducklake_snapshots('lake')").item()
        finally:
            done.set()
            for reader in readers:
                reader.join(timeout=60)
        found = [results.get(timeout=60) for _ in readers]
    total = (2 * ROUNDS + 1) * CALLS
    for seen in found:
        assert not isinstance(seen, str), seen
        assert [calls for calls, _ in seen] == sorted(calls for calls, _ in seen)
        assert {calls - texts for calls, texts in seen} == {0}
        assert seen[-1] == (total, total)
    assert kept <= 40
