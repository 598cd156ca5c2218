"""Lets a policy choose which model answers, or which agent acts next and when to stop; logs each choice as a span.

Needs numpy and the OpenTelemetry API; `Graph` also needs LangGraph. Nothing of retroute: `retroute export --target
agents` writes it beside the policy as policy_agents.py.

    policy = Policy(Path("policy"))
    episode = Orchestrator(policy.router)
    context = {"messages": [{"role": "user", "content": task}], "budget": {"cost_usd": 0.50}}
    while (decision := episode.next(context)).action != "STOP":
        answer = agents[decision.action](task)
        episode.done(output=answer.text, cost_usd=answer.cost_usd, tokens=answer.tokens)

A policy that chooses a model for a single call: `policy.decide(context).action`.

Stop it at once: create the file policy/KILL, or set RETROUTE_KILL=1. Every episode then goes on by the script.
"""

from __future__ import annotations

import copy
import importlib.util
import logging
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from opentelemetry import trace

if TYPE_CHECKING:
    from optimizer.runtime import Decision, Router

STOP = "STOP"
LOOK_S = 1.0
"""Between two looks at the policy's files."""
log = logging.getLogger("retroute.agents")


def load(folder: Path) -> Router:
    """The policy in `folder`, by the runtime that stands beside it. Raises with the reason if it must not be used."""
    path = Path(folder).resolve() / "runtime.py"
    name = f"retroute_policy_runtime:{path}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"cannot load {path}")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    router: Router = module.Router.load(path.parent)
    return router


class Policy:
    """The policy in `folder`, read again when it is replaced, each of its choices logged as a span.

    It is looked at once a second at most. A new policy that cannot be read or must not be used leaves the last good
    one, with one line in the log. Threads may share it.
    """

    def __init__(self, folder: Path, tracer: trace.Tracer | None = None) -> None:
        """Raises with the reason if there is no policy that may be used."""
        self.folder = Path(folder)
        self.tracer = tracer or trace.get_tracer("retroute.agents")
        self._router, self._lock = load(self.folder), threading.Lock()
        self._seen, self._looked_s = self._state(), time.monotonic()

    @property
    def router(self) -> Router:
        """The newest good policy: what an episode that begins now is led by."""
        with self._lock:
            if (now := time.monotonic()) - self._looked_s >= LOOK_S:
                self._looked_s = now
                if (seen := self._state()) != self._seen:
                    self._seen = seen
                    self._replace()
        return self._router

    @property
    def virtual_model(self) -> str:
        """The model name that stands for the policy's choice."""
        return self.router.virtual_model

    def decide(self, context: Mapping[str, object], candidates: Collection[str] | None = None) -> Decision:
        """`Router.decide`, logged. ValueError for a policy that chooses which agent acts next: it needs the episode
        (see `Orchestrator`)."""
        router = self.router
        if router.model.steps:
            raise ValueError(f"the policy {router.policy_id} chooses which agent acts next, not a model for one call")
        return logged(router, self.tracer, context, candidates)

    def _replace(self) -> None:
        try:
            self._router = type(self._router).load(self.folder)
        except Exception as error:
            log.warning("policy not loaded, version %s stays: %s", self._router.version, error)

    def _state(self) -> object:
        found: list[tuple[int, int, int] | None] = []
        for name in ("manifest.json", "weights.npz"):
            try:
                state = (self.folder / name).stat()
            except OSError:
                found.append(None)
            else:
                found.append((state.st_mtime_ns, state.st_size, state.st_ino))
        return found


def logged(
    router: Router, tracer: trace.Tracer, context: Mapping[str, object], candidates: Collection[str] | None
) -> Decision:
    """What `Router.decide` decides, as a span "route" with the candidates and their probabilities."""
    with tracer.start_as_current_span("route", kind=trace.SpanKind.INTERNAL) as span:
        decision = router.decide(context, candidates)
        span.set_attributes(decision.attributes())
    return decision


class Orchestrator:
    """One episode: the steps so far, and the choice of the next.

    It keeps its router to the end, so that a policy that is replaced meanwhile begins with the next episode.
    """

    def __init__(
        self,
        router: Router,
        tracer: trace.Tracer | None = None,
        history: Iterable[Mapping[str, object]] = (),
    ) -> None:
        self.router = router
        self.tracer = tracer or trace.get_tracer("retroute.agents")
        self.history: list[Mapping[str, object]] = [*history]
        self.pending: dict[str, object] | None = None

    def next(self, context: Mapping[str, object], candidates: Collection[str] | None = None) -> Decision:
        """Who acts next, of the policy's agents or of those in `candidates`; "STOP" ends the episode. See
        `Router.decide`, which gets the context with this episode's history. A step that was chosen before and never
        `done` counts as one of which nothing is known."""
        if self.pending is not None:
            self.done(status=None)
        known = context if isinstance(context, Mapping) else {}
        decision = logged(self.router, self.tracer, {**known, "history": self.history}, candidates)
        self.pending = None if decision.action == STOP else begun(decision)
        return decision

    def done(
        self,
        status: str | None = "ok",
        output: str | None = None,
        cost_usd: float | None = None,
        tokens: int | None = None,
        signal: float | None = None,
    ) -> dict[str, object]:
        """Append what came of the step that was chosen last, and return that entry.

        status: "ok" or "error". output: what the step gave. signal: a cheap judgement of it in [0, 1], known by now.
        RuntimeError if no step was chosen.
        """
        if self.pending is None:
            raise RuntimeError("no step was chosen that could be done: call next() first")
        entry = finished(self.pending, status, output, cost_usd, tokens, signal)
        self.pending = None
        self.history.append(entry)
        return entry


def begun(decision: Decision) -> dict[str, object]:
    """The entry of a step that has just been chosen, with the time; plain values, so that it can be stored."""
    return {**decision.entry(status=None), "since": time.time()}


def finished(
    step: Mapping[str, Any],
    status: str | None,
    output: str | None,
    cost_usd: float | None,
    tokens: int | None,
    signal: float | None,
) -> dict[str, object]:
    """The same entry when the step is done."""
    known = {key: value for key, value in step.items() if key != "since"}
    seconds = max(time.time() - step["since"], 0.0) if "since" in step else None
    told = {"status": status, "output": output, "cost_usd": cost_usd, "tokens": tokens, "signal": signal}
    return known | told | {"seconds": seconds}


def chat(state: Any) -> dict[str, object]:
    """The context of a state that holds the conversation under "messages", as LangChain's messages or as mappings."""
    messages = _values(state).get("messages") or ()
    return {
        "messages": [m if isinstance(m, Mapping) else {"role": m.type, "content": m.content} for m in messages],
    }


def _values(state: Any) -> Mapping[str, Any]:
    """A graph's state as a mapping, be it one, a dataclass or a pydantic model."""
    return state if isinstance(state, Mapping) else vars(state)


def _with_decision(state: Any, decision: Mapping[str, object]) -> Any:
    if isinstance(state, Mapping):
        return {**state, "decision": decision}
    other = copy.copy(state)
    other.decision = decision
    return other


def steps(so_far: list[Any] | None, more: list[Any] | None) -> list[Any]:
    """How LangGraph adds up the history of a state: None, given with the input of a new turn, begins a new episode."""
    return [] if more is None else [*(so_far or ()), *more]


class Graph:
    """The policy in a LangGraph graph, as a conditional edge or as a node. STOP leads to END.

        class State(TypedDict):
            messages: Annotated[list, add_messages]
            history: Annotated[list, steps]
            decision: dict

        policy = Graph(Policy(Path("policy")).router, agents=["plan", "search", "code"])

        def search(state):
            answer = ...
            return {"messages": [answer], "history": [policy.entry(state, output=answer.text)]}

        graph = StateGraph(State)
        for name, agent in {"plan": plan, "search": search, "code": code}.items():
            graph.add_node(name, agent)
            graph.add_conditional_edges(name, policy.edge, [*policy.agents, END])
        graph.add_conditional_edges(START, policy.edge, [*policy.agents, END])
        graph.compile().invoke({"messages": [task], "history": None})   # None begins an episode

    Or with a node in the middle: `graph.add_node("route", policy.node, destinations=(*policy.agents, END))`, an edge
    from START to "route" and one back to it from each agent. Both keep the history in the graph's state, so that
    checkpoints hold it and threads do not mix. An agent that returns no entry has not acted: LangGraph's recursion
    limit ends such an episode.
    """

    def __init__(
        self,
        router: Router,
        agents: Collection[str],
        context: Callable[[Any], Mapping[str, object]] = chat,
        tracer: trace.Tracer | None = None,
    ) -> None:
        """`context`: state -> what `Router.decide` reads. ValueError if the policy knows none of the nodes `agents`."""
        if not set(agents) & set(router.model.actions):
            raise ValueError(f"the policy chooses among {list(router.model.actions)}, none of which is in {[*agents]}")
        self.router = router
        self.agents = tuple(agents)
        self.context = context
        self.tracer = tracer

    # Any: LangGraph evaluates these hints, and takes the state's type from them.
    def edge(self, state: Any) -> Any:
        """For add_conditional_edges: sends the state with the decision to the agent, or leads to END."""
        from langgraph.graph import END
        from langgraph.types import Send

        decision = self._next(state)
        if decision.action == STOP:
            return END
        return Send(decision.action, _with_decision(state, begun(decision)))

    def node(self, state: Any) -> Any:
        """For add_node: goes to the agent, or to END, and leaves the decision in the state."""
        from langgraph.graph import END
        from langgraph.types import Command

        decision = self._next(state)
        goto = END if decision.action == STOP else decision.action
        return Command(goto=goto, update={"decision": begun(decision)})

    def entry(
        self,
        state: Any,
        status: str | None = "ok",
        output: str | None = None,
        cost_usd: float | None = None,
        tokens: int | None = None,
        signal: float | None = None,
    ) -> dict[str, object]:
        """What an agent appends to the history when it is done; see `Orchestrator.done`."""
        return finished(_values(state).get("decision") or {}, status, output, cost_usd, tokens, signal)

    def _next(self, state: Any) -> Decision:
        episode = Orchestrator(self.router, self.tracer, _values(state).get("history") or ())
        return episode.next(self.context(state), self.agents)
