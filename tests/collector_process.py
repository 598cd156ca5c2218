"""A real collector in a process of its own, for tests that stop, kill and restart it.

    python tests/collector_process.py HOME {"port": 0, "store": false, ...}

Without `store` its converter stores nothing: what was acknowledged stays in the write-ahead log for the test to read.
"""

from __future__ import annotations

import functools
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType

START_S = 30.0  # a busy machine starts two Pythons


def wait_for(what: Callable[[], object], seconds: float = START_S) -> object:
    """The first true value of `what`; fails the test when there is none in time."""
    until = time.monotonic() + seconds
    while not (value := what()):
        assert time.monotonic() < until, f"waited {seconds} s in vain"
        time.sleep(0.02)
    return value


class CollectorProcess:
    """Running and listening inside the `with` block, unless the test ends it; killed at its end."""

    def __init__(
        self,
        home: Path,
        *,
        port: int = 0,
        grpc_port: int = 0,
        store: bool = False,
        tls: tuple[Path, Path] | None = None,
        **rights: object,
    ) -> None:
        """`tls`: certificate and key. `rights`: of ReceiverOptions; tokens as name and hash."""
        self.home = home
        wanted = {"port": port, "grpc_port": grpc_port, "store": store, "tls": tls and [*map(str, tls)], **rights}
        self._arguments = [sys.executable, __file__, str(home), json.dumps(wanted)]
        self._scheme = "https" if tls else "http"

    def __enter__(self) -> CollectorProcess:
        self.process = subprocess.Popen(self._arguments, stderr=subprocess.PIPE, start_new_session=True)
        self.port = wait_for(self._listening)
        self.url = f"{self._scheme}://127.0.0.1:{self.port}"
        self.target = f"127.0.0.1:{self.grpc_port}"
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate()

    def _listening(self) -> int:
        assert self.process.poll() is None, self.process.communicate()[1].decode()
        try:
            said = json.loads((self.home / "collector.json").read_text())
        except FileNotFoundError:
            return 0
        if said["pid"] != self.process.pid:
            return 0
        self.grpc_port = said["grpc_port"]
        return said["port"]

    def health(self) -> dict:
        import httpx  # the collector itself, which runs this file, has no use for it

        return httpx.get(f"{self.url}/healthz").json()

    def stop(self, name: signal.Signals = signal.SIGTERM, *, group: bool = False) -> tuple[int, str]:
        """Exit code and what it wrote to stderr."""
        if group:
            os.killpg(self.process.pid, name)
        else:
            self.process.send_signal(name)
        _, said = self.process.communicate(timeout=60)
        return self.process.returncode, said.decode()


def keep_all(home: str, options: object, parent) -> None:
    """A converter that only notes when it started and when it was told to finish."""
    (Path(home) / "converter-started").write_text(str(os.getpid()))
    while not parent.poll():
        time.sleep(0.02)
    (Path(home) / "converter-finished").touch()


def main(home: str, wanted: str) -> None:
    from ingest import collector
    from ingest.auth import Token
    from ingest.converter_child import ConverterChild
    from ingest.options import ConverterOptions

    given = json.loads(wanted)
    tls = collector.Tls(*map(Path, given.pop("tls"))) if given["tls"] else given.pop("tls")
    listen = collector.Listen(port=given.pop("port"), grpc_port=given.pop("grpc_port"), tls=tls)
    if not given.pop("store"):
        collector.ConverterChild = functools.partial(ConverterChild, main=keep_all)
    tokens = tuple(Token(*pair) for pair in given.pop("tokens", ()))
    rights = collector.ReceiverOptions(tokens=tokens, **given)
    collector.run(Path(home), listen, ConverterOptions(quiet_s=0.2, commit_s=0.2), rights)


if __name__ == "__main__":
    main(*sys.argv[1:])
