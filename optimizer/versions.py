"""A suggestion beside the version before it: what it would do otherwise on the same decisions, and what that is worth.

The version before is the policy in force, else that of the newest earlier run that has one. Legend: m judged decisions,
a actions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ingest.errors import AppError
from optimizer import runs
from optimizer.bundle import read_policy
from optimizer.dataset import Floats
from optimizer.evidence import Evaluation, savings
from optimizer.policy import Learned
from optimizer.runtime import Model
from optimizer.summary import estimate_json


@dataclass(frozen=True, eq=False)
class Version:
    """An earlier policy of a service."""

    run_id: str
    model: Model
    in_force: bool


def previous(home: Path, service: str, run_id: str) -> Version | None:
    """The version before that of run `run_id`; None for the first. A policy that cannot be read any more is passed
    over."""
    in_force = runs.active(home).get(service)
    earlier = [name for name in runs.run_ids(home) if name < run_id]
    for name in [*([in_force] if in_force in earlier else []), *earlier]:
        folder = runs.policy_folder(home / "runs" / str(name), service)
        if folder.is_dir():
            try:
                return Version(str(name), read_policy(folder)[0], name == in_force)
            except AppError:
                continue
    return None


def beside(before: Version, model: Model) -> dict[str, Any]:
    """Which version it is, and the actions that came and went since."""
    return {
        "run_id": before.run_id,
        "in_force": before.in_force,
        "gone": [name for name in before.model.actions if name not in model.actions],
        "new": [name for name in model.actions if name not in before.model.actions],
    }


def apart(names: Sequence[str], did: Floats, does: Floats) -> dict[str, Any]:
    """How far two policies (n, a) part on the same decisions: the share of each action under both, of decisions whose
    likeliest action is the same, and of probability that moved to other actions."""
    shares = zip(names, did.mean(axis=0), does.mean(axis=0), strict=True)
    return {
        "actions": [{"action": name, "before": float(was), "after": float(will)} for name, was, will in shares],
        "agreement": float(np.mean(did.argmax(axis=1) == does.argmax(axis=1))),
        "moved": float(np.abs(does - did).sum(axis=1).mean()) / 2,
    }


def to_json(
    home: Path, service: str, run_id: str, model: Model | None, evaluation: Evaluation, policy: Floats | None
) -> dict[str, Any] | None:
    """What regressions.json keeps of the difference; None for a first version. policy: (m, a) that of `model` on the
    judged decisions."""
    if model is None or policy is None or (before := previous(home, service, run_id)) is None:
        return None
    data = evaluation.data
    found: dict[str, Any] = {
        **beside(before, model),
        "rules": _rules(home, before.run_id, service),
        "refused": None,
        "actions": [],
    }
    if unknown := [name for name in before.model.actions if name not in data.action_names]:
        return found | {"refused": f"it chooses among {', '.join(unknown)} too, which this log does not show"}
    if before.model.steps:
        return found | {"refused": "it decided step by step, and this one does not"}
    did = Learned(before.model, data.action_names).probabilities(data.features, data.behaviour)
    return found | {
        **apart(data.action_names, did, policy),
        "savings_usd_per_1k": estimate_json(savings(evaluation.difference("cost_usd", policy, did))),
        "quality_change": estimate_json(evaluation.difference("quality", policy, did)),
    }


def _rules(home: Path, run_id: str, service: str) -> Mapping[str, Any] | None:
    """The rules of an earlier run's suggestion."""
    try:
        judged = runs.read_json(home / "runs" / run_id / "verdicts.json")["services"][service]
        found: Mapping[str, Any] | None = judged["points"][0]["rules"]
    except (AppError, KeyError, IndexError, TypeError):
        return None
    return found
