"""A run folder of Puppeteer, written as its program writes one: two branches that share their first step."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from ingest.importers import puppeteer, registry
from ingest.importers.sources import Source

META = """[10:00:00 INFO]
---[Graph Reasoning Start]---
[10:00:00 INFO]
Task:
Which letter comes first?
[10:00:01 INFO]
------[Reasoning Path0 STEP]------
[10:00:03 INFO]
------[DONE]: Reasoning Path0 STEP------
[10:00:03 INFO]
Split Reasoning Paths: [1] From Path 0
[10:00:03 INFO]
------[Reasoning Path0 STEP]------
[10:00:05 INFO]
------[DONE]: Reasoning Path0 STEP------
[10:00:05 INFO]
------[Reasoning Path1 STEP]------
[10:00:05 INFO]
------[DONE]: Reasoning Path1 STEP------
[10:00:08 INFO]
[Final Answer]: A
"""


def query(start: str, end: str, model: str, given: int, answered: int, failed: bool = False) -> str:
    lines = [f"[{start} INFO]\n[Model Query] Querying {model}"]
    lines.append(f"[{start} INFO]\n[Model Query] [{{'role': 'user', 'content': 'it''s \\'this\\''}}]")
    if failed:
        lines.append(f"[{start} INFO]\n[Model Query: ChatCompletion] query failed: Error code: 429")
    usage = f"Completion Tokens: {answered} \nPrompt Tokens: {given} \nTotal Tokens: {given + answered}"
    lines.append(f"[{end} INFO]\n[Model Query] Token Usage: \n{usage}")
    lines.append(f"[{end} INFO]\n[Model Query] {model} response: A\nreally")
    return "\n".join(lines) + "\n"


def step(agent: str, action: str) -> dict[str, object]:
    result = {"step_data": "x", "answer": f"{agent} says"}
    return {
        "agent": agent,
        "action": {"action": action, "parameter": ""},
        "tokens": 1,
        "result": result,
        "success": "Success",
    }


@pytest.fixture
def run(tmp_path):
    folder = tmp_path / "MMLU" / "2026-03-05-10-00-00"
    folder.mkdir(parents=True)
    (folder / "meta.log").write_text(META)
    queries = [
        query("10:00:01", "10:00:03", "gpt4o", 100, 10),
        query("10:00:03", "10:00:05", "gpt4o", 200, 20, failed=True),
        query("10:00:06", "10:00:08", "gpt-3.5", 50, 1),
    ]
    (folder / "model_query.log").write_text("".join(queries))
    shared, own, stop = step("Critic", "critique"), step("Planner", "plan"), step("TerminatorAgent", "terminate")
    (folder / "path_0.jsonl").write_text(json.dumps([shared, own]))
    (folder / "path_1.jsonl").write_text(json.dumps([shared, stop]))
    return folder


def test_a_run_is_one_trace_with_each_shared_step_once(run):
    ((importer, source),) = registry.find([str(run.parent)])
    assert importer.name == "puppeteer"
    (item,) = importer.read(source)
    spans = {span.name: span for span in item.spans}
    agents = [s.name for s in item.spans if s.attributes.get("gen_ai.operation.name") in ("invoke_agent", "stop")]
    assert agents == ["puppeteer", "Critic", "Planner", "STOP"]
    assert len({span.trace_id for span in item.spans}) == 1
    critic = spans["Critic"]
    assert spans["Planner"].links == ((critic.trace_id, critic.span_id),)
    assert spans["puppeteer"].start_ns == 1772704800 * 10**9  # the folder's day, the log's hour


def test_calls_lie_below_their_step_and_those_that_merge_below_the_run(run):
    spans = puppeteer.run_spans(run, None)
    ids = {span.span_id: span.name for span in spans}
    calls = [s for s in spans if s.attributes["gen_ai.operation.name"] == "chat"]
    assert [ids[s.parent_span_id] for s in calls] == ["Critic", "Planner", "puppeteer"]
    tokens = [s.attributes["gen_ai.usage.input_tokens"] + s.attributes["gen_ai.usage.output_tokens"] for s in calls]
    assert tokens == [110, 220, 51]
    assert [s.attributes["gen_ai.request.model"] for s in calls] == ["gpt-4o", "gpt-4o", "gpt-3.5-turbo"]
    assert calls[1].attributes["puppeteer.failed_attempts"] == 1
    assert not any(key.startswith("policy.") for s in spans for key in s.attributes)  # no propensity is known


def test_the_same_run_has_the_same_ids_wherever_it_lies(run, tmp_path):
    moved = tmp_path / "elsewhere" / run.name
    moved.parent.mkdir()
    run.rename(moved)
    again = puppeteer.run_spans(moved, "s")
    assert {span.trace_id for span in again} == {span.trace_id for span in puppeteer.run_spans(moved, None)}
    assert again[0].service == "s"


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [("path_1.jsonl", "{", "path_1.jsonl is not JSON"), ("path_1.jsonl", "{}", "not a list of steps")],
)
def test_what_cannot_be_used_is_named(run, name, content, says):
    (run / name).write_text(content)
    (item,) = puppeteer.IMPORTER.read(Source(str(run), run))
    assert says in item.problem
    assert "the run is not imported" in item.problem


def test_a_missing_log_is_named(run):
    (run / "model_query.log").unlink()
    (item,) = puppeteer.IMPORTER.read(Source(str(run), run))
    assert item.problem == "model_query.log is missing; the run is not imported"


@pytest.mark.skipif("PUPPETEER_RUN" not in os.environ, reason="PUPPETEER_RUN names no run folder")
def test_the_published_example_run_is_read_to_the_token():
    spans = puppeteer.run_spans(Path(os.environ["PUPPETEER_RUN"]), None)
    used = [s.attributes.get(f"gen_ai.usage.{way}_tokens") or 0 for s in spans for way in ("input", "output")]
    steps = [s for s in spans if s.attributes["gen_ai.operation.name"] == "invoke_agent"][1:]
    assert (sum(used), len(steps)) == (5929, 7)
