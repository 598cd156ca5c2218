"""A protobuf request as the policy of privacy.py wants it: edited in place, so that all else stays as it was sent."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

from ingest import otlp_protobuf
from ingest.otlp_problems import Problems
from ingest.redactions import REDACTED, merged
from ingest.sealing import Sealed, seal_log, seal_resource, seal_span

if TYPE_CHECKING:
    from ingest.privacy import Wishes


def edited(body: bytes, signal: str, wishes: Wishes, problems: Problems) -> bytes:
    """The request's new bytes. Raises DecodeError when the body is none."""
    request = otlp_protobuf.parse(body, signal, problems)
    if signal == "metrics":
        return _counted_only(otlp_protobuf.metric_points(request))
    request.DiscardUnknownFields()
    groups = request.resource_spans if signal == "traces" else request.resource_logs
    told = [group for group in groups if otlp_protobuf.redacted(group)]
    known = merged(otlp_protobuf.redacted(group) for group in told)
    for group in told:
        groups.remove(group)
    if wishes.redactor is not None or wishes.denied_keys or wishes.denied_prefixes:
        _Editor(wishes).groups(groups, signal)
    if not wishes.content:
        _seal(request, groups, signal, wishes, problems)
    if counts := merged((known, wishes.found)):
        _write(groups.add().resource.attributes, {REDACTED: counts})
    return bytes(request.SerializeToString())


class _Editor:
    """Drops what is denied and marks what is redacted."""

    def __init__(self, wishes: Wishes) -> None:
        self._wishes = wishes
        self._text = wishes.text
        self._redacts = wishes.redactor is not None
        self._denies = wishes.denies if wishes.denied_keys or wishes.denied_prefixes else None

    def groups(self, groups: Iterable[Any], signal: str) -> None:
        for group in groups:
            self._attributes(group.resource.attributes)
            self._fields(group, "schema_url")
            for scoped in group.scope_spans if signal == "traces" else group.scope_logs:
                self._attributes(scoped.scope.attributes)
                self._fields(scoped.scope, "name", "version")
                self._fields(scoped, "schema_url")
                for record in scoped.spans if signal == "traces" else scoped.log_records:
                    self._span(record) if signal == "traces" else self._log(record)

    def _span(self, span: Any) -> None:
        self._attributes(span.attributes)
        self._fields(span, "name", "trace_state")
        if span.status.message:
            self._fields(span.status, "message")
        for event in span.events:
            self._fields(event, "name")
            self._attributes(event.attributes)
        for link in span.links:
            self._fields(link, "trace_state")
            self._attributes(link.attributes)

    def _log(self, record: Any) -> None:
        self._attributes(record.attributes)
        self._fields(record, "event_name", "severity_text")
        if record.body.WhichOneof("value") == "kvlist_value":
            self._attributes(record.body.kvlist_value.values)
        elif self._redacts:
            self._value(record.body, "")

    def _fields(self, message: Any, *names: str) -> None:
        for name in names:
            if (value := getattr(message, name)) and (new := self._text(value)) is not value and new != value:
                setattr(message, name, new)

    def _attributes(self, pairs: Any) -> None:
        if self._denies is not None and any(self._denies(pair.key) for pair in pairs):
            kept = [pair for pair in pairs if not self._denies(pair.key)]
            copies = [type(pair).FromString(pair.SerializeToString()) for pair in kept]
            del pairs[:]
            pairs.extend(copies)
        if self._redacts:
            self._pairs(pairs)

    def _pairs(self, pairs: Iterable[Any]) -> None:
        for pair in pairs:
            key = pair.key
            self._value(pair.value, key)
            if (new := self._text(key, "id")) is not key and new != key:
                pair.key = new

    def _value(self, value: Any, key: str) -> None:
        match value.WhichOneof("value"):
            case "string_value":
                text = value.string_value
                if (new := self._text(text, key)) is not text and new != text:
                    value.string_value = new
            case "int_value":
                if isinstance(mark := self._wishes.number(value.int_value), str):
                    value.string_value = mark
            case "array_value":
                for item in value.array_value.values:
                    self._value(item, key)
            case "kvlist_value":
                self._pairs(value.kvlist_value.values)
            case "bytes_value":
                value.bytes_value = self._wishes.raw(value.bytes_value)


def _seal(request: Any, groups: Iterable[Any], signal: str, wishes: Wishes, problems: Problems) -> None:
    """Every record's texts away. Those that will be rejected, for their ids, lose everything else as well."""
    if signal == "traces":
        found = iter(list(otlp_protobuf.spans(request, problems)))
        span = next(found, None)
    else:
        logs = iter(list(otlp_protobuf.logs(request, problems)))
    for group in groups:
        resource = otlp_protobuf.attributes(group.resource.attributes)
        _rewrite(group.resource.attributes, seal_resource(resource))
        del group.resource.entity_refs[:]
        group.schema_url = ""
        for scoped in group.scope_spans if signal == "traces" else group.scope_logs:
            del scoped.scope.attributes[:]
            scoped.schema_url = ""
            if signal == "logs":
                for record in scoped.log_records:
                    _seal_log(record, seal_log(next(logs), wishes.vector))
                continue
            for message in scoped.spans:
                valid = span is not None and (span.trace_id, span.span_id) == (
                    message.trace_id.hex(),
                    message.span_id.hex(),
                )
                if valid and span is not None:
                    _seal_span(message, seal_span(span, wishes.vector))
                    span = next(found, None)
                else:
                    ids = message.trace_id, message.span_id
                    message.Clear()
                    message.trace_id, message.span_id = ids


def _seal_span(span: Any, sealed: Sealed) -> None:
    span.name = sealed.name
    span.trace_state = ""
    span.status.message = ""
    _rewrite(span.attributes, sealed.attributes)
    del span.events[:]
    for name, time_ns, attributes in sealed.events:
        _write(span.events.add(name=name, time_unix_nano=time_ns).attributes, attributes)
    for link in span.links:
        link.trace_state = ""
        del link.attributes[:]


def _seal_log(record: Any, sealed: Sealed) -> None:
    record.event_name = sealed.name
    record.severity_text = ""
    record.ClearField("body")
    _rewrite(record.attributes, sealed.attributes)


def _rewrite(pairs: Any, attributes: Mapping[str, object]) -> None:
    del pairs[:]
    _write(pairs, attributes)


def _write(pairs: Any, attributes: Mapping[str, object]) -> None:
    for key, value in attributes.items():
        _set(pairs.add(key=key).value, value)


def _set(message: Any, value: object) -> None:
    match value:
        case bool():
            message.bool_value = value
        case int():
            message.int_value = value
        case float():
            message.double_value = value
        case str():
            message.string_value = value
        case list():
            message.array_value.SetInParent()
            for item in value:
                _set(message.array_value.values.add(), item)
        case dict():
            message.kvlist_value.SetInParent()
            _write(message.kvlist_value.values, value)


def _counted_only(points: int) -> bytes:
    """A request of nothing but so many data points: metrics are only counted."""
    request = ExportMetricsServiceRequest()
    if points:
        metric = request.resource_metrics.add().scope_metrics.add().metrics.add()
        for _ in range(points):
            metric.gauge.data_points.add()
    return bytes(request.SerializeToString())
