"""Malformed requests, made from real ones: no crash, the right status, memory bounded, good spans kept."""

from __future__ import annotations

import copy
import gzip
import json
import math
import random
import struct
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import grpc
import httpx
import pytest
from backports import zstd
from collector_process import CollectorProcess, wait_for
from google.rpc.status_pb2 import Status
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from ingest.errors import AppError
from ingest.grpc_receiver import METHODS
from ingest.lake import Lake

CORPUS = Path(__file__).parent / "golden" / "otlp"
MALFORMED = 200
PROTOBUF, JSON = {"content-type": "application/x-protobuf"}, {"content-type": "application/json"}
CODINGS: list[tuple[str, Callable[[bytes], bytes]]] = [
    ("identity", bytes),
    ("gzip", gzip.compress),
    ("zstd", zstd.compress),
]
MIB = 1 << 20


def real(ending: str, signal: str = "traces") -> list[bytes]:
    found = [path.read_bytes() for path in sorted(CORPUS.rglob(f"*-{signal}.{ending}"))]
    return [body for body in found if not body.startswith(b"\x1f\x8b") and len(body) < 100_000]


def nest(depth: int) -> object:
    value: object = {"stringValue": "deep"}
    for _ in range(depth):
        value = {"arrayValue": {"values": [value]}}
    return value


NASTY: list[object] = [
    None, "", "x" * 200_000, "\ud800", "\u0000", -1, 0, 1.5, math.nan, math.inf, -math.inf, 2**63, 2**200, "-5", "NaN",
    "18446744073709551616", True, [], {}, [[]], [None], {"key": None}, {"stringValue": 5}, {"intValue": "x"},
    {"doubleValue": "-Infinity"}, {"arrayValue": {"values": {}}}, {"kvlistValue": {"values": [None, {"value": 1}]}},
    {"bytesValue": "%%%"}, nest(90), nest(150), "0" * 32, "f" * 31,
]  # fmt: skip


def places(node: object) -> Iterator[tuple[object, object]]:
    """Every (container, key or index) of a JSON document."""
    items = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    for key, value in items:
        yield node, key
        yield from places(value)


def mutated_json(rng: random.Random, body: bytes) -> bytes:
    """Some values replaced; times negative now and then."""
    document = json.loads(body)
    (groups,) = document.values()
    for container, key in rng.sample(list(places(groups)), rng.randint(1, 6)):
        if str(key).endswith("UnixNano"):
            container[key] = rng.choice([-1, "-1", "-9223372036854775808", 1e30, None, "soon"])
        else:
            container[key] = copy.deepcopy(rng.choice(NASTY))
    return json.dumps(document).encode()


def mutated_protobuf(rng: random.Random, body: bytes) -> bytes:
    """Some bytes changed, cut, doubled or put in."""
    data = bytearray(body)
    for _ in range(rng.choice([1, 1, 2, 5, 50])):
        at = rng.randrange(len(data))
        length = rng.choice([1, 2, 8, 100])
        match rng.randrange(6):
            case 0:
                data[at] = rng.randrange(256)
            case 1:
                del data[at : at + length]
            case 2:
                data[at:at] = rng.randbytes(length)
            case 3:
                data[at:at] = data[at : at + length]
            case 4:
                data[at : at + 8] = struct.pack("<d", rng.choice([math.nan, math.inf, -1.0]))
            case _:
                data[at : at + 1] = b"\xff" * rng.choice([1, 5, 10])
        data = data or bytearray(b"\x00")
    return bytes(data)


def good_span(number: int) -> tuple[bytes, dict[str, object]]:
    """A request of one good span in both encodings; its id is its number."""
    message = ExportTraceServiceRequest()
    scope = message.resource_spans.add().scope_spans.add()
    scope.spans.add(trace_id=b"\xee" * 16, span_id=number.to_bytes(8), name="good", start_time_unix_nano=5)
    span = {"traceId": "ee" * 16, "spanId": f"{number:016x}", "name": "good", "startTimeUnixNano": "5"}
    return message.SerializeToString(), {"scopeSpans": [{"spans": [span]}]}


def requests() -> Iterator[tuple[int, str, bytes]]:
    """(number, encoding, body): a good span in front of a mutated real request."""
    rng = random.Random(7)
    by_json, by_protobuf = real("json"), real("pb")
    assert len(by_json) >= 2
    assert len(by_protobuf) >= 10
    for number in range(1, MALFORMED + 1):
        wire, resource = good_span(number)
        if number % 2:
            yield number, "protobuf", wire + mutated_protobuf(rng, rng.choice(by_protobuf))
        else:
            document = json.loads(mutated_json(rng, rng.choice(by_json)))
            kept = document["resourceSpans"] if isinstance(document["resourceSpans"], list) else []
            yield number, "json", json.dumps({**document, "resourceSpans": [resource, *kept]}).encode()


def test_malformed_requests_of_real_ones_have_the_right_status_and_lose_no_good_span(tmp_path):
    statuses: Counter[tuple[str, int]] = Counter()
    kept: set[str] = set()
    with CollectorProcess(tmp_path, store=True) as running:
        with httpx.Client(base_url=running.url, timeout=30) as client, grpc.insecure_channel(running.target) as channel:
            for number, encoding, body in requests():
                coding, pack = CODINGS[number % 3]
                headers = (PROTOBUF if encoding == "protobuf" else JSON) | {"content-encoding": coding}
                answer = client.post("/v1/traces", content=pack(body), headers=headers)
                statuses[encoding, answer.status_code] += 1
                if answer.status_code == 200:
                    kept.add(f"{number:016x}")
                elif encoding == "protobuf":
                    assert Status.FromString(answer.content).code == 3
                assert len(answer.content) < 10_000
                if encoding == "protobuf":
                    assert grpc_status(channel, body) == answer.status_code
            health = client.get("/healthz").json()
        assert health["status"] == "ok"
        assert {status for _, status in statuses} == {200, 400}
        assert statuses["json", 400] == 0  # whatever is in it, it is JSON: the good span is taken
        wait_for(lambda: kept <= stored(tmp_path), 60)
        restarts = httpx.get(f"{running.url}/healthz").json()["converter"]["restarts"]
        code, said = running.stop()
    assert (code, restarts) == (0, 0), said
    assert "Traceback" not in said


def good_log(number: int) -> tuple[bytes, dict[str, object]]:
    """A request of one good score in a log record, in both encodings; the score's name is its number."""
    said = {"gen_ai.evaluation.name": f"q{number}", "gen_ai.evaluation.score.value": "0.5"}
    message = ExportLogsServiceRequest()
    record = message.resource_logs.add().scope_logs.add().log_records.add(time_unix_nano=5)
    record.event_name, record.trace_id, record.span_id = "gen_ai.evaluation.result", b"\xee" * 16, b"\xee" * 8
    for key, value in said.items():
        record.attributes.add(key=key).value.string_value = value
    attributes = [{"key": key, "value": {"stringValue": value}} for key, value in said.items()]
    ids = {"traceId": "ee" * 16, "spanId": "ee" * 8}
    log = {**ids, "timeUnixNano": "5", "eventName": "gen_ai.evaluation.result", "attributes": attributes}
    return message.SerializeToString(), {"scopeLogs": [{"logRecords": [log]}]}


def test_malformed_logs_have_the_right_status_and_lose_no_good_score(tmp_path):
    rng = random.Random(11)
    by_json, by_protobuf = real("json", "logs"), real("pb", "logs")
    assert by_json
    assert by_protobuf
    kept: set[str] = set()
    with CollectorProcess(tmp_path, store=True) as running:
        with httpx.Client(base_url=running.url, timeout=30) as client:
            for number in range(MALFORMED):
                wire, group = good_log(number)
                if number % 2:
                    body, headers = wire + mutated_protobuf(rng, rng.choice(by_protobuf)), PROTOBUF
                else:
                    groups = json.loads(mutated_json(rng, rng.choice(by_json)))["resourceLogs"]
                    found = [group, *(groups if isinstance(groups, list) else [])]
                    body, headers = json.dumps({"resourceLogs": found}).encode(), JSON
                status = client.post("/v1/logs", content=body, headers=headers).status_code
                assert status == 200 or (headers is PROTOBUF and status == 400)
                if status == 200:
                    kept.add(f"q{number}")
        assert len(kept) >= MALFORMED // 2
        wait_for(lambda: kept <= scored(tmp_path), 60)
        restarts = httpx.get(f"{running.url}/healthz").json()["converter"]["restarts"]
        code, said = running.stop()
    assert (code, restarts) == (0, 0), said
    assert "Traceback" not in said


def scored(home: Path) -> set[str]:
    """Names of the scores in the lake."""
    try:
        with Lake.open(home) as lake:
            return set(lake.sql("select name from scores")["name"].to_list())
    except AppError:
        return set()


def grpc_status(channel: grpc.Channel, body: bytes) -> int:
    """The HTTP status that means the same as gRPC's answer."""
    answer = channel.unary_unary(next(iter(METHODS))).future(body, timeout=30)
    return {grpc.StatusCode.OK: 200, grpc.StatusCode.INVALID_ARGUMENT: 400}[answer.code()]


def stored(home: Path) -> set[str]:
    """Ids of the good spans in the lake."""
    try:
        with Lake.open(home) as lake:
            return set(lake.sql(f"select span_id from spans where trace_id = '{'ee' * 16}'")["span_id"].to_list())
    except AppError:
        return set()


def field(tag: int, content: bytes) -> bytes:
    length, size = len(content), bytearray([tag])
    while length > 0x7F:
        size.append(length & 0x7F | 0x80)
        length >>= 7
    return bytes(size) + bytes([length]) + content


def deep_value(levels: int) -> bytes:
    value = b""
    for _ in range(levels):
        value = field(0x2A, field(0x0A, value))
    return field(0x0A, field(0x12, field(0x12, field(0x4A, field(0x12, value)))))


HUGE_NAME = json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": [{"name": "x" * (20 * MIB)}]}]}]}).encode()
BOMBS: dict[str, tuple[bytes, dict[str, str], int]] = {
    "gzip of zeros": (gzip.compress(bytes(300 * MIB), 1), PROTOBUF | {"content-encoding": "gzip"}, 413),
    "zstd of zeros": (zstd.compress(bytes(300 * MIB)), PROTOBUF | {"content-encoding": "zstd"}, 413),
    "gzip of empty spans": (
        gzip.compress(field(0x0A, field(0x12, b"\x12\x00" * (30 * MIB))), 1),
        PROTOBUF | {"content-encoding": "gzip"},
        413,
    ),
    "empty attributes": (
        gzip.compress(field(0x0A, field(0x12, field(0x12, b"\x4a\x00" * (30 * MIB)))), 1),
        PROTOBUF | {"content-encoding": "gzip"},
        413,
    ),
    "lists in JSON": (
        gzip.compress(b'{"resourceSpans":[' + b"[]," * (20 * MIB) + b"[]]}", 1),
        JSON | {"content-encoding": "gzip"},
        413,
    ),
    "open lists": (b"[" * (4 * MIB - 1), JSON, 400),
    "open objects": (b'{"a":' * 700_000, JSON, 400),
    "deep values": (deep_value(20_000), PROTOBUF, 400),
    "an endless number": (b"\x08" + b"\x80" * MIB, PROTOBUF, 400),
    "many members": (gzip.compress(b"") * 1000, PROTOBUF | {"content-encoding": "gzip"}, 400),
    "a huge text without ids": (HUGE_NAME, JSON, 200),
}
MOST_MB = 500
"""Of the receiver at its peak: three times the largest body beside what it parses, and 60 MB of Python."""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads the peak of memory from /proc")
def test_bombs_are_refused_in_bounded_memory(tmp_path):
    with CollectorProcess(tmp_path) as running, httpx.Client(base_url=running.url, timeout=60) as client:
        for name, (body, headers, status) in BOMBS.items():
            answer = client.post("/v1/traces", content=body, headers=headers)
            assert (name, answer.status_code) == (name, status)
            assert (name, peak_mb(running.process.pid) < MOST_MB) == (name, True)
        assert client.get("/readyz").status_code == 200
        with grpc.insecure_channel(running.target) as channel:
            call = channel.unary_unary(next(iter(METHODS)))
            for name in ("gzip of zeros", "gzip of empty spans"):  # packed already, as gRPC would
                with pytest.raises(grpc.RpcError) as refused:
                    call(BOMBS[name][0], timeout=60)
                assert refused.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
        assert peak_mb(running.process.pid) < MOST_MB


def peak_mb(pid: int) -> float:
    (line,) = (line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) / 1024
