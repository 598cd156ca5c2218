"""What is redacted and what is left alone."""

from __future__ import annotations

import json
import time
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingest.redact import KINDS, Redactor

ALL = Redactor(KINDS)

FOUND = [
    ("write to alice.o'neil+news@mail.example.co.uk, please", "write to <email>, please", "email"),
    ("?to=alice%40example.com&x=1", "?to=<email>&x=1", "email"),
    ("call +49 30 1234567 or not", "call <phone> or not", "phone"),
    ("call 0049 30 1234567", "call <phone>", "phone"),
    ("(555) 123-4567 and 555.123.4567", "<phone> and <phone>", "phone"),
    ("0171 1234567", "<phone>", "phone"),
    ("4111 1111 1111 1111", "<card>", "card"),
    ("order 12 4111-1111-1111-1111.", "order 12 <card>.", "card"),
    ("amex 378282246310005", "amex <card>", "card"),
    ("to DE89 3704 0044 0532 0130 00 AND then", "to <iban> AND then", "iban"),
    ("gb29nwbk60161331926819", "<iban>", "iban"),
    ("OPENAI_API_KEY=sk-proj-" + "aB3" * 12, "OPENAI_API_KEY=<key>", "key"),
    ("ghp_" + "a1B2" * 9, "<key>", "key"),
    ("AKIAIOSFODNN7EXAMPLE", "<key>", "key"),
    ("Authorization: Bearer abc.def.ghi123xyz", "Authorization: <key>", "key"),
    ("eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.abc-_ ok", "<key> ok", "key"),
    ("wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY", "<key>", "key"),
    ("9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08", "<key>", "key"),
    ("-----BEGIN RSA PRIVATE KEY-----\nMIIB\n-----END RSA PRIVATE KEY-----", "<key>", "key"),
]

LEFT = [
    *("gpt-4o-mini-2024-07-18", "meta-llama/Llama-3.3-70B-Instruct-Turbo-Free", "2024-01-31T12:00:00.123456Z"),
    *("550e8400-e29b-41d4-a716-446655440000", "Chat_4b3cd247-43a7-4096-85c6-2ed98fa946b1", "192.168.100.100:8080"),
    *("1700000000123456789", "0.4111111111111111", "1,234,567.89", "01/02/2024 10:30", "4111 1111 1111 1112"),
    *("/usr/local/lib/python3/site-packages/opentelemetry/Sdk2/trace.py", "TestHttpClientConfigurationFactoryBean2"),
    *("user@localhost", "risk-adjusted-portfolio-2024-report-abc", "basic understanding", "the bearer of bad news"),
    *("DE00 3704 0044 0532 0130 00", "call_abcdefghijklmnop", "retrieve-augmented_generation-long-kebab-slug-2"),
]


@pytest.mark.parametrize(("text", "left", "kind"), FOUND)
def test_what_is_personal_or_secret_becomes_a_mark_and_is_counted(text, left, kind):
    found = Counter()
    assert ALL.text(text, found) == left
    assert set(found) == {kind}
    assert found[kind] == left.count(f"<{kind}>")


@pytest.mark.parametrize("text", LEFT)
def test_what_only_looks_like_it_is_left_alone(text):
    found = Counter()
    assert ALL.text(text, found) is text
    assert not found


@pytest.mark.parametrize(("text", "left", "kind"), FOUND)
def test_it_is_found_inside_json_inside_json_however_it_is_escaped(text, left, kind):
    inner = "".join(f"\\u{ord(c):04x}" for c in text)  # every character escaped
    sent = json.dumps({"role": "user", "content": json.dumps([{"text": "%"}]).replace("%", inner)})
    got = json.loads(ALL.text(sent, Counter()))
    assert json.loads(got["content"]) == [{"text": left}]


@pytest.mark.parametrize(("text", "left", "kind"), FOUND)
def test_only_the_kinds_asked_for_are_looked_for(text, left, kind):
    assert Redactor([kind]).text(text, Counter()) == left
    others = Redactor([other for other in KINDS if other not in (kind, "phone")])
    assert others.text(text, Counter()) == text


def test_json_stays_json_when_a_number_is_a_card():
    found = Counter()
    sent = '{"card": 4111111111111111, "count": 4111, "created": 1700000000123}'
    assert json.loads(ALL.text(sent, found)) == {"card": "<card>", "count": 4111, "created": 1700000000123}
    assert found == {"card": 1}


def test_texts_without_a_find_keep_every_byte():
    for text in ('{ "a" : "b\\n" ,"c":[1 ,2.50]}', "[not json", "{'a': 'it\\'s'}", '"\\u00e9"'):
        assert ALL.text(text, Counter()) is text


def test_a_cut_json_text_is_searched_as_it_stands():
    cut = '[{"role": "user", "content": "line\\nsk-' + "aB3" * 12 + " and bob\\u0040example.com and al"
    assert ALL.text(cut, Counter()) == '[{"role": "user", "content": "line\\n<key> and <email> and al'


def test_a_python_repr_hides_nothing_either():
    assert ALL.text("{'mail': 'bob\\x40example.com'}", Counter()) == '{"mail":"<email>"}'


def test_names_in_json_are_searched_like_values():
    assert json.loads(ALL.text('{"bob@example.com": {"n": 1}}', Counter())) == {"<email>": {"n": 1}}


def test_an_id_by_its_name_is_no_random_key():
    digest = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b"
    for key in ("gen_ai.response.id", "session.id", "policy.features", "userId", "prompt_hash", "version"):
        assert ALL.text(digest, Counter(), key) == digest
    assert ALL.text("alice@example.com", Counter(), "user.id") == "<email>"
    sent = json.dumps([{"id": digest, "content": digest}])
    assert json.loads(ALL.text(sent, Counter())) == [{"id": digest, "content": "<key>"}]


def test_images_are_no_keys():
    image = "data:image/png;base64," + "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJ" * 40
    assert ALL.text(image, Counter()) == image


def test_own_patterns_have_their_own_marks():
    redactor = Redactor(["email"], {"employee": r"EMP-\d{6}", "word": r"\b[a-z]+\b"})
    found = Counter()
    assert redactor.text("EMP-123456 BOB@EXAMPLE.ORG hi", found) == "<employee> <email> <word>"
    assert found == {"employee": 1, "email": 1, "word": 1}


@pytest.mark.parametrize(
    ("patterns", "said"),
    [
        ({"Bad name": "x"}, "name of small letters"),
        ({"a": "("}, "regular expression under 'a'"),
        ({"a": "x*"}, "no empty"),
    ],
)
def test_a_pattern_that_cannot_be_used_is_refused(patterns, said):
    with pytest.raises(ValueError, match=said):
        Redactor([], patterns)


def test_an_unknown_kind_is_refused():
    with pytest.raises(ValueError, match="unknown kind 'mail'"):
        Redactor(["mail"])


PIECES = st.lists(
    st.one_of(
        st.sampled_from([text for text, _, _ in FOUND] + LEFT), st.text(max_size=12), st.sampled_from(' \n,;"\\[{')
    ),
    max_size=6,
)


@given(PIECES)
def test_redacting_twice_is_redacting_once(pieces):
    once = ALL.text("".join(pieces), Counter())
    again = Counter()
    assert ALL.text(once, again) == once
    assert not again


@given(st.lists(st.sampled_from(FOUND), min_size=1, max_size=5), st.sampled_from([" ", "\n", ", ", "; ", '"']))
def test_every_find_in_a_text_is_counted(finds, between):
    found = Counter()
    text = ALL.text(between.join(text for text, _, _ in finds), found)
    assert found == Counter({k: n for k in KINDS if (n := text.count(f"<{k}>"))})


@pytest.mark.parametrize(
    "unit", ["a", "1", "a@", "1 ", "+", "@", "sk-", "eyJa.", "0-", "é", "\\u00", "Aa1", "-----BEGIN ", "a."]
)
def test_a_hostile_text_takes_no_more_than_linear_time(unit):
    text = unit * (200_000 // len(unit))
    began = time.process_time()
    ALL.text(text, Counter())
    assert time.process_time() - began < 3.0  # measured: 0.5 s at most; quadratic would be minutes


def test_its_repr_says_nothing():
    assert "EMP" not in repr(Redactor([], {"employee": "EMP"}))
