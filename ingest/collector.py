"""The collector: the receiver in this process and the converter in a child, until SIGTERM or SIGINT.

One collector serves one home. Stopping is graceful: requests in flight are answered, the log is synced, the converter
stores what is left and ends. A second signal ends at once; then, as after a crash, the next start goes on from the log.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import ipaddress
import json
import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import uvicorn
import uvloop

from ingest.converter_child import ConverterChild
from ingest.errors import UsageError
from ingest.home import collector_lock, open_home, replace_file
from ingest.options import ConverterOptions
from ingest.receiver import Receiver, ReceiverOptions
from ingest.wal import Wal

_REQUESTS_S = 10  # for requests in flight when stopping


def run(
    home: Path,
    host: str,
    port: int,
    grpc_port: int,
    options: ConverterOptions,
    tokens: tuple[str, ...] = (),
    cors: tuple[str, ...] = (),
    ready: Callable[[str, int], None] | None = None,
) -> None:
    """Serve OTLP/HTTP on host:port (0: a free one) into the home; returns after a graceful stop.

    `ready` is called with the address once requests are served, and by default says so on stderr; collector.json holds
    the same. Raises UsageError when
    the address cannot be had or is beyond loopback without a token, HomeError when the home cannot be used or another
    collector serves it.
    """
    address = _resolve(host, port, tokens)
    with collector_lock(open_home(home, create=True)), _listen(host, address) as listener, _opened(home) as wal:
        child = ConverterChild(home, options)
        child.start()
        try:
            receiver = Receiver(wal, ReceiverOptions(tokens=tokens, cors=cors), state=child.state)
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                runner.run(_serve(receiver, listener, child, home / "collector.json", ready or _say))
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
    child: ConverterChild,
    said: Path,
    ready: Callable[[str, int], None],
) -> None:
    config = uvicorn.Config(
        receiver,
        http="httptools",
        ws="none",
        lifespan="off",
        log_config=None,
        log_level="warning",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=75,
        timeout_graceful_shutdown=_REQUESTS_S,
    )
    server = _Server(config)
    loop = asyncio.get_running_loop()
    for name in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(name, server.stop)
    host, port = listener.getsockname()[:2]
    serving = loop.create_task(server.serve(sockets=[listener]))
    watching = loop.create_task(child.watch())
    try:
        while not server.started and not serving.done():
            await asyncio.sleep(0.01)
        if server.started:
            address = {"pid": os.getpid(), "host": host, "port": port, "started_ns": time.time_ns()}
            replace_file(said, json.dumps(address) + "\n")
            ready(host, port)
        await serving
    finally:
        watching.cancel()
        said.unlink(missing_ok=True)


def _say(host: str, port: int) -> None:
    place = f"[{host}]" if ":" in host else host
    print(f"Receiving OTLP at http://{place}:{port}; Ctrl-C stops.", file=sys.stderr, flush=True)


@contextlib.contextmanager
def _opened(home: Path) -> Iterator[Wal]:
    (home / "collector.json").unlink(missing_ok=True)  # of one that was killed
    wal = Wal(home / "wal")
    try:
        yield wal
    finally:
        wal.close()


def _resolve(host: str, port: int, tokens: tuple[str, ...]) -> tuple[socket.AddressFamily, tuple[object, ...]]:
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, OverflowError) as error:
        raise UsageError(f"Cannot listen on {host}:{port}: {error}.") from None
    family, _, _, _, address = min(found, key=lambda entry: entry[0] != socket.AF_INET)
    if not tokens and not ipaddress.ip_address(str(address[0])).is_loopback:
        raise UsageError(
            f"Refusing to listen on {host} without a token: anyone on the network could send.",
            "Set collector.tokens in retroute.toml, or listen on 127.0.0.1.",
        )
    return family, address


@contextlib.contextmanager
def _listen(host: str, target: tuple[socket.AddressFamily, tuple[object, ...]]) -> Iterator[socket.socket]:
    family, address = target
    with socket.socket(family, socket.SOCK_STREAM) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind(address)
            listener.listen(2048)
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                raise UsageError(
                    f"Port {address[1]} on {host} is in use.", "Use another --port; --port 0 takes a free one."
                ) from None
            raise UsageError(f"Cannot listen on {host}:{address[1]}: {error.strerror}.") from None
        yield listener
