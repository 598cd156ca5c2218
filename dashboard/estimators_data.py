"""What a run keeps of how well its estimates predicted before, as records. Layout: `optimizer.backtest`, `realised`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

from dashboard import data
from dashboard.figures import Unit
from dashboard.records import Figure, ServiceVerdict, figure

METRICS: Mapping[str, tuple[str, Unit]] = {
    "cost_usd_per_1k": ("Cost per 1,000 decisions", "usd"),
    "quality": ("Quality", "quality"),
    "latency_s": ("Latency", "seconds"),
}
CHANGES: Mapping[str, tuple[str, Unit]] = {
    "cost_usd_per_1k": ("Change of cost per 1,000", "usd_change"),
    "quality": ("Change of quality", "quality_change"),
    "latency_s": ("Change of latency", "seconds_change"),
}
POLICIES = {"logged": "What was logged", "learned": "A policy learned before"}


@dataclass(frozen=True)
class Trial:
    """A prediction at a cut and what was then seen. `low`, `high`: where that should lie (None: open or refused)."""

    policy: str
    metric: str
    estimator: str
    cut_ns: int
    before: int
    after: int
    predicted: Figure
    seen: Figure
    low: float | None
    high: float | None
    held: bool | None


@dataclass(frozen=True)
class Count:
    """How many predictions of a kind there were, and how many held."""

    policy: str
    metric: str
    estimator: str
    trials: int
    held: int


@dataclass(frozen=True)
class Beside:
    """A prediction beside what came: the level of a metric, or where `change` its difference to today's."""

    metric: str
    predicted: Figure
    seen: Figure
    low: float | None
    high: float | None
    held: bool | None
    change: bool = False

    @property
    def title(self) -> str:
        return (CHANGES if self.change else METRICS)[self.metric][0]

    @property
    def unit(self) -> Unit:
        return (CHANGES if self.change else METRICS)[self.metric][1]


@dataclass(frozen=True)
class Past:
    """An earlier policy that was in force: which, on how many decisions, and its figures."""

    name: str
    decisions: int | None
    figures: tuple[Beside, ...]


@dataclass(frozen=True)
class Backtest:
    refused: str
    """Why nothing could be tested; "" where something was."""
    confidence: float
    trials: tuple[Trial, ...]
    counts: tuple[Count, ...]
    chosen: tuple[Beside, ...]
    in_force: tuple[Past, ...]

    def held(self, counts: Iterable[Count] | None = None) -> tuple[int, int]:
        """(predictions that held, predictions)."""
        rows = list(self.counts if counts is None else counts)
        return sum(row.held for row in rows), sum(row.trials for row in rows)


def load(verdict: ServiceVerdict) -> Backtest | None:
    """None where the run kept nothing. UnreadableError for a file that is not as expected."""
    return data.kept(verdict, "backtest", _backtest)


def _backtest(said: Mapping[str, Any]) -> Backtest:
    return Backtest(
        str(said["refused"] or ""),
        float(said["confidence"]),
        tuple(_trial(row) for row in said["trials"]),
        tuple(
            Count(*(row[key] for key in ("policy", "metric", "estimator", "trials", "held"))) for row in said["counts"]
        ),
        tuple(_beside(row) for row in said["chosen"]),
        tuple(
            Past(f"Run {row['run_id']}", int(row["decisions"]), tuple(_beside(one) for one in row["figures"]))
            for row in said["in_force"]
        ),
    )


def _trial(row: Mapping[str, Any]) -> Trial:
    if row["metric"] not in METRICS:
        raise ValueError(f"unknown metric {row['metric']!r}")
    return Trial(
        str(row["policy"]),
        str(row["metric"]),
        str(row["estimator"]),
        int(row["cut_ns"]),
        int(row["before"]),
        int(row["after"]),
        figure(row["predicted"]),
        figure(row["seen"]),
        row["low"],
        row["high"],
        row["held"],
    )


def _beside(row: Mapping[str, Any]) -> Beside:
    if row["metric"] not in METRICS:
        raise ValueError(f"unknown metric {row['metric']!r}")
    return Beside(row["metric"], figure(row["predicted"]), figure(row["seen"]), row["low"], row["high"], row["held"])


def rollouts(service: str) -> list[Past]:
    """Past rollouts of a service and the one under way, the newest first: what was predicted of the difference to
    today's routing beside what the arms showed."""
    found = data.rollout(service)
    if found is None:
        return []
    now = {"version": found.version, "from": found.began, "predicted": found.predicted, **_seen(found.monitor)}
    return [past for one in (now, *reversed(found.history)) if (past := _past(one)) is not None]


def _seen(monitor: Mapping[str, Any] | None) -> dict[str, Any]:
    return {"realised": (monitor or {}).get("metrics") or (), "arms": (monitor or {}).get("arms")}


def _past(said: Mapping[str, Any]) -> Past | None:
    try:
        realised = {row["metric"]: row["difference"] for row in said["realised"]}
        predicted, arms = said["predicted"], said.get("arms") or {}
        pairs = tuple(
            _difference(metric, predicted[metric], realised[metric])
            for metric in METRICS
            if metric in predicted and metric in realised
        )
        treated = (arms.get("treatment") or {}).get("decisions")
        name = f"Rollout of {said['version']}, from {str(said['from'])[:10]}"
    except (KeyError, TypeError, ValueError, AttributeError):
        return None
    return Past(name, treated, pairs) if pairs else None


def _difference(metric: str, predicted: Mapping[str, Any], realised: Mapping[str, Any]) -> Beside:
    told, seen = figure(predicted), figure(realised)
    held = None
    if not told.refused and not seen.refused:
        (_, low, high), (_, seen_low, seen_high) = told.span, seen.span
        held = seen_low <= high and low <= seen_high
    return Beside(metric, told, seen, None, None, held, change=True)


def trials_frame(trials: Sequence[Trial]) -> pl.DataFrame:
    """What the charts of the backtest show, to take away."""
    return pl.DataFrame(
        [
            {
                **{key: getattr(one, key) for key in ("policy", "metric", "estimator", "cut_ns", "before", "after")},
                **{f"predicted{end}": getattr(one.predicted, name) for end, name in _ENDS},
                **{f"seen{end}": getattr(one.seen, name) for end, name in _ENDS},
                "expected_low": one.low,
                "expected_high": one.high,
                "held": one.held,
                "refused": one.predicted.reason or one.seen.reason,
            }
            for one in trials
        ],
        schema=TRIALS,
    )


_ENDS = (("", "value"), ("_low", "low"), ("_high", "high"))
TRIALS = {
    **dict.fromkeys(("policy", "metric", "estimator"), pl.String),
    **dict.fromkeys(("cut_ns", "before", "after"), pl.Int64),
    **{f"{side}{end}": pl.Float64 for side in ("predicted", "seen") for end, _ in _ENDS},
    **dict.fromkeys(("expected_low", "expected_high"), pl.Float64),
    "held": pl.Boolean,
    "refused": pl.String,
}


def estimates_frame(verdict: ServiceVerdict) -> pl.DataFrame:
    """The change by every estimator, in long form."""
    rows = [
        {"estimator": row.estimator, "metric": name, "value": one.value, "low": one.low, "high": one.high}
        | {"kind": one.kind, "effective": one.effective, "refused": one.reason}
        for row in verdict.estimators
        for name in ("savings_usd_per_1k", "quality_change", "latency_change_s")
        if (one := row.on(name))
    ]
    texts, floats = ("estimator", "metric", "kind", "refused"), ("value", "low", "high", "effective")
    columns = ("estimator", "metric", "value", "low", "high", "kind", "effective", "refused")
    schema = {**dict.fromkeys(texts, pl.String), **dict.fromkeys(floats, pl.Float64)}
    return pl.DataFrame(rows, schema={name: schema[name] for name in columns})
