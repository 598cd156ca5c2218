"""What the decoder rejects, repairs, ignores, and how it says so."""

from __future__ import annotations

import json

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from ingest import otlp

TRACE, SPAN = "a0" * 16, "0f" * 8


def traces(*spans: object, **more: object) -> bytes:
    return json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": spans}]}], **more}).encode()


def span(**fields: object) -> dict[str, object]:
    return {"traceId": TRACE, "spanId": SPAN, "name": "good"} | fields


def decode_one(**fields: object):
    (found,) = otlp.decode(traces(span(**fields)), "traces", "json").spans
    return found


def test_spans_with_invalid_ids_are_rejected_one_by_one_in_both_encodings():
    message = ExportTraceServiceRequest()
    spans = message.resource_spans.add().scope_spans.add().spans
    spans.add(trace_id=b"t" * 16, span_id=b"s" * 8, name="good")
    spans.add(trace_id=b"", span_id=b"s" * 8)
    spans.add(trace_id=bytes(16), span_id=b"s" * 8)
    spans.add(trace_id=b"t" * 16, span_id=b"short")
    by_protobuf = otlp.decode(message.SerializeToString(), "traces", "protobuf")
    bad = [span(traceId=""), span(traceId="0" * 32), span(spanId="short")]
    by_json = otlp.decode(traces(span(), *bad), "traces", "json")
    for batch in (by_protobuf, by_json):
        assert [s.name for s in batch.spans] == ["good"]
        assert batch.rejected == 3
        assert batch.problems == (
            "invalid trace id (16 bytes, not all zero) (2 times)",
            "invalid span id (8 bytes, not all zero)",
        )


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("attributes", {"a": 1}),
        ("attributes", [{"key": "a", "value": 5}]),
        ("attributes", [{"key": "a", "value": {"intValue": "seven"}}]),
        ("attributes", [{"key": "a", "value": {"intValue": str(2**63)}}]),
        ("attributes", [{"key": "a", "value": {"doubleValue": "much"}}]),
        ("attributes", [{"key": "a", "value": {"boolValue": 3}}]),
        ("attributes", [{"key": "a", "value": {"bytesValue": "*"}}]),
        ("attributes", [{"key": "a", "value": {"arrayValue": {"values": 3}}}]),
        ("events", "none"),
        ("events", [5]),
        ("status", 2),
        ("startTimeUnixNano", "yesterday"),
        ("startTimeUnixNano", 1.5),
        ("startTimeUnixNano", True),
        ("name", ["a"]),
    ],
)
def test_a_malformed_json_span_costs_only_itself(field, value):
    batch = otlp.decode(traces(span(**{field: value}), span()), "traces", "json")
    assert [s.name for s in batch.spans] == ["good"]
    assert batch.rejected == 1
    assert batch.problems[0].startswith("malformed span: ")


@pytest.mark.parametrize(
    ("bad", "rejected", "why"),
    [
        (
            {"resource": 3, "scopeSpans": [{"spans": [span(), span()]}]},
            2,
            "malformed resource: resource is not an object",
        ),
        (
            {"resource": {"attributes": {}}, "scopeSpans": [{"spans": [span()]}]},
            1,
            "malformed resource: attributes are",
        ),
        ({"scopeSpans": "x"}, 1, "malformed resource: scopeSpans is not a list of objects"),
        ({"scopeSpans": [{"scope": {"name": 5}, "spans": [span()] * 3}]}, 3, "malformed scope: a text is not a string"),
        (7, 1, "malformed: resourceSpans is not a list of objects"),
        (None, 1, "malformed: resourceSpans is not a list of objects"),
        ({"scopeSpans": [5, [], "x"]}, 3, "malformed: scopeSpans is not a list of objects"),
        ({"scopeSpans": [{"spans": {"a": 1}}]}, 1, "invalid trace id"),
        ({"scopeSpans": [{"spans": [7, None]}]}, 2, "malformed: spans is not a list of objects"),
    ],
)
def test_a_malformed_group_costs_only_its_own_spans(bad, rejected, why):
    good = {"scopeSpans": [{"spans": [span()]}]}
    body = json.dumps({"resourceSpans": [good, bad, good]}).encode()
    batch = otlp.decode(body, "traces", "json")
    assert len(batch.spans) == 2
    assert batch.rejected == rejected
    assert batch.problems[0].startswith(why)


def test_a_malformed_scope_costs_nothing_beside_it():
    body = json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": [span()]}, 7, {"spans": [span()]}]}]}).encode()
    batch = otlp.decode(body, "traces", "json")
    assert (len(batch.spans), batch.rejected) == (2, 1)


def test_values_nested_without_end_cost_only_their_span():
    value: object = {"stringValue": "deep"}
    for _ in range(150):
        value = {"arrayValue": {"values": [value]}}
    batch = otlp.decode(traces(span(attributes=[{"key": "a", "value": value}]), span()), "traces", "json")
    assert (len(batch.spans), batch.rejected) == (1, 1)
    endless = b'{"resourceSpans":' + b"[" * 100_000
    with pytest.raises(otlp.DecodeError):
        otlp.decode(endless, "traces", "json")


@pytest.mark.parametrize("body", [b"", b"nonsense", b"[]", b"7", b'{"resourceSpans": 3}', b'{"resourceSpans": [3]}'])
def test_a_body_that_is_no_request_is_a_decode_error(body):
    with pytest.raises(otlp.DecodeError, match="not "):
        otlp.decode(body, "traces", "json")


def test_an_empty_request_is_a_request():
    assert otlp.decode(b"", "traces", "protobuf") == otlp.decode(b"{}", "traces", "json") == otlp.Batch()


def test_unknown_fields_are_ignored():
    batch = otlp.decode(traces(span(shoeSize=44), schemaUrl="x", later={"a": [1]}), "traces", "json")
    assert len(batch.spans) == 1
    assert not batch.problems


def test_half_surrogate_pairs_of_javascript_are_repaired():
    body = traces(span(name="XX")).replace(b"XX", b"cut \\ud83d")
    batch = otlp.decode(body, "traces", "json")
    assert batch.spans[0].name == "cut \ufffd"
    assert batch.problems == ("text that is not UTF-8, repaired",)


def test_bad_bytes_and_a_byte_order_mark_in_json_are_repaired():
    body = b"\xef\xbb\xbf" + traces(span(name="XX")).replace(b"XX", b"cut \xe2\x82")
    batch = otlp.decode(body, "traces", "json")
    assert batch.spans[0].name == "cut \ufffd"
    assert batch.problems == ("text that is not UTF-8, repaired",)


def test_times_beyond_64_bits_signed_become_unknown_and_are_noted():
    batch = otlp.decode(traces(span(endTimeUnixNano=str(2**63), startTimeUnixNano=-1)), "traces", "json")
    assert (batch.spans[0].start_ns, batch.spans[0].end_ns) == (0, 0)
    assert batch.problems == ("time out of range, kept as 0 (2 times)",)


@pytest.mark.parametrize("value", [3, "3", "SPAN_KIND_CLIENT", "client", "Client"])
def test_enums_are_read_as_number_or_name(value):
    assert decode_one(kind=value).kind == "client"


@pytest.mark.parametrize("value", [None, 0, 99, "SPAN_KIND_MAGIC", -1])
def test_unknown_enums_are_unspecified(value):
    assert decode_one(kind=value).kind == "unspecified"


def test_status_is_none_unless_it_was_set():
    assert decode_one().status is None
    assert decode_one(status={}).status is None
    assert decode_one(status={"code": 1}).status == "ok"
    assert decode_one(status={"code": "STATUS_CODE_ERROR", "message": "no"}).status == "error"


def test_the_number_of_problem_texts_is_bounded():
    spans = [span(attributes=[{"key": "a", "value": {"intValue": "x"}}]) for _ in range(50)]
    batch = otlp.decode(traces(*spans), "traces", "json")
    assert batch.rejected == 50
    assert len(batch.problems) == 1
