"""How fast the collector takes spans and makes them queryable, beside Phoenix under the same load in the same run.

    PHOENIX_VENV=DIR pytest -m bench -s tests/bench/test_ingest_speed.py

DIR is a virtual environment with arize-phoenix; without it the peer is left out. Prints a JSON object per measurement.
"""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from collector_process import CollectorProcess
from otlp_load import BATCH, Sent, bodies, send

from ingest.lake import Lake
from optimizer import demo

pytestmark = pytest.mark.bench

GENAI = 2150
"""Characters of the texts that make spans 3.8 KB on average."""
SMALL = 350


def say(what: str, **figures: object) -> None:
    print(json.dumps({"what": what, **figures}))


def rss_mb(pid: int) -> float:
    """Peak resident memory of a process, MB."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM"):
            return int(line.split()[1]) / 1024
    raise AssertionError(f"no memory figure of process {pid}")


def family(pid: int) -> list[int]:
    """A process and the children of its threads."""
    found = [pid]
    for children in Path(f"/proc/{pid}/task").glob("*/children"):
        found += [one for child in children.read_text().split() for one in family(int(child))]
    return found


def stored(home: Path) -> int:
    """Span rows that another process sees; 0 before the collector has made its lake."""
    if not (home / "lake" / "catalog.sqlite").exists():
        return 0
    with Lake.open(home) as lake:
        return int(lake.sql("select count(*) as n from span_log")["n"][0])


def wait_until_stored(home: Path, spans: int, timeout_s: float = 600) -> None:
    deadline = time.monotonic() + timeout_s
    while not stored(home):
        assert time.monotonic() < deadline
        time.sleep(0.2)
    with Lake.open(home) as lake:  # opening it anew each time would take a good part of a core
        while int(lake.sql("select count(*) as n from span_log")["n"][0]) < spans:
            assert time.monotonic() < deadline
            time.sleep(0.2)


def converter_pid(url: str) -> int:
    with urllib.request.urlopen(f"{url}/healthz") as answer:
        return int(json.load(answer)["converter"]["pid"])


def run(home: Path, spans: int, text_chars: int, rate: float | None = None) -> tuple[Sent, float]:
    """Send to a fresh collector that has started its converter, which takes a second of a core; what was sent, and
    queryable spans per second from the first byte on. The sender, bodies made before over kept connections, has 0.6 to
    2 us of a processor a span."""
    requests = list(bodies(spans, text_chars))
    size = sum(map(len, requests)) / len(requests) / BATCH
    with demo.collecting(home, lambda _what, _share: None) as collector:
        while not (home / "lake" / "catalog.sqlite").exists():
            time.sleep(0.05)
        began = time.perf_counter()
        sent = send(f"{collector.url}/v1/traces", requests, rate=rate)
        wait_until_stored(home, sent.spans)
        queryable = sent.spans / (time.perf_counter() - began)
        say(
            f"{size / 1000:.1f} KB spans" + (f" at {rate:.0f}/s" if rate else ""),
            spans=sent.spans,
            accepted_per_s=round(sent.spans_per_s),
            ack_p50_ms=round(sent.percentile_ms(0.5), 1),
            ack_p99_ms=round(sent.percentile_ms(0.99), 1),
            queryable_per_s=round(queryable),
            acceptor_mb=round(rss_mb(collector.process.pid)),
            converter_mb=round(sum(map(rss_mb, family(converter_pid(collector.url))))),
        )
    return sent, queryable


@contextmanager
def phoenix(folder: Path) -> Iterator[tuple[str, Path, subprocess.Popen[bytes]]]:
    """Phoenix on its defaults (SQLite in `folder`): its URL, its database, its process."""
    venv = os.environ.get("PHOENIX_VENV")
    if not venv:
        pytest.skip("PHOENIX_VENV names no environment with arize-phoenix")
    folder.mkdir()
    environment = {
        **os.environ,
        "PHOENIX_WORKING_DIR": str(folder),
        "PHOENIX_PORT": "6106",
        "PHOENIX_GRPC_PORT": "6107",
    }
    command = [f"{venv}/bin/python", "-m", "phoenix.server.main", "serve"]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
    try:
        url = "http://127.0.0.1:6106"
        deadline = time.monotonic() + 120
        while True:
            try:
                urllib.request.urlopen(f"{url}/healthz").read()
                break
            except OSError:
                assert process.poll() is None, (folder / "log").read_text()[-2000:]
                assert time.monotonic() < deadline
                time.sleep(0.5)
        yield url, folder / "phoenix.db", process
    finally:
        process.kill()
        process.wait()


def phoenix_spans(database: Path) -> int:
    with sqlite3.connect(f"file:{database}?mode=ro", uri=True) as connection:
        return int(connection.execute("select count(*) from spans").fetchone()[0])


def test_speed_of_genai_spans(tmp_path: Path) -> None:
    sent, queryable = run(tmp_path / "home", 102_400, GENAI)
    assert sent.spans == stored(tmp_path / "home")
    assert queryable > 0


def test_speed_of_small_spans(tmp_path: Path) -> None:
    sent, _ = run(tmp_path / "home", 204_800, SMALL)
    assert sent.spans == stored(tmp_path / "home")


def test_latency_at_ten_thousand_spans_a_second(tmp_path: Path) -> None:
    sent, _ = run(tmp_path / "home", 102_400, GENAI, rate=10_000)
    assert sent.spans == stored(tmp_path / "home")


def test_freshness_below_saturation(tmp_path: Path) -> None:
    """Seconds from the acknowledgement of a request until another process sees its spans, at 5,000 spans a second."""
    requests = list(bodies(51_200, GENAI))
    lags = []
    with demo.collecting(tmp_path / "home", lambda _what, _share: None) as collector:
        for place, body in enumerate(requests):
            send(f"{collector.url}/v1/traces", [body], connections=1)
            acknowledged = time.perf_counter()
            if place % 10 == 9:
                wait_until_stored(tmp_path / "home", (place + 1) * BATCH)
                lags.append(time.perf_counter() - acknowledged)
    assert stored(tmp_path / "home") == len(requests) * BATCH
    say("freshness", p50_s=round(sorted(lags)[len(lags) // 2], 2), worst_s=round(max(lags), 2))


def test_phoenix_under_the_same_load(tmp_path: Path) -> None:
    """Three interleaved rounds; the ratio of queryable spans per second."""
    ratios = []
    for number in range(3):
        _, ours = run(tmp_path / f"home{number}", 102_400, GENAI)
        requests = list(bodies(2_048, GENAI, seed=number))
        with phoenix(tmp_path / f"phoenix{number}") as (url, database, _):
            began = time.perf_counter()
            sent = send(f"{url}/v1/traces", requests)
            while phoenix_spans(database) < sent.spans:
                time.sleep(0.2)
            theirs = sent.spans / (time.perf_counter() - began)
        ratios.append(ours / theirs)
        say(
            "phoenix", queryable_per_s=round(theirs), accepted_per_s=round(sent.spans_per_s), ratio=round(ours / theirs)
        )
    assert min(ratios) > 1
    say("retroute / phoenix, queryable spans per second", median=round(sorted(ratios)[1]))


def test_kill_three_seconds_after_the_last_answer(tmp_path: Path) -> None:
    """The same kill -9 for both: acknowledged spans that are gone afterwards."""
    requests = list(bodies(4_096, GENAI))
    home = tmp_path / "home"
    with CollectorProcess(home, store=True) as collector:
        sent = send(f"{collector.url}/v1/traces", requests)
        time.sleep(3)
        os.kill(converter_pid(collector.url), signal.SIGKILL)
        collector.process.kill()
        collector.process.wait()
    with demo.collecting(home, lambda _what, _share: None):
        wait_until_stored(home, sent.spans)
    lost = sent.spans - stored(home)
    say("kill -9", who="retroute", acknowledged=sent.spans, lost=lost)
    assert lost == 0
    with phoenix(tmp_path / "phoenix") as (url, database, process):
        sent = send(f"{url}/v1/traces", requests)
        time.sleep(3)
        process.kill()
        process.wait()
    say("kill -9", who="phoenix", acknowledged=sent.spans, lost=sent.spans - phoenix_spans(database))
