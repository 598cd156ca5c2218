"""The same seed and the same log give the same estimates, byte for byte, whatever the number of processors."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from worlds import two_models

from optimizer.gate import Limits
from optimizer.logged import Logged
from optimizer.ope import models
from optimizer.propensity import estimate_behaviour
from optimizer.study import assess, learn
from optimizer.summary import estimates_frame
from optimizer.threads import one_thread


def digest(n: int) -> str:
    """Of all estimates and of the policy, from a log whose probabilities are estimated and whose trees are fitted on a
    sample."""
    data = two_models(n).draw(0, label_share=0.8, logged=False)
    with one_thread():
        found = estimate_behaviour(data.features, data.actions, data.groups, 2, seed=0, time_ns=data.time_ns)
        data = replace(data, behaviour=found.probabilities)
        lessons = learn(Logged(data, found, 0.0), Limits(), None, epsilon=0.05, seed=0)
        findings = assess(data, lessons.suggestion, Limits(), seed=0)
    assert lessons.suggestion.model is not None
    seen = hashlib.sha256(estimates_frame("app", findings).write_json().encode())
    for name, array in sorted(lessons.suggestion.model.arrays.items()):
        seen.update(name.encode() + np.ascontiguousarray(array).tobytes())
    for name, shares in sorted(findings.probabilities.items()):
        seen.update(name.encode() + shares.tobytes())
    return seen.hexdigest()


def test_a_study_twice_gives_the_same_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(models, "MAX_FITTED", 200)
    assert digest(700) == digest(700)


@pytest.mark.slow
def test_one_and_two_processors_give_the_same_bytes() -> None:
    code = """
import test_same_estimates
from optimizer.ope import models
models.MAX_FITTED = 2000
print(test_same_estimates.digest(6000))
"""
    found = {
        subprocess.run(
            [sys.executable, "-c", code],
            capture_output=True,
            check=True,
            text=True,
            env={
                **os.environ,
                "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), str(Path(models.__file__).parents[2])]),
                "OMP_NUM_THREADS": threads,
                "OPENBLAS_NUM_THREADS": threads,
            },
        ).stdout
        for threads in ("1", "2")
    }
    assert len(found) == 1
    assert found != {""}
