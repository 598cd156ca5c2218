"""Lets a policy choose the model of each call of the OpenAI Agents SDK.

    from policy_agents import Policy
    from policy_openai_agents import PolicyModels

    models = PolicyModels(Policy("policy"))
    agent = Agent(name="Desk", model=models.policy.virtual_model)
    result = await Runner.run(agent, task, run_config=RunConfig(model_provider=models))

Needs openai-agents. `retroute export --target agents` writes it beside the policy as policy_openai_agents.py.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import TYPE_CHECKING, Any

from agents import Model, ModelProvider, MultiProvider

if TYPE_CHECKING:
    from optimizer.agents.steps import Policy


class PolicyModels(ModelProvider):
    """The models of another provider, and under the policy's virtual model whichever the policy chooses, call by call.

    names: action -> the provider's name of its model; without an entry, what stands before "|" in the action. provider:
    the SDK's own without one.
    """

    def __init__(
        self, policy: Policy, provider: ModelProvider | None = None, names: Mapping[str, str] | None = None
    ) -> None:
        self.policy = policy
        self.provider = provider or MultiProvider()
        self.names = dict(names or {})

    def get_model(self, model_name: str | None) -> Model:
        if model_name == self.policy.virtual_model:
            return _Chosen(self)
        return self.provider.get_model(model_name)

    async def aclose(self) -> None:
        await self.provider.aclose()

    def chosen(self, context: Mapping[str, object]) -> Model:
        """The model for one call: the policy decides and logs."""
        decision = self.policy.decide(context)
        return self.provider.get_model(self.names.get(decision.action) or decision.action.partition("|")[0])


class _Chosen(Model):
    """Asks the policy at each call."""

    def __init__(self, models: PolicyModels) -> None:
        self.models = models

    async def get_response(
        self,
        system_instructions: Any,
        input: Any,
        model_settings: Any,
        tools: Any,
        output_schema: Any,
        handoffs: Any,
        tracing: Any,
        **more: Any,
    ) -> Any:
        session = more.get("conversation_id")
        model = self.models.chosen(context_of(system_instructions, input, tools, output_schema, handoffs, session))
        return await model.get_response(
            system_instructions, input, model_settings, tools, output_schema, handoffs, tracing, **more
        )

    async def stream_response(
        self,
        system_instructions: Any,
        input: Any,
        model_settings: Any,
        tools: Any,
        output_schema: Any,
        handoffs: Any,
        tracing: Any,
        **more: Any,
    ) -> AsyncIterator[Any]:
        session = more.get("conversation_id")
        model = self.models.chosen(context_of(system_instructions, input, tools, output_schema, handoffs, session))
        async for event in model.stream_response(
            system_instructions, input, model_settings, tools, output_schema, handoffs, tracing, **more
        ):
            yield event


def context_of(
    instructions: str | None, given: Any, tools: Any, output_schema: Any, handoffs: Any, conversation_id: str | None
) -> dict[str, object]:
    """What the policy may see of a call, as a router sees the same request at a gateway."""
    messages: list[object] = [{"role": "system", "content": instructions}] if instructions else []
    messages += given if isinstance(given, list) else [{"role": "user", "content": given}]
    names = [one.name for one in tools or ()] + [one.tool_name for one in handoffs or ()]
    wants_json = output_schema is not None and not output_schema.is_plain_text()
    return {
        "messages": messages,
        "tools": [{"type": "function", "function": {"name": name}} for name in names] or None,
        "response_format": {"type": "json_schema"} if wants_json else None,
        "metadata": {"session": conversation_id},
    }
