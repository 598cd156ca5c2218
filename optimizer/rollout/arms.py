"""Decisions of a rollout in, units by arm out.

A unit is what the arm was drawn for: a session, or a decision where the router was told no session. It belongs to the
revision, and so to the probability of treatment, that it was first seen under, and counts with the mean of its
decisions under that revision: each session once, so that units are independent.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import polars as pl

from optimizer.dataset import Bools, Floats

METRICS = ("cost_usd_per_1k", "quality", "latency_s")
COUNTED = ("policy", "explore", "canary", "not_able", "not_offered")
"""Reasons of decisions that an arm made. Others were left to the incumbent whatever the arm was."""
SCHEMA: Mapping[str, pl.DataType | type[pl.DataType]] = {
    "trace_id": pl.String,
    "session": pl.String,
    "time_ns": pl.Int64,
    "arm": pl.String,
    "reason": pl.String,
    "action": pl.String,
    "revision": pl.Int64,
    "shadow": pl.String,
    **dict.fromkeys(METRICS, pl.Float64),
}
"""One decision a row. `session` is the trace where it has none. Metrics are null where they are not known."""


@dataclass(frozen=True, eq=False)
class Arms:
    """What the arms of a rollout did."""

    units: pl.DataFrame
    """unit, time_ns, revision, share, treated, decisions and the metrics; in order of time."""
    decisions: pl.DataFrame
    """The rows that count, with unit and share."""
    held: int
    """Decisions that were left to the incumbent whatever the arm was."""
    failed: int
    """Those of them whose reason is an error of the policy."""
    by_session: bool
    """Whether units are sessions."""

    def known(self, metric: str) -> tuple[Floats, Bools, Floats]:
        """Outcome, treated and share of the units that have this metric and could be in either arm."""
        rows = self.units.filter(pl.col(metric).is_not_null() & pl.col("share").is_between(0, 1, closed="none"))
        return (
            rows[metric].to_numpy().astype(np.float64),
            rows["treated"].to_numpy().astype(np.bool_),
            rows["share"].to_numpy().astype(np.float64),
        )


def arms(decisions: pl.DataFrame, shares: Mapping[int, float], begun: Mapping[int, int]) -> Arms:
    """decisions: rows of `SCHEMA`. shares: of each revision the probability of treatment; begun: when it was put in
    force (ns), for decisions that do not say their revision. Those of other revisions do not count."""
    rows = _with_share(decisions, shares, begun)
    counted = rows.filter(pl.col("reason").is_in(COUNTED)).sort("time_ns", "trace_id")
    failed = int(rows["reason"].fill_null("").str.starts_with("error:").sum())
    by_session = _sticks(counted)
    unit = pl.col("session" if by_session else "trace_id")
    counted = counted.with_columns(unit=unit, treated=pl.col("arm") != "control")
    first = pl.col("revision").first().over("unit", order_by="time_ns")
    counted = counted.filter(pl.col("revision") == first)
    units = (
        counted.group_by("unit", maintain_order=True)
        .agg(
            pl.col("time_ns", "revision", "share", "treated").first(),
            pl.len().alias("decisions"),
            *(pl.col(metric).mean() for metric in METRICS),
        )
        .sort("time_ns", "unit")
    )
    return Arms(units, counted, len(rows) - len(rows.filter(pl.col("reason").is_in(COUNTED))), failed, by_session)


def _with_share(decisions: pl.DataFrame, shares: Mapping[int, float], begun: Mapping[int, int]) -> pl.DataFrame:
    table = pl.DataFrame(
        {"revision": list(shares), "share": list(shares.values())}, schema={"revision": pl.Int64, "share": pl.Float64}
    )
    times = pl.DataFrame(
        {"time_ns": list(begun.values()), "by_time": list(begun)}, schema={"time_ns": pl.Int64, "by_time": pl.Int64}
    ).sort("time_ns")
    return (
        decisions.sort("time_ns")
        .join_asof(times, on="time_ns", strategy="backward")
        .with_columns(revision=pl.coalesce("revision", "by_time"))
        .drop("by_time")
        .join(table, on="revision", how="inner", maintain_order="left")
    )


def _sticks(counted: pl.DataFrame) -> bool:
    """Whether sessions keep their arm. Where one in a hundred does not, the router is not told them, and draws for each
    decision."""
    several = counted.group_by("session", "revision").agg(
        pl.len().alias("decisions"), pl.col("arm").n_unique().alias("arms")
    )
    several = several.filter(pl.col("decisions") > 1)
    return several.filter(pl.col("arms") > 1).height <= 0.01 * several.height
