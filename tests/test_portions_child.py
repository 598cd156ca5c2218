"""The log read in a process of its own gives what it gives in the converter's, and its death loses nothing."""

from __future__ import annotations

import multiprocessing
import shutil
import threading
import time
from pathlib import Path

import pytest
from otlp_traces import SECOND, START, agent, chat, log, logs_body, span, trace_id, traces_body

from ingest import converter, portions, wal
from ingest.lake import Lake
from ingest.options import ConverterOptions
from ingest.portions import PortionReader
from ingest.pricing import Price
from ingest.wal import Position

OPTIONS = ConverterOptions(quiet_s=0.0, commit_s=0.0, prices=(Price("gpt-4o-mini", 1.0, 2.0),))
PROMPT = '[{"role":"user","content":"Hi"}]'


def records(number: int) -> list[wal.Record]:
    """A trace with an agent, a call and an event of the call's."""
    here = trace_id(number)
    call = span(2, chat(gen_ai__input__messages=PROMPT), trace=number, parent=1)
    spans = [span(1, agent("support"), trace=number), call]
    told = log("gen_ai.choice", {"message": "Hello"}, trace=number, span=2)
    return [
        wal.Record("traces", "json", START + number * SECOND, traces_body(spans)),
        wal.Record("logs", "json", START + number * SECOND, logs_body([told])),
        wal.Record("scores", "json", START, b'[{"name": "solved", "value": 1, "trace_id": "%s"}]' % here.encode()),
    ]


def append(home: Path, *numbers: int) -> None:
    log = wal.Wal(home / "wal")
    log.write([record for number in numbers for record in records(number)])
    log.close()


def stored(home: Path) -> dict[str, list[tuple[object, ...]]]:
    with Lake.open(home) as lake:
        return {
            table: sorted(map(repr, lake.sql(f"select * exclude (day) from {table}").rows()))
            for table in ("span_log", "content_log", "event_log", "ingest_log", "settled_calls", "span_roles")
        }


def test_a_process_of_its_own_stores_the_same(tmp_path: Path) -> None:
    homes = tmp_path / "apart", tmp_path / "together"
    append(homes[0], 1, 2, 3)
    shutil.copytree(*homes)
    for home in homes:
        converter.run(home, OPTIONS, lambda: True, apart=home == homes[0])
    assert stored(homes[0]) == stored(homes[1])


def test_a_dead_reader_is_replaced_and_nothing_is_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(converter, "RETRY_S", 0.05)
    stopping = threading.Event()
    said: list[object] = []
    append(tmp_path, 1)
    running = threading.Thread(
        target=converter.run,
        args=(tmp_path, OPTIONS, stopping.is_set, lambda state: said.append(state.get("problem"))),
        kwargs={"apart": True},
    )
    running.start()
    try:
        wait_for(lambda: wal.backlog_bytes(tmp_path / "wal") == 0)
        for child in multiprocessing.active_children():
            child.kill()
        append(tmp_path, 2)
        wait_for(lambda: wal.backlog_bytes(tmp_path / "wal") == 0)
    finally:
        stopping.set()
        running.join()
    assert any("reads the write-ahead log ended" in str(problem) for problem in said)
    assert {name: len(rows) for name, rows in stored(tmp_path).items()} == {
        "span_log": 4,
        "content_log": 4,
        "event_log": 2,
        "ingest_log": 2,
        "settled_calls": 4,
        "span_roles": 4,
    }


def test_a_portion_that_was_begun_before_the_end_is_not_the_last(tmp_path: Path) -> None:
    """Records that arrive while a portion waits to be stored are stored before the converter ends."""
    append(tmp_path, 1)
    with Lake.open(tmp_path, write=True) as lake:
        worker = converter.Converter(lake, tmp_path / "wal", OPTIONS)
        source = Ahead(tmp_path)
        worker._portions = source
        worker.run(lambda: True)
    assert len(stored(tmp_path)["settled_calls"]) == 4


class Ahead:
    """Has read the next portion, an empty one, before it is asked; meanwhile more arrives."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self._reader = PortionReader(home / "wal", Position.START, 0)
        self._ready: list[portions.Portion] = []
        self.idle = True

    def read(self) -> portions.Portion:
        if self._ready:
            self.idle = True
            return self._ready.pop()
        found = self._reader.read()
        if found.number == 1 and found.position:
            self._ready = [self._reader.read()]
            self.idle = False
            append(self._home, 2)
        return found


def wait_for(done: object, timeout_s: float = 120) -> None:
    until = time.monotonic() + timeout_s
    while not done():  # type: ignore[operator]
        assert time.monotonic() < until
        time.sleep(0.02)
