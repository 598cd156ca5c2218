"""An orchestrator beside the version before it: as `optimizer.versions`, on the steps of the traces that judge.

Each version is taken to decide every trace, whatever share it is for. Legend: n judged decisions, a actions.
"""

from __future__ import annotations

from typing import Any

from optimizer.dataset import Floats
from optimizer.evidence import METRICS, Metric, Outcome, Refused, savings
from optimizer.ope.intervals import mean_interval
from optimizer.runtime import Model
from optimizer.sequential import evaluation
from optimizer.sequential.episodes import OUTCOMES, EpisodeLog
from optimizer.sequential.policies import on_log
from optimizer.sequential.study import Findings
from optimizer.summary import estimate_json
from optimizer.versions import Version, apart, beside


def to_json(
    before: Version | None, model: Model | None, findings: Findings, confidence: float
) -> dict[str, Any] | None:
    """What regressions.json keeps of the difference; None for a first version. model: the suggestion."""
    judged, policy = findings.judged, findings.policy
    if before is None or model is None or policy is None or findings.expected is None:
        return None
    found: dict[str, Any] = {**beside(before, model), "rules": None, "refused": None, "actions": []}
    if unknown := [name for name in before.model.actions if name not in judged.action_names]:
        return found | {"refused": f"it chooses among {', '.join(unknown)} too, which these traces do not show"}
    if not before.model.steps:
        return found | {"refused": "it made single decisions, and this one decides step by step"}
    did = on_log(before.model, judged)
    worth = differences(judged, policy, did, findings.expected[0], confidence)
    return found | {
        **apart(judged.action_names, did, policy),
        "savings_usd_per_1k": estimate_json(savings(worth["cost_usd"])),
        "quality_change": estimate_json(worth["quality"]),
    }


def differences(
    log: EpisodeLog, policy: Floats, other: Floats, model: Floats, confidence: float
) -> dict[Metric, Outcome]:
    """The outcomes per episode under `policy` minus those under `other`, (n, a) each; refused where the log has too few
    effective episodes of one of both. model: (k, n, a) future outcomes under `policy`, which serve for both: with
    logged probabilities the estimate is right whatever the model."""
    scores = evaluation.doubly_robust(log, policy, model) - evaluation.doubly_robust(log, other, model)
    found: dict[Metric, Outcome] = {}
    for metric in METRICS:
        if why := evaluation.refusal(log, policy, metric):
            found[metric] = Refused(why)
        elif why := evaluation.refusal(log, other, metric):
            found[metric] = Refused(f"of the version before: {why}")
        else:
            found[metric] = mean_interval(
                scores[OUTCOMES.index(metric)],
                log.groups,
                confidence=confidence,
                estimator=evaluation.SEQUENTIAL_DR,
                effective=min(evaluation.effective_episodes(log, does, metric) for does in (policy, other)),
                kind=evaluation.kind_of(log, policy, metric, evaluation.SEQUENTIAL_DR),
            )
    return found
