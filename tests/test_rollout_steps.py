"""A policy that chooses which agent acts next is rolled out alike: by session, judged by whole episodes."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from rollout_world import SERVICE, App, judged_run, store
from test_runtime_episode import by_step

from optimizer import config, rollout
from optimizer.agents.steps import Orchestrator, load
from optimizer.runtime import STOP

EPISODES = 240
MODEL_OF = {"plan": "large", "search": "small", "code": "large"}


def run(app: App, rng: random.Random) -> int:
    """Episodes by the exported bundle, one chat a step; how many were under the policy. Its first agent is the cheap
    one, and what it answers is wrong."""
    exporter, provider = InMemorySpanExporter(), TracerProvider(resource=Resource({"service.name": SERVICE}))
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    tracer, router, treated = provider.get_tracer("app"), load(app.bundle / "policy"), 0
    for number in range(EPISODES):
        context = {"messages": f"question {number}", "metadata": {"session": f"s{number}"}}
        with tracer.start_as_current_span(
            "invoke_agent desk",
            attributes={
                "gen_ai.operation.name": "invoke_agent",
                "gen_ai.agent.name": "desk",
                "gen_ai.conversation.id": f"s{number}",
            },
        ) as root:
            episode = Orchestrator(router, tracer)
            while (decision := episode.next(context)).action != STOP:
                facts = {
                    "gen_ai.operation.name": "chat",
                    "gen_ai.request.model": MODEL_OF[decision.action],
                    "gen_ai.usage.input_tokens": 100,
                    "gen_ai.usage.output_tokens": 50,
                }
                with tracer.start_as_current_span("chat", attributes=facts):
                    pass
                episode.done(output=decision.action, tokens=150)
            treated += decision.arm == "treatment"
            right = float(rng.random() < (0.1 if decision.arm == "treatment" else 0.95))
            result = {"gen_ai.evaluation.name": "quality", "gen_ai.evaluation.score.value": right}
            root.add_event("gen_ai.evaluation.result", result)
    store(app.home, exporter)
    return treated


def test_an_orchestrator_is_watched_by_episodes_and_goes_back_to_its_script(tmp_path: Path) -> None:
    model = by_step("search", STOP)
    judged_run(tmp_path, "r1", model=model, incumbent="plan", script=("plan", "code", STOP))
    app = App(tmp_path, tmp_path / "bundle")
    begun = rollout.start(app.home, SERVICE, by="ann", percent=50, bundle=app.bundle)
    assert (app.bundle / "policy_agents.py").exists()
    assert begun.rollout.revision == 2
    treated = run(app, random.Random(1))

    (done,) = rollout.watch(app.home, config.load(app.home))
    seen = done.rollout.monitor
    assert seen is not None
    assert seen["arms"]["treatment"]["decisions"] == treated
    assert seen["arms"]["control"]["decisions"] == EPISODES - treated
    assert seen["unit"] == "session"
    assert seen["ratio"]["ok"]
    cost = next(one for one in seen["metrics"] if one["metric"] == "cost_usd_per_1k")
    # one chat of the small model instead of two of the large one: 0.15 instead of 3 USD per 1,000
    assert cost["difference"]["value"] == pytest.approx(-2.85)
    assert seen["shadow"]["changed"] == seen["shadow"]["decisions"] == EPISODES - treated

    assert done.rollout.stage == "rolled_back"
    assert done.rollout.steps[-1].why.startswith("quality differs by -")
    alone = Orchestrator(load(app.bundle / "policy"))
    actions = []
    while (decision := alone.next({"messages": "hello"})).action != STOP:
        actions.append((decision.action, decision.reason))
        alone.done()
    assert actions == [("plan", "disabled"), ("code", "disabled")]
