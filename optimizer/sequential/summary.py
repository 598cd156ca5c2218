"""The findings on an orchestrated service as the JSON that a run folder promises; costs per 1,000 traces.

Legend: N episodes, n decisions, a actions.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import numpy as np
import polars as pl

from optimizer.dataset import Floats
from optimizer.evidence import savings, scaled
from optimizer.gate import Limits
from optimizer.propensity import Behaviour
from optimizer.propensity_text import behaviour_json
from optimizer.sequential.episodes import EpisodeLog
from optimizer.sequential.study import Findings, Lessons, Row, Suggestion
from optimizer.summary import ESTIMATE_COLUMNS, Notes, estimate_json

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
        "frontier": [
            {
                "label": scored.candidate.label,
                "cost_usd_per_1k": estimate_json(scaled(scored.cost_usd, 1000)),
                "quality": estimate_json(scored.quality),
                "chosen": scored.candidate.label == suggestion.label,
            }
            for scored in lessons.scored
        ],
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
        "table": [_row_json(row) for row in findings.rows],
        "points": [_point_json(log, findings, training["point"])],
        "frontier": training["frontier"],
        "curve": [],
        "constraints": None,
        "estimators": [
            {
                "estimator": name,
                "savings_usd_per_1k": estimate_json(savings(found["cost_usd"])),
                "quality_change": estimate_json(found["quality"]),
                "latency_change_s": estimate_json(found["latency_s"]),
            }
            for name, found in findings.estimators.items()
        ],
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
        "disagreement": {},
        "partial": [],
        "control": None,
    }


def route_json(log: EpisodeLog, policy: Floats | None) -> list[dict[str, Any]]:
    """Per step, what share of the traces still goes on and what they do there, today and under the policy (n, a).

    The policy's own traces are made of the logged ones by their weights; without a policy its parts are null.
    """
    names, total, found = log.action_names, len(log), []
    weight = np.ones(total)
    known = ~np.isnan(log.stop_quality)
    for t in range(min(log.horizon, SHOWN_STEPS)):
        now = np.flatnonzero(log.step == t)
        of = log.episode[now]
        today = np.bincount(log.actions[now], minlength=len(names)) / len(now)
        step: dict[str, Any] = {
            "step": t + 1,
            "today_reach": len(now) / total,
            "today": {name: float(share) for name, share in zip(names, today, strict=True) if share > 0},
            "policy_reach": None,
            "policy": None,
        }
        if policy is not None:
            reach = float(weight[of].sum()) / total
            does = (weight[of, None] * policy[now]).sum(axis=0) / max(float(weight[of].sum()), 1e-12)
            step["policy_reach"] = reach
            step["policy"] = {name: float(share) for name, share in zip(names, does, strict=True) if share >= 0.005}
            ratio = policy[now, log.actions[now]] / log.behaviour[now, log.actions[now]]
            weight[of] *= np.where(known[now] & (log.actions[now] == log.stop), 0.0, ratio)
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


def estimates_frame(service: str, findings: Findings) -> pl.DataFrame:
    """All estimates of a service in long form, costs per 1,000 traces."""
    rows: list[dict[str, Any]] = []

    def add(policy: str, metric: str, outcome: Any) -> None:
        rows.append({"service": service, "policy": policy, "metric": metric, **estimate_json(outcome)})

    for row in findings.rows:
        add(row.policy, "cost_usd_per_1k", scaled(row.outcomes["cost_usd"], 1000))
        add(row.policy, "quality", row.outcomes["quality"])
        add(row.policy, "latency_s", row.outcomes["latency_s"])
    for found in (findings.estimators or {"sequential DR": findings.changes}).values():
        add("suggested", "savings_usd_per_1k", savings(found["cost_usd"]))
        add("suggested", "quality_change", found["quality"])
        add("suggested", "latency_change_s", found["latency_s"])
    return pl.DataFrame(rows, schema=ESTIMATE_COLUMNS)


def _taken(log: EpisodeLog) -> list[int]:
    counts: list[int] = np.bincount(log.actions, minlength=len(log.action_names)).tolist()
    return counts


def _row_json(row: Row) -> dict[str, Any]:
    return {
        "policy": row.policy,
        "label": row.label,
        "cost_usd_per_1k": estimate_json(scaled(row.outcomes["cost_usd"], 1000)),
        "quality": estimate_json(row.outcomes["quality"]),
        "latency_s": estimate_json(row.outcomes["latency_s"]),
    }


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
