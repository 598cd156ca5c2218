"""Helicone's requests, as its export tool or its API gives them: JSON lines, JSON or CSV. One request is one trace.

Bodies are there if they were exported with `--include-body`. Times to first token and delays are milliseconds. Its own
counts of tokens leave the cached ones out of the prompt and the reasoning out of the completion. Its tool doubles the
quotes of a CSV's bodies twice.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ingest import foreign_ids
from ingest.dialects.values import boolean, count, number, text
from ingest.importers import tables
from ingest.importers.call import Tokens, as_json, first_count, first_real, mapping, parameters, present, scope, usage
from ingest.importers.sources import Importer, Item, Sample, Source
from ingest.spans import Span
from ingest.timestamps import nanoseconds

Record = Mapping[str, object]

_COUNTS = (
    *("prompt_tokens", "completion_tokens"),
    *("prompt_cache_read_tokens", "prompt_cache_write_tokens", "reasoning_tokens"),
)
_FEEDBACK = "helicone-score-feedback"


def read_record(record: Record, service: str | None) -> tuple[Span, list[dict[str, object]]]:
    """A request as a span, and its scores. Raises ValueError."""
    own = text(record.get("request_id")) or text(record.get("response_id"))
    start_ns = nanoseconds(record.get("request_created_at"))
    if own is None or start_ns is None:
        raise ValueError("request_id or request_created_at is missing")
    request, response = _inside(record, "request_body"), _inside(record, "response_body")
    properties = {k.lower(): v for k, v in _inside(record, "request_properties", "properties").items()}
    status = count(record.get("response_status"))
    failed = status is not None and not 200 <= status < 300
    requested = text(record.get("request_model")) or text(request.get("model")) or text(record.get("model"))
    returned = text(record.get("response_model")) or text(response.get("model"))
    ttft_ms = number(record.get("time_to_first_token"))
    embedding = "embedding" in str(record.get("request_path") or record.get("target_url") or "")
    operation = "embeddings" if embedding else "chat"
    tokens = _tokens(record, response, failed)
    attributes = present(
        {
            "gen_ai.operation.name": operation,
            "gen_ai.provider.name": text(record.get("provider")),
            "gen_ai.request.model": requested,
            "gen_ai.response.model": None if failed else returned,
            "gen_ai.response.id": text(response.get("id")),
            "gen_ai.conversation.id": text(properties.get("helicone-session-id")),
            "gen_ai.workflow.name": text(properties.get("helicone-session-name")),
            "user.id": text(record.get("request_user_id")) or text(record.get("helicone_user")),
            "gen_ai.prompt.name": text(record.get("prompt_id")) or text(properties.get("helicone-prompt-id")),
            "gen_ai.prompt.version": text(record.get("prompt_version")),
            "gen_ai.cost.total_cost": first_real(record, "costUSD", "cost_usd", "cost") or None,
            "gen_ai.response.time_to_first_chunk": None if ttft_ms is None else ttft_ms / 1000,
            "gen_ai.input.messages": as_json(request.get("messages") or request.get("input") or request.get("prompt")),
            "gen_ai.output.messages": as_json(
                response.get("choices") or response.get("output") or response.get("content")
            ),
            "error.type": str(status) if failed else None,
            **parameters(request),
            **tokens.attributes(),
        }
    )
    span = Span(
        foreign_ids.trace_id(f"helicone/{own}"),
        foreign_ids.span_id(f"helicone/{own}"),
        None,
        f"{operation} {requested or ''}".strip(),
        "client",
        start_ns,
        _end_ns(record, start_ns),
        "error" if failed else "ok" if status else None,
        "",
        attributes,
        {"service.name": service or text(properties.get("app")) or text(properties.get("appname")) or "helicone"},
        scope("helicone"),
    )
    return span, list(_scores(record, own, span))


def _tokens(record: Record, response: Record, failed: bool) -> Tokens:
    inside = usage(response.get("usage"))
    if inside.input is not None:
        return inside
    given, answered, read, written, reasoning = (first_count(record, key) for key in _COUNTS)
    if failed and not given:
        return Tokens()
    return Tokens(_sum(given, read, written), _sum(answered, reasoning), read, written, reasoning)


def _sum(whole: int | None, *parts: int | None) -> int | None:
    return None if whole is None else whole + sum(part or 0 for part in parts)


def _inside(record: Record, *names: str) -> Record:
    """The first of some fields that is an object or holds one as text."""
    for sent in filter(None, (record.get(name) for name in names)):
        return mapping(sent) or (mapping(sent.replace('""', '"')) if isinstance(sent, str) else {})
    return {}


def _end_ns(record: Record, start_ns: int) -> int:
    delay_ms = number(record.get("delay_ms", record.get("latency")))
    if delay_ms is not None and delay_ms >= 0:
        return start_ns + int(delay_ms * 1e6)
    return nanoseconds(record.get("response_created_at")) or 0


def _scores(record: Record, own: str, span: Span) -> Iterator[dict[str, object]]:
    said: dict[str, object] = dict(mapping(record.get("scores")))
    feedback = record.get("feedback_rating")
    rating = feedback if isinstance(feedback, bool) else boolean(feedback)
    for name, sent in said.items():
        value = sent.get("value") if isinstance(sent, dict) else sent
        amount = float(value) if isinstance(value, bool) else number(value)
        if name == _FEEDBACK:
            rating = rating if amount is None else amount > 0
        elif amount is not None:
            yield _score(own, span, name.removesuffix("-hcone-bool"), amount, "")
    if rating is not None:
        yield _score(own, span, "feedback", float(rating), "user")


def _score(own: str, span: Span, name: str, value: float, source: str) -> dict[str, object]:
    return {
        "score_id": f"helicone/{own}/{name}",
        "name": name,
        "value": value,
        "source": source,
        "trace_id": span.trace_id,
        "span_id": span.span_id,
        "time_ns": span.end_ns or span.start_ns,
    }


def _read(source: Source) -> Iterator[Item]:
    def become(record: Record) -> tables.Become:
        span, scores = read_record(record, source.service)
        return [span], scores

    return tables.items(source, become)


def _recognises(sample: Sample) -> bool:
    return sample.has("request_created_at") and ("response_status" in sample.first or "request_body" in sample.first)


IMPORTER = Importer("helicone", "Helicone requests: JSON lines, JSON, CSV", _recognises, _read)
