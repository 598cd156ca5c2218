"""What gRPC answers to what: code, Status, RetryInfo; beside HTTP's answer to the same."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import gzip
import os
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc
import pytest
from collector_process import CollectorProcess
from google.rpc.error_details_pb2 import BadRequest, RetryInfo
from google.rpc.status_pb2 import Status
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)

from ingest.auth import Token, hashed
from ingest.errors import UsageError
from ingest.grpc_receiver import METHODS, GrpcReceiver
from ingest.intake import Intake, ReceiverOptions
from ingest.wal import Record, Wal, WalReader

TRACES, LOGS, METRICS = METHODS
LIMIT = 20_000


def request(*ids: bytes, name: str = "x") -> bytes:
    message = ExportTraceServiceRequest()
    scope = message.resource_spans.add().scope_spans.add()
    for n, trace_id in enumerate(ids):
        scope.spans.add(trace_id=trace_id, span_id=(n + 1).to_bytes(8), name=name)
    return message.SerializeToString()


GOOD = request(b"t" * 16)


class Answer:
    """A finished call: its code, message, body, and the Status in its trailers."""

    def __init__(self, error: grpc.RpcError | None, body: bytes = b"") -> None:
        self.code = error.code() if error else grpc.StatusCode.OK
        self.message = error.details() if error else ""
        self.body = body
        trailers = dict((error.trailing_metadata() if error else None) or ())
        raw = trailers.get("grpc-status-details-bin")
        self.status = Status.FromString(raw) if raw is not None else None

    def detail(self, kind: type) -> object:
        """The Status's detail of a kind; None when it has none."""
        found = kind()
        return next((found for part in self.status.details if part.Unpack(found)), None) if self.status else None


class Site:
    """A gRPC receiver alone, in a thread with an event loop of its own."""

    def __init__(self, folder: Path, **options: object) -> None:
        self.folder = folder
        self.options = ReceiverOptions(**options)

    def __enter__(self) -> Site:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._thread.start()
        self.port = self._run(self._start())
        return self

    def __exit__(self, *_: object) -> None:
        self._run(self.receiver.stop(1))
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
        self.wal.close()

    async def _start(self) -> int:
        self.wal = Wal(self.folder)
        self.intake = Intake(self.wal, self.options, now=lambda: 7)
        self.receiver = GrpcReceiver(self.intake)
        return await self.receiver.start("127.0.0.1", 0)

    def _run(self, work: object) -> object:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(20)

    def call(
        self,
        body: bytes,
        method: str = TRACES,
        compression: grpc.Compression | None = None,
        metadata: tuple[tuple[str, str], ...] = (),
    ) -> Answer:
        with grpc.insecure_channel(f"127.0.0.1:{self.port}", [("grpc.max_send_message_length", -1)]) as channel:
            try:
                send = channel.unary_unary(method)
                return Answer(None, send(body, timeout=20, compression=compression, metadata=metadata))
            except grpc.RpcError as error:
                return Answer(error)

    def stored(self) -> list[Record]:
        return [record for _, record in WalReader(self.folder).read(1 << 40)]


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Iterator[Site]:
    with Site(tmp_path_factory.mktemp("status") / "wal", max_wire_bytes=LIMIT, max_body_bytes=LIMIT) as site:
        yield site


@pytest.mark.parametrize("compression", list(grpc.Compression))
def test_good_requests_are_stored_as_they_are_and_answered_with_nothing(tmp_path, compression):
    with Site(tmp_path / "wal") as site:
        answer = site.call(GOOD, compression=compression)
        assert (answer.code, answer.body) == (grpc.StatusCode.OK, b"")
        assert site.stored() == [Record("traces", "protobuf", 7, GOOD)]
        assert site.intake.received["spans"] == 1


@pytest.mark.parametrize("method", [TRACES, LOGS, METRICS])
@pytest.mark.parametrize("compression", [None, grpc.Compression.Gzip])
def test_empty_requests_succeed_and_leave_nothing(site, method, compression):
    before = site.stored()
    answer = site.call(b"", method, compression)
    assert (answer.code, answer.body) == (grpc.StatusCode.OK, b"")
    assert site.stored() == before


TABLE = [
    # body, method, compression, code, in the message, whether there is a Status
    (b"\xff\xff", TRACES, None, grpc.StatusCode.INVALID_ARGUMENT, "not a protobuf", True),
    (b"\xff\xff", LOGS, None, grpc.StatusCode.INVALID_ARGUMENT, "not a protobuf", True),
    (b"\x1f\x8bnonsense", TRACES, None, grpc.StatusCode.INVALID_ARGUMENT, "gzip", True),
    (gzip.compress(GOOD)[:-9], TRACES, None, grpc.StatusCode.INVALID_ARGUMENT, "gzip data ends early", True),
    (bytes(LIMIT + 1), TRACES, None, grpc.StatusCode.RESOURCE_EXHAUSTED, "larger than max", False),
    (bytes(50 << 20), TRACES, grpc.Compression.Gzip, grpc.StatusCode.RESOURCE_EXHAUSTED, "larger than max", False),
    (bytes(LIMIT + 1), TRACES, grpc.Compression.Gzip, grpc.StatusCode.RESOURCE_EXHAUSTED, str(LIMIT), True),
    (bytes(LIMIT + 1), TRACES, grpc.Compression.Deflate, grpc.StatusCode.RESOURCE_EXHAUSTED, str(LIMIT), True),
    (GOOD, TRACES.replace("Export", "Import"), None, grpc.StatusCode.UNIMPLEMENTED, "", False),
    (GOOD, "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo", None, grpc.StatusCode.UNIMPLEMENTED, "", False),
]


@pytest.mark.parametrize(("body", "method", "compression", "code", "word", "detailed"), TABLE)
def test_refusals_have_their_code_and_none_is_to_be_repeated(site, body, method, compression, code, word, detailed):
    before, refused = site.stored(), site.intake.refused.total()
    answer = site.call(body, method, compression)
    assert answer.code == code
    assert word in answer.message
    assert (answer.status is not None) == detailed
    assert answer.detail(RetryInfo) is None
    if detailed:
        assert (answer.status.code, answer.status.message) == (code.value[0], answer.message)
        assert (answer.detail(BadRequest) is not None) == (code == grpc.StatusCode.INVALID_ARGUMENT)
    assert site.stored() == before
    assert site.intake.refused.total() == refused + detailed


def test_rejected_spans_are_told_in_a_partial_success(site):
    answer = site.call(request(b"t" * 16, b"short", bytes(16)))
    assert answer.code == grpc.StatusCode.OK
    partial = ExportTraceServiceResponse.FromString(answer.body).partial_success
    assert partial.rejected_spans == 2
    assert "invalid trace id" in partial.error_message


@contextlib.contextmanager
def full_disk(site: Site) -> Iterator[None]:
    def full(_file: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fdatasync", full)
        yield


@pytest.mark.parametrize("cause", ["backlog", "memory", "disk"])
def test_pressure_is_unavailable_with_retry_info(tmp_path, cause):
    options = {"backlog": {"max_backlog_bytes": -1}, "memory": {"max_in_flight_bytes": 10}, "disk": {}}[cause]
    with Site(tmp_path / "wal", **options) as site, full_disk(site) if cause == "disk" else contextlib.nullcontext():
        answer = site.call(GOOD)
        assert answer.code == grpc.StatusCode.UNAVAILABLE
        assert answer.detail(RetryInfo).retry_delay.seconds == 1
        assert site.intake._in_flight == 0
        assert site.intake.refused == {503: 1}


def test_an_error_of_ours_is_internal_without_details(tmp_path, monkeypatch):
    monkeypatch.setattr("ingest.otlp.inspect", lambda *_: 1 // 0)
    with Site(tmp_path / "wal") as site:
        answer = site.call(GOOD)
    assert answer.code == grpc.StatusCode.INTERNAL
    assert "Zero" not in answer.message


@pytest.mark.parametrize(
    ("metadata", "allowed"),
    [
        ((), False),
        ((("authorization", "Bearer wrong"),), False),
        ((("authorization", "Bearer secret"),), True),
        ((("authorization", "Basic cGs6c2VjcmV0"),), True),
        ((("x-api-key", "secret"),), True),
        ((("x-api-key", "sha256:" + "0" * 64),), False),
    ],
)
def test_a_token_opens_and_its_lack_is_unauthenticated(tmp_path, metadata, allowed):
    with Site(tmp_path / "wal", tokens=(Token("app", hashed("secret")),)) as site:
        answer = site.call(GOOD, metadata=metadata)
        assert answer.code == (grpc.StatusCode.OK if allowed else grpc.StatusCode.UNAUTHENTICATED)
        assert len(site.stored()) == allowed
        assert answer.detail(RetryInfo) is None


def test_a_port_in_use_is_one_clear_line(site, tmp_path):
    async def second() -> None:
        receiver = GrpcReceiver(site.intake)
        with contextlib.closing(Wal(tmp_path)):
            await receiver.start("127.0.0.1", site.port)

    with pytest.raises(UsageError, match=f"Cannot listen for gRPC on 127.0.0.1:{site.port}"):
        asyncio.run(second())


def test_what_is_acknowledged_while_stopping_is_stored(tmp_path):
    """Senders that never pause see OK or what OTLP has them send again; every OK is in the log."""
    acknowledged: list[str] = []
    codes: set[grpc.StatusCode] = set()

    def sender(number: int) -> None:
        with grpc.insecure_channel(running.target) as channel:
            call = channel.unary_unary(TRACES)
            for n in range(100_000):
                name = f"{number}.{n}"
                try:
                    call(request(b"t" * 16, name=name), timeout=20)
                except grpc.RpcError as error:
                    codes.add(error.code())
                    return
                acknowledged.append(name)

    with CollectorProcess(tmp_path) as running, ThreadPoolExecutor(3) as pool:
        senders = [pool.submit(sender, number) for number in range(3)]
        while len(acknowledged) < 100:
            assert not any(task.done() for task in senders)
        code, _ = running.stop()
        for task in senders:
            task.result()
    assert code == 0
    assert codes <= {grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED}
    read = [
        ExportTraceServiceRequest.FromString(record.body) for _, record in WalReader(tmp_path / "wal").read(1 << 40)
    ]
    stored = [one.resource_spans[0].scope_spans[0].spans[0].name for one in read]
    assert set(acknowledged) <= set(stored)
    assert len(stored) == len(set(stored))
