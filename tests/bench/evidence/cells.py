"""Cells of coverage and accuracy: a world under a regime at a size, measured log by log.

coverage   the held design: heads, bets and judged decisions apart; both intervals of the change
accuracy   the crossed design: value by every estimator, beside obp's on the same decisions
"""

from __future__ import annotations

import zlib
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from optimizer.evidence import Evaluation
from optimizer.gate import Estimate
from optimizer.ope.sensitivity import change_bounds
from optimizer.threads import one_thread

from . import ours, peers
from .regimes import Log, Scene, scene
from .worlds import world

CHUNKS = {"coverage": 10, "accuracy": 20}
"""Logs that share heads, or a peer's process."""
GAMMA = 2.0
"""Declared in confounded cells; the true one is below it, see `regimes.gamma`."""
Record = dict[str, Any]


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


def measure(cell: str, chunk: int, logs: int, folder: Path | None, asked: tuple[peers.Asked, ...]) -> list[Record]:
    """The records of one chunk of the cell part/world/regime/n; peers are asked about accuracy only."""
    part, place, regime, size = cell.split("/")
    stage, wanted = _scene(place, regime, folder), _targets(place, folder)
    rng = np.random.default_rng([zlib.crc32(cell.encode()), chunk])
    with one_thread():
        if part == "coverage":
            records = _covered(stage, wanted, int(size), logs, rng)
        else:
            records = _accurate(stage, wanted, int(size), logs, asked, rng)
    for number, record in enumerate(records):
        record |= {"cell": cell, "log": chunk * CHUNKS[part] + number}
    return records


def _covered(stage: Scene, wanted: ours.Targets, n: int, logs: int, rng: np.random.Generator) -> list[Record]:
    regime = stage.regime
    model = ours.heads(stage, max(n, 500), rng) if regime.certifiable else None
    records = []
    for _ in range(logs):
        between, log = stage.draw(min(n, ours.BETTING), rng), stage.draw(n, rng)
        started = ours.processor_seconds()
        if model is None:
            found, before = ours.held(stage, between, log), None
        else:
            found, before = (ours.by_heads(stage, one, model) for one in (log, between))
        record = _judged(stage, wanted, log, found)
        for name, policy in wanted.policies.items():
            mine, shown = policy[log.contexts], record["policies"][name]["change"]
            shown["asymptotic"] = ours.change(found.outcomes[regime.metric], mine)
            if before is not None:
                shown["certificate"] = ours.certificate(found, mine, before, policy[between.contexts], regime.metric)
                if not regime.heavy:
                    shown["smoothed"] = ours.smoothed(found, mine, change=True)
            if regime.confounded:
                bounds = change_bounds(found.outcomes["quality"], mine, GAMMA, confidence=ours.CONFIDENCE)
                shown["sensitivity"] = (shown["asymptotic"][0], bounds.low_limit, bounds.high_limit)
        records.append(record | {"seconds": ours.processor_seconds() - started})
    return records


def _accurate(
    stage: Scene,
    wanted: ours.Targets,
    n: int,
    logs: int,
    asked: tuple[peers.Asked, ...],
    rng: np.random.Generator,
) -> list[Record]:
    records, given = [], []
    policies = list(wanted.policies.values())
    for _ in range(logs):
        log = stage.draw(n, rng)
        started = ours.processor_seconds()
        found = ours.crossed(stage, log)
        record = _judged(stage, wanted, log, found)
        for name, policy in wanted.policies.items():
            values = ours.points(found.outcomes[stage.regime.metric], policy[log.contexts])
            if stage.regime.certifiable and not stage.regime.heavy:
                values["smoothed"] = ours.smoothed(found, policy[log.contexts], change=False)
            record["policies"][name]["value"] = values
        records.append(record | {"seconds": ours.processor_seconds() - started, "peers": {}})
        given.append(peers.handed(stage, log, policies))
    for one in asked:
        results = peers.ask(given, one)
        for record, result in zip(records, results, strict=True):
            record["peers"][one.title] = {
                "seconds": result["seconds"],
                "policies": dict(zip(wanted.policies, result["policies"], strict=True)),
            }
    return records


def _judged(stage: Scene, wanted: ours.Targets, log: Log, found: Evaluation) -> Record:
    """The truth of every policy, and how much of it the log can know."""
    shown = {}
    for name, policy in wanted.policies.items():
        mine, value = policy[log.contexts], stage.value(policy)
        shown[name] = {
            "truth": value,
            "true_change": value - stage.today,
            "effective": found.effective(mine, stage.regime.metric),
            "issued": isinstance(found.change(stage.regime.metric, mine), Estimate),
            "change": {},
        }
    return {"policies": shown}
