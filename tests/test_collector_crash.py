"""kill -9 in mid-stream: what was acknowledged is there, once."""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from pathlib import Path

import httpx
from collector_process import CollectorProcess

from ingest import otlp
from ingest.lake import Lake
from ingest.wal import WalReader

JSON = {"content-type": "application/json"}


def request(number: int) -> bytes:
    """Two spans of a trace; their names are unique."""
    spans = [
        {"traceId": f"{number + 1:032x}", "spanId": f"{i + 1:016x}", "name": f"{number}.{i}", "startTimeUnixNano": "5"}
        for i in range(2)
    ]
    return json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": spans}]}]}).encode()


class Clients:
    """Threads that send numbered requests to a fixed port, each until it is acknowledged, as exporters do."""

    def __init__(self, port: int, threads: int = 3) -> None:
        self.url = f"http://127.0.0.1:{port}/v1/traces"
        self.acknowledged: set[int] = set()
        self.attempts: Counter[int] = Counter()
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._send, args=(n, threads)) for n in range(threads)]

    def _send(self, number: int, step: int) -> None:
        with httpx.Client(timeout=10) as client:
            while not self._stop.is_set():
                self.attempts[number] += 1
                try:
                    response = client.post(self.url, content=request(number), headers=JSON)
                except httpx.TransportError:
                    time.sleep(0.02)
                    continue
                assert response.status_code == 200
                self.acknowledged.add(number)
                number += step

    def __enter__(self) -> Clients:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def wait_for(self, more: int) -> None:
        wanted = len(self.acknowledged) + more
        until = time.monotonic() + 30
        while len(self.acknowledged) < wanted:
            assert time.monotonic() < until
            time.sleep(0.005)


def stream_through_kills(home: Path, *, store: bool, kills: int) -> Clients:
    """Send while the collector is killed and started again; ends with a graceful stop."""
    with CollectorProcess(home, store=store) as first:
        port = first.port
        with Clients(port) as clients:
            clients.wait_for(40)
            first.process.kill()
            first.process.wait()
            for _ in range(kills - 1):
                with CollectorProcess(home, port=port, store=store) as next_one:
                    clients.wait_for(40)
                    next_one.process.kill()
                    next_one.process.wait()
            with CollectorProcess(home, port=port, store=store) as last:
                clients.wait_for(40)
                clients.__exit__()
                assert last.stop()[0] == 0
    return clients


def test_every_acknowledged_record_is_in_the_log_after_each_kill(tmp_path):
    clients = stream_through_kills(tmp_path, store=False, kills=3)
    read = WalReader(tmp_path / "wal").read(1 << 40)
    found = Counter(
        int(otlp.decode(record.body, "traces", record.encoding).spans[0].name.partition(".")[0]) for _, record in read
    )
    assert clients.acknowledged <= set(found)
    assert all(found[number] <= clients.attempts[number] for number in found)
    unanswered = {number for number, times in found.items() if times > 1}
    assert len(unanswered) <= 3 * 3  # at most what each of three clients had in flight at each of three kills
    positions = [position for position, _ in read]
    assert positions == sorted(set(positions))


def test_every_acknowledged_span_is_stored_once_in_the_lake(tmp_path):
    clients = stream_through_kills(tmp_path, store=True, kills=2)
    with Lake.open(tmp_path) as lake:
        names = Counter(lake.sql("select name from spans")["name"].to_list())
        (counts,) = lake.query("counts").to_dicts()
    assert {f"{number}.{i}" for number in clients.acknowledged for i in range(2)} <= set(names)
    assert set(names.values()) == {1}
    assert counts["spans"] == len(names)
    assert counts["unsettled_traces"] == 0
