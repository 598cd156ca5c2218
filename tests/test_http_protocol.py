"""Bodies reach the write-ahead log byte for byte, however they are sent over HTTP."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from collector_process import CollectorProcess
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from ingest.wal import WalReader

POST = b"POST /v1/traces HTTP/1.1\r\nhost: x\r\ncontent-type: application/x-protobuf\r\n"


def body(number: int, size: int) -> bytes:
    """A request of one span whose name is `size` characters, no two parts of it alike."""
    request = ExportTraceServiceRequest()
    span = request.resource_spans.add().scope_spans.add().spans.add()
    span.trace_id, span.span_id = bytes([number]) * 16, bytes([number]) * 8
    span.name = "".join(f"{place:x}." for place in range(size // 5))[:size]
    return request.SerializeToString()


def in_pieces(data: bytes, size: int) -> Iterator[bytes]:
    return (data[at : at + size] for at in range(0, len(data), size))


def whole(data: bytes, connection: socket.socket) -> None:
    connection.sendall(POST + b"content-length: %d\r\n\r\n" % len(data) + data)


def in_two_halves(data: bytes, connection: socket.socket) -> None:
    sent = POST + b"content-length: %d\r\n\r\n" % len(data) + data
    connection.sendall(sent[: len(sent) // 2])
    time.sleep(0.2)
    connection.sendall(sent[len(sent) // 2 :])


def in_chunks(data: bytes, connection: socket.socket) -> None:
    connection.sendall(POST + b"transfer-encoding: chunked\r\n\r\n")
    for piece in in_pieces(data, 77_777):
        connection.sendall(b"%x\r\n" % len(piece) + piece + b"\r\n")
    connection.sendall(b"0\r\n\r\n")


def after_a_question(data: bytes, connection: socket.socket) -> None:
    connection.sendall(POST + b"expect: 100-continue\r\ncontent-length: %d\r\n\r\n" % len(data))
    assert b" 100 " in answer(connection)
    connection.sendall(data)


def answer(connection: socket.socket) -> bytes:
    said = b""
    while b"\r\n\r\n" not in said:
        part = connection.recv(4096)
        assert part, said
        said += part
    return said


@pytest.fixture(scope="module")
def collector(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CollectorProcess]:
    with CollectorProcess(tmp_path_factory.mktemp("http") / "home") as running:
        yield running


@pytest.mark.parametrize("size", [100, 70_000, 3_000_000])
@pytest.mark.parametrize("way", [whole, in_two_halves, in_chunks, after_a_question])
def test_a_body_arrives_byte_for_byte(collector, way: Callable[[bytes, socket.socket], None], size: int):
    """Twice over one connection, so that nothing of the first is left in the second."""
    sent = [body(1, size), body(2, size + 1)]
    before = stored(collector.home)
    with socket.create_connection(("127.0.0.1", collector.port), timeout=60) as connection:
        for data in sent:
            way(data, connection)
            assert b" 200 " in answer(connection).partition(b"\r\n")[0]
    assert stored(collector.home)[len(before) :] == sent


def test_requests_sent_without_waiting_are_taken_in_order(collector):
    sent = [body(number, 100_000 * number) for number in (1, 2, 3)]
    before = stored(collector.home)
    with socket.create_connection(("127.0.0.1", collector.port), timeout=60) as connection:
        for data in sent:
            whole(data, connection)
        said = b""
        while said.count(b"\r\n\r\n") < 3:
            said += connection.recv(4096)
    assert said.count(b"HTTP/1.1 200") == 3
    assert stored(collector.home)[len(before) :] == sent


def test_a_client_that_leaves_in_its_body_stores_nothing(collector):
    data = body(9, 500_000)
    before = stored(collector.home)
    with socket.create_connection(("127.0.0.1", collector.port), timeout=60) as connection:
        connection.sendall(POST + b"content-length: %d\r\n\r\n" % len(data) + data[:-1])
    assert collector.health()["status"] == "ok"
    assert stored(collector.home) == before


def stored(home: Path) -> list[bytes]:
    return [record.body for _, record in WalReader(home / "wal").read(1 << 40)]
