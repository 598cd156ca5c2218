"""Who gains and who loses by an orchestrator: as `optimizer.regressions`, of whole traces, by what was known before
their first decision.

Legend: N judging episodes, n decisions of theirs, a actions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from optimizer import regressions
from optimizer.dataset import Floats, Ints
from optimizer.evidence import savings
from optimizer.gate import Limits
from optimizer.regressions import WORST, Part, Segment, Worst, adjusted
from optimizer.segments import Protected
from optimizer.sequential.episodes import OUTCOMES, EpisodeLog
from optimizer.sequential.study import Findings, beginnings, change_of


def to_json(
    log: EpisodeLog,
    findings: Findings,
    limits: Limits,
    share: float,
    stated: Mapping[str, Protected],
    trace_ids: Sequence[str],
) -> dict[str, Any]:
    """What regressions.json keeps of an orchestrated service. share: of episodes under the policy; stated: the segments
    of retroute.toml; trace_ids: of all episodes."""
    judged, policy, places = findings.judged, findings.policy, findings.splits.certify
    if policy is None or findings.expected is None or not len(judged):
        return regressions.nothing("nothing is suggested")
    model, today = findings.expected
    rows = {name: one.rows[places] for name, one in stated.items()}
    first = policy[judged.first]
    known = beginnings(log.take(findings.splits.train))
    large, small = regressions.segments(known, beginnings(judged), first, rows)
    level = adjusted(limits.confidence, len(large))
    changed = _changed(judged, policy)
    parts = [_part(one, changed, judged, policy, model, today, share, level) for one in large]
    ids = [
        {"trace_id": trace_ids[place], "time_ns": int(time)} for place, time in zip(places, judged.time_ns, strict=True)
    ]
    return regressions.said(parts, small, _worst(judged, policy, model, today), limits, ids)


def _part(
    one: Segment,
    changed: Floats,
    judged: EpisodeLog,
    policy: Floats,
    model: Floats,
    today: Floats,
    share: float,
    level: float,
) -> Part:
    episodes: Ints = np.flatnonzero(one.rows)
    found = change_of(episodes, judged, policy, model, today, share, level)
    moved = share * float(changed[episodes].mean())
    return Part(one.dimension, one.name, len(episodes), moved, savings(found["cost_usd"]), found["quality"])


def _changed(judged: EpisodeLog, policy: Floats) -> Floats:
    """(N,) probability that the policy would decide otherwise at one step at least of each logged episode."""
    follows = policy[np.arange(len(judged.actions)), judged.actions]
    with np.errstate(divide="ignore"):
        logs = np.bincount(judged.episode, weights=np.log(follows), minlength=len(judged))
    return np.asarray(1 - np.exp(logs))


def _worst(judged: EpisodeLog, policy: Floats, model: Floats, today: Floats) -> list[Worst]:
    """The episodes whose quality is expected to fall most, seen from their first decision."""
    quality, cost = OUTCOMES.index("quality"), OUTCOMES.index("cost_usd")
    first, does, behaviour = judged.first, policy[judged.first], judged.behaviour[judged.first]
    if np.isnan(model[[quality, cost]][:, first]).any() or np.isnan(today[[quality, cost]][:, first]).any():
        return []
    then = {number: (does * model[number, first]).sum(axis=1) for number in (quality, cost)}
    now = {number: (behaviour * today[number, first]).sum(axis=1) for number in (quality, cost)}
    order: Ints = np.argsort(then[quality] - now[quality], kind="stable")[:WORST]
    names = judged.action_names
    return [
        Worst(
            int(row),
            names[int(behaviour[row].argmax())],
            names[int(does[row].argmax())],
            float(now[quality][row]),
            float(then[quality][row]),
            1000 * float(now[cost][row] - then[cost][row]),
        )
        for row in order
        if then[quality][row] < now[quality][row]
    ]
