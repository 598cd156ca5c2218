"""Packages of npm that some tests run, installed once and kept in pytest's cache.

Where there is no node or no package index the tests that need them skip, except under CI=true with node there.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

PACKAGES = {
    "onnxruntime-node": "1.30.0",  # runs policy.onnx; its install script would fetch a build for GPUs, so none is run
    "@portkey-ai/gateway": "1.15.2",  # the whole gateway
    "@openrouter/sdk": "1.3.19",  # its schema of requests
}


def installed(config: pytest.Config) -> Path:
    """The folder node_modules; skips the test, or fails it under CI, where it cannot be had."""
    if shutil.which("node") is None or shutil.which("npm") is None:
        pytest.skip("node and npm are not installed")
    assert config.cache is not None
    folder = config.cache.mkdir("node-packages")
    built = folder / "built.json"
    if not built.is_file() or json.loads(built.read_text()) != PACKAGES:
        (folder / "package.json").write_text(json.dumps({"private": True, "dependencies": PACKAGES}))
        quiet = ("--no-package-lock", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error")
        done = subprocess.run(["npm", "install", *quiet], cwd=folder, capture_output=True, text=True, timeout=600)
        if done.returncode:
            reason = f"the packages of npm cannot be installed: {done.stderr.strip()[-300:]}"
            if os.environ.get("CI") == "true":
                pytest.fail(reason)
            pytest.skip(reason)
        built.write_text(json.dumps(PACKAGES))
    return folder / "node_modules"
