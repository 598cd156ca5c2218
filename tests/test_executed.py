"""A decision says what was carried out of it, and the doctor how often that was not what was chosen."""

from __future__ import annotations

from pathlib import Path

import polars as pl
from otlp_traces import chat, span
from test_decisions import CALLS, call
from test_doctor import store

from ingest.lake import Lake
from optimizer import executed
from optimizer.decisions import find_decisions

CALLED = {**CALLS, "attempt_of": pl.String, "status": pl.String}
PAIRS = {"service": pl.String, "action": pl.String, "answered_by": pl.String}


def told(calls: list[dict], pairs: list[tuple[str, str, str]]) -> dict[str, str | None]:
    logged = pl.DataFrame(calls, schema=CALLED)
    decisions = find_decisions(logged, pl.DataFrame(schema=SCORES), {"app": None})
    found = executed.marked(decisions, logged, pl.DataFrame(pairs, schema=PAIRS, orient="row"))
    assert found.drop("executed").equals(decisions)
    return dict(found.select("trace_id", "executed").iter_rows())


SCORES = {
    **dict.fromkeys(("score_id", "trace_id", "response_id", "name", "source"), pl.String),
    "value01": pl.Float64,
    "time_ns": pl.Int64,
}


def test_what_answered_is_the_action_or_its_stand_in() -> None:
    calls = [
        call("as chosen", policy_action="small", model_returned="small-2026"),
        call("fell back", policy_action="small", model_returned="large"),
        call("not routed", model_returned="large"),
        call("failed", policy_action="small", model_returned="large", status="error"),
    ]
    assert told(calls, [("app", "small", "large")]) == {
        "as chosen": "small",
        "fell back": "large",
        "not routed": None,
        "failed": None,
    }


def test_attempts_that_failed_before_do_not_count_as_what_answered() -> None:
    calls = [
        call("t", "a", policy_action="small", model_returned="small", attempt_of="b", start_ns=0),
        call("t", "b", policy_action="small", model_returned="large", start_ns=1),
    ]
    assert told(calls, [("app", "small", "large")]) == {"t": "large"}


def routed(number: int, answered_by: str) -> dict:
    facts = chat(gen_ai__response__model=answered_by) | {"policy.id": "p", "policy.action": "gpt-4o-mini"}
    return span(number, facts, trace=number)


def test_the_lakes_own_fallbacks_are_marked_and_their_share_is_told(tmp_path: Path) -> None:
    found = store(
        tmp_path,
        [routed(1, "gpt-4o-mini-2024"), routed(2, "gpt-4o-mini"), routed(3, "claude"), routed(4, "gpt-4o-mini")],
    )
    assert found["fallbacks"].says.startswith("1 of 4 routed calls (25.0%) were answered by another model")
    with Lake.open(tmp_path) as lake:
        calls = lake.query("decision_calls").with_columns(billed_usd="cost_usd", billed_unpriced="unpriced")
        decisions = find_decisions(calls, lake.query("scores"), {})
        marked = executed.marked(decisions, calls, lake.query("fallbacks"))
    assert sorted(marked["executed"]) == ["claude", *["gpt-4o-mini"] * 3]
