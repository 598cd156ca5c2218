"""Vercel's AI SDK 4 to 6: an outer span for what was asked for, an inner one for each request (`ai.operationId`).

From 7 on it speaks the GenAI conventions, with an unlisted `agent_step` between.
"""

from __future__ import annotations

from ingest.dialects.facts import Dialect, Kind
from ingest.spans import Attributes

_METADATA = "ai.telemetry.metadata."
_LAST_WORDS: dict[str, Kind] = {
    "dogenerate": "llm",
    "dostream": "llm",
    "doembed": "embedding",
    "toolcall": "tool",
    "dorerank": "retrieval",
    "dogenerateimage": "other",
}


def kind(attributes: Attributes) -> Kind | None:
    """By the last word of `ai.operationId`."""
    operation = attributes.get("ai.operationId")
    if not isinstance(operation, str) or not operation:
        return None
    return _LAST_WORDS.get(operation.rpartition(".")[2].lower(), "chain")


def repair(attributes: Attributes, values: dict[str, object]) -> None:
    """Streaming is told by the operation's name."""
    values.setdefault("stream", "stream" in str(attributes.get("ai.operationId")).lower())


DIALECT = Dialect(
    "vercel",
    ("ai.operationId",),
    kind,
    {
        "provider": ("ai.model.provider",),
        "model_requested": ("ai.model.id",),
        "model_returned": ("ai.response.model",),
        "input_tokens": ("ai.usage.inputTokens", "ai.usage.promptTokens", "ai.usage.tokens"),
        "output_tokens": ("ai.usage.outputTokens", "ai.usage.completionTokens"),
        "cache_read_tokens": ("ai.usage.inputTokenDetails.cacheReadTokens", "ai.usage.cachedInputTokens"),
        "cache_write_tokens": ("ai.usage.inputTokenDetails.cacheWriteTokens",),
        "reasoning_tokens": ("ai.usage.outputTokenDetails.reasoningTokens", "ai.usage.reasoningTokens"),
        "max_tokens": ("ai.settings.maxOutputTokens", "ai.settings.maxTokens"),
        "response_format": ("ai.settings.output",),
        "ttft_ms": ("ai.response.msToFirstChunk", "ai.stream.msToFirstChunk"),
        "response_id": ("ai.response.id",),
        "session_id": tuple(
            _METADATA + name for name in ("sessionId", "session_id", "conversationId", "threadId", "chatId")
        ),
        "user_id": (_METADATA + "userId", _METADATA + "user_id"),
        "agent": ("ai.telemetry.functionId",),
        "tool": ("ai.toolCall.name",),
        "tool_call_id": ("ai.toolCall.id",),
        "input": ("ai.prompt.messages", "ai.prompt", "ai.value", "ai.values"),
        "output": ("ai.response.text", "ai.response.object", "ai.result.text", "ai.result.object"),
        "answer_calls": ("ai.response.toolCalls", "ai.result.toolCalls"),
        "answer_reasoning": ("ai.response.reasoning",),
        "tools": ("ai.prompt.tools",),
        "tool_arguments": ("ai.toolCall.args", "ai.toolCall.input"),
        "tool_result": ("ai.toolCall.result", "ai.toolCall.output"),
    },
    ignored=("ai.", "operation.name", "resource.name", "gen_ai.client.", "gen_ai.execute_tool."),
    repair=repair,
)
