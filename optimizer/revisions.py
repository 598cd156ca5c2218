"""The number of the policy that is written next. It only rises, whoever wrote the earlier ones: a night, an experiment,
a rollout. A router that has seen a revision takes no older one."""

from __future__ import annotations

import json
from pathlib import Path

from optimizer import runs


def next_revision(home: Path, service: str) -> int:
    """One more than that of the bundle in place, and than there are runs that hold a policy for the service."""
    folders = (runs.policy_folder(home / "runs" / run_id, service) for run_id in runs.run_ids(home))
    return 1 + max(sum(folder.is_dir() for folder in folders), _in_place(runs.bundle_folder(home, service)))


def _in_place(bundle: Path) -> int:
    """The revision of an exported policy; 0 where there is none that can be read."""
    try:
        revision = json.loads((bundle / "policy" / "manifest.json").read_bytes())["revision"]
    except (OSError, ValueError, KeyError, TypeError):
        return 0
    return revision if isinstance(revision, int) else 0
