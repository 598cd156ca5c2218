"""A load of agent traces in OTLP/HTTP protobuf, and a sender that measures how fast a server takes it."""

from __future__ import annotations

import http.client
import random
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from urllib.parse import urlsplit

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue

BATCH = 512
TRACE = 8
WORDS = (
    *("route", "model", "answer", "question", "token", "latency", "agent"),
    *("tool", "search", "plan", "write", "check", "summary", "order"),
)


@dataclass(frozen=True)
class Sent:
    """What was acknowledged: spans, seconds from first byte to last answer, and each request's seconds."""

    spans: int
    seconds: float
    latencies_s: tuple[float, ...]

    @property
    def spans_per_s(self) -> float:
        return self.spans / self.seconds

    def percentile_ms(self, share: float) -> float:
        ordered = sorted(self.latencies_s)
        return 1000 * ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def bodies(spans: int, text_chars: int, seed: int = 0) -> Iterator[bytes]:
    """Requests of 512 spans, 8 a trace (an agent, three model calls, four tools); each model call holds two texts of
    `text_chars`."""
    rng = random.Random(seed)
    pool = [" ".join(rng.choices(WORDS, k=text_chars // 6 + 1))[:text_chars] for _ in range(200)]
    for _ in range(0, spans, BATCH):
        request = ExportTraceServiceRequest()
        resource = request.resource_spans.add()
        resource.resource.attributes.append(text("service.name", "bench"))
        scope = resource.scope_spans.add()
        scope.scope.name = "bench"
        for _ in range(BATCH // TRACE):
            _trace(scope, rng, pool)
        yield request.SerializeToString()


def _trace(scope, rng: random.Random, pool: Sequence[str]) -> None:  # type: ignore[no-untyped-def]
    trace_id, root = rng.randbytes(16), rng.randbytes(8)
    start = time.time_ns()
    for place in range(TRACE):
        span = scope.spans.add()
        span.trace_id, span.span_id = trace_id, root if place == 0 else rng.randbytes(8)
        if place:
            span.parent_span_id = root
        span.start_time_unix_nano, span.end_time_unix_nano = start + place, start + 10**9 + place
        kind = "invoke_agent" if place == 0 else "chat" if place % 2 else "execute_tool"
        span.name = kind
        span.attributes.extend(
            [
                text("gen_ai.operation.name", kind),
                text("gen_ai.provider.name", "openai"),
                text("gen_ai.conversation.id", trace_id.hex()),
                text("gen_ai.agent.name", "bench"),
                text("app.tenant", "t1"),
                text("app.release", "2026.11"),
            ]
        )
        if kind == "chat":
            span.attributes.extend(
                [
                    text("gen_ai.request.model", "gpt-4o-mini"),
                    text("gen_ai.response.model", "gpt-4o-mini"),
                    text("gen_ai.response.id", span.span_id.hex()),
                    number("gen_ai.usage.input_tokens", rng.randrange(2000)),
                    number("gen_ai.usage.output_tokens", rng.randrange(500)),
                    number("gen_ai.request.max_tokens", 512),
                    text("gen_ai.input.messages", message("user", rng.choice(pool))),
                    text("gen_ai.output.messages", message("assistant", rng.choice(pool))),
                ]
            )
        else:
            span.attributes.extend([text("gen_ai.tool.name", "search"), text("app.note", rng.choice(pool))])


def message(role: str, content: str) -> str:
    return f'[{{"role":"{role}","parts":[{{"type":"text","content":"{content}"}}]}}]'


def text(key: str, value: str) -> KeyValue:
    return KeyValue(key=key, value=AnyValue(string_value=value))


def number(key: str, value: int) -> KeyValue:
    return KeyValue(key=key, value=AnyValue(int_value=value))


def send(
    url: str,
    requests: Sequence[bytes],
    connections: int = 4,
    rate: float | None = None,
    headers: Mapping[str, str] = {},
) -> Sent:
    """POST all bodies over a few keep-alive connections; `rate` in spans per second spaces them evenly. A refused
    request (503) is repeated until it is taken. Raises AssertionError on any other answer than 200."""
    fields = {"content-type": "application/x-protobuf", **headers}
    address = urlsplit(url)
    lock, waiting = threading.Lock(), iter(enumerate(requests))
    began = time.perf_counter()

    def work(_: int) -> list[float]:
        connection = http.client.HTTPConnection(address.hostname or "", address.port, timeout=60)
        took = []
        while True:
            with lock:
                item = next(waiting, None)
            if item is None:
                connection.close()
                return took
            place, body = item
            if rate is not None:
                time.sleep(max(0.0, began + place * BATCH / rate - time.perf_counter()))
            start = time.perf_counter()
            while True:
                connection.request("POST", address.path, body, fields)
                answer = connection.getresponse()
                answer.read()
                if answer.status != 503:
                    break
                time.sleep(0.05)
            assert answer.status == 200, answer.status
            took.append(time.perf_counter() - start)

    with ThreadPoolExecutor(connections) as pool:
        latencies = [seconds for part in pool.map(work, range(connections)) for seconds in part]
    return Sent(len(requests) * BATCH, time.perf_counter() - began, tuple(latencies))
