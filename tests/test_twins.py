"""Calls recorded apart are one call as far as the evidence goes, also when two services recorded them."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from otlp_traces import SECOND, START, agent, chat, span
from settled_payloads import settled_calls

from ingest.dialects.facts import LlmFacts
from ingest.settle import TraceSpan
from ingest.spans import Scope, Span
from ingest.twins import twins

MS = 1_000_000
ASKED: dict[str, Any] = {"gen_ai__input__messages": "Hi"}
R = {"gen_ai__response__id": "r"}


def by(scope: str, sent: Span) -> Span:
    """The span as another instrumentation records it."""
    return replace(sent, scope=Scope(scope))


def call(
    number: int,
    attributes: dict[str, object],
    *,
    trace: int = 1,
    parent: int | None = None,
    service: str = "shop",
    inside: int = 0,
    late_ms: int = 0,
    scope: str = "framework",
) -> Span:
    """A call of 100 ms; `inside` takes milliseconds off both ends."""
    start, end = START + (late_ms + inside) * MS, START + (late_ms + 100 - inside) * MS
    return by(scope, span(number, attributes, trace=trace, parent=parent, service=service, start_ns=start, end_ns=end))


def llm_rows(*spans: Span) -> list[int]:
    """The numbers of the spans that are a row."""
    found = settled_calls([(spans, ())])
    return [int(row["span_id"], 16) for row in found if row["kind"] == "llm"]


def root(number: int, trace: int, service: str = "shop") -> Span:
    return by("framework", span(number, agent(), trace=trace, service=service, start_ns=START - SECOND))


def test_a_gateway_that_starts_a_trace_of_its_own_records_no_second_call() -> None:
    """Neither has lost its context: the response id tells."""
    app = (root(1, 1), call(2, chat(**R), parent=1))
    gateway = (
        root(3, 2, "gateway"),
        call(4, chat("openai/gpt-4o-mini", **R), trace=2, parent=3, service="gateway", inside=5, scope="gateway"),
    )
    assert llm_rows(*app, *gateway) == [2]
    assert llm_rows(*gateway, *app) == [2]


@pytest.mark.parametrize(("late_ms", "expected"), [(300, 1), (3_000, 2)])
def test_clocks_of_two_hosts_may_differ_by_a_second(late_ms: int, expected: int) -> None:
    app = (root(1, 1), call(2, chat(**R), parent=1))
    other = call(4, chat(**R), trace=2, service="gateway", late_ms=late_ms, scope="gateway")
    assert len(llm_rows(*app, other)) == expected


@pytest.mark.parametrize(
    ("mine", "theirs", "expected"),
    [
        (ASKED, ASKED, 1),
        (ASKED, {"gen_ai__input__messages": "Bye"}, 2),
        (ASKED, {}, 2),  # equal counts alone are chance between services
        ({}, {}, 2),
    ],
)
def test_two_services_recorded_one_call_if_they_tell_one_prompt(
    mine: dict[str, Any], theirs: dict[str, Any], expected: int
) -> None:
    app = (root(1, 1), call(2, chat(**mine), parent=1))
    lost = call(3, chat(**theirs), trace=2, service="client", inside=5, scope="client")
    assert len(llm_rows(*app, lost)) == 2  # in a trace of its own only the response tells
    beside = call(3, chat(**theirs), parent=1, service="client", inside=5, scope="client")
    assert len(llm_rows(*app, beside)) == expected


def test_one_prompt_of_two_services_that_kept_their_contexts_is_two_calls() -> None:
    one = (root(1, 1), call(2, chat(**ASKED), parent=1))
    other = (root(3, 2, "b"), call(4, chat(**ASKED), trace=2, parent=3, service="b", inside=5, scope="client"))
    assert llm_rows(*one, *other) == [2, 4]


def test_a_call_on_another_branch_of_the_trace_is_one_by_its_response_id_only() -> None:
    def rows(more: dict[str, Any]) -> list[int]:
        step = by("framework", span(2, {"gen_ai.operation.name": "plan"}, parent=1, start_ns=START - MS))
        inner = call(4, chat(**more), parent=1, inside=5, scope="client")
        return llm_rows(root(1, 1), step, call(3, chat(**more), parent=2), inner)

    assert rows(R) == [3]
    assert rows({}) == [3, 4]


def test_all_sights_in_the_line_of_a_twin_go_with_it() -> None:
    app = (root(1, 1), call(2, chat(), parent=1))
    lost = call(3, chat(), trace=2, inside=5, scope="client")
    wire = call(4, chat(**R), trace=2, parent=3, inside=10, scope="http")
    assert llm_rows(*app, lost, wire) == [2]


def test_equal_response_ids_of_a_stub_make_no_twins_of_calls_that_both_instrumentations_recorded() -> None:
    spans: list[Span] = []
    for trace in (1, 2):
        numbers = [10 * trace + n for n in range(3)]
        spans += [
            root(numbers[0], trace),
            call(numbers[1], chat(**R), trace=trace, parent=numbers[0]),
            call(numbers[2], chat(**R), trace=trace, parent=numbers[1], inside=5, scope="client"),
        ]
    assert sorted(llm_rows(*spans)) == [12, 22]


def seen(number: int, facts: LlmFacts, start_ms: int, lasts_ms: int, scope: str, **more: Any) -> TraceSpan:
    start = START + start_ms * MS
    whole = {"trace_id": str(number), "scope": scope, "parent_span_id": None, "service": "shop", **more}
    return TraceSpan(
        span_id=f"s{number}",
        name="chat",
        start_ns=start,
        end_ns=start + lasts_ms * MS,
        status=None,
        facts=facts,
        **whole,
    )


@st.composite
def calls_at_once(draw: st.DrawFn) -> list[TraceSpan]:
    """Calls with few different ids, prompts and counts, in some traces, in line or not."""
    found: list[TraceSpan] = []
    for number in range(draw(st.integers(2, 9))):
        facts = LlmFacts(
            "llm",
            model_requested="m",
            input_tokens=draw(st.sampled_from((None, 10, 20))),
            output_tokens=draw(st.sampled_from((None, 1))),
            response_id=draw(st.sampled_from((None, None, "r", "q"))),
        )
        found.append(
            seen(
                number,
                facts,
                draw(st.integers(0, 3)),
                draw(st.integers(0, 9)),
                draw(st.sampled_from("abc")),
                trace_id=draw(st.sampled_from("tu")),
                parent_span_id=draw(st.none() | st.integers(0, 9).map("s{}".format)),
                service=draw(st.sampled_from(("shop", "shop", "gateway"))),
                input_digest=draw(st.sampled_from((None, "d", "e"))),
                output_chars=draw(st.integers(0, 1)),
            )
        )
    return found


@given(calls_at_once(), st.randoms(use_true_random=False))
def test_the_order_of_spans_changes_no_twin(spans: list[TraceSpan], shuffle: random.Random) -> None:
    found = twins(spans)
    other = list(spans)
    shuffle.shuffle(other)
    assert twins(other) == found
    assert not set(found) & set(found.values()), "an owner has its row"


def failed(number: int) -> TraceSpan:
    """A thousand at one time, each recorded twice, with nothing to tell them apart but their times."""
    facts = LlmFacts("llm", model_requested="m", error_type="429")
    return seen(number, facts, number // 2, 1_000, "framework" if number % 2 else "client")


def answered(number: int) -> TraceSpan:
    """One prompt again and again, each call recorded twice."""
    facts = LlmFacts("llm", model_requested="m", input_tokens=10, output_tokens=number // 2)
    return seen(number, facts, number // 2 * 10, 9, "framework" if number % 2 else "client", input_digest="d")


@pytest.mark.parametrize("make", [failed, answered])
def test_ten_times_the_calls_take_no_more_than_some_ten_times_as_long(make: Callable[[int], TraceSpan]) -> None:
    def seconds(size: int) -> float:
        spans = [make(number) for number in range(size)]
        began = time.process_time()
        found = twins(spans)
        took = time.process_time() - began
        assert len(found) == size // 2
        return took

    few, many = (min(seconds(size) for _ in range(3)) for size in (1_000, 10_000))  # what else runs only adds
    assert many < 40 * few + 0.2  # quadratic would be 100 times
