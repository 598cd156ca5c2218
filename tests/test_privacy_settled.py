"""Real telemetry with content off: the calls are the same, a policy sees the same features, and no text is left.

Runs on the cases in tests/golden/otlp, and on the larger collection where OTLP_CORPUS names one.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import corpus
import numpy as np
import pytest
from settled_payloads import decoded, settled_calls

from ingest import otlp, wal
from ingest.privacy import Policy
from ingest.redact import KINDS
from ingest.sketches import is_sketch
from optimizer import prompts

CASES = corpus.cases(corpus.GOLDEN) + (corpus.cases(Path(corpus.FOLDER)) if corpus.FOLDER else [])
SEAL = Policy(content=False, vector=prompts.vector)
REDACT = Policy(redact=KINDS)

OF_TEXT = {"input_text", "output_text", "input_chars", "output_chars"}
LOGGED = {"span_id", "parent_call_id", "content_span_id", "error_type"}
"""Of calls that log records tell of: their ids are made of what the records hold, their errors may be prose."""


def records(case: corpus.Case) -> list[wal.Record]:
    return [r for r in case.records() if r.kind in ("traces", "logs")]


def edited(case: corpus.Case, policy: Policy) -> list[wal.Record]:
    return [
        wal.Record(r.kind, r.encoding, r.received_ns, policy.apply(r.body, r.kind, r.encoding)) for r in records(case)
    ]


def settled(found: list[wal.Record]) -> list[dict[str, Any]]:
    return settled_calls(decoded((r.kind, r.encoding, r.body) for r in found))  # type: ignore[misc]


def logged_tool(call: dict[str, Any]) -> bool:
    """A tool run of which a log record tells arguments and result: these are dropped and not sketched."""
    return call["kind"] == "tool" and call["name"].startswith("claude_code.")


def words(value: object) -> Iterator[str]:
    """The texts of what an application said and was told."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for inner in value.values():
            yield from words(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from words(inner)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_calls_are_the_same_with_content_off(case):
    whole, sealed = settled(records(case)), settled(edited(case, SEAL))
    assert len(whole) == len(sealed)
    for one, other in zip(whole, sealed, strict=True):
        left_out = OF_TEXT | (LOGGED if one["name"].startswith("claude_code.") else set())
        for name in one.keys() - left_out:
            assert one[name] == other[name], name


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_policy_sees_the_same_features_with_content_off(case):
    for one, other in zip(settled(records(case)), settled(edited(case, SEAL)), strict=True):
        tools = one["tools_offered"] and json.loads(one["tools_offered"])
        for text in ("input_text", "output_text"):
            if logged_tool(one):
                continue
            assert (one[text] is None) == (other[text] is None)
            if one[text]:
                kept = json.loads(other[text])
                assert all(is_sketch(message["content"][0]) for message in kept)
                if text == "input_text":
                    expected = prompts.features(json.loads(one[text]), tools)
                    assert np.array_equal(prompts.features(kept, tools), expected)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_no_sentence_of_the_application_is_left_with_content_off(case):
    truth = case.truth
    said = [text for call in truth["llm_calls"] for key in ("messages", "answer_text") for text in words(call.get(key))]
    sentences = {text for text in said if len(text) > 20 and " " in text.strip()}
    for record in edited(case, SEAL):
        batch = otlp.decode(record.body, record.kind, record.encoding)
        kept = repr(batch)
        assert not [text for text in sentences if text in kept or repr(text)[1:-1] in kept]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
@pytest.mark.parametrize("policy", [SEAL, REDACT])
def test_applying_twice_is_applying_once(case, policy):
    for record in edited(case, policy):
        assert policy.apply(record.body, record.kind, record.encoding) is record.body
