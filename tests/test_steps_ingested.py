"""Decisions of many steps through the real ingest: what instrumentations sent, and an app that a router leads."""

from __future__ import annotations

import json
from pathlib import Path

import corpus
import otlp_traces as otlp
import polars as pl
import pytest
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from test_decisions import SECOND, message
from test_runtime_episode import by_step, write

from ingest import converter, wal
from ingest.lake import Lake
from ingest.options import ConverterOptions
from ingest.pricing import Price
from optimizer.agents.steps import Orchestrator
from optimizer.runtime import STEP_DENSE, Router
from optimizer.sequential.steps import Steps, find_steps

REAL = {
    "openinference_langchain/multi": ["supervisor", "researcher", "supervisor", "writer", "supervisor", "critic",
                                      "supervisor"],
    "openinference_openai_agents/handoff": ["triage", "refunds", "forecast"],
    "openinference_crewai/crew_with_openai": ["Researcher", "Writer", "Reviewer"],
    "openinference_autogen/swarm": ["triage", "forecast"],
    "otel_genai_openai/agents_span_content": ["planner", "researcher", "writer", "writer", "reviewer"],
    "pydantic_ai_native/multi": ["researcher", "writer", "reviewer"],
    "langfuse_v5_langchain/agent": ["gpt-4.1-mini"] * 3,
    "claude_code_native/bash_weather_json": ["claude-sonnet-4-5"] * 2,
    "traceloop_sdk/agents": ["searcher", "searcher", "coder", "coder"],
    "vercel_ai_6/agents": ["researcher", "writer"],
}  # fmt: skip
"""Case -> what acted in its longest trace, by what the application did."""


def answer(text: str) -> str:
    return json.dumps([{"role": "assistant", "parts": [{"type": "text", "content": text}]}])


def led(folder: Path) -> bytes:
    """What an app sends that a router leads: a span of each decision, and the model calls of whoever was chosen."""
    exporter, provider = InMemorySpanExporter(), TracerProvider(resource=Resource({"service.name": "led"}))
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    tracer = provider.get_tracer("app")
    router = Router.load(write(folder, by_step("search", "code", "code", "plan", "STOP")))
    episode, task = Orchestrator(router, tracer), "How many orders came in May?"
    said = iter(["", "orders: 42\n", "orders: 42\n", "done"])
    messages = {"gen_ai.input.messages": message(task)}
    with tracer.start_as_current_span("invoke_agent desk", attributes=otlp.agent("desk") | messages) as span:
        while (decision := episode.next({"messages": task})).action != "STOP":
            output = next(said)
            facts = otlp.chat(input_tokens=100, output_tokens=20, gen_ai__output__messages=answer(output))
            with tracer.start_as_current_span("chat", attributes=facts | {"gen_ai.agent.name": decision.action}):
                pass
            episode.done("ok", output=output, cost_usd=(100 * 1.0 + 20 * 2.0) / 1e6, tokens=120)
        span.set_attribute("gen_ai.output.messages", answer("42"))
    return encode_spans(exporter.get_finished_spans()).SerializeToString()


def repeating() -> bytes:
    """A decision on a span of its own, one on an agent and again on that agent's call, and STOP."""
    policy = {"policy.action": "write", "policy.id": "p", "policy.propensity": 0.5}
    spans = [
        otlp.span(1, otlp.agent("boss"), service="repeating"),
        otlp.span(2, policy | {"policy.reason": "explore"}, parent=1, name="route", service="repeating"),
        otlp.span(3, otlp.chat(), parent=1, service="repeating"),
        otlp.span(4, otlp.agent("write") | policy, parent=1, end_ns=otlp.START + 9 * SECOND, service="repeating"),
        otlp.span(5, otlp.chat() | policy, parent=4, end_ns=otlp.START + 8 * SECOND, service="repeating"),
        otlp.span(6, {"policy.action": "STOP", "policy.id": "p"}, parent=1, start_ns=otlp.START + 10 * SECOND,
                  service="repeating"),
    ]  # fmt: skip
    return otlp.traces_body(spans)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("steps") / "home"
    Lake.open(folder, write=True).close()
    log = wal.Wal(folder / "wal")
    log.write([record for case in cases() for record in case.records()])
    log.write([wal.Record("traces", "protobuf", 1, led(folder / "policy"))])
    log.write([wal.Record("traces", "json", 1, repeating())])
    log.close()
    prices = (Price("gpt-4o-mini", 1.0, 2.0),)
    converter.run(folder, ConverterOptions(quiet_s=0.0, commit_s=0.0, prices=prices), lambda: True)
    return folder


def cases() -> list[corpus.Case]:
    every = corpus.cases(corpus.GOLDEN.parent / "orchestration") + corpus.cases(corpus.GOLDEN)
    return [case for case in every if case.name in REAL]


def found_in(home: Path, *, features_logged: bool = True) -> Steps:
    """The steps of all services; each case is one."""
    names = {trace: case.name for case in cases() for trace in case.truth["payload_facts"]["trace_ids"]}
    services = [*REAL, "led", "repeating"]
    with Lake.open(home) as lake:
        calls = lake.query("decision_calls").with_columns(billed_usd="cost_usd", billed_unpriced="unpriced")
        spans = lake.query("decision_spans")
        if not features_logged:
            spans = spans.with_columns(policy_features=pl.lit(None, pl.String))
        return find_steps(
            calls.with_columns(service=pl.coalesce(pl.col("trace_id").replace_strict(names, default=None), "service")),
            spans,
            lake.query("scores"),
            dict.fromkeys(services, "quality"),
            scored_spans=lake.query("scored_spans"),
            texts=lambda ids: lake.query("step_texts", trace_ids=list(ids)),
            orchestrate=dict.fromkeys(services, True),
        )


@pytest.fixture(scope="module")
def steps(home: Path) -> Steps:
    return found_in(home)


def of(steps: Steps, service: str) -> pl.DataFrame:
    return steps.rows.filter(pl.col("service") == service)


@pytest.mark.parametrize("case", REAL)
def test_the_steps_of_a_real_application_are_found(steps: Steps, case: str) -> None:
    rows = of(steps, case)
    acted = [group["action"].to_list() for _, group in rows.group_by("trace_id", maintain_order=True)]
    assert max(acted, key=len) == REAL[case]
    later = rows.filter(pl.col("step") > 0)
    assert all(values[STEP_DENSE.index("tokens")] > 0 for values in later["step_features"].to_list())


def test_a_failed_turn_of_a_real_agent_is_seen_as_such(steps: Steps) -> None:
    rows = of(steps, "otel_genai_openai/agents_span_content")
    failed = [values[STEP_DENSE.index("last_error")] for values in rows["step_features"].to_list()]
    assert failed == [0.0, 0.0, 0.0, 1.0, 0.0]


def test_what_spans_tell_is_what_the_router_saw(home: Path, steps: Steps) -> None:
    """The features computed from an app's spans are those that were logged at each decision, but for the seconds, of
    which the decision's own span is a part."""
    logged, told = of(steps, "led"), of(found_in(home, features_logged=False), "led")
    assert told["action"].to_list() == ["search", "code", "code", "plan", "STOP"]
    assert told["explored"].to_list() == [False] * 5
    assert told["features"].to_list() == logged["features"].to_list()
    for mine, theirs in zip(told["step_features"].to_list(), logged["step_features"].to_list(), strict=True):
        assert mine[:-1] == theirs[:-1]
        assert mine[-1] == pytest.approx(theirs[-1], abs=0.5)


def test_a_span_that_only_repeats_a_decision_is_none(home: Path, steps: Steps) -> None:
    rows = of(steps, "repeating")
    assert rows["action"].to_list() == ["write", "write", "STOP"]
    assert rows["explored"].to_list() == [True, False, False]
    with Lake.open(home) as lake:
        told = lake.query("decision_spans").filter(pl.col("trace_id") == otlp.trace_id(1))
    assert told["span_id"].to_list() == [otlp.span_id(2), otlp.span_id(4), otlp.span_id(6)]
    assert told["call_id"].to_list() == [None, otlp.span_id(4), None]
