"""Laws of a privacy policy on request bodies: nothing of what it is about is left, and everything else is as it was."""

from __future__ import annotations

import json
from dataclasses import replace

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from otlp_traces import chat, log, logs_body, span, tool, traces_body

from ingest import otlp
from ingest.dialects import registry
from ingest.privacy import OFF, Policy
from ingest.redact import KINDS
from ingest.sealing import read
from ingest.spans import Event
from optimizer import prompts

SECRETS = ("alice@example.com", "+49 30 1234567", "4111 1111 1111 1111", "DE89370400440532013000", "sk-" + "aB3" * 12)
TEXT = "Dear " + ", ".join(SECRETS) + "!"
REDACT = Policy(redact=KINDS)
SEAL = Policy(content=False, vector=prompts.vector)
BOTH = Policy(content=False, redact=KINDS, deny=("app.",), vector=prompts.vector)
POLICIES = [REDACT, SEAL, BOTH, Policy(deny=("app.", "http.*", "user.id"))]

PROMPT = [{"role": "system", "content": "Be nice."}, {"role": "user", "content": f"What of {TEXT}"}]
ANSWER = [{"role": "assistant", "parts": [{"type": "text", "content": "Forty-two " + TEXT}]}]
SPANS = [
    span(
        1,
        chat(
            gen_ai__input__messages=json.dumps(PROMPT),
            gen_ai__output__messages=json.dumps(ANSWER),
            gen_ai__response__id="9f86d081884c7d659a2feaa0c55ad015a3bf4f1b",
            gen_ai__usage__cache_read__input_tokens=7,
            session__id="s-1",
            app__note="Meet at noon " + TEXT,
            app__count=3,
            http__request__header={"authorization": ["Bearer " + "x1" * 20]},
        ),
        status="error",
        events=[
            Event("exception", 5, {"exception.type": "Timeout", "exception.message": "While answering " + TEXT}),
            Event("gen_ai.content.prompt", 6, {"gen_ai.prompt": "Forty-two " + TEXT}),
        ],
    ),
    span(
        2, tool(gen_ai__tool__call__arguments=json.dumps({"to": TEXT, "n": 4111111111111111}), ok=True, x=0.5), parent=1
    ),
]
TRACES = traces_body(SPANS)
LOGS = logs_body(
    [
        log("gen_ai.user.message", {"gen_ai.system": "openai"}, trace=1, span=1, body={"content": "Forty-two " + TEXT}),
        log("gen_ai.choice", {}, trace=1, span=1, body={"index": 0, "message": {"role": "assistant", "content": TEXT}}),
        log(
            "gen_ai.evaluation.result",
            {
                "gen_ai.evaluation.name": "quality",
                "gen_ai.evaluation.score.value": 0.75,
                "gen_ai.evaluation.explanation": "Forty-two " + TEXT,
            },
            trace=1,
        ),
        log("", {"note": "Forty-two " + TEXT}, body="Meet at noon " + TEXT),
    ]
)
PROSE = ("Forty-two", "noon", "What of", "Be nice", "While answering", "Dear")
MESSAGE_OF = {
    "traces": ExportTraceServiceRequest,
    "logs": ExportLogsServiceRequest,
    "metrics": ExportMetricsServiceRequest,
}


def protobuf(body: bytes, signal: str) -> bytes:
    """The same request in protobuf."""
    message = MESSAGE_OF[signal]()

    def fill(target, item):
        for name, value in item.items():
            field = target.DESCRIPTOR.fields_by_camelcase_name[name]
            if field.message_type and isinstance(value, list):
                for part in value:
                    fill(getattr(target, field.name).add(), part)
            elif field.message_type:
                getattr(target, field.name).SetInParent()
                fill(getattr(target, field.name), value)
            elif field.type == field.TYPE_BYTES:
                setattr(target, field.name, bytes.fromhex(value))
            else:
                setattr(
                    target,
                    field.name,
                    value
                    if isinstance(value, str | bool | float)
                    and field.cpp_type != field.CPPTYPE_UINT64
                    and field.cpp_type != field.CPPTYPE_INT64
                    else int(value),
                )

    fill(message, json.loads(body))
    return message.SerializeToString()


BODIES = [
    (signal, encoding, body if encoding == "json" else protobuf(body, signal))
    for signal, body in (("traces", TRACES), ("logs", LOGS))
    for encoding in ("json", "protobuf")
]


@pytest.mark.parametrize(("signal", "encoding", "body"), BODIES)
def test_off_is_the_body_as_it_came(signal, encoding, body):
    assert OFF.apply(body, signal, encoding) is body
    assert not OFF.active


@pytest.mark.parametrize(("signal", "encoding", "body"), BODIES)
@pytest.mark.parametrize("policy", [REDACT, BOTH])
def test_no_secret_is_left(policy, signal, encoding, body):
    kept = policy.apply(body, signal, encoding)
    assert not [secret for secret in (*SECRETS, "4111111111111111") if secret.encode() in kept]


@pytest.mark.parametrize(("signal", "encoding", "body"), BODIES)
@pytest.mark.parametrize("policy", [SEAL, BOTH])
def test_no_text_is_left_with_content_off(policy, signal, encoding, body):
    kept = policy.apply(body, signal, encoding)
    assert not [text for text in (*PROSE, *SECRETS) if text.encode() in kept]


@pytest.mark.parametrize(("signal", "encoding", "body"), BODIES)
@pytest.mark.parametrize("policy", POLICIES)
def test_applying_twice_is_applying_once(policy, signal, encoding, body):
    once = policy.apply(body, signal, encoding)
    before = policy.redacted.copy()
    assert policy.apply(once, signal, encoding) is once
    assert policy.redacted == before


@pytest.mark.parametrize("signal", ["traces", "logs"])
@pytest.mark.parametrize("policy", POLICIES)
def test_protobuf_and_json_give_the_same(policy, signal):
    found = [
        otlp.decode(policy.apply(body, signal, encoding), signal, encoding)
        for kind, encoding, body in BODIES
        if kind == signal
    ]
    assert found[0] == found[1]


@pytest.mark.parametrize(("signal", "encoding", "body"), BODIES)
@pytest.mark.parametrize("policy", POLICIES)
def test_ids_times_and_counts_are_unchanged(policy, signal, encoding, body):
    before, after = (otlp.decode(b, signal, encoding) for b in (body, policy.apply(body, signal, encoding)))
    assert len(before.spans) == len(after.spans)
    assert len(before.logs) == len(after.logs)
    for old, new in zip(before.spans, after.spans, strict=True):
        for name in (
            "trace_id",
            "span_id",
            "parent_span_id",
            "kind",
            "start_ns",
            "end_ns",
            "status",
            "service",
            "links",
        ):
            assert getattr(old, name) == getattr(new, name)
        assert registry.read(old).facts == read(new).facts
    for old, new in zip(before.logs, after.logs, strict=True):
        assert (old.time_ns, old.trace_id, old.span_id, old.service) == (
            new.time_ns,
            new.trace_id,
            new.span_id,
            new.service,
        )


def test_marks_are_counted_in_the_policy_and_in_the_body():
    policy = Policy(redact=KINDS)
    marks = otlp.decode(policy.apply(TRACES, "traces", "json"), "traces", "json").redacted
    assert {kind: n for kind, n in policy.redacted.items() if n} == marks
    assert marks["email"] == 6
    assert marks["card"] == 7
    again = policy.apply(policy.apply(LOGS, "logs", "json"), "logs", "json")
    assert otlp.decode(again, "logs", "json").redacted["email"] == 5


def test_denied_attributes_are_gone_and_others_stay():
    policy = Policy(deny=("app.", "gen_ai.input.mess*", "session.id"))
    (first, second) = otlp.decode(policy.apply(TRACES, "traces", "json"), "traces", "json").spans
    gone = {key for key in SPANS[0].attributes if key.startswith("app.")} | {"gen_ai.input.messages", "session.id"}
    assert first.attributes.keys() == SPANS[0].attributes.keys() - gone
    assert second.attributes == SPANS[1].attributes
    body = logs_body([log("x", {"app.a": 1, "b": 2}, body={"app.c": "text", "d": 4})])
    for encoding, sent in (("json", body), ("protobuf", protobuf(body, "logs"))):
        (record,) = otlp.decode(policy.apply(sent, "logs", encoding), "logs", encoding).logs
        assert (record.attributes, record.body) == ({"b": 2}, {"d": 4})


def test_denied_resource_attributes_are_gone():
    body = traces_body([replace(SPANS[1], resource={"service.name": "shop", "host.name": "alices-laptop"})])
    for encoding, sent in (("json", body), ("protobuf", protobuf(body, "traces"))):
        (kept,) = otlp.decode(Policy(deny=["host.name"]).apply(sent, "traces", encoding), "traces", encoding).spans
        assert kept.resource == {"service.name": "shop"}


def test_fields_that_otlp_does_not_know_are_treated_like_others():
    request = json.loads(TRACES)
    request["note"] = "Forty-two " + TEXT
    request["resourceSpans"][0]["scopeSpans"][0]["spans"][0]["note"] = ["Forty-two " + TEXT]
    for policy in (REDACT, SEAL):
        kept = policy.apply(json.dumps(request).encode(), "traces", "json")
        assert b"alice@" not in kept
        assert policy is REDACT or b"Forty-two" not in kept
    unknown = protobuf(TRACES, "traces") + b"\xfa\x3f" + bytes([len(TEXT)]) + TEXT.encode()  # field 1023
    assert b"alice@" not in REDACT.apply(unknown, "traces", "protobuf")


def test_texts_in_bytes_are_found():
    raw = {"bytesValue": "YWxpY2VAZXhhbXBsZS5jb20="}
    request = json.loads(traces_body([SPANS[1]]))
    request["resourceSpans"][0]["scopeSpans"][0]["spans"][0]["attributes"].append({"key": "raw", "value": raw})
    kept = REDACT.apply(json.dumps(request).encode(), "traces", "json")
    (found,) = otlp.decode(kept, "traces", "json").spans
    assert found.attributes["raw"] == "PGVtYWlsPg=="  # <email>


def test_of_metrics_only_the_number_is_kept():
    body = json.dumps(
        {
            "resourceMetrics": [
                {
                    "resource": {"attributes": [{"key": "who", "value": {"stringValue": TEXT}}]},
                    "scopeMetrics": [
                        {
                            "metrics": [
                                {"name": TEXT, "gauge": {"dataPoints": [{}, {}]}},
                                {"name": "b", "sum": {"dataPoints": [{}]}},
                            ]
                        }
                    ],
                }
            ]
        }
    ).encode()
    for encoding, sent in (("json", body), ("protobuf", protobuf(body, "metrics"))):
        kept = SEAL.apply(sent, "metrics", encoding)
        assert otlp.inspect(kept, "metrics", encoding).metric_points == 3
        assert b"alice" not in kept


def test_scores_keep_their_verdict():
    score = {"name": "quality", "value": 0.5, "trace_id": "a" * 32, "explanation": "Because " + TEXT, "label": "ok"}
    body = json.dumps([score]).encode()
    assert orjson.loads(SEAL.apply(body, "scores", "json")) == [{k: v for k, v in score.items() if k != "explanation"}]
    (redacted,) = orjson.loads(REDACT.apply(body, "scores", "json"))
    assert redacted["explanation"].startswith("Because Dear <email>, <phone>, <card>")
    assert {**redacted, "explanation": ""} == {**score, "explanation": ""}
    assert orjson.loads(SEAL.apply(json.dumps(score).encode(), "scores", "json"))["value"] == 0.5


def test_rejected_records_stay_rejected_and_keep_no_text():
    request = json.loads(traces_body([*SPANS, span(3, {"note": "Forty-two " + TEXT})]))
    request["resourceSpans"][1]["scopeSpans"][0]["spans"][0]["spanId"] = "0000000000000000"
    body = json.dumps(request).encode()
    for encoding, sent in (("json", body), ("protobuf", protobuf(body, "traces"))):
        for policy in POLICIES:
            kept = policy.apply(sent, "traces", encoding)
            counts = otlp.inspect(kept, "traces", encoding)
            assert (counts.spans, counts.rejected) == (2, 1)
            assert policy.active
        assert b"Forty-two" not in SEAL.apply(sent, "traces", encoding)


def test_a_body_that_cannot_be_read_is_refused():
    for encoding in ("json", "protobuf"):
        with pytest.raises(otlp.DecodeError):
            REDACT.apply(b"\xff\x00 no request", "traces", encoding)


@pytest.mark.parametrize("value", ["NaN", "Infinity", "-Infinity"])
def test_numbers_that_json_does_not_know_stay_numbers(value):
    request = json.loads(traces_body([span(1, {"x": 0.5})]))
    body = json.dumps(request).replace("0.5", value).encode()
    for policy in (REDACT, SEAL):
        (found,) = otlp.decode(policy.apply(body, "traces", "json"), "traces", "json").spans
        assert str(found.attributes["x"]) == str(float(value))


@given(st.text(max_size=30), st.sampled_from(SECRETS), st.text(max_size=30))
def test_a_secret_is_found_wherever_it_stands(before, secret, after):
    text = f"{before} {secret} {after}"
    nested = {"a": [{"b": text}], text: 1}
    body = traces_body([span(1, {"note": text, "json": json.dumps(nested), "map": nested}, name=text)])
    for encoding, sent in (("json", body), ("protobuf", protobuf(body, "traces"))):
        (found,) = otlp.decode(REDACT.apply(sent, "traces", encoding), "traces", encoding).spans
        assert secret not in json.dumps([found.name, found.attributes], ensure_ascii=False)


def test_neither_repr_nor_errors_show_a_pattern_or_a_text(caplog):
    policy = Policy(redact=KINDS, patterns={"project": "Manhattan"})
    policy.apply(TRACES, "traces", "json")
    assert "Manhattan" not in repr(policy)
    assert not caplog.records
