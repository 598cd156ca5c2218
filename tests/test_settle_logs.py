"""Calls that only log records tell of; a span of the same call makes them one."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import corpus
import pytest
from otlp_traces import chat, span, tool
from settled_payloads import PRICES, Records, decoded, settled_calls
from test_settle import seen

from ingest.settle import SpanRole, TraceSpan, settle
from ingest.spans import LogRecord

AGENT = corpus.Case(corpus.GOLDEN / "claude_code_native" / "bash_weather_json")
DETAILS = corpus.Case(corpus.GOLDEN / "openlit" / "basic")


def records(case: corpus.Case) -> list[Records]:
    return decoded((r.kind, r.encoding, r.body) for r in case.records() if r.kind in ("traces", "logs"))


def only_logs(case: corpus.Case) -> list[Records]:
    return [((), logs) for _, logs in records(case)]


def counts(calls: list[dict[str, Any]]) -> list[tuple[int, int]]:
    return sorted((call["input_tokens"], call["output_tokens"]) for call in calls if call["kind"] == "llm")


@pytest.mark.parametrize("case", [AGENT, DETAILS], ids=lambda case: case.name)
def test_logs_alone_tell_the_same_calls_as_logs_and_spans(case: corpus.Case) -> None:
    alone, both = settled_calls(only_logs(case)), settled_calls(records(case))
    assert counts(alone) == counts(both)
    assert len(counts(alone)) == len(case.truth["llm_calls"])


def test_a_logged_run_of_an_agent_has_its_prompt_its_answer_and_its_tools() -> None:
    found = settled_calls(only_logs(AGENT))
    (run,) = (call for call in found if call["kind"] == "agent")
    (used,) = (call for call in found if call["kind"] == "tool")
    assert "print a greeting" in run["input_text"]
    assert "Bash says hello" in run["output_text"]
    assert used["tool"] == "Bash"
    assert {call["parent_call_id"] for call in found if call is not run} == {run["span_id"]}
    assert {call["session_id"] for call in found} == {run["session_id"]}


def test_records_without_a_span_context_make_a_trace_for_each_prompt() -> None:
    loose = [
        ((), [LogRecord(log.time_ns, log.event_name, log.body, log.attributes, log.resource) for log in logs])
        for _, logs in only_logs(AGENT)
    ]
    found = settled_calls(loose)
    assert counts(found) == counts(settled_calls(only_logs(AGENT)))
    assert len({call["trace_id"] for call in found}) == 1


def logged(number: int, attributes: dict[str, object]) -> TraceSpan:
    """What a log record tells."""
    return replace(seen(span(number, attributes)), logged=True)


def test_logs_of_a_tool_that_two_instrumentations_ran_make_no_row() -> None:
    outer, inner = seen(span(1, tool())), seen(span(2, tool(), parent=1))
    told = replace(inner, facts=replace(inner.facts, dialect="other"))
    found = settle([outer, told, logged(3, tool()), logged(4, tool())], PRICES)
    assert [call.span_id for call in found.calls] == [outer.span_id]
    assert {role.call_id for role in found.roles} == {outer.span_id}


def test_a_log_of_a_call_that_has_its_row_in_another_trace_repeats_that() -> None:
    call, log = seen(span(1, chat())), logged(2, chat())
    found = settle([call, log], PRICES, {call.span_id: "elsewhere"})
    assert found.calls == ()
    assert found.roles == tuple(SpanRole(s.span_id, "duplicate", "elsewhere") for s in (call, log))
