"""The collector as a process: who may start it, how it says where it is, how it stops."""

from __future__ import annotations

import json
import os
import signal
import socket
import time
from pathlib import Path

import httpx
import pytest
from collector_process import CollectorProcess, wait_for

from ingest import auth, collector
from ingest.auth import Token
from ingest.errors import ConfigError, HomeError, UsageError
from ingest.intake import ReceiverOptions
from ingest.listen import Listen, Tls
from ingest.options import ConverterOptions
from ingest.wal import WalReader

REQUEST = json.dumps(
    {"resourceSpans": [{"scopeSpans": [{"spans": [{"traceId": "a0" * 16, "spanId": "0f" * 8, "name": "one"}]}]}]}
).encode()
JSON = {"content-type": "application/json"}


SECRET = (Token("app", auth.hashed("secret")),)


def run(home: Path, tokens: tuple[Token, ...] = (), tls: Tls | None = None, **where: object) -> None:
    listen = Listen(**{"port": 0, "grpc_port": 0, "tls": tls, **where})
    collector.run(home, listen, ConverterOptions(), ReceiverOptions(tokens=tokens))


def said_by(running: CollectorProcess) -> str:
    return f"Receiving OTLP at {running.url} and over gRPC at http://{running.target}; Ctrl-C stops.\n"


def stored(home: Path) -> int:
    return len(WalReader(home / "wal").read(1 << 30))


@pytest.mark.parametrize("host", ["0.0.0.0", "::"])
def test_beyond_loopback_it_refuses_to_start_without_a_token(tmp_path, host):
    with pytest.raises(UsageError, match="without a token") as error:
        run(tmp_path / "home", host=host)
    assert "tokens" in error.value.hint
    assert not (tmp_path / "home").exists()


def test_a_host_that_is_not_ours_is_one_clear_line(tmp_path):
    with pytest.raises(UsageError, match=r"Cannot listen on 192\.0\.2\.1:0"):
        run(tmp_path / "home", SECRET, host="192.0.2.1")


def test_a_port_in_use_is_one_clear_line(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(UsageError, match=f"Port {port} on 127.0.0.1 is in use"):
            run(tmp_path / "home", port=port)


def test_a_grpc_port_in_use_is_one_clear_line_and_starts_nothing(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(UsageError, match=f"Port {port} on 127.0.0.1 is in use") as error:
            run(tmp_path / "home", grpc_port=port)
    assert error.value.hint == "Use another --grpc-port; --grpc-port 0 takes a free one."
    assert not (tmp_path / "home" / "collector.json").exists()


def test_one_port_for_both_is_one_clear_line(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with pytest.raises(UsageError, match=f"Port {port} on 127.0.0.1 is in use"):
        run(tmp_path / "home", port=port, grpc_port=port)


@pytest.mark.parametrize("text", [None, "", "-----BEGIN CERTIFICATE-----\nnonsense\n-----END CERTIFICATE-----\n"])
def test_certificates_that_cannot_be_used_are_named(tmp_path, text):
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    if text is not None:
        cert.write_text(text)
        key.write_text(text)
    with pytest.raises(ConfigError, match=r"cert\.pem and collector\.tls_key .*key\.pem cannot be used: .+\.$"):
        run(tmp_path / "home", tls=Tls(cert, key))
    assert not (tmp_path / "home").exists()


def test_a_home_of_a_newer_version_is_refused(tmp_path):
    (tmp_path / "home.json").write_text('{"format": 2}')
    with pytest.raises(HomeError, match="newer version"):
        run(tmp_path)


def test_it_says_where_it_listens_serves_and_stops_cleanly(tmp_path):
    home = tmp_path / "home"
    with CollectorProcess(home) as running:
        said = json.loads((home / "collector.json").read_text())
        assert set(said) == {"pid", "host", "port", "grpc_port", "tls", "started_ns"}
        assert said["pid"] == running.process.pid
        assert 0 <= time.time_ns() - said["started_ns"] < 60e9
        assert httpx.post(f"{running.url}/v1/traces", content=REQUEST, headers=JSON).json() == {}
        health = running.health()
        assert (health["status"], health["received"]["spans"]) == ("ok", 1)
        assert health["pending_wal_bytes"] > len(REQUEST)
        with pytest.raises(HomeError, match=f"already running .*pid {running.process.pid}, {running.url}"):
            run(home)
        assert running.stop(signal.SIGTERM) == (0, said_by(running))
    assert (home / "converter-finished").exists()
    assert not (home / "collector.json").exists()
    assert stored(home) == 1


def test_ctrl_c_to_the_whole_group_stops_it_in_order(tmp_path):
    with CollectorProcess(tmp_path) as running:
        wait_for((tmp_path / "converter-started").exists)
        assert running.stop(signal.SIGINT, group=True) == (0, said_by(running))
    assert (tmp_path / "converter-finished").exists()


def test_a_request_in_flight_is_answered_before_the_end(tmp_path):
    head = f"POST /v1/traces HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {len(REQUEST)}"
    with CollectorProcess(tmp_path) as running, socket.create_connection(("127.0.0.1", running.port)) as client:
        client.sendall(head.encode() + b"\r\n\r\n" + REQUEST[:20])
        wait_for(lambda: running.health()["status"] == "ok")  # it has read what came before
        running.process.send_signal(signal.SIGTERM)
        wait_for(lambda: not _accepts(running.port))
        assert not (tmp_path / "converter-finished").exists()
        client.sendall(REQUEST[20:])
        client.settimeout(10)
        assert client.recv(1000).startswith(b"HTTP/1.1 200 OK")
        assert running.process.wait(20) == 0
    assert (tmp_path / "converter-finished").exists()
    assert stored(tmp_path) == 1


def _accepts(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port)).close()
    except ConnectionError:
        return False
    return True


def test_a_converter_that_dies_is_replaced_while_requests_are_taken(tmp_path):
    with CollectorProcess(tmp_path) as running:
        first = int(wait_for(lambda: _read(tmp_path / "converter-started")))
        assert running.health()["converter"] == {"pid": first, "restarts": 0}
        os.kill(first, signal.SIGKILL)
        assert httpx.post(f"{running.url}/v1/traces", content=REQUEST, headers=JSON).status_code == 200
        wait_for(lambda: _read(tmp_path / "converter-started") not in ("", str(first)))
        health = running.health()
        assert health["status"] == "ok"
        assert health["converter"]["restarts"] == 1
        code, said = running.stop()
        assert code == 0
        assert "the converter ended with -9" in said


def test_the_converter_gives_way_to_the_receiver(tmp_path):
    """With processors to share, acknowledging does not wait for converting."""
    with CollectorProcess(tmp_path, store=True) as running:
        child = running.health()["converter"]["pid"]
        ours = os.getpriority(os.PRIO_PROCESS, running.process.pid)
        if ours >= 19:
            pytest.skip("nothing gives way to a process of the lowest priority")
        wait_for(lambda: os.getpriority(os.PRIO_PROCESS, child) > ours)
        assert running.stop()[0] == 0


def _read(path: Path) -> str:
    return path.read_text() if path.exists() else ""


def test_a_second_collector_of_a_home_is_refused_and_the_first_goes_on(tmp_path):
    with CollectorProcess(tmp_path) as first:
        with pytest.raises(HomeError, match=rf"already running .*127\.0\.0\.1:{first.port}"):
            run(tmp_path)
        answer = httpx.post(f"{first.url}/v1/traces", content=REQUEST, headers=JSON)
        assert (answer.status_code, first.health()["status"]) == (200, "ok")
        assert json.loads((tmp_path / "collector.json").read_text())["pid"] == first.process.pid


def test_a_killed_collector_takes_its_converter_along_and_the_home_is_free_again(tmp_path):
    with CollectorProcess(tmp_path) as running:
        wait_for((tmp_path / "converter-started").exists)
        running.process.kill()
        running.process.wait()
    wait_for((tmp_path / "converter-finished").exists)
    assert (tmp_path / "collector.json").exists()  # left behind, with a pid that is gone
    with CollectorProcess(tmp_path) as again:
        assert again.health()["status"] == "ok"
