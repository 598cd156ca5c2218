"""PromptLayer's SDK: GenAI names, kinds in `node_type`, and the OpenAI Agents SDK's spans through its bridge."""

from __future__ import annotations

from ingest.dialects.facts import Dialect, Kind, by
from ingest.spans import Attributes

_by_node = by(
    "node_type",
    {"llm_call": "llm", "llm_session": "chain", "code_execution": "chain", "prompt_template": "other", "eval": "other"},
)
_by_type = by(
    "openai_agents.span_type",
    {
        "agent": "agent",
        "function": "tool",
        "generation": "llm",
        "response": "llm",
        "guardrail": "guardrail",
        "handoff": "chain",
        "custom": "chain",
        "mcp_tools": "chain",
    },
)


def kind(attributes: Attributes) -> Kind | None:
    """By the type of a span of the OpenAI Agents SDK, else by the node's type; code with a tool's name is a tool."""
    found = _by_type(attributes) or _by_node(attributes)
    if found == "chain" and ("tool_name" in attributes or "tool.name" in attributes):
        return "tool"
    return found


DIALECT = Dialect(
    "promptlayer",
    ("node_type", "openai_agents.span_type"),
    kind,
    {
        "agent": ("openai_agents.agent.name",),
        "workflow": ("openai_agents.workflow_name",),
        "session_id": (
            "promptlayer.metadata.conversation_id",
            "promptlayer.metadata.session_id",
            "openai_agents.group_id",
        ),
        "user_id": ("promptlayer.metadata.user_id",),
        "prompt_name": ("promptlayer.prompt.name",),
        "prompt_version": ("promptlayer.prompt.version",),
        "raw_input": ("function_input",),
        "raw_output": ("function_output",),
    },
    ignored=("promptlayer.", "openai_agents.", "node_type", "function_name", "provider", "eval."),
)
