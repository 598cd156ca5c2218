"""What a run said of its policy, by the metrics that a rollout is watched by; and a rollout that is over, in short."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from optimizer.rollout.state import Rollout

_CHANGES = {
    "cost_usd_per_1k": ("savings_usd_per_1k", -1.0),
    "quality": ("quality_change", 1.0),
    "latency_s": ("latency_change_s", 1.0),
}
"""Metric -> what verdicts.json calls it, and its sign: a saving is a cost that falls."""


def predicted(said: Mapping[str, Any]) -> dict[str, Any]:
    """By metric the estimated difference, policy minus today: value, low, high, kind, and the forecast of new decisions
    where the run kept one. said: a service of verdicts.json. A change that was refused is left out."""
    forecasts = said.get("predicted") or {}
    found: dict[str, Any] = {}
    for metric, (name, sign) in _CHANGES.items():
        change = said.get(name) or {}
        if change.get("value") is None:
            continue
        ends = [None if change.get(end) is None else sign * change[end] for end in ("low", "high")]
        low, high = ends if sign > 0 else ends[::-1]
        found[metric] = {
            "value": sign * change["value"],
            "low": low,
            "high": high,
            "kind": change.get("kind"),
            "forecast": forecasts.get(name),
        }
    return found


def in_short(rollout: Rollout, until: str) -> dict[str, Any]:
    """What the history keeps of a rollout: what was predicted beside what was realised."""
    seen = rollout.monitor or {}
    return {
        "policy_id": rollout.policy_id,
        "version": rollout.version,
        "run_id": rollout.run_id,
        "from": rollout.began,
        "to": until,
        "stage": rollout.stage,
        "percent": rollout.percent,
        "why": rollout.steps[-1].why if rollout.steps else "",
        "predicted": {name: {**one, "forecast": None} for name, one in rollout.predicted.items()},
        "realised": list(seen.get("metrics", ())),
        "arms": seen.get("arms"),
        "ratio": seen.get("ratio"),
    }
