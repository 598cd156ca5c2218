"""LiteLLM's spend logs: rows of the proxy's table LiteLLM_SpendLogs as JSON lines, JSON, CSV or Parquet, or the table.

One row is one request, so one trace. What a cache answered is no model call. The model asked for is the model
group, the one that answered `model`. The proxy's OTLP telemetry of the same requests has other ids: import
what it did not send.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ingest import foreign_ids
from ingest.dialects.values import structure, text
from ingest.importers import tables
from ingest.importers.call import as_json, first_real, mapping, parameters, present, scope, usage
from ingest.importers.sources import Importer, Item, Sample, Source
from ingest.spans import Span
from ingest.timestamps import nanoseconds

_OPERATIONS = {
    "embedding": "embeddings",
    "text_completion": "text_completion",
    "rerank": "rerank",
    "image_generation": "image_generation",
    "transcription": "transcription",
    "speech": "speech",
    "moderation": "moderation",
}
_POLICY = "policy."


def span(row: Mapping[str, object], service: str | None = None) -> Span:
    """A row of the table as a span. Raises ValueError saying what is missing."""
    request_id = text(row.get("request_id"))
    start_ns = nanoseconds(row.get("startTime"))
    if request_id is None:
        raise ValueError("request_id is missing")
    if start_ns is None:
        raise ValueError(f"startTime is no time: {row.get('startTime')!r}")
    end_ns = nanoseconds(row.get("endTime")) or 0
    metadata = mapping(row.get("metadata"))
    request = mapping(row.get("proxy_server_request"))
    response = mapping(row.get("response"))
    failed = str(row.get("status") or metadata.get("status") or "").lower() == "failure"
    error = mapping(metadata.get("error_information"))
    cached = str(row.get("cache_hit") or "").lower() == "true"
    call_type = str(row.get("call_type") or "").lower().removeprefix("a")
    attributes = present(
        {
            "gen_ai.operation.name": "cache_hit" if cached else _OPERATIONS.get(call_type, "chat"),
            "gen_ai.provider.name": text(row.get("custom_llm_provider")),
            "gen_ai.request.model": text(row.get("model_group")) or text(row.get("model")),
            "gen_ai.response.model": None if failed else _bare(row),
            "gen_ai.response.id": text(response.get("id")) or request_id,
            "gen_ai.conversation.id": text(row.get("session_id")),
            "user.id": text(row.get("end_user")) or text(row.get("user")),
            "gen_ai.input.messages": as_json(_first(row.get("messages"), request, "messages", "input")),
            "gen_ai.output.messages": as_json(response.get("choices") or response.get("output")),
            "gen_ai.response.time_to_first_chunk": _ttft_s(row, start_ns, end_ns),
            "error.type": text(error.get("error_class")) or ("failure" if failed else None),
            **{key: value for key, value in parameters(request).items() if key != "gen_ai.system_instructions"},
            **_policy(metadata),
        }
    )
    if not cached:
        attributes |= _tokens(row, metadata, failed)
        attributes |= present({"gen_ai.cost.total_cost": first_real(row, "spend") or None})
    named = service or text(metadata.get("user_api_key_alias")) or text(metadata.get("user_api_key_team_alias"))
    return Span(
        foreign_ids.trace_id(f"litellm/{request_id}"),
        foreign_ids.span_id(f"litellm/{request_id}"),
        None,
        f"{attributes['gen_ai.operation.name']} {attributes.get('gen_ai.request.model', '')}".strip(),
        "client",
        start_ns,
        end_ns,
        "error" if failed else "ok",
        text(error.get("error_message")) or "",
        attributes,
        {"service.name": named or "litellm"},
        scope("litellm"),
    )


def item(row: tables.Row, service: str | None) -> Item:
    """A row as an item: its span, or what is wrong with it."""
    if row.record is None:
        return Item(row.number, problem=row.problem, share=row.share)
    try:
        return Item(row.number, [span(row.record, service)], share=row.share)
    except ValueError as error:
        return Item(row.number, problem=f"{error}; the rest is imported", share=row.share)


def _read(source: Source) -> Iterator[Item]:
    assert source.path is not None
    for row in tables.rows(source.path):
        yield item(row, source.service)


def _recognises(sample: Sample) -> bool:
    return sample.has("request_id", "startTime") and ("spend" in sample.first or "call_type" in sample.first)


IMPORTER = Importer("litellm", "LiteLLM spend logs: JSON lines, JSON, CSV, Parquet", _recognises, _read)


def _first(value: object, request: Mapping[str, object], *keys: str) -> object:
    found = structure(value)
    return found or next((request[key] for key in keys if request.get(key)), None)


def _bare(row: Mapping[str, object]) -> str | None:
    """The model that answered, without the provider before it."""
    model, provider = text(row.get("model")), text(row.get("custom_llm_provider"))
    return model.removeprefix(f"{provider}/") if model and provider else model


def _tokens(row: Mapping[str, object], metadata: Mapping[str, object], failed: bool) -> dict[str, object]:
    extra = {**mapping(metadata.get("usage_object")), **mapping(metadata.get("additional_usage_values"))}
    counts = {key: row.get(key) for key in ("prompt_tokens", "completion_tokens")}
    if failed and not any(counts.values()):
        return {}  # zeros of a call that was not answered say nothing
    return usage({**extra, **counts}).attributes()


def _ttft_s(row: Mapping[str, object], start_ns: int, end_ns: int) -> float | None:
    """Seconds until the first token; LiteLLM writes the end of the call for what did not stream."""
    first_ns = nanoseconds(row.get("completionStartTime"))
    return (first_ns - start_ns) / 1e9 if first_ns and start_ns < first_ns < end_ns else None


def _policy(metadata: Mapping[str, object]) -> dict[str, object]:
    """What an exported policy noted in the request's metadata."""
    for key in ("requester_metadata", "spend_logs_metadata"):
        noted = {k: v for k, v in mapping(metadata.get(key)).items() if k.startswith(_POLICY)}
        if noted:
            return noted
    return {}
