"""OpenLLMetry and the Traceloop SDK, from flattened prompts (0.3x) to the GenAI names with additions of today."""

from __future__ import annotations

from ingest.dialects.facts import Dialect, Kind, by
from ingest.dialects.langgraph import agent_under
from ingest.spans import Attributes

_PROPERTIES = "traceloop.association.properties."
_ENTITIES: dict[str, Kind] = {"workflow": "chain", "task": "chain", "agent": "agent", "tool": "tool"}
_REQUESTS: dict[str, Kind] = {
    "chat": "llm",
    "completion": "llm",
    "acompletion": "llm",
    "embedding": "embedding",
    "rerank": "retrieval",
}
_by_entity = by("traceloop.span.kind", _ENTITIES)
_by_request = by("llm.request.type", _REQUESTS)


def kind(attributes: Attributes) -> Kind | None:
    """By the entity's kind, else by the request's type."""
    return _by_entity(attributes) or _by_request(attributes)


def repair(attributes: Attributes, values: dict[str, object]) -> None:
    """The agent out of LangGraph's metadata."""
    if "agent" not in values and (name := agent_under(attributes, _PROPERTIES)):
        values["agent"] = name


DIALECT = Dialect(
    "openllmetry",
    ("traceloop.span.kind", "llm.request.type"),
    kind,
    {
        "model_requested": ("llm.request.model",),
        "model_returned": ("llm.response.model",),
        "input_tokens": ("llm.usage.prompt_tokens",),
        "output_tokens": ("llm.usage.completion_tokens",),
        "cache_read_tokens": ("gen_ai.usage.cache_read_tokens",),
        "reasoning_tokens": ("llm.usage.reasoning_tokens",),
        "max_tokens": ("llm.request.max_tokens",),
        "stream": ("llm.is_streaming",),
        "response_id": ("llm.response.id",),
        "session_id": tuple(_PROPERTIES + name for name in ("session_id", "chat_id", "thread_id", "conversation_id")),
        "user_id": (_PROPERTIES + "user_id", "llm.user"),
        "workflow": ("traceloop.workflow.name",),
        "entity": ("traceloop.entity.name",),
        "prompt_name": ("traceloop.prompt.key",),
        "prompt_version": ("traceloop.prompt.version", "traceloop.prompt.version_name"),
        "raw_input": ("traceloop.entity.input", "gen_ai.task.input"),
        "raw_output": ("traceloop.entity.output", "gen_ai.task.output"),
    },
    indexed={
        "input": ("gen_ai.prompt.", "llm.prompts."),
        "output": ("gen_ai.completion.", "llm.completions."),
        "tools": ("llm.request.functions.",),
    },
    ignored=(
        *("traceloop.", "gen_ai.task.", "gen_ai.workflow.", "llm.request.", "llm.usage.", "llm.headers", "llm.top_k"),
        *("llm.response.", "llm.chat.", "llm.frequency_penalty", "llm.presence_penalty", "pinecone.", "llm.watsonx."),
    ),
    repair=repair,
)
