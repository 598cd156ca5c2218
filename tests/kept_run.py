"""A run of services whose numbers come from a real study of a small world, with all that a run keeps for later looks.

tried    two models, drawn with logged probabilities; something is suggested
guessed  the same, but the probabilities are estimated and a tenth of the scores are missing
never    the choice followed the prompt: nothing is suggested
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from worlds import two_models

from optimizer import at_price, identified, kept_scores, runs
from optimizer.dataset import LoggedDataset
from optimizer.expectations import chose_frame, judging_frame, scores_json
from optimizer.gate import Limits
from optimizer.logged import Logged
from optimizer.plan_kept import plan_json
from optimizer.planned import Question, exploration_json, question
from optimizer.planned_text import sentence_of
from optimizer.study import Findings, Lessons, assess, learn
from optimizer.summary import Notes, service_json, training_json

RUN = "20260401T020000"
HOUR_NS = 3_600_000_000_000
LIMITS = Limits(quality_margin=0.02, latency_s=0.5)
FIXED = [{"rule": "at most 1 lines", "action": "dear", "share": 0.5, "taken": 1.0}]


@dataclass(frozen=True, eq=False)
class Studied:
    """One service, from its log to what the run says and keeps."""

    data: LoggedDataset
    lessons: Lessons
    findings: Findings
    training: dict[str, Any]
    said: dict[str, Any]
    asked: Question
    tables: dict[runs.Kept, pl.DataFrame]
    evidence: dict[str, Any]
    plan: dict[str, Any]

    def kept(self) -> at_price.Kept:
        """The scores, as if read from the run."""
        tables = (self.tables[kind] for kind in ("price_scores", "judged_scores", "judging_expected"))
        return at_price.read(*tables, self.training, self.evidence["scores"], LIMITS)


def log(service: str, n: int) -> LoggedDataset:
    data = two_models(n, seed=3, gap=0.1).draw(1, label_share=0.9 if service == "guessed" else 1.0)
    data = replace(data, time_ns=np.arange(n) * HOUR_NS // 4 + 1_772_323_200_000_000_000)
    if service == "never":
        easy = (data.features[:, 0] > 0).astype(np.int64)
        sure = np.where(np.arange(2) == easy[:, None], 0.999, 0.001)
        return replace(data, actions=easy, behaviour=sure, propensities_logged=False)
    return replace(data, propensities_logged=service == "tried")


@cache
def studied(service: str, n: int = 900) -> Studied:
    """Studied once for all tests of a process."""
    data = log(service, n)
    lessons = learn(Logged(data, None, 0.0), LIMITS, None, epsilon=0.05, seed=0)
    if service == "never":
        refused = "the choice follows the prompt, so the logs never show what another action would have given"
        lessons = Lessons(replace(lessons.suggestion, label=None, model=None, refused=refused), ())
    findings = assess(data, lessons.suggestion, LIMITS, seed=0)
    notes = Notes("quality", None)
    training = training_json(Logged(data, None, 0.0), lessons, LIMITS, point="answer", notes=notes)
    ids = pl.Series([f"d{row}" for row in range(n)])
    tables: dict[runs.Kept, pl.DataFrame] = {}
    if (scores := lessons.scores) is not None:
        training["scores"] = scores_json(scores)
        judged = kept_scores.judged_frame(
            findings.evaluation, findings.probabilities["suggested"], ids.gather(findings.splits.certify)
        )
        tables = {
            "price_scores": chose_frame(scores, ids),
            "judging_expected": judging_frame(scores, ids),
            "judged_scores": judged,
        }
    origin = ["logged" if data.propensities_logged else "estimated"] * n
    traces = [f"{row:032x}" for row in range(n)]
    said = service_json(data, findings, training, origin)
    said |= {"orchestration": None, "limits": asdict(LIMITS), "run_id": RUN, "bundle": None}
    said["policy_id"] = None if lessons.suggestion.model is None else f"{service}@{RUN}"
    asked = question(service, said, training, data, traces, lessons.suggestion.model, run_id=RUN)
    if asked.verdict in ("deploy", "keep"):
        asked = replace(asked, verdict="promising")  # else there would be no plan to look at
        said["verdict"] = "promising"
    experiment = exploration_json(asked)
    said["plan"] = sentence_of(experiment)
    fixed = FIXED if service == "never" else []
    evidence = identified.evidence_json(
        data, findings, LIMITS, origin=origin, trace_ids=traces, fixed=fixed, protected={}
    )
    return Studied(data, lessons, findings, training, said, asked, tables, evidence, plan_json(asked, experiment))


def write(home: Path, found: dict[str, Studied], run_id: str = RUN) -> Path:
    """The run folder of these services."""
    folder = home / "runs" / run_id
    folder.mkdir(parents=True)
    manifest = {"format": 1, "run_id": run_id, "created_at": "2026-04-01T02:00:00+00:00", "snapshot": 1}
    runs.write_json(folder / "manifest.json", manifest | {"from_ns": 0, "to_ns": 1, "services": list(found)})
    runs.write_json(folder / "training.json", {name: one.training for name, one in found.items()})
    for name, one in found.items():
        runs.write_json(folder / runs.kept_name(name, "evidence"), one.evidence)
        runs.write_json(folder / runs.kept_name(name, "plan"), one.plan)
        for kind, table in one.tables.items():
            table.write_parquet(folder / runs.kept_name(name, kind))
    runs.write_json(folder / "verdicts.json", {"services": {name: one.said for name, one in found.items()}})
    return folder
