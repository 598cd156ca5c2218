"""What the exported router costs a LiteLLM proxy: `pytest -m bench tests/bench/test_router_speed.py -s`.

A conversation of 8 messages, 10 actions, a linear policy with the range and the limits of its models. All in processor
time of the process that does it, so that a busy machine counts as little as possible; needs the proxy of
tests/litellm_proxy.py.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path

import httpx
import numpy as np
import pytest
from litellm_proxy import SERVICE, Upstream, litellm_command, proxying

from optimizer.bundle import write_policy
from optimizer.export.litellm import export, variables
from optimizer.runtime import DENSE, DIM, Model

ACTIONS = tuple(f"model-{number}" for number in range(10))
TEXT = "please explain why the python function fails when the table has no rows and count the orders of may"
P50_S, P99_S, LOAD_S, MEMORY_MB, FASTER, DELTA_S = 0.15e-3, 0.7e-3, 50e-3, 30, 4.0, 0.5e-3

pytestmark = pytest.mark.bench

INSIDE = """
import asyncio, importlib.util, json, os, sys, time
import litellm
from litellm.proxy import proxy_server
from litellm.proxy._types import UserAPIKeyAuth

out, service, conversations = json.load(open(sys.argv[1]))

def memory():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6

models = [{"model_name": n, "litellm_params": {"model": "openai/" + n, "api_key": "k", "api_base": "http://x"}}
          for n in ("a", "b", "c", "d")]
tiers = {"SIMPLE": "a", "MEDIUM": "b", "COMPLEX": "c", "REASONING": "d"}
models.append({"model_name": "smart", "litellm_params": {
    "model": "auto_router/complexity_router", "complexity_router_default_model": "b",
    "complexity_router_config": {"tiers": tiers}}})
router = litellm.Router(model_list=models)
before, had_numpy, began = memory(), "numpy" in sys.modules, time.process_time()
spec = importlib.util.spec_from_file_location("policy_router", out + "/policy_router.py")
module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
loaded, grown = time.process_time() - began, memory() - before
handler, key = module.handler, UserAPIKeyAuth(api_key="k")

async def ours(messages):
    data = {"model": service, "messages": messages, "metadata": {"requester_metadata": {"session_id": "s"}}}
    began = time.thread_time_ns()
    data = await handler.async_pre_call_hook(key, None, data, "acompletion")
    took = time.thread_time_ns() - began
    assert data["model"] != service
    return took

async def theirs(messages):
    began = time.thread_time_ns()
    found = await router.async_pre_routing_hook(model="smart", request_kwargs={"metadata": {}}, messages=messages)
    took = time.thread_time_ns() - began
    assert found.model in tiers.values()
    return took

async def main():
    rounds = []
    for _ in range(40):
        rounds.append([sorted([await who(messages) for messages in conversations]) for who in (ours, theirs)])
    print(json.dumps({"load": loaded, "memory": grown, "numpy": had_numpy, "rounds": rounds}))

asyncio.run(main())
"""


def conversation(number: int) -> list[dict[str, str]]:
    """A system message and seven turns of sixty words, each its own."""
    generator = np.random.default_rng(number)
    turns = [{"role": "system", "content": "You are a helpful assistant. " * 8}]
    for turn in range(7):
        text = " ".join(generator.choice(TEXT.split(), 60)) + f" ({number})"
        turns.append({"role": ("user", "assistant")[turn % 2], "content": text})
    return turns


def bundle(folder: Path) -> Path:
    generator = np.random.default_rng(0)
    seen = np.array([np.zeros(len(DENSE)), np.full(len(DENSE), 9.0)])
    arrays = {
        "mean": generator.normal(size=DIM),
        "scale": generator.uniform(0.5, 2.0, DIM),
        "weights": generator.normal(size=(DIM, len(ACTIONS))),
        "bias": generator.normal(size=len(ACTIONS)),
        "seen": seen,
        "able": np.tile([400_000.0, 1.0, 1.0, 0.0], (len(ACTIONS), 1)),
    }
    write_policy(
        folder / "policy",
        Model("linear", ACTIONS, arrays, 0.05),
        policy_id=SERVICE,
        version="v1",
        revision=1,
        virtual_model=SERVICE,
        incumbent=ACTIONS[1],
        evaluation={},
        created_at="2026-11-30T00:00:00+00:00",
    )
    export(folder / "policy", folder / "out", SERVICE)
    return folder / "out"


def test_the_hook_is_quick_and_small(tmp_path: Path, pytestconfig: pytest.Config) -> None:
    told = json.dumps([str(bundle(tmp_path)), SERVICE, [conversation(number) for number in range(150)]])
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("RETROUTE_", "OTEL_"))}
    (tmp_path / "told.json").write_text(told, encoding="utf-8")
    result = subprocess.run(
        [str(litellm_command(pytestconfig).parent / "python"), "-c", INSIDE, str(tmp_path / "told.json")],
        env=environment | {"LITELLM_LOCAL_MODEL_COST_MAP": "True", "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert result.returncode == 0, result.stderr[-3000:]
    found = json.loads(result.stdout.splitlines()[-1])

    def at(share: float, who: int) -> float:
        """The quietest round's, in seconds."""
        return min(one[who][int(share * len(one[who]))] for one in found["rounds"]) / 1e9

    ratio = statistics.median(one[1][len(one[1]) // 2] / one[0][len(one[0]) // 2] for one in found["rounds"])
    print(
        f"hook p50 {at(0.5, 0) * 1e3:.3f} ms, p99 {at(0.99, 0) * 1e3:.3f} ms; LiteLLM's heuristic router "
        f"p50 {at(0.5, 1) * 1e3:.3f} ms, {ratio:.1f} times ours; load {found['load'] * 1e3:.0f} ms, "
        f"memory {found['memory']:.1f} MB, numpy there before: {found['numpy']}"
    )
    assert at(0.5, 0) <= P50_S
    assert at(0.99, 0) <= P99_S
    assert ratio >= FASTER
    assert found["load"] <= LOAD_S
    assert found["memory"] <= MEMORY_MB


def test_a_routed_request_costs_the_proxy_little_more_than_a_direct_one(
    tmp_path: Path, pytestconfig: pytest.Config
) -> None:
    """Pairs of a routed and a direct request, in turn first: the processor time of the proxy between them."""
    out = bundle(tmp_path)
    with Upstream() as upstream:
        threading.Thread(target=upstream.serve_forever, daemon=True).start()
        own = {"OTEL_EXPORTER": "otlp_http", "OTEL_ENDPOINT": f"{upstream.url}/traces"}
        for name in variables(ACTIONS).values():
            own |= {f"{name}_API_BASE": upstream.url, f"{name}_API_KEY": "k"}
        command = litellm_command(pytestconfig)
        with proxying(command, out, tmp_path / "proxy.log", upstream.url, **own) as (url, key, pid):
            headers = {"authorization": f"Bearer {key}"}
            with httpx.Client(headers=headers, timeout=60) as client:
                deltas, walls = pairs(client, f"{url}/v1/chat/completions", processor_time(pid))
        upstream.shutdown()
    print(f"routed - direct: processor {deltas * 1e3:+.2f} ms, wall clock {walls * 1e3:+.2f} ms (medians of pairs)")
    assert deltas <= DELTA_S


def pairs(client: httpx.Client, url: str, spent: Callable[[], float]) -> tuple[float, float]:
    deltas, walls = [], []
    for number in range(-20, 600):
        took = {}
        models = [SERVICE, ACTIONS[number % len(ACTIONS)]]
        for model in models if number % 2 else reversed(models):
            before, began = spent(), time.perf_counter()
            answer = client.post(url, json={"model": model, "messages": conversation(number + 20)})
            assert answer.status_code == 200
            wall = time.perf_counter() - began
            time.sleep(0.02)  # what the proxy does after the answer belongs to this request
            took[model == SERVICE] = (spent() - before, wall)
        if number >= 0:
            deltas.append(took[True][0] - took[False][0])
            walls.append(took[True][1] - took[False][1])
    return statistics.median(deltas), statistics.median(walls)


def processor_time(pid: int) -> Callable[[], float]:
    """Seconds that a process has run so far, all its threads together."""
    tasks = Path(f"/proc/{pid}/task")

    def spent() -> float:
        return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks.iterdir()) / 1e9

    return spent
