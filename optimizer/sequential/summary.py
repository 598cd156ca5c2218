"""The findings on an orchestrated service as the JSON that a run folder promises; costs per 1,000 traces.

Legend: N episodes, n decisions, a actions.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import numpy as np

from optimizer.dataset import Floats
from optimizer.evidence import savings
from optimizer.gate import Limits
from optimizer.prediction import forecasts_json
from optimizer.propensity import Behaviour
from optimizer.propensity_text import behaviour_json
from optimizer.sequential import evaluation
from optimizer.sequential.episodes import EpisodeLog
from optimizer.sequential.forecasts import Judged, forecasts
from optimizer.sequential.study import Findings, Lessons, Suggestion
from optimizer.summary import Notes, estimate_json, estimators_json, frontier_json, table_json

SHOWN_STEPS = 10
LEAST_REACH = 0.02
"""Steps that fewer of the traces reach are not shown."""


def training_json(
    log: EpisodeLog, behaviour: Behaviour | None, lessons: Lessons, limits: Limits, *, point: str, notes: Notes
) -> dict[str, Any]:
    """What training.json keeps of a service: all that judging it later needs beside steps and policy folder."""
    suggestion = lessons.suggestion
    return {
        "orchestrated": True,
        "actions": list(log.action_names),
        "point": point,
        "quality_name": notes.quality_name,
        "latency_label": notes.latency_label,
        "label": suggestion.label,
        "admissible": suggestion.admissible,
        "share": suggestion.share,
        "cheapest": suggestion.cheapest,
        "strongest": suggestion.strongest,
        "refused": suggestion.refused,
        "limits": asdict(limits),
        "behaviour_accuracy": None if behaviour is None else behaviour.accuracy,
        "behaviour": None if behaviour is None else behaviour_json(behaviour, log.action_names),
        "latency_cut_share": 0.0,
        "frontier": frontier_json(lessons.scored, suggestion.label),
    }


def suggestion_of(training: Mapping[str, Any], model: Any) -> Suggestion:
    """The suggestion that training.json and the policy folder kept."""
    names = ("label", "admissible", "share", "cheapest", "strongest", "refused")
    return Suggestion(model=model, **{name: training[name] for name in names})


def service_json(log: EpisodeLog, findings: Findings, training: Mapping[str, Any], origin: list[str]) -> dict[str, Any]:
    """What verdicts.json says of a service, but for the plan, the orchestration and the names of run, policy and
    bundle. origin: (n,) where each decision's probability comes from."""
    changes, splits, support = findings.changes, findings.splits, findings.support
    labelled = int((~np.isnan(log.quality)).sum())
    cost = log.rewards()[1]
    return {
        "verdict": findings.verdict.outcome,
        "reasons": [asdict(reason) for reason in findings.verdict.reasons],
        "policy_label": training["label"],
        "savings_usd_per_1k": estimate_json(savings(changes["cost_usd"])),
        "quality_change": estimate_json(changes["quality"]),
        "latency_change_s": estimate_json(changes["latency_s"]),
        "table": table_json(findings.rows),
        "points": [_point_json(log, findings, training["point"])],
        "frontier": training["frontier"],
        "curve": [],
        "constraints": training.get("constraints"),
        "estimators": estimators_json(findings.estimators),
        "support": {
            "effective": None if support is None else support.effective,
            "top1_share": None if support is None else support.top_share,
            "unsupported_share": None if support is None else support.unsupported,
            "changed_share": None if support is None else support.changed,
            "decisions": len(log),
            "certify_decisions": len(splits.certify),
            "actions": [
                {"action": name, "logged": int(count), "share": float(count / len(log.actions))}
                for name, count in zip(log.action_names, _taken(log), strict=True)
            ],
        },
        "data": {
            "decisions": len(log),
            "labelled": labelled,
            "label_share": labelled / len(log),
            "label_sources": list(log.label_sources),
            "waiting": 0,
            "quality_name": training["quality_name"],
            "propensity_origin": {name: origin.count(name) for name in ("logged", "estimated")},
            "propensity_faults": training.get("propensity_faults", []),
            "behaviour_accuracy": training["behaviour_accuracy"],
            "behaviour": training.get("behaviour"),
            "splits": {"train": len(splits.train), "choose": len(splits.choose), "certify": len(splits.certify)},
            "latency_cut_share": training["latency_cut_share"],
            "latency_label": training["latency_label"],
            "unpriced": len(np.unique(log.episode[np.isnan(cost)])),
        },
        "costs": training.get("costs"),
        "limits": training["limits"],
        "disagreement": dict(findings.disagreement),
        "partial": [],
        "control": None if findings.control is None else asdict(findings.control),
    }


def predicted_json(findings: Findings, share: float, confidence: float) -> dict[str, Any]:
    """What the next episodes will show, as `prediction.forecast_of` reads it."""
    policy, expected = findings.policy, findings.expected
    if policy is None or expected is None:
        return forecasts_json({})
    judged = Judged(findings.judged, policy, *expected, share)
    return forecasts_json(forecasts(judged, findings.changes, confidence=confidence))


def route_json(log: EpisodeLog, policy: Floats | None) -> list[dict[str, Any]]:
    """Per step, what share of the traces still goes on and what they do there, today and under the policy (n, a).

    The policy's own traces are made of the logged ones by their weights; without a policy its parts are null.
    """
    names, total, found = log.action_names, len(log), []
    left = None if policy is None else evaluation.reach(log, policy)
    for t, now in enumerate(log.at_step[:SHOWN_STEPS]):
        today = np.bincount(log.actions[now], minlength=len(names)) / len(now)
        step: dict[str, Any] = {
            "step": t + 1,
            "today_reach": len(now) / total,
            "today": {name: float(share) for name, share in zip(names, today, strict=True) if share > 0},
            "policy_reach": None,
            "policy": None,
        }
        if policy is not None and left is not None:
            standing = float(left[now].sum())
            does = (left[now, None] * policy[now]).sum(axis=0) / max(standing, 1e-12)
            step["policy_reach"] = standing / total
            step["policy"] = {name: float(share) for name, share in zip(names, does, strict=True) if share >= 0.005}
        if step["today_reach"] < LEAST_REACH and not (step["policy_reach"] or 0.0) >= LEAST_REACH:
            break
        found.append(step)
    return found


def changed_routes(log: EpisodeLog, policy: Floats) -> float:
    """Share of the logged episodes in which the policy (n, a) would have decided otherwise at one step at least."""
    follows = policy[np.arange(len(log.actions)), log.actions]
    with np.errstate(divide="ignore"):
        whole = np.exp(np.bincount(log.episode, weights=np.log(follows), minlength=len(log)))
    return float(1 - whole.mean())


def _taken(log: EpisodeLog) -> list[int]:
    counts: list[int] = np.bincount(log.actions, minlength=len(log.action_names)).tolist()
    return counts


def _point_json(log: EpisodeLog, findings: Findings, point: str) -> dict[str, Any]:
    """Shares of actions over all steps of the certifying episodes; without any, of all."""
    judged, policy = findings.judged, findings.policy
    today = (judged if len(judged) else log).behaviour.mean(axis=0)
    does = None if policy is None else policy.mean(axis=0)
    return {
        "point": point,
        "decisions": len(log.actions),
        "actions": [
            {
                "action": name,
                "today_share": float(today[number]),
                "policy_share": None if does is None else float(does[number]),
                "logged": count,
            }
            for number, (name, count) in enumerate(zip(log.action_names, _taken(log), strict=True))
        ],
        "savings_usd_per_1k": estimate_json(savings(findings.changes["cost_usd"])),
        "rules": None,
    }
