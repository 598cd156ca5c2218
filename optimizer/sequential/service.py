"""What a night does for one orchestrated service: learn from its steps, judge what was learned, say it as JSON."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

import polars as pl

from optimizer import friction, looks, teamwork, turns
from optimizer.ability import abilities
from optimizer.config import ServiceSettings
from optimizer.constraints import told
from optimizer.evidence import Refused
from optimizer.gate import Limits
from optimizer.looks import Look
from optimizer.runtime import Model
from optimizer.segments import protected
from optimizer.sequential import by_segment, identified, plan, since, students, summary
from optimizer.sequential.episodes import EpisodeLog
from optimizer.sequential.logged import Episodes, to_episodes
from optimizer.sequential.policies import script_of
from optimizer.sequential.study import Findings, Suggestion, assess, learn, look_at
from optimizer.summary import Notes, estimate_json, estimates_frame
from optimizer.turns import Acted
from optimizer.versions import Version

SEED = 0
EXPLORED = 0.05
"""Share of the steps at which an exported orchestrator, as long as it has not, draws what it would not have chosen."""


@dataclass(frozen=True, eq=False)
class Learned:
    """What training.json keeps, and the policy with what it falls back to; None where nothing is suggested."""

    training: dict[str, Any]
    model: Model | None
    script: tuple[str, ...]
    max_steps: int


def learn_service(
    rows: pl.DataFrame,
    calls: pl.DataFrame,
    acted: Acted,
    service: ServiceSettings,
    notes: Notes,
    outside: Mapping[str, Any],
) -> Learned:
    """rows: step rows of the service. calls: its calls with costs at one price list. acted: who acted in them. outside:
    shares of tokens and cost outside the named steps."""
    episodes = to_episodes(rows, seed=SEED)
    log = episodes.log
    point = service.points.get(episodes.point)
    agents = log.action_names[:-1]
    known = abilities(agents, service.models)
    lessons = learn(
        log,
        service.limits,
        service.value_usd,
        seed=SEED,
        may=None if point is None else point.actions,
        preset=service.reward,
        abilities=known,
    )
    training = summary.training_json(
        log, episodes.estimated, lessons, service.limits, point=episodes.point, notes=notes
    )
    training["constraints"] = asdict(told(log.features, agents, known))
    training["left_out"] = dict(episodes.left_out)
    training["outside_steps"] = dict(outside)
    firsts = rows.filter(pl.col("step") == 0).select("trace_id", "point", "group", "quality")
    found = friction.friction(calls, acted.turns, firsts, confidence=service.limits.confidence)
    training["friction"] = friction.to_json(found)
    script = script_of(log, service.incumbent)
    training["script"] = list(script)
    model = lessons.suggestion.model
    routed = None if model is None else replace(model, epsilon=EXPLORED)
    return Learned(training, routed, script, max(log.horizon, 1))


def judge_service(
    name: str,
    rows: pl.DataFrame,
    acted: Acted,
    learned: Mapping[str, Any],
    model: Model | None,
    look: Callable[[Look | None], int],
    before: Version | None = None,
) -> tuple[dict[str, Any], pl.DataFrame]:
    """What verdicts.json says of the service but for the names of run, policy and bundle; and its estimates in long
    form. learned: what training.json keeps. look: notes a look at the judging episodes, and says how many there were
    before. before: the version of the policy before this one."""
    episodes = to_episodes(rows, seed=SEED)
    log, suggestion = episodes.log, summary.suggestion_of(learned, model)
    limits = Limits(**learned["limits"])
    further = look(look_at(log, suggestion, name, learned["point"]))
    limits = replace(limits, confidence=looks.charged(limits.confidence, further))
    firsts = rows.filter(pl.col("trace_id").is_in(episodes.trace_ids) & (pl.col("step") == 0))
    order = pl.DataFrame({"trace_id": episodes.trace_ids})
    guarded = protected(
        order.join(firsts, on="trace_id", how="left", maintain_order="left"),
        learned.get("segments", {}),
        limits.quality_margin,
    )
    findings = assess(log, suggestion, limits, seed=SEED, segments=guarded)
    origin = rows["propensity_origin"].fill_null("estimated").to_list()
    said = {
        **summary.service_json(log, findings, learned, origin),
        "predicted": summary.predicted_json(findings, suggestion.share, limits.confidence),
        "orchestration": orchestration_json(episodes, rows, acted, findings, learned, model, limits.confidence),
        "limits": asdict(limits),
        "earlier_looks": further,
        "plan": _plan(log, findings, suggestion, limits),
        "evidence": identified.evidence_json(
            log,
            findings,
            limits,
            origin=["logged" if one else "estimated" for one in episodes.logged],
            trace_ids=episodes.trace_ids,
            fixed=(learned.get("behaviour") or {}).get("fixed", []),
            share=learned["share"],
        ),
        "regressions": by_segment.to_json(log, findings, limits, learned["share"], guarded, episodes.trace_ids)
        | {"previous": since.to_json(before, model, findings, limits.confidence)},
    }
    return said, estimates_frame(name, findings)


def orchestration_json(
    episodes: Episodes,
    rows: pl.DataFrame,
    acted: Acted,
    findings: Findings,
    learned: Mapping[str, Any],
    model: Model | None,
    confidence: float,
) -> dict[str, Any]:
    """What only an orchestrated service has."""
    log, policy = findings.judged, findings.policy
    organised: list[teamwork.Change] = []
    if len(log):
        traces = [episodes.trace_ids[place] for place in findings.splits.certify]
        measured = teamwork.measured(log, turns.turns_of(acted, log, traces, rows))
        does = log.behaviour if policy is None else policy
        organised = teamwork.changes(log, does, measured, confidence=confidence, share=learned["share"])
    nothing = estimate_json(Refused(learned["refused"]))
    return {
        "episodes": len(episodes.log),
        "decisions": len(episodes.log.actions),
        "left_out": learned["left_out"],
        "outside_steps": learned["outside_steps"],
        "actions": list(log.action_names),
        "script": learned["script"],
        "share": learned["share"],
        "explored_per_step": EXPLORED,
        "route": summary.route_json(log, policy),
        "rules": [] if model is None else students.in_words(model),
        "stop_rule": [] if model is None else students.stop_rule(model),
        "changed_routes": None if policy is None else summary.changed_routes(log, policy),
        "baselines": learned["frontier"],
        "organisation": [
            {
                "metric": one.metric,
                "definition": one.definition,
                "today": estimate_json(one.today),
                "policy": nothing if policy is None else estimate_json(one.policy),
                "change": nothing if policy is None else estimate_json(one.change),
            }
            for one in organised
        ],
        "friction": learned.get("friction"),
    }


def _plan(log: EpisodeLog, findings: Findings, suggestion: Suggestion, limits: Limits) -> dict[str, Any] | None:
    if findings.verdict.outcome in ("deploy", "keep"):
        return None
    effective = None if findings.support is None else findings.support.effective
    return plan.in_a_sentence(log, findings.changes["quality"], effective, limits, suggestion.refused)
