"""How long the choice of an episode's next step takes: `pytest -m bench tests/bench/test_step_speed.py -s`.

A forest of 20 trees of 63 nodes, 10 actions, the fourth step of an episode: typical of what is exported. In CPU time,
so that a busy machine does not count.
"""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import pytest

from optimizer.bundle import write_policy
from optimizer.runtime import STOP, Model, Router, width

ACTIONS = (*(f"agent-{i}" for i in range(9)), STOP)
TREES, DEPTH = 20, 5
P50_S = 0.3e-3

pytestmark = pytest.mark.bench


def forest() -> Model:
    rng = np.random.default_rng(1)
    inner, nodes = 2**DEPTH - 1, 2 ** (DEPTH + 1) - 1
    place = np.arange(nodes)
    arrays = {
        "feature": np.where(place < inner, rng.integers(width(ACTIONS), size=(TREES, nodes)), -1),
        "threshold": rng.normal(size=(TREES, nodes)),
        "left": np.tile(2 * place + 1, (TREES, 1)),
        "right": np.tile(2 * place + 2, (TREES, 1)),
        "value": rng.normal(size=(TREES, nodes, len(ACTIONS))),
    }
    return Model("trees", ACTIONS, arrays, 0.05)


def test_a_step_is_chosen_within_three_tenths_of_a_millisecond(tmp_path: Path) -> None:
    write_policy(
        tmp_path,
        forest(),
        policy_id="desk",
        version="v1",
        revision=1,
        virtual_model="desk",
        incumbent="agent-0",
        evaluation={},
        created_at="2026-11-30T00:00:00+00:00",
        script=("agent-0", "agent-1", STOP),
        budgets={"cost_usd": 1.0},
    )
    router = Router.load(tmp_path)
    entry = {"status": "ok", "cost_usd": 0.002, "tokens": 900, "seconds": 1.5, "output": "order | day\n" * 20}
    history = [{"action": f"agent-{i}", **entry} for i in range(3)]
    text = "Which table holds the orders of May, and how many of them were paid by card? " * 4
    context = {"messages": [{"role": "user", "content": text}], "history": history, "metadata": {"session": "s"}}
    times = []
    for _ in range(3000):
        start = time.process_time()
        router.decide(context, ACTIONS)
        times.append(time.process_time() - start)
    p50, p95 = np.quantile(times, [0.5, 0.95])
    print(f"p50 {p50 * 1e6:.0f} us, p95 {p95 * 1e6:.0f} us")
    assert p50 <= P50_S
