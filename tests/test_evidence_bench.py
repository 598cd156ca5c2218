"""The benchmark of the evidence runs as its one command, resumes, and says of every promise what was measured."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from pathlib import Path
from typing import Any

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
    assert set(measured) == {"asymptotic", "certificate"}
    for row in measured.values():
        assert row["cell"] == CELLS[0]
        assert row["logs"] == 6
        assert 0 <= row["coverage"] <= row["lower"] <= 1
        assert row["width"] > 0
        assert math.isfinite(row["rmse"])
    (nights,) = found["gate"]
    assert nights["cell"] == CELLS[1]
    assert nights["nights"] == 6
    assert nights["foil"] is None
    verdicts = {row["promise"]: row for row in found["promises"]}
    certificate = next(row for text, row in verdicts.items() if text.startswith("certificate covers"))
    assert certificate["met"] == (measured["certificate"]["coverage"] >= 0.95)
    assert next(row for text, row in verdicts.items() if text.startswith("unsafe"))["logs"] == 6
    assert any(row["met"] is None for row in verdicts.values())
