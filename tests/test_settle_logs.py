"""Calls that only log records tell of; a span of the same call makes them one."""

from __future__ import annotations

from typing import Any

import corpus
import pytest
from settled_payloads import Records, decoded, settled_calls

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
