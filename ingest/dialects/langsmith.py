"""LangSmith's OTel export: run types as kinds, GenAI names for the rest, metadata under a key each."""

from __future__ import annotations

from ingest.dialects.facts import Dialect, by
from ingest.dialects.langgraph import agent_under
from ingest.spans import Attributes

_METADATA = "langsmith.metadata."

kind = by(
    "langsmith.span.kind",
    {
        "llm": "llm",
        "chat_model": "llm",
        "embedding": "embedding",
        "tool": "tool",
        "retriever": "retrieval",
        "chain": "chain",
        "prompt": "other",
        "parser": "other",
    },
    "chain",
)


def repair(attributes: Attributes, values: dict[str, object]) -> None:
    """The agent out of LangGraph's metadata. Prompts and parsers are no calls, whatever they repeat of one."""
    if "agent" not in values and (name := agent_under(attributes, _METADATA)):
        values["agent"] = name


_DETAILS = {
    "cache_read_tokens": ("cache_read",),
    "cache_write_tokens": ("cache_creation",),
}

DIALECT = Dialect(
    "langsmith",
    ("langsmith.span.kind",),
    kind,
    {
        "provider": (_METADATA + "ls_provider",),
        "model_requested": (_METADATA + "ls_model_name",),
        "session_id": (
            *(_METADATA + name for name in ("session_id", "thread_id", "conversation_id")),
            "langsmith.trace.thread_id",
        ),
        "user_id": (_METADATA + "user_id",),
        "stream": ("langsmith.request.streaming",),
        "tool_call_id": (_METADATA + "tool_call_id",),
    },
    inside={
        _METADATA + "usage_metadata": {
            "input_tokens": ("input_tokens",),
            "output_tokens": ("output_tokens",),
            "cache_read_tokens": ("input_token_details.cache_read",),
            "cache_write_tokens": ("input_token_details.cache_creation",),
            "reasoning_tokens": ("output_token_details.reasoning",),
        },
        "gen_ai.usage.input_token_details": _DETAILS,
        "gen_ai.usage.output_token_details": {"reasoning_tokens": ("reasoning",)},
    },
    ignored=("langsmith.", "gen_ai.serialized."),
    repair=repair,
    named=True,
)
