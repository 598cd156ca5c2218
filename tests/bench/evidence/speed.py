"""How long a night takes: learn, evaluate, certify and judge, beside obp's reward model and bootstrap on the same log.

Processor seconds of one process, so that a busy machine makes no difference; ours runs on one thread. obp gets its
defaults: gradient boosting in three folds, 10,000 resamples of SNIPW and DR.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from optimizer.gate import Limits
from optimizer.logged import Logged
from optimizer.study import assess, learn
from optimizer.threads import one_thread

from . import ours, peers
from .regimes import scene
from .worlds import world

RESAMPLES = 10_000


def run(n: int, number: int, with_obp: bool) -> dict[str, Any]:
    """One log of n decisions in the synthetic world."""
    place = world("synthetic", None)
    assert place is not None
    stage, policy = scene(place, "soft"), ours.targets(place).policies["learned"]
    log = stage.draw(n, np.random.default_rng([n, number]))
    cost = place.cost_usd[log.contexts, log.actions]
    data = replace(ours.dataset(stage, log), cost_usd=cost)
    started = ours.processor_seconds()
    with one_thread():
        lessons = learn(Logged(data, None, 0.0), Limits(), None, epsilon=0.05, seed=0)
        learned = ours.processor_seconds() - started
        verdict = assess(data, lessons.suggestion, Limits(), seed=0).verdict.outcome
    record = {
        "cell": f"speed/synthetic/soft/{n}",
        "log": number,
        "learn": learned,
        "all": ours.processor_seconds() - started,
        "verdict": verdict,
        "peak_gb": _peak_gb(),
    }
    if with_obp:
        asked = peers.Asked(heads="boosted", resamples=RESAMPLES, names=("SNIPW", "DR"))
        record["obp"] = peers.ask([peers.handed(stage, log, [policy])], asked)[0]["seconds"]
    return record


def _peak_gb() -> float:
    """Largest resident memory of this process so far."""
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


@dataclass(frozen=True)
class Speed:
    """Mean processor seconds of one cell."""

    cell: str
    logs: int
    seconds: float
    peak_gb: float
    obp: float | None


def speeds(records: Sequence[dict[str, Any]]) -> list[Speed]:
    """By cell, in order of their names."""
    found = []
    for cell in sorted({r["cell"] for r in records if r["cell"].startswith("speed/")}):
        seen = [r for r in records if r["cell"] == cell]
        rivals = [r["obp"] for r in seen if "obp" in r]
        obp = float(np.mean(rivals)) if rivals else None
        peak = max(r["peak_gb"] for r in seen)
        found.append(Speed(cell, len(seen), float(np.mean([r["all"] for r in seen])), peak, obp))
    return found
