"""Answers of the receiver: success, partial success, and a google.rpc.Status for all that is refused. Pure."""

from __future__ import annotations

from dataclasses import dataclass

import orjson
from google.protobuf.duration_pb2 import Duration
from google.protobuf.json_format import MessageToDict
from google.rpc.error_details_pb2 import BadRequest, RetryInfo
from google.rpc.status_pb2 import Status
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceResponse
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceResponse
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse

from ingest.otlp import Counts, Encoding, Signal

RETRY_S = 1  # exporters give up 10 s after the first try
MEDIA_TYPES: dict[Encoding, str] = {"protobuf": "application/x-protobuf", "json": "application/json"}
_CODES = {400: 3, 401: 16, 404: 5, 405: 12, 413: 8, 415: 3, 500: 13, 503: 14}  # HTTP status -> google.rpc.Code
_LONGEST_MESSAGE = 2000  # characters; a response must stay small whatever was sent


@dataclass(frozen=True, slots=True)
class Answer:
    """What goes back to the client."""

    status: int
    body: bytes
    media_type: str
    headers: tuple[tuple[str, str], ...] = ()


class RefusalError(Exception):
    """A request that is not served: an HTTP status and the sentence for its Status."""

    def __init__(self, status: int, message: str, *headers: tuple[str, str]) -> None:
        super().__init__(message)
        self.status = status
        self.message = message[:_LONGEST_MESSAGE]
        self.headers = headers

    def rpc_status(self) -> Status:
        """The Status. A 400 says what violated which part (BadRequest), a 503 when to try again (RetryInfo)."""
        status = Status(code=_CODES[self.status], message=self.message)
        if self.status == 400:
            status.details.add().Pack(BadRequest(field_violations=[{"field": "body", "description": self.message}]))
        elif self.status == 503:
            status.details.add().Pack(RetryInfo(retry_delay=Duration(seconds=RETRY_S)))
        return status

    def answer(self, encoding: Encoding) -> Answer:
        """The refusal over HTTP, in the encoding of the request."""
        status = self.rpc_status()
        body = orjson.dumps(MessageToDict(status)) if encoding == "json" else status.SerializeToString()
        return Answer(self.status, body, MEDIA_TYPES[encoding], self.headers)


def overloaded(message: str) -> RefusalError:
    """503: the client is to send the same again in a second. Exporters before 2026 drop their batch at a 429."""
    return RefusalError(503, message, ("retry-after", str(RETRY_S)))


def accepted(counts: Counts, signal: Signal, encoding: Encoding) -> Answer:
    """200; with partial_success only if something was rejected or is worth a warning."""
    if not counts.rejected and not counts.problems:
        return Answer(200, b"{}" if encoding == "json" else b"", MEDIA_TYPES[encoding])
    message = "; ".join(counts.problems)[:_LONGEST_MESSAGE]
    if encoding == "json":
        field = {"traces": "rejectedSpans", "logs": "rejectedLogRecords", "metrics": "rejectedDataPoints"}[signal]
        partial = {field: str(counts.rejected), "errorMessage": message}
        return Answer(200, orjson.dumps({"partialSuccess": partial}), MEDIA_TYPES["json"])
    if signal == "traces":
        traces = ExportTraceServiceResponse()
        traces.partial_success.rejected_spans = counts.rejected
        traces.partial_success.error_message = message
        return Answer(200, traces.SerializeToString(), MEDIA_TYPES["protobuf"])
    if signal == "logs":
        logs = ExportLogsServiceResponse()
        logs.partial_success.rejected_log_records = counts.rejected
        logs.partial_success.error_message = message
        return Answer(200, logs.SerializeToString(), MEDIA_TYPES["protobuf"])
    metrics = ExportMetricsServiceResponse()
    metrics.partial_success.rejected_data_points = counts.rejected
    metrics.partial_success.error_message = message
    return Answer(200, metrics.SerializeToString(), MEDIA_TYPES["protobuf"])


def json_answer(content: object) -> Answer:
    """200 with a JSON document."""
    return Answer(200, orjson.dumps(content), MEDIA_TYPES["json"])
