"""Peers, each in an environment of its own, on the same logs: handed over as .npz, their results read as JSON.

OBP_VENV (default /tmp/obp-venv) is made by

    python3.11 -m venv $OBP_VENV
    $OBP_VENV/bin/pip install numpy pandas scikit-learn scipy matplotlib seaborn tqdm pyyaml torch
    $OBP_VENV/bin/pip install --no-deps --ignore-requires-python obp==0.5.7

and SKDR_VENV (default /tmp/skdr-venv) by `pip install skdr-eval==0.12.0`. Absent ones are left out and said so.
"""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from optimizer.dataset import Floats, Ints

from .regimes import Log, Scene

Peer = Literal["obp", "skdr"]
HERE = Path(__file__).parent
_FOLDERS = {"obp": ("OBP_VENV", "/tmp/obp-venv"), "skdr": ("SKDR_VENV", "/tmp/skdr-venv")}


@dataclass(frozen=True)
class Asked:
    """Which peer, and what for."""

    peer: Peer = "obp"
    heads: Literal["quickstart", "boosted"] = "quickstart"
    """Of obp: a logistic regression as in its quickstart, or gradient boosting."""
    resamples: int = 200
    """Of the bootstrap; 0: no intervals."""
    names: tuple[str, ...] = ()
    """Estimators; all of them if none is named."""

    @property
    def title(self) -> str:
        return f"obp {self.heads}" if self.peer == "obp" else self.peer


def python(peer: Peer) -> Path | None:
    """The interpreter of the peer's environment; None where there is none."""
    variable, default = _FOLDERS[peer]
    found = Path(os.environ.get(variable, default)) / "bin" / "python"
    return found if found.is_file() else None


@dataclass(frozen=True, eq=False)
class Handed:
    """One log as a peer gets it, and the policies to evaluate on it."""

    context: Floats
    """(n, d)"""
    action: Ints
    """(n,)"""
    reward: Floats
    """(n,) NaN where unlabelled."""
    behaviour: Floats
    """(n, a) NaN where it is not told."""
    policies: Floats
    """(p, n, a)"""


def handed(scene: Scene, log: Log, policies: Sequence[Floats]) -> Handed:
    """The log for a peer. policies: (N, a) each."""
    told = log.behaviour
    return Handed(
        context=scene.world.features[log.contexts],
        action=log.actions,
        reward=log.outcome,
        behaviour=np.full((len(log.actions), scene.outcome.shape[1]), np.nan) if told is None else told,
        policies=np.stack([policy[log.contexts] for policy in policies]),
    )


def ask(logs: Sequence[Handed], asked: Asked) -> list[dict[str, Any]]:
    """The peer's estimates of each policy's value, log by log: {"policies": [{name: [value, low, high]}], "seconds",
    "mean" reward}. Raises RuntimeError with the peer's last words if it fails."""
    peer = asked.peer
    interpreter = python(peer)
    if interpreter is None:
        raise RuntimeError(f"no environment for {peer}; see {__name__}")
    with tempfile.TemporaryDirectory() as folder:
        source, out = Path(folder) / "logs.npz", Path(folder) / "results.json"
        settings = json.dumps({"logs": len(logs), **asked.__dict__})
        arrays = {f"{number}/{name}": array for number, log in enumerate(logs) for name, array in vars(log).items()}
        np.savez(source, settings=settings, **arrays)
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
        command = [str(interpreter), str(HERE / f"{peer}_child.py"), str(source), str(out)]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"{peer} failed: {done.stderr[-2000:]}")
        results: list[dict[str, Any]] = json.loads(out.read_text())
        return results
