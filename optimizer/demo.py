"""The whole loop on sample data: a real collector, the real SDK exporter, a night's work, and the truth beside it."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any
from urllib.request import ProxyHandler, build_opener

from ingest.errors import WorkError
from ingest.home import open_home
from optimizer import config, pipeline, truth

if TYPE_CHECKING:
    from optimizer.replay import Sent

Progress = Callable[[str, float], None]
START_S = 30.0
SETTLE_S = 120.0
STOP_S = 90.0
POLL_S = 0.25


def sample_folder() -> Path:
    """The sample: inside the package in a wheel, beside it in a checkout. Raises WorkError when it is in neither."""
    package = Path(__file__).resolve().parent
    for folder in (package / "sample_traces", package.parent / "sample_traces"):
        if any(folder.glob("*.otlp.jsonl.gz")):
            return folder
    raise WorkError("the sample traces are not installed", "Install retroute from its wheel or from a full checkout.")


def run(home: Path, progress: Progress | None = None) -> dict[str, Any]:
    """The `demo --json` object. Sending into the same home again stores nothing twice. Raises AppError."""
    show = progress or (lambda _what, _share: None)
    began = time.monotonic()
    folder = sample_folder()
    files = sorted(folder.glob("*.otlp.jsonl.gz"))
    open_home(home, create=True)
    if not (home / config.FILE_NAME).exists():
        shutil.copyfile(folder / config.FILE_NAME, home / config.FILE_NAME)
    settings = config.load(home)
    with collecting(home, show) as collector:
        sent = _send(files, collector, show)
        _wait_until_settled(home, collector, sent, show)
    stored = _count_stored(home, sent)
    if stored != len(sent.spans):
        raise WorkError(f"{len(sent.spans)} spans were acknowledged, but {stored} are stored")
    result = pipeline.nightly(home, settings, None, show)
    services = truth.add(result["services"], home, folder)
    took = time.monotonic() - began
    return {**result, "spans_sent": len(sent.spans), "spans_stored": stored, "seconds": took, "services": services}


def next_commands(home: Path, result: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Three commands to try next, each with what it does."""
    at = f"--home {shlex.quote(str(home))}"
    proven = [name for name, service in sorted(result["services"].items()) if service["verdict"] == "deploy"]
    some = proven or sorted(result["services"])[:1]
    unproven = "" if proven else " --unproven"
    commands = [(f"retroute dashboard {at}", "the same numbers as pictures, and what each verdict rests on")]
    for name in some[:1]:
        flags = f"--target litellm --service {shlex.quote(name)} --out {shlex.quote(name)}-bundle{unproven}"
        commands.append(
            (f"retroute export {at} {flags}", "the suggested policy as a folder that a LiteLLM proxy loads")
        )
    commands.append(("retroute collect", "your own traces: point an OTLP exporter at http://127.0.0.1:4318"))
    return commands


@dataclass(frozen=True)
class Collector:
    """A collector that runs as a child of this process."""

    process: subprocess.Popen[bytes]
    log: IO[bytes]
    url: str

    def pending_bytes(self) -> int:
        """What it has acknowledged but not stored yet. Raises WorkError when it has died."""
        self.require_alive()
        with _open(f"{self.url}/healthz") as answer:
            return int(json.load(answer)["pending_wal_bytes"])

    def require_alive(self) -> None:
        if self.process.poll() is not None:
            raise _failed(self.process, self.log)


@contextmanager
def collecting(home: Path, show: Progress) -> Iterator[Collector]:
    """A collector on free ports of this machine, stopped gracefully: all it acknowledged is stored by then.

    It wants no token and has no TLS, whatever the home's retroute.toml says.
    """
    show("starting a collector", 0.0)
    environment = {
        **os.environ,
        **{f"{config.PREFIX}COLLECTOR_{name}": "" for name in ("TOKENS", "TLS_CERT", "TLS_KEY")},
    }
    command = [sys.executable, "-P", "-m", "optimizer.cli", "collect", "--home", str(home), "--host", "127.0.0.1"]
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(
            [*command, "--port", "0", "--grpc-port", "0"],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )
        try:
            yield Collector(process, log, _url(home, process, log))
            show("stopping the collector", 0.0)
            process.terminate()
            if process.wait(STOP_S) != 0:
                raise _failed(process, log)
            show("stopping the collector", 1.0)
        except subprocess.TimeoutExpired:
            raise WorkError(f"the collector did not stop within {STOP_S:.0f} s") from None
        finally:
            if process.poll() is None:
                process.terminate()
                try:
                    process.wait(5)
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.wait()


def _url(home: Path, process: subprocess.Popen[bytes], log: IO[bytes]) -> str:
    """Where the child listens, once its collector.json is there."""
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise _failed(process, log)
        try:
            said = json.loads((home / "collector.json").read_text(encoding="utf-8"))
        except (OSError, ValueError):
            said = {}
        if said.get("pid") == process.pid:  # one left behind by a killed collector has another pid
            return f"http://{said['host']}:{said['port']}"
        time.sleep(0.05)
    raise WorkError(f"the collector did not start within {START_S:.0f} s", _tail(log))


def _failed(process: subprocess.Popen[bytes], log: IO[bytes]) -> WorkError:
    lines = _tail(log).splitlines()
    said = [line.removeprefix("error: ") for line in lines if line.startswith("error: ")]
    hints = [line.removeprefix("hint: ") for line in lines if line.startswith("hint: ")]
    if said:
        return WorkError(f"the collector ended: {said[-1]}", hints[-1] if hints else "")
    return WorkError(f"the collector ended with exit code {process.returncode}", "\n".join(lines[-5:]))


def _tail(log: IO[bytes]) -> str:
    log.seek(0)
    return log.read().decode(errors="replace")[-4000:]


def _open(url: str) -> Any:
    return build_opener(ProxyHandler({})).open(url, timeout=10)  # loopback never goes through a proxy


def _send(files: list[Path], collector: Collector, show: Progress) -> Sent:
    from optimizer import replay

    what = "sending the sample traces"
    show(what, 0.0)
    batches = list(replay.read(files))
    total = sum(len(batch.spans) + len(batch.logs) for batch in batches)
    with _no_proxy():
        sent = replay.send(iter(batches), collector.url, {}, lambda done: show(what, done / total))
    show(what, 1.0)
    return sent


@contextmanager
def _no_proxy() -> Iterator[None]:
    """The SDK's exporter reads the proxy from the environment; loopback must not go through it."""
    before = {name: os.environ.get(name) for name in ("NO_PROXY", "no_proxy")}
    for name, value in before.items():
        os.environ[name] = f"{value},127.0.0.1" if value else "127.0.0.1"
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def _wait_until_settled(home: Path, collector: Collector, sent: Sent, show: Progress) -> None:
    """Returns when all spans are stored, all traces settled, all scores there. Raises WorkError after two minutes."""
    from ingest.lake import Lake

    what = "waiting until all traces are settled"
    deadline = time.monotonic() + SETTLE_S
    state = "nothing is stored yet"
    show(what, 0.0)
    while time.monotonic() < deadline:
        pending = collector.pending_bytes()
        if (home / "lake").is_dir() and pending == 0:
            with Lake.open(home) as lake:
                counts = lake.query("counts").row(0, named=True)
            state = f"{counts['spans']} spans, {counts['scores']} scores, {counts['unsettled_traces']} traces unsettled"
            arrived = counts["spans"] >= len(sent.spans) and counts["scores"] >= sent.evaluations
            show(what, 0.99 * (1 - counts["unsettled_traces"] / max(counts["traces"], 1)))
            if arrived and counts["unsettled_traces"] == 0:
                show(what, 1.0)
                return
        time.sleep(POLL_S)
    expected = f"{len(sent.spans)} spans and {sent.evaluations} scores were sent"
    raise WorkError(f"{expected}, but after {SETTLE_S:.0f} s there are: {state}", _tail(collector.log))


def _count_stored(home: Path, sent: Sent) -> int:
    """How many rows the lake holds for the spans that were sent: one each, or the demo fails."""
    from ingest.lake import Lake

    with Lake.open(home) as lake:
        rows = lake.sql("select trace_id, span_id from spans").rows()
    return sum(1 for row in rows if row in sent.spans)
