"""kill -9 of collector and converter at random moments, clients that send again: nothing lost, nothing twice."""

from __future__ import annotations

import json
import os
import random
import signal
import threading
import time
from collections import Counter
from pathlib import Path

import httpx
import pytest
from collector_process import CollectorProcess
from otlp_traces import chat, span, traces_body

from ingest.lake import Lake

CALLS = 3  # a request


class Sender(threading.Thread):
    """Sends traces `first`, `first + step`, ... to whichever port serves; each until it is acknowledged."""

    def __init__(self, home: Path, first: int, step: int) -> None:
        super().__init__()
        self.acknowledged: list[int] = []
        self._home, self._next, self._step = home, first, step
        self.stopping = threading.Event()

    def run(self) -> None:
        while not self.stopping.is_set():
            body = traces_body(span(i, chat(), trace=self._next) for i in range(1, CALLS + 1))
            try:
                port = json.loads((self._home / "collector.json").read_text())["port"]
                sent = httpx.post(
                    f"http://127.0.0.1:{port}/v1/traces",
                    content=body,
                    headers={"content-type": "application/json"},
                    timeout=10,
                )
            except (OSError, ValueError, httpx.TransportError):
                time.sleep(0.02)
                continue
            if sent.status_code == 200:
                self.acknowledged.append(self._next)
                self._next += self._step


def assert_kills_lose_and_double_nothing(home: Path, kills: int, seed: int) -> None:
    chance = random.Random(seed)
    home.mkdir()
    senders = [Sender(home, first, 3) for first in (1, 2, 3)]
    for sender in senders:
        sender.start()
    left = kills
    try:
        while left:
            with CollectorProcess(home, store=True) as running:
                while left:
                    time.sleep(chance.uniform(0.0, 1.5))
                    left -= 1
                    converter = running.health()["converter"]["pid"] if chance.random() < 0.5 else None
                    if converter is None:  # the collector itself, or its converter is between two lives
                        os.kill(running.process.pid, signal.SIGKILL)
                        running.process.wait()
                        break
                    os.kill(converter, signal.SIGKILL)
        with CollectorProcess(home, store=True) as last:
            time.sleep(0.5)
            for sender in senders:
                sender.stopping.set()
                sender.join()
            assert last.stop()[0] == 0
    finally:
        for sender in senders:
            sender.stopping.set()
            sender.join()
    acknowledged = {number for sender in senders for number in sender.acknowledged}
    with Lake.open(home) as lake:
        calls = Counter(lake.sql("select trace_id from calls")["trace_id"].to_list())
        spans = lake.sql("select count(*), count(distinct (trace_id, span_id)) from spans").row(0)
        (counts,) = lake.query("counts").to_dicts()
    assert acknowledged
    assert {f"{number:032x}" for number in acknowledged} <= set(calls)
    assert set(calls.values()) == {CALLS}
    assert spans == (len(calls) * CALLS, len(calls) * CALLS)
    assert counts["unsettled_traces"] == 0


def test_three_kills_lose_and_double_nothing(tmp_path: Path) -> None:
    assert_kills_lose_and_double_nothing(tmp_path / "home", 3, seed=7)


@pytest.mark.slow
def test_fifty_kills_lose_and_double_nothing(tmp_path: Path) -> None:
    assert_kills_lose_and_double_nothing(tmp_path / "home", 50, seed=11)
