"""What a run keeps beside a verdict for people who ask whether to believe it: backtest and regressions, a file each."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import polars as pl

from optimizer import backtest, realised, regressions, runs, versions
from optimizer.dataset import LoggedDataset
from optimizer.gate import Limits
from optimizer.rewards import RewardSpec
from optimizer.runtime import Model
from optimizer.segments import Protected
from optimizer.study import Findings

MANY_STEPS = (
    "traces of several decisions: of a window's traces, too few follow a policy at every step for an estimate of the "
    "window alone"
)


def keep(
    home: Path,
    folder: Path,
    service: str,
    own: pl.DataFrame,
    data: LoggedDataset,
    findings: Findings,
    judged: Mapping[str, Any],
    guarded: Mapping[str, Protected],
    model: Model | None,
) -> None:
    """Writes both files of a service of single decisions.

    own, data: its decisions, in the same order. judged: what verdicts.json says of it. guarded: its stated segments.
    """
    splits, limits = findings.splits, Limits(**judged["limits"])
    suggested = findings.probabilities.get("suggested")
    train = data.take(splits.train)
    reward = None if suggested is None else RewardSpec.default(train.cost_usd)
    tried = backtest.to_json(backtest.backtest(findings.newer, reward), limits.confidence)
    _write(folder, service, "backtest", tried | realised.to_json(home, service, judged, own))
    rows = own.select("trace_id", "time_ns")[splits.certify.tolist()].to_dicts()
    stated = {name: one.rows[splits.certify] for name, one in guarded.items()}
    found = regressions.to_json(train, findings.evaluation, suggested, limits, stated=stated, decisions=rows)
    before = versions.to_json(home, service, folder.name, model, findings.evaluation, suggested)
    _write(folder, service, "regressions", found | {"previous": before})


def keep_steps(home: Path, folder: Path, service: str, own: pl.DataFrame, judged: dict[str, Any]) -> None:
    """Writes both files of an orchestrated service: what was predicted beside what came, and why there is no backtest.
    judged: as `judge_service` gives it; what it says by segment is taken out of it."""
    tried = {"refused": MANY_STEPS, "confidence": judged["limits"]["confidence"], "trials": [], "counts": []}
    _write(folder, service, "backtest", tried | realised.to_json(home, service, judged, own))
    _write(folder, service, "regressions", judged.pop("regressions"))


def _write(folder: Path, service: str, kind: runs.Kept, found: Mapping[str, Any]) -> None:
    runs.write_json(folder / runs.kept_name(service, kind), found)
