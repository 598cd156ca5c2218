"""What a home holds after the real SDK sent secrets and prompts to `retroute collect`, with [privacy] in its file."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import polars as pl
import pytest
from collector_process import wait_for
from opentelemetry._logs import LogRecord, SeverityNumber
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter as GrpcSpanExporter
from opentelemetry.exporter.otlp.proto.http import Compression
from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs.export import SimpleLogRecordProcessor
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExporter
from opentelemetry.trace import Status, StatusCode

from ingest.lake import Lake

SECRETS = (
    *("alice@example.com", "+49 30 1234567", "4111 1111 1111 1111", "DE89370400440532013000", "sk-proj-" + "aB3" * 12),
    *("ghp_" + "a1B2" * 9, "EMP-123456"),
)
PROSE = ("walrus", "kumquat", "zeppelin", "gazebo", "marzipan")
RESOURCE = Resource.create({"service.name": "shop"})

REDACT = """
[settle]
quiet_s = 0.2
[privacy]
redact = ["email", "phone", "card", "iban", "key"]
deny = ["app.note"]
[privacy.patterns]
employee = 'EMP-\\d{6}'
"""
SEAL = "[settle]\nquiet_s = 0.2\n[privacy]\ncontent = false\n"


@dataclass
class Filled:
    """A home after its collector was stopped."""

    home: Path
    health: dict[str, Any]
    said: str
    model_spans: set[str]

    def bytes(self) -> Iterator[tuple[Path, bytes]]:
        """Of every file but the settings."""
        for path in self.home.rglob("*"):
            if path.is_file() and path.name != "retroute.toml":
                yield path, path.read_bytes()

    def tables(self) -> dict[str, pl.DataFrame]:
        """Every table of the lake, and calls."""
        names = ("span_log", "content_log", "event_log", "score_log", "settled_calls", "ingest_log", "calls")
        with Lake.open(self.home) as lake:
            return {name: lake.sql(f"select * from {name}") for name in names}


@contextmanager
def collecting(home: Path, settings: str) -> Iterator[tuple[subprocess.Popen[bytes], dict[str, Any]]]:
    home.mkdir()
    (home / "retroute.toml").write_text(settings)
    command = [sys.executable, "-m", "optimizer.cli", "collect", "--home", str(home), "--port", "0", "--grpc-port", "0"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, start_new_session=True)

    def address() -> dict[str, Any] | None:
        assert process.poll() is None, process.communicate()[1].decode()
        file = home / "collector.json"
        return json.loads(file.read_text()) if file.exists() else None

    try:
        found = wait_for(address)
        assert isinstance(found, dict)
        yield process, found
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def send_spans(exporter: SpanExporter, text: str) -> str:
    """One agent with one model call that says `text` everywhere; the model call's span id."""
    provider = TracerProvider(resource=RESOURCE)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    tracer = provider.get_tracer("shop", "1.0")
    with tracer.start_as_current_span("invoke_agent") as root:
        root.set_attributes({"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "clerk", "app.note": text})
        with tracer.start_as_current_span("chat") as span:
            span.set_attributes(
                {
                    "gen_ai.operation.name": "chat",
                    "gen_ai.provider.name": "openai",
                    "gen_ai.request.model": "gpt-4o-mini",
                    "gen_ai.usage.input_tokens": 120,
                    "gen_ai.usage.output_tokens": 30,
                    "gen_ai.conversation.id": "s-1",
                    "gen_ai.input.messages": json.dumps([{"role": "user", "content": text}]),
                    "gen_ai.output.messages": json.dumps(
                        [{"role": "assistant", "parts": [{"type": "text", "content": text}]}]
                    ),
                    "app.words": [text, text],
                    "unheard.of": text,
                }
            )
            span.record_exception(ValueError(text))
            span.set_status(Status(StatusCode.ERROR, text))
    provider.shutdown()
    return f"{span.get_span_context().span_id:016x}"


def send_log(url: str, text: str) -> None:
    provider = LoggerProvider(resource=RESOURCE)
    provider.add_log_record_processor(SimpleLogRecordProcessor(OTLPLogExporter(f"{url}/v1/logs")))
    provider.get_logger("shop").emit(
        LogRecord(
            timestamp=5,
            trace_id=7,
            span_id=9,
            severity_number=SeverityNumber.INFO,
            event_name="gen_ai.user.message",
            body={"content": text, "role": "user"},
            attributes={"gen_ai.system": "openai"},
        )
    )
    provider.shutdown()


def filled(home: Path, settings: str) -> Filled:
    text = f"The {' '.join(PROSE)}: {', '.join(SECRETS)}."
    with collecting(home, settings) as (process, at):
        url = f"http://127.0.0.1:{at['port']}"
        grpc = GrpcSpanExporter(f"127.0.0.1:{at['grpc_port']}", insecure=True)
        spans = {
            send_spans(OTLPSpanExporter(f"{url}/v1/traces", compression=Compression.Gzip), text),
            send_spans(OTLPSpanExporter(f"{url}/v1/traces"), text),
            send_spans(grpc, text),
        }
        send_log(url, text)
        score = {"name": "quality", "value": 0.5, "span_id": min(spans), "session_id": "s-1", "explanation": text}
        assert httpx.post(f"{url}/v1/scores", json=[score]).status_code == 200
        assert httpx.post(f"{url}/v1/traces", json={"resourceSpans": text}).status_code == 400
        health = httpx.get(f"{url}/healthz").json()
        prometheus = httpx.get(f"{url}/metrics").text
        assert not [secret for secret in SECRETS if secret in prometheus]
        process.send_signal(signal.SIGTERM)
        said = process.communicate(timeout=60)[1].decode()
    assert process.returncode == 0, said
    return Filled(home, health, said, spans)


@pytest.fixture(scope="module")
def redacted(tmp_path_factory: pytest.TempPathFactory) -> Filled:
    return filled(tmp_path_factory.mktemp("redact") / "home", REDACT)


@pytest.fixture(scope="module")
def sealed(tmp_path_factory: pytest.TempPathFactory) -> Filled:
    return filled(tmp_path_factory.mktemp("seal") / "home", SEAL)


@pytest.fixture(scope="module", params=["redacted", "sealed"])
def either(request: pytest.FixtureRequest) -> tuple[Filled, tuple[str, ...]]:
    return request.getfixturevalue(request.param), SECRETS if request.param == "redacted" else (*SECRETS, *PROSE)


def test_no_byte_of_it_is_in_any_file_of_the_home(either):
    found, texts = either
    for path, content in found.bytes():
        assert not [text for text in texts if text.encode() in content], path.relative_to(found.home)
    assert any(path.suffix == ".wal" and len(content) > 1000 for path, content in found.bytes())


def test_it_is_in_no_row_of_the_lake(either):
    found, texts = either
    for name, frame in found.tables().items():
        assert name == "settled_calls" or len(frame), name
        content = frame.write_ndjson()
        assert not [text for text in texts if text in content], name


def test_the_collector_says_nothing_of_it(either):
    found, texts = either
    assert not [text for text in texts if text in found.said]


def test_calls_have_their_names_counts_and_costs(either):
    found, _ = either
    calls = found.tables()["calls"].filter(pl.col("kind") == "llm")
    assert set(calls["span_id"]) == found.model_spans
    for call in calls.iter_rows(named=True):
        told = [call[key] for key in ("model_requested", "input_tokens", "output_tokens", "session_id", "agent")]
        assert told == ["gpt-4o-mini", 120, 30, "s-1", "clerk"]
        assert (call["status"], call["error_type"]) == ("error", "ValueError")
        assert call["cost_usd"] > 0
        assert call["input_text"] is not None
    (score,) = found.tables()["score_log"].iter_rows(named=True)
    assert (score["value"], score["span_id"]) == (0.5, min(found.model_spans))


def test_marks_are_counted_by_kind_in_health_and_in_the_lake(redacted):
    with Lake.open(redacted.home) as lake:
        marks = lake.query("redactions").group_by("kind").agg(pl.col("marks").sum())
    counted = dict(marks.iter_rows())
    assert counted.keys() == {"email", "phone", "card", "iban", "key", "employee"}
    one = counted["email"]
    assert counted == {"email": one, "phone": one, "card": one, "iban": one, "key": 2 * one, "employee": one}
    health = redacted.health["redacted"]
    assert health == {kind: n + (2 if kind == "key" else 1) for kind, n in counted.items()}  # the score's explanation


def test_denied_attributes_are_nowhere(redacted):
    for path, content in redacted.bytes():
        assert b"app.note" not in content, path
    assert not redacted.tables()["span_log"].filter(pl.col("attributes").str.contains("app.note")).height


def test_marks_stand_where_the_secrets_stood(redacted):
    marks = "<email>, <phone>, <card>, <iban>, <key>, <key>, <employee>."
    text = f"The {' '.join(PROSE)}: {marks}"
    tables = redacted.tables()
    given = tables["calls"].filter(pl.col("kind") == "llm")["input_text"].to_list()
    assert [json.loads(messages) for messages in given] == [[{"role": "user", "content": text}]] * 3
    (event,) = tables["event_log"]["body"].to_list()
    assert json.loads(event) == {"content": text, "role": "user"}
    assert tables["score_log"]["explanation"].to_list() == [text]


def test_health_tells_of_no_redactions_where_none_are_wanted(sealed):
    assert sealed.health["redacted"] == {}
