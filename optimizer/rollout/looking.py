"""One more look at a rollout: the lake's decisions by arm, and what they say so far."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from optimizer.config import Settings
from optimizer.rollout import arms, monitor, reading, state
from optimizer.rollout.arms import Arms
from optimizer.rollout.state import Rollout

MOST_POINTS = 3_000
"""Of a timeline: a thousand looks that saw something new of all three metrics."""


def looked(home: Path, settings: Settings, rollout: Rollout) -> tuple[Rollout, Arms]:
    """The rollout with one more look, not written yet."""
    since = state.nanoseconds(rollout.began)
    rows = reading.decisions(home, settings, rollout.service, rollout.policy_id, rollout.version, since)
    begun = {step.revision: state.nanoseconds(step.at) for step in rollout.steps}
    found = arms.arms(rows, state.shares(rollout.steps), begun)
    now, before = state.now(), rollout.monitor or {}
    limits = settings.service(rollout.service).limits
    seen = monitor.look(found, limits, rollout.predicted, at=now, looks=before.get("looks", 0) + 1)
    known = {one["metric"]: one["units"] for one in before.get("metrics", ())}
    news = [
        {"at": now, "metric": one["metric"], **_ends(one["difference"]), "decisions": one["units"]}
        for one in seen["metrics"]
        if one["difference"] is not None and one["units"] != known.get(one["metric"])
    ]
    return replace(rollout, monitor=seen, timeline=(*rollout.timeline, *news)[-MOST_POINTS:]), found


def _ends(difference: Mapping[str, float]) -> dict[str, float]:
    return {key: difference[key] for key in ("value", "low", "high")}
