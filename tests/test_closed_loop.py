"""The whole loop with real programs: a LiteLLM proxy routes and explores, its telemetry goes to `retroute collect`,
scores come late, a night learns from the probabilities that were logged and puts a new policy into the running proxy's
folder, and what the next requests save is what was predicted.

The model server's answers cost and are worth what a table and the request's own text say, so every outcome is known.
The proxy's draws are seeded, so that the whole run repeats itself.
"""

from __future__ import annotations

import json
import random
import threading
import time
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import polars as pl
import pytest
from litellm_proxy import collecting, litellm_command, proxying

from ingest.errors import HomeError
from ingest.lake import Lake
from optimizer import config, doctor, pipeline, runs
from optimizer.bundle import write_policy
from optimizer.export.litellm import export
from optimizer.prediction import forecast_of
from optimizer.runtime import Model, Router

SERVICE = "helpdesk"
SMALL, BIG = ACTIONS = ("small-1", "big-3")
PRICES = {SMALL: (0.2, 0.8), BIG: (4.0, 16.0)}
"""USD per million tokens, in and out."""
WORTH = {"chat": {SMALL: 0.86, BIG: 0.89}, "code": {SMALL: 0.35, BIG: 0.90}}
LENGTH = {SMALL: 90, BIG: 180}
"""Mean tokens of an answer."""
EXPLORED = 0.9
SEED = 7
SETTINGS = """
[services.helpdesk]
value_usd = 0.05
[services.helpdesk.limits]
quality_margin = 0.03
""" + "".join(
    f'[[prices]]\nmodel = "{model}"\ninput = {given}\noutput = {made}\n' for model, (given, made) in PRICES.items()
)


def chance(*parts: object) -> float:
    """A number in [0, 1) that the parts decide."""
    return zlib.crc32(repr(parts).encode()) / 2**32


def kind_of(text: str) -> str:
    return "code" if "```" in text else "chat"


def request(number: int) -> str:
    """The text of a request; a third of them have code."""
    words = " ".join(f"w{number}x{place}" for place in range(5 + int(20 * chance("length", number))))
    if chance("kind", number) < 0.35:
        return f"Ticket {number}. Why does this fail? {words}\n```python\nprint({number})\n```"
    return f"Ticket {number}. Please tell me about {words}"


def tokens(text: str, model: str) -> tuple[int, int]:
    """Tokens in and out of the model's answer to a text."""
    return len(text) // 4, int(LENGTH[model] * (0.5 + chance("out", text, model)))


def cost(text: str, model: str) -> float:
    return sum(count * price for count, price in zip(tokens(text, model), PRICES[model], strict=True)) / 1e6


def quality(text: str, model: str) -> float:
    return min(max(WORTH[kind_of(text)][model] + 0.3 * (chance("worth", text, model) - 0.5), 0.0), 1.0)


class World(ThreadingHTTPServer):
    """An OpenAI-compatible server whose answers are as long as the table says. A model in `down` fails."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Worldly)
        self.answered = 0
        self.down: set[str] = set()
        self.url = f"http://127.0.0.1:{self.server_port}/v1"


class Worldly(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: World
    disable_nagle_algorithm = True

    def log_message(self, format: str, *args: object) -> None:
        pass

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        model, text = body["model"], body["messages"][-1]["content"]
        self.server.answered += 1
        failed = model in self.server.down
        given, made = tokens(text, model)
        answer: dict[str, Any] = {"error": {"message": "down", "type": "server_error"}}
        if not failed:
            message = {"role": "assistant", "content": "Hello."}
            answer = {
                "id": f"chatcmpl-{self.server.answered}",
                "object": "chat.completion",
                "created": 1,
                "model": model,
                "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
                "usage": {"prompt_tokens": given, "completion_tokens": made, "total_tokens": given + made},
            }
        data = json.dumps(answer).encode()
        head = f"HTTP/1.1 {500 if failed else 200} X\r\ncontent-type: application/json\r\n"
        self.wfile.write(head.encode() + f"content-length: {len(data)}\r\n\r\n".encode() + data)


@dataclass(frozen=True)
class Sent:
    """A request that was answered."""

    number: int
    response_id: str
    trace_id: str
    action: str
    version: str

    @property
    def text(self) -> str:
        return request(self.number)


@dataclass(frozen=True)
class Loop:
    """Collector, world and proxy, joined as in production; the proxy runs from the home's own bundle folder."""

    home: Path
    world: World
    collector: str
    client: httpx.Client = field(repr=False)

    def ask(self, numbers: Sequence[int]) -> list[Sent]:
        sent = []
        for number in numbers:
            trace = f"{zlib.crc32(b'trace'):08x}{number + 1:024x}"
            answer = self.client.post(
                "/v1/chat/completions",
                headers={"traceparent": f"00-{trace}-{number + 1:016x}-01"},
                json={
                    "model": SERVICE,
                    "messages": [{"role": "user", "content": request(number)}],
                    "metadata": {"session_id": f"session-{number:05d}"},
                },
            )
            assert answer.status_code == 200, answer.text
            headers = answer.headers
            sent.append(
                Sent(number, answer.json()["id"], trace, headers["x-policy-action"], headers["x-policy-version"])
            )
        return sent

    def settled(self, sent: Sequence[Sent]) -> pl.DataFrame:
        """Model calls of these requests, once all of them are there."""
        traces = [one.trace_id for one in sent]
        deadline = time.monotonic() + 300
        while True:
            calls = self.calls().filter(pl.col("trace_id").is_in(traces))
            if calls["trace_id"].n_unique() == len(traces):
                return calls
            assert time.monotonic() < deadline, f"{len(calls)} of {len(traces)} calls are settled"
            time.sleep(1.0)

    def calls(self) -> pl.DataFrame:
        try:
            with Lake.open(self.home) as lake:
                calls = lake.query("calls", service=SERVICE, since_ns=None, until_ns=None)
        except HomeError:  # the collector has not made it yet
            return pl.DataFrame(schema={"trace_id": pl.String, "kind": pl.String})
        return calls.filter(pl.col("kind") == "llm")

    def score(self, sent: Sequence[Sent], worth: Callable[[Sent], float]) -> None:
        """Half of them by trace, half by the answer's id, as an app would that knows only this."""
        scores = [
            {
                "name": "quality",
                "value": worth(one),
                "source": "user",
                **({"trace_id": one.trace_id} if place % 2 else {"response_id": one.response_id}),
            }
            for place, one in enumerate(sent)
        ]
        answer = httpx.post(f"{self.collector}/v1/scores", json=scores, trust_env=False)
        assert answer.status_code == 200, answer.text
        deadline = time.monotonic() + 180
        while True:
            with Lake.open(self.home) as lake:
                stored = len(lake.query("scores", service=None, since_ns=None, until_ns=None))
            if stored >= len(scores):
                return
            assert time.monotonic() < deadline
            time.sleep(0.5)


def first_policy(folder: Path) -> Path:
    """The dear model for 55 % of the requests, the other for the rest."""
    write_policy(
        folder,
        Model("constant", ACTIONS, {"values": np.array([0.0, 1.0])}, EXPLORED),
        policy_id=SERVICE,
        version="first",
        revision=1,
        virtual_model=SERVICE,
        incumbent=BIG,
        evaluation={},
        created_at="2026-11-30T00:00:00+00:00",
    )
    return folder


SEEDED = f"""
import random

class SystemRandom(random.Random):
    def __init__(self, x=None):
        super().__init__({SEED})

random.SystemRandom = SystemRandom
"""
"""sitecustomize.py of the proxy."""


@contextmanager
def running_loop(command: Path, root: Path, **environment: str) -> Iterator[Loop]:
    home, seeded = root / "home", root / "seeded"
    for folder in (home, seeded):
        folder.mkdir(parents=True)
    (home / config.FILE_NAME).write_text(SETTINGS)
    (seeded / "sitecustomize.py").write_text(SEEDED)
    out = runs.bundle_folder(home, SERVICE)
    export(first_policy(root / "first"), out, SERVICE)
    with ExitStack() as opened:
        world = opened.enter_context(World())
        threading.Thread(target=world.serve_forever, daemon=True).start()
        opened.callback(world.shutdown)
        _, traces = opened.enter_context(collecting(root))
        telemetry = {
            "OTEL_EXPORTER": "otlp_http",
            "OTEL_ENDPOINT": traces,
            "OTEL_SERVICE_NAME": SERVICE,
            "OTEL_BSP_SCHEDULE_DELAY": "500",
            "PYTHONPATH": str(seeded),
        }
        proxy = proxying(command, out, root / "proxy.log", world.url, **telemetry | environment)
        url, key, *_ = opened.enter_context(proxy)
        authorised = {"authorization": f"Bearer {key}"}
        client = opened.enter_context(httpx.Client(base_url=url, headers=authorised, timeout=60, trust_env=False))
        yield Loop(home, world, traces.removesuffix("/v1/traces"), client)


def test_a_policy_learned_from_its_own_exploration_saves_what_was_predicted(
    pytestconfig: pytest.Config, tmp_path: Path
) -> None:
    closes(litellm_command(pytestconfig), tmp_path, 1050, 300)


@pytest.mark.slow
def test_the_loop_closes_over_two_thousand_requests(pytestconfig: pytest.Config, tmp_path: Path) -> None:
    closes(litellm_command(pytestconfig), tmp_path, 2000, 2000)


def closes(command: Path, root: Path, count: int, more: int) -> None:
    with running_loop(command, root) as loop:
        sent = loop.ask(range(count))
        seen = loop.settled(sent)
        as_the_router_drew(root / "first", sent)
        as_in_the_world(sent, seen)
        loop.score(sent, lambda one: quality(one.text, one.action))

        found = pipeline.nightly(loop.home, config.load(loop.home))["services"][SERVICE]
        assert found["data"]["propensity_origin"] == {"logged": count, "estimated": 0}
        assert (found["verdict"], found["data"]["labelled"]) == ("deploy", count), found["reasons"]
        manifest = json.loads((runs.bundle_folder(loop.home, SERVICE) / "policy" / "manifest.json").read_text())
        assert (manifest["revision"], manifest["version"]) == (2, found["run_id"])

        time.sleep(1.2)  # the router looks once a second
        later = loop.ask(range(count, count + more))
        assert {one.version for one in later} == {found["run_id"]}
        after = loop.settled(later)
        as_in_the_world(later, after)
        with Lake.open(loop.home) as lake:
            assert all(row["agree"] == 1.0 for row in doctor.features(lake).rows)
    today = next(row for row in found["table"] if row["policy"] == "today")
    cheap = 1000 * np.mean([cost(one.text, one.action) for one in later])
    good = np.mean([quality(one.text, one.action) for one in later])
    realised = {
        "savings_usd_per_1k": today["cost_usd_per_1k"]["value"] - cheap,
        "quality_change": good - today["quality"]["value"],
    }
    for name, value in realised.items():
        predicted = forecast_of(found["predicted"][name])
        assert predicted is not None
        soon = predicted.after(more)
        assert soon.low <= value <= soon.high, (name, value, soon)
        print(f"{name}: {value:.4g} realised, {soon.value:.4g} predicted, {soon.low:.4g} to {soon.high:.4g}")
        if name == "savings_usd_per_1k":
            assert soon.low > 0  # an interval that says something


def as_the_router_drew(policy: Path, sent: Sequence[Sent]) -> None:
    """The proxy's draws are the seeded ones, so the run repeats itself."""
    router = Router.load(policy, draw=random.Random(SEED).random)
    drawn = [router.decide({"messages": [{"role": "user", "content": one.text}]}).action for one in sent]
    assert [one.action for one in sent] == drawn


def as_in_the_world(sent: Sequence[Sent], calls: pl.DataFrame) -> None:
    """Every call is stored once, with the action and its chance, the model that answered, and its cost."""
    assert len(calls) == len(sent)
    rows: Mapping[str, dict[str, Any]] = {row["trace_id"]: row for row in calls.to_dicts()}
    for one in sent:
        row = rows[one.trace_id]
        assert (row["policy_action"], row["model_returned"]) == (one.action, one.action)
        assert row["response_id"] == one.response_id
        assert row["cost_usd"] == pytest.approx(cost(one.text, one.action))
        assert 0 < row["policy_propensity"] <= 1
        assert row["session_id"] == f"session-{one.number:05d}"
