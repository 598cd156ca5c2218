"""Claude Code's own telemetry: spans (beta) and log events.

A span's own `input_tokens` is without the cached ones, which have keys of their own; the GenAI key beside it has all.
"""

from __future__ import annotations

from ingest.dialects.facts import Dialect, by
from ingest.dialects.values import count
from ingest.spans import Attributes

kind = by(
    "span.type",
    {
        "llm_request": "llm",
        "tool": "tool",
        "interaction": "agent",
        "subagent": "agent",
        "tool.execution": "chain",
        "tool.blocked_on_user": "chain",
        "hook": "chain",
    },
)


def repair(attributes: Attributes, values: dict[str, object]) -> None:
    """All input, where only its parts are told."""
    if "input_tokens" not in values and (fresh := count(attributes.get("input_tokens"))) is not None:
        cached = (count(attributes.get(key)) or 0 for key in ("cache_read_tokens", "cache_creation_tokens"))
        values["input_tokens"] = fresh + sum(cached)
        values["usage_rule"] = "exclusive: claude_code tells the parts"
    if attributes.get("success") is False or attributes.get("success") == "false":
        values.setdefault("error_type", attributes.get("error_class") or "error")


DIALECT = Dialect(
    "claude_code",
    ("span.type",),
    kind,
    {
        "model_requested": ("model",),
        "output_tokens": ("output_tokens",),
        "cache_read_tokens": ("cache_read_tokens",),
        "cache_write_tokens": ("cache_creation_tokens",),
        "cache_write_1h_tokens": ("cache_creation_1h_tokens",),
        "reported_cost_usd": ("cost_usd",),
        "ttft_ms": ("ttft_ms",),
        "response_id": ("request_id",),
        "tool": ("tool_name",),
        "tool_call_id": ("tool_use_id",),
        "raw_input": ("user_prompt",),
    },
    ignored=(
        *("claude_code.", "interaction.", "span.type", "terminal.", "organization.", "app.", "parent.", "llm_request."),
        *("anthropic.", "input_tokens", "success", "error_class", "attempt", "decision", "duration_ms", "query_source"),
        *("first_content_ms", "queued_sends", "speed", "stop_reason", "user_prompt_length", "bash_argv0", "source"),
        *("bash_command_class", "full_command", "query_source_safe", "tool_name_safe", "status_code"),
    ),
    repair=repair,
)
