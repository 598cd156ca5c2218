"""Fixtures that several files share."""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before any library looks: threads that outnumber the cores wait a lot

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

# A busy machine makes examples slow, which is no fault; under CI the examples depend on the tests alone.
settings.register_profile("steady", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("ci", settings.get_profile("steady"), derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") == "true" else "steady")


@dataclass(frozen=True)
class Demo:
    """A finished `retroute demo`: its home and what `--json` printed."""

    home: Path
    result: dict[str, Any]


def run_demo(home: Path) -> Demo:
    command = [sys.executable, "-m", "optimizer.cli", "demo", "--home", str(home), "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr
    return Demo(home, json.loads(done.stdout))


@pytest.fixture(scope="session")
def finished_demo(tmp_path_factory: pytest.TempPathFactory) -> Demo:
    """The demo as a newcomer runs it, once for all tests."""
    return run_demo(tmp_path_factory.mktemp("demo") / "home")
