"""Settling: one row per real call, whatever else repeats it, in whatever order spans arrived."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from otlp_traces import agent, chat, span, tool

from ingest.dialects.registry import read
from ingest.pricing import Price, Prices
from ingest.settle import Call, Settled, TraceSpan, settle
from ingest.spans import Span

PRICES = Prices((Price("gpt-4o-mini", 1.0, 2.0),), {})


def seen(sent: Span) -> TraceSpan:
    """A span as it comes back from the lake."""
    reading = read(sent)
    given, answered = reading.content.input_text, reading.content.output_text
    return TraceSpan(
        sent.span_id,
        sent.parent_span_id,
        sent.name,
        sent.service,
        sent.start_ns,
        sent.end_ns,
        sent.status,
        reading.facts,
        len(given or ""),
        len(answered or ""),
        given,
    )


def settled(*spans: Span) -> Settled:
    return settle([seen(one) for one in spans], PRICES)


def calls(*spans: Span) -> dict[int, Call]:
    return {int(call.span_id, 16): call for call in settled(*spans).calls}


def roles(*spans: Span) -> dict[int, tuple[str, int | None]]:
    return {
        int(role.span_id, 16): (role.role, None if role.call_id is None else int(role.call_id, 16))
        for role in settled(*spans).roles
    }


def tokens(found: dict[int, Call], kind: str = "llm") -> dict[int, tuple[int | None, int | None]]:
    return {
        number: (call.facts.input_tokens, call.facts.output_tokens)
        for number, call in found.items()
        if call.facts.kind == kind
    }


def test_a_call_is_a_row_with_its_cost_and_time() -> None:
    (call,) = settled(span(1, chat(gen_ai__response__id="r1"))).calls
    assert call.cost.usd == pytest.approx(100e-6 + 20 * 2e-6)
    assert call.cost.unpriced is None
    assert (call.status, call.facts.response_id) == ("ok", "r1")
    assert call.end_ns is not None
    assert call.end_ns - (call.start_ns or 0) == 1_000_000_000


def test_noise_is_no_call() -> None:
    found = settled(span(1, {"http.route": "/"}, name="GET /"), span(2, chat(), parent=1))
    assert [call.span_id for call in found.calls] == [span(2).span_id]
    assert found.calls[0].parent_call_id is None


def test_sums_on_agents_and_chains_are_roll_ups() -> None:
    spans = (
        span(1, agent(gen_ai__usage__input_tokens=300, gen_ai__usage__output_tokens=50)),
        span(2, {"gen_ai.operation.name": "plan", "gen_ai.usage.input_tokens": 300}, parent=1),
        span(3, chat(input_tokens=100, output_tokens=20), parent=2),
        span(4, chat(input_tokens=200, output_tokens=30), parent=2),
    )
    found = calls(*spans)
    assert tokens(found) == {3: (100, 20), 4: (200, 30)}
    assert tokens(found, "agent") == {1: (None, None)}
    assert found[1].cost.usd is None
    assert found[1].cost.unpriced is None
    assert roles(*spans)[1] == ("roll-up", 1)
    assert {number: call.parent_call_id for number, call in found.items()} == {
        1: None,
        2: span(1).span_id,
        3: span(2).span_id,
        4: span(2).span_id,
    }


def test_an_agents_own_usage_counts_when_nothing_below_it_could() -> None:
    usage = {"gen_ai.usage.input_tokens": 300, "gen_ai.usage.output_tokens": 50, "gen_ai.request.model": "gpt-4o-mini"}
    spans = (
        span(1, {**agent("outer"), **usage}),
        span(2, {**agent("inner"), **usage}, parent=1),
        span(3, tool(), parent=2),
    )
    found = calls(*spans)
    assert tokens(found, "agent") == {1: (None, None), 2: (300, 50)}
    assert found[2].cost.usd == pytest.approx(400e-6)


def test_a_call_seen_by_two_instrumentations_is_one() -> None:
    texts = {"gen_ai.input.messages": [{"role": "user", "content": "Hi"}], "gen_ai.output.messages": "Hello"}
    outer = span(1, {**chat(), **texts, "session.id": "s"}, start_ns=10, end_ns=900)
    inner = span(2, chat(gen_ai__usage__cache_read__input_tokens=40), parent=1, start_ns=20, end_ns=800)
    found = calls(outer, inner)
    assert list(found) == [2]
    assert (found[2].start_ns, found[2].end_ns) == (20, 800)
    assert found[2].facts.cache_read_tokens == 40
    assert found[2].facts.session_id == "s"
    assert found[2].content_span_id == outer.span_id
    assert roles(outer, inner) == {1: ("duplicate", 2), 2: ("own", 2)}


def test_equal_response_ids_make_one_call_though_the_counts_differ() -> None:
    outer = span(1, chat(input_tokens=100, gen_ai__response__id="r"))
    inner = span(2, chat(input_tokens=140, gen_ai__response__id="r"), parent=1)
    assert tokens(calls(outer, inner)) == {2: (140, 20)}


def test_three_sights_of_a_call_are_one_even_through_other_spans() -> None:
    spans = (
        span(1, chat()),
        span(2, {"http.route": "/v1"}, parent=1),
        span(3, chat(), parent=2),
        span(4, chat(gen_ai__response__model="gpt-4o-mini-1"), parent=3),
    )
    assert tokens(calls(*spans)) == {4: (100, 20)}
    assert {role for role, _ in roles(*spans).values()} == {"own", "duplicate"}


def test_a_model_span_without_counts_around_one_call_is_that_call() -> None:
    spans = (span(1, chat(input_tokens=None, output_tokens=None)), span(2, chat(), parent=1))
    assert tokens(calls(*spans)) == {2: (100, 20)}


def test_a_model_span_around_several_calls_is_a_roll_up() -> None:
    spans = (
        span(1, chat(input_tokens=300, output_tokens=50)),
        span(2, chat(input_tokens=100, output_tokens=20), parent=1),
        span(3, chat(input_tokens=200, output_tokens=30), parent=1),
    )
    assert tokens(calls(*spans)) == {2: (100, 20), 3: (200, 30)}
    assert roles(*spans)[1] == ("roll-up", None)


def test_a_call_made_by_a_tool_of_a_call_is_another_call() -> None:
    spans = (
        span(1, chat(input_tokens=500, output_tokens=50)),
        span(2, tool(), parent=1),
        span(3, chat(input_tokens=70, output_tokens=7), parent=2),
    )
    assert tokens(calls(*spans)) == {1: (500, 50), 3: (70, 7)}


def test_siblings_with_equal_counts_are_two_calls() -> None:
    assert len(calls(span(1, agent()), span(2, chat(), parent=1), span(3, chat(), parent=1))) == 3


def test_an_embedding_and_a_model_call_in_line_are_two() -> None:
    embedding = {"gen_ai.operation.name": "embeddings", "gen_ai.request.model": "e", "gen_ai.usage.input_tokens": 100}
    assert {c.facts.kind for c in calls(span(1, chat()), span(2, embedding, parent=1)).values()} == {"llm", "embedding"}


def test_session_user_agent_and_workflow_are_inherited_downward_only() -> None:
    spans = (
        span(1, {"gen_ai.operation.name": "invoke_workflow", "gen_ai.workflow.name": "w", "user.id": "u"}),
        span(2, agent("outer", session__id="s1"), parent=1),
        span(3, agent("inner", session__id="s2"), parent=2),
        span(4, chat(), parent=3),
        span(5, chat(), parent=2),
        span(6, chat(), parent=1),
    )
    found = {
        n: (c.facts.session_id, c.facts.user_id, c.facts.agent, c.facts.workflow) for n, c in calls(*spans).items()
    }
    assert found == {
        1: (None, "u", None, "w"),
        2: ("s1", "u", "outer", "w"),
        3: ("s2", "u", "inner", "w"),
        4: ("s2", "u", "inner", "w"),
        5: ("s1", "u", "outer", "w"),
        6: (None, "u", None, "w"),
    }


def test_an_agents_tools_are_those_of_its_calls_but_not_of_the_agents_below() -> None:
    weather, both = '[{"name": "weather"}]', '[{"name": "weather"}, {"name": "orders"}]'
    found = calls(
        span(1, {**agent("helper"), "gen_ai.tool.definitions": both}),
        span(2, chat(), parent=1),
        span(3, {**chat(), "gen_ai.tool.definitions": weather}, parent=1),
        span(4, agent("poet"), parent=1),
        span(5, chat(), parent=4),
    )
    offered = [found[place].facts.tools_offered for place in (2, 3, 5)]
    assert offered == ['["weather","orders"]', '["weather"]', None]


def test_orphans_are_kept_as_roots_of_their_fragment() -> None:
    spans = (span(2, agent("lost", session__id="s"), parent=99), span(3, chat(), parent=2))
    found = calls(*spans)
    assert found[3].facts.session_id == "s"
    assert found[2].parent_call_id is None


def test_parents_in_a_circle_do_no_harm() -> None:
    spans = (
        span(1, chat(), parent=2),
        span(2, agent(), parent=3),
        span(3, agent(), parent=1),
        span(4, chat(), parent=4),
    )
    assert set(calls(*spans)) >= {2, 3, 4}


@pytest.mark.parametrize("end_ns", [0, 5])
def test_an_end_that_cannot_be_is_unknown(end_ns: int) -> None:
    (call,) = settled(span(1, chat(), start_ns=10, end_ns=end_ns)).calls
    assert call.end_ns is None


@pytest.mark.parametrize(
    ("status", "attributes", "end_ns", "expected"),
    [
        ("ok", {}, 1, "ok"),
        (None, {}, 1, "ok"),
        (None, {}, 0, None),
        (None, {"error.type": "429"}, 1, "error"),
        ("error", {}, 1, "error"),
    ],
)
def test_status_is_what_the_span_shows(
    status: str | None, attributes: dict[str, object], end_ns: int, expected: str | None
) -> None:
    (call,) = settled(span(1, {**chat(), **attributes}, status=status, start_ns=1, end_ns=end_ns)).calls
    assert call.status == expected


def test_a_failed_call_without_usage_says_so() -> None:
    (call,) = settled(span(1, chat(input_tokens=None, output_tokens=None), status="error")).calls
    assert call.cost.unpriced == "failed without usage"


def test_attempts_count_the_failures_before_with_the_same_prompt() -> None:
    def asked(text: str) -> dict[str, object]:
        return chat(gen_ai__input__messages=text)

    spans = (
        span(1, agent()),
        span(2, asked("Hi"), parent=1, status="error"),
        span(3, asked("Hi"), parent=1, status="error"),
        span(4, asked("Hi"), parent=1),
        span(5, asked("Hi"), parent=1),
        span(6, asked("Bye"), parent=1),
        span(7, chat(), parent=1),
    )
    assert {n: c.attempts for n, c in calls(*spans).items() if n > 1} == {2: 1, 3: 2, 4: 3, 5: 1, 6: 1, 7: None}


POLICY = {"policy.id": "p", "policy.action": "small", "policy.propensity": 0.5}


def actions(*spans: Span) -> dict[int, str | None]:
    return {number: call.facts.policy_action for number, call in calls(*spans).items()}


def test_a_decision_on_the_root_holds_for_all_below() -> None:
    spans = (span(1, {**agent(), **POLICY}), span(2, tool(), parent=1), span(3, chat(), parent=2))
    assert actions(*spans) == {1: "small", 2: "small", 3: "small"}


def test_a_nearer_decision_wins() -> None:
    nearer = {**POLICY, "policy.action": "big"}
    spans = (span(1, {**agent(), **POLICY}), span(2, {**agent(), **nearer}, parent=1), span(3, chat(), parent=2))
    assert actions(*spans) == {1: "small", 2: "big", 3: "big"}


def test_a_call_does_not_lend_its_decision_sideways_or_up() -> None:
    spans = (span(1, agent()), span(2, {**chat(), **POLICY}, parent=1), span(3, chat(), parent=1))
    assert actions(*spans) == {1: None, 2: "small", 3: None}


def test_a_decision_beside_the_call_in_its_trace_is_found() -> None:
    spans = (
        span(1, {"http.route": "/chat"}),
        span(2, {"service": "router", **POLICY}, parent=1),
        span(3, chat(), parent=1),
    )
    assert actions(*spans) == {3: "small"}


def test_what_the_nearest_leaves_out_comes_from_the_same_decision() -> None:
    root = {"http.route": "/chat", **POLICY, "policy.features": "AAAA"}
    assert calls(span(1, root), span(2, {**chat(), **POLICY}, parent=1))[2].facts.policy_features == "AAAA"
    other = {**root, "policy.action": "big"}
    assert calls(span(1, other), span(2, {**chat(), **POLICY}, parent=1))[2].facts.policy_features is None


KINDS = st.sampled_from(["chat", "agent", "tool", "plan", "noise"])


@st.composite
def traces(draw: st.DrawFn) -> list[Span]:
    """A trace of any shape: parents anywhere, also missing or in circles; equal times; duplicated counts."""
    size = draw(st.integers(1, 9))
    spans = []
    for number in range(1, size + 1):
        parent = draw(st.none() | st.integers(1, size + 1))
        count = draw(st.integers(0, 3))
        attributes = {
            "chat": chat(input_tokens=count * 10 or None, output_tokens=count or None),
            "agent": agent(f"a{count}", **({"gen_ai__usage__input_tokens": 10 * count} if count > 1 else {})),
            "tool": tool(),
            "plan": {"gen_ai.operation.name": "plan"},
            "noise": POLICY if count else {},
        }[draw(KINDS)]
        spans.append(span(number, attributes, parent=parent, start_ns=draw(st.integers(0, 2))))
    return spans


@given(traces(), st.randoms(use_true_random=False))
def test_the_order_of_arrival_changes_nothing(spans: list[Span], shuffle: random.Random) -> None:
    one = [seen(s) for s in spans]
    other = list(one)
    shuffle.shuffle(other)
    assert settle(one, PRICES) == settle(other, PRICES)


@given(traces())
def test_every_step_has_one_role_and_every_row_is_one_step(spans: list[Span]) -> None:
    found = settled(*spans)
    rows = [call.span_id for call in found.calls]
    steps = {s.span_id for s in spans if read(s).facts.kind != "other"}
    assert len(rows) == len(set(rows))
    assert {role.span_id for role in found.roles} == steps
    assert set(rows) <= steps
    assert {role.call_id for role in found.roles} - {None} == set(rows)
    assert all(call.parent_call_id in {None, *rows} and call.parent_call_id != call.span_id for call in found.calls)


@given(traces())
def test_the_innermost_model_calls_are_always_counted(spans: list[Span]) -> None:
    rows = {call.span_id for call in settled(*spans).calls}
    parents = {s.parent_span_id for s in spans}
    assert all(s.span_id in rows for s in spans if read(s).facts.kind == "llm" and s.span_id not in parents)


@given(traces(), st.integers(1, 9))
def test_a_second_sight_of_a_leaf_adds_no_cost(spans: list[Span], which: int) -> None:
    """An instrumentation that wraps one more span around a leaf call must not change what the trace cost."""
    parents = {s.parent_span_id for s in spans}
    leaves = [
        s for s in spans if read(s).facts.kind == "llm" and s.span_id not in parents and s.span_id != s.parent_span_id
    ]
    if not leaves:
        return
    leaf = leaves[which % len(leaves)]
    inner = replace(leaf, span_id=span(50).span_id, parent_span_id=leaf.span_id)
    assert total(settled(*spans, inner)) == pytest.approx(total(settled(*spans)))


def total(found: Settled) -> float:
    return sum(call.cost.usd or 0.0 for call in found.calls)


def test_a_deep_trace_settles() -> None:
    spans: Sequence[Span] = [span(n, agent() if n < 1500 else chat(), parent=n - 1 or None) for n in range(1, 1501)]
    assert len(settled(*spans).calls) == 1500
