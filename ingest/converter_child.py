"""The converter as a child process of the collector: started, watched, restarted, told to finish.

The child is told to finish, and learns that its parent is gone, by one pipe: anything to read there, be it the end,
means store what is left and end. SIGINT and SIGTERM are blocked in it, since terminals and service managers send those
to the whole group while the parent is still answering requests.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Callable, Mapping
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from pathlib import Path

from ingest.errors import AppError
from ingest.options import ConverterOptions
from ingest.without_pandas import without_pandas

log = logging.getLogger(__name__)

_DRAIN_S = 60.0  # for the child when stopping
_FIRST_WAIT_S, _LONGEST_WAIT_S = 0.2, 30.0  # before a dead child is replaced
_HEALTHY_S = 60.0  # of life, after which waits start small again
_SWITCH_S = 0.0005
"""The thread that commits asks for Python's lock at each task of DuckDB's; it would wait the usual 5 ms for it."""
_COLLECT = (50_000, 20, 100)
"""A commit is some hundred thousand objects, none of them circular: looking for circles took a tenth of the time."""
_NICE = 8
"""What the child, and its own, give way by. Clients wait for the receiver and nobody for the converter, whose work
waits in the log: where all want the processors, the receiver gets three quarters of them instead of a third."""


def convert(home: str, options: ConverterOptions, parent: Connection) -> None:
    """The child's main function."""
    os.nice(_NICE)
    sys.setswitchinterval(_SWITCH_S)
    without_pandas()
    gc.set_threshold(*_COLLECT)
    from ingest import converter  # the lake's libraries stay out of the receiver's process

    def say(state: Mapping[str, object]) -> None:
        with contextlib.suppress(OSError):  # the parent is gone
            parent.send(dict(state))

    try:
        converter.run(Path(home), options, parent.poll, say, apart=True)
    except AppError as error:
        print(f"converter: {error.message}", file=sys.stderr)
        sys.exit(1)


class ConverterChild:
    """One child at a time. `main` is `convert`, or a stand-in for it in tests."""

    def __init__(
        self,
        home: Path,
        options: ConverterOptions,
        main: Callable[[str, ConverterOptions, Connection], None] = convert,
    ) -> None:
        self._home = str(home)
        self._options = options
        self._main = main
        self._process: SpawnProcess | None = None
        self._parent: Connection | None = None
        self._started = 0.0
        self.restarts = 0
        self._said: dict[str, object] = {}

    def start(self) -> None:
        """Start the child; returns before it is up."""
        self._release()
        ours, theirs = multiprocessing.Pipe()
        context = multiprocessing.get_context("spawn")
        self._process = context.Process(target=self._main, args=(self._home, self._options, theirs), name="converter")
        resource_tracker.ensure_running()  # its start, which spawning would do, unblocks signals
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})  # the child inherits it
        try:
            self._process.start()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
            theirs.close()
        self._parent = ours
        self._started = time.monotonic()

    @property
    def pid(self) -> int | None:
        """Of the running child; None when there is none."""
        return self._process.pid if self._process is not None and self._process.is_alive() else None

    def state(self) -> dict[str, object]:
        """For /healthz: degraded while there is no child, or while it cannot write the lake."""
        fine = self.pid is not None and not self._said.get("problem")
        about = {name: value for name, value in self._said.items() if value}
        state: dict[str, object] = {"converter": {"pid": self.pid, "restarts": self.restarts, **about}}
        return state if fine else {"status": "degraded", **state}

    async def watch(self) -> None:
        """Replace the child whenever it dies, after a wait that doubles while it keeps dying."""
        wait_s = _FIRST_WAIT_S
        while True:
            await asyncio.sleep(0.1)
            self._listen()
            if self.pid is not None:
                continue
            if time.monotonic() - self._started > _HEALTHY_S:
                wait_s = _FIRST_WAIT_S
            code = self._process.exitcode if self._process is not None else "no start"
            log.error("the converter ended with %s; starting it again in %.1f s", code, wait_s)
            await asyncio.sleep(wait_s)
            wait_s = min(2 * wait_s, _LONGEST_WAIT_S)
            self.restarts += 1
            try:
                self.start()
            except OSError as error:  # no memory or no process left: later, perhaps
                log.error("the converter cannot be started: %s", error)

    def stop(self) -> None:
        """Have the child store what is left, and wait for its end. One that is dead or hangs leaves it in the log."""
        if self._process is None or self._parent is None:
            return
        self._parent.close()
        self._process.join(_DRAIN_S)
        if self._process.is_alive():
            log.error("the converter has not finished in %.0f s; the rest stays in the write-ahead log", _DRAIN_S)
            self._process.kill()
            self._process.join()
        self._release()

    def _listen(self) -> None:
        """What the child said of itself since the last time."""
        with contextlib.suppress(EOFError, OSError):  # it is gone
            while self._parent is not None and self._parent.poll():
                self._said.update(self._parent.recv())

    def _release(self) -> None:
        if self._parent is not None:
            self._parent.close()
        if self._process is not None:
            self._process.close()
        self._process = self._parent = None
