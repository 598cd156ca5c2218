"""The experiment that would decide a service, as a run keeps it; layout: `optimizer.plan_kept`."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

from dashboard import data
from dashboard.records import Figure, ServiceVerdict, figure
from optimizer import plan_kept
from optimizer.plan_kept import Bought

POINTS = 60
"""Of a line."""
REACH = 1.6
"""Times the planned length that a line goes on."""


@dataclass(frozen=True)
class Part:
    """Where the router would choose `chosen`: today's probability of each arm and the experiment's."""

    chosen: str
    share: float
    randomised: bool
    today: Mapping[str, float]
    draw: Mapping[str, float]

    @property
    def epsilon(self) -> float:
        """The least probability of any arm."""
        return min(self.draw.values())


@dataclass(frozen=True)
class Experiment:
    """A plan in numbers; `raw` is what `retroute plan --json` says."""

    raw: Mapping[str, Any]
    arms: tuple[str, ...]
    base: str
    parts: tuple[Part, ...]
    randomised: float
    cost: Figure
    """USD a day more than today."""
    quality: Figure
    """Good answers a day more than today."""
    at_risk: float
    within_margin: bool
    half_width: float
    binding: str
    decisions: int
    per_day: float | None
    days: float | None
    label_share: float
    labelled_now: float
    logged: bool


@dataclass(frozen=True)
class Labels:
    unscored: int
    budget: int
    half_width: float | None
    wanted: float | None
    refused: str
    drawn: Mapping[str, int]
    budgets: pl.DataFrame


@dataclass(frozen=True)
class Plan:
    """`unit` is "decision" or "trace". Of `experiment`, `steps` (a sentence) and `refused` there is one at most."""

    unit: str
    point: str
    label: str
    decided: bool
    experiment: Experiment | None
    steps: str
    days: float | None
    refused: str
    labels: Labels | None
    step_actions: tuple[str, ...] = ()
    """Among which a step is drawn."""
    step_drawn: float = 0.0
    """Chance of a step to be drawn."""


def load(verdict: ServiceVerdict) -> Plan | None:
    """None where the run kept nothing. UnreadableError for a file that is not as expected."""
    return data.kept(verdict, "plan", _plan)


def _plan(said: Mapping[str, Any]) -> Plan:
    found = said["exploration"]
    steps = found["steps"] or {}
    return Plan(
        unit=str(said["unit"]),
        point=str(found["point"]),
        label=str(found["policy_label"] or ""),
        decided=bool(found["decided"]),
        experiment=None if found["plan"] is None else _experiment(found["plan"]),
        steps=str(steps.get("text") or ""),
        days=None if steps.get("days") is None else float(steps["days"]),
        refused=str(found["refused"] or ""),
        labels=None if said["labels"] is None else _labels(said["labels"]),
        step_actions=tuple(map(str, said.get("actions") or ())),
        step_drawn=float(said.get("drawn") or 0.0),
    )


def _experiment(raw: Mapping[str, Any]) -> Experiment:
    return Experiment(
        raw=raw,
        arms=tuple(map(str, raw["arms"])),
        base=str(raw["base"]),
        parts=tuple(
            Part(
                str(one["chosen"]), float(one["share"]), bool(one["randomised"]), dict(one["today"]), dict(one["draw"])
            )
            for one in raw["segments"]
        ),
        randomised=float(raw["randomised_share"]),
        cost=figure(raw["cost_usd_per_day"]),
        quality=figure(raw["quality_per_day"]),
        at_risk=float(raw["quality_at_risk"]),
        within_margin=bool(raw["within_margin"]),
        half_width=float(raw["half_width"]),
        binding=str(raw["binding"]),
        decisions=int(raw["decisions"]),
        per_day=None if raw["decisions_per_day"] is None else float(raw["decisions_per_day"]),
        days=None if raw["days"] is None else float(raw["days"]),
        label_share=float(raw["label_share"]),
        labelled_now=float(raw["labelled_now"]),
        logged=bool(raw["propensities_logged"]),
    )


def _labels(raw: Mapping[str, Any]) -> Labels:
    half, wanted = raw["half_width"], raw["wanted_half_width"]
    return Labels(
        unscored=int(raw["unscored"]),
        budget=int(raw["budget"]),
        half_width=None if half is None else float(half),
        wanted=None if wanted is None else float(wanted),
        refused=str(raw["refused"] or ""),
        drawn={str(name): int(count) for name, count in raw["drawn"].items()},
        budgets=pl.DataFrame(raw["budgets"], schema={"budget": pl.Int64, "half_width": pl.Float64}),
    )


def bought(found: Experiment, total_usd: float | None, per_day_usd: float | None) -> Bought:
    return plan_kept.bought(found.raw, total_usd=total_usd, per_day_usd=per_day_usd)


def amount(text: str) -> float | None:
    """USD of a text; None for one that is no amount."""
    try:
        usd = float(text)
    except ValueError:
        return None
    return usd if math.isfinite(usd) and usd >= 0 else None


WIDTHS = {
    "who": pl.String,
    "decisions": pl.Float64,
    "days": pl.Float64,
    "usd": pl.Float64,
    "half_width": pl.Float64,
}


def widths(found: Experiment, share: float) -> pl.DataFrame:
    """How narrow the interval of quality gets with decisions, days and money: by the experiment on so large a share of
    the traffic, and as today goes on."""
    rows = []
    pace = found.per_day
    for who, as_today in (("Experiment", False), ("As today", True)):
        for step in range(1, POINTS + 1):
            decisions = REACH * found.decisions * step / POINTS
            half = plan_kept.half_width(found.raw, decisions, as_today=as_today)
            days = None if not pace or share <= 0 else decisions / pace / share
            usd = None if as_today or not pace or found.cost.refused else found.cost.span[0] * decisions / pace
            rows.append((who, decisions, days, usd, half if math.isfinite(half) else None))
    return pl.DataFrame(rows, schema=WIDTHS, orient="row")


def allocation(service: str, point: str, parts: Sequence[Part]) -> pl.DataFrame:
    """The table that the exported router draws by, in long form."""
    rows = [
        (service, point, part.chosen, part.share, arm, part.today[arm], chance, part.epsilon)
        for part in parts
        for arm, chance in part.draw.items()
    ]
    columns = ["service", "point", "where", "share", "arm", "today", "probability", "epsilon"]
    return pl.DataFrame(rows, schema=columns, orient="row")
