"""A small orchestration whose best policy is known exactly: tasks of three types, five helpers, and STOP."""

from __future__ import annotations

import numpy as np

from optimizer.dataset import Floats
from optimizer.sequential.episodes import STOP, EpisodeLog

NAMES = ("plan", "search", "code", "check", "expert", STOP)
TYPES, PROGRESS, STAGES, ACTIONS = 3, 5, 8, len(NAMES)
SCRIPT = (0, 1, 2, 3, 2, 3, 1, 5)
"""What the operator does at each stage, whatever the task."""
COST = np.array([0.01, 0.03, 0.03, 0.01, 0.12, 0.0])
QUALITY = np.array([0.05, 0.25, 0.5, 0.75, 0.95])
"""Chance of a right answer by how far the task has come."""
ADVANCE = np.array(
    [
        [0.30, 0.20, 0.80, 0.10, 0.60],  # easy: code it
        [0.20, 0.75, 0.15, 0.10, 0.60],  # to be looked up
        [0.10, 0.10, 0.15, 0.30, 0.85],  # hard: ask the expert
    ]
)
"""(types, helpers) chance that a helper brings the task one step further."""
AGAIN = 0.6
"""A helper that acts twice in a row helps less the second time."""


def _advance() -> Floats:
    """(types, last, actions) chance of progress; `last` has one place more, for none yet."""
    table = np.zeros((TYPES, ACTIONS + 1, ACTIONS))
    table[:, :, :5] = ADVANCE[:, None, :]
    for action in range(5):
        table[:, action, action] *= AGAIN
    return table


CHANCE = _advance()


def features(kind: np.ndarray, progress: np.ndarray, last: np.ndarray, stage: np.ndarray) -> Floats:
    """(n, d) all of the state."""
    return np.column_stack(
        [np.eye(TYPES)[kind], progress, np.eye(ACTIONS + 1)[last], stage, np.full(len(kind), STAGES) - stage]
    ).astype(np.float64)


def states() -> tuple[np.ndarray, ...]:
    """Every state of a stage: type, progress, last action."""
    grid = np.meshgrid(np.arange(TYPES), np.arange(PROGRESS), np.arange(ACTIONS + 1), indexing="ij")
    return tuple(part.ravel() for part in grid)


OWN = TYPES + 1 + np.arange(ACTIONS)[None, :]
"""(1, actions) places of the features that tell whether an action was the last one."""


def grid() -> Floats:
    """(stages * states, d) features of every state of every stage."""
    kind, progress, last = states()
    return np.concatenate([features(kind, progress, last, np.full(len(kind), stage)) for stage in range(STAGES)])


def gain(policy: Floats) -> float:
    """Share of what is possible, from the script to the best, that a policy (stages * states, actions) truly gains."""
    script = exact(of_script())
    return (exact(list(policy.reshape(STAGES, -1, ACTIONS))) - script) / (exact(None) - script)


def exact(policy: list[Floats] | None) -> float:
    """Mean utility of a policy, given as (states, actions) for each stage; None: of the best one. By backward
    recursion over all states."""
    kind, progress, last = states()
    after = np.zeros((TYPES, PROGRESS, ACTIONS + 1))
    after += QUALITY[None, :, None]  # past the last stage the answer stands as it is
    for stage in range(STAGES - 1, -1, -1):
        worth = np.empty((len(kind), ACTIONS))
        for action in range(ACTIONS - 1):
            p = CHANCE[kind, last, action]
            on = np.minimum(progress + 1, PROGRESS - 1)
            worth[:, action] = p * after[kind, on, action] + (1 - p) * after[kind, progress, action] - COST[action]
        worth[:, -1] = QUALITY[progress]
        value = worth.max(axis=1) if policy is None else (policy[stage] * worth).sum(axis=1)
        after = value.reshape(TYPES, PROGRESS, ACTIONS + 1)
    return float(after[:, 0, ACTIONS].mean())


def of_script() -> list[Floats]:
    return [np.tile(np.eye(ACTIONS)[SCRIPT[stage]], (TYPES * PROGRESS * (ACTIONS + 1), 1)) for stage in range(STAGES)]


def draw(episodes: int, seed: int, *, one_step: bool = True, epsilon: float = 0.15) -> EpisodeLog:
    """Episodes of the operator. one_step: in each one a single step, uniformly chosen, is drawn evenly among all
    actions; else every step with probability epsilon."""
    rng = np.random.default_rng(seed)
    kind = rng.integers(TYPES, size=episodes)
    progress, last = np.zeros(episodes, dtype=np.int64), np.full(episodes, ACTIONS)
    alive, explored = np.ones(episodes, dtype=bool), np.zeros(episodes, dtype=bool)
    explores_at = rng.integers(STAGES, size=episodes)
    rows: dict[str, list[np.ndarray]] = {name: [] for name in ("x", "a", "b", "cost", "episode", "stage")}
    for stage in range(STAGES):
        now = np.flatnonzero(alive)
        if one_step:
            rate = np.where(explored[now], 0.0, 1 / (STAGES - stage))
            random = explores_at[now] == stage
            explored[now] |= random
        else:
            rate = np.full(len(now), epsilon)
            random = rng.random(len(now)) < epsilon
        action = np.where(random, rng.integers(ACTIONS, size=len(now)), SCRIPT[stage])
        behaviour = np.tile(rate[:, None] / ACTIONS, (1, ACTIONS))
        behaviour[:, SCRIPT[stage]] += 1 - rate
        for name, value in {
            "x": features(kind[now], progress[now], last[now], np.full(len(now), stage)),
            "a": action,
            "b": behaviour,
            "cost": COST[action],
            "episode": now,
            "stage": np.full(len(now), stage),
        }.items():
            rows[name].append(value)
        moved = (rng.random(len(now)) < CHANCE[kind[now], last[now], action]) & (action < ACTIONS - 1)
        progress[now] = np.minimum(progress[now] + moved, PROGRESS - 1)
        last[now] = action
        alive[now] = action < ACTIONS - 1
    every = {name: np.concatenate(parts) for name, parts in rows.items()}
    order = np.lexsort((every["stage"], every["episode"]))
    return EpisodeLog(
        features=every["x"][order],
        actions=every["a"][order],
        behaviour=every["b"][order],
        cost_usd=every["cost"][order],
        latency_s=np.ones(len(order)),
        stop_quality=np.full(len(order), np.nan),
        episode=every["episode"][order],
        quality=(rng.random(episodes) < QUALITY[progress]).astype(np.float64),
        groups=np.arange(episodes),
        time_ns=np.arange(episodes),
        action_names=NAMES,
        propensities_logged=True,
    )
