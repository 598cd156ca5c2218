"""The real LiteLLM proxy with an exported bundle, a local provider behind it and our collector beside it.

LiteLLM's proxy lives in an environment of its own, built once and kept in pytest's cache (or in the folder that
RETROUTE_LITELLM_VENV names, which is used as it is if it has the command). Where no package index can be reached the
tests skip, except under CI=true.
"""

from __future__ import annotations

import json
import os
import secrets
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import polars as pl
import pytest
from openai import OpenAI

from ingest.lake import Lake
from optimizer.bundle import write_policy
from optimizer.export.litellm import export
from optimizer.runtime import DENSE, DIM, Model

REQUIREMENTS = ("litellm[proxy]==1.108.7", "opentelemetry-sdk", "opentelemetry-exporter-otlp-proto-http")
SERVICE = "helpdesk"
SMALL, MID, BIG = ACTIONS = ("small-1", "mid-7b|plan", "big.3")
MODEL_OF = {SMALL: "small-1", MID: "mid-7b", BIG: "big.3"}
EPSILON = 0.3
SHARES = {round(EPSILON / 3, 9), round(1 - EPSILON + EPSILON / 3, 9)}
CODE = "Why does this fail?\n```python\nprint(x)\n```"


def litellm_command(config: pytest.Config) -> Path:
    """The `litellm` command of an environment with the proxy."""
    assert config.cache is not None
    given = os.environ.get("RETROUTE_LITELLM_VENV")
    folder = Path(given) if given else config.cache.mkdir("litellm-venv")
    command, built = folder / "bin" / "litellm", folder / "built.json"
    if given and command.is_file():
        return command
    if not built.is_file() or json.loads(built.read_text()) != [*REQUIREMENTS, sys.version]:
        python = str(folder / "bin" / "python")
        for step in (
            [sys.executable, "-m", "venv", *([] if given else ["--clear"]), str(folder)],
            [python, "-m", "pip", "install", "-q", "--disable-pip-version-check", *REQUIREMENTS],
        ):
            if problem := failure(step):
                reason = f"LiteLLM's proxy cannot be installed: {problem}"
                if os.environ.get("CI") == "true":
                    pytest.fail(reason)
                pytest.skip(reason)
        built.write_text(json.dumps([*REQUIREMENTS, sys.version]))
    return command


def failure(command: list[str]) -> str:
    """Why a command failed; empty if it did not."""
    try:
        result = subprocess.run(command, capture_output=True, text=True, timeout=900)
    except subprocess.TimeoutExpired:
        return "no end after 15 minutes"
    return result.stderr.strip()[-300:] or "failed without a word" if result.returncode else ""


class Upstream(ThreadingHTTPServer):
    """An OpenAI-compatible server on loopback that remembers what it was asked."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Answer)
        self.asked: list[tuple[str, dict[str, Any]]] = []
        self.failing: set[str] = set()
        """Models that answer 503."""
        self.url = f"http://127.0.0.1:{self.server_port}/v1"

    @property
    def model(self) -> str:
        return str(self.asked[-1][1]["model"])


class Answer(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Upstream

    def log_message(self, format: str, *args: object) -> None:
        pass

    def do_POST(self) -> None:
        content = self.rfile.read(int(self.headers["content-length"]))
        if self.path.endswith("/traces"):  # a collector that keeps nothing
            return self.answer(200, "application/x-protobuf", b"")
        body = json.loads(content)
        self.server.asked.append((self.path, body))
        status, kind = 200, "application/json"
        if body["model"] in self.server.failing:
            status, data = 503, b'{"error": {"message": "overloaded", "type": "server_error"}}'
        elif self.path.endswith("/embeddings"):
            data = embedding(body)
        elif body.get("stream"):
            data = response_stream(body) if self.path.endswith("/responses") else stream(body)
            kind = "text/event-stream"
        else:
            data = response(body) if self.path.endswith("/responses") else completion(body)
        return self.answer(status, kind, data)

    def answer(self, status: int, kind: str, data: bytes) -> None:
        self.send_response(status)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


USAGE = {"prompt_tokens": 30, "completion_tokens": 12, "total_tokens": 42}


def embedding(body: Mapping[str, Any]) -> bytes:
    data = [{"object": "embedding", "index": 0, "embedding": [0.5, 0.5]}]
    usage = {"prompt_tokens": 3, "total_tokens": 3}
    return json.dumps({"object": "list", "model": body["model"], "data": data, "usage": usage}).encode()


def completion(body: Mapping[str, Any]) -> bytes:
    """Hello, or a call of the first tool while none was answered."""
    message: dict[str, Any] = {"role": "assistant", "content": "Hello."}
    reason = "stop"
    if body.get("tools") and not any(message["role"] == "tool" for message in body["messages"]):
        function = {"name": body["tools"][0]["function"]["name"], "arguments": "{}"}
        message |= {"content": None, "tool_calls": [{"id": "t1", "type": "function", "function": function}]}
        reason = "tool_calls"
    choice = {"index": 0, "message": message, "finish_reason": reason}
    answer = {"id": "c1", "object": "chat.completion", "created": 1, "model": body["model"]}
    return json.dumps({**answer, "choices": [choice], "usage": USAGE}).encode()


def stream(body: Mapping[str, Any]) -> bytes:
    base = {"id": "c2", "object": "chat.completion.chunk", "created": 1, "model": body["model"]}
    deltas = ({"role": "assistant", "content": "Hel"}, {"content": "lo."})
    choices = [[{"index": 0, "delta": delta, "finish_reason": None}] for delta in deltas]
    events = [{**base, "choices": choice} for choice in choices]
    events.append({**base, "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
    events.append({**base, "choices": [], "usage": USAGE})
    return b"".join(b"data: " + json.dumps(event).encode() + b"\n\n" for event in events) + b"data: [DONE]\n\n"


def response(body: Mapping[str, Any]) -> bytes:
    return json.dumps(response_of(body)).encode()


def response_stream(body: Mapping[str, Any]) -> bytes:
    whole = response_of(body)
    place = {"item_id": "m1", "output_index": 0, "content_index": 0}
    begun = {**whole, "status": "in_progress", "output": []}
    events: list[dict[str, Any]] = [
        {"type": "response.created", "response": begun},
        {"type": "response.output_item.added", "output_index": 0, "item": {**whole["output"][0], "content": []}},
        {"type": "response.content_part.added", **place, "part": {**whole["output"][0]["content"][0], "text": ""}},
        {"type": "response.output_text.delta", **place, "delta": "Hello."},
        {"type": "response.output_text.done", **place, "text": "Hello."},
        {"type": "response.output_item.done", "output_index": 0, "item": whole["output"][0]},
        {"type": "response.completed", "response": whole},
    ]
    lines = (
        f"event: {event['type']}\ndata: {json.dumps({**event, 'sequence_number': number})}\n\n"
        for number, event in enumerate(events)
    )
    return "".join(lines).encode()


def response_of(body: Mapping[str, Any]) -> dict[str, Any]:
    content = [{"type": "output_text", "text": "Hello.", "annotations": []}]
    message = {"type": "message", "id": "m1", "role": "assistant", "status": "completed", "content": content}
    usage = {"input_tokens": 30, "output_tokens": 12, "total_tokens": 42}
    answer = {"id": "r1", "object": "response", "created_at": 1, "status": "completed", "model": body["model"]}
    return {**answer, "output": [message], "usage": usage}


def policy(folder: Path, version: str) -> Path:
    """Prefers the big model where the prompt has a code fence, else the small one."""
    weights = np.zeros((DIM, 3))
    weights[DENSE.index("code_fences"), ACTIONS.index(BIG)] = 5.0
    standard = {"mean": np.zeros(DIM), "scale": np.ones(DIM)}
    arrays = standard | {"weights": weights, "bias": np.array([1.0, 0.0, 0.0])}
    write_policy(
        folder,
        Model("linear", ACTIONS, arrays, EPSILON),
        policy_id="helpdesk-policy",
        version=version,
        revision=1,
        virtual_model=SERVICE,
        incumbent=MID,
        evaluation={},
        created_at="2026-11-30T00:00:00+00:00",
    )
    return folder


@dataclass(frozen=True)
class Stack:
    """Collector, upstream and proxy, joined as in production."""

    url: str
    key: str
    out: Path
    home: Path
    upstream: Upstream
    client: OpenAI = field(repr=False)

    def ask(self, text: str, model: str = SERVICE, **extra: Any) -> httpx.Headers:
        answer = self.client.chat.completions.with_raw_response.create(
            model=model, messages=[{"role": "user", "content": text}], extra_body=extra
        )
        assert answer.parse().choices[0].message.content == "Hello."
        return httpx.Headers(answer.headers)

    def post(self, path: str, body: Mapping[str, Any], key: str | None = None) -> httpx.Response:
        headers = {"authorization": f"Bearer {key or self.key}", "x-api-key": key or self.key}
        return httpx.post(f"{self.url}{path}", json=body, headers=headers, timeout=60)


def wait_for(what: str, found: Callable[[], Any], seconds: float, process: subprocess.Popen[bytes], log: Path) -> Any:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if result := found():
            return result
        if process.poll() is not None:
            break
        time.sleep(0.1)
    raise AssertionError(f"{what} is not there:\n{log.read_text(errors='replace')[-3000:]}")


@contextmanager
def running(command: list[str], log: Path, **environment: str) -> Iterator[subprocess.Popen[bytes]]:
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("RETROUTE_", "OTEL_"))}
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, env=inherited | environment, stdout=output, stderr=subprocess.STDOUT, cwd=log.parent
        )
        try:
            yield process
        finally:
            process.terminate()
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def alive(url: str) -> bool:
    try:
        return httpx.get(url, timeout=5).status_code == 200
    except httpx.HTTPError:
        return False


def settled(home: Path) -> pl.DataFrame:
    """Model calls of the service so far."""
    with Lake.open(home) as lake:
        calls = lake.query("calls", service=SERVICE, since_ns=None, until_ns=None)
    return calls.filter(pl.col("kind") == "llm")


def settled_sessions(home: Path, sessions: Mapping[str, int]) -> pl.DataFrame:
    """Model calls so far, once there are so many of each session."""
    deadline = time.monotonic() + 90
    while True:
        calls = settled(home)
        if all(len(calls.filter(pl.col("session_id") == name)) >= count for name, count in sessions.items()):
            return calls
        assert time.monotonic() < deadline, calls
        time.sleep(0.5)


@contextmanager
def collecting(root: Path) -> Iterator[tuple[Path, str]]:
    """A running collector: its home and the address for traces."""
    home, log = root / "home", root / "collector.log"
    checkout = str(Path(__file__).resolve().parent.parent)
    ports = ["--port", "0", "--grpc-port", "0"]
    command = [sys.executable, "-m", "optimizer.cli", "collect", "--home", str(home), *ports]
    with running(command, log, PYTHONPATH=checkout) as process:
        state = home / "collector.json"
        wait_for("the collector", state.is_file, 60, process, log)
        yield home, f"http://127.0.0.1:{json.loads(state.read_text())['port']}/v1/traces"


@contextmanager
def proxying(command: Path, out: Path, log: Path, provider: str, **environment: str) -> Iterator[tuple[str, str, int]]:
    """A LiteLLM proxy with the bundle in `out`, whose models are all behind `provider`: address, key and process id."""
    key, port = "sk-" + secrets.token_hex(16), free_port()
    own = {"LITELLM_MASTER_KEY": key, "LITELLM_LOCAL_MODEL_COST_MAP": "True", "NO_PROXY": "127.0.0.1"}
    for name in ("SMALL_1", "MID_7B", "BIG_3"):
        own |= {f"{name}_API_BASE": provider, f"{name}_API_KEY": f"key-of-{name}"}
    started = [str(command), "--config", str(out / "config.yaml"), "--host", "127.0.0.1", "--port", str(port)]
    with running(started, log, **own | environment) as process:
        url = f"http://127.0.0.1:{port}"
        wait_for("the proxy", lambda: alive(f"{url}/health/liveliness"), 180, process, log)
        yield url, key, process.pid


@contextmanager
def stacked(
    command: Path, root: Path, prepare: Callable[[Path], object] | None = None, **environment: str
) -> Iterator[Stack]:
    """Collector, provider and proxy, joined as in production. `prepare` may change the exported bundle."""
    out = root / "bundle"
    export(policy(root / "policy", "v1"), out, SERVICE)
    if prepare is not None:
        prepare(out)
    with ExitStack() as opened:
        upstream = opened.enter_context(Upstream())
        threading.Thread(target=upstream.serve_forever, daemon=True).start()
        opened.callback(upstream.shutdown)
        home, traces = opened.enter_context(collecting(root))
        telemetry = {
            "OTEL_EXPORTER": "otlp_http",
            "OTEL_ENDPOINT": traces,
            "OTEL_SERVICE_NAME": SERVICE,
            "OTEL_BSP_SCHEDULE_DELAY": "200",
        }
        url, key, _ = opened.enter_context(
            proxying(command, out, root / "proxy.log", upstream.url, **telemetry | environment)
        )
        client = opened.enter_context(OpenAI(base_url=f"{url}/v1", api_key=key, max_retries=0, timeout=60))
        yield Stack(url, key, out, home, upstream, client)
