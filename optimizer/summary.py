"""The findings of a study as the JSON and the tables that a run folder promises."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Protocol

import numpy as np
import polars as pl

from optimizer.choosing import Scored
from optimizer.dataset import LoggedDataset
from optimizer.evidence import Metric, Outcome, Refused, savings, scaled
from optimizer.gate import Estimate, Limits
from optimizer.logged import Logged
from optimizer.prediction import predicted_json
from optimizer.propensity_text import behaviour_json
from optimizer.runtime import Model
from optimizer.study import Findings, Lessons, PartOf, Suggestion

ESTIMATE_COLUMNS = {
    "service": pl.String,
    "policy": pl.String,
    "metric": pl.String,
    "estimator": pl.String,
    "value": pl.Float64,
    "low": pl.Float64,
    "high": pl.Float64,
    "kind": pl.String,
    "episodes": pl.Int64,
    "effective": pl.Float64,
    "reason": pl.String,
}


@dataclass(frozen=True)
class Notes:
    """What is known of a service beside its decisions."""

    quality_name: str | None
    """The score that means quality; None when several could."""
    latency_label: str | None
    """How durations were made where no clock measured them, such as "modelled"."""


def estimate_json(outcome: Outcome) -> dict[str, Any]:
    """An estimate, or nulls with the reason. Unbounded intervals become null bounds."""
    if isinstance(outcome, Refused):
        empty = dict.fromkeys(("estimator", "value", "low", "high", "episodes", "effective", "kind"))
        return {**empty, "reason": outcome.reason}
    finite = {k: None if isinstance(v, float) and not np.isfinite(v) else v for k, v in asdict(outcome).items()}
    return {**finite, "reason": None}


def estimate_of(said: Mapping[str, Any]) -> Outcome:
    """What `estimate_json` wrote."""
    if said["value"] is None:
        return Refused(str(said["reason"]))
    low, high = said["low"], said["high"]
    return Estimate(
        said["estimator"],
        said["value"],
        -np.inf if low is None else low,
        np.inf if high is None else high,
        said["episodes"],
        said["effective"],
        said["kind"],
    )


def training_json(logged: Logged, lessons: Lessons, limits: Limits, *, point: str, notes: Notes) -> dict[str, Any]:
    """What training.json keeps of a service: all that judging it later needs beside decisions and policy folder."""
    suggestion = lessons.suggestion
    return {
        "point": point,
        "quality_name": notes.quality_name,
        "latency_label": notes.latency_label,
        "label": suggestion.label,
        "admissible": suggestion.admissible,
        "cheapest": suggestion.cheapest,
        "strongest": suggestion.strongest,
        "refused": suggestion.refused,
        "limits": asdict(limits),
        "behaviour_accuracy": None if logged.estimated is None else logged.estimated.accuracy,
        "behaviour": None if (found := logged.estimated) is None else behaviour_json(found, logged.data.action_names),
        "latency_cut_share": logged.latency_cut_share,
        "frontier": frontier_json(lessons.frontier, suggestion.label),
        "constraints": None if lessons.constraints is None else asdict(lessons.constraints),
        "curve": [
            {
                "value_usd": at.value_usd,
                "cost_usd_per_1k": estimate_json(scaled(at.cost_usd, 1000)),
                "quality": estimate_json(at.quality),
            }
            for at in lessons.curve
        ],
    }


def suggestion_of(training: Mapping[str, Any], model: Model | None) -> Suggestion:
    """The suggestion that training.json and the policy folder kept."""
    return Suggestion(
        label=training["label"],
        model=model,
        admissible=training["admissible"],
        cheapest=training["cheapest"],
        strongest=training["strongest"],
        refused=training["refused"],
    )


def service_json(
    data: LoggedDataset, findings: Findings, training: Mapping[str, Any], origin: list[str]
) -> dict[str, Any]:
    """What verdicts.json says of a service, but for the plan and the names of run, policy and bundle."""
    changes, splits, support = findings.changes, findings.splits, findings.support
    labelled = int((~np.isnan(data.quality)).sum())
    return {
        "verdict": findings.verdict.outcome,
        "reasons": [asdict(reason) for reason in findings.verdict.reasons],
        "policy_label": training["label"],
        "savings_usd_per_1k": estimate_json(savings(changes["cost_usd"])),
        "quality_change": estimate_json(changes["quality"]),
        "latency_change_s": estimate_json(changes["latency_s"]),
        "predicted": predicted_json(findings.evaluation, findings.probabilities.get("suggested")),
        "table": table_json(findings.rows),
        "points": [_point_json(data, findings, training["point"])],
        "frontier": training["frontier"],
        "curve": training.get("curve", []),
        "constraints": training.get("constraints"),
        "estimators": estimators_json(findings.estimators),
        "support": {
            "effective": None if support is None else support.effective,
            "top1_share": None if support is None else support.top_share,
            "unsupported_share": None if support is None else support.unsupported,
            "changed_share": None if support is None else support.changed,
            "decisions": len(data),
            "certify_decisions": len(splits.certify),
            "actions": _support_json(data),
        },
        "data": {
            "decisions": len(data),
            "labelled": labelled,
            "label_share": labelled / len(data),
            "label_sources": list(data.label_sources),
            "waiting": training.get("waiting", 0),
            "sessions": training.get("sessions"),
            "quality_name": training["quality_name"],
            "propensity_origin": {name: origin.count(name) for name in ("logged", "stated", "estimated")},
            "propensity_faults": training.get("propensity_faults", []),
            "behaviour_accuracy": training["behaviour_accuracy"],
            "behaviour": training.get("behaviour"),
            "splits": {"train": len(splits.train), "choose": len(splits.choose), "certify": len(splits.certify)},
            "latency_cut_share": training["latency_cut_share"],
            "latency_label": training["latency_label"],
            "unpriced": int(np.isnan(data.cost_usd).sum()),
        },
        "costs": training.get("costs"),
        "limits": training["limits"],
        "disagreement": dict(findings.disagreement),
        "partial": [_partial_json(part) for part in findings.partial],
        "control": None if findings.control is None else asdict(findings.control),
    }


def frontier_json(found: Sequence[Scored], chosen: str | None) -> list[dict[str, Any]]:
    """Every candidate where it was chosen among; chosen: the label of the one that was."""
    return [
        {
            "label": scored.candidate.label,
            "cost_usd_per_1k": estimate_json(scaled(scored.cost_usd, 1000)),
            "quality": estimate_json(scored.quality),
            "latency_s": estimate_json(scored.latency_s),
            "chosen": scored.candidate.label == chosen,
        }
        for scored in found
    ]


def table_json(rows: Sequence[Compared]) -> list[dict[str, Any]]:
    """The policies side by side."""
    return [
        {
            "policy": row.policy,
            "label": row.label,
            "cost_usd_per_1k": estimate_json(scaled(row.outcomes["cost_usd"], 1000)),
            "quality": estimate_json(row.outcomes["quality"]),
            "latency_s": estimate_json(row.outcomes["latency_s"]),
        }
        for row in rows
    ]


def estimators_json(estimators: Mapping[str, Mapping[Metric, Outcome]]) -> list[dict[str, Any]]:
    """The change by each estimator."""
    return [
        {
            "estimator": name,
            "savings_usd_per_1k": estimate_json(savings(found["cost_usd"])),
            "quality_change": estimate_json(found["quality"]),
            "latency_change_s": estimate_json(found["latency_s"]),
        }
        for name, found in estimators.items()
    ]


class Compared(Protocol):
    """One policy of a comparison: mean outcomes per decision, or per trace of many."""

    @property
    def policy(self) -> str: ...
    @property
    def label(self) -> str: ...
    @property
    def outcomes(self) -> Mapping[Metric, Outcome]: ...


class Judged(Protocol):
    """What was found of a suggestion, of single decisions or of many steps."""

    @property
    def rows(self) -> Sequence[Compared]: ...
    @property
    def estimators(self) -> Mapping[str, Mapping[Metric, Outcome]]: ...
    @property
    def changes(self) -> Mapping[Metric, Outcome]: ...


def estimates_frame(service: str, findings: Judged) -> pl.DataFrame:
    """All estimates of a service in long form, costs per 1,000 decisions (traces, where these hold many)."""
    rows: list[dict[str, Any]] = []

    def add(policy: str, metric: str, outcome: Outcome) -> None:
        rows.append({"service": service, "policy": policy, "metric": metric, **estimate_json(outcome)})

    for row in findings.rows:
        add(row.policy, "cost_usd_per_1k", scaled(row.outcomes["cost_usd"], 1000))
        add(row.policy, "quality", row.outcomes["quality"])
        add(row.policy, "latency_s", row.outcomes["latency_s"])
    every: Mapping[str, Mapping[Metric, Outcome]] = findings.estimators or {"DR": findings.changes}
    for found in every.values():
        add("suggested", "savings_usd_per_1k", savings(found["cost_usd"]))
        add("suggested", "quality_change", found["quality"])
        add("suggested", "latency_change_s", found["latency_s"])
    return pl.DataFrame(rows, schema=ESTIMATE_COLUMNS)


def probabilities_frame(trace_ids: list[str], action_names: tuple[str, ...], findings: Findings) -> pl.DataFrame:
    """trace_id, policy, action, probability for the certifying decisions; zero probabilities left out."""
    names, traces = np.array(action_names), np.array(trace_ids)[findings.splits.certify]
    frames = []
    for policy, probabilities in findings.probabilities.items():
        row, action = np.nonzero(probabilities)
        frames.append(
            pl.DataFrame(
                {
                    "trace_id": traces[row],
                    "policy": [policy] * len(row),
                    "action": names[action],
                    "probability": probabilities[row, action],
                },
                schema={"trace_id": pl.String, "policy": pl.String, "action": pl.String, "probability": pl.Float64},
            )
        )
    return pl.concat(frames)


def _point_json(data: LoggedDataset, findings: Findings, point: str) -> dict[str, Any]:
    today = data.behaviour.mean(axis=0)
    suggested = findings.probabilities.get("suggested")
    policy = None if suggested is None else suggested.mean(axis=0)
    return {
        "point": point,
        "decisions": len(data),
        "actions": [
            {
                "action": name,
                "today_share": float(today[number]),
                "policy_share": None if policy is None else float(policy[number]),
                "logged": int((data.actions == number).sum()),
            }
            for number, name in enumerate(data.action_names)
        ],
        "savings_usd_per_1k": estimate_json(savings(findings.changes["cost_usd"])),
        "rules": _rules_json(findings),
    }


def _partial_json(part: PartOf) -> dict[str, Any]:
    """Bounds of a change where the log supports a policy in part; costs per 1,000 decisions."""
    factor, found = (1.0 if part.metric == "quality" else 1000.0), part.found
    segment = Refused(found.refused) if found.segment is None else found.segment
    return {
        "policy": part.label,
        "metric": "quality_change" if part.metric == "quality" else "cost_change_usd_per_1k",
        "share": found.share,
        "segment": estimate_json(scaled(segment, factor)),
        "low": factor * found.low,
        "high": factor * found.high,
        "extrapolated": estimate_json(scaled(found.extrapolated, factor)),
        "experiment": found.experiment,
    }


def _rules_json(findings: Findings) -> dict[str, Any] | None:
    rules, changes = findings.rules, findings.rule_changes
    if rules is None:
        return None
    return {
        "rules": [{**asdict(rule), "conditions": list(rule.conditions)} for rule in rules.rules],
        "fidelity": rules.fidelity,
        "savings_usd_per_1k": estimate_json(savings(changes["cost_usd"])),
        "quality_change": estimate_json(changes["quality"]),
    }


def _support_json(data: LoggedDataset) -> list[dict[str, Any]]:
    counts = np.bincount(data.actions, minlength=len(data.action_names))
    return [
        {"action": name, "logged": int(counts[number]), "share": float(counts[number] / len(data))}
        for number, name in enumerate(data.action_names)
    ]
