"""Short cuts in reading change nothing: plans, forms of lists, plain messages; and nothing that is read raises."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from functools import cache
from typing import Any

import corpus
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from otlp_traces import span
from plain_reading import ROUTES, plain_keys, plain_structure, plain_values

from ingest import otlp
from ingest.dialects import flattened, messages, parts, plans, slots, values
from ingest.dialects.facts import Content
from ingest.dialects.registry import DIALECTS, read
from ingest.spans import Event, Span

ODD: tuple[object, ...] = (
    *(
        None,
        "",
        "None",
        " null ",
        0,
        -1,
        5,
        1.5,
        True,
        "true",
        "12",
        "nan",
        "{}",
        "[]",
        '"x"',
        [],
        {},
        ["a"],
        [1, None],
    ),
    *('{"model":"m","max_tokens":5}', '[{"role":"user","content":"hi"}]', '[{"type":"text","content":"a"}]'),
    *({"0": "a", "1": {"role": "user"}}, {"role": "user", "content": "x"}, [{"type": "text", "text": "t"}], "[broken"),
    *('"[{\\"role\\":\\"user\\"}]"', "[{'role': 'user', 'content': None}]", 2**63, [{"type": ["text"]}]),
)
"""Values that keys hold in no case of the corpus."""


STARTS = ("llm.input_messages", "llm.output_messages", "gen_ai.completion", "llm.choices", "llm.tools")
ENDS = ("", ".message", ".message.role", ".message.content", ".role", ".content", ".message.0.x")


@cache
def golden() -> tuple[Span, ...]:
    """Every span of the cases, each set of keys and values once."""
    found: dict[str, Span] = {}
    for case in corpus.cases(corpus.GOLDEN):
        for record in case.records():
            if record.kind == "traces":
                for one in otlp.decode(record.body, "traces", record.encoding).spans:
                    found.setdefault(json.dumps(one.attributes), one)
    return tuple(found.values())


@cache
def vocabulary() -> Mapping[str, tuple[object, ...]]:
    """Key -> values that it has in the cases."""
    found: dict[str, list[object]] = {}
    for one in golden():
        for key, value in one.attributes.items():
            found.setdefault(key, []).append(value)
    return {key: tuple(sent[:20]) for key, sent in found.items()}


def attributes_of(draw: random.Random) -> dict[str, object]:
    """Attributes of one span or of several together, some left out, some with other values, in any order."""
    items = dict(draw.choice(golden()).attributes)
    if draw.random() < 0.4:
        items.update(draw.choice(golden()).attributes)
    for key in draw.sample(sorted(items), draw.randint(0, len(items) // 3)):
        sent = draw.choice((*vocabulary()[key], *ODD))
        del items[key]
        if draw.random() < 0.5:
            items[key] = sent
    for _ in range(draw.choice((0, 0, 1, 3))):
        start = draw.choice(
            ("llm.input_messages", "llm.output_messages", "gen_ai.completion", "llm.choices", "llm.tools")
        )
        end = draw.choice(("", ".message", ".message.role", ".message.content", ".role", ".content", ".message.0.x"))
        items[f"{start}.{draw.choice(('0', '00', '1', '7', 'x'))}{end}"] = draw.choice(ODD)
    shuffled = list(items.items())
    if draw.random() < 0.5:
        draw.shuffle(shuffled)
    return dict(shuffled)


def as_json(found: Mapping[str, object]) -> dict[str, str]:
    """Values as texts: the order of keys within them counts."""
    return {field: values.dumps(value) for field, value in found.items()}


def check_plan(attributes: Mapping[str, object]) -> None:
    made = plans.Plans(ROUTES, DIALECTS)
    plan = made[tuple(attributes)]
    assert made[tuple(attributes)] is plan
    before = values.dumps(attributes)
    assert as_json(plan.values(attributes)) == as_json(plain_values(attributes))
    assert values.dumps(attributes) == before
    texts, unknown, asked = plain_keys(attributes)
    assert (set(plan.texts), list(plan.unknown), {d.name for d in plan.dialects}) == (texts, unknown, asked)


def test_a_plan_finds_what_the_keys_one_by_one_say() -> None:
    assert len(golden()) > 100
    for one in golden():
        check_plan(one.attributes)


@settings(max_examples=300)
@given(st.randoms(use_true_random=False))
def test_a_plan_finds_the_same_for_any_mixture(draw: random.Random) -> None:
    check_plan(attributes_of(draw))


def unordered(told: str | None) -> object:
    return None if told is None else json.loads(told)


@settings(max_examples=50)
@given(st.randoms(use_true_random=False))
def test_the_order_of_keys_says_nothing(draw: random.Random) -> None:
    one = draw.choice(golden())
    items = list(one.attributes.items())
    draw.shuffle(items)
    first, second = (read(span(1, attributes)) for attributes in (one.attributes, dict(items)))
    assert second.facts == first.facts
    assert sorted(second.unknown) == sorted(first.unknown)
    assert second.kept == first.kept
    for field in ("input_text", "output_text", "tools"):
        assert unordered(getattr(second.content, field)) == unordered(getattr(first.content, field))


@settings(max_examples=200)
@given(st.randoms(use_true_random=False), st.sampled_from(["ok", "error", None]))
def test_no_span_stops_a_converter(draw: random.Random, status: str | None) -> None:
    events = [Event(name, 1, {"gen_ai.prompt": draw.choice(ODD), "content": draw.choice(ODD)}) for name in EVENTS]
    one = span(1, attributes_of(draw), status=status, events=draw.sample(events, draw.randint(0, 2)))
    reading = read(one)
    assert reading.kept.keys() <= one.attributes.keys()


EVENTS = sorted(messages.CONTENT_EVENTS)


# ---------------------------------------------------------------- what is kept in memory


def test_plans_are_bounded_in_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plans, "_MOST_PLANS", 10)
    made = plans.Plans(ROUTES, DIALECTS)
    for number in range(100):
        plan = made["gen_ai.operation.name", f"mine.{number}"]
        assert plan.unknown == (f"mine.{number}",)
        assert [dialect.name for dialect in plan.dialects] == ["otel_genai"]
        assert len(made) <= 10


def test_plans_are_bounded_in_size_and_a_giant_forgets_no_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plans, "_MOST_CHARACTERS", 1600)
    made = plans.Plans(ROUTES, DIALECTS)
    for number in range(100):
        assert made["k" * 90, f"mine.{number:03}"].unknown[1] == f"mine.{number:03}"
        assert sum(len(key) for keys in made for key in keys) <= 1600
    known = len(made)
    assert made["k" * 1601,].unknown == ("k" * 1601,)
    assert len(made) == known


def test_keys_are_bounded_and_those_of_tables_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    routes = slots.Routes(DIALECTS, first=DIALECTS[0])
    most = len(routes) + 10
    monkeypatch.setattr(slots, "_MOST_ROUTES", most)
    asked = routes["gen_ai.request.model"]
    for number in range(100):
        assert routes[f"mine.{number}"] is slots.UNKNOWN
        assert routes[f"http.{number}"] is slots.KNOWN
        assert routes[f"llm.input_messages.{number}.message.role"].path == (str(number), "message", "role")
        assert len(routes) <= most
    assert routes["gen_ai.request.model"] is asked
    assert routes["k" * 2000] is slots.UNKNOWN
    assert "k" * 2000 not in routes


# ---------------------------------------------------------------- lists, messages, values

STEPS = st.lists(st.sampled_from(["0", "1", "10", "01", "role", "content", "message", ""]), min_size=1, max_size=4)


@given(st.lists(st.tuples(STEPS, st.sampled_from(ODD)), min_size=1, max_size=8, unique_by=lambda pair: tuple(pair[0])))
def test_a_form_gathers_what_its_paths_do(pieces: list[tuple[list[str], object]]) -> None:
    paths = {".".join(path): tuple(path) for path, _ in pieces}
    sent = {".".join(path): value for path, value in pieces}
    before = json.dumps(sent)
    expected = flattened.gathered((path, sent[key]) for key, path in paths.items())
    assert json.dumps(flattened.Form(paths).filled(sent)) == json.dumps(expected)
    assert json.dumps(sent) == before


PLAIN_MESSAGES = st.fixed_dictionaries(
    {"role": st.sampled_from(["user", "assistant", "system", "human", "ai", "tool", "function", "x"])},
    optional={
        "content": st.one_of(
            st.text(),
            st.sampled_from(['[{"type":"text","text":"x"}]', "[{'a': 1}]", '{"a":1}', None, 5]),
            st.lists(st.fixed_dictionaries({"type": st.just("text"), "text": st.text()}), min_size=1, max_size=2),
        ),
        "name": st.text(),
        "finish_reason": st.sampled_from(["stop", None, 3]),
    },
)


@given(PLAIN_MESSAGES, st.booleans())
def test_a_plain_message_is_read_like_any_other(message: dict[str, Any], wrapped: bool) -> None:
    sent = {"message": message} if wrapped else message
    short = messages.canonical([sent], "user")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(parts, "simple", lambda given: None)
        assert values.dumps(messages.canonical([sent], "user")) == values.dumps(short)


WORDS = (
    *("role", "content", "parts", "type", "text", "message", "messages", "tool_calls", "function", "name", "arguments"),
    *("id", "choices", "input", "output", "prompt", "kwargs", "lc", "message_content", "contents", "tool_call", "data"),
    *("additional_kwargs", "reasoning", "system", "function_tools", "output_tools", "json_schema", "tool", "response"),
)
SAID = ("text", "tool_use", "tool_result", "thinking", "image", "constructor", "ai", "user", "tool", "function_call")
TREES = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.text(max_size=4), st.sampled_from(SAID)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.sampled_from(WORDS), inner, max_size=4), inner.map(json.dumps)
    ),
    max_leaves=12,
)


@settings(max_examples=500)
@given(TREES, TREES)
def test_every_message_is_read_as_content(one: Any, other: Any) -> None:
    carried = [(name, one, {"content": other, "message": other, "gen_ai.input.messages": one}) for name in EVENTS]
    listed = [{"event.name": name, "content": one, "message": other} for name in EVENTS]
    read = [
        messages.content(one, other, other, one, other, one, one),
        messages.tool_content("name", "id", one, other),
        messages.from_events(carried),
        messages.from_listed_events(listed),
    ]
    assert all(isinstance(content, Content) for content in read)
    assert isinstance(messages.tool_names(one), str | None)
    assert len(messages.tool_from_events(carried)) == 2


@given(st.one_of(TREES, st.text(), TREES.map(lambda tree: " \n" + json.dumps(tree))))
def test_structures_are_found_however_they_begin(value: object) -> None:
    if not isinstance(value, str) or not value.startswith(("{", "[")) or value.startswith(('{"', '[{"', '["')):
        assert values.structure(value) == plain_structure(value)


@given(st.recursive(st.one_of(st.none(), st.integers(), st.text(), st.binary()), lambda inner: st.lists(inner)))
def test_odd_values_become_json_as_ordinary_ones_do(value: object) -> None:
    assert values.dumps(value) == values._dumps_odd(value)


@given(
    st.one_of(
        st.text(max_size=40), st.sampled_from(["None", " null ", "UNDEFINED\t", "nix", "Nobody", "\x1c", "ünull"])
    )
)
def test_a_text_that_cannot_mean_nothing_is_known_by_its_first_letter(given_text: str) -> None:
    means_nothing = given_text.strip().lower() in {"", "none", "null", "undefined"}
    assert values.text(given_text) == (None if means_nothing else given_text)
