"""The duties of an OTLP receiver, one by one, without a server: the ASGI application is called directly."""

from __future__ import annotations

import asyncio
import errno
import gzip
import json
import os
import time
import zlib
from pathlib import Path

import httpx
import pytest
from backports import zstd
from google.rpc.error_details_pb2 import BadRequest
from google.rpc.status_pb2 import Status
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)

from ingest import wal
from ingest.auth import Token, hashed
from ingest.intake import ReceiverOptions
from ingest.receiver import Receiver
from ingest.wal import Record, Wal, WalReader

PROTOBUF, JSON = {"content-type": "application/x-protobuf"}, {"content-type": "application/json"}
TOKENS = tuple(Token(name, hashed(text)) for name, text in [("app", "secret"), ("job", "other")])
SCORE = {"name": "quality", "value": 1, "trace_id": "A0" * 16}


def request(*names: str, trace_id: bytes = b"t" * 16) -> bytes:
    message = ExportTraceServiceRequest()
    scope = message.resource_spans.add().scope_spans.add()
    for name in names:
        scope.spans.add(trace_id=trace_id, span_id=b"s" * 8, name=name)
    return message.SerializeToString()


GOOD = request("good")
GOOD_JSON = json.dumps(
    {"resourceSpans": [{"scopeSpans": [{"spans": [{"traceId": "a0" * 16, "spanId": "0f" * 8, "name": "good"}]}]}]}
).encode()


class Site:
    """A receiver on a folder of its own, and what it has acknowledged."""

    def __init__(self, folder: Path, **options: object) -> None:
        self.folder = folder
        self.app = Receiver(Wal(folder), ReceiverOptions(**options), now=lambda: 7)

    def send(self, method: str, path: str, body: bytes = b"", headers: dict[str, str] | None = None) -> httpx.Response:
        async def run() -> httpx.Response:
            transport = httpx.ASGITransport(self.app, raise_app_exceptions=False)
            async with httpx.AsyncClient(transport=transport, base_url="http://collector") as client:
                return await client.request(method, path, content=body, headers=headers)

        return asyncio.run(run())

    def post(self, body: bytes, headers: dict[str, str] = PROTOBUF, path: str = "/v1/traces") -> httpx.Response:
        return self.send("POST", path, body, headers)

    def stored(self) -> list[Record]:
        return [record for _, record in WalReader(self.folder).read(1 << 40)]


@pytest.fixture
def site(tmp_path):
    return Site(tmp_path / "wal")


def status_of(response: httpx.Response) -> tuple[int, str]:
    """The google.rpc.Status in the body, from either encoding."""
    if response.headers["content-type"] == "application/json":
        found = response.json()
        return found["code"], found["message"]
    assert response.headers["content-type"] == "application/x-protobuf"
    status = Status.FromString(response.content)
    return status.code, status.message


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize(
    ("body", "headers", "empty"),
    [
        (GOOD, PROTOBUF, b""),
        (GOOD_JSON, JSON, b"{}"),
        (GOOD_JSON, {"Content-Type": "Application/JSON; charset=utf-8"}, b"{}"),
        (GOOD, {"content-type": "application/X-Protobuf ; q=1"}, b""),
    ],
)
def test_good_requests_are_acknowledged_and_stored(site, body, headers, empty, packed):
    sent = gzip.compress(body) if packed else body
    response = site.post(sent, headers | ({"content-encoding": "GZip"} if packed else {}))
    assert (response.status_code, response.content) == (200, empty)
    assert response.headers["content-type"] == headers[next(iter(headers))].split(";")[0].strip().lower()
    encoding = "json" if body is GOOD_JSON else "protobuf"
    assert site.stored() == [Record("traces", encoding, 7, body)]
    assert site.app.intake.received["spans"] == 1


def test_logs_and_metrics_are_taken_too(site):
    message = ExportLogsServiceRequest()
    message.resource_logs.add().scope_logs.add().log_records.add(time_unix_nano=5)
    assert site.post(message.SerializeToString(), path="/v1/logs").status_code == 200
    metrics = b'{"resourceMetrics":[{"scopeMetrics":[{"metrics":[{"gauge":{"dataPoints":[{},{}]}}]}]}]}'
    assert site.post(metrics, JSON, "/v1/metrics").content == b"{}"
    assert [record.kind for record in site.stored()] == ["logs", "metrics"]
    assert (site.app.intake.received["logs"], site.app.intake.received["metric_points"]) == (1, 2)


@pytest.mark.parametrize("path", ["/v1/traces", "/v1/logs", "/v1/metrics"])
def test_empty_requests_succeed_and_leave_nothing(site, path):
    assert site.post(b"", path=path).content == b""
    assert site.post(b"{}", JSON, path).content == b"{}"
    assert site.stored() == []


REFUSALS = [
    # method, path, body, headers, HTTP status, google.rpc code, a word of the message
    ("POST", "/v1/traces", b"\xff\xff", PROTOBUF, 400, 3, "protobuf"),
    ("POST", "/v1/traces", b"{", JSON, 400, 3, "not JSON"),
    ("POST", "/v1/traces", b"", JSON, 400, 3, "not JSON"),
    ("POST", "/v1/traces", GOOD, PROTOBUF | {"content-encoding": "gzip"}, 400, 3, "gzip"),
    ("POST", "/v1/traces", gzip.compress(GOOD)[:-9], PROTOBUF | {"content-encoding": "gzip"}, 400, 3, "gzip"),
    ("POST", "/v1/traces", GOOD, PROTOBUF | {"content-encoding": "br"}, 400, 3, "br"),
    ("POST", "/v1/traces", GOOD, {"content-type": "text/plain"}, 415, 3, "text/plain"),
    ("POST", "/v1/traces", GOOD, {}, 415, 3, "missing"),
    ("POST", "/v1/scores", b"x", PROTOBUF, 415, 3, "application/json"),
    ("POST", "/v1/nonsense", GOOD, PROTOBUF, 404, 5, "/v1/traces"),
    ("GET", "/", b"", {}, 404, 5, "unknown path"),
    ("GET", "/v1/traces", b"", {}, 405, 12, "POST"),
    ("OPTIONS", "/v1/traces", b"", {"origin": "http://page"}, 405, 12, "POST"),
    ("PUT", "/v1/traces", GOOD, PROTOBUF, 405, 12, "POST"),
    ("POST", "/healthz", b"", JSON, 405, 12, "GET"),
    ("POST", "/v1/traces", b"x" * 2001, PROTOBUF, 413, 8, "2000"),
    ("POST", "/v1/traces", b"x" * 9999, JSON, 413, 8, "2000"),
    ("POST", "/v1/traces", gzip.compress(bytes(2001)), PROTOBUF | {"content-encoding": "gzip"}, 413, 8, "2000"),
]


@pytest.mark.parametrize(("method", "path", "body", "headers", "http", "code", "word"), REFUSALS)
def test_refusals_carry_a_status_in_the_encoding_of_the_request(
    tmp_path, method, path, body, headers, http, code, word
):
    site = Site(tmp_path / "wal", max_body_bytes=2000)
    response = site.send(method, path, body, headers)
    assert response.status_code == http
    encoding = (
        "application/x-protobuf" if headers.get("content-type") == PROTOBUF["content-type"] else JSON["content-type"]
    )
    assert response.headers["content-type"] == encoding
    found, message = status_of(response)
    assert found == code
    assert word in message
    assert site.stored() == []
    assert site.app.intake.refused[http] == 1
    unreadable = http == 400 and "br" not in headers.get("content-encoding", "")
    assert site.app.intake.received["unreadable"] == unreadable


def test_a_bad_request_says_what_violated_which_field(site):
    detail = BadRequest()
    status = Status.FromString(site.post(b"\xff\xff").content)
    assert status.details[0].Unpack(detail)
    assert detail.field_violations[0].field == "body"
    (by_json,) = site.post(b"{", JSON).json()["details"]
    assert by_json["@type"] == "type.googleapis.com/google.rpc.BadRequest"
    assert by_json["fieldViolations"][0]["description"].startswith("not JSON")


def test_a_wrong_method_names_the_right_one(site):
    assert site.send("DELETE", "/v1/logs").headers["allow"] == "POST"


def test_rejected_spans_are_told_in_a_partial_success(site):
    body = GOOD + request("bad", "bad", trace_id=b"short")
    response = site.post(body)
    assert response.status_code == 200
    partial = ExportTraceServiceResponse.FromString(response.content).partial_success
    assert partial.rejected_spans == 2
    assert partial.error_message == "invalid trace id (16 bytes, not all zero) (2 times)"
    by_json = site.post(GOOD_JSON.replace(b"0f0f", b"0f"), JSON)
    assert by_json.json() == {
        "partialSuccess": {"rejectedSpans": "1", "errorMessage": "invalid span id (8 bytes, not all zero)"}
    }
    assert site.app.intake.received["rejected"] == 3
    assert len(site.stored()) == 2


def test_a_repaired_text_is_a_warning_with_nothing_rejected(site):
    response = site.post(request("cutXX").replace(b"XX", b"\xe2\x82"))
    partial = ExportTraceServiceResponse.FromString(response.content).partial_success
    assert (response.status_code, partial.rejected_spans) == (200, 0)
    assert "UTF-8" in partial.error_message
    assert len(site.stored()) == 1


def test_a_gzip_bomb_is_stopped_at_the_limit(tmp_path):
    site = Site(tmp_path / "wal", max_body_bytes=1 << 20)
    bomb = gzip.compress(bytes(50 << 20))
    assert len(bomb) < 1 << 20
    assert site.post(bomb, PROTOBUF | {"content-encoding": "gzip"}).status_code == 413


def test_back_pressure_is_503_with_retry_after_and_ends_when_the_lake_catches_up(tmp_path):
    site = Site(tmp_path / "wal", max_backlog_bytes=0)
    assert site.post(GOOD).status_code == 200
    response = site.post(GOOD)
    assert response.status_code == 503
    assert response.headers["retry-after"] == "1"
    assert status_of(response)[0] == 14
    reader = WalReader(site.folder)
    reader.read(1 << 30)
    wal.release(site.folder, reader.position)
    time.sleep(0.11)  # the receiver looks ten times a second
    assert site.post(GOOD).status_code == 200


def test_too_much_in_memory_at_once_is_503(tmp_path):
    site = Site(tmp_path / "wal", max_in_flight_bytes=10)
    response = site.post(GOOD)
    assert (response.status_code, response.headers["retry-after"]) == (503, "1")
    assert site.app.intake._in_flight == 0


def test_a_full_disk_is_503_and_never_200(site, monkeypatch):
    def full(file: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fdatasync", full)
        response = site.post(GOOD)
    assert (response.status_code, response.headers["retry-after"]) == (503, "1")
    assert "No space left" in status_of(response)[1]
    assert site.post(GOOD).status_code == 200


def test_an_error_of_ours_is_a_500_status_without_details(site, monkeypatch, caplog):
    monkeypatch.setattr("ingest.otlp.inspect", lambda *_: 1 // 0)
    response = site.post(GOOD)
    assert response.status_code == 500
    assert status_of(response)[0] == 13
    assert "ZeroDivisionError" in caplog.text
    assert "good" not in caplog.text


def test_200_comes_after_the_sync(site, monkeypatch):
    order = []
    monkeypatch.setattr(os, "fdatasync", lambda file: order.append("sync"))

    async def run() -> None:
        async def receive() -> dict[str, object]:
            return {"type": "http.request", "body": GOOD}

        async def send(event: dict[str, object]) -> None:
            order.append(event["type"])

        headers = [(b"content-type", b"application/x-protobuf")]
        scope = {"type": "http", "method": "POST", "path": "/v1/traces", "headers": headers}
        await site.app(scope, receive, send)

    asyncio.run(run())
    assert order == ["sync", "http.response.start", "http.response.body"]


def test_a_client_that_leaves_halfway_leaves_nothing(site):
    events = [{"type": "http.request", "body": GOOD[:5], "more_body": True}, {"type": "http.disconnect"}]

    async def run() -> None:
        async def receive() -> dict[str, object]:
            return events.pop(0)

        async def send(event: dict[str, object]) -> None:
            raise AssertionError("nobody is there to answer")

        headers = [(b"content-type", b"application/x-protobuf")]
        await site.app({"type": "http", "method": "POST", "path": "/v1/traces", "headers": headers}, receive, send)

    asyncio.run(run())
    assert site.stored() == []
    assert site.app.intake._in_flight == 0


@pytest.mark.parametrize("sent", [None, "Bearer wrong", "Bearer", "Basic secret", "Bearer sécret"])
def test_with_tokens_the_wrong_one_is_401(tmp_path, sent):
    site = Site(tmp_path / "wal", tokens=TOKENS)
    header = {} if sent is None else {"authorization": sent.encode()}
    response = site.post(GOOD, PROTOBUF | header)
    assert response.status_code == 401
    assert status_of(response)[0] == 16
    assert response.headers["www-authenticate"] == "Bearer"
    assert site.send("GET", "/metrics", headers=header).status_code == 401
    assert site.stored() == []


def test_with_tokens_any_of_them_opens_and_probes_need_none(tmp_path):
    site = Site(tmp_path / "wal", tokens=TOKENS)
    for token in ("Bearer secret", "bearer  other"):
        assert site.post(GOOD, PROTOBUF | {"authorization": token}).status_code == 200
    assert site.send("GET", "/healthz").status_code == 200


def test_cors_is_off_unless_the_origin_is_listed(tmp_path):
    ask = {"origin": "http://page", "access-control-request-method": "POST", "access-control-request-headers": "x-team"}
    site = Site(tmp_path / "wal", cors=("http://page",), tokens=TOKENS)
    preflight = site.send("OPTIONS", "/v1/traces", headers=ask)
    assert preflight.status_code == 200
    assert preflight.headers["access-control-allow-origin"] == "http://page"
    assert preflight.headers["access-control-allow-headers"] == "x-team"
    assert preflight.headers["access-control-allow-methods"] == "POST"
    refused = site.post(GOOD, PROTOBUF | {"origin": "http://page"})
    assert refused.status_code == 401
    assert refused.headers["access-control-allow-origin"] == "http://page"
    other = site.send("OPTIONS", "/v1/traces", headers=ask | {"origin": "http://elsewhere"})
    assert other.status_code == 405
    assert "access-control-allow-origin" not in other.headers
    anywhere = Site(tmp_path / "any", cors=("*",))
    assert anywhere.send("OPTIONS", "/v1/logs", headers=ask).headers["access-control-allow-origin"] == "http://page"


def test_health_and_metrics_say_what_was_received(site):
    site.post(GOOD)
    site.post(b"\xff\xff")
    site.post(json.dumps([SCORE, SCORE]).encode(), JSON, "/v1/scores")
    health = site.send("GET", "/healthz").json()
    assert health["status"] == "ok"
    assert health["version"]
    assert health["received"] == {
        "requests": 2, "spans": 1, "logs": 0, "metric_points": 0, "scores": 2, "rejected": 0, "unreadable": 1,
        "refused": 1,
    }  # fmt: skip
    assert health["pending_wal_bytes"] > 0
    response = site.send("GET", "/metrics")
    assert response.headers["content-type"].startswith("text/plain; version=0.0.4")
    lines = response.text.splitlines()
    assert "retroute_received_spans_total 1" in lines
    assert 'retroute_refused_requests_total{status="400"} 1' in lines
    assert all(line.startswith("# TYPE ") or len(line.split()) == 2 for line in lines)


@pytest.mark.parametrize("base", ["/api/public/otel", "/otel"])
@pytest.mark.parametrize("signal", ["traces", "logs", "metrics"])
def test_langfuse_and_langsmith_paths_are_there_too(site, base, signal):
    assert site.post(b"{}", JSON, f"{base}/v1/{signal}").status_code == 200
    assert site.post(GOOD, path=f"{base}/v1/traces").status_code == 200
    assert [record.kind for record in site.stored()] == ["traces"]


@pytest.mark.parametrize(
    ("coding", "pack"), [("zstd", zstd.compress), ("deflate", zlib.compress), ("x-gzip", gzip.compress)]
)
def test_other_codings_are_stored_inflated(site, coding, pack):
    headers = PROTOBUF | {"content-encoding": coding}
    assert site.post(pack(GOOD), headers).status_code == 200
    assert site.stored() == [Record("traces", "protobuf", 7, GOOD)]
    cut = site.post(pack(GOOD)[:-5], headers)
    assert (cut.status_code, "ends early" in status_of(cut)[1]) == (400, True)


def test_a_zstd_frame_may_name_its_size_or_not_and_be_one_of_several(site):
    body = request(*("x" * 1000 for _ in range(200)))
    half = len(body) // 2
    stream = zstd.ZstdCompressor()
    unnamed = stream.compress(body[:half]) + stream.compress(body[half:]) + stream.flush()
    for sent in (zstd.compress(body), unnamed, zstd.compress(body[:half]) + zstd.compress(body[half:])):
        assert site.post(sent, PROTOBUF | {"content-encoding": "zstd"}).status_code == 200
    assert {record.body for record in site.stored()} == {body}


def test_there_is_a_limit_for_what_is_sent_and_one_for_what_it_inflates_to(tmp_path):
    site = Site(tmp_path / "wal", max_wire_bytes=1000, max_body_bytes=5000)
    packed = PROTOBUF | {"content-encoding": "gzip"}
    inflates_to_4000 = gzip.compress(request("x" * 3900))
    assert site.post(inflates_to_4000, packed).status_code == 200
    assert "1000" in status_of(site.post(request("x" * 3900)))[1]
    assert "5000" in status_of(site.post(gzip.compress(request("x" * 6000)), packed))[1]
    assert "1000" in status_of(site.post(os.urandom(1001), packed))[1]


def test_readiness_says_why_requests_would_be_turned_away(tmp_path, monkeypatch):
    site = Site(tmp_path / "wal", max_backlog_bytes=0)
    ready = site.send("GET", "/readyz")
    assert (ready.status_code, ready.json()) == (200, {"ready": True, "reasons": [], "wal": {"bytes": 0, "age_s": 0.0}})
    site.post(GOOD)
    behind = site.send("GET", "/readyz")
    assert (behind.status_code, behind.json()["ready"]) == (503, False)
    assert "waiting" in behind.json()["reasons"][0]
    assert behind.json()["wal"]["bytes"] > len(GOOD)
    assert site.send("GET", "/healthz").json()["status"] == "ok"


def test_readiness_tells_of_a_full_disk_until_the_next_write(site, monkeypatch):
    def full(file: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fdatasync", full)
        site.post(GOOD)
        (reason,) = site.send("GET", "/readyz").json()["reasons"]
    assert "No space left" in reason
    assert site.post(GOOD).status_code == 200
    assert site.send("GET", "/readyz").status_code == 200


def test_requests_are_counted_by_the_names_of_their_tokens(tmp_path):
    site = Site(tmp_path / "wal", tokens=TOKENS)
    for token in ("secret", "other", "other"):
        assert site.post(GOOD, PROTOBUF | {"x-api-key": token}).status_code == 200
    assert site.app.intake.by_token == {"app": 1, "job": 2}
    lines = site.send("GET", "/metrics", headers={"authorization": "Bearer secret"}).text.splitlines()
    assert 'retroute_token_requests_total{token="job"} 2' in lines
    assert not any("secret" in line or "sha256" in line for line in lines)


def test_a_refusal_stays_small_whatever_was_sent(site):
    assert len(site.post(GOOD, path="/" + "x" * 60_000).content) < 5000
    assert len(site.post(GOOD, {"content-type": "y" * 100_000}).content) < 5000
    many = [{"traceId": "a0" * 16, "spanId": "0f" * 8, "name": n, "status": {"code": "x" * n}} for n in range(2000)]
    body = json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": many}]}]}).encode()
    assert len(site.post(body, JSON).content) < 5000


def test_scores_are_stored_as_they_were_sent(site):
    one = json.dumps(SCORE).encode()
    response = site.post(one, JSON, "/v1/scores")
    assert response.json() == {"accepted": 1}
    many = json.dumps([SCORE, {"name": "thumb", "label": "up", "session_id": "s"}]).encode()
    packed = site.post(gzip.compress(many), JSON | {"content-encoding": "gzip"}, "/v1/scores")
    assert packed.json() == {"accepted": 2}
    assert site.stored() == [Record("scores", "json", 7, one), Record("scores", "json", 7, many)]


def test_one_bad_score_refuses_the_request_and_is_named(site):
    body = json.dumps([SCORE, {"name": "quality", "trace_id": "a0" * 16}]).encode()
    response = site.post(body, JSON, "/v1/scores")
    assert response.status_code == 400
    assert status_of(response) == (3, "score 1: value or label is missing")
    assert site.stored() == []
