"""A rollout as its page shows it: what was predicted beside what is seen, on the three axes of every page. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

from dashboard.axes import Axis
from dashboard.figures import Side, Unit
from dashboard.records import Figure
from optimizer.rollout.state import Rollout, Stage

Json = Mapping[str, Any]

STAGES: Mapping[Stage, str] = {
    "shadow": "In shadow",
    "canary": "A canary",
    "full": "In full",
    "rolled_back": "Rolled back",
    "none": "Not rolled out",
}
LADDER = (0, 5, 20, 50, 100)
"""Percent of sessions under the policy, from shadow to full."""


@dataclass(frozen=True)
class Metric:
    """How a watched metric is shown: `sign` turns a cost into a saving."""

    name: str
    title: str
    note: str
    brief: str
    unit: Unit
    sign: float
    better: str
    forbidden: Side


METRICS = (
    Metric(
        "cost_usd_per_1k",
        "Cost",
        "saving per 1,000 decisions",
        "Saving per 1,000",
        "usd_change",
        -1.0,
        "saves more →",
        "below",
    ),
    Metric(
        "quality",
        "Quality",
        "change against today",
        "Quality change",
        "quality_change",
        1.0,
        "better →",
        "below",
    ),
    Metric(
        "latency_s",
        "Latency",
        "change against today",
        "Latency change",
        "seconds_change",
        1.0,
        "← faster",
        "above",
    ),
)


@dataclass(frozen=True)
class Change:
    """One metric of a rollout: what the run predicted, and what the arms show."""

    axis: Axis
    """Of what is seen."""
    predicted: Figure
    decisions: int
    crossed: bool
    alike: bool
    """Whether the metric is known of both arms alike."""


def changes(rollout: Rollout) -> list[Change]:
    """By metric, in the order of all pages; before a first look only what was predicted."""
    return beside(rollout.predicted, list((rollout.monitor or {}).get("metrics", ())))


def beside(predicted: Json, realised: Sequence[Json]) -> list[Change]:
    """What was predicted of each metric beside what came out."""
    seen = {one["metric"]: one for one in realised}
    return [_change(metric, predicted.get(metric.name), seen.get(metric.name)) for metric in METRICS]


def _change(metric: Metric, predicted: Json | None, seen: Json | None) -> Change:
    limit = None if seen is None or seen.get("limit") is None else metric.sign * float(seen["limit"])
    crossed = bool(seen and seen.get("crossed"))
    found = figure(metric, None if seen is None else seen.get("difference"), _why_not(seen))
    axis = Axis(
        metric.title,
        metric.note,
        metric.brief,
        f"{metric.name}_change",
        found,
        metric.unit,
        _status(found, limit, metric.forbidden, crossed=crossed),
        metric.better,
        limit if metric.name != "cost_usd_per_1k" else None,
        metric.forbidden,
    )
    ahead = (seen or {}).get("predicted") or predicted
    alike = bool((seen or {}).get("known", {}).get("alike", True))
    said = figure(metric, ahead, "the run gave no estimate")
    return Change(axis, said, int((seen or {}).get("units") or 0), crossed, alike)


def _why_not(seen: Json | None) -> str:
    return "not looked at yet" if seen is None else str(seen.get("reason") or "nothing is known yet")


def figure(metric: Metric, said: Json | None, why: str) -> Figure:
    """A difference, policy minus today, as pages show it: costs become savings."""
    if said is None or said.get("value") is None:
        return Figure(None, None, None, None, reason=why)
    low, high = (None if said.get(end) is None else metric.sign * float(said[end]) for end in ("low", "high"))
    if metric.sign < 0:
        low, high = high, low
    return Figure(metric.sign * float(said["value"]), low, high, said.get("kind"))


def _status(seen: Figure, limit: float | None, forbidden: Side, *, crossed: bool) -> str:
    if seen.refused:
        return ""
    if crossed:
        return "Beyond the limit for certain: this must go back."
    if limit is None:
        return "No limit is set."
    _, low, high = seen.span
    inside = low >= limit if forbidden == "below" else high <= limit
    return "The whole interval is inside the limit." if inside else "Not clear yet: the interval reaches the limit."


def timeline(rollout: Rollout, metric: Metric) -> pl.DataFrame:
    """Each look at a metric, oldest first: at (UTC), value, low, high, decisions."""
    rows = [_look(metric, one) for one in rollout.timeline if one.get("metric") == metric.name]
    schema = {"at": pl.String, **dict.fromkeys(("value", "low", "high"), pl.Float64), "decisions": pl.Int64}
    frame = pl.DataFrame(rows, schema=schema)
    return frame.with_columns(pl.col("at").str.to_datetime(time_zone="UTC", strict=False)).drop_nulls("at").sort("at")


def _look(metric: Metric, one: Json) -> dict[str, Any]:
    found = figure(metric, one, "")
    return {"at": one["at"], "value": found.value, "low": found.low, "high": found.high, "decisions": one["decisions"]}


def steps(rollout: Rollout) -> pl.DataFrame:
    """When which share began: at (UTC), text."""
    rows = [{"at": step.at, "text": stage(step.stage, step.percent)} for step in rollout.steps]
    frame = pl.DataFrame(rows, schema={"at": pl.String, "text": pl.String})
    return frame.with_columns(pl.col("at").str.to_datetime(time_zone="UTC", strict=False)).drop_nulls("at")


def stage(name: Stage, percent: float) -> str:
    """A stage in a word or two."""
    return f"{percent:g}%" if name in ("canary", "full") else STAGES[name].lower().removeprefix("in ")
