"""What was predicted of a policy beside what it then did: on the decisions that judged it, and since it was in force.

Both are figures of the same run folder format (`summary.estimate_json`). A prediction holds where the later figure lies
within the errors of both (see `backtest.reach`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from ingest.errors import UsageError
from optimizer import runs
from optimizer.backtest import reach
from optimizer.evidence import Outcome, Refused, scaled
from optimizer.logged import floats
from optimizer.ope.intervals import mean_interval
from optimizer.summary import estimate_json, estimate_of

LEAST = 20
"""Decisions with a known outcome below which nothing is said of what a policy did."""
METRICS: Mapping[str, tuple[str, float]] = {
    "cost_usd_per_1k": ("cost_usd", 1000.0),
    "quality": ("quality", 1.0),
    "latency_s": ("latency_s", 1.0),
}
"""Name in a run folder -> column of its decisions, and what a mean is multiplied by."""


def marked(decisions: pl.DataFrame, versions: pl.DataFrame) -> pl.DataFrame:
    """The decisions with the policy_version that decided and its policy_arm; null where no policy of ours did.
    versions: rows of the query `policy_versions`."""
    return decisions.join(versions, on="trace_id", how="left", maintain_order="left")


def by_episode(versions: pl.DataFrame) -> pl.DataFrame:
    """Rows of the query `policy_versions` under the ids of their episodes -> one row for each. An episode that
    several versions or both arms decided is left out: what it came to is the doing of none alone."""
    decided = versions.group_by("trace_id", maintain_order=True).agg(
        pl.col("policy_version", "policy_arm").first(), several=pl.struct("policy_version", "policy_arm").n_unique() > 1
    )
    return decided.filter(~pl.col("several")).drop("several")


def since_chosen(judged: Mapping[str, Any]) -> list[dict[str, Any]]:
    """What the choosing decisions said of the suggestion beside what those said that judged it. Of many candidates the
    best by chance is chosen, too: where the judged figure is the worse one each time, that is why.

    judged: a service of verdicts.json.
    """
    chosen = next((row for row in judged["frontier"] if row["chosen"]), None)
    found = _suggested(judged)
    if chosen is None or found is None:
        return []
    return [_beside(name, chosen[name], found[name]) for name in ("cost_usd_per_1k", "quality")]


def in_force(home: Path, service: str, decisions: pl.DataFrame, confidence: float) -> list[dict[str, Any]]:
    """Of each earlier run whose policy made some of these decisions: its predictions beside what they brought.

    decisions: those of the service, as `marked`. Only the arm that the policy decides counts: a control group is
    today's routing. Rows {run_id, decisions, figures}, the newest run first; a run whose folder is gone is left out.
    """
    if "policy_version" not in decisions.columns:
        return []
    treated = decisions.filter(pl.col("policy_arm").fill_null("treatment") == "treatment")
    found = []
    for run_id in sorted(treated["policy_version"].drop_nulls().unique().to_list(), reverse=True):
        own = treated.filter(pl.col("policy_version") == run_id)
        if (said := _predicted(home, run_id, service)) is None:
            continue
        figures = [
            _beside(name, said[name], estimate_json(_mean(own, column, factor, confidence)))
            for name, (column, factor) in METRICS.items()
        ]
        found.append({"run_id": run_id, "decisions": len(own), "figures": figures})
    return found


def _predicted(home: Path, run_id: str, service: str) -> Mapping[str, Any] | None:
    """The suggestion's row of an earlier run's table."""
    file = home / "runs" / run_id / "verdicts.json"
    if Path(run_id).name != run_id or not file.is_file():  # a version comes with telemetry and may be any text
        return None
    try:
        judged = runs.read_json(file)["services"].get(service)
    except (UsageError, KeyError, AttributeError):
        return None
    return None if judged is None else _suggested(judged)


def _suggested(judged: Mapping[str, Any]) -> Mapping[str, Any] | None:
    return next((row for row in judged["table"] if row["policy"] == "suggested"), None)


def _beside(metric: str, predicted: Mapping[str, Any], seen: Mapping[str, Any]) -> dict[str, Any]:
    told, found = estimate_of(predicted), estimate_of(seen)
    low = high = held = None
    if not isinstance(told, Refused) and not isinstance(found, Refused):
        low, high = (float(at) if np.isfinite(at) else None for at in reach(told, found))
        held = (low is None or low <= found.value) and (high is None or found.value <= high)
    return {"metric": metric, "predicted": predicted, "seen": seen, "low": low, "high": high, "held": held}


def _mean(decisions: pl.DataFrame, column: str, factor: float, confidence: float) -> Outcome:
    """The mean of what these decisions brought, by session."""
    known = decisions.filter(pl.col(column).is_not_null() & pl.col(column).is_not_nan())
    if len(known) < LEAST:
        return Refused(f"only {len(known)} of {len(decisions)} decisions have a known outcome")
    groups = known["group"].rank("dense").to_numpy().astype(np.int64)
    outcome, size = floats(known[column]), float(len(known))
    found = mean_interval(outcome, groups, confidence=confidence, estimator="mean", effective=size)
    return scaled(found, factor)


def to_json(home: Path, service: str, judged: Mapping[str, Any], decisions: pl.DataFrame) -> dict[str, Sequence[Any]]:
    """What backtest.json keeps beside the trials: `chosen`, see `since_chosen`, and `in_force`."""
    confidence = judged["limits"]["confidence"]
    return {"chosen": since_chosen(judged), "in_force": in_force(home, service, decisions, confidence)}
