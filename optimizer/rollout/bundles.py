"""Writes the bundle that routers load: the same policy under a new revision, for another share of sessions.

A revision is made whole beside its place, checked as a router checks it and signed where one must be; then each file is
renamed into place, manifest.json last. A router that looks in between sees files that do not fit their hashes, keeps
the policy it has, and looks again.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ingest.errors import UsageError, WorkError
from optimizer import runtime, signing
from optimizer.bundle import copy_policy, write_files
from optimizer.bundle_check import unusable
from optimizer.runtime import BEFORE, STOP, WEIGHTS, PolicyError

_STAGED = ("policy_router.py", "policy_agents.py")
_UNSTAGED = {"rules.json": "rules", "policy_router.mjs": "onnx"}


def manifest_of(policy: Path) -> dict[str, Any] | None:
    """The manifest of a policy folder, unchecked; None where there is none that can be read."""
    try:
        found = json.loads((policy / "manifest.json").read_bytes())
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None


def earlier_policy(policy: Path, version: str) -> bool:
    """Whether the folder holds another policy that serves some sessions: one that can be gone back to."""
    said = manifest_of(policy)
    if said is None or unusable(policy) or said["version"] == version:
        return False
    return said["enabled"] is True and said["canary"]["percent"] > 0


def keep(policy: Path, at: Path) -> None:
    """Copy a policy for later, over what was kept there."""
    manifest = manifest_of(policy)
    if manifest is None:
        raise WorkError(f"{policy} holds no policy", "Export it again.")
    shutil.rmtree(at, ignore_errors=True)
    copy_policy(policy, manifest, at)


def newest_revision(*policies: Path) -> int:
    """The largest revision among these folders; 0 without any."""
    said = [manifest_of(policy) for policy in policies]
    return max((int(one["revision"]) for one in said if one is not None), default=0)


def under(percent: float, *, enabled: bool = True) -> dict[str, Any]:
    """What a manifest says of a policy for so many percent of sessions, the others with the incumbent."""
    return {"enabled": enabled, "canary": {"percent": percent, "explore_percent": 0.0}}


def control(policy: Path, before: Path) -> str:
    """What sessions get that are not under the policy: the earlier policy's version where a router can follow both,
    else the incumbent's name. An orchestrator's script is called by its incumbent."""
    said, earlier = manifest_of(policy), manifest_of(before)
    assert said is not None
    if earlier is None or STOP in (said["actions"][-1], earlier["actions"][-1]):
        return str(said["incumbent"])
    return str(earlier["version"] if earlier["features"] == said["features"] else said["incumbent"])


def write(
    source: Path,
    bundle: Path,
    service: str,
    revision: int,
    changes: Mapping[str, Any],
    key: Path | None,
    before: Path | None = None,
) -> list[str]:
    """Put the policy `source` in force in `bundle` as `revision`, with these changes to its manifest; notes for the
    user. `before`: the earlier policy, which serves the other sessions where a router can follow both.

    WorkError, and nothing is written, where routers would refuse it: it is broken, or they ask for a signature and
    `key` is no private key for theirs.
    """
    from optimizer.export import agents, litellm

    said = manifest_of(source)
    if said is None:
        raise WorkError(f"the policy kept in {source} is gone", "Start the rollout again.")
    manifest = {**said, **changes, "revision": revision, "canary": {**said["canary"], **changes.get("canary", {})}}
    more: dict[str, bytes] = {}
    earlier = None if before is None else manifest_of(before)
    if before is not None and earlier is not None and control(source, before) == earlier["version"]:
        manifest["before"] = {name: earlier[name] for name in ("version", "model", "actions", "exploration")}
        more[BEFORE] = (before / WEIGHTS).read_bytes()
    with tempfile.TemporaryDirectory(prefix="retroute-rollout-") as folder:
        draft = Path(folder) / "policy"
        copy_policy(source, manifest, draft, more)
        if broken := unusable(draft):
            raise WorkError(f"the policy kept in {source} cannot be used: {broken}", "Start the rollout again.")
        signature = _signed(draft, bundle, key)
        if signature is not None:
            write_files(bundle / "policy", {"manifest.sig": signature})
        in_app = (bundle / "policy_agents.py").exists() and not (bundle / "policy_router.py").exists()
        export = agents.export if in_app or manifest["actions"][-1] == STOP else litellm.export
        notes = export(draft, bundle, service)
    if BEFORE not in more and BEFORE not in said["files"]:
        (bundle / "policy" / BEFORE).unlink(missing_ok=True)
    if (bundle / "policy" / "KILL").exists():
        notes.append(f"{bundle / 'policy' / 'KILL'} is there: every request goes to the incumbent until it is deleted")
    return notes


def require_stages(bundle: Path) -> None:
    """UsageError where the folder is what `retroute export` wrote for a router that reads no stages."""
    if any((bundle / name).exists() for name in _STAGED):
        return
    for name, target in _UNSTAGED.items():
        if (bundle / name).exists():
            raise UsageError(
                f"{bundle} holds an export for the target '{target}', whose routers do not read a rollout's stages",
                "Name another folder for --out, and stage this one by its gateway's own weights.",
            )


def wants_signature(bundle: Path) -> bool:
    """Whether routers of this bundle take signed policies only, as far as can be seen from here."""
    policy = bundle / "policy"
    return runtime.public_key_path(policy) is not None or (policy / "manifest.sig").exists()


def kill(bundle: Path) -> None:
    """Send every request to the incumbent, whatever the policy and its signature are."""
    (bundle / "policy").mkdir(parents=True, exist_ok=True)
    (bundle / "policy" / "KILL").touch()


def revive(bundle: Path) -> None:
    """Undo `kill`."""
    (bundle / "policy" / "KILL").unlink(missing_ok=True)


def _signed(draft: Path, bundle: Path, key: Path | None) -> bytes | None:
    """The signature of the draft; None where none is asked for and no key was given."""
    if key is None:
        if wants_signature(bundle):
            raise WorkError(
                f"routers of {bundle} take signed policies only, and a new revision needs a new signature",
                "Give the private key: --key private.pem",
            )
        return None
    signing.sign(draft, key)
    public = runtime.public_key_path(bundle / "policy")
    if public is not None:
        try:
            runtime.check_signature(draft, (draft / "manifest.json").read_bytes(), public)
        except PolicyError as error:
            raise WorkError(str(error), f"Sign with the private key that belongs to {public}.") from None
    return (draft / "manifest.sig").read_bytes()
