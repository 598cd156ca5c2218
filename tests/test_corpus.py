"""Real telemetry of many instrumentations -> exactly the calls that were made, with what the wire says of each.

The cases in tests/golden/otlp always run. Where OTLP_CORPUS names a larger collection with its own scorer
(`score.py`), that runs too, and must leave nothing unread but what is listed here with its reason.
"""

from __future__ import annotations

import importlib.util
import json
import sys
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import corpus
import pytest

from ingest.lake import Lake

NO_ID = {"response_id": "the emitter sends no response id"}
NO_PROVIDER = {"provider": "the emitter names no provider of a model"}
NO_REASONING = {"reasoning_tokens": "the emitter sends no reasoning tokens"}
NO_CACHE = {"cache_read_tokens": "the emitter sends no cached tokens"}

LACKS: Mapping[str, Mapping[str, str]] = {
    "claude_code_native/bash_weather_json": {
        **NO_ID,
        "tool_calls": "the emitter sends no tool calls of a model unless asked to",
    },
    "langfuse_v5/observe_agents": {
        **NO_ID,
        **NO_PROVIDER,
        "model_requested": "the emitter sends only the model that answered",
    },
    "langfuse_v5_langchain/rag": NO_ID,
    "mlflow/openai_tools": NO_PROVIDER,
    "openlit/basic": NO_REASONING,
    "openllmetry_openai_0.33/basic": {**NO_ID, **NO_CACHE, **NO_REASONING},
    "otel_openai_v2_2.1b0/tools_content": NO_CACHE,
    "pydantic_ai_0.4_native/agent_logs": NO_ID,
    "pydantic_ai_0.4_native/structured": NO_ID,
    "strands_native/agent": {
        **NO_ID,
        **NO_PROVIDER,
        "model_returned": "the emitter sends only the model that was asked for",
    },
    "vercel_ai_7/agents": NO_REASONING,
}
"""Case -> field that the wire does not carry -> why. Such a field must be NULL."""

OTHERWISE: Mapping[str, Mapping[str, str]] = {
    "claude_code_native/bash_weather_json": {
        "prompt": "the emitter's logs carry what the user typed, without what it sends around that"
    },
    "litellm_otel/router": {
        "response_id": "the library makes up an id where the provider's does not look like OpenAI's"
    },
}
"""Case -> field of which the wire carries something else for some calls -> why."""

NAMED_ONLY_AS_ASKED = (
    "the wire names this model only as the one that was asked for; that the one that answered has the same name is "
    "known to the server alone"
)
EXCEPTIONS: Mapping[tuple[str, str], str] = {
    ("google_adk_native/handoff", "model_ret call 0"): NAMED_ONLY_AS_ASKED,
    ("google_adk_native/handoff_latest", "model_ret call 0"): NAMED_ONLY_AS_ASKED,
    ("vercel_ai_5/basic", "model_ret call 2"): NAMED_ONLY_AS_ASKED,
    ("vercel_ai_6/basic", "model_ret call 2"): NAMED_ONLY_AS_ASKED,
    ("vercel_ai_7/basic", "model_ret call 2"): NAMED_ONLY_AS_ASKED,
}
"""(case, what the scorer misses) -> why it is not read. Each must be missed, and be NULL."""

FAMILIES = {"openai": {"openai"}, "anthropic": {"anthropic"}, "gemini": {"gemini", "vertex_ai"}}
GOLDEN = corpus.cases(corpus.GOLDEN)


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, list[dict[str, Any]]]:
    home = tmp_path_factory.mktemp("golden") / "home"
    Lake.open(home, write=True).close()
    corpus.ingest_cases(home, GOLDEN)
    return corpus.calls_by_trace(home)


def model_calls(case: corpus.Case, rows: Mapping[str, list[dict[str, Any]]]) -> list[dict[str, Any]]:
    own = [row for trace in case.truth["payload_facts"]["trace_ids"] for row in rows.get(trace, ())]
    return [row for row in own if row["kind"] in ("llm", "embedding")]


def counted(case: corpus.Case) -> list[dict[str, Any]]:
    """The true calls whose counts are on the wire."""
    truth = case.truth
    pairs = zip(truth["llm_calls"], truth["found"], strict=True)
    return [call for call, found in pairs if call.get("usage") and (found["spans"] or found["weaker"])]


def key(call: Mapping[str, Any]) -> tuple[int, int]:
    return call["input_tokens"], call["output_tokens"] or 0


@pytest.mark.parametrize("case", GOLDEN, ids=lambda case: case.name)
def test_every_call_is_there_once_with_its_tokens(case: corpus.Case, rows: Mapping[str, list[dict[str, Any]]]) -> None:
    found = [row for row in model_calls(case, rows) if row["input_tokens"] is not None]
    assert Counter(map(key, found)) == Counter(key(call["usage"]) for call in counted(case))


@pytest.mark.parametrize("case", GOLDEN, ids=lambda case: case.name)
def test_a_call_says_what_was_done_or_nothing(case: corpus.Case, rows: Mapping[str, list[dict[str, Any]]]) -> None:
    truth, lacks = case.truth, LACKS.get(case.name, {})
    by_counts = {key(row): row for row in model_calls(case, rows) if row["input_tokens"] is not None}
    wrong = []
    for call in counted(case):
        row = by_counts[key(call["usage"])]
        expected = {
            "model_requested": call["model_requested"],
            "model_returned": call["model_returned"],
            "response_id": call["response_id"],
            "cache_read_tokens": call["usage"]["cached_input_tokens"] or 0,
            "cache_write_tokens": call["usage"]["cache_write_tokens"] or 0,
            "reasoning_tokens": call["usage"]["reasoning_tokens"] or 0,
            "provider": next(iter(FAMILIES[call["api"].partition(".")[0]])),
            "session_id": truth["app"]["session_id"],
            "user_id": truth["app"]["user_id"],
            "agent": call["agent"],
            "prompt": prompt_of(call),
            "answer": (call["answer_text"] or "").strip(),
            "tool_calls": [(asked["name"], plain(asked["arguments"])) for asked in call["tool_calls"]],
        }
        got = {name: row.get(name) for name in expected}
        got.update({name: got[name] or 0 for name in got if name.endswith("_tokens")})
        got.update(texts(row))
        for name, value in expected.items():
            if value is None or name in OTHERWISE.get(case.name, ()):  # None: the application did not say
                continue
            if (got[name] or None) is not None if name in lacks else got[name] != value:
                wrong.append((name, value, got[name]))
    assert wrong == []


@pytest.mark.parametrize("case", GOLDEN, ids=lambda case: case.name)
def test_failures_are_errors_and_successes_are_not(case: corpus.Case, rows: Mapping[str, list[dict[str, Any]]]) -> None:
    known = {key(call["usage"]) for call in counted(case)}
    for row in model_calls(case, rows):
        if row["input_tokens"] is not None and key(row) in known:
            assert (row["status"], row["error_type"]) == ("ok", None)
        else:
            assert row["status"] == "error"


def prompt_of(call: Mapping[str, Any]) -> list[tuple[str, str]]:
    return [(message["role"], (message.get("text") or "").strip()) for message in call.get("messages") or ()]


def texts(row: Mapping[str, Any]) -> dict[str, object]:
    given = json.loads(row["input_text"] or "[]")
    answers = json.loads(row["output_text"] or "[]")
    return {
        "prompt": [("system" if m["role"] == "developer" else m["role"], str(m["content"]).strip()) for m in given],
        "answer": "\n".join(m["content"] for m in answers).strip(),
        "tool_calls": [(one["name"], plain(one["arguments"])) for m in answers for one in m.get("tool_calls", ())],
    }


def plain(value: object) -> object:
    return json.loads(value) if isinstance(value, str) else value


# ---------------------------------------------------------------- the larger collection


@pytest.fixture(scope="module")
def scorer() -> ModuleType:
    if not corpus.FOLDER:
        pytest.skip("OTLP_CORPUS names no collection")
    path = Path(corpus.FOLDER) / "score.py"
    spec = importlib.util.spec_from_file_location("corpus_scorer", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def test_the_whole_collection_is_read_right(scorer: ModuleType, tmp_path: Path) -> None:
    folder, home = Path(corpus.FOLDER or ""), tmp_path / "home"
    Lake.open(home, write=True).close()
    corpus.ingest_cases(home, corpus.cases(folder))
    found = [scorer.Case(case.folder) for case in corpus.cases(folder)]
    with Lake.open(home) as lake:
        calls = scorer.split(found, lake.sql(f"select {scorer.CALL_COLUMNS} from calls").to_dicts())
        scores = lake.sql(f"select {scorer.SCORE_COLUMNS} from scores").to_dicts()
    missed = {}
    for case in found:
        own = [s for s in scores if not s["trace_id"] or s["trace_id"] in case.traces]
        for failure in scorer.compare(case, calls[case.name], own).failures:
            what = " ".join(failure.partition(": expected")[0].split())
            missed[case.name, what] = failure
    unexplained = {place: failure for place, failure in missed.items() if place not in EXCEPTIONS}
    assert unexplained == {}
    assert {place for place in EXCEPTIONS if place not in missed} == set(), "read by now: no exceptions any more"
    assert [failure for failure in missed.values() if not failure.endswith("got 'None'")] == []
