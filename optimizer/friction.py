"""Where work between agents is lost: prompts whose traces turn out worse, handoffs that fail or cost, costly steps.

All of this is association: a prompt for hard cases is found in traces that turn out badly, whatever it does. What a
change would do is what a policy's evaluation says, from logged probabilities. Means have intervals of their own; the
differences of a table, which invite picking the worst, are right together: each at level 1 - alpha / m for the m of
them (Bonferroni; Dunn 1961, Multiple comparisons among means), whatever their dependence.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import polars as pl

from optimizer.dataset import Bools, Floats, Ints
from optimizer.decisions import cost
from optimizer.evidence import Outcome, Refused, scaled
from optimizer.gate import Estimate
from optimizer.ope.intervals import mean_interval
from optimizer.runtime import STOP
from optimizer.summary import estimate_json

MIN_GROUPS = 30
"""Sessions on each side below which a mean or a difference is no number."""
MOST = 25
"""Rows of a table that are kept: those met most often. The others count in the number of comparisons."""
READING = "association"


@dataclass(frozen=True)
class Prompt:
    """A version of a prompt at a decision point, by the traces that used it."""

    point: str
    prompt: str
    version: str | None
    calls: int
    traces: int
    scored: int
    """Of the traces."""
    cost_usd_per_1k: Outcome
    """Of its calls, per 1,000 traces that used it."""
    quality: Outcome
    """Mean of the scored traces."""
    difference: Outcome
    """Minus that of the other traces of the point; all of the table hold together."""


@dataclass(frozen=True)
class Handoff:
    """One agent right after another one; the second may be the same."""

    source: str
    target: str
    count: int
    traces: int
    failed: Outcome
    """Share in which the second one had an error."""
    cost_usd_per_1k: Outcome
    """Of 1,000 turns of the second one."""
    seconds: Outcome
    """Of a turn of the second one."""
    quality: Outcome
    """Mean of the scored traces that hold it."""
    quality_without: Outcome
    """Mean of those that do not."""
    difference: Outcome
    """Between both; all of the table hold together."""


@dataclass(frozen=True)
class StepTotal:
    """What an agent's turns took of all turns; a description of the log, so without an interval."""

    agent: str
    turns: int
    traces: int
    cost_share: float | None
    """Of the known cost of all turns."""
    seconds_share: float | None
    """Of the seconds of all turns, which may run side by side."""
    tokens_share: float | None
    failed_share: float


@dataclass(frozen=True)
class Friction:
    """The three tables, the commonest rows of each first."""

    prompts: tuple[Prompt, ...]
    handoffs: tuple[Handoff, ...]
    steps: tuple[StepTotal, ...]
    confidence: float


def friction(calls: pl.DataFrame, turns: pl.DataFrame, outcomes: pl.DataFrame, *, confidence: float) -> Friction:
    """The friction in some traces.

    calls: rows of the query `decision_calls`, with costs at one price list. turns: see `turns.COLUMNS`. outcomes: one
    row a trace with trace_id, point, group and quality (null: no score); traces without a row are left out.
    """
    known = outcomes.with_columns(pl.col("group").rank("dense").cast(pl.Int64))
    return Friction(
        _prompts(calls, known, confidence),
        _handoffs(turns, known, confidence),
        _steps(turns.join(known.select("trace_id"), on="trace_id", how="semi")),
        confidence,
    )


def to_json(found: Friction) -> dict[str, Any]:
    """{"reading", "confidence", "prompts", "handoffs", "steps"}: rows with the fields of the records as keys, the
    source of a handoff as "from" and its target as "to"; estimates as everywhere."""
    renamed = {"source": "from", "target": "to"}

    def row(one: Any) -> dict[str, Any]:
        values = ((renamed.get(field.name, field.name), getattr(one, field.name)) for field in fields(one))
        return {name: estimate_json(x) if isinstance(x, Estimate | Refused) else x for name, x in values}

    tables = {name: [row(one) for one in getattr(found, name)] for name in ("prompts", "handoffs", "steps")}
    return {"reading": READING, "confidence": found.confidence, **tables}


def _prompts(calls: pl.DataFrame, outcomes: pl.DataFrame, confidence: float) -> tuple[Prompt, ...]:
    used = (
        calls.filter(pl.col("prompt_name").is_not_null())
        .join(outcomes, on="trace_id", how="inner")
        .group_by("point", "prompt_name", "prompt_version", "trace_id", maintain_order=True)
        .agg(
            pl.col("attempt_of").is_null().sum().alias("calls"),
            cost("cost_usd", "unpriced"),
            pl.col("group").first(),
        )
    )
    if used.is_empty():
        return ()
    of_point = {str(point): rows for (point,), rows in outcomes.group_by(["point"])}
    tables = [
        (str(point), str(name), version, rows)
        for (point, name, version), rows in used.group_by(["point", "prompt_name", "prompt_version"])
    ]
    tables.sort(key=lambda one: (-len(one[3]), one[0], one[1], str(one[2] or "")))
    sides = [_Sides.of(of_point[point], rows["trace_id"]) for point, _, _, rows in tables]
    level = _level(sides, confidence)
    return tuple(
        Prompt(
            point,
            name,
            None if version is None else str(version),
            int(rows["calls"].sum()),
            len(rows),
            len(side.inside),
            scaled(_mean(rows, "cost_usd", "with a known cost", confidence), 1000.0),
            side.mean(confidence),
            side.difference(level),
        )
        for (point, name, version, rows), side in zip(tables[:MOST], sides, strict=False)
    )


def _handoffs(turns: pl.DataFrame, outcomes: pl.DataFrame, confidence: float) -> tuple[Handoff, ...]:
    turn = turns.join(outcomes.select("trace_id", "group"), on="trace_id", how="inner", maintain_order="left")
    pairs = (
        turn.explode("after")
        .filter(pl.col("after").is_not_null())
        .join(turns.select("trace_id", after="place", source="agent"), on=["trace_id", "after"], maintain_order="left")
        .filter(pl.col("source") != STOP, pl.col("agent") != STOP)
        .with_columns(pl.col("failed").cast(pl.Float64))
    )
    tables = [(str(source), str(target), rows) for (source, target), rows in pairs.group_by(["source", "agent"])]
    tables.sort(key=lambda one: (-len(one[2]), one[0], one[1]))
    sides = [_Sides.of(outcomes, rows["trace_id"].unique()) for _, _, rows in tables]
    level = _level(sides, confidence)
    return tuple(
        Handoff(
            source,
            target,
            len(rows),
            rows["trace_id"].n_unique(),
            _mean(rows, "failed", "with it", confidence),
            scaled(_mean(rows, "cost_usd", "with a known cost", confidence), 1000.0),
            _mean(rows, "seconds", "with a known duration", confidence),
            side.mean(confidence),
            side.mean(confidence, without=True),
            side.difference(level),
        )
        for (source, target, rows), side in zip(tables[:MOST], sides, strict=False)
    )


def _steps(turns: pl.DataFrame) -> tuple[StepTotal, ...]:
    acting = turns.filter(pl.col("agent") != STOP)
    amounts = ("cost_usd", "seconds", "tokens")
    found = (
        acting.group_by("agent")
        .agg(
            pl.len().alias("turns"),
            pl.col("trace_id").n_unique().alias("traces"),
            *(pl.col(name).sum() for name in amounts),
            pl.col("failed").mean(),
        )
        .sort("cost_usd", "seconds", "agent", descending=[True, True, False])
        .with_columns((pl.col(name) / pl.col(name).sum()).fill_nan(None) for name in amounts)
    )
    columns = ("agent", "turns", "traces", *amounts, "failed")
    return tuple(StepTotal(*row) for row in found.head(MOST).select(columns).iter_rows())


@dataclass(frozen=True, eq=False)
class _Sides:
    """The scored traces with something and those without."""

    quality: Floats
    groups: Ints
    with_it: Bools

    @classmethod
    def of(cls, outcomes: pl.DataFrame, traces: pl.Series) -> _Sides:
        scored = outcomes.filter(pl.col("quality").is_not_null())
        return cls(
            scored["quality"].to_numpy().astype(np.float64),
            scored["group"].to_numpy().astype(np.int64),
            scored["trace_id"].is_in(traces.implode()).to_numpy(),
        )

    @property
    def inside(self) -> Floats:
        result: Floats = self.quality[self.with_it]
        return result

    def mean(self, confidence: float, *, without: bool = False) -> Outcome:
        """The quality of one side."""
        chosen = ~self.with_it if without else self.with_it
        return _interval(self.quality[chosen], self.groups[chosen], "with a score", confidence)

    def difference(self, confidence: float) -> Outcome:
        """The quality with it minus the quality without, by the linearised difference of two means: sessions that have
        both sides count as one."""
        if (refused := self.refused) is not None:
            return refused
        inside = self.with_it.astype(np.float64)
        share = inside.mean()
        own, other = self.inside.mean(), self.quality[~self.with_it].mean()
        apart = inside * (self.quality - own) / share - (1 - inside) * (self.quality - other) / (1 - share)
        return mean_interval(
            own - other + apart,
            self.groups,
            confidence=confidence,
            estimator="difference of means",
            effective=float(len(self.quality)),
        )

    @property
    def refused(self) -> Refused | None:
        """Why there is no difference."""
        for chosen, where in ((self.with_it, "with it"), (~self.with_it, "without it")):
            if (refused := _few(self.groups[chosen], f"{where} have a score")) is not None:
                return refused
        return None


def _level(sides: list[_Sides], confidence: float) -> float:
    """The confidence of each difference with which all of them hold together."""
    return 1 - (1 - confidence) / max(sum(side.refused is None for side in sides), 1)


def _mean(rows: pl.DataFrame, name: str, what: str, confidence: float) -> Outcome:
    known = rows.filter(pl.col(name).is_not_null())
    return _interval(known[name].to_numpy().astype(np.float64), known["group"].to_numpy(), what, confidence)


def _interval(values: Floats, groups: Ints, what: str, confidence: float) -> Outcome:
    if (refused := _few(groups, what)) is not None:
        return refused
    found = mean_interval(values, groups, confidence=confidence, estimator="mean", effective=float(len(values)))
    return replace(found, low=max(found.low, 0.0))  # of what is never negative


def _few(groups: Ints, what: str) -> Refused | None:
    count = len(np.unique(groups))
    if count >= MIN_GROUPS:
        return None
    return Refused(
        f"only {count} session{'' if count == 1 else 's'} {what}; below {MIN_GROUPS} no interval can be trusted"
    )
