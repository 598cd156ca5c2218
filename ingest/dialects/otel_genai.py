"""OpenTelemetry's GenAI conventions, from 1.26 (2024) to the semantic-conventions-genai repository (2026).

Old names stand after the new ones: all generations are in use at once.
"""

from __future__ import annotations

from ingest.dialects.facts import Dialect, Kind
from ingest.spans import Attributes

_KINDS: dict[str, Kind] = {
    "chat": "llm",
    "text_completion": "llm",
    "generate_content": "llm",
    "completion": "llm",
    "responses": "llm",
    "embeddings": "embedding",
    "embedding": "embedding",
    "invoke_agent": "agent",
    "create_agent": "agent",
    "execute_tool": "tool",
    "retrieval": "retrieval",
}


def kind(attributes: Attributes) -> Kind | None:
    """By `gen_ai.operation.name`."""
    operation = attributes.get("gen_ai.operation.name")
    return _KINDS.get(operation.lower()) if isinstance(operation, str) else None


DIALECT = Dialect(
    "otel_genai",
    ("gen_ai.operation.name",),
    kind,
    {
        "provider": ("gen_ai.provider.name", "gen_ai.system"),
        "model_requested": ("gen_ai.request.model",),
        "model_returned": ("gen_ai.response.model",),
        "reasoning_effort": (
            "gen_ai.request.reasoning.effort",
            "gen_ai.request.reasoning_effort",
            "openai.request.reasoning_effort",
            "gen_ai.openai.request.reasoning_effort",
        ),
        "input_tokens": ("gen_ai.usage.input_tokens", "gen_ai.usage.prompt_tokens"),
        "output_tokens": ("gen_ai.usage.output_tokens", "gen_ai.usage.completion_tokens"),
        "cache_read_tokens": (
            "gen_ai.usage.cache_read.input_tokens",
            "gen_ai.usage.cache_read_input_tokens",
            "gen_ai.usage.input_tokens.cached",
            "gen_ai.usage.details.cache_read_tokens",
            "gen_ai.usage.details.cached_tokens",
        ),
        "cache_write_tokens": (
            "gen_ai.usage.cache_write.input_tokens",
            "gen_ai.usage.cache_creation.input_tokens",
            "gen_ai.usage.cache_creation_input_tokens",
            "gen_ai.usage.details.cache_write_tokens",
        ),
        "reasoning_tokens": (
            "gen_ai.usage.reasoning.output_tokens",
            "gen_ai.usage.reasoning_tokens",
            "gen_ai.usage.details.reasoning_tokens",
            "gen_ai.usage.thinking_tokens",
        ),
        "cache_write_1h_tokens": (
            "gen_ai.usage.details.ephemeral_1h_input_tokens",
            "gen_ai.usage.cache_creation.ephemeral_1h_input_tokens",
        ),
        "input_audio_tokens": ("gen_ai.usage.audio.input_tokens", "gen_ai.usage.details.input_audio_tokens"),
        "input_image_tokens": ("gen_ai.usage.image.input_tokens",),
        "output_audio_tokens": ("gen_ai.usage.audio.output_tokens", "gen_ai.usage.details.output_audio_tokens"),
        "output_image_tokens": ("gen_ai.usage.image.output_tokens",),
        "web_search_calls": (
            "gen_ai.usage.server_tool_use.web_search_requests",
            "gen_ai.usage.details.web_search_requests",
            "gen_ai.usage.web_search_requests",
        ),
        "service_tier": (
            "openai.response.service_tier",
            "gen_ai.openai.response.service_tier",
            "gen_ai.response.service_tier",
            "openai.request.service_tier",
            "gen_ai.openai.request.service_tier",
            "gen_ai.request.service_tier",
        ),
        "max_tokens": ("gen_ai.request.max_tokens",),
        "response_format": ("gen_ai.output.type", "gen_ai.openai.request.response_format"),
        "reported_cost_usd": ("operation.cost", "gen_ai.cost.total_cost", "gen_ai.usage.cost"),
        "error_type": ("error.type",),
        "stream": ("gen_ai.request.stream", "gen_ai.is_streaming"),
        "ttft_s": ("gen_ai.response.time_to_first_chunk", "gen_ai.server.time_to_first_token"),
        "session_id": ("gen_ai.conversation.id", "session.id"),
        "user_id": ("user.id", "enduser.id", "gen_ai.user", "gen_ai.request.user"),
        "response_id": ("gen_ai.response.id",),
        "workflow": ("gen_ai.workflow.name",),
        "agent": ("gen_ai.agent.name",),
        "tool": ("gen_ai.tool.name",),
        "tool_call_id": ("gen_ai.tool.call.id",),
        "prompt_name": ("gen_ai.prompt.name",),
        "prompt_version": ("gen_ai.prompt.version",),
        "input": ("gen_ai.input.messages", "gen_ai.prompt"),
        "output": ("gen_ai.output.messages", "gen_ai.completion"),
        "system": ("gen_ai.system_instructions",),
        "tools": ("gen_ai.tool.definitions",),
        "tool_arguments": ("gen_ai.tool.call.arguments",),
        "tool_result": ("gen_ai.tool.call.result",),
    },
    ignored=(
        "gen_ai.operation.name",
        "gen_ai.request.",
        "gen_ai.response.finish_reasons",
        "gen_ai.response.reasoning_effort",
        "gen_ai.response.service_tier",
        "gen_ai.response.system_fingerprint",
        "gen_ai.usage.total_tokens",
        "gen_ai.usage.text.",
        "gen_ai.usage.image.",
        "gen_ai.usage.audio.",
        "gen_ai.usage.video.",
        "gen_ai.agent.",
        "gen_ai.tool.",
        "gen_ai.embeddings.",
        "gen_ai.retrieval.",
        "gen_ai.prompt.variable.",
        "gen_ai.cost.",
        "gen_ai.openai.",
        "openai.",
        "anthropic.",
    ),
)
