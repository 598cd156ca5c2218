"""A real Chromium on a real dashboard, for tests that look at pages as people do."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from optimizer import board

FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
PATIENCE_S = 60
SHOTS = "DASHBOARD_SHOTS"
"""The variable that names a folder for pictures of the pages; without it they go where pytest keeps its files."""


def chromium_path() -> str:
    """The installed browser; without one the tests are skipped, but fail under CI=true."""
    found = next(
        (path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name))), None
    )
    if found is None:
        reason = "no Chromium is installed: apt-get install chromium"
        pytest.fail(reason) if os.environ.get("CI") == "true" else pytest.skip(reason)
    return found


@contextmanager
def chromium() -> Iterator[Any]:
    """The browser, driven by Playwright."""
    path = chromium_path()
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=list(FLAGS))
        yield browser
        browser.close()


def free_port() -> int:
    """A port of the loopback address that nothing listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def served(home: Path, port: int | None = None) -> Iterator[str]:
    """The address of a dashboard on `home`, started as `retroute dashboard` starts it; `port` None: any."""
    port = port or free_port()
    environment = {**os.environ, "RETROUTE_HOME": str(home)}
    server = subprocess.Popen(
        board.command("127.0.0.1", port, home), env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        address = f"http://127.0.0.1:{port}"
        until = time.monotonic() + PATIENCE_S
        while True:
            with suppress(OSError), urllib.request.urlopen(f"{address}/_stcore/health", timeout=5):
                break
            assert server.poll() is None, "the dashboard ended before it answered"
            assert time.monotonic() < until, "the dashboard does not answer"
            time.sleep(0.2)
        yield address
    finally:
        server.terminate()
        server.wait(10)


def settled(page: Any) -> None:
    """Waits until the page has drawn all it has to say."""
    page.wait_for_selector(".stMain .rr", timeout=1000 * PATIENCE_S)
    page.wait_for_function(
        """() => document.querySelector('[data-test-script-state]')?.dataset.testScriptState !== 'running'
            && !document.querySelector('[data-testid=stStatusWidget], [data-stale=true], .stSkeleton')""",
        timeout=1000 * PATIENCE_S,
    )
    page.wait_for_function(
        """() => [...document.querySelectorAll("[data-testid=stVegaLiteChart]")].every(
            one => one.querySelector("svg, canvas"))""",
        timeout=1000 * PATIENCE_S,
    )


def shots(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where pictures of the pages are kept."""
    named = os.environ.get(SHOTS)
    folder = Path(named) if named else tmp_path_factory.mktemp("pages")
    folder.mkdir(parents=True, exist_ok=True)
    return folder
