"""Features computed from what was recorded equal those of the messages that were really sent.

A router decides on the request; a night that finds no logged vector computes it anew from spans. Where both differ, the
wire does not carry what the request had: each such place stands here with its reason, and nothing else may differ.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import corpus
import numpy as np
import pytest

from ingest.lake import Lake
from optimizer import prompts
from optimizer.runtime import DENSE, featurise

NO_TOOLS = (("tools",), "the emitter sends no definitions of tools")
RESULT_AS_VALUE = (
    ("conversation_characters",),
    "the emitter sends a tool's result as a value: how its text was spaced is lost",
)
OTHERWISE: Mapping[str, tuple[Sequence[str], str]] = {
    "google_adk_native/handoff_latest": RESULT_AS_VALUE,
    "js_openai_official/tools": NO_TOOLS,
    "openinference_autogen/swarm": (
        ("tools", "conversation_characters"),
        "the emitter sends no definitions of tools, and a tool's result without its text",
    ),
    "openinference_openai_agents/handoff": (
        ("tools",),
        "the emitter sends tools of responses, but none of chat completions",
    ),
    "openinference_pydantic_ai/errors": (
        ("conversation_characters",),
        "the emitter sends what a tool said, without the error that the library made of it",
    ),
    "openlit/agents": (("assistant_messages",), "the emitter leaves out messages that only call tools"),
    "openlit/stream": (("tools",), "the emitter sends no definitions of tools with streams"),
    "openllmetry_openai/tools_events": NO_TOOLS,
    "otel_openai_v2/agents_content": NO_TOOLS,
    "otel_openai_v2/agents_latest_span_content": NO_TOOLS,
    "otel_openai_v2/stream_content": NO_TOOLS,
    "otel_openai_v2/tools_content": NO_TOOLS,
    "otel_openai_v2_2.1b0/tools_content": NO_TOOLS,
    "pydantic_ai_logfire/errors": (
        ("conversation_characters",),
        "the emitter sends what a tool said, without the error that the library made of it",
    ),
}
"""Case -> features that differ for some of its calls, and why they must."""

WITHHELD: Mapping[str, str] = {
    "openinference_llama_index/rag": "the emitter sends the template of the prompt, without what was filled in",
    "openinference_openai/agents_hidden_inputs": "the application hides prompts",
    "otel_genai_openai/agents_truncated_attributes": "the application cuts attributes short",
}
"""Case whose recorded prompts are not those that were sent, and why: they carry no content."""


@dataclass(frozen=True)
class Rebuilt:
    """One call of which the wire carries the messages. `differs`: names of features; "words" of the hashed ones."""

    case: str
    differs: tuple[str, ...]


def rebuilt(cases: Sequence[corpus.Case], home: Path) -> list[Rebuilt]:
    Lake.open(home, write=True).close()
    corpus.ingest_cases(home, cases)
    by_trace = corpus.calls_by_trace(home)
    return [one for case in cases for one in of_case(case, by_trace)]


def of_case(case: corpus.Case, by_trace: Mapping[str, list[dict[str, Any]]]) -> Iterator[Rebuilt]:
    truth = case.truth
    rows = [row for trace in truth["payload_facts"]["trace_ids"] for row in by_trace.get(trace, ())]
    rows = [row for row in rows if row["kind"] == "llm" and row["input_text"]]
    for call in truth["llm_calls"]:
        row = row_of(call, rows)
        if row is None or case.name in WITHHELD or any("text_length" in m for m in call["messages"]):
            continue  # of texts with a length, truth.json has the beginning only
        messages = json.loads(row["input_text"])
        if any(message["content"] for message in messages):
            yield Rebuilt(case.name, difference(call, messages, row["tools_offered"]))


def row_of(call: Mapping[str, Any], rows: Sequence[dict[str, Any]]) -> dict[str, Any] | None:
    """The row with the call's answer, which names it: each text and each asked tool has an id of its own."""
    if not call.get("messages"):
        return None
    marks = [call["answer_text"]] if call.get("answer_text") else [one["id"] for one in call.get("tool_calls") or ()]
    usage = call.get("usage") or {}
    counts = (usage.get("input_tokens"), usage.get("output_tokens"))

    def fits(row: Mapping[str, Any]) -> bool:
        if (row["input_tokens"], row["output_tokens"]) == counts and counts[1]:
            return True
        return any(json.dumps(mark)[1:-1] in json.dumps(row["output_text"] or "") for mark in marks if mark)

    return next((row for row in rows if fits(row)), None)


def difference(call: Mapping[str, Any], messages: object, tools: str | None) -> tuple[str, ...]:
    sent = [{"role": message["role"], "content": message["text"] or ""} for message in call["messages"]]
    used = featurise({"messages": sent, "tools": call["tools_offered"]})
    again = prompts.features(messages, json.loads(tools) if tools else None)
    places = np.flatnonzero(used != again)
    return tuple(dict.fromkeys(DENSE[place] if place < len(DENSE) else "words" for place in places))


def check(found: Sequence[Rebuilt]) -> None:
    unexplained = [one for one in found if set(one.differs) - set(OTHERWISE.get(one.case, ((), ""))[0])]
    assert unexplained == []
    differing = {one.case for one in found if one.differs}
    needless = {name for name in OTHERWISE if name in {one.case for one in found} and name not in differing}
    assert needless == set(), "read by now: no exceptions any more"


def test_features_of_recorded_calls_are_those_of_the_requests(tmp_path: Path) -> None:
    found = rebuilt(corpus.cases(corpus.GOLDEN), tmp_path / "home")
    assert len(found) > 40
    check(found)


@pytest.mark.skipif(not corpus.FOLDER, reason="OTLP_CORPUS names no collection")
def test_features_are_rebuilt_for_nearly_all_calls_of_the_collection(tmp_path: Path) -> None:
    found = rebuilt(corpus.cases(Path(corpus.FOLDER or "")), tmp_path / "home")
    check(found)
    of_messages = [one for one in found if set(one.differs) <= {"tools"}]
    assert len(of_messages) >= 0.95 * len(found)
    # Without a definition on the wire nobody can count tools; such calls stand above, case by case.
    possible = [one for one in found if one.case not in OTHERWISE or "tools" not in OTHERWISE[one.case][0]]
    assert sum(not one.differs for one in possible) >= 0.95 * len(possible)
    assert sum(not one.differs for one in found) >= 0.94 * len(found)
