"""Runs the dashboard as a child process: Streamlit is never imported here."""

from __future__ import annotations

import importlib.util
import os
import socket
import subprocess
import sys
from pathlib import Path

from ingest.errors import WorkError

SECRETS = "secrets.toml"
"""In a home: Streamlit's secrets, whose section [auth] sets up the login."""


def app_file() -> Path:
    """The dashboard's script, found without importing the dashboard. Raises WorkError when it is not installed."""
    found = importlib.util.find_spec("dashboard")
    for folder in (found.submodule_search_locations or ()) if found else ():
        file = Path(folder) / "app.py"
        if file.is_file():
            return file
    raise WorkError("the dashboard is not installed", "Install retroute again: its wheel holds the dashboard.")


def command(host: str, port: int, home: Path | None = None) -> list[str]:
    """Streamlit's command line: no browser opened, no usage statistics sent, no watching of files. The login is the
    home's own where it has one."""
    options = {
        "server.address": host,
        "server.port": str(port),
        "server.headless": "true",
        "server.fileWatcherType": "none",
        "browser.gatherUsageStats": "false",
    }
    if home is not None and (home / SECRETS).exists():
        options["secrets.files"] = str(home.absolute() / SECRETS)
    flags = [part for name, value in options.items() for part in (f"--{name}", value)]
    return [sys.executable, "-P", "-m", "streamlit", "run", str(app_file()), *flags]


def serve(home: Path, host: str, port: int) -> int:
    """Serves until the child ends or this process is interrupted; returns the child's exit code."""
    _require_free(host, port)
    print(f"dashboard of {home} on http://{host}:{port}", file=sys.stderr, flush=True)
    environment = {**os.environ, "RETROUTE_HOME": str(home.absolute())}
    child = subprocess.Popen(command(host, port, home), env=environment, stdout=sys.stderr)
    try:
        return child.wait()
    finally:
        if child.poll() is None:
            child.terminate()
            try:
                child.wait(10)
            except subprocess.TimeoutExpired:
                child.kill()


def _require_free(host: str, port: int) -> None:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            raise WorkError(f"cannot listen on {host}:{port}: {error.strerror}", "Take another with --port.") from None
