"""Rows of agent traces as the converter writes them, made fast: 8 spans a trace (an agent, three model calls, four
tools), of which each model call has two texts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
import polars as pl
import pyarrow as pa

from ingest.lake import Lake

TRACE = 8
DAYS = 10
START_NS = 1_780_000_000_000_000_000
DAY_NS = 86_400_000_000_000
KINDS = ("agent", "llm", "tool", "llm", "tool", "llm", "tool", "tool")
MODELS = ("gpt-4o", "gpt-4o-mini", "claude-sonnet-4-5", "claude-haiku-4-5", "gemini-2.5-pro", "gemini-2.5-flash")
SERVICES = ("shop", "search", "support", "sql-agent", "assistant")


def commits(lake: Lake, spans: int, each: int, text_chars: int = 600) -> Iterator[Mapping[str, pa.Table]]:
    """Rows of all tables for one `Lake.write` after the other: what was received and what was settled of it. Their
    starts lie over `DAYS` days."""
    schemas = {
        name: lake.schema(name)
        for name in ("span_log", "content_log", "ingest_log", "settled_calls", "span_roles", "settled_traces")
    }
    rng = np.random.default_rng(7)
    words = np.array(["route", "model", "answer", "question", "token", "latency", "agent", "tool", "search", "plan"])
    texts = [" ".join(rng.choice(words, text_chars // 6))[:text_chars] for _ in range(500)]
    for number, first in enumerate(range(0, spans, each), start=1):
        frames = _frames(rng, texts, first, min(each, spans - first), number, spans)
        yield {name: _typed(frames[name], schema) for name, schema in schemas.items()}


def trace_id(number: int) -> str:
    return f"{number * 0x9E3779B97F4A7C15F39CC0605CEDC835 % 2**128:032x}"


def _frames(
    rng: np.random.Generator, texts: list[str], first: int, count: int, batch: int, spans: int
) -> dict[str, pl.DataFrame]:
    place = np.arange(count) % TRACE
    trace = np.arange(first, first + count) // TRACE
    ids = {number: trace_id(number) for number in np.unique(trace).tolist()}
    start_ns = START_NS + trace * (DAYS * DAY_NS // (spans // TRACE)) + place * 1_000_000_000
    latency_ns = rng.lognormal(0.0, 0.7, count) * 1e9
    frame = pl.DataFrame(
        {
            "trace_id": [ids[number] for number in trace.tolist()],
            "span_id": [f"{number * 0x9E3779B97F4A7C15 % 2**64:016x}" for number in range(first, first + count)],
            "kind": np.array(KINDS)[place],
            "service": np.array(SERVICES)[trace % len(SERVICES)],
            "start_ns": start_ns,
            "end_ns": start_ns + latency_ns.astype(np.int64),
            "model": np.array(MODELS)[rng.integers(0, len(MODELS), count)],
            "input": rng.integers(50, 4000, count),
            "output": rng.integers(5, 800, count),
            "text": np.array(texts, dtype=object)[rng.integers(0, len(texts), count)].tolist(),
            "answer": np.array(texts, dtype=object)[rng.integers(0, len(texts), count)].tolist(),
        }
    )
    llm = pl.col("kind") == "llm"
    root = pl.col("span_id").first().over("trace_id")
    called = {
        "parent": pl.when(pl.col("kind") != "agent").then(root),
        "model": pl.when(llm).then("model"),
        "provider": pl.when(llm).then(pl.lit("openai")),
        "input": pl.when(llm).then("input"),
        "output": pl.when(llm).then("output"),
        "tool": pl.when(pl.col("kind") == "tool").then(pl.lit("search")),
        "response": pl.when(llm).then(pl.concat_str(pl.lit("resp-"), "span_id")),
        "cost_usd": pl.when(llm).then(pl.col("input") * 2.5e-6 + pl.col("output") * 1e-5),
    }
    frame = frame.with_columns(**called, session=pl.lit("s-") + pl.col("trace_id").str.slice(0, 8), batch=pl.lit(batch))
    shared = {
        **{name: name for name in ("trace_id", "span_id", "kind", "service", "start_ns", "end_ns", "provider", "tool")},
        "model_requested": "model",
        "model_returned": "model",
        "input_tokens": "input",
        "output_tokens": "output",
        "name": "kind",
        "session_id": "session",
        "response_id": "response",
    }
    common = frame.select(**{name: pl.col(column) for name, column in shared.items()}, dialect=pl.lit("otel"))
    received = {
        "parent_span_id": "parent",
        "batch": "batch",
        "received_ns": "end_ns",
    }
    said = frame.select(
        **{name: pl.col(column) for name, column in received.items()},
        line=pl.int_range(count),
        attributes=pl.format(
            "{}{}{}",
            pl.lit('{"app.tenant":"t1","app.release":"2026.11","app.note":"'),
            pl.col("text").str.head(80),
            pl.lit('"}'),
        ),
        resource=pl.lit('{"service.name":"bench","host.name":"node-17","telemetry.sdk.language":"python"}'),
        input_chars=pl.when(llm).then(pl.col("text").str.len_chars()).otherwise(0),
        output_chars=pl.when(llm).then(pl.col("answer").str.len_chars()).otherwise(0),
    )
    priced = frame.select(
        parent_call_id="parent",
        cost_usd="cost_usd",
        status=pl.lit("ok"),
        attempts=pl.lit(1),
        content_span_id=pl.when(llm).then("span_id"),
    )
    traces = frame.group_by("trace_id", "service", "batch", maintain_order=True).agg(
        spans=pl.len(), session_id=pl.first("session")
    )
    return {
        "span_log": pl.concat([common, said], how="horizontal"),
        "content_log": frame.filter(llm).select(
            "trace_id", "span_id", "batch", input_text="text", output_text="answer", tools=pl.lit(None)
        ),
        "ingest_log": pl.DataFrame({"batch": [batch], "position": [f"1:{batch}"], "requests": [1], "spans": [count]}),
        "settled_calls": pl.concat([common, priced], how="horizontal"),
        "span_roles": frame.select("trace_id", "span_id", role=pl.lit("own"), call_id="span_id"),
        "settled_traces": traces.with_columns(settled_ns=pl.lit(START_NS)),
    }


def _typed(frame: pl.DataFrame, schema: pa.Schema) -> pa.Table:
    """The frame with all the lake's columns; NULL where it has none."""
    made = frame.to_arrow()
    columns = [
        made[field.name].cast(field.type) if field.name in made.column_names else pa.nulls(len(frame), field.type)
        for field in schema
    ]
    return pa.Table.from_arrays(columns, schema=schema)
