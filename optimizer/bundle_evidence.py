"""What a bundle's manifest says of how its policy was judged, on which data and by which packages.

A run writes its policies before they are judged; what came out stands in the files around them, and goes into the
manifest when the policy is exported.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from optimizer import runs

CHANGES = ("savings_usd_per_1k", "quality_change", "latency_change_s")
_SHOWN = ("value", "low", "high", "kind", "estimator", "reason")


def evidence_of(policy: Path, service: str) -> dict[str, Any]:
    """`evaluation`, `data` and `packages` of a policy folder inside a run; empty where it was not judged in one."""
    run = policy.parent.parent
    if not (run / "verdicts.json").is_file() or not (run / "manifest.json").is_file():
        return {}
    said = runs.read_json(run / "verdicts.json").get("services", {}).get(service)
    if not isinstance(said, Mapping):
        return {}
    about = runs.read_json(run / "manifest.json")
    return {
        "evaluation": _evaluation(said),
        "data": _data(run / "decisions.parquet", about),
        "packages": dict(about.get("versions", {})),
    }


def _evaluation(said: Mapping[str, Any]) -> dict[str, Any]:
    """Changes are policy minus today on the certifying decisions, with intervals of this confidence."""
    support = said.get("support") or {}
    return {
        "run_id": said.get("run_id"),
        "verdict": said.get("verdict"),
        "confidence": (said.get("limits") or {}).get("confidence"),
        "decisions": support.get("certify_decisions"),
        "effective_decisions": support.get("effective"),
        **{name: {key: said[name].get(key) for key in _SHOWN} for name in CHANGES if isinstance(said.get(name), dict)},
    }


def _data(decisions: Path, about: Mapping[str, Any]) -> dict[str, Any]:
    """The lake's snapshot, and the very decisions that were learned from: their hash, number and time."""
    return {
        "snapshot": about.get("snapshot"),
        "decisions": about.get("decisions"),
        "decisions_sha256": hashlib.sha256(decisions.read_bytes()).hexdigest() if decisions.is_file() else None,
        "from": _moment(about.get("from_ns")),
        "to": _moment(about.get("to_ns")),
    }


def _moment(nanoseconds: object) -> str | None:
    if not isinstance(nanoseconds, int):
        return None
    return datetime.fromtimestamp(nanoseconds // 1_000_000_000, UTC).isoformat()
