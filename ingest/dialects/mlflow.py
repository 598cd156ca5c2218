"""MLflow's tracing by OTLP: every value is JSON, request parameters stand under bare keys."""

from __future__ import annotations

from ingest.dialects import answers
from ingest.dialects.facts import Dialect, Kind
from ingest.dialects.langgraph import agent_of
from ingest.dialects.values import structure, unquoted
from ingest.spans import Attributes

_KINDS: dict[str, Kind] = {
    "llm": "llm",
    "chat_model": "llm",
    "embedding": "embedding",
    "agent": "agent",
    "tool": "tool",
    "chain": "chain",
    "workflow": "chain",
    "task": "chain",
    "retriever": "retrieval",
    "reranker": "retrieval",
    "guardrail": "guardrail",
    "evaluator": "evaluator",
}


def kind(attributes: Attributes) -> Kind | None:
    """By `mlflow.spanType`."""
    word = attributes.get("mlflow.spanType")
    return _KINDS.get(word.strip('"').lower(), "other") if isinstance(word, str) else None


def repair(attributes: Attributes, values: dict[str, object]) -> None:
    """Texts out of their quotes, the response's id out of the raw answer, the agent out of LangGraph's metadata."""
    if "response_id" not in values and (said := answers.raw_id(attributes.get("mlflow.spanOutputs"))) is not None:
        values["response_id"] = said
    for key in ("input", "output"):
        if key in values:
            values[key] = unquoted(values[key])
    meta = attributes.get("metadata")
    if "agent" not in values and isinstance(meta, str) and ("lc_agent_name" in meta or "langgraph_" in meta):
        found = structure(meta)
        if isinstance(found, dict) and (name := agent_of(found)):
            values["agent"] = name


DIALECT = Dialect(
    "mlflow",
    ("mlflow.spanType",),
    kind,
    {
        "provider": ("mlflow.llm.provider",),
        "model_requested": ("model",),
        "model_returned": ("mlflow.llm.model",),
        "reasoning_effort": ("reasoning_effort",),
        "max_tokens": ("max_tokens", "max_completion_tokens", "max_output_tokens"),
        "stream": ("stream",),
        "session_id": ("mlflow.trace.session",),
        "user_id": ("mlflow.trace.user",),
        "input": ("mlflow.spanInputs",),
        "output": ("mlflow.spanOutputs",),
        "tools": ("mlflow.chat.tools", "tools"),
    },
    inside={
        "mlflow.chat.tokenUsage": {
            "input_tokens": ("input_tokens", "prompt_tokens"),
            "output_tokens": ("output_tokens", "completion_tokens"),
            "cache_read_tokens": ("cache_read_input_tokens", "cache_read_tokens"),
            "cache_write_tokens": ("cache_creation_input_tokens", "cache_write_tokens"),
            "reasoning_tokens": ("reasoning_tokens",),
        },
        "mlflow.llm.cost": {"reported_cost_usd": ("total_cost", "total")},
        "invocation_params": {"model_requested": ("model", "model_name")},
    },
    ignored=("mlflow.", "temperature", "top_p", "seed", "options", "invocation_params", "batch_size", "n", "stop"),
    repair=repair,
    encoded=True,
    named=True,
)
