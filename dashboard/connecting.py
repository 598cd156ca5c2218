"""How an app is connected, for the address at which a collector really listens. Pure: texts in, texts out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

EVERYWHERE = ("0.0.0.0", "::", "")
"""Addresses to listen on that nobody can send to."""


@dataclass(frozen=True)
class Address:
    """Where a collector listens, as an exporter writes it. `token`: whether it wants one."""

    http: str
    grpc: str
    token: bool = False
    everywhere: bool = False
    """Whether other machines reach it too, under this machine's name."""


def address(said: Mapping[str, Any] | None, *, token: bool) -> Address:
    """Of what collector.json says; the defaults where no collector runs."""
    said = said or {}
    host = str(said.get("host") or "127.0.0.1")
    shown = "127.0.0.1" if host in EVERYWHERE else f"[{host}]" if ":" in host else host
    scheme = "https" if said.get("tls") else "http"
    http, grpc = (f"{scheme}://{shown}:{said.get(key) or port}" for key, port in (("port", 4318), ("grpc_port", 4317)))
    return Address(http, grpc, token, host in EVERYWHERE)


ALREADY = (
    "Enough where the app already exports OpenTelemetry: set this before it starts. Most agent frameworks and "
    "instrumentations (OpenLLMetry, OpenInference, OpenLIT, Langfuse, LangSmith, the SDKs' own) can."
)
FROM_NOTHING = "For an app that does not export yet. As it stands it sends one span, so that this page lights up."
BESIDE = "In the OpenTelemetry Collector that you have: your backend keeps getting everything, and so does this."
FILES = "Exports of Langfuse, LangSmith, Phoenix, LiteLLM and others, or files of OTLP."


def snippets(at: Address) -> dict[str, tuple[str, str]]:
    """What to do -> (what it is for, the text to copy)."""
    return {
        "Environment": (ALREADY, _environment(at)),
        "Python": (FROM_NOTHING, _python(at)),
        "Beside your backend": (BESIDE, _collector(at)),
        "From files": (FILES, "retroute import traces.jsonl"),
    }


def _environment(at: Address) -> str:
    lines = [
        f"export OTEL_EXPORTER_OTLP_ENDPOINT={at.http}",
        "export OTEL_EXPORTER_OTLP_PROTOCOL=http/protobuf",
        "export OTEL_SERVICE_NAME=my-app",
    ]
    if at.token:
        lines.append('export OTEL_EXPORTER_OTLP_HEADERS="authorization=Bearer%20$TOKEN"')
    lines.append(f"# for gRPC: {at.grpc} and the protocol grpc")
    return "\n".join(lines)


def _python(at: Address) -> str:
    head = ', headers={"authorization": "Bearer " + os.environ["TOKEN"]}' if at.token else ""
    return f"""{"import os" + chr(10) * 2 if at.token else ""}from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor

provider = TracerProvider(resource=Resource({{"service.name": "my-app"}}))
exporter = OTLPSpanExporter(endpoint="{at.http}/v1/traces"{head})
provider.add_span_processor(BatchSpanProcessor(exporter))
trace.set_tracer_provider(provider)

with trace.get_tracer("my-app").start_as_current_span("hello"):
    pass
provider.force_flush()"""


def _collector(at: Address) -> str:
    token = '\n    headers: { authorization: "Bearer ${env:TOKEN}" }' if at.token else ""
    return f"""exporters:
  otlphttp/retroute:
    endpoint: {at.http}{token}
service:
  pipelines:
    traces:
      exporters: [otlphttp/retroute]  # beside those that are there"""
