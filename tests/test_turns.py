"""Which agent acted after which, from settled calls of several shapes and from an imported run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingest.importers import registry
from ingest.importers.engine import import_sources
from ingest.lake import Lake
from ingest.options import ConverterOptions
from optimizer.organisation import Activation, course, organisation
from optimizer.sequential.episodes import STOP, EpisodeLog
from optimizer.teamwork import measured
from optimizer.turn_order import in_order_of_links, in_order_of_time
from optimizer.turns import Acted, acted, activations_of, turns_of

EXAMPLE = Path(__file__).parent / "golden" / "puppeteer" / "2026-03-05-10-00-00"
"""A run folder written by hand, in the shape of the one that Puppeteer's code ships."""
TYPES: Mapping[str, pl.DataType | type[pl.DataType]] = {
    **dict.fromkeys(("trace_id", "span_id", "parent_call_id", "kind", "name", "tool", "status"), pl.String),
    **dict.fromkeys(("attempt_of", "service", "agent", "model_requested", "model_returned"), pl.String),
    **dict.fromkeys(("reasoning_effort", "prompt_name", "prompt_version", "unpriced", "policy_action"), pl.String),
    **dict.fromkeys(("start_ns", "end_ns", "input_tokens", "output_tokens"), pl.Int64),
    "cost_usd": pl.Float64,
}


def call(span: str, start: float, end: float, parent: str | None = None, **facts: Any) -> dict[str, Any]:
    """A call with times in seconds; a model's unless said otherwise."""
    base = {"trace_id": "t", "service": "s", "kind": "llm", "name": "", "status": "ok", "model_requested": "m"}
    counts = {"input_tokens": 10, "output_tokens": 5, "cost_usd": 0.01} if facts.get("kind", "llm") == "llm" else {}
    times = {"start_ns": int(start * 1e9), "end_ns": int(end * 1e9)}
    return {**base, **counts, "span_id": span, "parent_call_id": parent, **times, **facts}


def agent(span: str, name: str, start: float, end: float, parent: str | None = None, **facts: Any) -> dict[str, Any]:
    return call(span, start, end, parent, **{"kind": "agent", "agent": name, **facts})


def found(
    *calls: dict[str, Any], links: list[tuple[str, str]] | None = None, outputs: Mapping[str, str] | None = None
) -> Acted:
    frame = pl.DataFrame(list(calls), schema=dict(TYPES)).sort("trace_id", "start_ns", "span_id")
    told = pl.DataFrame(
        [("t", one, after) for one, after in links or ()],
        schema={"trace_id": pl.String, "span_id": pl.String, "after": pl.String},
        orient="row",
    )
    texts = pl.DataFrame(
        [("t", span, text) for span, text in (outputs or {}).items()],
        schema={"trace_id": pl.String, "span_id": pl.String, "output_text": pl.String},
        orient="row",
    )
    return acted(frame, told, texts)


def shape(of: Acted) -> list[tuple[str, list[int]]]:
    return list(of.turns.select("agent", "after").iter_rows())


@pytest.fixture(scope="module")
def example(tmp_path_factory: pytest.TempPathFactory) -> tuple[pl.DataFrame, pl.DataFrame, pl.DataFrame]:
    """The run in a lake: calls, links, and the calls with their texts."""
    home = tmp_path_factory.mktemp("example")
    import_sources(home, registry.find([str(EXAMPLE)]), ConverterOptions())
    with Lake.open(home) as lake:
        calls = lake.query("decision_calls")
        return calls, lake.query("step_links"), lake.query("calls")


def test_the_example_run_has_the_graph_and_the_figures_of_the_published_one(
    example: tuple[pl.DataFrame, pl.DataFrame, pl.DataFrame],
) -> None:
    calls, links, _ = example
    of = acted(calls, links)
    turns = of.turns
    metrics = organisation(next(iter(activations_of(turns).values())))
    assert (metrics.steps, metrics.active_agents, metrics.branches) == (7, 6, 6)
    assert metrics.density == pytest.approx(5 / 30)
    assert round(metrics.density or 0, 3) == 0.167
    assert round(metrics.edges_per_node or 0, 3) == 0.833
    assert sum(metrics.cycles.values()) == 0
    used = dict(of.calls.group_by("inside").agg(pl.col("tokens").sum()).iter_rows())
    assert used == {True: 4811, False: 1118}
    assert used[False] / sum(used.values()) == pytest.approx(0.189, abs=5e-4)
    assert turns["tokens"].sum() == 4811  # a step that branches share is counted once


def test_the_example_runs_vote_is_wrong_though_one_branch_was_right(
    example: tuple[pl.DataFrame, pl.DataFrame, pl.DataFrame],
) -> None:
    *_, calls = example
    merged = calls.filter((pl.col("kind") == "llm") & (pl.col("start_ns") > calls["start_ns"][0] + 45 * 10**9))
    answers = merged["output_text"].str.extract('"content":"([^"]*)"').to_list()
    final = calls.filter(pl.col("agent") == "puppeteer")["output_text"].str.extract('"content":"([^"]*)"')[0]
    right = [float(answer == "I") for answer in answers]
    assert (len(answers), sum(right), final) == (6, 1, "B")
    whole = course([*answers, final], [*right, 0.0])
    assert (whole.abandoned, whole.oracle_stop_gap) == (True, 1.0)


def test_agents_that_take_turns_follow_each_other_with_what_they_used() -> None:
    of = found(
        agent("root", "boss", 0, 10),
        agent("a", "plan", 0, 2, "root"),
        call("a1", 0, 1, "a", agent="plan"),
        call("a2", 1, 2, "a", agent="plan"),
        agent("b", "code", 3, 6, "root"),
        call("b1", 3, 4, "b", agent="code"),
        call("bt", 4, 5, "b", kind="tool", tool="run", agent="code", status="error", cost_usd=None),
        call("merge", 8, 9, "root", agent="boss"),
    )
    assert shape(of) == [("plan", []), ("code", [0])]
    assert of.turns["tokens"].to_list() == [30, 15]
    assert of.turns["cost_usd"].to_list() == pytest.approx([0.02, 0.01])
    assert of.turns["seconds"].to_list() == [2.0, 3.0]
    assert of.turns["failed"].to_list() == [False, True]
    assert of.calls["inside"].to_list() == [True, True, True, False]


def test_agents_side_by_side_are_branches_that_the_next_one_joins() -> None:
    of = found(
        agent("root", "boss", 0, 10),
        *(agent(name, name, start, end, "root") for name, start, end in [("p", 0, 1), ("x", 1, 4), ("y", 2, 3)]),
        agent("z", "z", 5, 6, "root"),
        *(call(f"{name}1", at, at + 0.5, name, agent=name) for name, at in [("p", 0), ("x", 1), ("y", 2), ("z", 5)]),
    )
    assert shape(of) == [("p", []), ("x", [0]), ("y", [0]), ("z", [1, 2])]
    assert organisation(next(iter(activations_of(of.turns).values()))).branches == 1


def test_one_agent_alone_is_seen_by_its_models_and_prompts() -> None:
    of = found(
        agent("root", "sql", 0, 10),
        call("1", 0, 1, "root", agent="sql", model_requested="small", prompt_name="ask", prompt_version="1"),
        call("t", 1, 3, "root", agent="sql", kind="tool", tool="run"),
        call("2", 3, 4, "root", agent="sql", model_requested="large", prompt_name="fix", prompt_version="2"),
    )
    assert shape(of) == [("small|ask@1", []), ("large|fix@2", [0])]
    assert of.turns["seconds"].to_list() == [3.0, 1.0]  # the tool is the step's that came before


def test_tools_are_the_steps_only_where_nothing_else_acts() -> None:
    tools = [call(f"{n}", n, n + 1, kind="tool", tool=name) for n, name in enumerate(("read", "grep", "read"))]
    assert shape(found(*tools)) == [("read", []), ("grep", [0]), ("read", [1])]
    assert shape(found(*tools, call("m", 9, 10))) == [("m", [])]


def test_an_attempt_that_failed_is_part_of_the_step_that_it_became() -> None:
    of = found(
        call("1", 0, 1, status="error", attempt_of="2", input_tokens=None, output_tokens=None, cost_usd=None)
        | {"unpriced": "failed without usage"},
        call("2", 2, 3),
        call("3", 4, 5, model_requested="n"),
    )
    assert shape(of) == [("m", []), ("n", [0])]
    assert of.turns["failed"].to_list() == [False, False]


def test_what_is_not_known_stays_unknown() -> None:
    of = found(
        call("1", 0, 1, cost_usd=None, unpriced="no price of m", input_tokens=None, output_tokens=None), call("2", 1, 2)
    )
    assert of.turns["cost_usd"].to_list() == [None, 0.01]
    assert of.turns["tokens"].to_list() == [None, 15]


def test_parents_that_are_missing_or_go_in_a_circle_lose_nothing_else() -> None:
    of = found(
        agent("root", "boss", 0, 9),
        agent("a", "plan", 0, 1, "root"),
        call("a1", 0, 1, "a", agent="plan"),
        agent("b", "code", 2, 3, "root"),
        call("b1", 2, 3, "b", agent="code"),
        call("x", 4, 5, "y"),
        call("y", 4, 5, "x"),
        call("lost", 6, 7, "nobody"),
    )
    assert shape(of) == [("plan", []), ("code", [0])]
    assert of.calls.filter("inside").height == 2


def test_links_say_what_follows_what_and_a_circle_of_them_is_cut() -> None:
    calls = [agent("root", "boss", 0, 9)]
    calls += [agent(name, name, 1, 2, "root") for name in "abc"]
    calls += [call(f"{name}1", 1, 2, name, agent=name) for name in "abc"]
    assert shape(found(*calls, links=[("a", "c"), ("b", "c")])) == [("c", []), ("a", [0]), ("b", [0])]
    circle = shape(found(*calls, links=[("a", "b"), ("b", "c"), ("c", "a")]))
    assert [name for name, _ in circle] == ["c", "b", "a"]
    assert [after for _, after in circle] == [[], [0], [1]]


def test_a_branch_that_stops_is_one_that_goes_on_nowhere() -> None:
    calls = [
        agent("root", "boss", 0, 9),
        agent("a", "plan", 0, 1, "root"),
        agent("b", "code", 2, 3, "root"),
        call("s", 1, 1, "root", kind="chain", name=STOP, agent="end"),
    ]
    for links in ([("b", "a"), ("s", "a")], None):
        of = found(*calls, links=links)
        metrics = organisation(next(iter(activations_of(of.turns).values())))
        assert (metrics.steps, metrics.active_agents, metrics.branches, metrics.density) == (2, 2, 2, 0.5)


spans_of_time = st.lists(st.tuples(st.integers(0, 12), st.integers(0, 6)), max_size=12)


@given(spans_of_time)
def test_a_turn_follows_those_that_had_ended_with_none_between(times: list[tuple[int, int]]) -> None:
    starts = sorted(start for start, _ in times)
    ends = [start + length for start, (_, length) in zip(starts, times, strict=True)]
    n = len(starts)
    earlier = [[a for a in range(b) if ends[a] <= starts[b]] for b in range(n)]
    wanted = [[a for a in earlier[b] if not any(a in earlier[c] for c in earlier[b])] for b in range(n)]
    assert in_order_of_time(starts, ends) == wanted


@given(st.integers(1, 8), st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), max_size=20))
def test_any_links_give_an_order_in_which_nothing_follows_a_later_turn(n: int, pairs: list[tuple[int, int]]) -> None:
    sequence, after = in_order_of_links(range(n), pairs)
    assert sorted(sequence) == list(range(n))
    assert all(before < place for place, earlier in enumerate(after) for before in earlier)
    told = {(turn, earlier) for turn, earlier in pairs if turn < n and earlier < n and turn != earlier}
    kept = {(sequence[place], sequence[before]) for place, earlier in enumerate(after) for before in earlier}
    assert kept <= told
    if not _circular(told):
        assert kept == told


def _circular(pairs: set[tuple[int, int]]) -> bool:
    reach = set(pairs)
    while more := {(a, d) for a, b in reach for c, d in reach if b == c} - reach:
        reach |= more
    return any(a == b for a, b in reach)


def test_a_trace_of_five_thousand_steps_is_one_chain() -> None:
    of = found(*(call(f"{n:05}", n, n + 1, model_requested=f"m{n % 7}") for n in range(5000)))
    metrics = organisation(next(iter(activations_of(of.turns).values())))
    assert (metrics.steps, metrics.active_agents, metrics.branches) == (5000, 7, 1)


def one_episode(decisions: int) -> EpisodeLog:
    return EpisodeLog(
        features=np.zeros((decisions, 1)),
        actions=np.zeros(decisions, dtype=np.int64),
        behaviour=np.full((decisions, 2), 0.5),
        cost_usd=np.ones(decisions),
        latency_s=np.ones(decisions),
        stop_quality=np.full(decisions, np.nan),
        episode=np.zeros(decisions, dtype=np.int64),
        quality=np.ones(1),
        groups=np.arange(1),
        time_ns=np.arange(1),
        action_names=("go on", STOP),
        propensities_logged=True,
    )


def test_turns_and_tokens_are_counted_before_each_decision() -> None:
    of = found(
        call("1", 0, 1),
        call("2", 1, 2, model_requested="n"),
        call("3", 4, 5, input_tokens=None, output_tokens=None),
    )
    log = replace(
        one_episode(3), episode=np.array([0, 0, 1]), quality=np.ones(2), groups=np.arange(2), time_ns=np.array([0, 9])
    )
    rows = pl.DataFrame({"trace_id": ["t", "t", "other"], "step": [0, 1, 0], "time_ns": [0, 3 * 10**9, 9]})
    turns = turns_of(of, log, ["t", "other"], rows)
    assert turns.activations == [[Activation("m"), Activation("n", (0,)), Activation("m", (1,))], []]
    assert turns.begun.tolist() == [0, 2, 0]
    assert turns.tokens_before.tolist() == [0.0, 30.0, 0.0]
    assert np.isnan(turns.tokens).all()
    assert measured(log, turns)["steps"].whole.tolist() == [3.0, 0.0]
    assert turns.answers == []


def test_the_answer_of_a_decision_is_that_of_the_last_turn_that_it_led_to() -> None:
    """Three decisions: the second led to two turns; the third, by an agent, said what the second had said."""
    calls = [call("1", 0, 1), call("2", 2, 3, model_requested="n"), call("3", 3, 4), call("4", 5, 6)]
    of = found(*calls, outputs={"1": "a", "2": "b", "3": "c", "4": "c"})
    answers = of.turns["answer"].to_list()
    assert answers[2] == answers[3]
    assert len(set(answers)) == 3
    log = one_episode(3)
    rows = pl.DataFrame({"trace_id": ["t"] * 3, "step": [0, 1, 2], "time_ns": [0, int(1.5e9), int(4.5e9)]})
    turns = turns_of(of, log, ["t"], rows)
    assert turns.begun.tolist() == [0, 1, 3]
    ((first, second, third),) = turns.answers
    assert second == third != first
    assert measured(log, turns)["wasted_suffix"].whole.tolist() == [1.0]


def test_an_agents_answer_is_its_own_else_that_of_its_last_call() -> None:
    def answers(outputs: Mapping[str, str]) -> list[int | None]:
        calls = [agent("r", "boss", 0, 9), agent("a", "plan", 0, 3, "r"), agent("b", "code", 4, 5, "r")]
        calls += [call("a1", 0, 1, "a", agent="plan"), call("a2", 1, 2, "a", agent="plan")]
        return found(*calls, outputs=outputs).turns["answer"].to_list()

    own, last = answers({"a": "x", "a2": "y", "b": "x"}), answers({"a1": "z", "a2": "x", "b": "x"})
    assert own[0] == own[1]
    assert last[0] == last[1]
    assert answers({})[0] is None
