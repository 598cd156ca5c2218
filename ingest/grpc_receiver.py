"""OTLP/gRPC into the write-ahead log: the three Export methods, in the collector's event loop.

A generic handler gets the bytes as they were sent, so that a request is parsed once. gRPC's own inflating is switched
off, because it inflates everything before it looks at a limit; ours stops at the limit. Answers:

    OK                    synced to disk; partial success as over HTTP
    INVALID_ARGUMENT      cannot be read
    UNAUTHENTICATED       no valid token, see auth.py; `authorization` and `x-api-key` are metadata
    RESOURCE_EXHAUSTED    too large, as sent or inflated; without RetryInfo: not to be sent again
    UNAVAILABLE           not now; with RetryInfo: to be sent again
    UNIMPLEMENTED         any other method

All but the last, and gRPC's own refusal of a message over the limit, carry a google.rpc.Status.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import Any, NoReturn

import grpc

from ingest.answers import RefusalError, accepted
from ingest.errors import UsageError
from ingest.inflate import Coding
from ingest.intake import Intake
from ingest.otlp import Signal

log = logging.getLogger(__name__)

_SERVICE = "/opentelemetry.proto.collector.{}.v1.{}Service/Export"
METHODS: dict[str, Signal] = {
    _SERVICE.format("trace", "Trace"): "traces",
    _SERVICE.format("logs", "Logs"): "logs",
    _SERVICE.format("metrics", "Metrics"): "metrics",
}
_MAGIC: dict[bytes, Coding] = {b"\x1f\x8b": "gzip", b"\x78\x01": "deflate", b"\x78\x5e": "deflate",
                               b"\x78\x9c": "deflate", b"\x78\xda": "deflate"}  # fmt: skip
"""How a compressed message begins. No request begins so: 0x1f is no tag of protobuf, 0x78 that of a field 15."""

_CODES: dict[int, grpc.StatusCode] = {code.value[0]: code for code in grpc.StatusCode}


class GrpcReceiver:
    """The gRPC server. Made, started and stopped in one event loop."""

    def __init__(self, intake: Intake) -> None:
        self._server = grpc.aio.server(
            options=[
                ("grpc.max_receive_message_length", intake.options.max_wire_bytes),
                ("grpc.per_message_decompression", 0),
                ("grpc.so_reuseport", 0),  # a port in use is an error
                ("grpc.max_concurrent_streams", 100),  # a connection
                ("grpc.keepalive_permit_without_calls", 1),
                ("grpc.http2.min_ping_interval_without_data_ms", 10_000),
            ]
        )
        self._server.add_generic_rpc_handlers((_Handler(intake),))

    async def start(self, host: str, port: int, tls: grpc.ServerCredentials | None = None) -> int:
        """Serve on an address of this machine; the port, which for 0 is a free one. Raises UsageError."""
        address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        try:
            if tls is None:
                bound = self._server.add_insecure_port(address)
            else:
                bound = self._server.add_secure_port(address, tls)
        except RuntimeError:
            raise UsageError(
                f"Cannot listen for gRPC on {address}.", "Use another --grpc-port; 0 takes a free one."
            ) from None
        await self._server.start()
        return int(bound)

    async def stop(self, grace_s: float) -> None:
        """Take no more requests; those in flight have so long to end. May be called again with a shorter time."""
        await self._server.stop(grace_s)


class _Handler(grpc.GenericRpcHandler):  # type: ignore[misc]
    def __init__(self, intake: Intake) -> None:
        self._intake = intake
        self._methods = {
            method: grpc.unary_unary_rpc_method_handler(partial(self._export, kind)) for method, kind in METHODS.items()
        }

    def service(self, call: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler | None:
        return self._methods.get(call.method)

    async def _export(self, kind: Signal, wire: bytes, context: Any) -> bytes:
        try:
            metadata = {key: value for key, value in context.invocation_metadata() if isinstance(value, str)}
            sent = (metadata.get(name, "").encode() for name in ("authorization", "x-api-key"))
            self._intake.authenticate(*sent)
            with self._intake.holding() as hold:
                hold(wire)
                taken = await self._intake.take(kind, "protobuf", _MAGIC.get(wire[:2]), wire, hold)
            return accepted(taken.counts, kind, "protobuf").body
        except RefusalError as refusal:
            await self._refuse(refusal, context)
        except Exception:
            log.exception("gRPC Export of %s failed", kind)
            await self._refuse(RefusalError(500, "internal error; the collector's log says more"), context)

    async def _refuse(self, refusal: RefusalError, context: Any) -> NoReturn:
        self._intake.refused[refusal.status] += 1
        status = refusal.rpc_status()
        details = (("grpc-status-details-bin", status.SerializeToString()),)
        await context.abort(_CODES[status.code], status.message, details)
        raise AssertionError("abort returned")
