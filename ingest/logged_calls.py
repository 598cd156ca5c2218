"""Calls that are known from log records -> spans as the settler sees them. Pure.

Coding agents send logs and no spans by default: one record for each call of a model, each run of a tool, each prompt
and answer. An instrumentation's record of a call, with its counts and texts, can outlive the span that it belongs to.
Where the span is there too, settling finds that both tell of one call.

The records of Claude Code are built from what it sends; those of Gemini CLI and Codex from their documentation.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from ingest import sketches
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

    def fits(self, said: Attributes) -> bool:
        return self.only is None or said.get(self.only[0]) == self.only[1]


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


_TEXTS = {"gen_ai.tool.call.arguments", "gen_ai.tool.call.result"}
_PROSE = {"error.message", "error"}
NAMES = (
    frozenset(key for form in _FORMS.values() for name, keys in form.keys.items() if name not in _TEXTS for key in keys)
    | {"event.name", "event.kind", "event.sequence", "success", "duration_ms", "ttft_ms", "prompt.id", "prompt_id"}
) - _PROSE
"""Attributes of these records that are names, counts and times, and no texts."""

SAID = {**dict.fromkeys(_PROMPTS, ("user", "prompt")), **dict.fromkeys(_ANSWERS, ("assistant", "response"))}
"""Record -> whose text it tells, and the attribute that holds it."""


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


@dataclass
class _Told:
    """A span made of a record, and what later records add to it."""

    span: Span
    given: str | None = None
    answered: str | None = None


def calls_of(events: Iterable[LoggedEvent], known: Iterable[str], trace_id: str) -> list[tuple[TraceSpan, Content]]:
    """The calls, tool runs and agent runs that the events of a trace tell of, with their texts.

    `known` are the trace's spans. A prompt of the user begins a run of the agent, unless a span of `known` is that run;
    an answer ends it and is also the output of the call just before it.
    """
    taken = set(known)
    run: _Told | None = None
    found: list[_Told] = []
    for event in sorted(events, key=lambda e: (e.time_ns, number(e.attributes.get("event.sequence")) or 0, e.event_id)):
        attributes = event.attributes
        if event.name in _PROMPTS:
            run = None
            if event.span_id not in taken:
                agent = {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": event.name.partition(".")[0]}
                span = _span(trace_id, event.event_id[:16], None, event, {**_named(attributes, _WHO), **agent})
                run = _Told(span, _message("user", attributes.get("prompt")))
                found.append(run)
        elif event.name in _ANSWERS:
            answer = _message("assistant", attributes.get("response"))
            for told in (run, found[-1] if found else None):
                if told is not None and told.span.attributes.get("gen_ai.operation.name") != "execute_tool":
                    told.answered = answer
        elif event.name == messages.DETAILS:
            if event.span_id and event.span_id not in taken:
                taken.add(event.span_id)
                fields = {**(event.body if isinstance(event.body, dict) else {}), **attributes}
                found.append(_Told(_span(trace_id, event.span_id, None, event, fields)))
        elif (form := _FORMS.get(event.name)) and form.fits(attributes):
            parent = event.span_id if event.span_id in taken or run is None else run.span.span_id
            span = _span(trace_id, event.event_id[:16], parent, event, _translated(attributes, form))
            found.append(_Told(span))
            if run is not None:
                run.span = replace(run.span, end_ns=event.time_ns)
    return [made for told in found if (made := _seen(told)) is not None]


def _named(said: Attributes, keys: Mapping[str, tuple[str, ...]]) -> dict[str, object]:
    found = {name: next((said[k] for k in ks if said.get(k) not in (None, "")), None) for name, ks in keys.items()}
    return {name: value for name, value in found.items() if value is not None}


def _message(role: str, said: object) -> str | None:
    return dumps([{"role": role, "content": sketches.unsealed(found)}]) if (found := text(said)) else None


def _translated(said: Attributes, form: _Form) -> dict[str, object]:
    fields = {"gen_ai.operation.name": form.operation, **form.fixed, **_named(said, form.keys)}
    if not form.failed and str(said.get("success", "true")).lower() != "false":
        fields.pop("error.type", None)
    elif form.failed:
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


def _seen(told: _Told) -> tuple[TraceSpan, Content] | None:
    """The record as a span and its texts; None for one that tells of no call after all."""
    span = told.span
    reading = registry.read(span)
    if reading.facts.kind == "other":
        return None
    own = reading.content
    content = Content(own.input_text or told.given, own.output_text or told.answered, own.tools)
    seen = TraceSpan(
        *(span.span_id, span.parent_span_id, span.name, span.service, span.start_ns, span.end_ns, None, reading.facts),
        *(len(content.input_text or ""), len(content.output_text or "")),
        trace_id=span.trace_id,
        logged=True,
    )
    return seen, content
