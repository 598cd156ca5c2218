"""Cells: world x regime x size, measured over many logs, each appended to a file of JSON lines as it is done.

coverage   the held design: heads, bets and judged decisions apart; both intervals of the change
accuracy   the crossed design: value by every estimator, beside obp's on the same decisions

A chunk of logs is the unit of work and of resumption; its seed follows from the cell's name and its number alone.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import Any, Literal

import numpy as np

from optimizer.ope.sensitivity import change_bounds
from optimizer.threads import one_thread

from . import ours, peers
from .regimes import REGIMES, Log, Scene, scene
from .worlds import NAMES, world

CHUNK = 10
"""Logs that share heads (coverage) or a peer's process (accuracy)."""
GAMMA = 2.0
"""Declared in confounded cells; the true one is below it, see `regimes.gamma`."""
SIZES = (200, 1_000, 3_000, 20_000)
ACCURATE_AT = 3_000

Part = Literal["coverage", "accuracy"]
Record = dict[str, Any]


@dataclass(frozen=True, order=True)
class Cell:
    """One of the table's rows."""

    part: Part
    world: str
    regime: str
    n: int

    @property
    def name(self) -> str:
        return f"{self.part}/{self.world}/{self.regime}/{self.n}"


@dataclass(frozen=True)
class Task:
    """One chunk of a cell."""

    cell: Cell
    chunk: int
    logs: int
    folder: Path | None
    asked: tuple[peers.Asked, ...]


def cells(patterns: Sequence[str], folder: Path | None) -> list[Cell]:
    """All cells whose name one of the patterns fits; worlds without data are left out."""
    found = []
    for name in (name for name in NAMES if world(name, folder) is not None):
        for regime in REGIMES.values():
            whole = regime.told and regime.labels == "all"
            found += [Cell("coverage", name, regime.name, n) for n in SIZES if whole or n in (1_000, 3_000)]
            found += [Cell("accuracy", name, regime.name, n) for n in (ACCURATE_AT, 20_000)]
    return [cell for cell in found if any(fnmatchcase(cell.name, pattern) for pattern in patterns)]


def run(
    wanted: Sequence[Cell],
    logs: int,
    store: Path,
    *,
    folder: Path | None,
    asked: tuple[peers.Asked, ...],
    processes: int,
) -> None:
    """Measure every cell over `logs` logs, except those that the store holds already."""
    done = {(record["cell"], record["log"]) for record in read(store)}
    tasks = []
    for cell in wanted:
        for chunk, first in enumerate(range(0, logs, CHUNK)):
            size = min(CHUNK, logs - first)
            if any((cell.name, first + k) not in done for k in range(size)):
                tasks.append(Task(cell, chunk, size, folder, asked if cell.part == "accuracy" else ()))
    with store.open("a") as file:
        for records in _mapped(tasks, processes):
            for record in records:
                if (record["cell"], record["log"]) not in done:
                    file.write(json.dumps(record) + "\n")
            file.flush()


def read(store: Path) -> Iterator[Record]:
    """All records so far; a torn last line counts as none."""
    if not store.is_file():
        return
    for line in store.read_text().splitlines():
        try:
            yield json.loads(line)
        except ValueError:
            continue


def _mapped(tasks: Sequence[Task], processes: int) -> Iterable[list[Record]]:
    if processes < 2 or len(tasks) < 2:
        yield from map(measure, tasks)
        return
    os.environ["OMP_NUM_THREADS"] = "1"
    with multiprocessing.get_context("spawn").Pool(processes) as pool:
        yield from pool.imap_unordered(measure, tasks)


@cache
def _scene(name: str, regime: str, folder: Path | None) -> Scene:
    found = world(name, folder)
    assert found is not None
    return scene(found, regime)


@cache
def _targets(name: str, folder: Path | None) -> ours.Targets:
    found = world(name, folder)
    assert found is not None
    return ours.targets(found)


def measure(task: Task) -> list[Record]:
    """The records of one chunk."""
    cell = task.cell
    stage, wanted = _scene(cell.world, cell.regime, task.folder), _targets(cell.world, task.folder)
    rng = np.random.default_rng([zlib.crc32(cell.name.encode()), task.chunk])
    with one_thread():
        records = (_covered if cell.part == "coverage" else _accurate)(stage, wanted, task, rng)
    for number, record in enumerate(records):
        record |= {"cell": cell.name, "log": task.chunk * CHUNK + number}
    return records


def _covered(stage: Scene, wanted: ours.Targets, task: Task, rng: np.random.Generator) -> list[Record]:
    n, regime = task.cell.n, stage.regime
    model = ours.heads(stage, max(n, 500), rng)
    records = []
    for _ in range(task.logs):
        between, log = stage.draw(min(n, ours.BETTING), rng), stage.draw(n, rng)
        started = ours.processor_seconds()
        found = ours.evidence(stage, log, model[log.contexts])
        before = ours.evidence(stage, between, model[between.contexts]) if regime.certifiable else None
        record = _judged(stage, wanted, log, found)
        for name, policy in wanted.policies.items():
            shown = record["policies"][name]["change"]
            shown["asymptotic"] = ours.change(found, policy[log.contexts])
            if before is not None:
                shown["certificate"] = ours.certificate(
                    found, policy[log.contexts], before, policy[between.contexts], regime.metric
                )
            if regime.confounded:
                bounds = change_bounds(found, policy[log.contexts], GAMMA, confidence=ours.CONFIDENCE)
                shown["sensitivity"] = (shown["asymptotic"][0], bounds.low_limit, bounds.high_limit)
        records.append(record | {"seconds": ours.processor_seconds() - started})
    return records


def _accurate(stage: Scene, wanted: ours.Targets, task: Task, rng: np.random.Generator) -> list[Record]:
    records, logs = [], []
    for _ in range(task.logs):
        log = stage.draw(task.cell.n, rng)
        started = ours.processor_seconds()
        found = ours.crossed(stage, log)
        record = _judged(stage, wanted, log, found)
        for name, policy in wanted.policies.items():
            record["policies"][name]["value"] = ours.points(found, policy[log.contexts])
        records.append(record | {"seconds": ours.processor_seconds() - started, "peers": {}})
        logs.append(log)
    for asked in task.asked:
        results = peers.ask("obp", stage, logs, list(wanted.policies.values()), asked)
        for record, result in zip(records, results, strict=True):
            record["peers"][f"obp {asked.heads}"] = {
                "seconds": result["seconds"],
                "policies": dict(zip(wanted.policies, result["policies"], strict=True)),
            }
    return records


def _judged(stage: Scene, wanted: ours.Targets, log: Log, found: ours.Evidence) -> Record:
    """The truth of every policy, and how much of it the log can know."""
    shown = {}
    for name, policy in wanted.policies.items():
        mine = policy[log.contexts]
        value = stage.value(policy)
        known = ~np.isnan(found.outcome)
        weight = np.where(known, ours.weights(found, mine) / found.known, 0.0)
        shown[name] = {
            "truth": value,
            "true_change": value - stage.today,
            "effective": ours.effective(weight),
            "issued": ours.issued(found, mine, stage.regime.metric),
            "change": {},
        }
    return {"policies": shown}
