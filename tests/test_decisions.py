"""From settled calls to decisions."""

from __future__ import annotations

import json

import polars as pl
import pytest

from optimizer.decisions import find_decisions, quality_name
from optimizer.runtime import encode_features, featurise

CALLS = {
    "trace_id": pl.String, "span_id": pl.String, "parent_call_id": pl.String, "kind": pl.String,
    "service": pl.String, "workflow": pl.String, "agent": pl.String, "model_requested": pl.String,
    "model_returned": pl.String, "reasoning_effort": pl.String,
    "tools_offered": pl.String, "cost_usd": pl.Float64, "unpriced": pl.String,
    "billed_usd": pl.Float64, "billed_unpriced": pl.String, "session_id": pl.String,
    "response_id": pl.String,
    "prompt_name": pl.String, "prompt_version": pl.String, "start_ns": pl.Int64, "end_ns": pl.Int64,
    "input_text": pl.String, "policy_action": pl.String, "policy_propensity": pl.Float64,
    "policy_candidates": pl.String, "policy_probabilities": pl.String, "policy_features": pl.String,
}  # fmt: skip
SCORES = {
    "score_id": pl.String, "trace_id": pl.String, "response_id": pl.String, "name": pl.String, "value01": pl.Float64,
    "source": pl.String, "time_ns": pl.Int64,
}  # fmt: skip
SECOND = 10**9


def message(text: str) -> str:
    return json.dumps([{"role": "user", "content": text}])


def call(trace: str = "t1", span: str = "a", **fields: object) -> dict:
    return {
        "trace_id": trace, "span_id": span, "kind": "llm", "service": "app", "model_requested": "small",
        "cost_usd": 0.01, "start_ns": 0, "end_ns": SECOND, "input_text": message("hello"), **fields,
    }  # fmt: skip


def score(trace: str | None = "t1", value: float = 1.0, **fields: object) -> dict:
    return {
        "score_id": "s",
        "trace_id": trace,
        "name": "quality",
        "value01": value,
        "source": "judge",
        "time_ns": 1,
        **fields,
    }


def decide(
    calls: list[dict], scores: list[dict] | None = None, quality: str | None = "quality", judge: str | None = None
) -> list[dict]:
    found = find_decisions(
        pl.DataFrame(calls, schema=CALLS), pl.DataFrame(scores or [], schema=SCORES), {"app": quality}, {"app": judge}
    )
    return found.to_dicts()


def test_a_single_call_is_a_decision() -> None:
    (row,) = decide([call(session_id="s1")], [score(value=0.5)])
    assert (row["action"], row["point"], row["group"], row["quality"]) == ("small", "chat", "s1", 0.5)
    assert (row["cost_usd"], row["latency_s"], row["label_source"]) == (0.01, 1.0, "judge")
    assert row["propensity"] is None
    assert row["features"] == pytest.approx(featurise({"messages": json.loads(message("hello"))}).tolist())


def test_a_trace_is_one_decision_with_all_its_cost_and_time() -> None:
    (row,) = decide(
        [
            call(span="root", kind="agent", agent="helper", model_requested=None, cost_usd=None, end_ns=9 * SECOND,
                 policy_action="small|plan", policy_propensity=0.25),
            call(span="a", start_ns=0, parent_call_id="root"),
            call(span="b", start_ns=3 * SECOND, parent_call_id="root", model_requested="big", cost_usd=0.02),
            call(span="c", kind="tool", parent_call_id="root", cost_usd=None, model_requested=None),
        ]
    )  # fmt: skip
    assert (row["span_id"], row["point"], row["action"]) == ("root", "helper", "small|plan")
    assert (row["propensity"], row["propensity_origin"]) == (0.25, "logged")
    assert row["cost_usd"] == pytest.approx(0.03)
    assert row["latency_s"] == 9.0


def test_one_unpriced_call_makes_the_cost_unknown() -> None:
    (row,) = decide([call(span="a"), call(span="b", cost_usd=None)])
    assert row["cost_usd"] is None


def test_so_does_an_unpriced_call_that_is_no_model_call() -> None:
    """An agent span whose usage no model call below it repeats."""
    (row,) = decide([call(span="a"), call(span="b", kind="agent", cost_usd=None, unpriced="no price for x")])
    assert row["cost_usd"] is None


def test_costs_at_one_list_and_as_billed_are_known_or_not_each_by_itself() -> None:
    rows = decide(
        [
            call("t1", cost_usd=0.01, billed_usd=0.05),
            call("t2", cost_usd=None, unpriced="no price for small", billed_usd=0.05),
            call("t3", cost_usd=0.01, billed_usd=None, billed_unpriced="no price for small"),
        ]
    )
    assert [(row["cost_usd"], row["billed_usd"]) for row in rows] == [(0.01, 0.05), (None, 0.05), (0.01, None)]


def test_a_failed_attempt_without_usage_hides_no_cost() -> None:
    failed = call(span="a", cost_usd=None, unpriced="failed without usage")
    assert decide([failed, call(span="b")])[0]["cost_usd"] == 0.01
    assert decide([failed, call(span="b", cost_usd=None, unpriced="no price")])[0]["cost_usd"] is None


def test_a_trace_without_a_model_call_is_no_decision() -> None:
    assert decide([call(kind="tool")]) == []


def test_the_last_score_of_the_right_name_counts() -> None:
    scores = [
        score(value=0.9, time_ns=5, score_id="b"),
        score(value=0.1, time_ns=1, score_id="a"),
        score(value=0.7, time_ns=9, score_id="c", name="style"),
    ]
    assert decide([call()], scores)[0]["quality"] == 0.9
    assert decide([call()], scores, quality="style")[0]["quality"] == 0.7
    assert decide([call()], scores, quality=None)[0]["quality"] is None


TWO = [call("t1"), call("t2", start_ns=1)]


def qualities(rows: list[dict]) -> list[tuple]:
    return [(row["quality"], row["label_source"], row["judge"]) for row in rows]


def test_a_judge_that_scores_under_the_same_name_is_told_apart_by_its_source() -> None:
    scores = [score("t1", 0.9, source="LLM-as-a-judge", time_ns=9), score("t1", 0.2, source="human"),
              score("t2", 0.8, source="judge")]  # fmt: skip
    assert qualities(decide(TWO, scores)) == [(0.2, "human", 0.9), (None, None, 0.8)]


def test_a_judge_of_another_name_is_declared() -> None:
    scores = [score("t1", 0.9, name="helpful", source=None), score("t1", 0.2, name="correct", source="code"),
              score("t2", 0.8, name="helpful", source="")]  # fmt: skip
    assert qualities(decide(TWO, scores, "correct", "helpful")) == [(0.2, "check", 0.9), (None, None, 0.8)]


def test_a_declared_judge_goes_before_one_told_by_its_source() -> None:
    scores = [score("t1", 0.9, name="helpful", source=None), score("t1", 0.3, source="judge", time_ns=9),
              score("t2", 0.2, source="human")]  # fmt: skip
    assert qualities(decide(TWO, scores, judge="helpful")) == [(None, None, 0.9), (0.2, "human", None)]


def test_people_who_score_under_the_judges_name_are_people() -> None:
    scores = [score("t1", 0.9, source=None), score("t1", 0.2, source="annotator", time_ns=0)]
    assert qualities(decide(TWO, scores, judge="quality")) == [(0.2, "human", 0.9), (None, None, None)]


def test_where_there_is_a_judge_alone_its_opinion_is_all_that_is_known_of_quality() -> None:
    scores = [score("t1", 0.9, name="helpful", source=None)]
    assert qualities(decide(TWO, scores, "correct", "helpful")) == [(0.9, "judge", None), (None, None, None)]


@pytest.mark.parametrize("source", [None, "", "api"])
def test_a_source_that_is_not_known_counts_as_no_judge(source: str | None) -> None:
    assert qualities(decide([call()], [score(value=0.5, source=source)])) == [(0.5, source or None, None)]


def test_a_score_may_name_the_response_instead_of_the_trace() -> None:
    found = decide([call(response_id="r1")], [score(trace=None, response_id="r1", value=0.4)])
    assert found[0]["quality"] == 0.4


def test_a_response_id_of_two_traces_names_neither() -> None:
    calls = [call("t1", response_id="r"), call("t2", response_id="r")]
    assert [row["quality"] for row in decide(calls, [score(trace=None, response_id="r")])] == [None, None]


def test_effort_and_prompt_are_part_of_the_action_where_they_vary() -> None:
    calls = [
        call("t1", reasoning_effort="high", prompt_name="short"),
        call("t2", prompt_name="long", prompt_version="2"),
    ]
    assert [row["action"] for row in decide(calls)] == ["small:high|short", "small|long@2"]
    assert decide(calls[1:])[0]["action"] == "small"


def test_the_vector_that_the_router_logged_wins() -> None:
    logged = featurise({"messages": json.loads(message("something else"))})
    (row,) = decide([call(policy_features=encode_features(logged))])
    assert row["features"] == pytest.approx(logged.tolist())
    (row,) = decide([call(policy_features="broken")])
    assert row["features"] == pytest.approx(featurise({"messages": json.loads(message("hello"))}).tolist())


def test_candidates_and_probabilities_are_read_from_json() -> None:
    (row,) = decide([call(policy_candidates='["small", "big"]', policy_probabilities="[0.5, 0.5]")])
    assert (row["candidates"], row["probabilities"]) == (["small", "big"], [0.5, 0.5])
    (row,) = decide([call(policy_candidates="[", policy_probabilities='{"a": 1}')])
    assert (row["candidates"], row["probabilities"]) == (None, None)


def test_the_quality_of_a_service_is_configured_or_evident() -> None:
    both = pl.DataFrame([score(name="style"), score(name="tone")], schema=SCORES)
    assert quality_name(both, "tone") == "tone"
    assert quality_name(both, None) is None
    assert quality_name(both.head(1), None) == "style"
    assert quality_name(pl.DataFrame([score(), score(name="tone")], schema=SCORES), None) == "quality"
    assert quality_name(both, None, judge="tone") == "style"
    assert quality_name(both.tail(1), None, judge="tone") == "tone"
    of_steps = pl.DataFrame([score(name="style"), score(name="step_style")], schema=SCORES)
    assert quality_name(of_steps, None) == "style"
    assert quality_name(of_steps.tail(1), None) == "step_style"


@pytest.mark.parametrize("propensity", [0.0, -0.1, 1.5, float("nan")])
def test_an_impossible_propensity_is_none(propensity: float) -> None:
    (row,) = decide([call(policy_propensity=propensity)])
    assert (row["propensity"], row["propensity_origin"]) == (None, None)
