"""Whether a router would take a policy folder and act on it: one line for each thing that is in the way."""

from __future__ import annotations

import hashlib
import json
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ingest.errors import UsageError
from optimizer import runtime
from optimizer.runtime import PolicyError, Router


def policy_of(path: Path) -> Path:
    """The policy folder in `path`, which is one or a bundle with one. UsageError if it is neither."""
    for folder in (path, path / "policy"):
        if (folder / "manifest.json").is_file():
            return folder
    raise UsageError(
        f"{path} holds no policy: there is no manifest.json in it or in its folder policy",
        "Name a folder that `retroute export` or `retroute nightly` wrote.",
    )


def failures(folder: Path, key: Path | None = None, now: datetime | None = None) -> list[str]:
    """Why a router that starts now would not take the policy, or would leave every request to the incumbent; empty if
    it routes. `key`: a public key to check the signature for, whether or not this machine is configured to."""
    found = [*_signature(folder, key or runtime.public_key_path(folder)), *_files(folder)]
    if found:
        return found
    if broken := unusable(folder):
        return [broken]
    return _held(Router.load(folder, signed=False), (now or datetime.now(UTC)).timestamp())


def unusable(folder: Path) -> str:
    """Why no router would ever take the policy, whoever signed it; empty if one would."""
    try:
        Router.load(folder, signed=False)
    except PolicyError as error:
        return str(error).removeprefix(f"{folder}: ")
    return ""


def _signature(folder: Path, key: Path | None) -> list[str]:
    if key is None:
        return []
    try:
        runtime.check_signature(folder, (folder / "manifest.json").read_bytes(), key)
    except PolicyError as error:
        return [str(error)]
    return []


def _files(folder: Path) -> list[str]:
    """Every file that is missing or not the one that the manifest was written for."""
    try:
        manifest: dict[str, Any] = json.loads((folder / "manifest.json").read_bytes())
        named = dict(manifest["files"])
    except (OSError, ValueError, KeyError, TypeError):
        return []  # loading says what is wrong
    found = []
    for name, expected in sorted(named.items()):
        path = folder / name
        if Path(name).name != name:
            found.append(f"{name!r} is not a file name inside the policy folder")
        elif path.is_symlink() or not path.is_file():
            found.append(f"{name} is missing or not a plain file")
        elif "sha256:" + hashlib.sha256(path.read_bytes()).hexdigest() != expected:
            found.append(f"{name} is not the file the manifest was written for (sha256 differs)")
    return found


def _held(router: Router, now: float) -> list[str]:
    """Why a loaded policy does not decide."""
    found = []
    if os.environ.get("RETROUTE_KILL", "0") not in ("", "0"):
        found.append("RETROUTE_KILL is set: every request goes to the incumbent")
    if (router.folder / "KILL").exists():
        found.append("the file KILL is there: every request goes to the incumbent")
    if not router.enabled:
        found.append("the manifest says that it is not enabled: every request goes to the incumbent")
    if now < router.not_before:
        found.append(f"not valid before {_time(router.not_before)}: until then every request goes to the incumbent")
    if now >= router.expires:
        found.append(f"expired at {_time(router.expires)}: every request goes to the incumbent")
    return found


def _time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")
