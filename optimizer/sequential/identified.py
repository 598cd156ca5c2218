"""How far logged traces of several decisions identify an answer: evidence-SERVICE.json of a service that decides step
by step. Its layout is that of `optimizer.identified`, with the trace as the unit and a step as the segment.

An effective number there is of traces: each logged one stands for so many of the policy's own as the product of its
weights says up to that step. Drift is tested at the beginnings alone (the gate names what moved).

Legend: N judging episodes, n decisions of theirs, a actions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from optimizer import identified
from optimizer.dataset import Floats
from optimizer.evidence import Refused
from optimizer.gate import Limits
from optimizer.ope.estimators import effective
from optimizer.ope.sensitivity import MOST_GAMMA, Bounds, largest_gamma
from optimizer.sequential.episodes import EpisodeLog
from optimizer.sequential.evaluation import carried, reach
from optimizer.sequential.hidden_causes import change_bounds
from optimizer.sequential.study import Findings

SHOWN_STEPS = 8


def evidence_json(
    log: EpisodeLog,
    findings: Findings,
    limits: Limits,
    *,
    origin: Sequence[str],
    trace_ids: Sequence[str],
    fixed: Sequence[Mapping[str, Any]],
    share: float,
) -> dict[str, Any]:
    """origin: of all decisions in the log; trace_ids: of all episodes; share: of the episodes that are to change."""
    judged, policy = findings.judged, findings.policy
    rows = np.arange(len(log.actions))
    told = np.array(origin)
    said = {
        "format": identified.FORMAT,
        "unit": "trace",
        "judged": len(judged),
        "actions": list(log.action_names),
        "segments": _steps(judged, policy),
        "needed": identified.needed(),
        "propensities": identified.propensities(log.behaviour[rows, log.actions], told),
        "calibration": identified.calibration(log.behaviour, log.actions, told),
        "weights": None if policy is None else _weights(findings, np.array(trace_ids)[findings.splits.certify]),
        "fixed": [dict(rule) for rule in fixed],
        "drift": None,
        "labels": identified.labels(log.actions[log.first], log.quality, np.zeros(0), log.action_names),
        "sensitivity": _sensitivity(findings, limits, share),
        "scores": None,
    }
    return dict(identified.finite_json(said))


def _steps(judged: EpisodeLog, policy: Floats | None) -> list[dict[str, Any]]:
    """Shares are of all traces: those that the policy has ended by then take nothing."""
    count = len(judged)
    if not count:
        return []
    left = np.ones(len(judged.actions)) if policy is None else reach(judged, policy)
    found = []
    for step, rows in enumerate(judged.at_step[:SHOWN_STEPS]):
        cells = []
        for number, name in enumerate(judged.action_names):
            chance = judged.behaviour[rows, number]
            wanted = left[rows] if policy is None else left[rows] * policy[rows, number]
            taken = judged.actions[rows] == number
            weight = np.where(taken, wanted / np.where(taken, chance, 1.0), 0.0)
            one = identified.cell(name, taken, chance, wanted)
            one["today_share"] = float(chance.sum()) / count
            one["policy_share"] = None if policy is None else float(wanted.sum()) / count
            cells.append({**one, "effective": effective(weight * judged.heft[judged.episode[rows]])})
        found.append({"name": f"Step {step + 1}", "kind": "step", "rows": len(rows), "cells": cells})
    return found


def _weights(findings: Findings, trace_ids: np.ndarray) -> dict[str, Any]:
    judged, policy, support = findings.judged, findings.policy, findings.support
    if policy is None or support is None:
        raise ValueError("nothing is suggested")
    weight = carried(judged, policy)
    found = identified.weight_tail(weight)
    order = found.pop("order")[: identified.LARGEST]
    first = judged.actions[judged.first]
    return {
        "largest": [
            {"trace_id": str(trace_ids[k]), "action": judged.action_names[first[k]], "weight": float(weight[k])}
            for k in order
        ],
        **found,
        "effective": support.effective,
        "top1_share": support.top_share,
    }


def _sensitivity(findings: Findings, limits: Limits, share: float) -> dict[str, Any]:
    """How wrong estimated probabilities may be (see `hidden_causes`)."""
    judged, policy = findings.judged, findings.policy
    said: dict[str, Any] = {"why": None, "threshold": -limits.quality_margin, "tipping": None, "most": MOST_GAMMA}
    said["at"] = []
    if policy is None or findings.expected is None:
        return {**said, "why": "nothing is suggested"}
    if judged.propensities_logged:
        return {**said, "why": identified.LOGGED}
    if isinstance(refused := findings.changes["quality"], Refused):
        return {**said, "why": refused.reason}
    model, today = findings.expected

    def at(gamma: float) -> Bounds:
        return change_bounds(judged, policy, model, today, gamma, confidence=limits.confidence, share=share)

    tipping = largest_gamma(lambda gamma: at(gamma).low_limit >= -limits.quality_margin)
    return said | {"tipping": tipping, "at": [asdict(at(gamma)) for gamma in identified.GAMMAS]}
