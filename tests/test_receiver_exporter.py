"""The real OpenTelemetry SDK sends over HTTP to a real collector: what it records is what decodes."""

from __future__ import annotations

import logging

import pytest
from collector_process import CollectorProcess
from opentelemetry._logs import LogRecord, SeverityNumber
from opentelemetry.exporter.otlp.proto.http import Compression
from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs.export import SimpleLogRecordProcessor
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import SpanKind, Status, StatusCode

from ingest import otlp
from ingest.spans import Event
from ingest.wal import WalReader

RESOURCE = Resource.create({"service.name": "assistant"})


@pytest.fixture(scope="module")
def running(tmp_path_factory):
    with CollectorProcess(tmp_path_factory.mktemp("exporter")) as process:
        yield process


def batches(running: CollectorProcess, kind: str) -> list[otlp.Batch]:
    records = [record for _, record in WalReader(running.home / "wal").read(1 << 30) if record.kind == kind]
    return [otlp.decode(record.body, record.kind, record.encoding) for record in records]


@pytest.mark.parametrize("compression", [Compression.NoCompression, Compression.Gzip])
def test_spans_arrive_as_they_were_recorded(running, compression):
    provider = TracerProvider(resource=RESOURCE)
    exporter = OTLPSpanExporter(f"{running.url}/v1/traces", compression=compression)
    provider.add_span_processor(BatchSpanProcessor(exporter))
    tracer = provider.get_tracer("test", "1.2")
    with tracer.start_as_current_span("invoke_agent", kind=SpanKind.INTERNAL) as root:
        for n in range(600):
            with tracer.start_as_current_span(f"chat {n}", kind=SpanKind.CLIENT) as child:
                child.set_attribute("gen_ai.usage.input_tokens", n)
                child.set_attribute("gen_ai.input.messages", '[{"role": "user"}]' * 20)
                if n == 599:
                    child.add_event("exception", {"exception.type": "Timeout"}, timestamp=7)
                    child.set_status(Status(StatusCode.ERROR, "too slow"))
    assert provider.force_flush()
    provider.shutdown()
    spans = {
        span.name: span
        for batch in batches(running, "traces")
        for span in batch.spans
        if span.trace_id == f"{root.get_span_context().trace_id:032x}"
    }
    assert len(spans) == 601
    last, top = spans["chat 599"], spans["invoke_agent"]
    assert last.parent_span_id == top.span_id == f"{root.get_span_context().span_id:016x}"
    assert (top.parent_span_id, top.kind, top.status) == (None, "internal", None)
    assert (last.kind, last.status, last.status_message) == ("client", "error", "too slow")
    assert last.events == (Event("exception", 7, {"exception.type": "Timeout"}),)
    assert last.attributes["gen_ai.usage.input_tokens"] == 599
    assert (last.service, last.scope.name, last.scope.version) == ("assistant", "test", "1.2")
    assert (last.start_ns, last.end_ns) == (child.start_time, child.end_time)


def test_logs_arrive_with_their_span_and_structure(running):
    provider = LoggerProvider(resource=RESOURCE)
    provider.add_log_record_processor(
        SimpleLogRecordProcessor(OTLPLogExporter(f"{running.url}/v1/logs", compression=Compression.Gzip))
    )
    body = {"parts": [{"type": "text", "content": "hi"}], "score": 0.5, "ok": True, "raw": b"\x00\x01"}
    provider.get_logger("test").emit(
        LogRecord(
            timestamp=5,
            severity_number=SeverityNumber.INFO,
            event_name="gen_ai.evaluation.result",
            body=body,
            attributes={"gen_ai.evaluation.name": "quality"},
        )
    )
    provider.shutdown()
    (log,) = [log for batch in batches(running, "logs") for log in batch.logs]
    assert (log.event_name, log.time_ns, log.service) == ("gen_ai.evaluation.result", 5, "assistant")
    assert log.body == body | {"raw": "AAE="}
    assert log.attributes == {"gen_ai.evaluation.name": "quality"}
    assert log.trace_id is None


def test_metrics_are_accepted_and_counted(running):
    reader = PeriodicExportingMetricReader(OTLPMetricExporter(f"{running.url}/v1/metrics"), 60_000)
    provider = MeterProvider([reader], resource=RESOURCE)
    counter = provider.get_meter("test").create_counter("calls")
    counter.add(1, {"model": "a"})
    counter.add(1, {"model": "b"})
    provider.shutdown()
    assert [batch.metric_points for batch in batches(running, "metrics")] == [2]
    assert running.health()["received"]["metric_points"] == 2


def test_the_exporter_does_not_complain(running, caplog):
    """A 200 with an empty body is what it takes for a success."""
    with caplog.at_level(logging.DEBUG):
        provider = TracerProvider(resource=RESOURCE)
        provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(f"{running.url}/v1/traces")))
        provider.get_tracer("test").start_span("one").end()
        assert provider.force_flush()
        provider.shutdown()
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]
