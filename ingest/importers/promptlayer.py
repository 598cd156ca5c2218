"""PromptLayer's objects: found requests, their details, traces, spans to be logged; from its API or saved as JSON.

    found request    id, engine, provider_type, latency (s), metadata [{...}], scores [...]    POST .../requests/search
    detail           request_id, model, provider, latency_ms, trace_id, prompt_blueprint       GET  .../requests/ID
    logged request   id, engine, provider_type, score, scores, prompt_version in its place     POST .../log-request
    trace            spans [{span_id, parent_id, request_log_id, ...}]                         GET  .../traces/ID
    logged span      name, context {trace_id, span_id}, attributes, log_request                POST .../spans-bulk

A request of a trace is the span that names it (`request_log_id`); one without a trace is a trace of its own. Scores are
from 0 to 100 there, from 0 to 1 here, under their names.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from ingest import foreign_ids
from ingest.dialects.values import number, structure, text
from ingest.importers import tables
from ingest.importers.call import (
    Attributes,
    Tokens,
    as_json,
    first_count,
    first_real,
    mapping,
    parameters,
    present,
    scope,
)
from ingest.importers.sources import Importer, Item, Sample, Source
from ingest.spans import Span
from ingest.timestamps import nanoseconds

Record = Mapping[str, object]
Scores = list[dict[str, object]]

_SESSIONS = ("conversation_id", "session_id")


def request(record: Record, service: str | None) -> tuple[Span, Scores]:
    """A found request, its detail, or both merged, as a span of its own trace with its scores. Raises ValueError."""
    own = text(record.get("request_id")) or text(record.get("id"))
    start_ns = nanoseconds(record.get("request_start_time"))
    if own is None or start_ns is None:
        raise ValueError("id or request_start_time is missing")
    end_ns = nanoseconds(record.get("request_end_time")) or _end_by_latency(record, start_ns)
    trace = text(record.get("trace_id"))
    span = Span(
        foreign_ids.trace_id(trace or f"promptlayer/{own}"),
        foreign_ids.span_id(f"promptlayer/{own}"),
        None,
        f"chat {record.get('engine') or record.get('model') or ''}".strip(),
        "client",
        start_ns,
        end_ns,
        "error" if str(record.get("status", "")).upper() == "ERROR" else None,
        text(record.get("error_message")) or "",
        call(record),
        {"service.name": service or "promptlayer"},
        scope("promptlayer"),
    )
    return span, scores(record, own, span)


def call(record: Record) -> Attributes:
    """What a request says of its model call, as attributes."""
    blueprint = mapping(record.get("prompt_blueprint")) or mapping(record.get("prompt_version"))
    model = mapping(mapping(blueprint.get("metadata")).get("model"))
    template = mapping(blueprint.get("prompt_template"))
    listed = template.get("messages")
    messages = [_message(item) for item in listed if isinstance(item, dict)] if isinstance(listed, list) else []
    answers = [m for m in messages[-1:] if m["role"] == "assistant"]
    noted = metadata(record)
    named = text(record.get("engine")) or text(record.get("model")) or text(model.get("name"))
    return present(
        {
            "gen_ai.operation.name": "chat",
            "gen_ai.provider.name": text(record.get("provider_type"))
            or text(record.get("provider"))
            or text(model.get("provider")),
            "gen_ai.request.model": named,
            "gen_ai.response.model": named,
            "gen_ai.cost.total_cost": first_real(record, "price") or None,
            "gen_ai.conversation.id": next((found for key in _SESSIONS if (found := text(noted.get(key)))), None),
            "user.id": text(noted.get("user_id")),
            "gen_ai.prompt.name": text(record.get("prompt_name")),
            "gen_ai.prompt.version": text(record.get("prompt_version_number")),
            "gen_ai.input.messages": as_json(messages[:-1] if answers else messages) or as_json(record.get("input")),
            "gen_ai.output.messages": as_json(answers) or as_json(record.get("output")),
            "gen_ai.tool.definitions": as_json(template.get("tools")),
            "error.type": text(record.get("error_type")),
            **{k: v for k, v in parameters(model.get("parameters")).items() if k != "gen_ai.system_instructions"},
            **_tokens(record).attributes(),
        }
    )


def trace_spans(
    trace: str, spans: Sequence[Record], requests: Mapping[str, tuple[Span, Scores]], service: str | None
) -> tuple[list[Span], Scores]:
    """The spans of a trace; one that names a request is its model call. Scores move with their request."""
    found, moved = [], []
    for sent in spans:
        span = logged_span({"trace_id": trace, **sent}, service)
        named = text(sent.get("request_log_id"))
        if named is not None and named in requests:
            told, judged = requests[named]
            span = replace(span, attributes={**span.attributes, **told.attributes})
            moved += [{**score, "trace_id": span.trace_id, "span_id": span.span_id} for score in judged]
        found.append(span)
    return found, moved


def logged_span(sent: Record, service: str | None) -> Span:
    """A span of a trace, or one that was saved to be logged. Raises ValueError."""
    context = mapping(sent.get("context"))
    own = text(sent.get("span_id")) or text(context.get("span_id"))
    trace = text(context.get("trace_id")) or text(sent.get("trace_id"))
    start_ns = nanoseconds(sent.get("start_time"))
    if own is None or trace is None or start_ns is None:
        raise ValueError("span_id, trace_id or start_time is missing")
    kind = str(sent.get("kind") or "").rpartition(".")[2].lower()
    status = str(mapping(sent.get("status")).get("status_code") or "").rpartition(".")[2].upper()
    logged = mapping(sent.get("log_request"))
    parent = text(sent.get("parent_id"))
    resource = mapping(mapping(sent.get("resource")).get("attributes")) or mapping(sent.get("resource"))
    return Span(
        foreign_ids.trace_id(trace),
        foreign_ids.span_id(own),
        None if parent is None else foreign_ids.span_id(parent),
        text(sent.get("name")) or "span",
        kind or "internal",
        start_ns,
        nanoseconds(sent.get("end_time")) or 0,
        "error"
        if status == "ERROR" or str(logged.get("status", "")).upper() == "ERROR"
        else "ok"
        if status == "OK"
        else None,
        text(mapping(sent.get("status")).get("description")) or "",
        {**mapping(sent.get("attributes")), **(call(logged) if logged else {})},
        {"service.name": service or text(resource.get("service.name")) or "promptlayer"},
        scope("promptlayer"),
    )


def scores(record: Record, own: str, span: Span) -> Scores:
    """A request's scores, from 0 to 100 -> 0 to 1."""
    sent = structure(record.get("scores"))
    listed = list(sent) if isinstance(sent, list) else []
    if single := number(record.get("score")):  # 0 is what its SDK sends with a request that nobody has judged
        listed.append({"name": "default", "score": single})
    found = []
    for score in listed:
        if not isinstance(score, dict):
            continue
        amount = number(score.get("score", score.get("value")))
        name = text(score.get("name")) or text(score.get("score_name")) or "default"
        if amount is not None:
            found.append(
                {
                    "score_id": f"promptlayer/{own}/{name}",
                    "name": name,
                    "value": amount / 100,
                    "trace_id": span.trace_id,
                    "span_id": span.span_id,
                    "time_ns": span.end_ns or span.start_ns,
                }
            )
    return found


def metadata(record: Record) -> Record:
    """A request's metadata; the search gives a list of objects."""
    sent = structure(record.get("metadata"))
    if isinstance(sent, list):
        parts = [part for part in sent if isinstance(part, dict)]
        return {key: value for part in parts for key, value in part.items() if value is not None}
    return sent if isinstance(sent, dict) else {}


def is_request(record: Record) -> bool:
    return "request_start_time" in record and (
        "engine" in record or "prompt_blueprint" in record or "provider" in record
    )


def is_span(record: Record) -> bool:
    return "start_time" in record and ("request_log_id" in record or "log_request" in record or "context" in record)


def _message(item: Record) -> dict[str, object]:
    kept = {key: item[key] for key in ("content", "tool_calls", "tool_call_id", "name") if item.get(key)}
    return {"role": str(item.get("role") or "user"), **kept}


def _tokens(record: Record) -> Tokens:
    """0 and 0 are what its SDK sends for a request that nobody has counted."""
    given, answered = first_count(record, "input_tokens"), first_count(record, "output_tokens")
    return Tokens(given or None, answered) if given or answered else Tokens()


def _end_by_latency(record: Record, start_ns: int) -> int:
    """The search gives seconds, the detail milliseconds."""
    latency_ms = number(record.get("latency_ms"))
    latency_s = number(record.get("latency")) if latency_ms is None else latency_ms / 1000
    return 0 if latency_s is None else start_ns + int(latency_s * 1e9)


def _read(source: Source) -> Iterator[Item]:
    def become(record: Record) -> tables.Become:
        lines = record.get("spans")
        if isinstance(lines, list):  # a trace a line
            spans = [line for line in lines if isinstance(line, dict)]
            return trace_spans(str(record.get("trace_id") or ""), spans, {}, source.service)
        if is_request(record):
            one, scores = request(record, source.service)
            return [one], scores
        return [logged_span(record, source.service)], ()

    return tables.items(source, become)


def _recognises(sample: Sample) -> bool:
    first = sample.first
    if sample.kind == "url":
        return False
    inside = first.get("spans")
    spans = inside[0] if isinstance(inside, list) and inside and isinstance(inside[0], dict) else first
    return is_request(first) or (is_span(spans) and ("request_log_id" in spans or "log_request" in spans))


IMPORTER = Importer("promptlayer", "PromptLayer requests, traces and spans saved as JSON", _recognises, _read)
