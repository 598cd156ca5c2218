"""A helpdesk in production: a LiteLLM proxy with an exported policy, a server of models whose answers cost and are
worth what a table and the request's own text say, and a collector beside them. Every outcome is known.

The proxy's draws are seeded, so that a run repeats itself.
"""

from __future__ import annotations

import json
import threading
import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import polars as pl
from litellm_proxy import collecting, proxying

from ingest.errors import HomeError
from ingest.lake import Lake
from optimizer import config, runs
from optimizer.bundle import write_policy
from optimizer.export.litellm import export
from optimizer.runtime import Model

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
    session: str
    action: str
    version: str
    arm: str
    reason: str

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

    def ask(self, numbers: Iterable[int], turns: int = 1) -> list[Sent]:
        """Answers to requests, each of which must be answered; so many in a row are of one session."""
        sent = []
        for number in numbers:
            session = f"session-{number // turns:05d}"
            trace = f"{zlib.crc32(b'trace'):08x}{number + 1:024x}"
            answer = self.client.post(
                "/v1/chat/completions",
                headers={"traceparent": f"00-{trace}-{number + 1:016x}-01"},
                json={
                    "model": SERVICE,
                    "messages": [{"role": "user", "content": request(number)}],
                    "metadata": {"session_id": session},
                },
            )
            assert answer.status_code == 200, answer.text
            said = [answer.headers[f"x-policy-{name}"] for name in ("action", "version", "arm", "reason")]
            sent.append(Sent(number, answer.json()["id"], trace, session, *said))
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
        before = self.stored_scores()
        answer = httpx.post(f"{self.collector}/v1/scores", json=scores, trust_env=False)
        assert answer.status_code == 200, answer.text
        deadline = time.monotonic() + 180
        while self.stored_scores() < before + len(scores):
            assert time.monotonic() < deadline
            time.sleep(0.5)

    def stored_scores(self) -> int:
        with Lake.open(self.home) as lake:
            return len(lake.query("scores", service=None, since_ns=None, until_ns=None))


def always(model: str, explored: float = 0.0) -> Model:
    """The policy that takes this model whatever is asked, but for what it explores."""
    return Model("constant", ACTIONS, {"values": np.array([float(name == model) for name in ACTIONS])}, explored)


def first_policy(folder: Path, explored: float) -> Path:
    """What serves at first: the dear model; of the explored requests either one."""
    write_policy(
        folder,
        always(BIG, explored),
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
def running_loop(command: Path, root: Path, settings: str = SETTINGS, explored: float = EXPLORED) -> Iterator[Loop]:
    home, seeded = root / "home", root / "seeded"
    for folder in (home, seeded):
        folder.mkdir(parents=True)
    (home / config.FILE_NAME).write_text(settings)
    (seeded / "sitecustomize.py").write_text(SEEDED)
    out = runs.bundle_folder(home, SERVICE)
    export(first_policy(root / "first", explored), out, SERVICE)
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
        proxy = proxying(command, out, root / "proxy.log", world.url, **telemetry)
        url, key, *_ = opened.enter_context(proxy)
        authorised = {"authorization": f"Bearer {key}"}
        client = opened.enter_context(httpx.Client(base_url=url, headers=authorised, timeout=60, trust_env=False))
        yield Loop(home, world, traces.removesuffix("/v1/traces"), client)
