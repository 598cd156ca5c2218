"""How long backward fitted Q takes on a log with all features of a router, by processor seconds of one thread."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from optimizer.dataset import Floats, Ints
from optimizer.rewards import RewardSpec
from optimizer.runtime import DIM, STEP_DENSE, STOP, width
from optimizer.sequential.episodes import EpisodeLog
from optimizer.sequential.fitted_q import fitted_q, tried
from optimizer.threads import one_thread

from .learned import Promise

NAMES = ("plan", "search", "code", "check", STOP)
HORIZON, SWEEPS = 6, 3
SECONDS = 60.0


def run(decisions: int) -> dict[str, Any]:
    """Seconds of each sweep on about so many decisions."""
    log = wide_log(decisions // HORIZON + 1, 0)
    may = tried(log)
    started, found = time.process_time(), []
    with one_thread():
        learner = fitted_q(log, RewardSpec(1.0), may, seed=0)
        for _ in range(SWEEPS):
            values = next(learner)
            found.append(time.process_time() - started)
        values.lower(log.features)
        found.append(time.process_time() - started)
    return {"decisions": len(log.actions), "features": log.features.shape[1], "sweeps": found[:-1], "all": found[-1]}


def promises(found: dict[str, Any]) -> list[Promise]:
    """What is promised of it."""
    name = f"seconds of {SWEEPS} sweeps on {found['decisions']:,} decisions, and their values there"
    return [Promise(name, f"<= {SECONDS:g}", found["all"], found["all"] <= SECONDS)]


def wide_log(episodes: int, seed: int) -> EpisodeLog:
    """Episodes of a script that explores one step in each; features as a router has them, their contents drawn."""
    rng = np.random.default_rng(seed)
    a = len(NAMES)
    kind = rng.integers(3, size=episodes)
    prompts = rng.normal(size=(episodes, DIM))
    prompts[np.arange(episodes), kind] += 2.0
    progress, explored = np.zeros(episodes, dtype=np.int64), rng.integers(HORIZON, size=episodes)
    alive, counts, last = np.ones(episodes, dtype=np.bool_), np.zeros((episodes, a)), np.full(episodes, a)
    parts: dict[str, list[Floats | Ints]] = {name: [] for name in ("x", "a", "b", "episode", "step")}
    for t in range(HORIZON):
        now = np.flatnonzero(alive)
        steps = np.zeros((len(now), len(STEP_DENSE)))
        steps[:, 0] = np.log1p(t)
        steps[:, STEP_DENSE.index("signal_last")] = progress[now] / 4
        row = np.column_stack([prompts[now], steps, np.log1p(counts[now]), np.eye(a + 1)[last[now], :a]])
        script = a - 1 if t == HORIZON - 1 else t % (a - 1)
        offered = a if t else a - 1
        share = np.where(explored[now] >= t, 1 / (HORIZON - t), 0.0)
        behaviour = np.zeros((len(now), a))
        behaviour[:, :offered] = share[:, None] / offered
        behaviour[:, script] += 1 - share
        action = np.where(explored[now] == t, rng.integers(offered, size=len(now)), script)
        for name, value in {"x": row, "a": action, "b": behaviour, "episode": now}.items():
            parts[name].append(value)
        parts["step"].append(np.full(len(now), t))
        works = action < a - 1
        better = works & (rng.random(len(now)) < np.where(action % 3 == kind[now], 0.7, 0.2))
        progress[now] = np.minimum(progress[now] + better, 4)
        counts[now[works], action[works]] += 1
        last[now], alive[now] = action, works
    every = {name: np.concatenate(values) for name, values in parts.items()}
    order = np.lexsort((every["step"], every["episode"]))
    features = every["x"][order].astype(np.float16).astype(np.float32)
    assert features.shape[1] == width(NAMES)
    n = len(order)
    return EpisodeLog(
        features=features,
        actions=every["a"][order],
        behaviour=every["b"][order],
        cost_usd=np.where(every["a"][order] < a - 1, 0.02, 0.0),
        latency_s=np.ones(n),
        stop_quality=np.full(n, np.nan),
        episode=every["episode"][order],
        quality=(rng.random(episodes) < 0.1 + 0.2 * progress).astype(np.float64),
        groups=np.arange(episodes),
        time_ns=np.arange(episodes),
        action_names=NAMES,
        propensities_logged=True,
    )
