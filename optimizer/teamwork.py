"""How agents work together, and how a policy would change it: metrics per trace, before and after.

Each metric is taken of whole traces and of every prefix that a policy could leave by stopping (see
`sequential.standing` for how those are weighed).

Legend: N episodes, n decisions, a actions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from optimizer.dataset import Floats, Ints
from optimizer.evidence import Outcome, Refused
from optimizer.gate import Estimate, Kind
from optimizer.ope.intervals import mean_interval
from optimizer.organisation import Activation, Answers, Folding, Organisation
from optimizer.runtime import DIM, STEP_DENSE, width
from optimizer.sequential.episodes import EpisodeLog
from optimizer.sequential.evaluation import MAX_UNSUPPORTED, MIN_EFFECTIVE, unsupported
from optimizer.sequential.mixture import LEAST_EFFECTIVE
from optimizer.sequential.standing import Mean, Measured, of_log, of_policy

DEFINITIONS: Mapping[str, str] = {
    "steps": "Activations in a trace: one agent's turn each, a turn that branches share counted once.",
    "active_agents": "Different agents that act in a trace.",
    "branches": "Activations of a trace that nothing follows.",
    "tokens": "Input and output tokens of all model calls of a trace.",
    "cost_usd": "USD of all calls of a trace, those outside its named steps included.",
    "latency_s": "Seconds from the first decision of a trace to its end.",
    "density": "Ordered pairs of agents of which one acts right after the other, as a share of all pairs; of traces "
    "with two agents or more.",
    "density_multi": "Transitions between agents, repeats and self-loops included, per ordered pair of agents; of "
    "traces with two agents or more.",
    "edges_per_node": "Ordered pairs of agents of which one acts right after the other, per agent.",
    "cycles_1": "Agents that follow themselves.",
    "cycles_2": "Simple cycles of two agents in the graph of who follows whom.",
    "cycles_3": "Simple cycles of three agents in the graph of who follows whom.",
    "cycles_4": "Simple cycles of four agents in the graph of who follows whom.",
    "hub_share": "Share of a trace's activations that are its most active agent's.",
    "entropy": "Entropy of the agents' shares of a trace's activations, in bits.",
    "revisit_rate": "1 - active agents / activations: the share of turns of agents that had acted before.",
    "wasted_suffix": "Steps after the answer stopped changing.",
    "abandoned": "Share of traces in which an answer on the way was better than the last one.",
    "oracle_stop_gap": "Quality of the best answer on the way minus the last one's: what stopping in time would give.",
}
"""Metric -> what it is, in one sentence. Each is taken per trace, then averaged over traces."""
UNDEFINED = ("density", "density_multi", "edges_per_node", "hub_share", "revisit_rate")
"""Metrics that traces of too few agents do not have. Where another one is missing it is unknown, and its mean over the
others an assumption."""
MIN_KNOWN = 0.5
"""Share of the traces of which a metric must be known: what the others are may not be left to a guess."""
ESTIMATOR = "SNIPS of episodes"


@dataclass(frozen=True, eq=False)
class Turns:
    """What happened in the episodes of a log, finer than its decisions: which agents acted."""

    activations: Sequence[Sequence[Activation]]
    """Of each of the N episodes, in the order in which they began."""
    begun: Ints
    """(n,) activations of the episode that began before the decision."""
    tokens_before: Floats
    """(n,) of the model calls that began before the decision; NaN where unknown."""
    tokens: Floats
    """(N,)"""
    answers: Sequence[Sequence[str | None]] = ()
    """Of each episode, what every decision but STOP led to; None where nothing is known. Empty: nowhere known."""


def turns_of_actions(log: EpisodeLog) -> Turns:
    """Every decision as one activation of the agent that its action names; nothing is known of tokens and answers."""
    every: list[list[Activation]] = [[] for _ in range(len(log))]
    for episode, action in zip(log.episode, log.actions, strict=True):
        if action != log.stop:
            before = len(every[episode])
            every[episode].append(Activation(log.action_names[action], (before - 1,) if before else ()))
    return Turns(every, log.step, np.full(len(log.actions), np.nan), np.full(len(log), np.nan))


def measured(log: EpisodeLog, turns: Turns | None = None) -> dict[str, Measured]:
    """Every metric of `DEFINITIONS` that is known of any episode; `turns_of_actions` where there are no turns."""
    turns = turns or turns_of_actions(log)
    found = {
        "tokens": Measured(turns.tokens_before, turns.tokens),
        "cost_usd": _spent(log, log.cost_usd),
        "latency_s": _spent(log, log.latency_s),
        **_organised(log, turns),
        **_scored(log),
    }
    if len(turns.answers):
        found["wasted_suffix"] = _wasted(log, turns.answers)
    elif log.features.shape[1] == width(log.action_names):
        found["wasted_suffix"] = _wasted_by_features(log)
    return {name: found[name] for name in DEFINITIONS if name in found and not np.isnan(found[name].whole).all()}


def _spent(log: EpisodeLog, amounts: Floats) -> Measured:
    """The sum over the decisions before, and over all; NaN where one of them is unknown."""
    known = np.nan_to_num(amounts)
    total, unknown = np.cumsum(known), np.cumsum(np.isnan(amounts))
    start, gaps = (total - known)[log.first], (unknown - np.isnan(amounts))[log.first]
    before = np.where((unknown - np.isnan(amounts)) > gaps[log.episode], np.nan, total - known - start[log.episode])
    ends = np.append(log.first[1:], len(amounts)) - 1
    return Measured(before, np.where(unknown[ends] > gaps, np.nan, total[ends] - start))


def _organised(log: EpisodeLog, turns: Turns) -> dict[str, Measured]:
    names = list(_of(Folding().organisation))
    before, whole = np.empty((len(names), len(log.actions))), np.empty((len(names), len(log)))
    ends = np.append(log.first[1:], len(log.actions))
    for episode, activations in enumerate(turns.activations):
        folding, seen = Folding(), 0
        for row in range(log.first[episode], ends[episode]):
            for activation in activations[seen : turns.begun[row]]:
                folding.add(activation)
            seen = max(seen, int(turns.begun[row]))
            before[:, row] = list(_of(folding.organisation).values())
        for activation in activations[seen:]:
            folding.add(activation)
        whole[:, episode] = list(_of(folding.organisation).values())
    return {name: Measured(before[place], whole[place]) for place, name in enumerate(names)}


def _of(found: Organisation) -> dict[str, float]:
    """The metrics of a trace by name; NaN where they are not defined."""
    named = {
        **{name: getattr(found, name) for name in ("steps", "active_agents", "branches")},
        **{name: getattr(found, name) for name in ("density", "density_multi", "edges_per_node")},
        **{f"cycles_{length}": count for length, count in found.cycles.items()},
        **{name: getattr(found, name) for name in ("hub_share", "entropy", "revisit_rate")},
    }
    return {name: float("nan") if value is None else float(value) for name, value in named.items()}


def _scored(log: EpisodeLog) -> dict[str, Measured]:
    """Abandonment and the gap to the best stop, of episodes where the quality after every decision is known."""
    best, before = np.full(len(log), -np.inf), np.full(len(log.actions), np.nan)
    for now in log.at_step[1:]:
        of = log.episode[now]
        best[of] = np.maximum(best[of], log.stop_quality[now])  # what is unknown once stays so
        before[now] = best[of] - log.stop_quality[now]
    gap = np.maximum(best, log.quality) - log.quality
    return {
        "abandoned": Measured(_positive(before), _positive(gap)),
        "oracle_stop_gap": Measured(before, gap),
    }


def _positive(gap: Floats) -> Floats:
    return np.where(np.isnan(gap), np.nan, (gap > 0).astype(np.float64))


def _wasted(log: EpisodeLog, answers: Sequence[Sequence[str | None]]) -> Measured:
    before, whole = np.full(len(log.actions), np.nan), np.full(len(log), np.nan)
    ends = np.append(log.first[1:], len(log.actions))
    for episode, given in enumerate(answers):
        if all(answer is None for answer in given):
            continue
        seen = Answers()
        for place, row in enumerate(range(log.first[episode], ends[episode])):
            before[row] = seen.course.wasted_suffix
            if log.actions[row] != log.stop:
                seen.add(given[place], None)
        whole[episode] = seen.course.wasted_suffix
    return Measured(before, whole)


def _wasted_by_features(log: EpisodeLog) -> Measured:
    """By what the step features say of the outputs before a decision. An episode that did not end with STOP is unknown:
    nothing tells of its last output."""
    unchanged, characters, empty = (
        log.features[:, DIM + STEP_DENSE.index(name)] > 0
        for name in ("unchanged_output", "output_characters", "output_empty")
    )
    said = characters | empty
    suffix, before, spoken = np.zeros(len(log)), np.zeros(len(log.actions)), np.zeros(len(log), dtype=bool)
    for now in log.at_step[1:]:
        of = log.episode[now]
        stands = unchanged[now] | (spoken[of] & ~said[now])
        suffix[of] = np.where(stands, suffix[of] + 1, 0.0)
        spoken[of] |= said[now]
        before[now] = suffix[of]
    stopped = log.actions[log.last] == log.stop
    return Measured(np.where(spoken[log.episode], before, np.nan), np.where(spoken & stopped, suffix, np.nan))


@dataclass(frozen=True)
class Change:
    """A metric's mean per trace under today's behaviour and under a policy, and the difference."""

    metric: str
    definition: str
    today: Outcome
    policy: Outcome
    change: Outcome


def changes(
    log: EpisodeLog, policy: Floats, metrics: Mapping[str, Measured], *, confidence: float, share: float = 1.0
) -> list[Change]:
    """Each metric before and after, in the order of `DEFINITIONS`; policy (n, a) on the log's decisions, followed in a
    share of the traces while the others go as logged.

    Means are over traces where the metric is defined. An interval speaks of its own metric, not of all at once. There
    is no number below `MIN_EFFECTIVE` effective episodes that have the metric (of a mixture neither below
    `LEAST_EFFECTIVE` of the policy's own), of one that is unknown of most traces, nor of a policy of which more than
    1 % of the episodes come to take actions not tried there. Raises ValueError for a metric without a definition.
    """
    if unknown := sorted(set(metrics) - set(DEFINITIONS)):
        raise ValueError(f"no definition of {', '.join(unknown)}")
    today, alone, ahead = of_log(log), of_policy(log, policy), of_policy(log, policy, share)
    barred = _untried(log, policy)
    found = []
    for name in [name for name in DEFINITIONS if name in metrics]:
        was, will = today.mean(metrics[name]), ahead.mean(metrics[name])
        thin = _few(alone.mean(metrics[name]), MIN_EFFECTIVE if share == 1.0 else LEAST_EFFECTIVE)
        known = 1.0 if name in UNDEFINED else float((~np.isnan(metrics[name].whole)).mean())
        seen: Kind = "assumption" if known < 1 else "asymptotic"
        kind: Kind = seen if log.propensities_logged else "assumption"
        before, after = _unknown(known) or _few(was), barred or _unknown(known) or thin or _few(will)
        found.append(
            Change(
                name,
                DEFINITIONS[name],
                before or _estimate(log, was, was.scores, confidence, seen),
                after or _estimate(log, will, will.scores, confidence, kind),
                after or before or _estimate(log, will, will.scores - was.scores, confidence, kind),
            )
        )
    return found


def _untried(log: EpisodeLog, policy: Floats) -> Refused | None:
    part = unsupported(log, policy)
    if part <= MAX_UNSUPPORTED:
        return None
    return Refused(f"{part:.0%} of its episodes come to take actions that were not tried there")


def _unknown(known: float) -> Refused | None:
    return Refused(f"known of {known:.0%} of the traces only") if known < MIN_KNOWN else None


def _few(mean: Mean, least: float = MIN_EFFECTIVE) -> Refused | None:
    if mean.effective >= least:
        return None
    return Refused(f"only {mean.effective:.0f} effective episodes; below {least:.0f} no interval can be trusted")


def _estimate(log: EpisodeLog, mean: Mean, scores: Floats, confidence: float, kind: Kind) -> Estimate:
    found = mean_interval(
        scores, log.groups, confidence=confidence, estimator=ESTIMATOR, effective=mean.effective, kind=kind
    )
    return replace(found, episodes=mean.episodes)
