"""Learners on the orchestration whose optimum is known: 4,000 episodes of an operator who explores one step in each."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import mdp
import numpy as np

from optimizer.dataset import Floats
from optimizer.rewards import RewardSpec
from optimizer.sequential import students
from optimizer.sequential.episodes import EpisodeLog
from optimizer.sequential.fitted_q import fitted_q, utility
from optimizer.threads import one_thread

EPISODES, SWEEPS = 4000, 3
TARGET = 0.75
HERE = Path(__file__).parent


@dataclass(frozen=True)
class Result:
    """A learner over all logs."""

    name: str
    gain: float
    """Mean share of what is possible, from the operator's script to the best policy, that it truly gains."""
    least: float
    seconds: float
    """Processor seconds, mean."""


@dataclass(frozen=True)
class Promise:
    """A target, and what was found."""

    name: str
    target: str
    found: float
    kept: bool


def python() -> Path | None:
    """The interpreter of d3rlpy's environment; None where there is none."""
    found = Path(os.environ.get("D3RLPY_VENV", "/tmp/d3rlpy-venv")) / "bin" / "python"
    return found if found.is_file() else None


def run(number: int, times: float, wanted: Sequence[str]) -> dict[str, Any]:
    """One log: gain and seconds of each learner. times: of our seconds that each of d3rlpy's gets; 0: none of them."""
    log = mdp.draw(EPISODES, number)
    started = time.process_time()
    with one_thread():
        every = np.ones((len(log.actions), mdp.ACTIONS), dtype=np.bool_)
        learner = fitted_q(log, RewardSpec(1.0), every, seed=0, own=mdp.OWN)
        for _ in range(SWEEPS):
            values = next(learner)
        spent = time.process_time() - started
        lower = values.lower(log.features)
        small = students.forest(log.features, lower, every, log.action_names, seed=0)
    found = {
        "fitted Q": {"gain": _gain(values.lower(mdp.grid())), "seconds": spent},
        "its forest": {"gain": _gain(small.values(mdp.grid())), "seconds": time.process_time() - started},
    }
    if times:
        for name, told in _ask(log, times * spent, number, wanted).items():
            actions = np.eye(mdp.ACTIONS)[np.array(told["actions"])]
            found[name] = {"gain": _gain(actions), "seconds": told["seconds"], "updates": told["updates"]}
    return {"log": number, "learners": found}


def summary(records: Sequence[dict[str, Any]]) -> list[Result]:
    """Every learner, in the order they ran."""
    found = []
    for name in records[0]["learners"]:
        own = [record["learners"][name] for record in records]
        gains = [one["gain"] for one in own]
        seconds = float(np.mean([one["seconds"] for one in own]))
        found.append(Result(name, float(np.mean(gains)), min(gains), seconds))
    return found


def promises(found: Sequence[Result]) -> list[Promise]:
    """What is promised of it."""
    ours, others = found[0], found[2:]
    kept = [Promise("share of the possible gain", f">= {TARGET}", ours.gain, ours.gain >= TARGET)]
    if others:
        best = max(others, key=lambda one: one.gain)
        kept.append(Promise(f"above d3rlpy's best, {best.name}", "> 0", ours.gain - best.gain, ours.gain > best.gain))
    return kept


def _gain(scores: Floats) -> float:
    """scores: (stages * states, a) of `mdp.grid`; what is largest is done."""
    return mdp.gain(np.eye(mdp.ACTIONS)[scores.argmax(axis=1)])


def _ask(log: EpisodeLog, seconds: float, seed: int, wanted: Sequence[str]) -> dict[str, Any]:
    """What d3rlpy's learners do in every state. RuntimeError with its last words if it fails."""
    with tempfile.TemporaryDirectory() as folder:
        source, out = Path(folder) / "log.npz", Path(folder) / "results.json"
        np.savez(
            source,
            features=log.features,
            actions=log.actions,
            rewards=utility(log, RewardSpec(1.0)),
            last=log.last,
            action_count=mdp.ACTIONS,
            states=mdp.grid(),
            seconds=seconds,
            seed=seed,
            learners=json.dumps(list(wanted)),
        )
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
        command = [str(python()), str(HERE / "d3rlpy_child.py"), str(source), str(out)]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, cwd=folder)
        if done.returncode:
            raise RuntimeError(f"d3rlpy failed: {done.stderr[-2000:]}")
        results: dict[str, Any] = json.loads(out.read_text())
        return results
