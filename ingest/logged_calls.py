"""Calls that are known from log records -> spans as the settler sees them. Pure.

Coding agents send logs and no spans by default: one record for each call of a model, each run of a tool, each prompt
and answer. An instrumentation's record of a call, with its counts and texts, can outlive the span that it belongs to.
Where the span is there too, settling finds that both tell of one call.

The records of Claude Code are built from what it sends; those of Gemini CLI and Codex from their documentation.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from ingest.dialects import messages, registry
from ingest.dialects.facts import Content
from ingest.dialects.values import count, dumps, number, text
from ingest.spans import Attributes, LogRecord, Span
from ingest.trace_tree import TraceSpan


@dataclass(frozen=True, slots=True)
class LoggedEvent:
    """A stored log record. `span_id` None: it has no span context."""

    event_id: str
    span_id: str | None
    name: str
    time_ns: int
    service: str
    body: object
    attributes: Attributes


@dataclass(frozen=True)
class _Form:
    """How one kind of record says what a span would: GenAI attribute -> keys here, in order of precedence."""

    operation: str
    keys: Mapping[str, tuple[str, ...]]
    added: tuple[str, ...] = ()
    """Counts that are left out of the input."""
    thought: tuple[str, ...] = ()
    """Counts that are left out of the output."""
    fixed: Mapping[str, object] = field(default_factory=dict)
    failed: bool = False
    only: tuple[str, object] | None = None
    """The attribute and value without which a record is none of this."""


_WHO = {
    "gen_ai.conversation.id": ("session.id", "conversation.id"),
    "user.id": ("user.account_uuid", "user.account_id", "user.email", "user.id"),
    "error.type": ("error_type", "error_class", "status_code", "error.message", "error"),
}
_CLAUDE = {
    **_WHO,
    "gen_ai.request.model": ("model",),
    "gen_ai.usage.output_tokens": ("output_tokens",),
    "gen_ai.usage.cache_read.input_tokens": ("cache_read_tokens",),
    "gen_ai.usage.cache_write.input_tokens": ("cache_creation_tokens",),
    "gen_ai.usage.input_tokens": ("input_tokens",),
    "gen_ai.response.id": ("request_id",),
    "operation.cost": ("cost_usd",),
}
_GEMINI = {
    **_WHO,
    "gen_ai.request.model": ("model",),
    "gen_ai.usage.input_tokens": ("input_token_count",),
    "gen_ai.usage.output_tokens": ("output_token_count",),
    "gen_ai.usage.cache_read.input_tokens": ("cached_content_token_count", "cached_token_count"),
    "gen_ai.usage.reasoning.output_tokens": ("thoughts_token_count", "reasoning_token_count"),
}
_TOOL = {
    **_WHO,
    "gen_ai.tool.name": ("tool_name", "function_name"),
    "gen_ai.tool.call.id": ("tool_use_id", "call_id"),
    "gen_ai.tool.call.arguments": ("tool_input", "tool_parameters", "function_args", "arguments"),
    "gen_ai.tool.call.result": ("tool_output", "output"),
}
_ANTHROPIC = {"gen_ai.provider.name": "anthropic"}
_FORMS: Mapping[str, _Form] = {
    "claude_code.api_request": _Form("chat", _CLAUDE, ("cache_read_tokens", "cache_creation_tokens"), fixed=_ANTHROPIC),
    "claude_code.api_error": _Form("chat", _CLAUDE, fixed=_ANTHROPIC, failed=True),
    "claude_code.tool_result": _Form("execute_tool", _TOOL),
    "gemini_cli.api_response": _Form(
        "chat", _GEMINI, thought=("thoughts_token_count",), fixed={"gen_ai.provider.name": "gemini"}
    ),
    "gemini_cli.api_error": _Form("chat", _GEMINI, fixed={"gen_ai.provider.name": "gemini"}, failed=True),
    "gemini_cli.tool_call": _Form("execute_tool", _TOOL),
    "codex.sse_event": _Form(
        "chat", _GEMINI, fixed={"gen_ai.provider.name": "openai"}, only=("event.kind", "response.completed")
    ),
    "codex.tool_result": _Form("execute_tool", _TOOL),
}
_PROMPTS = {"claude_code.user_prompt", "gemini_cli.user_prompt", "codex.user_prompt"}
_ANSWERS = {"claude_code.assistant_response"}

CALL_EVENTS = frozenset({*_FORMS, *_PROMPTS, *_ANSWERS})
"""Names of the records that are kept for the calls they tell of."""


def event_name(log: LogRecord) -> str | None:
    """The full name, one of `CALL_EVENTS`, of a record that tells of a call; None for others."""
    for said in (log.body, log.event_name, log.attributes.get("event.name")):
        if isinstance(said, str) and said in CALL_EVENTS:
            return said
    return None


def trace_of(log: LogRecord) -> str:
    """The record's trace; without one, a trace for each prompt of a session."""
    if log.trace_id:
        return log.trace_id
    known = ("session.id", "conversation.id", "prompt.id", "prompt_id")
    which = "\0".join((log.service, *(str(log.attributes.get(key, "")) for key in known)))
    return hashlib.blake2b(which.encode("utf-8", "replace"), digest_size=16).hexdigest()


def calls_of(events: Iterable[LoggedEvent], known: Iterable[str], trace_id: str) -> list[tuple[TraceSpan, Content]]:
    """The calls and tool runs that the events of a trace tell of, with their texts.

    `known` are the trace's spans. Prompts and answers have records of their own: a prompt is the input of the calls
    that follow it, an answer the output of the call before it.
    """
    taken = set(known)
    asked: str | None = None
    found: list[tuple[LoggedEvent, Span, Content | None]] = []
    for event in sorted(events, key=lambda e: (e.time_ns, number(e.attributes.get("event.sequence")) or 0, e.event_id)):
        if event.name in _PROMPTS:
            asked = text(event.attributes.get("prompt"))
        elif event.name in _ANSWERS:
            said = text(event.attributes.get("response"))
            if said and found and found[-1][1].attributes.get("gen_ai.operation.name") == "chat":
                before, span, content = found[-1]
                answer = dumps([{"role": "assistant", "content": said}])
                found[-1] = before, span, Content(content.input_text if content else None, answer)
        elif event.name == messages.DETAILS:
            if event.span_id and event.span_id not in taken:
                taken.add(event.span_id)
                fields = {**(event.body if isinstance(event.body, dict) else {}), **event.attributes}
                found.append((event, _span(trace_id, event.span_id, None, event, fields), None))
        elif (form := _FORMS.get(event.name)) and (
            form.only is None or event.attributes.get(form.only[0]) == form.only[1]
        ):
            span_id = event.event_id[:16]
            prompt = dumps([{"role": "user", "content": asked}]) if asked and form.operation == "chat" else None
            fields = _translated(event.attributes, form)
            found.append(
                (event, _span(trace_id, span_id, event.span_id, event, fields), Content(prompt) if prompt else None)
            )
    return [made for _, span, content in found if (made := _seen(span, content)) is not None]


def _translated(said: Attributes, form: _Form) -> dict[str, object]:
    fields: dict[str, object] = {"gen_ai.operation.name": form.operation, **form.fixed}
    for name, keys in form.keys.items():
        if name == "error.type" and not (form.failed or str(said.get("success", "true")).lower() == "false"):
            continue
        if (value := next((said[key] for key in keys if said.get(key) not in (None, "")), None)) is not None:
            fields[name] = value
    if form.failed:
        fields.setdefault("error.type", "error")
    for name, more in (("gen_ai.usage.input_tokens", form.added), ("gen_ai.usage.output_tokens", form.thought)):
        if more and (own := count(fields.get(name))) is not None:
            fields[name] = own + sum(count(said.get(key)) or 0 for key in more)
    if (milliseconds := number(said.get("ttft_ms"))) is not None:
        fields["gen_ai.response.time_to_first_chunk"] = milliseconds / 1000
    return fields


def _span(trace_id: str, span_id: str, parent: str | None, event: LoggedEvent, fields: Mapping[str, object]) -> Span:
    lasted = number(event.attributes.get("duration_ms")) or 0
    start_ns = max(event.time_ns - int(lasted * 1e6), 0)
    resource = {"service.name": event.service}
    return Span(trace_id, span_id, parent, event.name, "log", start_ns, event.time_ns, None, "", fields, resource)


def _seen(span: Span, told: Content | None) -> tuple[TraceSpan, Content] | None:
    """The record as a span and its texts; None for one that tells of no call after all."""
    reading = registry.read(span)
    if reading.facts.kind == "other":
        return None
    own = reading.content
    content = Content(
        own.input_text or (told.input_text if told else None),
        own.output_text or (told.output_text if told else None),
        own.tools,
    )
    sizes = len(content.input_text or ""), len(content.output_text or "")
    seen = TraceSpan(
        *(span.span_id, span.parent_span_id, span.name, span.service, span.start_ns, span.end_ns, None, reading.facts),
        *sizes,
        trace_id=span.trace_id,
        logged=True,
    )
    return seen, content
