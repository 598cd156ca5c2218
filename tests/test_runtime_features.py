"""Features: fixed by golden vectors, portable, quick, and never a reason to fail a request."""

from __future__ import annotations

import json
import time
import zlib
from collections.abc import Iterator, Mapping

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from optimizer import runtime
from optimizer.runtime import DENSE, DIM, decode_features, encode_features, features_hash, featurise, featurise_many

MIXED = "Écris un poème (court) — 詩を書いて 🙂?\n- A. Yes\n- B. NO\n1. x = 3 + 41\n```python\ndef f(): return 1\n```"
CONTEXTS: dict[str, Mapping[str, object]] = {
    "short": {"messages": [{"role": "user", "content": "What is the capital of France?"}]},
    "mixed": {"messages": [{"role": "user", "content": MIXED}]},
    "conversation": {
        "messages": [
            {"role": "system", "content": "You are a careful analyst."},
            {"role": "user", "content": "Hello"},
            {"role": "assistant", "content": None, "tool_calls": [{"id": "1"}]},
            {"role": "tool", "content": "42"},
            {"role": "user", "content": [{"type": "text", "text": "Explain."}, {"type": "image_url", "image_url": {}}]},
        ],
        "tools": [{"type": "function"}, {"type": "function"}],
        "response_format": {"type": "json_schema"},
        "history": [{"action": "a"}, {"action": "b"}, {"action": "c"}],
    },
    "empty": {},
}
# A change here is a change of the rules: raise the number in runtime.SPEC, since logged vectors no longer compare.
GOLDEN = {
    "short": "57fc8c9a4361ac21",
    "mixed": "e423fb8dee759df9",
    "conversation": "18c04298abdc9ff4",
    "empty": "5341e6b2646979a7",
}


def dense(context: Mapping[str, object]) -> dict[str, float]:
    return dict(zip(DENSE, featurise(context).tolist(), strict=False))


def user(text: str) -> dict[str, object]:
    return {"messages": [{"role": "user", "content": text}]}


@pytest.mark.parametrize("name", CONTEXTS)
def test_golden_contexts_keep_their_vector(name: str) -> None:
    assert features_hash(featurise(CONTEXTS[name])) == GOLDEN[name]


def test_the_rules_keep_their_name() -> None:
    assert runtime.SPEC == "retroute-1:febdfd57c22e"


def test_counts_are_what_they_are_called() -> None:
    got = dense(CONTEXTS["mixed"])
    expected = {
        "characters": np.log1p(len(MIXED)),
        "lines": np.log1p(7),
        "digits": np.log1p(5),
        "numbers": np.log1p(4),
        "question_marks": np.log1p(1),
        "code_fences": np.log1p(2),
        "math_symbols": np.log1p(2),
        "brackets": np.log1p(4),
        "uppercase_share": 5 / len(MIXED),
        "choices": np.log1p(2),
        "list_items": np.log1p(3),
        "user_messages": np.log1p(1),
        "json_response": 0.0,
    }
    assert {name: got[name] for name in expected} == pytest.approx(expected, rel=1e-3)


def test_a_conversation_is_counted_by_role_and_its_last_user_message_read() -> None:
    got = dense(CONTEXTS["conversation"])
    assert (
        got["system_messages"]
        == got["assistant_messages"]
        == got["tool_messages"]
        == pytest.approx(np.log(2), rel=1e-3)
    )
    assert got["user_messages"] == got["tools"] == pytest.approx(np.log(3), rel=1e-3)
    assert got["attachments"] == pytest.approx(np.log(2), rel=1e-3)
    assert got["history"] == pytest.approx(np.log(4), rel=1e-3)
    assert got["json_response"] == 1.0
    assert got["characters"] == pytest.approx(np.log1p(len("Explain.")), rel=1e-3)


def test_hashed_tokens_follow_the_portable_rule() -> None:
    expected = np.zeros(96)
    for token in (b"hello", b"world", b"hello world"):
        code = zlib.crc32(token)
        expected[code % 96] += -1.0 if code >> 31 else 1.0
    got = featurise(user("Hello, WORLD!"))[32:]
    assert got == pytest.approx(expected / np.linalg.norm(expected), abs=1e-3)


def test_shapes_of_a_message_that_mean_the_same_give_the_same_vector() -> None:
    text = "Translate this."
    shapes: list[Mapping[str, object]] = [
        user(text),
        {"messages": text},
        {"messages": [{"role": "user", "content": [{"type": "text", "text": text}]}]},
        {"messages": [{"role": "user", "content": [{"type": "input_text", "text": text}]}]},
        {"messages": ({"role": "user", "parts": [{"type": "text", "content": text}]},)},
        {"messages": [{"role": "human", "content": text}], "tools": [], "history": None, "metadata": {"cost": 3}},
    ]
    assert len({features_hash(featurise(shape)) for shape in shapes}) == 1


def test_composed_and_decomposed_letters_give_the_same_vector() -> None:
    composed, decomposed = featurise(user("caf\u00e9 noir")), featurise(user("cafe\u0301 noir"))
    lengths = [DENSE.index("characters"), DENSE.index("conversation_characters")]
    assert np.array_equal(np.delete(composed, lengths), np.delete(decomposed, lengths))


def test_a_logged_vector_equals_the_one_used() -> None:
    features = featurise(CONTEXTS["mixed"])
    assert np.array_equal(decode_features(encode_features(features)), features)
    assert features.dtype == np.float32
    assert features.shape == (DIM,)


@pytest.mark.parametrize("text", ["", "AAAA", "not base64", encode_features(np.full(DIM, np.nan)), "AAAA" * 100])
def test_a_broken_logged_vector_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        decode_features(text)


class Hostile(Mapping[str, object]):
    def __getitem__(self, key: str) -> object:
        raise RuntimeError("no")

    def __iter__(self) -> Iterator[str]:
        raise RuntimeError("no")

    def __len__(self) -> int:
        raise RuntimeError("no")


@pytest.mark.parametrize(
    "context", [None, 3, "text", [], Hostile(), {"messages": Hostile()}, {"messages": [Hostile()]}]
)
def test_what_is_no_context_counts_as_nothing(context: object) -> None:
    assert not featurise(context).any()  # type: ignore[arg-type]


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters()) | st.binary(),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.sampled_from(["role", "content", "parts", "text", "type"]), inner)
    ),
    max_leaves=12,
)


@settings(deadline=None)
@given(st.dictionaries(st.sampled_from(["messages", "tools", "response_format", "history", "metadata"]), anything))
def test_odd_contexts_give_finite_features(context: dict[str, object]) -> None:
    features = featurise(context)
    assert features.shape == (DIM,)
    assert np.isfinite(features).all()


@settings(deadline=None)
@given(st.lists(st.text(max_size=50), max_size=5))
def test_many_equal_one_by_one(texts: list[str]) -> None:
    contexts = [user(text) for text in texts]
    many = featurise_many(contexts)
    assert many.shape == (len(texts), DIM)
    assert all(np.array_equal(row, featurise(context)) for row, context in zip(many, contexts, strict=True))


def test_outcomes_are_not_read() -> None:
    extra = {"output_tokens": 900, "cost_usd": 1.0, "model": "x", "metadata": {"quality": 1}}
    assert np.array_equal(featurise({**user("Hi"), **extra}), featurise(user("Hi")))


def test_no_keyword_belongs_to_two_groups() -> None:
    words = [word for group in runtime.KEYWORDS.values() for word in group.split()]
    assert len(words) == len(set(words))
    assert len(DENSE) == 32


def test_five_thousand_prompts_take_about_a_second() -> None:
    prompts = [user(f"Question {i}: explain why the sky is blue, step by step. " * 4) for i in range(5000)]
    start = time.process_time()
    featurise_many(prompts)
    assert time.process_time() - start < 2.0  # 0.4 s on one quiet core


def test_long_prompts_are_read_up_to_the_limit_only() -> None:
    long = "a b c " * 2000
    assert np.array_equal(featurise(user(long + "x"))[32:], featurise(user(long + "y"))[32:])
    assert json.dumps(featurise(user(long)).tolist())
