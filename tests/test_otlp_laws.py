"""Laws of the OTLP decoder, on generated messages: protobuf's own JSON writer is the independent witness."""

from __future__ import annotations

import math
from base64 import b64decode

import orjson
import pytest
from google.protobuf.json_format import MessageToDict
from hypothesis import given, settings
from hypothesis import strategies as st
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, ArrayValue, InstrumentationScope, KeyValue, KeyValueList
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord, ResourceLogs, ScopeLogs
from opentelemetry.proto.resource.v1.resource_pb2 import Resource
from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans, ScopeSpans, Span, Status

from ingest import otlp

texts = st.text(max_size=8)
times = st.integers(0, 2**64 - 1) | st.integers(1_700_000_000, 1_800_000_000).map(lambda s: s * 10**9 + 1)
scalars = st.one_of(
    texts.map(lambda x: AnyValue(string_value=x)),
    st.booleans().map(lambda x: AnyValue(bool_value=x)),
    st.integers(-(2**63), 2**63 - 1).map(lambda x: AnyValue(int_value=x)),
    st.floats(allow_nan=False).map(lambda x: AnyValue(double_value=x)),
    st.binary(max_size=5).map(lambda x: AnyValue(bytes_value=x)),
    st.just(AnyValue()),
)


def pairs(values):
    return st.lists(st.builds(lambda k, v: KeyValue(key=k, value=v), texts, values), max_size=3)


values = st.recursive(
    scalars,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3).map(lambda x: AnyValue(array_value=ArrayValue(values=x))),
        pairs(inner).map(lambda x: AnyValue(kvlist_value=KeyValueList(values=x))),
    ),
    max_leaves=5,
)
attributes = pairs(values)


def ids(size):
    """Mostly valid; sometimes missing, zero or of the wrong length."""
    valid = st.binary(min_size=size, max_size=size)
    return st.one_of(valid, valid, valid, st.sampled_from([b"", bytes(size), b"\x01" * (size - 3)]))


spans = st.builds(
    lambda **fields: Span(**fields),
    trace_id=ids(16),
    span_id=ids(8),
    parent_span_id=ids(8),
    name=texts,
    kind=st.sampled_from(Span.SpanKind.values()),
    start_time_unix_nano=times,
    end_time_unix_nano=times,
    attributes=attributes,
    status=st.builds(lambda c, m: Status(code=c, message=m), st.sampled_from(Status.StatusCode.values()), texts),
    events=st.lists(
        st.builds(lambda n, t, a: Span.Event(name=n, time_unix_nano=t, attributes=a), texts, times, attributes),
        max_size=2,
    ),
    links=st.lists(st.builds(lambda t, s: Span.Link(trace_id=t, span_id=s), ids(16), ids(8)), max_size=2),
)
scopes = st.builds(lambda n, v: InstrumentationScope(name=n, version=v), texts, texts)
traces = st.lists(
    st.builds(
        lambda a, s, sp: ResourceSpans(resource=Resource(attributes=a), scope_spans=[ScopeSpans(scope=s, spans=sp)]),
        attributes,
        scopes,
        st.lists(spans, max_size=3),
    ),
    max_size=2,
).map(lambda x: ExportTraceServiceRequest(resource_spans=x))
log_records = st.builds(
    lambda **fields: LogRecord(**fields),
    time_unix_nano=times | st.just(0),
    observed_time_unix_nano=times,
    event_name=texts,
    body=values,
    attributes=attributes,
    trace_id=ids(16),
    span_id=ids(8),
)
logs = st.lists(
    st.builds(
        lambda a, s, r: ResourceLogs(resource=Resource(attributes=a), scope_logs=[ScopeLogs(scope=s, log_records=r)]),
        attributes,
        scopes,
        st.lists(log_records, max_size=3),
    ),
    max_size=2,
).map(lambda x: ExportLogsServiceRequest(resource_logs=x))
spellings = st.fixed_dictionaries(
    {"snake": st.booleans(), "numbers": st.booleans(), "ids": st.sampled_from(["base64", "hex", "HEX"])}
)
requests = st.tuples(st.just("traces"), traces) | st.tuples(st.just("logs"), logs)


def as_json(message, *, snake, numbers, ids) -> bytes:
    """The message as protobuf's own library writes JSON; its base64 ids as hex if so wished."""
    written = MessageToDict(message, preserving_proto_field_name=snake, use_integers_for_enums=numbers)

    def walk(item):
        if isinstance(item, list):
            return [walk(entry) for entry in item]
        if not isinstance(item, dict):
            return item
        return {key: spell(value) if key in names else walk(value) for key, value in item.items()}

    def spell(value):
        text = b64decode(value).hex()
        return text.upper() if ids == "HEX" else text

    names = {"traceId", "spanId", "parentSpanId", "trace_id", "span_id", "parent_span_id"} if ids != "base64" else set()
    return orjson.dumps(walk(written))


@settings(max_examples=150, deadline=None)
@given(requests, spellings)
def test_json_and_protobuf_of_one_message_decode_equal(request, spelling):
    signal, message = request
    from_protobuf = otlp.decode(message.SerializeToString(), signal, "protobuf")
    from_json = otlp.decode(as_json(message, **spelling), signal, "json")
    assert from_json == from_protobuf


@settings(max_examples=100, deadline=None)
@given(requests, st.sampled_from(["protobuf", "json"]))
def test_inspect_counts_what_decode_finds(request, encoding):
    signal, message = request
    spelling = {"snake": False, "numbers": True, "ids": "hex"}
    body = message.SerializeToString() if encoding == "protobuf" else as_json(message, **spelling)
    batch = otlp.decode(body, signal, encoding)
    counts = otlp.inspect(body, signal, encoding)
    assert (counts.spans, counts.logs, counts.rejected) == (len(batch.spans), len(batch.logs), batch.rejected)


@settings(max_examples=60, deadline=None)
@given(traces, traces)
def test_joined_requests_decode_to_joined_records(first, second):
    """Protobuf messages concatenate; nothing of one resource may leak into the next."""
    bodies = [first.SerializeToString(), second.SerializeToString()]
    alone = [otlp.decode(body, "traces", "protobuf").spans for body in bodies]
    assert otlp.decode(b"".join(bodies), "traces", "protobuf").spans == alone[0] + alone[1]


@settings(max_examples=60, deadline=None)
@given(traces, st.sampled_from([b"\xff", b"\xe2\x82", b"\xf0\x9f\x98"]))
def test_a_bad_text_costs_nothing_but_itself(message, bad):
    """Texts cut inside a character: the same records as with a replacement character in that place."""
    mark = "\u00a1MARK!"
    message.resource_spans.add().resource.attributes.add(key="k").value.string_value = mark
    message.resource_spans[0].scope_spans.add().spans.add(trace_id=b"t" * 16, span_id=b"s" * 8, name=mark)
    whole = message.SerializeToString()
    body = whole.replace(mark.encode(), bad + b"x" * (len(mark.encode()) - len(bad)))
    mended = otlp.decode(body, "traces", "protobuf")
    expected = bad.decode(errors="replace") + "x" * (len(mark.encode()) - len(bad))
    assert mended.spans[-1].name == expected or expected in {span.name for span in mended.spans}
    assert len(mended.spans) == len(otlp.decode(whole, "traces", "protobuf").spans)
    assert any("UTF-8" in problem for problem in mended.problems)


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=60), st.sampled_from(["traces", "logs", "metrics"]), st.sampled_from(["protobuf", "json"]))
def test_any_bytes_give_a_batch_or_a_decode_error(body, signal, encoding):
    try:
        otlp.decode(body, signal, encoding)
    except otlp.DecodeError:
        with pytest.raises(otlp.DecodeError):
            otlp.inspect(body, signal, encoding)


json_like = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(
        ["resourceSpans", "scopeSpans", "spans", "resource", "scope", "attributes", "key", "value", "traceId", "status",
         "intValue", "arrayValue", "values", "events", "kind", "startTimeUnixNano", "name"]), inner, max_size=4),
    max_leaves=25,
)  # fmt: skip


@settings(max_examples=200, deadline=None)
@given(json_like)
def test_any_json_gives_a_batch_or_a_decode_error(content):
    body = (
        orjson.dumps({"resourceSpans": [{"scopeSpans": [{"spans": [content]}]}]}, option=orjson.OPT_NON_STR_KEYS)
        if (_fits(content))
        else b"{}"
    )
    try:
        batch = otlp.decode(body, "traces", "json")
    except otlp.DecodeError:
        return
    assert len(batch.spans) + batch.rejected <= 1


def _fits(content) -> bool:
    if isinstance(content, dict):
        return all(_fits(item) for item in content.values())
    if isinstance(content, list):
        return all(_fits(item) for item in content)
    return not isinstance(content, int) or -(2**63) <= content < 2**64


def test_metric_points_are_counted_alike_in_both_encodings():
    message = ExportMetricsServiceRequest()
    metrics = message.resource_metrics.add().scope_metrics.add().metrics
    metrics.add(name="a").gauge.data_points.add(as_int=1)
    metrics.add(name="b").sum.data_points.add(as_double=2.0)
    metrics.add(name="c").histogram.data_points.add(count=1)
    exponential = metrics.add(name="d").exponential_histogram
    exponential.data_points.add(count=1)
    exponential.data_points.add(count=2)
    metrics.add(name="e").summary.data_points.add(count=1)
    metrics.add(name="empty")
    for snake in (False, True):
        body = as_json(message, snake=snake, numbers=True, ids="base64")
        assert otlp.decode(body, "metrics", "json").metric_points == 6
    assert otlp.decode(message.SerializeToString(), "metrics", "protobuf").metric_points == 6
    assert otlp.inspect(message.SerializeToString(), "metrics", "protobuf").metric_points == 6


def test_not_a_number_arrives_as_such_in_both_encodings():
    message = ExportTraceServiceRequest()
    span = message.resource_spans.add().scope_spans.add().spans.add(trace_id=b"t" * 16, span_id=b"s" * 8)
    span.attributes.add(key="x").value.double_value = math.nan
    text = as_json(message, snake=False, numbers=True, ids="hex")
    assert b'"NaN"' in text
    for body, encoding in [
        (message.SerializeToString(), "protobuf"),
        (text, "json"),
        (text.replace(b'"NaN"', b"NaN"), "json"),
    ]:
        (found,) = otlp.decode(body, "traces", encoding).spans
        assert math.isnan(found.attributes["x"])
