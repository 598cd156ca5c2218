"""From settled calls to the decisions of an episode: laws, which ones there are, what they cost, bad input."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Sequence

import numpy as np
import polars as pl
import pytest
from test_decisions import CALLS, SCORES, SECOND, call, message

from optimizer.decisions import find_decisions
from optimizer.runtime import (
    DIM,
    STEP_DENSE,
    encode_features,
    history_features,
    orchestration_features,
    step_features,
)
from optimizer.sequential import decided
from optimizer.sequential.logged import MAX_ACTIONS, to_episodes
from optimizer.sequential.steps import COLUMNS, Steps, StepScore, find_steps

STEP_CALLS = {
    **CALLS, "name": pl.String, "tool": pl.String, "status": pl.String, "attempt_of": pl.String,
    "input_tokens": pl.Int64, "output_tokens": pl.Int64,
}  # fmt: skip
SPANS = {
    "trace_id": pl.String, "span_id": pl.String, "call_id": pl.String, "start_ns": pl.Int64, "end_ns": pl.Int64,
    "policy_id": pl.String, "policy_action": pl.String, "policy_propensity": pl.Float64,
    "policy_candidates": pl.String, "policy_probabilities": pl.String, "policy_features": pl.String,
    "policy_reason": pl.String, "policy_arm": pl.String, "policy_explored": pl.Boolean,
}  # fmt: skip
STEP_SCORES = {**SCORES, "span_id": pl.String}
TEXTS = {"trace_id": pl.String, "span_id": pl.String, "input_text": pl.String, "output_text": pl.String}
SCORED = {"trace_id": pl.String, "span_id": pl.String, "call_id": pl.String, "start_ns": pl.Int64, "end_ns": pl.Int64}


def model(span: str, at: float, seconds: float = 1.0, **fields: object) -> dict:
    start, end = round(at * SECOND), round((at + seconds) * SECOND)
    usual = {"input_tokens": 10, "output_tokens": 5, "input_text": None, "status": "ok"}
    return call(span=span, start_ns=start, end_ns=end, **{**usual, **fields})


def plain(kind: str, span: str, at: float, seconds: float = 1.0, **fields: object) -> dict:
    """A call of another kind, without cost and tokens."""
    free = {"kind": kind, "cost_usd": None, "input_tokens": None, "output_tokens": None, "model_requested": None}
    return model(span, at, seconds, **{**free, **fields})


def root(seconds: float = 100.0, **fields: object) -> dict:
    return plain("agent", "root", 0.0, seconds, **{"agent": "boss", "input_text": message("sum it up"), **fields})


def route(at: float, action: str = "write", trace: str = "t1", **fields: object) -> dict:
    """A span that holds a decision and nothing else."""
    return {
        "trace_id": trace, "span_id": f"r{at}", "start_ns": round(at * SECOND), "end_ns": round(at * SECOND),
        "policy_id": "p", "policy_action": action, "policy_propensity": 0.5,
        "policy_candidates": json.dumps([action, "other"]), "policy_probabilities": "[0.5, 0.5]", **fields,
    }  # fmt: skip


def step_score(span: str | None, value: float, at: float = 500.0, **fields: object) -> dict:
    return {
        "score_id": f"{span}{at}", "trace_id": "t1", "span_id": span, "name": "step_quality", "value01": value,
        "source": "check", "time_ns": round(at * SECOND), **fields,
    }  # fmt: skip


def billed(calls: Sequence[dict]) -> pl.DataFrame:
    frame = pl.DataFrame(calls, schema=STEP_CALLS)
    return frame.with_columns(pl.coalesce("billed_usd", "cost_usd"), pl.coalesce("billed_unpriced", "unpriced"))


def steps(
    calls: Sequence[dict], spans: Iterable[dict] = (), scores: Iterable[dict] = (), texts: Iterable[dict] = (),
    scored_spans: Iterable[dict] = (), **more: object,
) -> Steps:  # fmt: skip
    more.setdefault("orchestrate", {"app": True})
    return find_steps(
        billed(calls),
        pl.DataFrame(list(spans), schema=SPANS),
        pl.DataFrame(list(scores), schema=STEP_SCORES),
        {"app": "quality"},
        scored_spans=pl.DataFrame(list(scored_spans), schema=SCORED),
        texts=lambda _: pl.DataFrame(list(texts), schema=TEXTS),
        **more,  # type: ignore[arg-type]
    )


def actions(found: Steps, trace: str = "t1") -> list[str]:
    return found.rows.filter(pl.col("trace_id") == trace)["action"].to_list()


def known(found: Steps, row: int) -> dict[str, float]:
    """The step features of a row that are not 0."""
    values = found.rows["step_features"][row].to_list()
    return {name: value for name, value in zip(STEP_DENSE, values, strict=True) if value}


def left_out(found: Steps) -> dict[str, int]:
    return dict(found.left_out.select("reason", "traces").iter_rows())


# ------------------------------------------------------------------------------------------------------------- laws


def random_traces(*, logs: bool, count: int = 100) -> tuple[list[dict], list[dict]]:
    """Calls and routing spans: agents, tools and models below each other, overlapping, with parents that are missing or
    begin later; 1 to 12 calls and, where it logs, 1 to 6 decisions in each trace."""
    rng, calls, spans = random.Random(0), [], []
    for number in range(count):
        trace = f"t{number}"
        own = [root()]
        for place in range(rng.randint(1, 12)):
            at, seconds = rng.randint(0, 20) / 2, rng.randint(0, 8) / 2
            made = {
                "parent_call_id": rng.choice([*(one["span_id"] for one in own), "missing", "c3"]),
                "agent": rng.choice([None, "plan", "write", "boss"]),
                "status": rng.choice(["ok", "error", None]),
            }
            if rng.random() < 0.5:
                cost = rng.choice([0.25, 0.5, 1.0])
                own.append(model(f"c{place}", at, seconds, cost_usd=cost, billed_usd=2 * cost, **made))
            else:
                own.append(plain(rng.choice(["agent", "tool", "chain"]), f"c{place}", at, seconds, **made))
        calls += [one | {"trace_id": trace} for one in own]
        times = sorted(rng.sample(range(11), rng.randint(1, 6))) if logs else []
        spans += [route(at, rng.choice(["plan", "write"]), trace) for at in times]
    return calls, spans


@pytest.mark.parametrize("logs", [True, False])
def test_the_rows_of_a_trace_cost_and_last_what_the_trace_did(logs: bool) -> None:
    calls, spans = random_traces(logs=logs)
    rows = steps(calls, spans).rows
    whole = find_decisions(billed(calls), pl.DataFrame(schema=STEP_SCORES), {"app": "quality"})
    names = ("cost_usd", "billed_usd", "latency_s")
    both = rows.group_by("trace_id").agg(*(pl.col(name).sum() for name in names)).join(whole, on="trace_id")
    assert len(both) > 50
    for name in names:
        assert both[name].to_list() == pytest.approx(both[f"{name}_right"].to_list())


@pytest.mark.parametrize("logs", [True, False])
def test_the_order_of_the_calls_does_not_matter(logs: bool) -> None:
    calls, spans = random_traces(logs=logs)
    expected = steps(calls, spans)
    random.Random(1).shuffle(calls)
    random.Random(2).shuffle(spans)
    found = steps(calls, spans)
    assert found.rows.equals(expected.rows)
    assert found.left_out.equals(expected.left_out)


@pytest.mark.parametrize("row", [1, 2, 4])
def test_what_comes_later_changes_no_features(row: int) -> None:
    """Neither what begins after a decision, nor how what still runs then ends."""
    calls, spans = random_traces(logs=True)
    every = steps(calls, spans).rows
    now = dict(every.filter(pl.col("step") == row).select("trace_id", "time_ns").iter_rows())
    otherwise = {"cost_usd": 9.0, "status": "error", "input_tokens": 999, "end_ns": 999 * SECOND}
    cut = [
        one | otherwise if one["end_ns"] > now[one["trace_id"]] else one
        for one in calls
        if one["trace_id"] in now and (one["start_ns"] < now[one["trace_id"]] or one["span_id"] == "root")
    ]
    shorter = steps(cut, [one for one in spans if one["start_ns"] <= now.get(one["trace_id"], 0)]).rows
    both = shorter.filter(pl.col("trace_id").is_in(list(now))).join(every, on="decision_id", maintain_order="left")
    assert len(both) == (row + 1) * len(now)
    assert len(now) > 20
    for name in ("features", "step_features"):
        assert both[name].to_list() == both[f"{name}_right"].to_list()


def test_every_logged_decision_is_a_row_and_nothing_else() -> None:
    calls, spans = random_traces(logs=True)
    rows = steps(calls, spans).rows
    assert rows.schema == pl.Schema(COLUMNS)
    acted: dict[str, list[str]] = {}
    for one in spans:
        acted.setdefault(one["trace_id"], []).append(one["policy_action"])
    found = {trace: group["action"].to_list() for (trace,), group in rows.group_by("trace_id", maintain_order=True)}
    assert found == acted
    assert rows["decision_id"].to_list() == [f"{row['trace_id']}/{row['step']}" for row in rows.to_dicts()]


# ---------------------------------------------------------------------------------------------------- which decisions


def team(*agents: str, each: float = 2.0, trace: str = "t1", **fields: object) -> list[dict]:
    """A boss that asks one agent after the other, each with a model call."""
    calls = [root() | {"trace_id": trace}]
    for place, name in enumerate(agents):
        at = 1 + each * place
        calls.append(plain("agent", f"a{place}", at, 1.5, agent=name, parent_call_id="root") | {"trace_id": trace})
        calls.append(
            model(f"m{place}", at + 0.1, 1.0, agent=name, parent_call_id=f"a{place}") | {"trace_id": trace, **fields}
        )
    return calls


def test_the_agents_below_another_are_the_steps() -> None:
    found = steps(team("plan", "write", "plan"))
    assert actions(found) == ["plan", "write", "plan"]
    assert found.rows["point"].unique().to_list() == ["boss"]
    assert found.rows["cost_usd"].to_list() == pytest.approx([0.01] * 3)
    assert found.rows["latency_s"].to_list() == pytest.approx([3.0, 2.0, 95.0])


def test_an_agent_that_ran_several_models_says_which() -> None:
    calls = team("plan", "write") + team("plan", "write", trace="t2")
    calls[-1]["model_requested"] = "big"
    found = steps(calls)
    assert (actions(found), actions(found, "t2")) == (["plan", "write|small"], ["plan", "write|big"])


def test_an_agent_that_ran_by_several_prompts_says_by_which() -> None:
    calls = team("plan", "write", prompt_name="short", prompt_version="2") + team("plan", "write", trace="t2")
    calls[-1] |= {"prompt_name": "long"}
    found = steps(calls)
    assert (actions(found), actions(found, "t2")) == (["plan", "write|short@2"], ["plan", "write|long"])


def test_a_lone_model_call_is_a_turn_only_where_no_agent_has_a_span_of_its_own() -> None:
    def lone(span: str, at: float, agent: str) -> dict:
        return model(span, at, parent_call_id="root", agent=agent)

    assert actions(steps([root(), lone("x", 1, "plan"), lone("y", 3, "write")])) == ["plan", "write"]
    helped = steps([*team("plan", "write"), lone("x", 8, "aggregator")])
    assert actions(helped) == ["plan", "write"]
    assert helped.outside["tokens_share"].to_list() == pytest.approx([1 / 3])


def test_of_a_single_agent_the_model_calls_are_the_steps_and_tools_belong_to_the_one_before() -> None:
    found = steps(
        [
            root(),
            model("a", 1, parent_call_id="root", agent="boss", model_requested="big"),
            plain("tool", "t", 2, tool="search", parent_call_id="root", agent="boss", status="error"),
            model("in", 2.1, 0.5, parent_call_id="t", agent="boss", cost_usd=0.5),
            model("b", 4, parent_call_id="root", agent="boss"),
        ],
        texts=[{"trace_id": "t1", "span_id": "t", "output_text": '[{"role": "tool", "content": "no\\nsuch table"}]'}],
    )
    assert actions(found) == ["big", "small"]
    assert found.rows["cost_usd"].to_list() == pytest.approx([0.51, 0.01])
    assert known(found, 1)["last_error"] == 1.0
    assert known(found, 1)["output_lines"] == pytest.approx(np.log1p(2), abs=1e-3)


def test_attempts_are_one_step_that_begins_with_the_first() -> None:
    calls = [
        root(),
        model("x", 1, attempt_of="y", status="error", cost_usd=None, unpriced="failed without usage"),
        model("y", 3, model_requested="big"),
        model("z", 6),
    ]
    found = steps(calls)
    assert actions(found) == ["big", "small"]
    assert found.rows["time_ns"].to_list() == [SECOND, 6 * SECOND]
    assert "last_error" not in known(found, 1)


def test_a_router_that_chooses_once_is_no_orchestrator() -> None:
    found = steps([root(), model("a", 1), model("b", 2)], [route(0.5)])
    assert found.rows.is_empty()
    assert found.points.to_dicts() == [
        {"service": "app", "point": "boss", "orchestrated": False, "why": "no trace has two decisions"}
    ]


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({"orchestrate": {"app": False}}, "orchestrate = false"),
        ({"orchestrate": {}}, "no score step_quality says what stopping after a step gives"),
        ({"orchestrate": {}, "step_scores": {"app": StepScore("reward")}}, "no score reward says"),
        ({"orchestrate": {}, "scores": [step_score("a0", 0.5)]}, None),
        ({"orchestrate": {}, "spans": [route(1), route(3)]}, None),
        ({"orchestrate": {}, "spans": [route(1), route(3, policy_probabilities=None)]}, "nothing to learn from"),
    ],
)
def test_a_point_is_orchestrated_where_there_is_something_to_learn(more: dict, why: str | None) -> None:
    found = steps(team("plan", "write"), **more)
    (point,) = found.points.to_dicts()
    assert (point["orchestrated"], found.rows.is_empty()) == (why is None, why is not None)
    assert why is None or why in point["why"]


def test_traces_without_logged_decisions_stay_where_their_steps_have_the_same_names() -> None:
    calls = team("plan", "write") + team("plan", "write", trace="t2") + team("plan", "sing", trace="t3")
    found = steps(calls, [route(1, "plan"), route(3, "write")])
    assert found.rows["trace_id"].unique().sort().to_list() == ["t1", "t2"]
    assert left_out(found) == {decided.UNLOGGED: 1}


# -------------------------------------------------------------------------------------------------------------- cost


def test_what_no_action_names_is_outside_of_the_steps() -> None:
    calls = [*team("plan", "write"), model("merge", 8, parent_call_id="root", agent="boss", cost_usd=0.02)]
    outside = steps(calls).outside.to_dicts()[0]
    assert (outside["tokens_share"], outside["cost_share"]) == pytest.approx((1 / 3, 0.5))
    named = steps(calls, [route(0.9, "plan"), route(2.9, "write|small"), route(7, "STOP")])
    assert named.outside["tokens_share"].to_list() == pytest.approx([1 / 3])
    assert named.rows["cost_usd"].to_list() == pytest.approx([0.01, 0.01, 0.02])


def test_branches_are_folded_and_each_step_bears_its_own_cost() -> None:
    calls = [
        root(),
        plain("agent", "a", 1, 5, agent="plan", parent_call_id="root"),
        plain("agent", "b", 2, 5, agent="write", parent_call_id="root"),
        model("late", 3, agent="plan", parent_call_id="a", cost_usd=0.07),
        model("own", 3, agent="write", parent_call_id="b"),
    ]
    found = steps(calls)
    assert found.rows["cost_usd"].to_list() == pytest.approx([0.07, 0.01])
    assert known(found, 1) == pytest.approx({"steps": 0.693, "action_run": 0.693, "seconds": 0.693}, abs=1e-3)


def test_one_unpriced_call_hides_the_cost_of_its_step_only() -> None:
    found = steps(team("plan", "write", "plan"))
    calls = team("plan", "write", "plan")
    calls[4]["cost_usd"] = None
    assert steps(calls).rows["cost_usd"].is_null().to_list() == [False, True, False]
    assert found.rows["cost_usd"].null_count() == 0


def test_a_trace_in_which_nothing_was_priced_has_no_cost_rather_than_none() -> None:
    calls = [one for one in team("plan", "write") if one["kind"] == "agent"]
    assert steps(calls).rows["cost_usd"].to_list() == [None, None]


# ------------------------------------------------------------------------------------------------------ stop quality


SCORES_OF_STEPS = [step_score("m0", 0.75), step_score("a1", 0.25)]


def test_stop_quality_is_what_the_steps_before_gave() -> None:
    calls = team("plan", "write", "plan")
    assert steps(calls, scores=SCORES_OF_STEPS).rows["stop_quality"].to_list() == [None, 0.75, 0.25]
    best = {"app": StepScore(of="best")}
    assert steps(calls, scores=SCORES_OF_STEPS, step_scores=best).rows["stop_quality"].to_list() == [None, 0.75, 0.75]


def test_a_step_without_a_score_leaves_the_one_before_standing() -> None:
    found = steps(team("plan", "write", "plan", "write"), scores=[step_score("m1", 0.5)])
    assert found.rows["stop_quality"].to_list() == [None, None, 0.5, 0.5]


def test_a_score_of_the_whole_is_not_one_of_the_first_step() -> None:
    found = steps(team("plan", "write"), scores=[step_score("root", 1.0), step_score(None, 1.0)])
    assert found.rows["stop_quality"].to_list() == [None, None]


def test_scores_may_judge_the_decision_a_span_around_the_step_or_another_sight_of_a_call() -> None:
    calls, spans = team("plan", "write", "plan"), [route(0.9), route(2.9), route(4.9)]
    around = {"trace_id": "t1", "span_id": "w", "start_ns": round(2.8 * SECOND), "end_ns": round(4.8 * SECOND)}
    over_all = {**around, "span_id": "all", "start_ns": 0, "end_ns": 99 * SECOND}
    twin = {**around, "span_id": "twin", "call_id": "m1"}
    scored = [around, over_all, twin]

    def quality(*scores: dict) -> list:
        return steps(calls, spans, scores, scored_spans=scored).rows["stop_quality"].to_list()

    assert quality(step_score("r0.9", 0.5)) == [None, 0.5, 0.5]
    assert quality(step_score("w", 0.5)) == [None, None, 0.5]
    assert quality(step_score("all", 0.5)) == [None, None, None]
    assert quality(step_score("twin", 0.5)) == [None, None, 0.5]


def test_a_checks_score_is_a_signal_from_its_own_time_on() -> None:
    calls, spans = team("plan", "write", "plan"), [route(0.9), route(2.9), route(4.9)]
    early, late, judge = (
        step_score("m0", 0.5, at=2.8),
        step_score("m0", 0.5, at=3.5),
        step_score("m0", 0.5, at=2.0, source="judge"),
    )
    assert known(steps(calls, spans, [early]), 1)["signal_last"] == 0.5
    assert "signal_known" not in known(steps(calls, spans, [late]), 1)
    assert known(steps(calls, spans, [late]), 2)["signal_last"] == 0.5
    assert "signal_last" not in known(steps(calls, spans, [judge]), 2)


# --------------------------------------------------------------------------------------------------------- features


def test_the_history_is_what_a_router_would_have_been_given() -> None:
    texts = [
        {"trace_id": "t1", "span_id": f"m{n}", "output_text": json.dumps([{"role": "assistant", "content": said}])}
        for n, said in enumerate(("a plan", "a plan"))
    ]
    found = steps(team("plan", "write", "plan"), texts=texts)
    entry = {"status": "ok", "cost_usd": 0.01, "tokens": 15, "seconds": 2.0, "output": "a plan"}
    history = [{"action": "plan", **entry}, {"action": "write", **entry}]
    context = {"messages": json.loads(message("sum it up"))}
    for row in range(3):
        assert found.rows["step_features"][row].to_list() == step_features(history[:row]).tolist()
        expected = orchestration_features({**context, "history": history[:row]}, ())[:DIM]
        assert found.rows["features"][row].to_list() == expected.tolist()


def test_a_prompt_that_first_came_with_a_later_step_says_nothing_before() -> None:
    calls = team("plan", "write")
    calls[0]["input_text"] = None
    texts = [{"trace_id": "t1", "span_id": "m1", "input_text": message("and now?")}]
    first, second = steps(calls, texts=texts).rows["features"].to_list()
    assert sum(map(abs, first)) == 0.0
    assert sum(map(abs, second)) > 1.0


def test_the_features_that_the_router_logged_win() -> None:
    whole = orchestration_features({"messages": "x", "history": [{"action": "plan", "tokens": 7}]}, ("plan", "STOP"))
    spans = [route(0.9), route(2.9, policy_features=encode_features(whole)), route(4, policy_features="broken")]
    found = steps(team("plan", "write"), spans).rows
    assert found["features"][1].to_list() == whole[:DIM].tolist()
    assert found["step_features"][1].to_list() == whole[DIM : DIM + len(STEP_DENSE)].tolist()
    assert found["features"][2].to_list()[:5] == found["features"][0].to_list()[:5]


# --------------------------------------------------------------------------------------------------------- bad input


def test_circles_and_missing_parents_are_steps_like_others() -> None:
    calls = team("plan", "write")
    calls[2]["parent_call_id"] = "m0"  # its own parent
    calls[3]["parent_call_id"] = "nowhere"
    spans = [route(0.9), route(2.9)]
    assert steps(calls, spans).rows["cost_usd"].sum() == pytest.approx(0.02)
    both = [
        model("x", 1, parent_call_id="y", agent="plan"),
        model("y", 2, parent_call_id="x", agent="write"),
        model("z", 3, parent_call_id="x", agent="plan"),
    ]
    assert steps(both).rows["cost_usd"].sum() == pytest.approx(0.03)


def test_an_episode_of_5000_steps_is_decided_for_its_first_and_paid_in_full() -> None:
    calls = [root(6000), *(model(f"m{n}", n + 1, 0.5, parent_call_id="root") for n in range(5000))]
    found = steps(calls)
    assert len(found.rows) == decided.MOST
    assert found.rows["cost_usd"].sum() == pytest.approx(50.0)
    assert left_out(found) == {decided.LONG: 1}
    assert to_episodes(found.rows, seed=0).log.horizon == decided.MOST


def test_an_episode_of_one_step_is_one() -> None:
    found = steps(team("plan", "write") + team("plan", trace="t2"))
    assert actions(found, "t2") == ["plan"]
    assert to_episodes(found.rows, seed=0).log.step.tolist() in ([0, 1, 0], [0, 0, 1])


def test_a_trace_that_goes_on_after_stop_holds_more_than_one_episode() -> None:
    found = steps(team("plan", "write"), [route(0.5), route(1, "STOP"), route(3)])
    assert found.rows.is_empty()
    assert left_out(found) == {decided.ENDED: 1}


def test_a_decision_without_a_time_has_no_place() -> None:
    found = steps(team("plan", "write"), [route(0.5), {**route(1), "start_ns": None}])
    assert found.rows.is_empty()
    assert left_out(found) == {decided.NO_TIME: 1}


def test_of_two_orchestrators_in_one_trace_the_one_that_decides_more_often_counts() -> None:
    inner = route(1.5, "big", policy_id="model router")
    found = steps(team("plan", "write"), [route(0.9, "plan"), inner, route(2.9, "write")])
    assert actions(found) == ["plan", "write"]
    assert left_out(found) == {decided.OTHER: 1}
    assert found.rows["cost_usd"].sum() == pytest.approx(0.02)


def test_probabilities_that_cannot_be_are_none() -> None:
    odd = route(2.9, policy_probabilities="[0.5, 0.9]")
    found = steps(team("plan", "write"), [route(0.9), odd]).rows
    assert found["probabilities"].is_null().to_list() == [False, True]
    assert found["propensity"].to_list() == [0.5, None]


def test_nothing_at_all_has_no_steps() -> None:
    assert steps([]).rows.is_empty()
    assert steps([plain("chain", "a", 0)]).rows.is_empty()


# ---------------------------------------------------------------------------------------------------------- episodes


def logged(*taken: str, trace: str, candidates: Sequence[str] = ("plan", "write", "STOP"), start: float = 0.0) -> tuple:
    calls = [root() | {"trace_id": trace}]
    calls.append(model("m", 0.5) | {"trace_id": trace})
    share = json.dumps([1 / len(candidates)] * len(candidates))
    names = json.dumps(candidates)
    spans = [
        route(1 + start + place, name, trace, policy_candidates=names, policy_probabilities=share,
              policy_propensity=1 / len(candidates))
        for place, name in enumerate(taken)
    ]  # fmt: skip
    return calls, spans


def test_episodes_are_what_the_rows_say() -> None:
    one, two = logged("plan", "write", "plan", "STOP", trace="t1"), logged("plan", trace="t2", start=0.5)
    found = to_episodes(steps(one[0] + two[0], one[1] + two[1]).rows, seed=0)
    log = found.log
    assert log.action_names == ("plan", "write", "STOP")
    assert (found.trace_ids, found.point, found.estimated, found.left_out) == (("t1", "t2"), "boss", None, {})
    assert log.actions.tolist() == [0, 1, 0, 2, 0]
    assert log.episode.tolist() == [0, 0, 0, 0, 1]
    assert log.behaviour == pytest.approx(np.full((5, 3), 1 / 3))
    assert log.propensities_logged
    assert np.isnan(log.quality).all()
    history = [{"action": name} for name in ("plan", "write", "plan")]
    for row in range(4):
        counts = history_features(history[:row], log.action_names)[len(STEP_DENSE) :]
        assert log.features[row, DIM + len(STEP_DENSE) :] == pytest.approx(counts)


def test_beyond_fifteen_actions_the_rarest_are_one_that_no_history_counts() -> None:
    names = [f"agent {n:02d}" for n in range(20)]
    traces = [logged(*names[: 20 - n], trace=f"t{n}", candidates=[*names, "STOP"]) for n in range(20)]
    rows = steps([c for calls, _ in traces for c in calls], [s for _, spans in traces for s in spans]).rows
    log = to_episodes(rows, seed=0).log
    assert log.action_names == (*names[: MAX_ACTIONS - 1], "other", "STOP")
    assert log.behaviour[0].tolist() == pytest.approx([1 / 21] * 14 + [6 / 21, 1 / 21])
    other = DIM + len(STEP_DENSE) + MAX_ACTIONS - 1
    assert log.features[:, other].tolist() == [0.0] * len(log.actions)


def test_a_behaviour_that_was_not_logged_is_estimated_and_never_stops_where_nothing_stopped() -> None:
    calls = [one for n in range(40) for one in team("plan", "write" if n % 3 else "plan", trace=f"t{n}")]
    found = to_episodes(steps(calls).rows, seed=0)
    assert found.estimated is not None
    assert not found.log.propensities_logged
    assert found.log.behaviour[:, found.log.stop].tolist() == [0.0] * 80
    assert found.log.behaviour.sum(axis=1) == pytest.approx(np.ones(80))


def test_traces_without_any_outcome_are_left_out_and_the_rest_is_kept() -> None:
    calls = team("plan", "write") + [one for one in team("plan", "write", trace="t2") if one["kind"] == "agent"]
    found = to_episodes(steps(calls).rows, seed=0)
    assert (found.trace_ids, found.left_out) == (("t1",), {"neither quality nor cost is known": 1})
    with pytest.raises(ValueError, match="no trace with a quality or a cost"):
        to_episodes(steps(calls).rows.filter(pl.col("trace_id") == "t2"), seed=0)


@pytest.mark.parametrize(("unpriced", "left"), [(1, 49), (2, 50)])
def test_few_traces_without_a_whole_cost_are_left_out_many_are_not(unpriced: int, left: int) -> None:
    calls = [one for n in range(50) for one in team("plan", "write", trace=f"t{n:02d}")]
    rows = steps(calls).rows
    lost = pl.col("trace_id").is_in([f"t{n:02d}" for n in range(unpriced)]) & (pl.col("step") == 1)
    rows = rows.with_columns(pl.when(lost).then(None).otherwise("cost_usd").alias("cost_usd"))
    found = to_episodes(rows, seed=0)
    assert len(found.log) == left
    assert found.left_out == ({"a cost is not known": 1} if left == 49 else {})
    assert np.isnan(found.log.cost_usd).sum() == (0 if left == 49 else 2)
