"""OpenInference: kinds in `openinference.span.kind`, messages spread over indexed keys, requests and answers in JSON.

`llm.model_name` is the model that answered; the one that was asked for is in the invocation parameters. There is no key
for the response's id: it is in the provider's raw answer, where that was kept.
"""

from __future__ import annotations

from ingest.dialects import answers
from ingest.dialects.facts import Dialect, by
from ingest.dialects.langgraph import agent_of
from ingest.dialects.values import structure
from ingest.spans import Attributes

kind = by(
    "openinference.span.kind",
    {
        "llm": "llm",
        "embedding": "embedding",
        "agent": "agent",
        "tool": "tool",
        "retriever": "retrieval",
        "reranker": "retrieval",
        "guardrail": "guardrail",
        "evaluator": "evaluator",
        "chain": "chain",
        "prompt": "other",
        "unknown": "other",
    },
    "chain",
)


def repair(attributes: Attributes, values: dict[str, object]) -> None:
    """The response's id from the raw answer; the agent from LangGraph's metadata."""
    if "response_id" not in values and (said := answers.raw_id(attributes.get("output.value"))) is not None:
        values["response_id"] = said
    if "agent" not in values and (meta := attributes.get("metadata")):
        if isinstance(meta, str) and "lc_agent_name" not in meta and "langgraph_" not in meta:
            return
        found = structure(meta)
        if isinstance(found, dict) and (name := agent_of(found)):
            values["agent"] = name


_METADATA = {
    "session_id": ("session_id", "thread_id", "conversation_id"),
    "user_id": ("user_id",),
}

DIALECT = Dialect(
    "openinference",
    ("openinference.span.kind",),
    kind,
    {
        "provider": ("llm.provider", "llm.system"),
        "model_requested": ("llm.request.model_name",),
        "model_returned": ("llm.response.model_name", "llm.model_name", "embedding.model_name", "reranker.model_name"),
        "input_tokens": ("llm.token_count.prompt",),
        "output_tokens": ("llm.token_count.completion",),
        "cache_read_tokens": (
            "llm.token_count.prompt_details.cache_read",
            "llm.token_count.prompt_details.cache_input",
        ),
        "cache_write_tokens": ("llm.token_count.prompt_details.cache_write",),
        "reasoning_tokens": ("llm.token_count.completion_details.reasoning",),
        "input_audio_tokens": ("llm.token_count.prompt_details.audio",),
        "output_audio_tokens": ("llm.token_count.completion_details.audio",),
        "reported_cost_usd": ("llm.cost.total",),
        "agent": ("agent.name", "graph.node.name"),
        "graph_node": ("graph.node.id",),
        "tool": ("tool.name",),
        "tool_call_id": ("tool_call.id", "tool.id"),
        "prompt_name": ("prompt.id",),
        "prompt_version": ("llm.prompt_template.version",),
        "raw_input": ("input.value",),
        "raw_output": ("output.value",),
    },
    inside={
        "llm.invocation_parameters": {
            "model_requested": ("model", "model_name"),
            "max_tokens": ("max_tokens", "max_completion_tokens", "max_output_tokens"),
            "stream": ("stream",),
            "reasoning_effort": ("reasoning_effort", "reasoning.effort"),
            "response_format": ("response_format.type", "text.format.type"),
            "user_id": ("user",),
        },
        "embedding.invocation_parameters": {"model_requested": ("model", "model_name")},
        "metadata": _METADATA,
    },
    indexed={
        "input": ("llm.input_messages.", "llm.prompts.", "embedding.embeddings."),
        "output": ("llm.output_messages.", "llm.choices."),
        "tools": ("llm.tools.",),
    },
    ignored=(
        *("openinference.", "llm.token_count.", "llm.cost.", "llm.prompt_template.", "llm.", "embedding.", "reranker."),
        *(
            "input.mime_type",
            "output.mime_type",
            "metadata",
            "tag.tags",
            "graph.node.",
            "agent.",
            "tool.",
            "retrieval.",
        ),
        *("prompt.", "document.", "evaluations.", "annotations.", "trace.", "session.", "image.", "audio."),
    ),
    repair=repair,
    named=True,
)
