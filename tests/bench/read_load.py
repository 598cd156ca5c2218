"""A load of model calls in OpenInference's convention, with their messages spread over attribute keys."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from otlp_load import BATCH, WORDS, number, text

TURNS = 5
"""Messages of a model call's input, on average."""


def bodies(spans: int, text_chars: int = 350, seed: int = 0) -> Iterator[bytes]:
    """Requests of 512 spans: two model calls, then a chain. Each call has a system message, up to 8 turns and an answer
    of `text_chars` each; one of three calls asks for a tool."""
    rng = random.Random(seed)
    pool = [" ".join(rng.choices(WORDS, k=text_chars // 6 + 1))[:text_chars] for _ in range(200)]
    for _ in range(0, spans, BATCH):
        request = ExportTraceServiceRequest()
        resource = request.resource_spans.add()
        resource.resource.attributes.append(text("service.name", "bench"))
        scope = resource.scope_spans.add()
        scope.scope.name = "openinference.instrumentation.openai"
        for place in range(BATCH):
            span = scope.spans.add()
            span.trace_id, span.span_id = rng.randbytes(16), rng.randbytes(8)
            span.start_time_unix_nano, span.end_time_unix_nano = 10**18 + place, 10**18 + 10**9 + place
            span.name = "chain" if place % 3 == 2 else "ChatCompletion"
            span.attributes.extend(_chain(rng, pool) if place % 3 == 2 else _call(rng, pool))
        yield request.SerializeToString()


def _chain(rng, pool):  # type: ignore[no-untyped-def]
    yield text("openinference.span.kind", "CHAIN")
    yield text("session.id", f"s{rng.randrange(100)}")
    yield text("input.value", rng.choice(pool))
    yield text("output.value", rng.choice(pool))


def _call(rng, pool):  # type: ignore[no-untyped-def]
    messages = [{"role": "system", "content": rng.choice(pool)}]
    messages += [
        {"role": ("user", "assistant")[turn % 2], "content": rng.choice(pool)}
        for turn in range(rng.randrange(1, 2 * TURNS - 2))
    ]
    answer = rng.choice(pool)
    yield text("openinference.span.kind", "LLM")
    yield text("llm.system", "openai")
    yield text("llm.provider", "openai")
    yield text("llm.model_name", "gpt-4o-mini-2024-07-18")
    yield text("llm.invocation_parameters", '{"model": "gpt-4o-mini", "temperature": 0.2, "max_tokens": 512}')
    yield text("session.id", f"s{rng.randrange(100)}")
    yield text("user.id", f"u{rng.randrange(100)}")
    yield text("input.value", json.dumps({"messages": messages, "model": "gpt-4o-mini"}))
    yield text("input.mime_type", "application/json")
    yield text("output.value", json.dumps({"id": f"chatcmpl-{rng.randrange(10**9)}", "object": "chat.completion"}))
    yield text("output.mime_type", "application/json")
    for place, message in enumerate(messages):
        yield text(f"llm.input_messages.{place}.message.role", message["role"])
        yield text(f"llm.input_messages.{place}.message.content", message["content"])
    yield text("llm.output_messages.0.message.role", "assistant")
    if rng.random() < 1 / 3:
        call = "llm.output_messages.0.message.tool_calls.0.tool_call."
        yield text(f"{call}id", f"call_{rng.randrange(10**9)}")
        yield text(f"{call}function.name", "search")
        yield text(f"{call}function.arguments", json.dumps({"query": answer[:40]}))
    else:
        yield text("llm.output_messages.0.message.content", answer)
    yield number("llm.token_count.prompt", rng.randrange(2000))
    yield number("llm.token_count.completion", rng.randrange(500))
    yield number("llm.token_count.total", 2500)
    yield number("llm.token_count.prompt_details.cache_read", 0)
