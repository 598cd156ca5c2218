"""Faults from outside: a lake that cannot be written, a damaged log, a leaping clock. Nothing is lost, and the
converter goes on by itself."""

from __future__ import annotations

import random
import resource
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from otlp_traces import SECOND, START, chat, span, traces_body

from ingest import converter, wal
from ingest import lake as lakes
from ingest.converter import Converter
from ingest.errors import WorkError
from ingest.lake import Lake
from ingest.options import ConverterOptions

OPTIONS = ConverterOptions(quiet_s=0.0, commit_s=0.0)
HOLD = """
import sqlite3, sys
catalogue = sqlite3.connect(sys.argv[1], isolation_level=None)
catalogue.execute("begin immediate")
print("held", flush=True)
sys.stdin.readline()
"""
"""A process that holds the catalogue's write lock: within one process two copies of SQLite do not see each other."""


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("made") / "home"
    Lake.open(home, write=True).close()
    return home


@pytest.fixture
def home(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made, tmp_path / "home"))


def record(number: int, received_ns: int = START, calls: int = 1, text: str = "") -> wal.Record:
    spans = [span(i, chat(gen_ai__input__messages=text), trace=number) for i in range(1, calls + 1)]
    return wal.Record("traces", "json", received_ns, traces_body(spans))


def append(home: Path, *records: wal.Record) -> None:
    log = wal.Wal(home / "wal")
    log.write(records)
    log.close()


def stored(home: Path) -> tuple[int, int]:
    with Lake.open(home) as lake:
        found = lake.query("counts").row(0, named=True)
    return found["spans"], found["calls"]


class Running:
    """A converter in a thread, and what it said."""

    def __init__(self, home: Path) -> None:
        self.said: list[object] = []
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(home,))

    def _run(self, home: Path) -> None:
        converter.run(home, OPTIONS, self._stopping.is_set, lambda state: self.said.append(state.get("problem")))

    def __enter__(self) -> Running:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join()

    def wait_for(self, what: Callable[[], bool]) -> None:
        until = time.monotonic() + 60
        while not what():
            assert time.monotonic() < until, self.said
            time.sleep(0.02)


def test_a_locked_lake_is_waited_for(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lakes, "PATIENCE_S", 0.3)
    monkeypatch.setattr(converter, "RETRY_S", 0.1)
    with Running(home) as running:
        running.wait_for(lambda: running.said == [None])
        catalogue = str(home / "lake" / "catalog.sqlite")
        with subprocess.Popen([sys.executable, "-c", HOLD, catalogue], stdin=-1, stdout=-1) as holder:
            assert holder.stdout is not None
            holder.stdout.readline()
            append(home, record(1))
            running.wait_for(lambda: any(running.said))
            holder.communicate(b"go")
        running.wait_for(lambda: running.said[-1] is None)
    assert stored(home) == (1, 1)


@pytest.fixture
def small_files() -> Iterator[Callable[[int], None]]:
    """Limits the size of the files that this process may write, as a full disk does."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    yield lambda size: resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_full_disk_is_waited_for(
    home: Path, monkeypatch: pytest.MonkeyPatch, small_files: Callable[[int], None]
) -> None:
    monkeypatch.setattr(converter, "RETRY_S", 0.1)
    noise = random.Random(1).randbytes(150_000).hex()  # compresses by half at most
    write, full, turn = Lake.write, [True], threading.Lock()

    def write_to_a_full_disk(*given: Any, **named: Any) -> None:
        with turn:  # the limit is the process's: a write that ends would lift it for one beside it
            small_files(100_000 if full[0] else resource.RLIM_INFINITY)
            try:
                write(*given, **named)
            finally:
                small_files(resource.RLIM_INFINITY)

    monkeypatch.setattr(Lake, "write", write_to_a_full_disk)
    append(home, record(1, text=noise), record(2))
    with Running(home) as running:
        running.wait_for(lambda: any(running.said))
        assert stored(home) == (0, 0)
        full[0] = False
        running.wait_for(lambda: stored(home)[1] == 2)
    assert stored(home) == (2, 2)


def test_a_lake_that_stays_unwritable_is_said_when_it_is_time_to_stop(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise WorkError("no")

    append(home, record(1))
    with monkeypatch.context() as patch:
        patch.setattr(Lake, "write", fail)
        with pytest.raises(WorkError):
            converter.run(home, OPTIONS, lambda: True)
    converter.run(home, OPTIONS, lambda: True)
    assert stored(home) == (1, 1)


def test_a_damaged_record_costs_itself_only_and_shows(home: Path) -> None:
    append(home, *(record(n) for n in (1, 2, 3)))
    file = wal.segment_path(home / "wal", wal.segments(home / "wal")[0])
    size = file.stat().st_size // 3
    with file.open("r+b") as segment:
        segment.seek(size + 100)
        segment.write(b"\xff\xff")
    converter.run(home, OPTIONS, lambda: True)
    assert stored(home) == (2, 2)
    with Lake.open(home) as lake:
        rejected = lake.sql("select rejected, problem from ingest_log where rejected > 0").rows()
    assert len(rejected) == 1
    assert "damaged" in str(rejected[0][1])
    assert next((home / "wal" / "damaged").iterdir()).stat().st_size == size


@pytest.mark.parametrize("leap_ns", [0, 4_102_444_800 * SECOND])
def test_a_clock_that_leaps_delays_and_loses_nothing(home: Path, leap_ns: int) -> None:
    """Received at an odd time; the clock that decides on quiet is right again, or still odd."""
    seconds = [0.0]
    rounds = iter(range(6))
    append(home, record(1, START + 3600 * SECOND), record(2, leap_ns))
    with Lake.open(home, write=True, clock=lambda: leap_ns) as lake:
        worker = Converter(lake, home / "wal", replace(OPTIONS, quiet_s=2.0), lambda: START, lambda: seconds[0])

        def stop() -> bool:
            seconds[0] += 1.0
            return next(rounds) == 5 or lake.query("counts").row(0, named=True)["calls"] == 2

        worker.run(stop)
        assert seconds[0] < 6
    assert stored(home) == (2, 2)
