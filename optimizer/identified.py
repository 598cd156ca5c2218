"""How far the logs identify an answer: what a run keeps of it for people to look at.

evidence-SERVICE.json, written by `evaluate` from what judging has computed anyway; nothing is fitted for it:

    format          1
    unit            "decision", or "trace" where a service decides step by step
    judged          how many of them judge
    actions         names
    segments        [{name, kind ("rule" | "today" | "segment" | "step"), rows, cells: [{action, logged, today_share,
                    policy_share, unsupported_share, least, effective}]}]; see `segments`
    needed          {effective, probability, top_share}: what the gate asks for; {cell}: effective decisions below which
                    no interval about them alone is given
    propensities    [{origin, low, high, decisions}]: of the taken action, in twenty equal parts of [0, 1]
    calibration     [{origin, low, high, pairs, expected, taken}]: of every action, in ten
    weights         {largest: [{trace_id, action, weight}], tail: [{share, holds}], counts: [{low, high, decisions}],
                    effective, top1_share}; null without a suggestion
    fixed           [{rule, action, share, taken}]: segments where the choice was a rule
    drift           {shifts: [{aspect, what, size, p_value, alarm, reason}], untested: [...]}; null where not compared
    labels          [{action, decisions, labelled, judged}]
    sensitivity     {why, threshold, tipping, at: [{gamma, low, high, low_limit, high_limit}]}; `why` says why not
    scores          what `kept_scores.About` holds of judged_scores-SERVICE.parquet; null where there is none

Legend: n decisions that judge, a actions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from optimizer import evidence
from optimizer.dataset import MIN_PROPENSITY, Bools, Floats, Ints, LoggedDataset
from optimizer.drift import Drift
from optimizer.evidence import Evaluation
from optimizer.gate import MAX_TOP_SHARE, MIN_EFFECTIVE, Limits
from optimizer.kept_scores import About
from optimizer.ope.estimators import weights
from optimizer.ope.sensitivity import MOST_GAMMA, change_bounds
from optimizer.rules import Rules, distil, words
from optimizer.segments import Protected
from optimizer.study import Findings

FORMAT = 1
PARTS = 20
CALIBRATED = 10
LARGEST = 20
"""Weights that are listed one by one."""
TAIL = (0.001, 0.01, 0.05, 0.1, 0.25, 0.5)
GAMMAS = (1.0, 1.1, 1.25, 1.5, 2.0, 3.0, 5.0)
LOGGED = "the probabilities were logged by what drew the actions: nothing hidden moved a choice"
SHOWN = 0.005
"""An action that a policy takes in fewer of a segment's decisions is not its doing: exploration, or nothing."""


def evidence_json(
    data: LoggedDataset,
    findings: Findings,
    limits: Limits,
    *,
    origin: Sequence[str],
    trace_ids: Sequence[str],
    fixed: Sequence[Mapping[str, Any]],
    protected: Mapping[str, Protected],
) -> dict[str, Any]:
    """The contents of the file for a service of single decisions. origin, trace_ids: of all decisions in the log;
    fixed: rules that training found the choice to follow."""
    certify, evaluation = findings.splits.certify, findings.evaluation
    policy = findings.probabilities.get("suggested")
    said = finite_json(
        {
            "format": FORMAT,
            "unit": "decision",
            "judged": len(certify),
            "actions": list(data.action_names),
            "segments": segments(data, findings, policy, protected) if len(certify) else [],
            "needed": needed(),
            "propensities": propensities(data.propensities, np.array(origin)),
            "calibration": calibration(data.behaviour, data.actions, np.array(origin)),
            "weights": None if policy is None else _weights(evaluation, policy, np.array(trace_ids)[certify]),
            "fixed": [dict(rule) for rule in fixed],
            "drift": drift_json(findings.drift),
            "labels": labels(data.actions, data.quality, data.judge, data.action_names),
            "sensitivity": _sensitivity(evaluation, policy, limits, findings.hidden_odds),
            "scores": None if policy is None else asdict(About.of(evaluation)),
        }
    )
    return dict(said)


def finite_json(value: Any) -> Any:
    """The same with null for numbers that are none: unbounded limits, tests without a spread."""
    if isinstance(value, dict):
        return {name: finite_json(one) for name, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [finite_json(one) for one in value]
    return None if isinstance(value, float) and not np.isfinite(value) else value


def needed() -> dict[str, float]:
    """What the gate asks of the evidence."""
    return {
        "effective": MIN_EFFECTIVE,
        "cell": evidence.MIN_EFFECTIVE,
        "probability": MIN_PROPENSITY,
        "top_share": MAX_TOP_SHARE,
    }


def segments(
    data: LoggedDataset, findings: Findings, policy: Floats | None, protected: Mapping[str, Protected]
) -> list[dict[str, Any]]:
    """Segments x actions: how many effective decisions speak for the policy taking the action there.

    Segments are the suggestion's own rules ("rule"); without a suggestion those of today's routing ("today"), and then
    each action is asked about as if it were always taken. Protected segments ("segment") follow.
    """
    splits, evaluation = findings.splits, findings.evaluation
    kind, rules = "rule", findings.rules
    if rules is None:
        kind, rules = "today", _todays(data, evaluation)
    found = [
        _segment(words(rule), kind, rules.places == place, evaluation, policy) for place, rule in enumerate(rules.rules)
    ]
    for name, one in protected.items():
        if (inside := one.rows[splits.certify]).any():
            found.append(_segment(name, "segment", inside, evaluation, policy))
    return found


def _todays(data: LoggedDataset, evaluation: Evaluation) -> Rules:
    judged = evaluation.data
    earlier = np.argsort(data.time_ns, kind="stable")[: len(data) - len(judged)][-4000:]
    return distil(data.features[earlier], data.actions[earlier], judged, judged.actions)


def _segment(name: str, kind: str, inside: Bools, evaluation: Evaluation, policy: Floats | None) -> dict[str, Any]:
    rows = np.flatnonzero(inside)
    part = evaluation.take(rows)
    does = None if policy is None else policy[rows]
    cells = []
    for number, action in enumerate(part.data.action_names):
        alone = np.zeros(part.data.behaviour.shape)
        alone[:, number] = 1.0 if does is None else does[:, number]
        cells.append(cell(action, part.data.actions == number, part.data.behaviour[:, number], alone[:, number]))
        cells[-1]["effective"] = part.effective(alone)
        cells[-1]["policy_share"] = None if does is None else cells[-1]["policy_share"]
    return {"name": name, "kind": kind, "rows": len(rows), "cells": cells}


def cell(action: str, taken: Bools, chance: Floats, wanted: Floats) -> dict[str, Any]:
    """One action in one segment of m decisions. taken, chance, wanted (m,): whether it was taken, its logged
    probability, and the policy's."""
    mass = float(wanted.sum())
    untried = float(wanted[chance < MIN_PROPENSITY].sum())
    return {
        "action": action,
        "logged": int(taken.sum()),
        "today_share": float(chance.mean()),
        "policy_share": float(wanted.mean()),
        "unsupported_share": untried / mass if mass > 0 else 0.0,
        "least": float(chance.min()),
    }


def propensities(chance: Floats, origin: np.ndarray) -> list[dict[str, Any]]:
    """How often the taken action had which probability. chance, origin (n,)."""
    edges = np.linspace(0, 1, PARTS + 1)
    found = []
    for name in np.unique(origin):
        counts = np.histogram(chance[origin == name], edges)[0]
        found += [
            {"origin": str(name), "low": float(low), "high": float(high), "decisions": int(count)}
            for low, high, count in zip(edges, edges[1:], counts, strict=False)
            if count
        ]
    return found


def calibration(behaviour: Floats, actions: Ints, origin: np.ndarray) -> list[dict[str, Any]]:
    """Of the pairs of decision and action with similar probability (n, a), how many were taken. origin (n,)."""
    taken = np.zeros(behaviour.shape)
    taken[np.arange(len(actions)), actions] = 1.0
    place = np.minimum((behaviour * CALIBRATED).astype(np.int64), CALIBRATED - 1)
    found = []
    for name in np.unique(origin):
        rows = origin == name
        bins, chance, came = place[rows].ravel(), behaviour[rows].ravel(), taken[rows].ravel()
        counts = np.bincount(bins, minlength=CALIBRATED)
        sums = (np.bincount(bins, weights=one, minlength=CALIBRATED) for one in (chance, came))
        for number, (count, expected, seen) in enumerate(zip(counts, *sums, strict=True)):
            if count:
                found.append(
                    {
                        "origin": str(name),
                        "low": number / CALIBRATED,
                        "high": (number + 1) / CALIBRATED,
                        "pairs": int(count),
                        "expected": float(expected / count),
                        "taken": float(seen / count),
                    }
                )
    return found


def _weights(evaluation: Evaluation, policy: Floats, trace_ids: np.ndarray) -> dict[str, Any]:
    found = weight_tail(weights(evaluation.outcomes["cost_usd"], policy))
    order = found.pop("order")
    names = evaluation.data.action_names
    weight = weights(evaluation.outcomes["cost_usd"], policy)
    return {
        "largest": [
            {
                "trace_id": str(trace_ids[row]),
                "action": names[evaluation.data.actions[row]],
                "weight": float(weight[row]),
            }
            for row in order[:LARGEST]
        ],
        **found,
        "effective": evaluation.effective(policy),
        "top1_share": evaluation.top_share(policy),
    }


def weight_tail(weight: Floats) -> dict[str, Any]:
    """How the weights (n,) are spread: `order` of the rows, heaviest first, `tail` and `counts`."""
    order = np.argsort(-weight, kind="stable")
    total = float(weight.sum()) or 1.0
    heaviest = np.cumsum(weight[order]) / total
    most = max(float(weight.max()), 1.0)
    edges = np.array([0.0, *np.geomspace(0.05, most * 1.000001, 16)])
    counts = np.histogram(weight, edges)[0]
    return {
        "order": order,
        "tail": [{"share": share, "holds": float(heaviest[max(1, int(share * len(weight))) - 1])} for share in TAIL],
        "counts": [
            {"low": float(low), "high": float(high), "decisions": int(count)}
            for low, high, count in zip(edges, edges[1:], counts, strict=False)
        ],
    }


def drift_json(found: Drift | None) -> dict[str, Any] | None:
    """What was compared between the decisions that chose and those that judge."""
    if found is None:
        return None
    return {"shifts": [asdict(shift) for shift in found.shifts], "untested": list(found.untested)}


def labels(actions: Ints, quality: Floats, judge: Floats, names: Sequence[str]) -> list[dict[str, Any]]:
    """Per action, decisions with a score, and with a judge's opinion."""
    known = ~np.isnan(quality)
    opinion = ~np.isnan(judge) if len(judge) else np.zeros(len(actions), dtype=np.bool_)
    return [
        {
            "action": name,
            "decisions": int((actions == number).sum()),
            "labelled": int((known & (actions == number)).sum()),
            "judged": int((opinion & (actions == number)).sum()),
        }
        for number, name in enumerate(names)
    ]


def _sensitivity(evaluation: Evaluation, policy: Floats | None, limits: Limits, gamma: float | None) -> dict[str, Any]:
    said: dict[str, Any] = {"why": None, "threshold": -limits.quality_margin, "tipping": gamma, "most": MOST_GAMMA}
    said["at"] = []
    quality = evaluation.outcomes["quality"]
    if policy is None:
        return {**said, "why": "nothing is suggested"}
    if evaluation.data.propensities_logged:
        return {**said, "why": LOGGED}
    if np.isnan(quality.outcome).all() or np.isnan(quality.model).any():
        return {**said, "why": "too few decisions have a score"}
    said["at"] = [asdict(change_bounds(quality, policy, one, confidence=limits.confidence)) for one in GAMMAS]
    return said
