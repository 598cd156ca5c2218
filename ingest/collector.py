"""The collector: the receiver in this process and the converter in a child, until SIGTERM or SIGINT.

One collector serves one home. Stopping is graceful: requests in flight are answered, the log is synced, the converter
stores what is left and ends. A second signal ends at once; then, as after a crash, the next start goes on from the log.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import grpc
import uvicorn
import uvloop

from ingest.converter_child import ConverterChild
from ingest.grpc_receiver import GrpcReceiver
from ingest.home import collector_lock, open_home, replace_file
from ingest.http_protocol import Protocol
from ingest.intake import DEFAULTS, ReceiverOptions
from ingest.listen import Listen, Tls, listening, resolve
from ingest.options import ConverterOptions
from ingest.receiver import Receiver
from ingest.wal import Wal

_REQUESTS_S = 10  # for requests in flight when stopping


@dataclass(frozen=True)
class Address:
    """Where a collector listens: numbers in place of names and of port 0."""

    host: str
    port: int
    grpc_port: int
    tls: bool

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        scheme = "https" if self.tls else "http"
        return f"{scheme}://{host}:{self.port} and over gRPC at {scheme}://{host}:{self.grpc_port}"


def run(
    home: Path,
    listen: Listen,
    options: ConverterOptions,
    rights: ReceiverOptions = DEFAULTS,
    ready: Callable[[Address], None] | None = None,
) -> None:
    """Serve OTLP over HTTP and gRPC into the home; returns after a graceful stop.

    `ready` is called with the address once requests are served, and by default says so on stderr; collector.json holds
    the same. Raises UsageError when an address cannot be had or is beyond loopback without a token or a certificate
    cannot be used, HomeError when the home cannot be used or another collector serves it.
    """
    address = resolve(listen.host, listen.port, guarded=bool(rights.tokens))
    if listen.tls is not None:
        listen.tls.check()
    with (
        collector_lock(open_home(home, create=True)),
        listening(listen.host, address) as listener,
        _opened(home) as wal,
    ):
        _require_free(listen)
        child = ConverterChild(home, options)
        child.start()
        try:
            receiver = Receiver(wal, rights, state=child.state)
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                runner.run(_serve(receiver, listener, listen, child, home / "collector.json", ready or _say))
        finally:
            child.stop()


class _Server(uvicorn.Server):
    """uvicorn with its signal handling left out: after a graceful stop that would raise the signal once more."""

    def capture_signals(self) -> contextlib.AbstractContextManager[None]:  # type: ignore[override]
        return contextlib.nullcontext()

    def stop(self) -> None:
        """Finish what is in flight; the second time, do not even wait for that."""
        self.force_exit = self.should_exit
        self.should_exit = True


async def _serve(
    receiver: Receiver,
    listener: socket.socket,
    listen: Listen,
    child: ConverterChild,
    said: Path,
    ready: Callable[[Address], None],
) -> None:
    config = uvicorn.Config(
        receiver,
        http=Protocol,
        ws="none",
        lifespan="off",
        log_config=None,
        log_level="warning",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=75,
        timeout_graceful_shutdown=_REQUESTS_S,
        ssl_certfile=listen.tls.certificate if listen.tls else None,
        ssl_keyfile=listen.tls.key if listen.tls else None,
    )
    host, port = listener.getsockname()[:2]
    server, rpc = _Server(config), GrpcReceiver(receiver.intake)
    loop = asyncio.get_running_loop()
    ending: list[asyncio.Task[None]] = []

    def stop() -> None:
        server.stop()
        ending.append(loop.create_task(rpc.stop(0 if server.force_exit else _REQUESTS_S)))

    grpc_port = await rpc.start(host, listen.grpc_port, _credentials(listen.tls))
    for name in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(name, stop)
    serving = loop.create_task(server.serve(sockets=[listener]))
    watching = loop.create_task(child.watch())
    try:
        while not server.started and not serving.done():
            await asyncio.sleep(0.01)
        if server.started:
            address = Address(host, port, grpc_port, listen.tls is not None)
            at = {"host": host, "port": port, "grpc_port": grpc_port, "tls": address.tls}
            replace_file(said, json.dumps({"pid": os.getpid(), **at, "started_ns": time.time_ns()}) + "\n")
            ready(address)
        await serving
        await asyncio.gather(*ending)
    finally:
        await rpc.stop(0)
        watching.cancel()
        said.unlink(missing_ok=True)


def _credentials(tls: Tls | None) -> grpc.ServerCredentials | None:
    if tls is None:
        return None
    return grpc.ssl_server_credentials([(tls.key.read_bytes(), tls.certificate.read_bytes())])


def _require_free(listen: Listen) -> None:
    """Raises UsageError when the gRPC port is in use, before the converter is started; gRPC itself says it worse."""
    if listen.grpc_port:
        target = resolve(listen.host, listen.grpc_port, guarded=True)
        with listening(listen.host, target, "--grpc-port"):
            pass


def _say(address: Address) -> None:
    print(f"Receiving OTLP at {address}; Ctrl-C stops.", file=sys.stderr, flush=True)


@contextlib.contextmanager
def _opened(home: Path) -> Iterator[Wal]:
    (home / "collector.json").unlink(missing_ok=True)  # of one that was killed
    wal = Wal(home / "wal")
    try:
        yield wal
    finally:
        wal.close()
