"""Logfire's placeholders of spans that have only begun are no calls and change none, whenever they arrive."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from otlp_traces import agent, chat, span, span_id, tool
from settled_payloads import settled_calls

from ingest.dialects.registry import read
from ingest.spans import Span

RUN = {"agent_name": "planner", "pydantic_ai.all_messages": '[{"role":"user","content":"Hi"}]'}
REAL = (
    span(1, {**RUN, "logfire.span_type": "span"}),
    span(2, chat(session__id="s", gen_ai__input__messages="Hi", logfire__span_type="span"), parent=1),
    span(3, tool(tool_arguments="{}"), parent=1),
    span(4, agent("helper"), parent=1),
    span(5, chat("gpt-4o", None, None), parent=4, status="error"),
)


def pending(of: Span, **changes: Any) -> Span:
    """What is sent when a span starts: its child, with what is known by then."""
    begun = {key: value for key, value in of.attributes.items() if ".usage." not in key}
    told = {"logfire.span_type": "pending_span", "logfire.pending_parent_id": of.parent_span_id or "0" * 16}
    number = int(of.span_id, 16) + 100
    child = replace(of, span_id=span_id(number), parent_span_id=of.span_id, end_ns=of.start_ns, status=None)
    return replace(child, attributes={**begun, **told}, **changes)


def calls(spans: list[Span]) -> list[dict[str, Any]]:
    return settled_calls([((one,), ()) for one in spans])


@pytest.mark.parametrize("real", REAL, ids=lambda one: str(one.attributes.get("gen_ai.operation.name")))
def test_a_placeholder_is_no_call(real: Span) -> None:
    assert read(pending(real)).facts.kind == "other"
    assert calls([pending(real)]) == []
    assert len(calls([real])) == 1


@settings(max_examples=30)
@given(st.permutations([*REAL, *map(pending, REAL)]), st.booleans())
def test_placeholders_change_nothing_in_any_order(sent: list[Span], same_id: bool) -> None:
    if same_id:  # as a copy that is overwritten when the span ends
        names = {span_id(int(one.span_id, 16) + 100): one for one in REAL}
        sent = [
            replace(one, span_id=real.span_id, parent_span_id=real.parent_span_id)
            if (real := names.get(one.span_id))
            else one
            for one in sent
        ]
    assert calls(sent) == calls(list(REAL))
