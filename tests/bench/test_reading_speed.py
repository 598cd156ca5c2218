"""What it costs to read spans: decoding a request, then facts, texts, sizes and scores of each of its spans.

pytest -m bench -s tests/bench/test_reading_speed.py prints microseconds of CPU per span, per convention and encoding.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

import orjson
import otlp_load
import pytest
import read_load
from google.protobuf.json_format import MessageToDict
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from ingest import otlp, otlp_json, sealing

pytestmark = pytest.mark.bench

SPANS = 2048
ROUNDS = 9
LOADS: dict[str, tuple[Callable[[], Iterable[bytes]], float]] = {
    "OpenTelemetry GenAI, 3.8 KB a span": (lambda: otlp_load.bodies(SPANS, 2150), 35),
    "OpenTelemetry GenAI, 1 KB a span": (lambda: otlp_load.bodies(SPANS, 350), 35),
    "OpenInference, 5 messages spread over keys": (lambda: read_load.bodies(SPANS), 60),
}
"""Load -> its requests, and the most that a span may cost (us) in protobuf on the machine that it was measured on."""


@pytest.mark.parametrize("name", LOADS)
@pytest.mark.parametrize("encoding", ["protobuf", "json"])
def test_cost_of_reading_a_span(name: str, encoding: otlp.Encoding) -> None:
    load, most = LOADS[name]
    sent = [body if encoding == "protobuf" else as_json(body) for body in load()]
    batches = [otlp.decode(body, "traces", encoding) for body in sent]

    def decode() -> None:
        for body in sent:
            otlp.decode(body, "traces", encoding)

    def read() -> None:
        for batch in batches:
            for span in batch.spans:
                reading = sealing.read(span)
                sealing.sizes(span, reading.content)
                list(sealing.scores(span))

    decoding, reading = best_us(decode), best_us(read)
    print(f"\n{name}, {encoding}: {decoding:.1f} us to decode, {reading:.1f} us to read")
    if encoding == "protobuf":
        assert decoding + reading <= most


def best_us(work: Callable[[], None]) -> float:
    """CPU per span: the best of some rounds, for the others were disturbed."""
    took = []
    for _ in range(ROUNDS):
        began = time.process_time()
        work()
        took.append(time.process_time() - began)
    return min(took) / SPANS * 1e6


def as_json(body: bytes) -> bytes:
    """The request as OTLP/JSON has it: ids in hex."""
    request = MessageToDict(ExportTraceServiceRequest.FromString(body))
    for group in request["resourceSpans"]:
        for scope in group["scopeSpans"]:
            for span in scope["spans"]:
                for name in span.keys() & {"traceId", "spanId", "parentSpanId"}:
                    span[name] = otlp_json.from_base64(span[name]).hex()
    return orjson.dumps(request)
