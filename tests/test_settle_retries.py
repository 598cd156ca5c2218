"""Retries and fallbacks: attempts of one step, each with its cost; calls recorded apart are one call."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from otlp_traces import SECOND, START, agent, chat, span, trace_id, traces_body
from settled_payloads import settled_calls

from ingest import converter, wal
from ingest.lake import Lake
from ingest.options import ConverterOptions
from ingest.pricing import Price
from ingest.spans import Scope, Span

OPTIONS = ConverterOptions(quiet_s=0.0, commit_s=0.0, prices=(Price("gpt-4o-mini", 1.0, 2.0),))
ASKED: dict[str, Any] = {"gen_ai__input__messages": "Hi"}
MS = 1_000_000


def by(scope: str, sent: Span) -> Span:
    """The span as another instrumentation records it."""
    return replace(sent, scope=Scope(scope))


def drain(home: Path, *requests: list[Span]) -> None:
    """Each request converted and settled in turn, as by a collector that waits for each trace to be quiet."""
    for spans in requests:
        log = wal.Wal(home / "wal")
        log.write([wal.Record("traces", "json", START, traces_body(spans))])
        log.close()
        converter.run(home, OPTIONS, lambda: True)


def numbered(*spans: Span) -> dict[int, dict[str, object]]:
    return {int(call["span_id"], 16): call for call in settled_calls([(spans, ())])}


def test_failed_attempts_name_the_last_one() -> None:
    found = numbered(
        span(1, agent()),
        span(2, chat("gpt-4o-mini", None, None, **ASKED), parent=1, status="error"),
        span(3, chat("gpt-4o-mini", None, None, **ASKED), parent=1, status="error"),
        span(4, chat("gpt-4o", **ASKED), parent=1),
    )
    last = span(4).span_id
    assert {n: (c["attempts"], c["attempt_of"]) for n, c in found.items() if n > 1} == {
        2: (1, last),
        3: (2, last),
        4: (3, None),
    }


def test_a_call_that_began_before_the_other_failed_is_no_retry() -> None:
    found = numbered(
        span(1, agent()),
        span(2, chat("gpt-4o-mini", None, None, **ASKED), parent=1, status="error", start_ns=START, end_ns=START + 9),
        span(3, chat(**ASKED), parent=1, start_ns=START + 5),
    )
    assert [found[n]["attempts"] for n in (2, 3)] == [1, 1]
    assert found[2]["attempt_of"] is None


def test_attempts_that_two_instrumentations_saw_are_siblings_too() -> None:
    found = numbered(
        span(1, agent()),
        span(2, chat("gpt-4o-mini", None, None, **ASKED), parent=1, status="error"),
        span(3, chat("gpt-4o-mini", None, None), parent=2, status="error", start_ns=START + 2 * SECOND + 1),
        span(4, chat(**ASKED), parent=1),
        span(5, chat(), parent=4, start_ns=START + 4 * SECOND + 1),
    )
    assert {n: (c["attempts"], c["attempt_of"]) for n, c in found.items() if n > 1} == {
        3: (1, span(5).span_id),
        5: (2, None),
    }


def test_a_retry_within_a_wrapping_call_leaves_its_attempts() -> None:
    wrapped = (
        by("wrapper", span(1, chat(**ASKED), end_ns=START + 9 * SECOND)),
        span(2, chat("gpt-4o-mini", None, None, **ASKED), parent=1, status="error"),
        span(3, chat(**ASKED), parent=1, start_ns=START + 4 * SECOND),
    )
    assert {n: c["attempts"] for n, c in numbered(*wrapped).items()} == {2: 1, 3: 2}


def test_a_step_has_the_cost_of_all_its_attempts(tmp_path: Path) -> None:
    home = tmp_path / "home"
    drain(
        home,
        [
            span(1, agent()),
            span(2, chat(input_tokens=100, output_tokens=10, **ASKED), parent=1, status="error"),
            span(3, chat(input_tokens=100, output_tokens=20, **ASKED), parent=1),
        ],
    )
    with Lake.open(home) as lake:
        steps = lake.sql("select span_id, attempts, cost_usd from steps where kind = 'llm'").rows()
        calls = lake.sql("select sum(cost_usd), count(*) from calls").rows()
        roles = dict(lake.sql("select span_id, role from spans").rows())
    assert steps == [(span(3).span_id, 2, pytest.approx(260e-6))]
    assert calls == [(pytest.approx(260e-6), 3)]
    assert roles[span(2).span_id] == "attempt"


def twice(first: int, other: int) -> tuple[list[Span], list[Span]]:
    """A call within a session's agent, and its second record, which lost its context."""
    at = START + 2 * SECOND
    kept = [
        by("framework", span(1, agent(session__id="s"), trace=first, end_ns=START + 9 * SECOND)),
        by("framework", span(2, chat(), trace=first, parent=1, start_ns=at, end_ns=at + 100 * MS)),
    ]
    lost = [
        by("client", span(3, chat(gen_ai__response__id="r"), trace=other, start_ns=at + 10 * MS, end_ns=at + 90 * MS))
    ]
    return kept, lost


@pytest.mark.parametrize("traces", [(1, 2), (2, 1)])
@pytest.mark.parametrize("late", [False, True])
def test_a_call_whose_second_record_lost_its_context_is_one(
    tmp_path: Path, traces: tuple[int, int], late: bool
) -> None:
    kept, lost = twice(*traces)
    requests = (lost, kept) if late else (kept, lost)
    home = tmp_path / "home"
    drain(home, *requests)
    with Lake.open(home) as lake:
        calls = lake.sql("select trace_id, span_id, session_id, response_id from calls where kind = 'llm'").rows()
        roles = dict(lake.sql("select span_id, role from spans").rows())
        unsettled = lake.query("counts").row(0, named=True)["unsettled_traces"]
    assert calls == [(trace_id(traces[0]), span(2).span_id, "s", "r")]
    assert roles[span(3).span_id] == "duplicate"
    assert unsettled == 0


@pytest.mark.parametrize(
    "change",
    [
        {"scope": Scope("framework")},  # one instrumentation records a call once
        {"end_ns": START + 8 * SECOND},  # it does not last within the other
        {"attributes": chat(output_tokens=21)},
        {"attributes": chat("gpt-4o")},
        {"resource": {"service.name": "other"}},
    ],
)
def test_calls_that_differ_are_two(change: dict[str, object]) -> None:
    kept, lost = twice(1, 2)
    found = settled_calls([(kept, ()), ([replace(lost[0], **change)], ())])  # type: ignore[arg-type]
    assert sum(call["kind"] == "llm" for call in found) == 2


def test_a_stream_that_is_told_in_two_halves_is_one_call() -> None:
    begin = by("x", span(1, {**chat("gpt-4o-mini", None, None), "gen_ai.input.messages": "Hi"}))
    told = {**chat(), "gen_ai.input.messages": "Hi", "gen_ai.output.messages": "Hello"}
    end = by("x", span(2, told, trace=2, start_ns=START + 5 * SECOND, end_ns=START + 5 * SECOND))
    (call,) = settled_calls([((end,), ()), ((begin,), ())])
    assert (call["span_id"], call["input_tokens"], call["end_ns"]) == (span(1).span_id, 100, START + 5 * SECOND)
    assert "Hello" in call["output_text"]
