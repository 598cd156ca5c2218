"""Langfuse's SDKs: observations with JSON in their attributes; texts of metadata come in quotes.

`langfuse.observation.usage_details` has two shapes: OpenAI's own names, whose sums include the cached and the reasoning
tokens; and Langfuse's, where `input` and `output` are what is left beside their own `input_*` and `output_*` parts.
"""

from __future__ import annotations

from collections.abc import Mapping

from ingest.dialects.facts import Dialect, Kind
from ingest.dialects.langgraph import agent_under
from ingest.dialects.values import count, structure, within
from ingest.spans import Attributes

_KINDS: dict[str, Kind] = {
    "generation": "llm",
    "embedding": "embedding",
    "agent": "agent",
    "tool": "tool",
    "chain": "chain",
    "retriever": "retrieval",
    "guardrail": "guardrail",
    "evaluator": "evaluator",
    "event": "other",
}
_METADATA = "langfuse.observation.metadata."

_CACHE_READ = ("input_cached_tokens", "input_cache_read", "cache_read_input_tokens", "input_cached")
_CACHE_WRITE = ("input_cache_creation", "cache_creation_input_tokens", "input_cache_write")
_REASONING = ("output_reasoning_tokens", "output_reasoning")


def kind(attributes: Attributes) -> Kind | None:
    """By `langfuse.observation.type`; "span" says nothing more than that it is one."""
    word = attributes.get("langfuse.observation.type")
    return _KINDS.get(word.lower()) if isinstance(word, str) else None


def repair(attributes: Attributes, values: dict[str, object]) -> None:
    """Token counts out of the usage; who answered out of the metadata; errors told by the level."""
    details = structure(attributes.get("langfuse.observation.usage_details"))
    if isinstance(details, dict) and "input_tokens" not in values and "output_tokens" not in values:
        values.update({name: found for name, found in usage(details).items() if found is not None})
    if '"tool"' in (sent := str(values.get("input", ""))) and '"function"' in sent:
        _split_tools(values)
    if "agent" not in values and (name := agent_under(attributes, _METADATA)):
        values["agent"] = name
    if attributes.get("langfuse.observation.level") == "ERROR":
        values.setdefault("error_type", "error")


def _split_tools(values: dict[str, object]) -> None:
    """The LangChain handler puts the tools offered among the messages, as messages of role "tool"."""
    sent = structure(values["input"])
    if not isinstance(sent, list):
        return
    offered = [item["content"] for item in sent if _is_tool(item)]
    if offered:
        values["input"] = [item for item in sent if not _is_tool(item)]
        values.setdefault("tools", offered)


def _is_tool(item: object) -> bool:
    if not isinstance(item, dict) or item.get("role") != "tool" or not isinstance(said := item.get("content"), dict):
        return False
    return said.get("type") == "function" and isinstance(said.get("function"), dict)


def usage(details: Mapping[str, object]) -> dict[str, int | None]:
    """Token counts by our names from Langfuse's `usage_details`."""
    if "prompt_tokens" in details or "completion_tokens" in details:
        return {
            "input_tokens": count(details.get("prompt_tokens")),
            "output_tokens": count(details.get("completion_tokens")),
            "cache_read_tokens": count(within(details, "prompt_tokens_details.cached_tokens")),
            "reasoning_tokens": count(within(details, "completion_tokens_details.reasoning_tokens")),
        }
    if "input_tokens" in details or "output_tokens" in details:
        given, answered = count(details.get("input_tokens")), count(details.get("output_tokens"))
    else:
        given, answered = _sum(details, "input"), _sum(details, "output")
    return {
        "input_tokens": given,
        "output_tokens": answered,
        "cache_read_tokens": _any(details, _CACHE_READ),
        "cache_write_tokens": _any(details, _CACHE_WRITE),
        "reasoning_tokens": _any(details, _REASONING),
    }


def _sum(details: Mapping[str, object], head: str) -> int | None:
    counts = [count(value) for key, value in details.items() if key == head or key.startswith(head + "_")]
    known = [found for found in counts if found is not None]
    return sum(known) if known else None


def _any(details: Mapping[str, object], names: tuple[str, ...]) -> int | None:
    return next((found for name in names if (found := count(details.get(name))) is not None), None)


DIALECT = Dialect(
    "langfuse",
    ("langfuse.observation.type",),
    kind,
    {
        "model_returned": ("langfuse.observation.model.name",),
        "provider": (_METADATA + "ls_provider",),
        "model_requested": (_METADATA + "ls_model_name",),
        "session_id": ("langfuse.session.id",),
        "user_id": ("langfuse.user.id",),
        "prompt_name": ("langfuse.observation.prompt.name",),
        "prompt_version": ("langfuse.observation.prompt.version",),
        "tool_call_id": (_METADATA + "tool_call_id",),
        "input": ("langfuse.observation.input",),
        "output": ("langfuse.observation.output",),
        "raw_input": ("langfuse.trace.input",),
        "raw_output": ("langfuse.trace.output",),
    },
    inside={
        "langfuse.observation.model.parameters": {
            "max_tokens": ("max_tokens", "max_completion_tokens"),
            "reasoning_effort": ("reasoning_effort",),
        },
        "langfuse.observation.cost_details": {"reported_cost_usd": ("total",)},
    },
    ignored=("langfuse.",),
    repair=repair,
    encoded=True,
    named=True,
)
