"""Quiet traces of the lake -> their rows in calls: reads spans and events, settles, writes in one transaction."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace
from operator import attrgetter

import orjson
import polars as pl
import pyarrow as pa

from ingest.dialects import messages
from ingest.dialects.facts import Content, LlmFacts
from ingest.lake import Lake
from ingest.pricing import Prices
from ingest.rows import COLUMNS, FACTS, content_row, digest
from ingest.settle import Call, Settled, TraceSpan, settle

_ROW_FACTS = tuple(name for name in FACTS if not name.startswith("policy_"))
_POLICY = tuple(name for name in FACTS if name.startswith("policy_"))
_CALL_COLUMNS = (
    *("trace_id", "span_id", "parent_call_id", "name", "service", *_ROW_FACTS, "cost_usd", "unpriced", "status"),
    *("start_ns", "end_ns", "attempts", "content_span_id", *_POLICY),
)
_ROLE_COLUMNS = ("trace_id", "span_id", "role", "call_id")
_TRACE_COLUMNS = ("trace_id", "service", "spans", "batch", "settled_ns")
_facts_of = attrgetter(*_ROW_FACTS)
_policy_of = attrgetter(*_POLICY)

Schemas = Mapping[str, pa.Schema]


def schemas(lake: Lake) -> Schemas:
    """The column types of all tables that are written."""
    names = (*COLUMNS, "settled_calls", "span_roles", "settled_traces")
    return {name: lake.schema(name) for name in names}


def table(schema: pa.Schema, columns: Sequence[str], rows: Sequence[tuple[object, ...]]) -> pa.Table:
    """Row tuples as an Arrow table with the lake's types."""
    types = [schema.field(name).type for name in columns]
    listed = zip(*rows, strict=True) if rows else ([] for _ in columns)
    arrays = [pa.array(list(values), type=kind) for values, kind in zip(listed, types, strict=True)]
    return pa.Table.from_arrays(arrays, names=list(columns))


def settle_traces(
    lake: Lake,
    types: Schemas,
    arrivals: Mapping[str, int],
    batch: int,
    prices: Prices,
    clock: Callable[[], int] = time.time_ns,
) -> None:
    """Settles traces with all that the lake holds of them up to commit `batch`. Doing it again gives the same rows.

    `arrivals`: trace id -> when the first span or event that was not settled yet arrived (ns).
    """
    before = set(lake.query("settled_among", trace_ids=list(arrivals))["trace_id"])
    fresh = [trace_id for trace_id in arrivals if trace_id not in before]
    frames = []
    events: dict[tuple[str, str], list[messages.Event]] = {}
    for ids, since_ns in ((fresh, min((arrivals[t] for t in fresh), default=None)), (sorted(before), None)):
        if ids:
            frames.append(lake.query("trace_spans", trace_ids=ids, since_ns=since_ns))
            for row in lake.query("trace_events", trace_ids=ids, since_ns=since_ns).iter_rows():
                trace_id, span_id, name, _, body, attributes = row
                event = (name, orjson.loads(body), orjson.loads(attributes))
                events.setdefault((trace_id, span_id), []).append(event)
    spans = pl.concat(frames)
    calls: list[tuple[object, ...]] = []
    roles: list[tuple[object, ...]] = []
    traces: list[tuple[object, ...]] = []
    contents: list[tuple[object, ...]] = []
    grouped = _by_trace(spans)
    now = clock()
    for trace_id in arrivals:
        found = []
        for span in grouped.get(trace_id, ()):
            if carried := events.get((trace_id, span.span_id)):
                told = messages.from_events(carried)
                contents.append(content_row(trace_id, span.span_id, _lacking(span, told), batch))
                span = _with_content(span, told)
            found.append(span)
        settled = settle(found, prices)
        calls += [_call_row(trace_id, call) for call in settled.calls]
        roles += _role_rows(trace_id, settled)
        traces.append((trace_id, settled.service, len(found), batch, now))
    lake.write(
        {
            "settled_calls": table(types["settled_calls"], _CALL_COLUMNS, calls),
            "span_roles": table(types["span_roles"], _ROLE_COLUMNS, roles),
            "settled_traces": table(types["settled_traces"], _TRACE_COLUMNS, traces),
            "content_log": table(types["content_log"], COLUMNS["content_log"], contents),
        },
        replace_traces=sorted(before),
    )


def _by_trace(spans: pl.DataFrame) -> dict[str, list[TraceSpan]]:
    grouped: dict[str, list[TraceSpan]] = {}
    own = [field.name for field in fields(TraceSpan) if field.name != "facts"]
    names = spans.columns
    own_at = [names.index(name) for name in own]
    facts_at = [names.index(name) for name in FACTS]
    trace_at = names.index("trace_id")
    for row in spans.iter_rows():
        values = dict(zip(own, (row[i] for i in own_at), strict=True))
        span = TraceSpan(facts=LlmFacts(*(row[i] for i in facts_at)), **values)
        grouped.setdefault(row[trace_at], []).append(span)
    return grouped


def _lacking(span: TraceSpan, told: Content) -> Content:
    """What events tell and the span itself did not."""
    return Content(
        None if span.input_chars else told.input_text, None if span.output_chars else told.output_text, told.tools
    )


def _with_content(span: TraceSpan, told: Content) -> TraceSpan:
    offered = span.facts.tools_offered or (messages.tool_names(told.tools) if told.tools else None)
    return replace(
        span,
        facts=replace(span.facts, tools_offered=offered),
        input_chars=span.input_chars or len(told.input_text or ""),
        output_chars=span.output_chars or len(told.output_text or ""),
        input_digest=span.input_digest or digest(told.input_text),
    )


def _call_row(trace_id: str, call: Call) -> tuple[object, ...]:
    return (
        *(trace_id, call.span_id, call.parent_call_id, call.name, call.service, *_facts_of(call.facts)),
        *(call.cost.usd, call.cost.unpriced, call.status, call.start_ns, call.end_ns, call.attempts),
        *(call.content_span_id, *_policy_of(call.facts)),
    )


def _role_rows(trace_id: str, settled: Settled) -> list[tuple[object, ...]]:
    return [(trace_id, role.span_id, role.role, role.call_id) for role in settled.roles]
