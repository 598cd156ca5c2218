"""Which cells there are, and their measurement in two processes, each chunk appended to a file of JSON lines as it is
done.

A chunk of logs is the unit of work and of resumption; its seed follows from the cell's name and its number alone.
"""

from __future__ import annotations

import json
import multiprocessing
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from . import cells as measured
from . import gate, learning, peers, speed
from .regimes import REGIMES
from .worlds import NAMES, world

SIZES = (200, 1_000, 3_000, 20_000)
ESTIMATED_SIZES = (1_000, 3_000)
"""Where propensities or label chances have to be estimated in every log."""
NIGHTS = (1_000, 4_000)
SPEED_LOGS = 3
_CHUNKS = {**measured.CHUNKS, "gate": gate.CHUNK, "learning": 1, "speed": 1}

Record = dict[str, Any]


@dataclass(frozen=True, order=True)
class Cell:
    """part/world/regime/n, or gate/kind/n."""

    name: str

    @property
    def part(self) -> str:
        return self.name.split("/")[0]


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
    names = []
    for place in (name for name in NAMES if world(name, folder) is not None):
        for regime in REGIMES.values():
            names += [f"coverage/{place}/{regime.name}/{n}" for n in (SIZES if regime.certifiable else ESTIMATED_SIZES)]
            names += [f"accuracy/{place}/{regime.name}/{n}" for n in (3_000, 20_000)]
    names += [f"gate/{kind}/{n}" for kind in gate.KINDS for n in NIGHTS]
    names += ["gate/corner/20000", "gate/typical/20000"]
    names += [f"learning/{place}/{regime}/{n}" for place, regime, n in learning.cells(folder)]
    names += [f"speed/synthetic/soft/{n}" for n in (100_000, 1_000_000)]
    return [Cell(name) for name in names if any(fnmatchcase(name, pattern) for pattern in patterns)]


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
        step = _CHUNKS[cell.part]
        most = min(logs, SPEED_LOGS) if cell.part == "speed" else logs
        for chunk, first in enumerate(range(0, most, step)):
            size = min(step, most - first)
            if any((cell.name, first + k) not in done for k in range(size)):
                tasks.append(Task(cell, chunk, size, folder, asked))
    with store.open("a") as file:
        for records in _mapped(tasks, processes):
            new = [record for record in records if (record["cell"], record["log"]) not in done]
            file.writelines(json.dumps(record) + "\n" for record in new)
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


def measure(task: Task) -> list[Record]:
    """The records of one chunk."""
    part, *place, size = task.cell.name.split("/")
    n = int(size)
    if part == "gate":
        kind = next(kind for kind in gate.KINDS if kind == place[0])
        return gate.nights(kind, n, task.chunk, foil=_has_obp(task) and n in NIGHTS, count=task.logs)
    if part == "speed":
        return [speed.run(n, task.chunk, _has_obp(task))]
    if part == "learning":
        return [learning.run(place[0], place[1], n, task.chunk, task.folder)]
    return measured.measure(task.cell.name, task.chunk, task.logs, task.folder, task.asked)


def _has_obp(task: Task) -> bool:
    return any(one.peer == "obp" for one in task.asked)
