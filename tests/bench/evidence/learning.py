"""Learning from logged bandit feedback only: retroute's `learn` and `assess` from log to verdict, on worlds where the
value of every policy is known.

A log is drawn with repetition from 70 % of a world's contexts; policies are valued on the other 30 %, which no log ever
shows. Sessions are contexts, so that the study splits by prompt. "Most useful" is the candidate that the choosing
decisions rate highest, whatever it costs; "suggested" has to save as well; "greedy" is the suggestion without its
exploration; "gated" is the suggestion where the gate deploys it, else what ran. Best single and oracle are told the
truth; no rule of ours may.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from optimizer.dataset import Floats
from optimizer.gate import Limits
from optimizer.logged import Logged
from optimizer.policy import Learned
from optimizer.runtime import Model
from optimizer.study import assess, learn
from optimizer.threads import one_thread

from . import ours
from .regimes import Scene, scene
from .worlds import NAMES, World, world

SEEN = 0.7
WORTH = {"soft": 10.0, "incumbent": 100.0}
"""By regime: a unit of quality is worth this many times the mean cost of a decision. Where the strongest model is the
incumbent quality comes first; elsewhere cost counts."""
EPSILON = 0.05
SIZES = (3_000, 20_000)
LIMITS = Limits()


@dataclass(frozen=True)
class Value:
    """Means per decision over the contexts that no log showed."""

    quality: float
    cost_usd: float
    utility: float


def cells(folder: Path | None, sizes: Sequence[int] = SIZES) -> list[tuple[str, str, int]]:
    """(world, regime, n) of all cells."""
    present = [name for name in NAMES if world(name, folder) is not None]
    return [(name, regime, n) for n in sizes for name in present for regime in WORTH]


@cache
def _parts(name: str, regime: str, folder: Path | None, chunk: int) -> tuple[Scene, Scene]:
    """The world as logs show it, and its other contexts."""
    whole = world(name, folder)
    assert whole is not None
    order = np.random.default_rng([zlib.crc32(name.encode()), chunk]).permutation(len(whole))
    cut = int(SEEN * len(whole))
    full = scene(whole, regime)
    return _part(full, order[:cut]), _part(full, order[cut:])


def _part(full: Scene, rows: np.ndarray) -> Scene:
    one = full.world
    fewer = World(
        one.name,
        one.features[rows],
        one.quality[rows],
        one.cost_usd[rows],
        one.hidden[rows],
        one.names,
        one.chance,
    )
    return replace(full, world=fewer, behaviours=tuple(b[rows] for b in full.behaviours), outcome=full.outcome[rows])


def run(name: str, regime: str, n: int, number: int, folder: Path | None) -> dict[str, Any]:
    """One log: what was suggested, what the gate said, and what each policy is truly worth."""
    shown, other = _parts(name, regime, folder, number)
    rng = np.random.default_rng([zlib.crc32(f"{name}/{regime}/{n}".encode()), number])
    log = shown.draw(n, rng)
    cost = shown.world.cost_usd[log.contexts, log.actions]
    data = replace(ours.dataset(shown, log), cost_usd=cost, groups=log.contexts)
    worth = WORTH[regime] * float(cost.mean())
    started = ours.processor_seconds()
    with one_thread():
        lessons = learn(Logged(data, None, 0.0), LIMITS, worth, epsilon=EPSILON, seed=0)
        learned = ours.processor_seconds() - started
        verdict = assess(data, lessons.suggestion, LIMITS, seed=0).verdict.outcome
    today = other.behaviours[0]
    model = lessons.suggestion.model
    suggested = today if model is None else _probabilities(model, other, today)
    greedy = today if model is None else _probabilities(replace(model, epsilon=0.0), other, today)
    quality, costs = other.world.quality, other.world.cost_usd
    utility = quality - costs / worth
    best = np.eye(len(data.action_names))[int(utility.mean(axis=0).argmax())]
    strongest = np.eye(len(data.action_names))[int(quality.mean(axis=0).argmax())]
    free = max(lessons.frontier, key=lambda one: one.utility, default=None)
    policies = {
        "logged": today,
        "most useful": today if free is None else _probabilities(free.candidate.model, other, today),
        "suggested": suggested,
        "greedy": greedy,
        "gated": suggested if verdict == "deploy" else today,
        "best single": np.tile(best, (len(quality), 1)),
        "strongest single": np.tile(strongest, (len(quality), 1)),
        "oracle": np.eye(len(best))[utility.argmax(axis=1)],
    }
    return {
        "cell": f"learning/{name}/{regime}/{n}",
        "log": number,
        "label": lessons.suggestion.label,
        "verdict": verdict,
        "seconds": {"learn": learned, "all": ours.processor_seconds() - started},
        "values": {
            key: [float((policy * of).sum(axis=1).mean()) for of in (quality, costs, utility)]
            for key, policy in policies.items()
        },
    }


def _probabilities(model: Model, other: Scene, behaviour: Floats) -> Floats:
    return Learned(model, other.world.names).probabilities(other.world.features, behaviour)


@dataclass(frozen=True)
class Lesson:
    """Of one cell: mean true values over its logs."""

    cell: str
    logs: int
    deployed: float
    seconds: float
    values: dict[str, Value]
    """By policy."""


def lessons(records: Iterable[dict[str, Any]]) -> list[Lesson]:
    """By cell, in order of their names."""
    gathered: dict[str, list[dict[str, Any]]] = {}
    for record in records:
        if record["cell"].startswith("learning/"):
            gathered.setdefault(record["cell"], []).append(record)
    found = []
    for cell, seen in sorted(gathered.items()):
        values = {
            key: Value(*(float(np.mean([r["values"][key][k] for r in seen])) for k in range(3)))
            for key in seen[0]["values"]
        }
        deployed = float(np.mean([r["verdict"] == "deploy" for r in seen]))
        found.append(Lesson(cell, len(seen), deployed, float(np.mean([r["seconds"]["all"] for r in seen])), values))
    return found


def table(found: Sequence[Lesson]) -> str:
    """Markdown: quality at USD per 1,000 of every policy."""
    if not found:
        return ""
    names = list(found[0].values)
    lines = ["| cell | logs | deployed | s | " + " | ".join(names) + " |", "| --- " * (4 + len(names)) + "|"]
    for one in found:
        values = [f"{v.quality:.3f} at {1000 * v.cost_usd:.3g} (u {v.utility:.3f})" for v in one.values.values()]
        head = [one.cell, str(one.logs), f"{one.deployed:.2f}", f"{one.seconds:.1f}"]
        lines.append("| " + " | ".join([*head, *values]) + " |")
    return "\n".join(lines)
