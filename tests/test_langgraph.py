"""A policy that orchestrates a real LangGraph graph, its decisions read back from the lake as the router made them."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, TypedDict

import numpy as np
import pytest
from collector_process import CollectorProcess
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, StateGraph
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import Tracer
from pydantic import BaseModel
from settled_payloads import PRICES
from test_runtime_episode import AGENTS, by_step, write

from ingest.lake import Lake
from optimizer.agents.steps import Graph, chat, steps
from optimizer.one_list import with_one_list
from optimizer.runtime import DIM, STEP_DENSE, STEP_SPEC, STOP, Decision, Router, decode_orchestration
from optimizer.sequential.steps import find_steps

MODEL = by_step("plan", "search", "code", "search", STOP, epsilon=0.4)


class State(TypedDict, total=False):
    messages: list[Any]
    budget: dict[str, float]
    session: str
    history: Annotated[list[dict[str, object]], steps]
    decision: dict[str, object]


def context(state: Mapping[str, Any]) -> dict[str, object]:
    more = {"budget": state["budget"]} if "budget" in state else {}
    return {**chat(state), "metadata": {"session": state.get("session")}, **more}


class Heard:
    """A router that remembers what it decided."""

    def __init__(self, router: Router) -> None:
        self.model = router.model
        self.router = router
        self.decisions: list[Decision] = []

    def decide(self, *given: Any) -> Decision:
        self.decisions.append(self.router.decide(*given))
        return self.decisions[-1]


class Desk:
    """A provider that exports to a collector, and what came of each episode: trace -> decisions."""

    def __init__(self, collector: CollectorProcess) -> None:
        self.collector = collector
        self.provider = TracerProvider(resource=Resource.create({"service.name": "desk"}))
        self.provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(f"{collector.url}/v1/traces")))
        self.tracer = self.provider.get_tracer("desk")
        self.traces: dict[str, list[Decision]] = {}
        self.rng = random.Random(4)

    def run(
        self, variant: str, folder: Path, *, memory: InMemorySaver | None = None, waits: bool = True, **state: Any
    ) -> tuple[list[str], State]:
        """One episode: the agents that acted, and the state at its end."""
        router = Heard(Router.load(folder, draw=self.rng.random))
        acted: list[str] = []
        policy = Graph(router, AGENTS_OF_GRAPH, context, self.tracer)  # type: ignore[arg-type]
        graph = BUILD[variant](policy, lambda name: agent(policy, self.tracer, name, acted)).compile(
            checkpointer=memory
        )
        config: Any = {"configurable": {"thread_id": "t"}} if memory else None
        given: Any = {"messages": [{"role": "user", "content": "How many orders came in May?"}], "history": None}
        with self.tracer.start_as_current_span("invoke_workflow desk") as root:
            last = graph.invoke(given | state, config) if waits else asyncio.run(graph.ainvoke(given | state, config))
        self.traces[f"{root.get_span_context().trace_id:032x}"] = router.decisions
        assert [decision.action for decision in router.decisions] == [*acted, STOP]
        return acted, last  # type: ignore[return-value]


AGENTS_OF_GRAPH = (*AGENTS, "critic")
"""One more than the policy knows."""


def agent(policy: Graph, tracer: Tracer, name: str, acted: list[str]) -> Callable[[State], dict[str, Any]]:
    """A plain function with the spans that an agent leaves. The coder repeats itself; the second to act throws the kill
    switch where the task says so."""

    def run(state: State) -> dict[str, Any]:
        acted.append(name)
        asked = {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": name}
        called = {"gen_ai.operation.name": "chat", "gen_ai.request.model": "m", "gen_ai.usage.input_tokens": 100}
        with (
            tracer.start_as_current_span(f"invoke_agent {name}", attributes=asked),
            tracer.start_as_current_span("chat m", attributes={**called, "gen_ai.usage.output_tokens": 0}),
        ):
            pass
        output = "no such table" if name == "code" else f"{name} {len(acted)}"
        text = str(state["messages"][0]["content"])
        if text.startswith("kill:") and len(acted) == 2:
            (Path(text.removeprefix("kill:")) / "KILL").touch()
        status = "error" if name == "code" else "ok"
        return {"history": [policy.entry(state, status, output, cost_usd=0.01, tokens=100, signal=0.5)]}

    return run


def with_edges(policy: Graph, agent_of: Callable[[str], Any], kind: type = State) -> StateGraph[Any]:
    graph = StateGraph(kind)
    for name in policy.agents:
        graph.add_node(name, agent_of(name))
        graph.add_conditional_edges(name, policy.edge, [*policy.agents, END])
    graph.add_conditional_edges(START, policy.edge, [*policy.agents, END])
    return graph


def with_node(policy: Graph, agent_of: Callable[[str], Any], kind: type = State) -> StateGraph[Any]:
    graph = StateGraph(kind)
    graph.add_node("route", policy.node, destinations=(*policy.agents, END))
    graph.add_edge(START, "route")
    for name in policy.agents:
        graph.add_node(name, agent_of(name))
        graph.add_edge(name, "route")
    return graph


BUILD = {"edge": with_edges, "command": with_node}
both = pytest.mark.parametrize("variant", BUILD)


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Desk]:
    with CollectorProcess(tmp_path_factory.mktemp("desk"), store=True) as running:
        desk = Desk(running)
        yield desk
        desk.provider.shutdown()


@both
def test_a_graph_runs_by_the_policy_to_its_stop(variant: str, desk: Desk, tmp_path: Path) -> None:
    folder = write(tmp_path, by_step("plan", "search", "code", "search", STOP))
    acted, state = desk.run(variant, folder)
    assert acted == ["plan", "search", "code", "search"]
    assert [entry["action"] for entry in state["history"]] == acted
    assert [entry["status"] for entry in state["history"]] == ["ok", "ok", "error", "ok"]
    assert all(0.0 <= entry["seconds"] < 60.0 for entry in state["history"])
    assert json.loads(json.dumps(state["history"])) == state["history"]


@both
def test_at_most_one_step_of_an_episode_is_explored(variant: str, desk: Desk, tmp_path: Path) -> None:
    folder = write(tmp_path, MODEL, loop=9, max_steps=8)
    for _ in range(15):
        _, state = desk.run(variant, folder)
        decisions = [*desk.traces.values()][-1]
        explored = [decision.explored for decision in decisions]
        assert sum(explored) <= 1
        assert [entry["explored"] for entry in state["history"]] == explored[: len(state["history"])]
        if any(explored):
            after = decisions[explored.index(True) + 1 :]
            assert {decision.propensity for decision in after} <= {1.0}
    assert any(decision.explored for decisions in desk.traces.values() for decision in decisions)


@both
def test_a_canarys_episodes_stay_in_their_arm(variant: str, desk: Desk, tmp_path: Path) -> None:
    folder = write(tmp_path, by_step("search", "search", STOP), canary_percent=50)
    routes = set()
    for number in range(12):
        acted, _ = desk.run(variant, folder, session=f"s{number}")
        decisions = [*desk.traces.values()][-1]
        routes.add((decisions[0].arm, *acted))
        assert len({decision.arm for decision in decisions}) == 1
        assert [decision.propensity for decision in decisions] == [0.5, 1.0, 1.0]
    assert routes == {("treatment", "search", "search"), ("control", "plan", "code")}


@both
def test_a_graph_stops_at_its_budget(variant: str, desk: Desk, tmp_path: Path) -> None:
    folder = write(tmp_path, by_step("search"), max_steps=20)
    acted, _ = desk.run(variant, folder, budget={"cost_usd": 0.03})
    assert acted == ["search"] * 3
    assert [*desk.traces.values()][-1][-1].reason == "budget:cost_usd"


@both
def test_an_agent_that_loops_is_stopped(variant: str, desk: Desk, tmp_path: Path) -> None:
    acted, _ = desk.run(variant, write(tmp_path, by_step("code")))
    assert acted == ["code"] * 3
    assert [*desk.traces.values()][-1][-1].reason == "loop"


@both
def test_the_kill_switch_in_the_middle_of_an_episode(variant: str, desk: Desk, tmp_path: Path) -> None:
    folder = write(tmp_path, by_step("search"), script=("plan", "plan", "code", "plan", STOP))
    acted, _ = desk.run(variant, folder, messages=[{"role": "user", "content": f"kill:{folder}"}])
    assert acted == ["search", "search", "code", "plan"]
    assert [d.reason for d in [*desk.traces.values()][-1]] == ["policy", "policy", *["kill_switch"] * 3]


@both
def test_agents_that_the_other_side_does_not_know_are_never_called(variant: str, desk: Desk, tmp_path: Path) -> None:
    """The graph has a critic, whom the policy does not know; the policy an oracle, whom the graph does not have."""
    actions = ("oracle", "plan", "search", STOP)
    folder = write(
        tmp_path, by_step("oracle", "oracle", STOP, actions=actions), script=("oracle", "plan", STOP), incumbent="plan"
    )
    acted, _ = desk.run(variant, folder)
    assert acted == ["plan", "plan"]
    assert {d.candidates for d in [*desk.traces.values()][-1]} == {("plan", "search"), ("plan", "search", STOP)}


@both
def test_a_thread_that_goes_on_begins_a_new_episode(variant: str, desk: Desk, tmp_path: Path) -> None:
    folder = write(tmp_path, by_step("plan", "search", STOP), canary_percent=50)
    memory = InMemorySaver()
    first, second = (desk.run(variant, folder, memory=memory, session="s1") for _ in range(2))
    assert first[0] == second[0] == [entry["action"] for entry in second[1]["history"]]


@both
def test_a_graph_that_runs_asynchronously_decides_alike(variant: str, desk: Desk, tmp_path: Path) -> None:
    acted, _ = desk.run(variant, write(tmp_path, by_step("plan", "search", STOP)), waits=False)
    assert acted == ["plan", "search"]


class Model(BaseModel):
    messages: list[Any] = []
    history: Annotated[list[dict[str, object]], steps] = []
    decision: dict[str, object] = {}


@dataclass
class Record:
    messages: list[Any] = field(default_factory=list)
    history: Annotated[list[dict[str, object]], steps] = field(default_factory=list)
    decision: dict[str, object] = field(default_factory=dict)


@both
@pytest.mark.parametrize("kind", [Model, Record])
def test_states_of_other_kinds_reach_the_agents_as_they_are(variant: str, kind: type, tmp_path: Path) -> None:
    policy = Graph(Router.load(write(tmp_path, by_step("plan", "search", STOP))), AGENTS)
    seen = []

    def agent_of(name: str) -> Callable[[Any], dict[str, Any]]:
        def run(state):  # type: ignore[no-untyped-def]  # LangGraph reads the state's type from a hint
            seen.append(type(state))
            return {"history": [policy.entry(state, output=name)]}

        return run

    graph = BUILD[variant](policy, agent_of, kind).compile()
    state = graph.invoke({"messages": [{"role": "user", "content": "How many?"}]})  # type: ignore[arg-type]
    assert [entry["action"] for entry in state["history"]] == ["plan", "search"]
    assert seen == [kind, kind]


def test_a_graph_of_which_the_policy_knows_no_agent_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="none of which is in"):
        Graph(Router.load(write(tmp_path)), ["critic"])


def test_langchains_messages_are_read() -> None:
    from langchain_core.messages import AIMessage, HumanMessage

    state = {"messages": [HumanMessage("How many?"), AIMessage("Which month?"), {"role": "user", "content": "May"}]}
    assert chat(state) == {
        "messages": [
            {"role": "human", "content": "How many?"},
            {"role": "ai", "content": "Which month?"},
            {"role": "user", "content": "May"},
        ]
    }


def test_every_decision_is_read_back_from_the_lake_as_it_was_made(desk: Desk, tmp_path: Path) -> None:
    """Those of all tests of this file: in order, STOP included."""
    for variant in BUILD:
        desk.run(variant, write(tmp_path, MODEL, canary_percent=50))
    desk.provider.shutdown()
    assert desk.collector.stop()[0] == 0
    with Lake.open(desk.collector.home) as lake:
        rows = lake.sql("select trace_id, attributes from spans where name = 'route' order by trace_id, start_ns")
        views = lake.sql(
            "select trace_id, policy_action, policy_propensity, policy_arm from spans where name = 'route'"
            " order by trace_id, start_ns"
        )
    assert set(rows["trace_id"]) == set(desk.traces)
    for trace_id, decisions in desk.traces.items():
        logged = [json.loads(text) for text in rows.filter(trace_id=trace_id)["attributes"]]
        assert [one["policy.action"] for one in logged] == [decision.action for decision in decisions]
        for one, decision in zip(logged, decisions, strict=True):
            assert one["policy.propensity"] == decision.propensity
            assert json.loads(one["policy.candidates"]) == list(decision.candidates)
            assert json.loads(one["policy.probabilities"]) == list(decision.probabilities)
            assert (one["policy.step"], one["policy.explored"]) == (decision.step, decision.explored)
            assert (one["policy.arm"], one["policy.reason"]) == (decision.arm, decision.reason)
            assert one["policy.features.spec"] == STEP_SPEC
            assert np.array_equal(decode_orchestration(one["policy.features"]), decision.features)
        columns = views.filter(trace_id=trace_id)
        assert columns["policy_action"].to_list() == [decision.action for decision in decisions]
        assert columns["policy_propensity"].to_list() == [decision.propensity for decision in decisions]
        assert columns["policy_arm"].to_list() == [decision.arm for decision in decisions]
    as_steps(desk)


def as_steps(desk: Desk) -> None:
    """The decisions as learning sees them."""
    with Lake.open(desk.collector.home) as lake:
        calls, spans, scores = (lake.query(name) for name in ("decision_calls", "decision_spans", "scores"))
    calls = with_one_list(calls, PRICES, "2026-11-30")
    rows = find_steps(calls, spans, scores, {}, orchestrate={"desk": True}).rows
    assert set(rows["trace_id"]) == set(desk.traces)
    for trace_id, decisions in desk.traces.items():
        steps = rows.filter(trace_id=trace_id)
        assert steps["step"].to_list() == [decision.step for decision in decisions]
        assert steps["action"].to_list() == [decision.action for decision in decisions]
        assert steps["propensity"].to_list() == [decision.propensity for decision in decisions]
        assert steps["candidates"].to_list() == [list(decision.candidates) for decision in decisions]
        assert steps["probabilities"].to_list() == [list(decision.probabilities) for decision in decisions]
        assert steps["explored"].to_list() == [decision.explored for decision in decisions]
        features = np.stack([decision.features for decision in decisions])
        assert np.array_equal(steps["features"].to_numpy(), features[:, :DIM])
        assert np.array_equal(steps["step_features"].to_numpy(), features[:, DIM : DIM + len(STEP_DENSE)])
