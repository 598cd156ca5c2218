"""The lake in, the decisions of a rollout out."""

from __future__ import annotations

from pathlib import Path

import polars as pl

from ingest.lake import Lake
from ingest.prices.shelf import home_prices
from optimizer import one_list, session_scores
from optimizer.config import Settings
from optimizer.decisions import cost, first_calls, quality_name, with_labels
from optimizer.rollout.arms import SCHEMA

_BEFORE_NS = 3600 * 10**9
"""A trace may have begun so long before its first decision."""


def decisions(
    home: Path, settings: Settings, service: str, policy_id: str, version: str, since_ns: int
) -> pl.DataFrame:
    """Rows of `arms.SCHEMA` for the traces in which this version of the policy decided since then: as evaluation has
    them, a decision is judged by its whole trace, at today's prices."""
    known = settings.service(service)
    prices = home_prices(home, settings.prices, settings.discounts)
    with Lake.open(home) as lake:
        made = lake.query("rollout_decisions", policy_id=policy_id, version=version, since_ns=since_ns)
        if made.is_empty():
            return pl.DataFrame(schema=dict(SCHEMA))
        every = lake.query("decision_calls", since_ns=since_ns - _BEFORE_NS)
        scores = session_scores.placed(lake.query("scores"), every, [service] if known.sticky else [])
        calls = every.join(made, on="trace_id", how="semi")
    calls = one_list.with_one_list(calls, prices, one_list.newest(prices).at)
    own = scores.filter(pl.col("service") == service)
    firsts = first_calls(calls).filter(pl.col("decides") & (pl.col("service") == service))
    name = quality_name(own, known.quality, known.judge)
    labelled = with_labels(firsts, calls, scores, {service: name}, {service: known.judge})
    rows = labelled.select("trace_id", "quality", session="group")
    outcomes = calls.group_by("trace_id").agg(
        (1000 * cost("cost_usd", "unpriced")).alias("cost_usd_per_1k"),
        ((pl.col("end_ns").max() - pl.col("start_ns").min()) / 1e9).alias("latency_s"),
    )
    found = made.join(rows, on="trace_id", how="inner").join(outcomes, on="trace_id", how="left")
    found = found.rename({"start_ns": "time_ns"}).with_columns(
        latency_s=pl.when(pl.col("latency_s") >= 0).then("latency_s")
    )
    return found.select(pl.col(column).cast(kind) for column, kind in SCHEMA.items()).sort("time_ns", "trace_id")
