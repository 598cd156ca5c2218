"""Pydantic AI and Logfire: GenAI names, older ones for agents and tools, conversations as lists of events."""

from __future__ import annotations

from ingest.dialects.facts import Dialect, Kind
from ingest.spans import Attributes

_AGENT_RUN = ("pydantic_ai.all_messages", "all_messages_events", "final_result", "model_name", "agent_name")


def kind(attributes: Attributes) -> Kind | None:
    """An agent's run is known by its name together with its conversation; a tool's by its name and the call's id."""
    if "agent_name" in attributes and any(key in attributes for key in _AGENT_RUN[:4]):
        return "agent"
    if "gen_ai.tool.name" in attributes and ("tool_arguments" in attributes or "gen_ai.tool.call.id" in attributes):
        return "tool"
    return None


DIALECT = Dialect(
    "pydantic_ai",
    ("agent_name", "gen_ai.tool.name"),
    kind,
    {
        "agent": ("agent_name",),
        "tool_arguments": ("tool_arguments",),
        "tool_result": ("tool_response",),
        "told_events": ("events", "all_messages_events"),
        "raw_input": ("pydantic_ai.all_messages", "request_data"),
        "raw_output": ("final_result", "response_data"),
        "tools": ("model_request_parameters",),
    },
    inside={
        "request_data": {"model_requested": ("model",), "max_tokens": ("max_tokens",), "stream": ("stream",)},
        "gen_ai.usage.raw": {
            "cache_read_tokens": (
                "prompt_tokens_details.cached_tokens",
                "input_tokens_details.cached_tokens",
                "cache_read_input_tokens",
            ),
            "cache_write_tokens": ("cache_creation_input_tokens",),
            "reasoning_tokens": (
                "completion_tokens_details.reasoning_tokens",
                "output_tokens_details.reasoning_tokens",
            ),
        },
    },
    ignored=(
        *("pydantic_ai.", "logfire.", "baggage_conflict.", "gen_ai.aggregated_usage.", "gen_ai.usage.details."),
        *("model_name", "tools", "async", "duration"),
    ),
)
