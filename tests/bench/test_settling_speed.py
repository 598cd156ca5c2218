"""What settling costs in CPU time: spans in memory -> rows, with prices and the search for calls recorded twice.

    pytest -m bench -s tests/bench/test_settling_speed.py

Prints a JSON object per kind of trace: microseconds a span, garbage collection included; the best of some rounds.
"""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable
from dataclasses import replace

import pytest

from ingest.dialects.facts import LlmFacts
from ingest.found import Found
from ingest.pricing import Prices, price_list
from ingest.settler import settled_rows
from ingest.trace_tree import TraceSpan

pytestmark = pytest.mark.bench

START = 1_760_000_000 * 10**9
MS = 10**6
PORTION = 20_000
"""Spans settled at once, as the settler does."""


def agent_trace(rng: random.Random, number: int) -> list[TraceSpan]:
    """8 spans: an agent, four model calls, three tools."""
    trace_id, start = f"{number:032x}", START + number * 10 * MS
    found = []
    for place in range(8):
        kind = "agent" if place == 0 else "llm" if place % 2 else "tool"
        facts = LlmFacts(kind, "otel", "openai", session_id=trace_id, agent="bench")  # type: ignore[arg-type]
        if kind == "llm":
            facts = replace(
                facts,
                model_requested="gpt-4o-mini",
                model_returned="gpt-4o-mini",
                input_tokens=rng.randrange(2000),
                output_tokens=rng.randrange(500),
                max_tokens=512,
                response_id=f"{rng.randrange(2**60):x}",
            )
        elif kind == "tool":
            facts = replace(facts, tool="search")
        asked, answered = (2150, 2150) if kind == "llm" else (0, 0)
        found.append(
            TraceSpan(
                f"{number:012x}{place:04x}",
                f"{number:012x}{0:04x}" if place else None,
                kind,
                "bench",
                start + place,
                start + 1000 * MS + place,
                None,
                facts,
                asked,
                answered,
                f"{rng.randrange(2**60):x}" if asked else None,
                trace_id,
                "bench",
            )
        )
    return found


def framework_trace(rng: random.Random, number: int) -> list[TraceSpan]:
    """8 spans of two instrumentations: an agent that sums up, a tool, three calls of the framework, each around the
    client's own span of the same call."""
    start, found = START + number * 10 * MS, agent_trace(rng, number)
    root, calls = found[0], [span for span in found if span.facts.kind == "llm"][:3]
    given, answered = (sum(span.usage[at] or 0 for span in calls) for at in (0, 1))
    spans = [replace(root, facts=replace(root.facts, input_tokens=given, output_tokens=answered)), found[2]]
    for place, call in enumerate(calls):
        outer = replace(call, start_ns=start + 300 * place * MS, end_ns=start + (300 * place + 250) * MS)
        inner = replace(
            outer,
            span_id=f"{number:012x}{place + 16:04x}",
            parent_span_id=outer.span_id,
            start_ns=outer.start_ns + MS,
            end_ns=outer.end_ns - MS,
            scope="client",
            facts=replace(call.facts, session_id=None, agent=None, max_tokens=None),
        )
        spans += [replace(outer, facts=replace(outer.facts, response_id=None)), inner]
    return spans


def retried_trace(rng: random.Random, number: int) -> list[TraceSpan]:
    """8 spans: an agent, three tools, and one call that was tried four times, below a routing decision."""
    found = agent_trace(rng, number)
    found[0] = replace(found[0], facts=replace(found[0].facts, policy_id="p", policy_action="gpt-4o-mini"))
    calls = [at for at, span in enumerate(found) if span.facts.kind == "llm"]
    for place, at in enumerate(calls):
        start = found[0].start_ns + 200 * place * MS
        call = replace(found[at], start_ns=start, end_ns=start + 150 * MS, input_digest=f"{number:x}")
        if at != calls[-1]:
            failed = replace(call.facts, input_tokens=None, output_tokens=None, response_id=None, error_type="429")
            call = replace(call, status="error", output_chars=0, facts=failed)
        found[at] = call
    return found


def lost_context(rng: random.Random, number: int) -> list[TraceSpan]:
    """Traces of 7 spans, an agent's, and of one: the client's own span of a call of the agent trace before."""
    if number % 8 == 0:
        return agent_trace(rng, number)
    spans = agent_trace(random.Random(number - number % 8), number - number % 8)
    call = [span for span in spans if span.facts.kind == "llm"][number % 4]
    lost = replace(call, span_id=f"{number:016x}", parent_span_id=None, trace_id=f"{number:032x}", scope="client")
    return [replace(lost, start_ns=call.start_ns + MS, end_ns=call.end_ns - MS)]


def one_trace(rng: random.Random, number: int) -> list[TraceSpan]:
    """A trace of as many spans as all the others together: the agents run one below the other."""
    found = []
    for part in range(PORTION // 8):
        run = agent_trace(rng, part)
        run[0] = replace(run[0], parent_span_id=f"{part - 1:012x}{0:04x}" if part else None)
        found += [replace(span, trace_id="1") for span in run]
    return found


def us_per_span(make: Callable[[random.Random, int], list[TraceSpan]], prices: Prices, traces: int) -> float:
    """CPU microseconds a span, the best of five rounds."""
    rng, found = random.Random(0), Found()
    for number in range(traces):
        spans = make(rng, number)
        found.add(spans[0].trace_id, spans, [])
    size = sum(len(spans) for spans in found.spans.values())
    best = float("inf")
    for _ in range(5):
        began = time.process_time()
        rows = settled_rows(found, list(found.spans), 1, prices, 1)
        best = min(best, time.process_time() - began)
        assert len(rows.traces) == len(found.spans)
    return best / size * 1e6


@pytest.mark.parametrize(
    ("make", "traces"),
    [
        (agent_trace, PORTION // 8),
        (framework_trace, PORTION // 8),
        (retried_trace, PORTION // 8),
        (lost_context, PORTION // 8),
        (one_trace, 1),
    ],
)
def test_cost_of_settling(make: Callable[[random.Random, int], list[TraceSpan]], traces: int) -> None:
    cost = us_per_span(make, price_list(), traces)
    print(json.dumps({"what": make.__name__, "us_per_span": round(cost, 1)}))
    assert cost < 60  # twice what it takes on two shared cores
