"""The decisions that were drawn to be scored, kept in the home, so that a later run knows how likely each score was.

label_plans/TIME.parquet    service, trace_id, probability, drawn, scored: every decision that the plan saw

`scored` had a score when the plan was made: whatever brought it, it was there for certain. Of the others each was drawn
with its probability, by chance and nothing else.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

import polars as pl

from ingest.errors import WorkError
from optimizer.dataset import JUDGE

COLUMNS = {
    "service": pl.String,
    "trace_id": pl.String,
    "probability": pl.Float64,
    "drawn": pl.Boolean,
    "scored": pl.Boolean,
}
COMPLETE = 0.98
"""Share of the drawn decisions that must have come back scored: with fewer, why the others did not is part of it."""
MAX_NEWER = 1 / 3
"""Newer decisions than a plan's wait for the next plan while there are at most this many for each that it covers."""


def keep(home: Path, plan: pl.DataFrame, now_ns: int | None = None) -> None:
    """Writes down a plan with the columns `COLUMNS`; once if it is that of the last time. Raises WorkError."""
    if plan.is_empty():
        return
    earlier = read(home)
    if earlier and earlier[0].equals(plan):
        return
    folder = home / "label_plans"
    file = folder / f"{time.time_ns() if now_ns is None else now_ns:020d}.parquet"
    try:
        folder.mkdir(exist_ok=True)
        plan.write_parquet(file)
    except OSError as error:
        raise WorkError(f"cannot write {file}: {error.strerror or error}") from None


def read(home: Path) -> list[pl.DataFrame]:
    """The plans of a home, the newest first. Raises WorkError for one that cannot be read."""
    found = []
    for file in sorted((home / "label_plans").glob("*.parquet"), reverse=True):
        try:
            found.append(pl.read_parquet(file, columns=list(COLUMNS)))
        except (OSError, pl.exceptions.PolarsError) as error:
            hint = "Delete it: its scores then count as if nobody had drawn them."
            raise WorkError(f"cannot read {file}: {error}", hint) from error
    return found


def with_probabilities(decisions: pl.DataFrame, plans: Sequence[pl.DataFrame]) -> pl.DataFrame:
    """The decisions with `label_probability` by the newest plan that covers each and came back scored.

    1 where there was a score already; else the probability of being drawn times the share that came back; 0 for one
    that was scored later without having been drawn, so that it may teach but not judge. Where no plan says, as the
    decisions have it already, null else.
    """
    found = decisions.with_columns(label_probability=pl.lit(None, pl.Float64))
    has_score = pl.col("quality").is_not_null() & pl.col("label_source").ne_missing(pl.lit(JUDGE))
    for plan in plans:
        covered = found.join(plan, on=["service", "trace_id"], how="left", maintain_order="left")
        back = (
            covered.filter(pl.col("drawn") & has_score)
            .group_by("service")
            .agg(back=pl.len())
            .join(plan.filter("drawn").group_by("service").agg(asked=pl.len()), on="service")
            .select("service", rate=pl.col("back") / pl.col("asked"))
            .filter(pl.col("rate") >= COMPLETE)
        )
        drawn_chance = pl.col("probability") * pl.col("rate")
        chance = (
            pl.when(pl.col("scored") & has_score)
            .then(1.0)
            .when(~pl.col("scored") & ~pl.col("drawn") & has_score)
            .then(0.0)
            .when(~pl.col("scored"))
            .then(drawn_chance)
        )
        found = (
            covered.join(back, on="service", how="left", maintain_order="left")
            .with_columns(
                label_probability=pl.coalesce("label_probability", pl.when(pl.col("rate").is_not_null()).then(chance))
            )
            .select(found.columns)
        )
    if "label_probability" in decisions.columns:
        found = found.with_columns(pl.col("label_probability").fill_null(decisions["label_probability"]))
    return found


def settled(decisions: pl.DataFrame) -> pl.DataFrame:
    """The decisions of a point up to the newest that a plan covers: those since then had no chance of a score yet, and
    few have one. All of them where there is no plan, or so many newer ones that it says nothing of today."""
    covered = decisions.filter(pl.col("label_probability").is_not_null())
    if covered.is_empty():
        return decisions
    newer = decisions.filter(pl.col("time_ns") > covered["time_ns"].max())
    if newer["quality"].is_not_null().mean() in (None, 1.0) or len(newer) > MAX_NEWER * len(covered):
        return decisions
    return decisions.filter(pl.col("time_ns") <= covered["time_ns"].max())
