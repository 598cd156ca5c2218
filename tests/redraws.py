"""The sample's log drawn again: the same prompts, other chances, as rows of the calls and scores tables.

Each trace gets an action drawn with its true logging probabilities, and that action's true outcome; everything that
does not depend on the action (prompt, session, time) stays. One model call stands for a whole trace.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl

from ingest.importers.otlp_files import import_paths
from ingest.lake import Lake
from ingest.options import ConverterOptions
from optimizer import config
from optimizer.demo import sample_folder

WINDOW = {"service": None, "since_ns": None, "until_ns": None}


def sample_home(folder: Path) -> Path:
    """A home that holds the sample, imported from its files."""
    sample = sample_folder()
    (folder / config.FILE_NAME).write_text((sample / config.FILE_NAME).read_text())
    prices = config.load(folder).prices
    import_paths(folder, sorted(sample.glob("*.otlp.jsonl.gz")), ConverterOptions(quiet_s=0.0, prices=prices))
    return folder


@dataclass(frozen=True, eq=False)
class Redraw:
    """What every redraw of one service shares."""

    firsts: pl.DataFrame
    """The first call of each trace, in the order of trace_id."""
    scores: pl.DataFrame
    """One row with the columns of the scores table."""
    truth: pl.DataFrame
    """One row per trace and action."""
    label_share: float
    logs_propensities: bool

    @classmethod
    def of(cls, home: Path, service: str) -> Redraw:
        with Lake.open(home) as lake:
            calls = lake.query("calls", **{**WINDOW, "service": service})
            scores = lake.query("scores", **{**WINDOW, "service": service})
        firsts = calls.filter(pl.col("parent_call_id").is_null()).sort("trace_id")
        truth = pl.read_parquet(sample_folder() / "truth" / f"{service}.parquet").sort("trace_id", "action")
        labelled = scores["trace_id"].n_unique() / len(firsts)
        return cls(firsts, scores.head(1), truth, labelled, firsts["policy_propensity"].null_count() == 0)

    def draw(self, seed: int) -> tuple[pl.DataFrame, pl.DataFrame]:
        """Calls and scores of one redraw."""
        rng = np.random.default_rng(seed)
        chance = pl.Series(rng.random(len(self.firsts)))
        taken = (
            self.truth.join(self.firsts.select("trace_id").with_columns(chance=chance), on="trace_id")
            .with_columns(upto=pl.col("logging_probability").cum_sum().over("trace_id"))
            .filter((pl.col("upto") > pl.col("chance")) & (pl.col("logging_probability") > 0))
            .group_by("trace_id", maintain_order=True)
            .first()
            .sort("trace_id")
        )
        offered = (
            self.truth.group_by("trace_id", maintain_order=True).agg("action", "logging_probability").sort("trace_id")
        )
        logged = self.logs_propensities
        calls = self.firsts.with_columns(
            kind=pl.lit("llm"),
            model_requested=taken["action"],
            model_returned=pl.lit(None, pl.String),
            cost_usd=taken["cost_usd"],
            end_ns=pl.col("start_ns") + (taken["latency_s"] * 1e9).cast(pl.Int64),
            policy_action=taken["action"] if logged else pl.lit(None, pl.String),
            policy_propensity=taken["logging_probability"] if logged else pl.lit(None, pl.Float64),
            policy_candidates=_texts(offered["action"], logged),
            policy_probabilities=_texts(offered["logging_probability"], logged),
        )
        scores = pl.concat([self.scores] * len(taken)).with_columns(
            score_id=taken["trace_id"],
            trace_id=taken["trace_id"],
            span_id=pl.lit(None, pl.String),
            response_id=pl.lit(None, pl.String),
            value=taken["quality"],
            value01=taken["quality"],
            name=pl.lit("quality"),
        )
        return calls, scores.filter(pl.Series(rng.random(len(taken)) < self.label_share))


def _texts(column: pl.Series, logged: bool) -> pl.Series:
    return pl.Series([json.dumps(list(v)) if logged else None for v in column.to_list()], dtype=pl.String)
