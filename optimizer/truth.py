"""What the sample's policies are truly worth: sample data comes with the outcome of every action, taken or not.

The truth of a policy is the mean over the certification split's traces of sum_a pi(a | x) outcome(a, x); "today" is the
same with the probabilities that drew the log. Nothing here reaches a learner or an estimator.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from optimizer import runs

OUTCOMES = ("cost_usd", "quality", "latency_s")
TODAY = "today"
CHANGES = (
    ("savings_usd_per_1k", "cost_usd", -1000.0),
    ("quality_change", "quality", 1.0),
    ("latency_change_s", "latency_s", 1.0),
)
"""(key of the verdict, outcome, factor from suggested - today to what the key says)."""


@dataclass(frozen=True)
class Truth:
    """Mean outcome per decision, in USD, [0, 1] and seconds."""

    cost_usd: float
    quality: float
    latency_s: float


def values(outcomes: pl.DataFrame, probabilities: pl.DataFrame) -> dict[str, Truth | None]:
    """The truth per policy. `outcomes`: trace_id, action, logging_probability and the outcomes, one row per trace and
    action; `probabilities`: trace_id, policy, action, probability. None for a policy that takes an action whose outcome
    is not known. The order of the rows does not matter."""
    chosen = probabilities.filter(pl.col("policy") != TODAY)
    traces = probabilities.select("trace_id").unique()
    logged = outcomes.join(traces, on="trace_id", how="semi").select(
        "trace_id", pl.lit(TODAY).alias("policy"), "action", pl.col("logging_probability").alias("probability")
    )
    columns = ["trace_id", "policy", "action", "probability"]
    every = pl.concat([logged, chosen.select(columns).cast({"probability": pl.Float64})])
    joined = every.filter(pl.col("probability") > 0).join(outcomes, on=["trace_id", "action"], how="left")
    found: dict[str, Truth | None] = {}
    for (policy,), rows in joined.sort(columns).group_by("policy", maintain_order=True):
        if any(rows[name].null_count() for name in OUTCOMES):
            found[str(policy)] = None
            continue
        share = rows["probability"] / rows["trace_id"].n_unique()
        found[str(policy)] = Truth(*(float((share * rows[name]).sum()) for name in OUTCOMES))
    return found


def with_truth(service: Mapping[str, Any], true: Mapping[str, Truth | None]) -> dict[str, Any]:
    """A service's verdict with `truth` beside every estimate it can be told for; null where it cannot."""
    today, suggested = true.get(TODAY), true.get("suggested")
    done = dict(service)
    for key, outcome, scale in CHANGES:
        change = None
        if today is not None and suggested is not None:
            change = scale * (getattr(suggested, outcome) - getattr(today, outcome))
        done[key] = _add(service.get(key), change)
    rows = []
    for row in service.get("table", ()):
        truth = true.get(row["policy"])
        rows.append(
            {
                **row,
                "cost_usd_per_1k": _add(row.get("cost_usd_per_1k"), None if truth is None else 1000 * truth.cost_usd),
                "quality": _add(row.get("quality"), None if truth is None else truth.quality),
                "latency_s": _add(row.get("latency_s"), None if truth is None else truth.latency_s),
            }
        )
    done["table"] = rows
    return done


def add(services: Mapping[str, Mapping[str, Any]], home: Path, folder: Path) -> dict[str, dict[str, Any]]:
    """The services of a nightly result with their truth, from the run's folder and the sample's."""
    from optimizer import step_truth

    done = {}
    for name, service in services.items():
        run = home / "runs" / str(service["run_id"])
        outcomes, probabilities = folder / "truth" / f"{name}.parquet", runs.probabilities_file(run, name)
        true: Mapping[str, Truth | None] = {}
        if service.get("orchestration") is not None:
            true = step_truth.values(folder / "truth", run, name, runs.read_json(run / "training.json")[name])
        elif outcomes.is_file() and probabilities.is_file():
            true = values(pl.read_parquet(outcomes), pl.read_parquet(probabilities))
        done[name] = with_truth(service, true)
    return done


def _add(estimate: Mapping[str, Any] | None, truth: float | None) -> dict[str, Any]:
    refused = {"value": None, "low": None, "high": None, "kind": None, "reason": "not estimated"}
    return {**(refused if estimate is None else estimate), "truth": truth}
