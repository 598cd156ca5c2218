"""The benchmark of the evidence runs as its one command, resumes, and says of every promise what was measured."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from bench.evidence.cells import GAMMA
from bench.evidence.regimes import REGIMES, gamma, scene
from bench.evidence.worlds import world

ROOT = Path(__file__).resolve().parents[1]
CELLS = ("coverage/synthetic/soft/200", "gate/boundary/1000")


def bench(out: Path, *more: str) -> dict[str, Any]:
    command = [sys.executable, "-m", "tests.bench.evidence", "--quick", "--out", str(out), "--processes", "1"]
    done = subprocess.run([*command, *more], cwd=ROOT, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("| promise | measured |")
    return json.loads(out.read_text())


def test_two_small_cells_give_a_json_of_measures_and_promises(tmp_path: Path) -> None:
    """A second run finds all in the store and measures nothing anew."""
    out, store = tmp_path / "evidence.json", tmp_path / "evidence.jsonl"
    found = bench(out, "--cells", *CELLS, "--logs", "6")
    before = store.read_text()
    assert bench(out, "--cells", *CELLS, "--logs", "6") == found
    assert store.read_text() == before
    measured = {row["estimate"]: row for row in found["measures"]}
    assert set(measured) == {"asymptotic", "certificate", "smoothed"}
    for row in measured.values():
        assert row["cell"] == CELLS[0]
        assert row["logs"] == 6
        assert 0 <= row["coverage"] <= row["lower"] <= 1
        assert row["width"] > 0
        assert row["rmse"] is None or math.isfinite(row["rmse"])
    (nights,) = found["gate"]
    assert nights["cell"] == CELLS[1]
    assert nights["nights"] == 6
    assert nights["foil"] is None
    verdicts = {row["promise"]: row for row in found["promises"]}
    certificate = next(row for text, row in verdicts.items() if text.startswith("certificate covers"))
    assert certificate["met"] == (measured["certificate"]["coverage"] >= 0.95)
    assert next(row for text, row in verdicts.items() if text.startswith("unsafe"))["logs"] == 6
    assert any(row["met"] is None for row in verdicts.values())


@pytest.mark.parametrize("name", REGIMES)
def test_what_logs_show_averages_to_what_the_scene_calls_true(name: str) -> None:
    """60,000 decisions; 5 standard errors of the mean, of sums by session."""
    place = world("synthetic", None)
    assert place is not None
    stage = scene(place, name)
    log = stage.draw(60_000, np.random.default_rng(3))
    told = ~np.isnan(log.outcome)
    if stage.regime.labels != "all":
        assert 0.05 < told.mean() < 0.15
        return
    sums, sizes = np.bincount(log.groups, weights=log.outcome - stage.today), np.bincount(log.groups)
    assert abs(sums.sum()) <= 5 * np.sqrt(np.sum((sums - sizes * sums.sum() / sizes.sum()) ** 2))
    if log.behaviour is not None:
        policy = np.full_like(stage.outcome, 1 / stage.outcome.shape[1])
        rows = np.arange(len(log.actions))
        weight = policy[log.contexts, log.actions] / log.behaviour[rows, log.actions]
        scores = np.bincount(log.groups, weights=weight * log.outcome - stage.value(policy))
        assert abs(scores.sum()) <= 5 * np.sqrt(np.sum(scores**2))


def test_the_hidden_cause_stays_below_what_confounded_cells_declare() -> None:
    place = world("synthetic", None)
    assert place is not None
    assert 1.5 < gamma(scene(place, "soft").behaviours[0]) < GAMMA
