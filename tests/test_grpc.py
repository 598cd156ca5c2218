"""The real OpenTelemetry SDK sends over gRPC, and over TLS with tokens, to a real collector."""

from __future__ import annotations

import logging
import shutil
import ssl
import subprocess
from base64 import b64encode
from pathlib import Path

import grpc
import httpx
import pytest
from collector_process import CollectorProcess
from opentelemetry._logs import LogRecord
from opentelemetry.exporter.otlp.proto.grpc._log_exporter import OTLPLogExporter
from opentelemetry.exporter.otlp.proto.grpc.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
from opentelemetry.exporter.otlp.proto.http import Compression
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter as HttpSpanExporter
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs.export import SimpleLogRecordProcessor
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter

from ingest import auth, otlp
from ingest.wal import WalReader

RESOURCE = Resource.create({"service.name": "assistant"})
TOKENS = [["app", auth.hashed("secret")], ["job", auth.hashed("other")]]


@pytest.fixture(scope="module")
def running(tmp_path_factory):
    with CollectorProcess(tmp_path_factory.mktemp("grpc")) as process:
        yield process


@pytest.fixture(scope="module")
def certificate(tmp_path_factory) -> tuple[Path, Path]:
    """A self-signed certificate of 127.0.0.1 and its key."""
    if shutil.which("openssl") is None:
        pytest.skip("makes its certificate with openssl, which is not installed")
    folder = tmp_path_factory.mktemp("tls")
    cert, key = folder / "cert.pem", folder / "key.pem"
    command = ["openssl", "req", "-x509", "-nodes", "-days", "2", "-newkey", "rsa:2048", "-subj", "/CN=127.0.0.1"]
    names = ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out", str(cert)]
    subprocess.run([*command, *names], check=True, capture_output=True)
    return cert, key


@pytest.fixture(scope="module")
def guarded(tmp_path_factory, certificate):
    """A collector with TLS and tokens."""
    home = tmp_path_factory.mktemp("guarded")
    with CollectorProcess(home, tls=certificate, tokens=TOKENS) as process:
        yield process


def batches(running: CollectorProcess, kind: str) -> list[otlp.Batch]:
    records = [record for _, record in WalReader(running.home / "wal").read(1 << 30) if record.kind == kind]
    return [otlp.decode(record.body, record.kind, record.encoding) for record in records]


def send(exporter: SpanExporter, names: list[str]) -> None:
    provider = TracerProvider(resource=RESOURCE)
    provider.add_span_processor(BatchSpanProcessor(exporter))
    for name in names:
        provider.get_tracer("test").start_span(name, attributes={"gen_ai.input.messages": "hello " * 100}).end()
    provider.force_flush()
    provider.shutdown()


def names_stored(running: CollectorProcess) -> list[str]:
    return sorted(span.name for batch in batches(running, "traces") for span in batch.spans)


@pytest.mark.parametrize("compression", list(grpc.Compression))
def test_spans_arrive_once_whatever_their_compression(running, compression, caplog):
    before = names_stored(running)
    names = [f"{compression.name}.{n}" for n in range(600)]
    with caplog.at_level(logging.DEBUG):
        send(OTLPSpanExporter(running.target, insecure=True, compression=compression), names)
    assert sorted(set(names_stored(running)) - set(before)) == sorted(names)
    assert len(names_stored(running)) == len(before) + 600
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


def test_logs_and_metrics_arrive(running):
    logs = LoggerProvider(resource=RESOURCE)
    exporter = OTLPLogExporter(running.target, insecure=True, compression=grpc.Compression.Gzip)
    logs.add_log_record_processor(SimpleLogRecordProcessor(exporter))
    logs.get_logger("test").emit(LogRecord(timestamp=5, event_name="gen_ai.evaluation.result", body={"ok": True}))
    logs.shutdown()
    (log,) = [log for batch in batches(running, "logs") for log in batch.logs]
    assert (log.event_name, log.time_ns, log.body, log.service) == (
        "gen_ai.evaluation.result", 5, {"ok": True}, "assistant",
    )  # fmt: skip
    reader = PeriodicExportingMetricReader(OTLPMetricExporter(running.target, insecure=True), 60_000)
    meters = MeterProvider([reader], resource=RESOURCE)
    meters.get_meter("test").create_counter("calls").add(1)
    meters.shutdown()
    assert [batch.metric_points for batch in batches(running, "metrics")] == [1]


def tls_channel(certificate: tuple[Path, Path]) -> grpc.ChannelCredentials:
    return grpc.ssl_channel_credentials(certificate[0].read_bytes())


def test_tls_and_a_token_let_both_transports_in(guarded, certificate, monkeypatch):
    for variable in ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"):  # would beat the exporter's certificate
        monkeypatch.delenv(variable, raising=False)
    bearer = {"authorization": "Bearer secret"}
    over_grpc = OTLPSpanExporter(
        f"https://{guarded.target}",
        credentials=tls_channel(certificate),
        headers=bearer,
        compression=grpc.Compression.Gzip,
    )
    send(over_grpc, ["over grpc"])
    over_http = HttpSpanExporter(
        f"{guarded.url}/v1/traces", certificate_file=str(certificate[0]), headers=bearer, compression=Compression.Gzip
    )
    send(over_http, ["over http"])
    assert names_stored(guarded) == ["over grpc", "over http"]


def test_without_a_token_the_grpc_exporter_is_told_and_nothing_is_stored(guarded, certificate, caplog):
    before = names_stored(guarded)
    send(OTLPSpanExporter(f"https://{guarded.target}", credentials=tls_channel(certificate)), ["lost"])
    assert "UNAUTHENTICATED" in caplog.text
    assert names_stored(guarded) == before


def test_plain_text_is_not_served_on_the_tls_ports(guarded):
    with pytest.raises(httpx.TransportError):
        httpx.get(f"http://127.0.0.1:{guarded.port}/healthz")
    with grpc.insecure_channel(guarded.target) as channel, pytest.raises(grpc.FutureTimeoutError):
        grpc.channel_ready_future(channel).result(1)


def test_sdks_of_langfuse_and_langsmith_find_their_paths_and_show_their_keys(guarded, certificate):
    trusted = ssl.create_default_context(cafile=str(certificate[0]))
    langfuse = {"authorization": "Basic " + b64encode(b"pk-lf-any:other").decode()}
    empty = {"content-type": "application/json"}
    with httpx.Client(base_url=guarded.url, verify=trusted) as client:
        for path, headers in (("/api/public/otel/v1/traces", langfuse), ("/otel/v1/traces", {"x-api-key": "secret"})):
            assert client.post(path, content=b"{}", headers=empty).status_code == 401
            assert client.post(path, content=b"{}", headers=empty | headers).status_code == 200
        metrics = client.get("/metrics", headers={"x-api-key": "secret"}).text
    assert 'retroute_token_requests_total{token="job"} 1' in metrics
