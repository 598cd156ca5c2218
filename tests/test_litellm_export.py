"""End to end: the exported bundle in the real LiteLLM proxy, its telemetry back in our own `calls`.

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
from contextlib import contextmanager
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
from optimizer.runtime import DENSE, DIM, Model, decode_features, featurise

REQUIREMENTS = ("litellm[proxy]==1.108.7", "opentelemetry-sdk", "opentelemetry-exporter-otlp-proto-http")
SERVICE = "helpdesk"
SMALL, MID, BIG = ACTIONS = ("small-1", "mid-7b|plan", "big.3")
MODEL_OF = {SMALL: "small-1", MID: "mid-7b", BIG: "big.3"}
EPSILON = 0.3
SHARES = {round(EPSILON / 3, 9), round(1 - EPSILON + EPSILON / 3, 9)}
CODE = "Why does this fail?\n```python\nprint(x)\n```"


@pytest.fixture(scope="module")
def litellm_command(request: pytest.FixtureRequest) -> Path:
    """The `litellm` command of an environment with the proxy."""
    assert request.config.cache is not None
    given = os.environ.get("RETROUTE_LITELLM_VENV")
    folder = Path(given) if given else request.config.cache.mkdir("litellm-venv")
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
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.server.asked.append((self.path, body))
        if self.path.endswith("/responses"):
            data, kind = response(body), "application/json"
        elif body.get("stream"):
            data, kind = stream(body), "text/event-stream"
        else:
            data, kind = completion(body), "application/json"
        self.send_response(200)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


USAGE = {"prompt_tokens": 30, "completion_tokens": 12, "total_tokens": 42}


def completion(body: Mapping[str, Any]) -> bytes:
    message = {"role": "assistant", "content": "Hello."}
    choice = {"index": 0, "message": message, "finish_reason": "stop"}
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
    content = [{"type": "output_text", "text": "Hello.", "annotations": []}]
    message = {"type": "message", "id": "m1", "role": "assistant", "status": "completed", "content": content}
    usage = {"input_tokens": 30, "output_tokens": 12, "total_tokens": 42}
    answer = {"id": "r1", "object": "response", "created_at": 1, "status": "completed", "model": body["model"]}
    return json.dumps({**answer, "output": [message], "usage": usage}).encode()


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

    def post(self, path: str, body: Mapping[str, Any]) -> httpx.Response:
        headers = {"authorization": f"Bearer {self.key}", "x-api-key": self.key}
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


@pytest.fixture(scope="module")
def stack(litellm_command: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    root = tmp_path_factory.mktemp("litellm")
    home, out = root / "home", root / "bundle"
    export(policy(root / "policy", "v1"), out, SERVICE)
    upstream = Upstream()
    threading.Thread(target=upstream.serve_forever, daemon=True).start()
    checkout = str(Path(__file__).resolve().parent.parent)
    collector = [
        sys.executable,
        "-m",
        "optimizer.cli",
        "collect",
        "--home",
        str(home),
        "--port",
        "0",
        "--grpc-port",
        "0",
    ]
    with running(collector, root / "collector.log", PYTHONPATH=checkout) as collecting:
        state = home / "collector.json"
        wait_for("the collector", state.is_file, 30, collecting, root / "collector.log")
        key, port = "sk-" + secrets.token_hex(16), free_port()
        environment = {
            "LITELLM_MASTER_KEY": key,
            "LITELLM_LOCAL_MODEL_COST_MAP": "True",
            "OTEL_EXPORTER": "otlp_http",
            "OTEL_ENDPOINT": f"http://127.0.0.1:{json.loads(state.read_text())['port']}/v1/traces",
            "OTEL_SERVICE_NAME": SERVICE,
            "OTEL_BSP_SCHEDULE_DELAY": "200",
            "NO_PROXY": "127.0.0.1",
        }
        for name in ("SMALL_1", "MID_7B", "BIG_3"):
            environment |= {f"{name}_API_BASE": upstream.url, f"{name}_API_KEY": f"key-of-{name}"}
        command = [
            str(litellm_command),
            "--config",
            str(out / "config.yaml"),
            "--host",
            "127.0.0.1",
            "--port",
            str(port),
        ]
        with running(command, root / "proxy.log", **environment) as proxying:
            url = f"http://127.0.0.1:{port}"
            ready = f"{url}/health/liveliness"
            wait_for("the proxy", lambda: alive(ready), 120, proxying, root / "proxy.log")
            with OpenAI(base_url=f"{url}/v1", api_key=key, max_retries=0, timeout=60) as client:
                yield Stack(url, key, out, home, upstream, client)
    upstream.shutdown()
    upstream.server_close()


def test_the_upstream_gets_the_model_that_the_headers_name(stack: Stack) -> None:
    actions: dict[str, list[str]] = {"Hi": [], CODE: []}
    for text, taken in actions.items():
        for _ in range(12):
            headers = stack.ask(text)
            assert stack.upstream.model == MODEL_OF[headers["x-policy-action"]]
            assert round(float(headers["x-policy-propensity"]), 9) in SHARES
            assert (headers["x-policy-arm"], headers["x-policy-id"]) == ("treatment", "helpdesk-policy")
            taken.append(headers["x-policy-action"])
    # Each is preferred with probability 0.8; fewer than 4 of 12 happen once in 17,000 runs.
    assert actions["Hi"].count(SMALL) >= 4
    assert actions[CODE].count(BIG) >= 4


def test_streams_are_routed_too(stack: Stack) -> None:
    answer = stack.client.chat.completions.with_raw_response.create(
        model=SERVICE, messages=[{"role": "user", "content": "Hi"}], stream=True
    )
    text = "".join(chunk.choices[0].delta.content or "" for chunk in answer.parse() if chunk.choices)
    assert text == "Hello."
    assert stack.upstream.model == MODEL_OF[answer.headers["x-policy-action"]]


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/messages", {"max_tokens": 16, "messages": [{"role": "user", "content": "Hi"}]}),
        ("/v1/responses", {"input": "Hi"}),
    ],
)
def test_the_other_endpoints_are_routed_too(path: str, body: dict[str, Any], stack: Stack) -> None:
    answer = stack.post(path, {"model": SERVICE, **body})
    assert answer.status_code == 200
    assert "Hello." in answer.text
    assert stack.upstream.model == MODEL_OF[answer.headers["x-policy-action"]]


def test_other_models_are_left_alone(stack: Stack) -> None:
    headers = stack.ask("Hi", model=BIG, metadata={"policy.id": "spoof"})
    assert stack.upstream.model == "big.3"
    assert not [name for name in headers if name.startswith("x-policy")]


def test_a_policy_is_renewed_kept_and_killed_while_the_proxy_runs(stack: Stack, tmp_path: Path) -> None:
    folder = stack.out / "policy"
    export(policy(tmp_path / "policy", "v2"), stack.out, SERVICE)
    time.sleep(1.1)  # the hook looks once a second
    assert stack.ask("Hi")["x-policy-version"] == "v2"
    weights = (folder / "weights.npz").read_bytes()
    (folder / "weights.npz").write_bytes(weights[:-1])
    time.sleep(1.1)
    assert stack.ask("Hi")["x-policy-version"] == "v2"
    (folder / "weights.npz").write_bytes(weights)
    (folder / "KILL").touch()
    headers = stack.ask("Hi")
    assert (headers["x-policy-reason"], headers["x-policy-action"]) == ("kill_switch", MID)
    assert headers["x-policy-propensity"] == "1.0"
    (folder / "KILL").unlink()
    assert stack.ask("Hi")["x-policy-reason"] == "policy"


def test_action_propensity_and_features_come_back_in_calls(stack: Stack) -> None:
    sent: list[tuple[str, float]] = []
    for number in range(6):
        metadata = {"session_id": "session-7", "policy.id": "spoof", "policy": {"action": "spoof"}}
        headers = stack.ask(CODE if number % 2 else f"Back again {number}", metadata=metadata)
        sent.append((headers["x-policy-action"], float(headers["x-policy-propensity"])))
    stack.ask("Straight to the model", model=BIG, metadata={"policy.id": "spoof", "session_id": "session-8"})

    deadline = time.monotonic() + 60
    while True:
        calls = settled(stack.home)
        ours = calls.filter(pl.col("session_id") == "session-7")
        if len(ours) >= len(sent) and not calls.filter(pl.col("session_id") == "session-8").is_empty():
            break
        assert time.monotonic() < deadline, calls
        time.sleep(0.5)

    rows = list(ours.sort("start_ns").iter_rows(named=True))
    assert [(row["policy_action"], row["policy_propensity"]) for row in rows] == sent
    for number, row in enumerate(rows):
        assert row["policy_id"] == "helpdesk-policy"
        assert row["policy_arm"] == "treatment"
        assert json.loads(row["policy_candidates"]) == list(ACTIONS)
        shares = json.loads(row["policy_probabilities"])
        assert shares[ACTIONS.index(row["policy_action"])] == row["policy_propensity"]
        assert row["model_requested"] == row["model_returned"] == MODEL_OF[row["policy_action"]]
        assert (row["input_tokens"], row["output_tokens"]) == (30, 12)
        text = CODE if number % 2 else f"Back again {number}"
        used = featurise({"messages": [{"role": "user", "content": text}]})
        assert np.array_equal(decode_features(row["policy_features"]), used)
        assert np.array_equal(featurise({"messages": json.loads(row["input_text"])}), used)
    direct = calls.filter(pl.col("session_id") == "session-8")
    assert direct["policy_id"].to_list() == [None]
    assert "spoof" not in json.dumps(calls["policy_id"].to_list())
    assert "policy" not in json.dumps(stack.upstream.asked)  # providers see nothing of it


def settled(home: Path) -> pl.DataFrame:
    """Model calls of the service so far."""
    with Lake.open(home) as lake:
        calls = lake.query("calls", service=SERVICE, since_ns=None, until_ns=None)
    return calls.filter(pl.col("kind") == "llm")
