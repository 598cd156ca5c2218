"""Phoenix exports: spans as the dataframe that its client gives (Parquet, CSV, JSON lines), or its REST API's objects.

The dataframe has a column per attribute (`attributes.llm.model_name`), the API one object `attributes`; either becomes
OpenInference's flat attributes again, so that an exported span reads as the one that was sent. Annotations exported
beside the spans (`annotation_name`, `result.score`, ...) become scores.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ingest import foreign_ids
from ingest.dialects.values import dumps, number, structure, text
from ingest.importers import tables
from ingest.importers.call import Attributes, scope
from ingest.importers.sources import Importer, Item, Sample, Source
from ingest.scores import score_id
from ingest.span_scores import JUDGES
from ingest.spans import Event, Span
from ingest.timestamps import nanoseconds

Record = Mapping[str, object]

_PREFIX = "attributes."
_AS_JSON = (
    "metadata",
    "llm.invocation_parameters",
    "llm.prompt_template.variables",
    "tool.parameters",
    "llm.function_call",
)
"""Attributes that are JSON on the wire, and that Phoenix shows as objects."""


def span(record: Record, service: str | None) -> Span:
    """A row as a span. Raises ValueError."""
    context = structure(record.get("context"))
    context = context if isinstance(context, dict) else {}
    trace = text(record.get("context.trace_id")) or text(context.get("trace_id"))
    own = text(record.get("context.span_id")) or text(context.get("span_id")) or text(record.get("__index_level_0__"))
    start_ns = nanoseconds(record.get("start_time"))
    if trace is None or own is None or start_ns is None:
        raise ValueError("context.trace_id, context.span_id or start_time is missing")
    attributes = _attributes(record)
    if kind := text(record.get("span_kind")):
        attributes.setdefault("openinference.span.kind", kind)
    status = str(record.get("status_code") or "").upper()
    parent = text(record.get("parent_id"))
    return Span(
        foreign_ids.trace_id(trace),
        foreign_ids.span_id(own),
        None if parent is None else foreign_ids.span_id(parent),
        text(record.get("name")) or "span",
        "internal",
        start_ns,
        nanoseconds(record.get("end_time")) or 0,
        "error" if status == "ERROR" else "ok" if status == "OK" else None,
        text(record.get("status_message")) or "",
        attributes,
        {"service.name": service or text(record.get("project_name")) or "phoenix"},
        scope("phoenix"),
        _events(record.get("events")),
    )


def annotation(record: Record) -> dict[str, object]:
    """An annotation as an object of POST /v1/scores. Raises ValueError."""
    own = text(record.get("span_id")) or text(record.get("context.span_id"))
    name = text(record.get("annotation_name")) or text(record.get("name"))
    result = structure(record.get("result"))
    result = result if isinstance(result, dict) else {}
    value = number(record.get("result.score", record.get("score", result.get("score"))))
    label = text(record.get("result.label")) or text(record.get("label")) or text(result.get("label"))
    if own is None or name is None or (value is None and label is None):
        raise ValueError("span_id, annotation_name, or both of score and label are missing")
    kind = str(record.get("annotator_kind") or "").lower()
    source = JUDGES.get(kind, kind)
    at = nanoseconds(record.get("updated_at")) or nanoseconds(record.get("created_at")) or 0
    identity = text(record.get("identifier")) or text(record.get("id"))
    found: dict[str, object] = {
        "name": name,
        "value": value,
        "label": label,
        "span_id": foreign_ids.span_id(own),
        "source": source,
        "explanation": text(record.get("result.explanation"))
        or text(record.get("explanation"))
        or text(result.get("explanation")),
        "time_ns": at or None,
        "score_id": score_id(
            f"/{own}", name, source, 0 if identity else at, identity or (label if value is None else value)
        ),
    }
    return {key: item for key, item in found.items() if item is not None}


def flat(name: str, value: object, into: Attributes) -> None:
    """Writes an attribute under the flat names that it had on the wire."""
    if value is None:
        return
    if name in _AS_JSON:
        into[name] = value if isinstance(value, str) else dumps(value)
    elif isinstance(value, dict):
        for key, inner in value.items():
            flat(f"{name}.{key}" if name else str(key), inner, into)
    elif isinstance(value, list | tuple) and any(isinstance(item, dict) for item in value):
        for index, inner in enumerate(value):
            flat(f"{name}.{index}", inner, into)
    elif isinstance(value, float) and value != value:
        return  # a dataframe's way to write nothing
    else:
        into[name] = value


def _attributes(record: Record) -> Attributes:
    attributes: Attributes = {}
    sent = structure(record.get("attributes"))
    if isinstance(sent, dict):
        flat("", sent, attributes)
    for key, value in record.items():
        if key.startswith(_PREFIX):
            name = key.removeprefix(_PREFIX)
            cell = isinstance(value, str) and value.startswith("[{") and not name.endswith(".value")
            flat(name, (structure(value) or value) if cell else value, attributes)
    for name in _AS_JSON:  # the API flattens these too
        inside = {key: attributes.pop(key) for key in list(attributes) if key.startswith(f"{name}.")}
        if inside and name not in attributes:
            attributes[name] = dumps({key.removeprefix(f"{name}."): value for key, value in inside.items()})
    return attributes


def _events(sent: object) -> tuple[Event, ...]:
    found = structure(sent) if isinstance(sent, str) else sent
    events = []
    for event in found if isinstance(found, list | tuple) else []:
        if isinstance(event, dict):
            attributes: Attributes = {}
            flat("", event.get("attributes") or {}, attributes)
            at = nanoseconds(event.get("timestamp") or event.get("time")) or 0
            events.append(Event(text(event.get("name")) or "event", at, attributes))
    return tuple(events)


def _read(source: Source) -> Iterator[Item]:
    def become(record: Record) -> tables.Become:
        return ((), [annotation(record)]) if _is_annotation(record) else ([span(record, source.service)], ())

    return tables.items(source, become)


def _is_annotation(record: Record) -> bool:
    return "annotation_name" in record or ("annotator_kind" in record and "start_time" not in record)


def _recognises(sample: Sample) -> bool:
    if _is_annotation(sample.first):
        return True
    if sample.has("start_time", "span_kind"):
        return "context.trace_id" in sample.first or isinstance(structure(sample.first.get("context")), dict)
    return sample.has("start_time", "context.trace_id")


IMPORTER = Importer("phoenix", "Phoenix spans and annotations: Parquet, JSON lines, JSON, CSV", _recognises, _read)
