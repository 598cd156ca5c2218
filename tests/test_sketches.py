"""Messages without their words: what is kept of them, and that a policy sees no difference."""

from __future__ import annotations

import numpy as np
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingest.dialects import messages
from ingest.sketches import is_sketch, sketched
from optimizer import prompts
from optimizer.runtime import SPEC, featurise

WORDS = (
    "The quick brown Fox asks: why does `sum(x)` fail?\n- 1. SELECT name FROM users\n```py\nreturn 42\n``` ünïcode 詩"
)

TEXTS = st.one_of(st.text(max_size=60), st.just(WORDS), st.sampled_from(["", "a", WORDS * 100]))
PARTS = st.lists(
    st.one_of(st.builds(lambda t: {"type": "text", "text": t}, TEXTS), st.just({"type": "image", "bytes": 9})),
    max_size=3,
)
MESSAGES = st.lists(
    st.builds(
        lambda role, content, more: {"role": role, "content": content, **more},
        st.sampled_from(["user", "human", "assistant", "system", "developer", "tool", "odd"]),
        st.one_of(TEXTS, PARTS),
        st.sampled_from(
            [
                {},
                {"tool_calls": [{"id": "c1", "name": "search", "arguments": {"q": "secret"}}]},
                {"finish_reason": "stop"},
            ]
        ),
    ),
    min_size=1,
    max_size=5,
)


def stored(conversation: list) -> str:
    return orjson.dumps(conversation).decode()


@given(MESSAGES, st.sampled_from([None, ["search", "book"]]))
def test_a_policy_sees_the_same_features(conversation, tools):
    kept = orjson.loads(sketched(stored(conversation), prompts.vector))
    whole = featurise({"messages": conversation, "tools": tools})
    assert np.array_equal(prompts.features(kept, tools), whole)
    assert np.array_equal(prompts.features(conversation, tools), whole)


@given(MESSAGES, MESSAGES)
def test_a_conversation_may_be_sketched_in_part(before, after):
    """Content was switched off, or on, in the middle of it."""
    whole = featurise({"messages": [*before, *after]})
    for first, second in ((True, False), (False, True)):
        parts = [
            *(orjson.loads(sketched(stored(before), prompts.vector)) if first else before),
            *(orjson.loads(sketched(stored(after), prompts.vector)) if second else after),
        ]
        assert np.array_equal(prompts.features(parts, None), whole)


@given(MESSAGES)
def test_sketches_are_canonical_messages_and_their_own_sketches(conversation):
    named = [{**m, "role": {"human": "user", "odd": "tool"}.get(m["role"], m["role"])} for m in conversation]
    kept = sketched(stored(named), prompts.vector)
    assert sketched(kept, prompts.vector) == kept
    assert messages.canonical(kept, "user") == orjson.loads(kept)


def test_roles_names_and_lengths_are_kept_and_no_word_is():
    conversation = [
        {"role": "system", "content": "Obey"},
        {"role": "user", "content": WORDS},
        {"role": "assistant", "content": "", "reasoning": "Hmm", "finish_reason": "tool_calls",
         "tool_calls": [{"id": "c1", "name": "search", "arguments": {"q": "Fox"}}]},
        {"role": "tool", "content": "Answer", "tool_call_id": "c1"},
    ]  # fmt: skip
    text = sketched(stored(conversation), prompts.vector)
    kept = orjson.loads(text)
    assert [message["role"] for message in kept] == ["system", "user", "assistant", "tool"]
    assert [message["content"][0]["chars"] for message in kept] == [4, len(WORDS), 0, 6]
    assert kept[2]["tool_calls"] == [{"id": "c1", "name": "search", "arguments": None}]
    assert (kept[2]["finish_reason"], kept[3]["tool_call_id"]) == ("tool_calls", "c1")
    assert [("features" in message["content"][0]) for message in kept] == [False, True, False, False]
    for word in ("Obey", "quick", "Fox", "SELECT", "Hmm", "Answer"):
        assert word not in text


def test_equal_texts_have_equal_digests_and_others_do_not():
    def digest(content: object, **more: object) -> str:
        return orjson.loads(sketched(stored([{"role": "user", "content": content, **more}]), None))[0]["content"][0][
            "digest"
        ]

    assert digest("a") == digest("a")
    assert (
        len({digest("a"), digest("b"), digest("a", reasoning="c"), digest("a", tool_calls=[{"arguments": "d"}])}) == 4
    )


@pytest.mark.parametrize(
    "part",
    [
        {"type": "sketch", "chars": 3, "parts": 0, "text": "secret"},
        {"type": "sketch", "chars": "secret", "parts": 0},
        {"type": "sketch", "chars": 3, "parts": 0, "digest": "secret"},
        {"type": "sketch", "chars": 3, "parts": 0, "features": "secret prose"},
    ],
)
def test_what_only_calls_itself_a_sketch_is_sketched(part):
    assert not is_sketch(part)
    assert "secret" not in sketched(stored([{"role": "user", "content": [part]}]), None)


def test_features_of_other_rules_count_as_none():
    kept = orjson.loads(
        sketched(stored([{"role": "user", "content": WORDS}]), lambda _: "retroute-0:000000000000/AAAA")
    )
    assert SPEC not in str(kept)
    assert np.count_nonzero(prompts.features(kept, None)) == 2  # the message and its length


@pytest.mark.parametrize("text", ["no JSON", "7", "[]", "[7]", '{"role": "user"}'])
def test_what_are_no_messages_is_dropped(text):
    assert sketched(text, prompts.vector) is None
