"""Logs of requests in OpenAI's form, as apps and gateways write them: a request and its response a line.

    {"request": {...}, "response": {...}, "created_at": ..., "latency_ms": ...}    also request_body, response_body
    {"custom_id": ..., "response": {"status_code": 200, "body": {...}}}           the output of OpenAI's Batch API
    {"id": "chatcmpl-...", "object": "chat.completion", "created": ..., ...}    a response alone, as stored completions

Responses may be chat completions, those of the Responses API, embeddings, or Anthropic's messages.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping

import orjson

from ingest import foreign_ids
from ingest.dialects.values import count, number, text
from ingest.importers import tables
from ingest.importers.call import as_json, first_real, mapping, parameters, present, scope, usage
from ingest.importers.sources import Importer, Item, Sample, Source
from ingest.spans import Span
from ingest.timestamps import nanoseconds

Record = Mapping[str, object]

_REQUESTS = ("request", "request_body", "body", "input")
_RESPONSES = ("response", "response_body", "output")
_TIMES = ("created_at", "timestamp", "start_time", "started_at", "time", "created", "request_created_at")
_ENDS = ("end_time", "ended_at", "finished_at", "completed_at")
_OBJECTS = ("chat.completion", "response", "text_completion", "message")


def span(record: Record, service: str | None) -> Span:
    """A logged request as a span. Raises ValueError."""
    request, response = _part(record, _REQUESTS), _part(record, _RESPONSES)
    status = count(record.get("status_code", record.get("status", response.get("status_code"))))
    if "body" in response:  # Batch API
        response = mapping(response.get("body"))
    if not request and not response:
        response = dict(record)
    if not _says_model(request) and not _says_model(response):
        raise ValueError("neither a request nor a response with a model")
    problem = mapping(record.get("error")) or mapping(response.get("error"))
    failed = bool(problem) or (status is not None and status >= 400)
    start_ns = _first_time(record, _TIMES) or _first_time(response, ("created", "created_at"))
    if start_ns is None:
        raise ValueError(f"no time: none of {', '.join(_TIMES)}")
    latency_s = _latency_s(record)
    end_ns = _first_time(record, _ENDS) or (start_ns + int(latency_s * 1e9) if latency_s is not None else 0)
    own = (
        text(record.get("request_id"))
        or text(record.get("custom_id"))
        or text(record.get("id"))
        or text(response.get("id"))
    )
    identity = own or hashlib.sha256(orjson.dumps(dict(record), default=str, option=orjson.OPT_SORT_KEYS)).hexdigest()
    metadata = mapping(record.get("metadata")) or mapping(request.get("metadata")) or mapping(response.get("metadata"))
    requested = text(request.get("model")) or text(record.get("model")) or text(response.get("model"))
    operation = "embeddings" if _is_embedding(request, response) else "chat"
    attributes = present(
        {
            "gen_ai.operation.name": operation,
            "gen_ai.provider.name": text(record.get("provider")) or text(metadata.get("provider")),
            "gen_ai.request.model": requested,
            "gen_ai.response.model": None if failed else text(response.get("model")),
            "gen_ai.response.id": text(response.get("id")),
            "gen_ai.conversation.id": _named(record, metadata, "session_id", "conversation_id", "thread_id"),
            "user.id": _named(record, metadata, "user_id", "end_user") or text(request.get("user")),
            "gen_ai.cost.total_cost": first_real(record, "cost_usd", "cost"),
            "gen_ai.input.messages": as_json(
                request.get("messages") or request.get("input") or request.get("prompt") or record.get("messages")
            ),
            "gen_ai.output.messages": as_json(
                response.get("choices") or response.get("output") or response.get("content")
            ),
            "error.type": (text(problem.get("type")) or text(problem.get("code")) or str(status)) if failed else None,
            **parameters(request or response),
            **usage(response.get("usage") or record.get("usage")).attributes(),
        }
    )
    return Span(
        foreign_ids.trace_id(_named(record, metadata, "trace_id") or f"openai/{identity}"),
        foreign_ids.span_id(f"openai/{identity}"),
        None,
        f"{operation} {requested or ''}".strip(),
        "client",
        start_ns,
        end_ns,
        "error" if failed else "ok",
        text(problem.get("message")) or "",
        attributes,
        {"service.name": service or _named(record, metadata, "service", "app") or "openai-logs"},
        scope("openai-logs"),
    )


def _part(record: Record, names: tuple[str, ...]) -> Record:
    return next((found for name in names if (found := mapping(record.get(name)))), {})


def _says_model(part: Record) -> bool:
    return text(part.get("model")) is not None


def _first_time(record: Record, names: tuple[str, ...]) -> int | None:
    return next((at for name in names if (at := nanoseconds(record.get(name))) is not None), None)


def _latency_s(record: Record) -> float | None:
    for names, scale in (
        (("latency_ms", "duration_ms"), 1000.0),
        (("latency_s", "duration_s", "latency", "duration"), 1.0),
    ):
        for name in names:
            if (amount := number(record.get(name))) is not None and amount >= 0:
                return amount / scale
    return None


def _named(record: Record, metadata: Record, *names: str) -> str | None:
    return next((found for part in (record, metadata) for name in names if (found := text(part.get(name)))), None)


def _is_embedding(request: Record, response: Record) -> bool:
    data = response.get("data")
    inside = data[0] if isinstance(data, list) and data else {}
    return (isinstance(inside, dict) and "embedding" in inside) or "embedding" in str(request.get("model", ""))


def _read(source: Source) -> Iterator[Item]:
    return tables.items(source, lambda record: ([span(record, source.service)], ()))


def _recognises(sample: Sample) -> bool:
    first = sample.first
    if first.get("object") in _OBJECTS and ("usage" in first or "choices" in first):
        return True
    request, response = _part(first, _REQUESTS), _part(first, _RESPONSES)
    inner = mapping(response.get("body")) or response
    return _says_model(request) or (_says_model(inner) and ("usage" in inner or "choices" in inner))


IMPORTER = Importer("openai", "requests and responses in OpenAI's form: JSON lines, JSON", _recognises, _read)
