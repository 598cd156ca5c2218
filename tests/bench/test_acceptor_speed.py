"""What taking a span costs the receiver alone: no converter runs beside it. `pytest -m bench -s` prints it.

Each figure stands beside a floor measured in the same rounds, because machines differ and are busy: one process that
reads the same bodies from memory, inflates and parses each once, and writes and syncs it. Between the two lie HTTP or
gRPC, the checks, and handing over to the writing thread.
"""

from __future__ import annotations

import gzip
import json
import os
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import grpc
import pytest
from collector_process import CollectorProcess
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from otlp_load import BATCH, Sent, bodies, send

from ingest.inflate import inflate

pytestmark = pytest.mark.bench

GENAI, SMALL = 2150, 350  # characters of the texts that make spans 3.8 KB and 1 KB on average
SPANS = 51_200
ROUNDS = 3
METHOD = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"
RESIDENT_MB = 150

Load = Callable[[CollectorProcess, Sequence[bytes]], Sent]


@dataclass(frozen=True)
class Speed:
    """Spans per second, and processor time of the process that took them, us a span."""

    spans_per_s: float
    cpu_us: float


def over_http(collector: CollectorProcess, requests: Sequence[bytes]) -> Sent:
    return send(f"{collector.url}/v1/traces", requests)


def over_http_in_gzip(collector: CollectorProcess, requests: Sequence[bytes]) -> Sent:
    return send(f"{collector.url}/v1/traces", requests, headers={"content-encoding": "gzip"})


def over_grpc(collector: CollectorProcess, requests: Sequence[bytes]) -> Sent:
    waiting = iter(requests)

    def work(channel: grpc.Channel) -> list[float]:
        export = channel.unary_unary(METHOD)
        took = []
        for body in waiting:  # of a list: each body is taken by one thread
            start = time.perf_counter()
            assert export(body, timeout=60) == b""
            took.append(time.perf_counter() - start)
        return took

    own = ("grpc.use_local_subchannel_pool", 1)  # a connection each
    channels = [grpc.insecure_channel(collector.target, options=[own]) for _ in range(4)]
    began = time.perf_counter()
    with ThreadPoolExecutor(len(channels)) as pool:
        latencies = [seconds for part in pool.map(work, channels) for seconds in part]
    seconds = time.perf_counter() - began
    for channel in channels:
        channel.close()
    return Sent(len(requests) * BATCH, seconds, tuple(latencies))


def floor(file: Path, requests: Sequence[bytes]) -> Speed:
    began, cpu = time.perf_counter(), time.process_time()
    log = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND)
    for body in requests:
        ExportTraceServiceRequest.FromString(inflate(body, 1 << 30) if body.startswith(b"\x1f\x8b") else body)
        os.write(log, body)
        os.fdatasync(log)
    os.close(log)
    spans = len(requests) * BATCH
    speed = Speed(spans / (time.perf_counter() - began), (time.process_time() - cpu) / spans * 1e6)
    file.unlink()
    return speed


def cpu_s(pid: int) -> float:
    """Processor time of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def resident_mb(pid: int) -> float:
    """Peak resident memory of a process, MB."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM"):
            return int(line.split()[1]) / 1024
    raise AssertionError(f"no memory figure of process {pid}")


@contextmanager
def collecting(home: Path) -> Iterator[CollectorProcess]:
    """A warm collector whose converter stores nothing."""
    with CollectorProcess(home) as collector:
        over_http(collector, list(bodies(8 * BATCH, SMALL)))
        over_grpc(collector, list(bodies(8 * BATCH, SMALL)))
        yield collector


@pytest.mark.parametrize(
    ("name", "text_chars", "load", "most_cpu"),  # quiet or busy, 3 to 4 floors plain over HTTP, 1.3 to 1.9 else
    [
        ("3.8 KB spans", GENAI, over_http, 6.0),
        ("1 KB spans", SMALL, over_http, 6.0),
        ("3.8 KB spans, gzip", GENAI, over_http_in_gzip, 4.0),
        ("3.8 KB spans, gRPC", GENAI, over_grpc, 4.0),
    ],
)
def test_cost_of_a_span_beside_the_floor(
    tmp_path: Path, name: str, text_chars: int, load: Load, most_cpu: float
) -> None:
    requests = list(bodies(SPANS, text_chars))
    if load is over_http_in_gzip:
        requests = [gzip.compress(body, 6) for body in requests]
    ours, floors, latencies = [], [], []
    with collecting(tmp_path / "home") as collector:
        for _ in range(ROUNDS):
            floors.append(floor(tmp_path / "floor", requests))
            before = cpu_s(collector.process.pid)
            sent = load(collector, requests)
            ours.append(Speed(sent.spans_per_s, (cpu_s(collector.process.pid) - before) / sent.spans * 1e6))
            latencies.append(sent)
        resident = resident_mb(collector.process.pid)
    ratio = statistics.median(one.cpu_us / other.cpu_us for one, other in zip(ours, floors, strict=True))
    say(
        name,
        accepted_per_s=round(statistics.median(one.spans_per_s for one in ours)),
        floor_per_s=round(statistics.median(one.spans_per_s for one in floors)),
        ack_p50_ms=round(statistics.median(one.percentile_ms(0.5) for one in latencies), 1),
        ack_p99_ms=round(statistics.median(one.percentile_ms(0.99) for one in latencies), 1),
        cpu_us_a_span=round(statistics.median(one.cpu_us for one in ours), 2),
        floor_cpu_us_a_span=round(statistics.median(one.cpu_us for one in floors), 2),
        cpu_ratio=round(ratio, 2),
        resident_mb=round(resident),
    )
    assert ratio < most_cpu
    assert resident < RESIDENT_MB


@pytest.mark.parametrize("text_chars", [SMALL, GENAI])
def test_memory_under_a_long_load(tmp_path: Path, text_chars: int) -> None:
    requests = list(bodies(20_480, text_chars)) * 10
    with CollectorProcess(tmp_path / "home") as collector:
        assert over_http(collector, requests).spans == 204_800
        resident = resident_mb(collector.process.pid)
    say("memory", text_chars=text_chars, resident_mb=round(resident))
    assert resident < RESIDENT_MB


def say(what: str, **figures: object) -> None:
    print("\n" + json.dumps({"what": what, **figures}))
