"""Fixtures that several files share."""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before any library looks: threads that outnumber the cores wait a lot

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
import node_packages
import pytest
from hypothesis import HealthCheck, settings

from optimizer import bundle

# A busy machine makes examples slow, which is no fault; under CI the examples depend on the tests alone.
settings.register_profile("steady", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("ci", settings.get_profile("steady"), derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") == "true" else "steady")


@cache
def manifest_schema() -> jsonschema.Draft202012Validator:
    """The schema of policy-bundle/1 that we ship."""
    path = Path(bundle.__file__).with_name("policy-bundle-1.schema.json")
    return jsonschema.Draft202012Validator(json.loads(path.read_text(encoding="utf-8")))


@pytest.fixture(autouse=True)
def every_manifest_that_is_written_is_of_our_schema(monkeypatch: pytest.MonkeyPatch) -> None:
    write = bundle.write_files

    def checked(folder: Path, files: Mapping[str, bytes]) -> None:
        if "manifest.json" in files:
            manifest_schema().validate(json.loads(files["manifest.json"]))
        write(folder, files)

    monkeypatch.setattr(bundle, "write_files", checked)


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


@pytest.fixture(scope="session")
def node_modules(request: pytest.FixtureRequest) -> Path:
    """Packages of npm: see `node_packages`."""
    return node_packages.installed(request.config)


@pytest.fixture(autouse=True)
def main_module() -> Iterator[None]:
    """Streamlit's AppTest leaves its script as `__main__`, which every process spawned later would run first."""
    before = sys.modules["__main__"]
    yield
    sys.modules["__main__"] = before
