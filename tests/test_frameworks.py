"""A policy inside real agent frameworks and clients, each calling a model server on this machine."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from agents import Agent, RunConfig, Runner, function_tool
from agents.models.openai_provider import OpenAIProvider
from litellm_proxy import ACTIONS, BIG, CODE, MID, MODEL_OF, SERVICE, SMALL, Answer, Upstream, policy
from openfeature import api
from openfeature.evaluation_context import EvaluationContext
from openfeature.flag_evaluation import FlagResolutionDetails
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from pydantic_ai import Agent as PydanticAgent
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider as PydanticProvider
from test_runtime_episode import by_step, write

from optimizer.agents import openai_agents, pydantic_ai
from optimizer.agents.openai_agents import PolicyModels
from optimizer.agents.openfeature import PolicyProvider
from optimizer.agents.pydantic_ai import PolicyModel
from optimizer.agents.steps import Policy
from optimizer.export import agents as agents_export
from optimizer.runtime import STOP, features_hash, featurise

SURE = 0.8
"""Probability of the best action: the policy explores with 0.3 among three."""


class Once(Answer):
    """Closes each connection, so that no client keeps one beyond its event loop."""

    protocol_version = "HTTP/1.0"


@pytest.fixture
def upstream() -> Iterator[Upstream]:
    with Upstream() as server:
        server.RequestHandlerClass = Once
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


@pytest.fixture
def spans() -> InMemorySpanExporter:
    return InMemorySpanExporter()


@pytest.fixture
def chosen(tmp_path: Path, spans: InMemorySpanExporter) -> Policy:
    """A policy that takes the big model where the prompt holds code, and the small one elsewhere; it never explores."""
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(spans))
    folder = policy(tmp_path / "policy", "v1")
    found = Policy(folder, provider.get_tracer("app"))
    found._router = type(found.router).load(folder, draw=lambda: 0.5)  # which is always in the best action's share
    return found


def routed(spans: InMemorySpanExporter) -> list[dict[str, Any]]:
    return [dict(span.attributes or {}) for span in spans.get_finished_spans() if span.name == "route"]


def told(spans: InMemorySpanExporter, *actions: str) -> None:
    """One span for each call, with the action and its probability."""
    logged = routed(spans)
    assert [one["policy.action"] for one in logged] == list(actions)
    for one in logged:
        shares = dict(zip(json.loads(one["policy.candidates"]), json.loads(one["policy.probabilities"]), strict=True))
        assert shares[one["policy.action"]] == one["policy.propensity"]


def asked(upstream: Upstream) -> list[str]:
    """The actions whose models were called; an agent that is answered with a tool call asks again."""
    action_of = {model: action for action, model in MODEL_OF.items()}
    return [action_of[body["model"]] for _, body in upstream.asked]


# ---------------------------------------------------------------------------------------------- OpenAI Agents SDK


@function_tool
def orders(month: str) -> str:
    """The orders of a month."""
    return "42"


@pytest.mark.parametrize("responses", [False, True], ids=["chat", "responses"])
@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "stream"])
def test_the_openai_agents_sdk_calls_the_model_that_the_policy_chose(
    responses: bool, streamed: bool, chosen: Policy, upstream: Upstream, spans: InMemorySpanExporter
) -> None:
    provider = OpenAIProvider(api_key="k", base_url=upstream.url, use_responses=responses)
    models = PolicyModels(chosen, provider, MODEL_OF)
    agent = Agent(name="Desk", model=SERVICE, instructions="Be brief.", tools=[orders])
    config = RunConfig(model_provider=models, tracing_disabled=True)

    async def ask(text: str) -> str:
        if not streamed:
            return str((await Runner.run(agent, text, run_config=config)).final_output)
        result = Runner.run_streamed(agent, text, run_config=config)
        async for _ in result.stream_events():
            pass
        return str(result.final_output)

    async def talk() -> None:
        for text, model in (("hello", SMALL), (CODE, BIG)):
            assert await ask(text) == "Hello."
            assert asked(upstream)[-1] == model

    asyncio.run(talk())
    told(spans, *asked(upstream))


def test_other_models_of_the_agents_sdk_pass(chosen: Policy, upstream: Upstream, spans: InMemorySpanExporter) -> None:
    provider = OpenAIProvider(api_key="k", base_url=upstream.url, use_responses=False)
    config = RunConfig(model_provider=PolicyModels(chosen, provider), tracing_disabled=True)
    asyncio.run(Runner.run(Agent(name="Desk", model="other"), CODE, run_config=config))
    assert upstream.model == "other"
    assert routed(spans) == []


def test_the_policy_sees_a_call_of_the_agents_sdk_as_a_gateway_would() -> None:
    given = [{"role": "user", "content": CODE}, {"role": "assistant", "content": "Which one?"}]
    seen = openai_agents.context_of("Be brief.", given, [orders], None, [], "s1")
    request = {
        "messages": [{"role": "system", "content": "Be brief."}, *given],
        "tools": [{"type": "function", "function": {"name": "orders", "parameters": {"type": "object"}}}],
    }
    assert features_hash(featurise(seen)) == features_hash(featurise(request))
    assert seen["metadata"] == {"session": "s1"}


# ----------------------------------------------------------------------------------------------------- pydantic-ai


def pydantic_models(upstream: Upstream) -> dict[str, OpenAIChatModel]:
    provider = PydanticProvider(base_url=upstream.url, api_key="k")
    return {action: OpenAIChatModel(MODEL_OF[action], provider=provider) for action in ACTIONS}


@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "stream"])
def test_pydantic_ai_calls_the_model_that_the_policy_chose(
    streamed: bool, chosen: Policy, upstream: Upstream, spans: InMemorySpanExporter
) -> None:
    agent = PydanticAgent(PolicyModel(chosen, pydantic_models(upstream)), instructions="Be brief.")

    async def ask(text: str) -> str:
        if not streamed:
            return (await agent.run(text)).output
        async with agent.run_stream(text) as result:
            return await result.get_output()

    async def talk() -> None:
        for text, model in (("hello", SMALL), (CODE, BIG)):
            assert await ask(text) == "Hello."
            assert asked(upstream)[-1] == model

    asyncio.run(talk())
    told(spans, *asked(upstream))


def test_an_action_without_a_model_is_never_chosen(chosen: Policy, upstream: Upstream) -> None:
    models = pydantic_models(upstream)
    agent = PydanticAgent(PolicyModel(chosen, {SMALL: models[SMALL], MID: models[MID]}))
    asyncio.run(agent.run(CODE))
    assert upstream.model in (MODEL_OF[SMALL], MODEL_OF[MID])
    with pytest.raises(ValueError, match="for none of which a model was given"):
        PolicyModel(chosen, {"else": models[SMALL]})


def test_the_policy_sees_a_request_of_pydantic_ai_as_a_gateway_would(chosen: Policy, upstream: Upstream) -> None:
    seen: list[dict[str, object]] = []
    agent = PydanticAgent(PolicyModel(chosen, pydantic_models(upstream)), instructions="Be brief.")

    @agent.tool_plain
    def lookup(month: str) -> str:
        """The orders of a month."""
        return "42"

    async def talk() -> None:
        first = await agent.run("hello")
        await agent.run([CODE, "and then?"], message_history=first.all_messages())

    original = pydantic_ai.context_of

    def hear(*given: Any) -> dict[str, object]:
        seen.append(original(*given))
        return seen[-1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pydantic_ai, "context_of", hear)
        asyncio.run(talk())
    for context, (_, body) in zip(seen, upstream.asked, strict=True):
        request = {"messages": body["messages"], "tools": body["tools"]}
        assert features_hash(featurise(context)) == features_hash(featurise(request))


# ------------------------------------------------------------------------------------------------------ OpenFeature


def test_a_flag_of_openfeature_is_the_policys_choice(chosen: Policy, spans: InMemorySpanExporter) -> None:
    api.set_provider(PolicyProvider(chosen))
    try:
        client = api.get_client()
        found = client.get_string_details(SERVICE, MID, EvaluationContext("s1", {"prompt": CODE}))
        assert (found.value, found.variant, found.reason) == (BIG, BIG, "SPLIT")
        assert found.flag_metadata["policy.propensity"] == pytest.approx(SURE)
        messages = [{"role": "user", "content": "hello"}]
        assert client.get_string_value(SERVICE, MID, EvaluationContext("s1", {"messages": messages})) == SMALL
        limited = EvaluationContext("s1", {"prompt": CODE, "candidates": [SMALL, MID]})
        assert client.get_string_value(SERVICE, MID, limited) == SMALL
        told(spans, BIG, SMALL, SMALL)
        missing = client.get_string_details("else", MID)
        assert (missing.value, missing.error_code) == (MID, "FLAG_NOT_FOUND")
        wrong = client.get_boolean_details(SERVICE, True)
        assert (wrong.value, wrong.error_code) == (True, "TYPE_MISMATCH")
    finally:
        api.shutdown()


def test_a_flag_without_context_is_decided_too(chosen: Policy) -> None:
    found = PolicyProvider(chosen).resolve_string_details(SERVICE, MID)
    assert isinstance(found, FlagResolutionDetails)
    assert found.value == SMALL


# ---------------------------------------------------------------------------------------------------------- AutoGen

CHAT = """
import asyncio, json, sys
from autogen_agentchat.agents import AssistantAgent
from autogen_agentchat.conditions import MaxMessageTermination
from autogen_agentchat.teams import SelectorGroupChat
from autogen_ext.models.openai import OpenAIChatCompletionClient
from policy_agents import Policy
from policy_autogen import PolicyChat

info = {"vision": False, "function_calling": True, "json_output": False, "family": "unknown",
        "structured_output": False}
client = OpenAIChatCompletionClient(model="small-1", base_url=sys.argv[1], api_key="k", model_info=info)

def team(chat):
    agents = [AssistantAgent(name, client, system_message="Do.") for name in ("plan", "search", "code")]
    end = chat | MaxMessageTermination(int(sys.argv[2]))
    return SelectorGroupChat(agents, client, selector_func=chat.speaker, termination_condition=end)

async def main():
    told = []
    chat = PolicyChat(Policy("policy"))
    group = team(chat)
    for task in ("first task", "second task"):
        result = await group.run(task=task)
        told.append([message.source for message in result.messages] + [result.stop_reason])
        await group.reset()
    chat = PolicyChat(Policy("policy"), budget={"tokens": 50})
    result = await team(chat).run(task="dear task")
    told.append([message.source for message in result.messages] + [result.stop_reason])
    print(json.dumps(told))

asyncio.run(main())
"""
AUTOGEN = ("autogen-agentchat==0.7.5", "autogen-ext[openai]==0.7.5", "numpy", "opentelemetry-api")


def python_with_autogen(config: pytest.Config) -> Path:
    """An environment of its own: AutoGen wants an older protobuf than we do."""
    assert config.cache is not None
    folder = config.cache.mkdir("autogen-venv")
    python, built = folder / "bin" / "python", folder / "built.json"
    if not built.is_file() or json.loads(built.read_text()) != [*AUTOGEN, sys.version]:
        install = [str(python), "-m", "pip", "install", "-q", "--disable-pip-version-check", *AUTOGEN]
        for step in ([sys.executable, "-m", "venv", "--clear", str(folder)], install):
            done = subprocess.run(step, capture_output=True, text=True, timeout=600)
            if done.returncode:
                reason = f"AutoGen cannot be installed: {done.stderr.strip()[-300:]}"
                if os.environ.get("CI") == "true":
                    pytest.fail(reason)
                pytest.skip(reason)
        built.write_text(json.dumps([*AUTOGEN, sys.version]))
    return python


def test_a_policy_leads_a_group_chat_of_autogen_to_its_end(
    request: pytest.FixtureRequest, upstream: Upstream, tmp_path: Path
) -> None:
    python = python_with_autogen(request.config)
    out = tmp_path / "out"
    agents_export.export(write(tmp_path / "policy", by_step("search", "code", STOP)), out, "desk")
    done = subprocess.run(
        [str(python), "-c", CHAT, upstream.url, "9"], cwd=out, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    whole = ["user", "search", "code", "stopped: policy"]
    assert json.loads(done.stdout) == [whole, whole, ["user", "search", "code", "stopped: budget:tokens"]]
