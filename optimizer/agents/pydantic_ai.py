"""Lets a policy choose the model of each request of a pydantic-ai agent.

    from policy_agents import Policy
    from policy_pydantic_ai import PolicyModel

    model = PolicyModel(Policy("policy"), {"gpt-4o-mini": "openai:gpt-4o-mini", "gpt-4o": "openai:gpt-4o"})
    agent = Agent(model)

Needs pydantic-ai. `retroute export --target agents` writes it beside the policy as policy_pydantic_ai.py.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from pydantic_ai.models import Model, infer_model
from pydantic_ai.models.wrapper import WrapperModel

if TYPE_CHECKING:
    from optimizer.agents.steps import Policy

ROLES = {"system-prompt": "system", "user-prompt": "user", "retry-prompt": "user", "tool-return": "tool"}


class PolicyModel(WrapperModel):
    """The model that the policy chooses, request by request, among those that are given.

    models: action -> a model or its name. An action without one is never chosen; what pydantic-ai asks of a model
    beyond requests, such as its profile, is answered by that of the policy's incumbent, else by the first. ValueError
    if the policy knows none of them.
    """

    def __init__(self, policy: Policy, models: Mapping[str, Model | str]) -> None:
        actions = policy.router.model.actions
        if not set(models) & set(actions):
            raise ValueError(f"the policy chooses among {list(actions)}, for none of which a model was given")
        self.policy = policy
        self.models = {action: infer_model(model) for action, model in models.items()}
        super().__init__(self.models.get(policy.router.incumbent) or next(iter(self.models.values())))

    async def request(self, messages: Any, model_settings: Any, model_request_parameters: Any) -> Any:
        chosen = self._chosen(messages, model_request_parameters)
        return await chosen.request(messages, model_settings, model_request_parameters)

    @asynccontextmanager
    async def request_stream(
        self, messages: Any, model_settings: Any, model_request_parameters: Any, run_context: Any = None
    ) -> AsyncGenerator[Any]:
        chosen = self._chosen(messages, model_request_parameters)
        async with chosen.request_stream(messages, model_settings, model_request_parameters, run_context) as stream:
            yield stream

    def _chosen(self, messages: Any, parameters: Any) -> Model:
        return self.models[self.policy.decide(context_of(messages, parameters), self.models).action]


def context_of(messages: Any, parameters: Any) -> dict[str, object]:
    """What the policy may see of a request, as a router sees the same request at a gateway."""
    told = [one for message in messages for one in _parts(message)]
    instructions = [getattr(message, "instructions", None) for message in messages]
    newest = next((text for text in reversed(instructions) if text), None)
    tools = [*parameters.function_tools, *parameters.output_tools]
    wants_json = parameters.output_mode in ("native", "prompted")
    return {
        "messages": [{"role": "system", "content": newest}, *told] if newest else told,
        "tools": [{"type": "function", "function": {"name": tool.name}} for tool in tools] or None,
        "response_format": {"type": "json_schema"} if wants_json else None,
        "metadata": {"session": next((one for m in messages if (one := getattr(m, "conversation_id", None))), None)},
    }


def _parts(message: Any) -> Iterator[dict[str, object]]:
    """A request's parts are messages of their own, a response is one with its tool calls."""
    if message.kind == "request":
        for part in message.parts:
            if (role := ROLES.get(part.part_kind)) is not None:
                yield {"role": role, "content": _content(part)}
        return
    text = "".join(part.content for part in message.parts if part.part_kind == "text")
    calls = [
        {"type": "function", "id": part.tool_call_id, "function": {"name": part.tool_name, "arguments": part.args}}
        for part in message.parts
        if part.part_kind == "tool-call"
    ]
    yield {"role": "assistant", "content": text, **({"tool_calls": calls} if calls else {})}


def _content(part: Any) -> object:
    """Text, or a list of texts and, for each other thing, its kind."""
    if part.part_kind == "tool-return":
        return part.model_response_str()
    if part.part_kind == "retry-prompt":
        return part.model_response()
    if isinstance(part.content, str):
        return part.content
    return [
        {"type": "text", "text": one} if isinstance(one, str) else {"type": getattr(one, "kind", "file")}
        for one in part.content
    ]
