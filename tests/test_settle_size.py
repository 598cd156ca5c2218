"""Settling is linear in a trace's spans, whatever its shape, and a giant trace is settled after all others."""

from __future__ import annotations

import time
import tracemalloc
from collections.abc import Callable

import pytest
from otlp_traces import START, agent, chat, span, tool
from test_settle import POLICY, PRICES, seen

from ingest.settle import TraceSpan, settle
from ingest.settler import portions

SHAPES: dict[str, Callable[[int], int | None]] = {
    "deep": lambda number: number - 1 or None,
    "flat": lambda number: 1 if number > 1 else None,
    "comb": lambda number: (number - 1 if number % 2 else max(number - 2, 1)) if number > 1 else None,
    "roots": lambda number: None,
}


def trace(shape: str, size: int) -> list[TraceSpan]:
    """Agents, tools and calls in turn; every third carries a decision, every call the same prompt and counts."""
    kinds = (agent("a"), tool(), chat(gen_ai__input__messages="Hi"))
    found = []
    for number in range(1, size + 1):
        kind = kinds[number % 3]
        carried = {**kind, **POLICY} if number % 9 == 0 else kind
        at = START + number
        found.append(seen(span(number, carried, parent=SHAPES[shape](number), start_ns=at, end_ns=at)))
    return found


def seconds(spans: list[TraceSpan]) -> float:
    started = time.process_time()
    settle(spans, PRICES)
    return time.process_time() - started


@pytest.mark.parametrize("shape", SHAPES)
def test_ten_times_the_spans_take_no_more_than_some_ten_times_as_long(shape: str) -> None:
    small, large = trace(shape, 1_000), trace(shape, 10_000)
    few, many = (min(seconds(spans) for _ in range(3)) for spans in (small, large))  # what else runs only adds
    assert many < 40 * few + 0.2  # quadratic would be 100 times


def test_twenty_thousand_spans_settle_in_little_memory() -> None:
    spans = trace("flat", 20_000)
    settle(spans[:10], PRICES)
    tracemalloc.start()
    try:
        settle(spans, PRICES)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 2_500 * len(spans), "bytes: rows with facts of their own, and what the tree takes"


def test_a_giant_trace_comes_last_and_alone() -> None:
    sizes = {"giant": 50, "a": 3, "b": 4, "c": 5}
    assert list(portions(["giant", "a", "b", "c"], sizes, 8)) == [["a", "b"], ["c"], ["giant"]]
