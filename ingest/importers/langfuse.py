"""Langfuse exports: observations, traces and scores, as JSON, JSON lines, CSV or Parquet.

Read are the blob-storage export (snake_case, enriched or not), the public API's objects (camelCase, also traces that
hold their observations and scores), the exports of its pages, and a trace downloaded from its page: an object of
`trace` and `observations`. A trace becomes a span above its observations where those do not carry their trace's session
and user themselves.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping

from ingest import foreign_ids, langfuse_scores
from ingest.dialects.values import count, number, structure, text
from ingest.importers import tables
from ingest.importers.call import Attributes, Tokens, as_json, first_real, mapping, parameters, present, scope
from ingest.importers.sources import Importer, Item, Sample, Source
from ingest.spans import Span
from ingest.timestamps import nanoseconds

Record = Mapping[str, object]

_OPERATIONS = {
    "GENERATION": "chat",
    "EMBEDDING": "embeddings",
    "AGENT": "invoke_agent",
    "TOOL": "execute_tool",
    "RETRIEVER": "retrieval",
    "CHAIN": "chain",
}
_PROVIDERS = ("gen_ai.provider.name", "gen_ai.system", "llm.provider", "llm.system")
_TYPES = {*_OPERATIONS, "SPAN", "EVENT", "EVALUATOR", "GUARDRAIL"}


def read_record(
    record: Record, service: str | None, received_ns: int = 0
) -> tuple[list[Span], list[dict[str, object]]]:
    """The spans and scores of one exported object. Raises ValueError saying what is wrong with it."""
    if downloaded := mapping(record.get("trace")):
        record = {**downloaded, "observations": record.get("observations")}
    spans: list[Span] = []
    scores: list[dict[str, object]] = []
    if _kind(record) in _TYPES:
        spans.append(observation(record, service))
    elif _is_score(record):
        scores.append(langfuse_scores.score(dict(record), received_ns))
    elif _get(record, "id") and nanoseconds(_get(record, "timestamp")) is not None:
        spans.append(trace(record, service))
        inner = _listed(record, "observations")
        spans += [observation({"trace_id": record["id"], **one}, service) for one in inner]
        scores += _scores_of_trace(record, received_ns)
    else:
        raise ValueError("neither an observation, a trace, nor a score of Langfuse")
    return spans, scores


def observation(record: Record, service: str | None) -> Span:
    """An observation as a span. Raises ValueError."""
    own, above = text(_get(record, "id")), text(_get(record, "trace_id"))
    start_ns = nanoseconds(_get(record, "start_time"))
    if own is None or above is None or start_ns is None:
        raise ValueError("id, trace_id or start_time is missing")
    kind = _kind(record)
    parent = text(_get(record, "parent_observation_id"))
    if parent is None and not any(key in record for key in ("trace_name", "traceName", "session_id", "sessionId")):
        parent = _trace_span(above)
    failed = str(_get(record, "level") or "").upper() == "ERROR"
    name = text(_get(record, "name")) or kind.lower()
    attributes = present(
        {
            "gen_ai.operation.name": _OPERATIONS.get(kind),
            "langfuse.observation.type": kind.lower(),
            "gen_ai.conversation.id": text(_get(record, "session_id")),
            "user.id": text(_get(record, "user_id")),
            "gen_ai.agent.name": name if kind == "AGENT" else None,
            "gen_ai.tool.name": name if kind == "TOOL" else None,
            "error.type": "error" if failed else None,
            **_texts(record, kind),
            **(_model(record, start_ns) if kind in ("GENERATION", "EMBEDDING") else {}),
        }
    )
    return Span(
        foreign_ids.trace_id(above),
        foreign_ids.span_id(own),
        None if parent is None else foreign_ids.span_id(parent),
        name,
        "internal",
        start_ns,
        nanoseconds(_get(record, "end_time")) or (start_ns if kind == "EVENT" else 0),
        "error" if failed else None,
        text(_get(record, "status_message")) or "",
        attributes,
        _resource(record, service),
        scope("langfuse"),
    )


def trace(record: Record, service: str | None) -> Span:
    """A trace as the span above its observations; its end is not known, so it starts and ends at once."""
    own, start_ns = str(_get(record, "id")), nanoseconds(_get(record, "timestamp")) or 0
    attributes = present(
        {
            "gen_ai.operation.name": "chain",
            "gen_ai.conversation.id": text(_get(record, "session_id")),
            "user.id": text(_get(record, "user_id")),
            "gen_ai.input.messages": as_json(_get(record, "input")),
            "gen_ai.output.messages": as_json(_get(record, "output")),
        }
    )
    name = text(_get(record, "name")) or "trace"
    above = foreign_ids.trace_id(own)
    latency_s = first_real(record, "latency") or 0.0
    end_ns = start_ns + int(latency_s * 1e9)
    resource = _resource(record, service)
    return Span(
        above, foreign_ids.span_id(_trace_span(own)), None, name, "internal", start_ns, end_ns, None, "", attributes,
        resource, scope("langfuse"),
    )  # fmt: skip


def _trace_span(trace: str) -> str:
    return f"langfuse/trace/{trace}"


def _model(record: Record, start_ns: int) -> Attributes:
    model = text(_get(record, "provided_model_name")) or text(_get(record, "model"))
    noted = mapping(mapping(_get(record, "metadata")).get("attributes"))
    first_ns = nanoseconds(_get(record, "completion_start_time"))
    version = _get(record, "prompt_version")
    return {
        "gen_ai.provider.name": next((found for key in _PROVIDERS if (found := text(noted.get(key)))), None),
        "gen_ai.request.model": text(noted.get("gen_ai.request.model")) or model,
        "gen_ai.response.model": model,
        "gen_ai.prompt.name": text(_get(record, "prompt_name")),
        "gen_ai.prompt.version": None if version is None else text(version),
        "gen_ai.cost.total_cost": _cost(record),
        "gen_ai.response.time_to_first_chunk": None if first_ns is None else max(0.0, (first_ns - start_ns) / 1e9),
        "gen_ai.tool.definitions": as_json(structure(_get(record, "tool_definitions"))),
        **{k: v for k, v in parameters(_get(record, "model_parameters")).items() if k != "gen_ai.system_instructions"},
        **_tokens(record).attributes(),
    }


def _tokens(record: Record) -> Tokens:
    """Langfuse counts classes apart: the input is the sum of all that are input, cached ones among them.

    Not so what it took from a provider as it came: there `input` and `output` are the total, the rest parts of them.
    """
    details = structure(_get(record, "usage_details"))
    if not isinstance(details, dict) or not details:
        old = structure(_get(record, "usage"))
        if not isinstance(old, dict):
            return Tokens(*(count(_get(record, key)) or None for key in ("prompt_tokens", "completion_tokens")))
        details = {
            "input": old.get("input", old.get("promptTokens")),
            "output": old.get("output", old.get("completionTokens")),
        }
    whole = [count(details.get(key)) or 0 for key in ("input", "output")]
    parts = count(details.get("total")) == sum(whole)
    sums: dict[str, int] = {}
    for key, sent in details.items():
        amount, name = count(sent), str(key).lower()
        if amount is None or (side := _side(name)) is None:
            continue
        inside = name not in ("input", "output") and (parts or "_details." in name)
        for counted in (None if inside else side, _part(name, side)):
            if counted is not None:
                sums[counted] = sums.get(counted, 0) + amount
    return Tokens(*(sums.get(counted) for counted in ("input", "output", "read", "written", "reasoning")))


def _side(name: str) -> str | None:
    if "cache" in name or name.startswith(("input", "prompt")):
        return "input"
    return "output" if name.startswith(("output", "completion")) else None


def _part(name: str, side: str) -> str | None:
    if "cache" in name:
        return "written" if "creation" in name or "write" in name else "read"
    return "reasoning" if side == "output" and "reasoning" in name else None


def _texts(record: Record, kind: str) -> Attributes:
    given, answered = as_json(_get(record, "input")), as_json(_get(record, "output"))
    if kind == "TOOL":
        return {"gen_ai.tool.call.arguments": given, "gen_ai.tool.call.result": answered}
    return {"gen_ai.input.messages": given, "gen_ai.output.messages": answered}


def _cost(record: Record) -> float | None:
    """USD as Langfuse has it; a 0 is what it writes for a model that it has no price for."""
    return first_real(record, "total_cost", "totalCost", "calculatedTotalCost", "calculated_total_cost") or None


def _scores_of_trace(record: Record, received_ns: int) -> list[dict[str, object]]:
    """The scores inside a trace: the API's objects, or the page export's values by name."""
    sent = structure(_get(record, "scores"))
    listed = [inner for inner in sent if isinstance(inner, dict)] if isinstance(sent, list) else []
    found = [langfuse_scores.score({"traceId": record["id"], **inner}, received_ns) for inner in listed]
    for name, values in sent.items() if isinstance(sent, dict) else []:
        for value in values if isinstance(values, list) else [values]:
            one = {
                "traceId": record["id"],
                "id": f"{record['id']}/{name}/{value}",
                "name": name,
                "value": value if number(value) is None else number(value),
                "timestamp": _get(record, "timestamp"),
            }
            found.append(langfuse_scores.score(one, received_ns))
    return found


def _kind(record: Record) -> str:
    return str(_get(record, "type") or "").upper() if _get(record, "start_time") else ""


def _is_score(record: Record) -> bool:
    return _get(record, "name") is not None and any(
        _get(record, key) is not None for key in ("data_type", "string_value", "value")
    )


def _listed(record: Record, key: str) -> list[Record]:
    sent = structure(record.get(key))
    return [item for item in sent if isinstance(item, dict)] if isinstance(sent, list) else []


def _resource(record: Record, service: str | None) -> Attributes:
    sender = text(mapping(mapping(_get(record, "metadata")).get("resourceAttributes")).get("service.name")) or ""
    named = service or ("langfuse" if sender.startswith("unknown_service") else sender) or "langfuse"
    return present({"service.name": named, "deployment.environment.name": _get(record, "environment")})


def _get(record: Record, snake: str) -> object:
    """A field under its export name (snake_case) or its API name (camelCase); None for an empty text."""
    head, *rest = snake.split("_")
    value = record.get(snake, record.get(head + "".join(part.capitalize() for part in rest)))
    return None if value == "" else value


def _read(source: Source) -> Iterator[Item]:
    return tables.items(source, lambda record: read_record(_typed(record), source.service, time.time_ns()))


def _typed(record: Record) -> Record:
    """A CSV's cells as numbers where a score has one."""
    value = record.get("value")
    return {**record, "value": found} if isinstance(value, str) and (found := number(value)) is not None else record


def _recognises(sample: Sample) -> bool:
    first = mapping(sample.first.get("trace")) or sample.first
    if _kind(first) in _TYPES and _get(first, "trace_id"):
        return True
    if _get(first, "data_type") and _is_score(first):
        return True
    return bool(
        _get(first, "id") and nanoseconds(_get(first, "timestamp"))
        and ({"observations", "htmlPath", "bookmarked", "project_id", "projectId"} & first.keys())
    )  # fmt: skip


IMPORTER = Importer(
    "langfuse", "Langfuse observations, traces and scores: JSON, JSON lines, CSV, Parquet", _recognises, _read
)
