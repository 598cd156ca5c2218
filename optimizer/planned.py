"""`retroute plan`: what would decide the questions that the newest run leaves open, without learning anew."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from ingest.errors import UsageError, WorkError
from optimizer import bundle, label_plan, planned_labels, runs
from optimizer.config import nearest
from optimizer.dataset import CERTIFY, Bools, Floats, Ints, LoggedDataset
from optimizer.evidence import Evaluation, Outcome, Refused, cross_fitted
from optimizer.exploration import FLOOR, Exploration, cheaper, explore
from optimizer.gate import MIN_LABEL_SHARE, Estimate, Limits
from optimizer.logged import OTHER, to_dataset
from optimizer.mixtures import unmixed
from optimizer.ope import labels
from optimizer.ope.estimators import weights
from optimizer.policy import Learned
from optimizer.runtime import Model
from optimizer.sizing import wanted_half_width
from optimizer.study import MIN_GROUPS
from optimizer.summary import estimate_json, estimate_of
from optimizer.threads import one_thread

SEED = 0
OPEN = ("promising", "cannot_tell")
MAX_ARMS = 5
"""Models that are drawn where nothing is suggested yet: the commonest."""


@dataclass(frozen=True)
class StepsExperiment:
    """What would decide the question where decisions follow each other: one drawn step a trace."""

    script: tuple[str, ...]
    """What the app does now, step by step; the last one repeats."""
    actions: tuple[str, ...]
    """Among which a step is drawn, STOP last."""
    plan: Mapping[str, Any] | None
    """`text`, `decisions_needed` (traces) and `days`, as the verdict says it."""


@dataclass(frozen=True, eq=False)
class Question:
    """A service of the newest run, and what was said about it."""

    service: str
    run_id: str
    point: str
    quality_name: str | None
    verdict: str
    label: str | None
    limits: Limits
    quality: Outcome
    """The suggestion's change of quality as the run judged it."""
    data: LoggedDataset
    trace_ids: tuple[str, ...]
    model: Model | None
    refused: str
    steps: StepsExperiment | None = None
    """Of a service that is studied step by step."""

    @property
    def open(self) -> bool:
        return self.verdict in OPEN

    @property
    def arms(self) -> list[int]:
        """Columns of the actions to draw among: those of the suggestion, else the commonest."""
        names = self.data.action_names
        if self.model is not None:
            return [names.index(name) for name in self.model.actions]
        counts = np.bincount(self.data.actions, minlength=len(names))
        return [k for k, name in enumerate(names) if name != OTHER and counts[k] >= FLOOR * len(self.data)][:MAX_ARMS]

    @cached_property
    def _evaluation(self) -> Evaluation:
        with one_thread():
            return cross_fitted(self.data, confidence=self.limits.confidence, seed=SEED)

    def evaluation(self) -> Evaluation:
        """All decisions, by models that did not see them."""
        return self._evaluation

    def policy(self) -> Floats:
        """(n, a) the suggestion, or a stand-in: evenly what costs less than today's average."""
        if self.model is not None:
            return Learned(self.model, self.data.action_names).probabilities(self.data.features, self.data.behaviour)
        shares = cheaper(self.data.cost_usd, self.data.actions, self.arms, len(self.data.action_names))
        return np.tile(shares, (len(self.data), 1))

    def unplannable(self) -> Refused | None:
        """Why nothing can be planned by this log; None where something can."""
        if (sessions := len(np.unique(self.data.groups))) < MIN_GROUPS:
            return Refused(
                f"only {sessions} session{'' if sessions == 1 else 's'}, and decisions of one are not independent: "
                f"log {MIN_GROUPS} or more"
            )
        return None

    def exploration(self) -> Exploration | Refused:
        if (refused := self.unplannable()) is not None:
            return refused
        if len(self.arms) < 2:
            return Refused(
                "the log shows one model only: let the app draw a second one for a tenth of its decisions, and log "
                "policy.propensity"
            )
        return explore(self.evaluation(), self.policy(), self.limits, quality=self.quality, arms=self.arms)


def questions(home: Path, services: Sequence[str]) -> list[Question]:
    """The services of the newest run, or those named. Raises UsageError for one that it does not judge."""
    folder = runs.run_folder(home, None)
    if not (folder / "verdicts.json").is_file():
        raise UsageError(f"run {folder.name} is not judged yet", "Judge it first: retroute evaluate")
    judged = runs.read_json(folder / "verdicts.json")["services"]
    for name in services:
        if name not in judged:
            near = nearest(name, judged)
            hint = f"Did you mean '{near}'?" if near else f"Judged services: {', '.join(sorted(judged)) or 'none'}."
            raise UsageError(f"no verdict on service '{name}' in run {folder.name}", hint)
    training = runs.read_json(folder / "training.json")
    try:
        decisions = pl.read_parquet(folder / "decisions.parquet")
    except (OSError, pl.exceptions.PolarsError) as error:
        raise UsageError(
            f"cannot read {folder / 'decisions.parquet'}: {error}", "Run retroute nightly again."
        ) from error
    found = []
    for name in sorted(services or judged):
        own, learned = decisions.filter(pl.col("service") == name), training[name]
        if learned.get("orchestrated"):
            whole = question(name, judged[name], learned, to_dataset(own, seed=SEED).data, [], None, run_id=folder.name)
            script, actions = (tuple(map(str, names)) for names in (learned["script"], learned["actions"]))
            steps = StepsExperiment(script, actions, judged[name]["plan"])
            found.append(replace(whole, steps=steps, trace_ids=tuple(own["trace_id"].to_list())))
            continue
        has_policy = learned["label"] is not None
        model = unmixed(bundle.read_policy(runs.policy_folder(folder, name))[0]) if has_policy else None
        data = to_dataset(own, seed=SEED).data
        traces = own["trace_id"].to_list()
        found.append(question(name, judged[name], learned, data, traces, model, run_id=folder.name))
    return found


def question(
    name: str,
    said: Mapping[str, Any],
    learned: Mapping[str, Any],
    data: LoggedDataset,
    trace_ids: Sequence[str],
    model: Model | None,
    *,
    run_id: str,
) -> Question:
    """The question that a verdict `said` on what a run `learned` of a service's decisions."""
    return Question(
        service=name,
        run_id=run_id,
        point=learned["point"],
        quality_name=learned["quality_name"],
        verdict=said["verdict"],
        label=learned["label"],
        limits=Limits(**said["limits"]),
        quality=estimate_of(said["quality_change"]),
        data=data,
        trace_ids=tuple(trace_ids),
        model=model,
        refused=learned["refused"],
    )


def exploration_json(question: Question) -> dict[str, Any]:
    """What `retroute plan --json` says of a service."""
    said: dict[str, Any] = {
        "verdict": question.verdict,
        "run_id": question.run_id,
        "point": question.point,
        "policy_label": question.label,
        "decided": not question.open,
        "plan": None,
        "steps": None,
        "refused": None,
    }
    if not question.open:
        return said
    if question.steps is not None:
        return {**said, "steps": question.steps.plan}
    found = question.exploration()
    if isinstance(found, Refused):
        return {**said, "refused": found.reason}
    return {
        **said,
        "plan": {
            "arms": list(found.arms),
            "base": found.base,
            "randomised_share": found.randomised,
            "segments": [
                {
                    "chosen": segment.chosen,
                    "share": segment.share,
                    "randomised": segment.randomised,
                    "today": dict(zip(found.arms, segment.today.tolist(), strict=True)),
                    "draw": dict(zip(found.arms, segment.draw.tolist(), strict=True)),
                }
                for segment in found.segments
            ],
            "cost_usd_per_day": estimate_json(found.cost_per_day),
            "quality_per_day": estimate_json(found.quality_per_day),
            "quality_at_risk": found.quality_at_risk,
            "within_margin": found.within_margin,
            "half_width": found.half_width,
            "binding": found.binding,
            "decisions": found.decisions,
            "decisions_per_day": found.per_day,
            "days": found.days,
            "estimated": isinstance(question.quality, Estimate),
            "label_share": found.label_share,
            "labelled_now": float(np.mean(~np.isnan(question.data.quality))),
            "propensities_logged": question.data.propensities_logged,
            "why_open": question.refused,
            "z": found.z,
            "variance": found.variance,
            "variance_today": found.variance_today,
            "earlier": found.earlier,
        },
    }


@dataclass(frozen=True, eq=False)
class Labels:
    """Which decisions of a service to have scored: what `retroute plan --labels --json` says, and what a home keeps."""

    said: Mapping[str, Any]
    plan: pl.DataFrame = field(default_factory=lambda: pl.DataFrame(schema=planned_labels.COLUMNS))


def labels_of(question: Question, budget: int | None) -> Labels:
    """The plan for a service. A judge's score is none. Raises UsageError for a budget below the floors."""
    lacking = np.isnan(question.data.quality) | question.data.judge_only
    unscored = np.flatnonzero(lacking)
    said = _nothing_planned(question, len(unscored))
    if not question.open or not len(unscored):
        return Labels(said)
    if (refused := question.unplannable()) is not None:
        return Labels({**said, "refused": refused.reason})
    known = question.model is not None
    wanted = wanted_half_width(question.quality, question.limits)
    plan = _drawn(question, unscored, wanted, budget)
    said |= {
        "budget": len(plan.picked),
        "half_width": plan.half_width if known else None,
        "wanted_half_width": wanted if known else None,
        "traces": [
            {"trace_id": question.trace_ids[unscored[row]], "probability": float(plan.probabilities[row])}
            for row in plan.picked
        ],
    }
    return Labels(said, _kept_plan(question, plan, lacking))


def _nothing_planned(question: Question, unscored: int) -> dict[str, Any]:
    return {
        "verdict": question.verdict,
        "run_id": question.run_id,
        "decided": not question.open,
        "unscored": unscored,
        "name": question.quality_name,
        "budget": 0,
        "half_width": None,
        "wanted_half_width": None,
        "traces": [],
        "refused": None,
    }


def _drawn(question: Question, unscored: Ints, wanted: float, budget: int | None) -> label_plan.LabelPlan:
    """Which of the unscored rows to score. Raises UsageError for a budget below the floors."""
    evidence = question.evaluation().outcomes["quality"]
    spread = label_plan.spreads(evidence)
    policy = question.policy()
    known = question.model is not None
    ratio = weights(evidence, policy) if known else np.full(len(spread), 2.0)  # without a candidate all weigh alike
    needs = label_plan.importance(ratio, spread)
    whole = label_plan.importance(ratio, label_plan.spreads(evidence, judged=False))
    moved = np.where(np.isnan(evidence.model), 0.0, evidence.model) * (policy - evidence.behaviour)
    settled = float(np.mean(whole**2) + (moved.sum(axis=1).var() if known else 0.0))
    z = _normal(question.limits.confidence)
    rows, judged = len(question.data), max(int(CERTIFY * len(question.data)), 1)
    actions: Ints = question.data.actions[unscored]
    if budget is None:
        budget = label_plan.smallest_budget(actions)
        if known:
            enough = label_plan.smallest_sufficient(needs[unscored], actions, wanted, settled, rows, judged, z)
            budget = max(budget, enough)
        elif not (labels.judged(question.data) or question.data.judge_only):  # half, as if nobody had drawn them
            budget = max(budget, int(np.ceil(MIN_LABEL_SHARE * rows - (rows - len(unscored)))))
    budget = min(budget, len(unscored))
    try:
        return label_plan.plan(
            needs[unscored], actions, budget, settled=settled, rows=rows, judged=judged, z=z, seed=SEED
        )
    except ValueError as error:
        raise UsageError(f"{question.service}: {error}", "Give a larger --budget, or none.") from None


def _kept_plan(question: Question, plan: label_plan.LabelPlan, lacking: Bools) -> pl.DataFrame:
    """What a home keeps of a draw, columns `planned_labels.COLUMNS`. lacking: (n,) the rows that were drawn from."""
    rows, unscored = len(question.data), np.flatnonzero(lacking)
    chances, drawn = np.ones(rows), np.zeros(rows, dtype=np.bool_)
    chances[unscored], drawn[unscored[plan.picked]] = plan.probabilities, True
    seen = {
        "service": [question.service] * rows,
        "trace_id": list(question.trace_ids),
        "probability": chances,
        "drawn": drawn,
        "scored": ~lacking,
    }
    return pl.DataFrame(seen, schema=planned_labels.COLUMNS)


def _normal(confidence: float) -> float:
    from scipy.stats import norm

    return float(norm.ppf(0.5 + confidence / 2))


def write_labels(file: Path, services: Mapping[str, Mapping[str, Any]]) -> int:
    """The traces to score as CSV that `retroute scores import` reads once `value` is filled in; how many.

    The source is written down: under the judge's name a score without one would be the judge's.
    """
    rows = [
        (name, trace["trace_id"], said["name"] or "quality", "", "human", f"{trace['probability']:.6f}")
        for name, said in services.items()
        for trace in said["traces"]
    ]
    try:
        with file.open("w", newline="", encoding="utf-8") as handle:
            csv.writer(handle).writerows([("service", "trace_id", "name", "value", "source", "probability"), *rows])
    except OSError as error:
        raise WorkError(f"cannot write {file}: {error.strerror or error}") from None
    return len(rows)
