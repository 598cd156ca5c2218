"""The experiment that would decide: whom to randomise, with what probability, at what cost and for how long.

A router that explores looks up one row of a table: the row of what it would choose without exploring, the segment,
holds the probability of every arm. The row is the design of least variance of the wanted difference for its cost,

    mu(a) ~ |pi - b|(a) sigma(a) / sqrt(extra cost(a) + tau),

with pi the candidate, b today, sigma the spread of quality that no model explains, the extra cost over today's (0 for
cheaper arms: exploring them pays for itself) and tau today's mean cost. It is Neyman's allocation (1934) with a price,
as for doubly robust estimates in Hahn, Hirano, Karlan 2011; every arm keeps `FLOOR`, so that the next night can judge
it, and the whole is mixed with today's routing until the quality that it may lose stays within the margin.

Legend: n decisions, a actions of the log, k arms of the experiment.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from optimizer.dataset import CERTIFY, CHOOSE, MIN_PROPENSITY, Floats, Ints
from optimizer.evidence import Evaluation, Metric, Outcome, Refused, scaled
from optimizer.gate import Estimate, Limits
from optimizer.sizing import Binding, Facts, length, mean_or

FLOOR = MIN_PROPENSITY
"""Least probability of every arm at every decision: below it the log counts as not having tried it."""
AGREE = 0.1
"""A segment whose total variation between candidate and today is smaller has nothing to find out."""
BLIND = 0.05
"""Largest total variation between today's probabilities and their mean where today counts as blind to the prompt."""
UNTRIED_LOSS = 0.2
"""Assumed without evidence: where a model was never tried it is up to 20 points worse than where it was."""
NS_PER_DAY = 86_400e9

Base = Literal["suggestion", "today"]


@dataclass(frozen=True, eq=False)
class Segment:
    """The decisions for which the router would choose one arm, were it not to explore."""

    chosen: str
    share: float
    """Of all decisions."""
    today: Floats
    """(k,) mean probability of each arm today."""
    draw: Floats
    """(k,) probability of each arm in the experiment."""
    randomised: bool
    """Whether candidate and today disagree here; elsewhere every arm just keeps `FLOOR`."""


@dataclass(frozen=True, eq=False)
class Exploration:
    """An experiment with its price and its length."""

    arms: tuple[str, ...]
    base: Base
    """Whose choice names the segment: the suggestion's where today is blind to the prompt, else today's."""
    table: Floats
    """(k, k) row: the arm that would be chosen; column: the arm that is drawn. Rows sum to 1."""
    segments: tuple[Segment, ...]
    randomised: float
    """Share of decisions where candidate and today disagree."""
    cost_per_day: Outcome
    """USD a day more than today; negative: a saving."""
    quality_per_day: Outcome
    """Decisions of full quality a day more than today; the lower bound is what is at risk."""
    quality_at_risk: float
    """Mean quality per decision that may be lost meanwhile."""
    within_margin: bool
    """False where even `FLOOR` for every arm may lose more than the margin."""
    half_width: float
    """Wanted of the interval of quality, as a share of 1."""
    binding: Binding
    """What takes the most decisions."""
    decisions: int
    """Decisions to log by the table until the gate can decide."""
    per_day: float | None
    """Decisions a day in the log; None where it spans no time."""
    label_share: float
    """Share of decisions with a score that the length counts on: as now, and at least what the gate asks for."""
    z: float
    variance: float
    variance_today: float
    """Half of the interval of quality after m judged decisions is z sqrt(variance / m): drawn by the table, and as
    today."""
    earlier: int
    """Decisions in the log."""

    @property
    def days(self) -> float | None:
        """How long that takes at the pace of the log."""
        return None if self.per_day is None else self.decisions / self.per_day


def explore(
    evaluation: Evaluation, policy: Floats, limits: Limits, *, quality: Outcome, arms: Sequence[int]
) -> Exploration | Refused:
    """The experiment that tells the candidate `policy` (n, a) from today's routing.

    evaluation: all decisions of a point, by models that did not see them. quality: the candidate's change of quality
    as last judged, or why there is none. arms: columns that may be drawn, at least two.

    Length. The gate judges the newest fifth of the log, with the table as today's routing. Its quality interval has
    half-width z sqrt(V / m) after m judged decisions (asymptotic), where per decision

        V = d [ Var(sum_a (pi - mu)(a) q(a)) + E sum_a (pi - mu)(a)^2 sigma(a)^2 / (mu(a) e) ],

    e the label share, q the outcome model and d the design effect of sessions. The wanted half-width leaves room for
    `SURE`: (change + margin) z / (z + z_SURE), the usual sample size for non-inferiority (Julious 2004); without an
    estimate it is `COARSE`. The saving is sized alike, and the effective decisions e m / E sum_a pi^2 / mu must reach
    the gate's limit. Assumes that the coming prompts resemble the logged ones.
    """
    columns = np.asarray(arms, dtype=np.int64)
    data = evaluation.data
    if len(columns) < 2:
        return Refused("only one model to choose among: let the app offer a second one at this decision point")
    behaviour = _within(data.behaviour, columns)
    candidate = _within(policy, columns)
    base, chosen = _segments(behaviour, candidate)
    facts = Facts.of(evaluation, columns)
    wanted, agree = _designs(facts, behaviour, candidate, chosen)
    table = _within_margin(evaluation, columns, chosen, wanted, _means(behaviour, chosen), limits)
    drawn = table[chosen]
    cost, change = _change(evaluation, "cost_usd", drawn, columns), _change(evaluation, "quality", drawn, columns)
    pace = _per_day(data.time_ns)
    loss = _loss(change)
    size = length(
        facts, behaviour, drawn, candidate, quality=quality, saving=evaluation.change("cost_usd", policy), limits=limits
    )
    segments = _shown(data.action_names, columns, chosen, behaviour, table, agree)
    return Exploration(
        arms=tuple(data.action_names[column] for column in columns),
        base=base,
        table=table,
        segments=segments,
        randomised=float(sum(s.share for s in segments if s.randomised)),
        cost_per_day=_times(cost, pace),
        quality_per_day=_times(change, pace),
        quality_at_risk=loss,
        within_margin=loss <= limits.quality_margin + 1e-12,
        half_width=size.half_width,
        binding=size.binding,
        decisions=_needed(size.judged, len(data), data.propensities_logged),
        per_day=pace,
        label_share=facts.label_share,
        z=size.z,
        variance=size.variance,
        variance_today=size.variance_today,
        earlier=len(data),
    )


def _shown(
    names: Sequence[str], columns: Ints, chosen: Ints, behaviour: Floats, table: Floats, agree: Sequence[bool]
) -> tuple[Segment, ...]:
    """The segments that occur, the largest first. chosen (n,), behaviour (n, k), table (k, k), agree (k,)."""
    shares = np.bincount(chosen, minlength=len(columns)) / max(len(chosen), 1)
    today = _means(behaviour, chosen)
    return tuple(
        Segment(names[columns[g]], float(shares[g]), today[g], table[g], not agree[g])
        for g in np.argsort(-shares, kind="stable")
        if shares[g] > 0
    )


def _needed(judged: float, earlier: int, logged: bool) -> int:
    """Decisions to log until so many judge, in whole hundreds. Known probabilities must choose and judge: the newest
    fifth judges, the one before it chooses."""
    new = CERTIFY if logged else CHOOSE + CERTIFY
    needed = max(judged, judged / CERTIFY - earlier, earlier * new / (1 - new))
    return int(np.ceil(needed / 100) * 100)


def cheaper(data_cost: Floats, actions: Ints, arms: Sequence[int], count: int) -> Floats:
    """(a,) shares of a stand-in where nothing can be suggested yet: evenly the arms that cost less than the average
    decision, else the cheapest; unknown costs count as average.

    data_cost (n,) with NaN where unknown, actions (n,), count: actions of the log.
    """
    average = float(np.nanmean(data_cost)) if (~np.isnan(data_cost)).any() else 0.0
    costs = np.array([mean_or(data_cost[actions == arm], average) for arm in arms])
    wanted = costs < average if (costs < average).any() else costs == costs.min()
    shares = np.zeros(count)
    shares[np.asarray(arms)[wanted]] = 1 / wanted.sum()
    return shares


def _within(probabilities: Floats, columns: Ints) -> Floats:
    """(n, k) probabilities among the arms; rows that give them none are like the mean."""
    among = probabilities[:, columns]
    total = among.sum(axis=1, keepdims=True)
    mean = among.sum(axis=0) / max(float(among.sum()), 1e-300)
    return np.where(total > 1e-9, among / np.where(total > 1e-9, total, 1.0), mean)


def _segments(behaviour: Floats, candidate: Floats) -> tuple[Base, Ints]:
    """Whose choice names the segments, and (n,) each decision's arm."""
    chosen = candidate.argmax(axis=1)
    if float(np.abs(behaviour - _means(behaviour, chosen)[chosen]).sum(axis=1).mean()) / 2 <= BLIND:
        return "suggestion", chosen
    return "today", behaviour.argmax(axis=1)


def _means(values: Floats, chosen: Ints) -> Floats:
    """(k, k) mean of the rows of each segment; of all rows where a segment is empty."""
    counts = np.bincount(chosen, minlength=values.shape[1])
    sums = np.zeros((values.shape[1], values.shape[1]))
    np.add.at(sums, chosen, values)
    means: Floats = np.where(counts[:, None] > 0, sums / np.maximum(counts, 1)[:, None], values.mean(axis=0))
    return means


def _designs(facts: Facts, behaviour: Floats, candidate: Floats, chosen: Ints) -> tuple[Floats, list[bool]]:
    """(k, k) the wanted row of each segment, and where candidate and today agree."""
    arms = behaviour.shape[1]
    designs, agree = _means(behaviour, chosen), [True] * arms
    for g in range(arms):
        rows = chosen == g
        gap = np.abs(candidate[rows] - behaviour[rows])
        if not rows.any() or gap.sum(axis=1).mean() / 2 <= AGREE:
            continue
        agree[g] = False
        now = (behaviour[rows] * facts.cost_usd[rows]).sum(axis=1, keepdims=True)
        extra = np.maximum(facts.cost_usd[rows] - now, 0.0).mean(axis=0)
        usual = float(now.mean()) or 1.0
        weight = gap.mean(axis=0) * facts.spread / np.sqrt(extra / usual + 1.0)
        designs[g] = weight / weight.sum()
    return designs, agree


def _floored(table: Floats) -> Floats:
    """Every arm at least at `FLOOR` (or an even share of all, if that is less), the others a little less."""
    least = min(FLOOR, 1 / table.shape[1])
    floored = table
    for _ in range(table.shape[1]):  # what is given to some arms is taken from those above, which may then fall below
        low = floored <= least
        above = np.where(low, 0.0, floored)
        rest = 1 - least * low.sum(axis=1, keepdims=True)
        total = above.sum(axis=1, keepdims=True)
        floored = np.where(low, least, above * rest / np.where(total > 0, total, 1.0))
    return np.asarray(floored / floored.sum(axis=1, keepdims=True))


def _within_margin(
    evaluation: Evaluation, columns: Ints, chosen: Ints, wanted: Floats, now: Floats, limits: Limits
) -> Floats:
    """Today's table moved towards the wanted one as far as the margin lets quality be at risk.

    The loss that an interval does not rule out is a convex function of how far, so a straight line from both ends never
    puts too much at risk.
    """
    ends = [_floored(now), _floored(wanted)]
    first, last = (_loss(_change(evaluation, "quality", end[chosen], columns)) for end in ends)
    margin = limits.quality_margin
    far = 1.0 if last <= margin else max(margin - first, 0.0) / (last - first) if last > first else 0.0
    return ends[0] + far * (ends[1] - ends[0])


def _change(evaluation: Evaluation, metric: Metric, drawn: Floats, columns: Ints) -> Outcome:
    """The experiment's mean outcome per decision minus today's; an assumption where the log cannot say."""
    policy = np.zeros_like(evaluation.data.behaviour)
    policy[:, columns] = drawn
    found = evaluation.change(metric, policy)
    if isinstance(found, Estimate) and np.isfinite([found.low, found.high]).all():
        return found
    outcome = evaluation.outcomes[metric].outcome
    if metric == "cost_usd" and np.isnan(outcome).all():
        return Refused("no decision has a known cost")
    mean = mean_or(outcome, 0.0)
    actions, n = evaluation.data.actions, len(outcome)
    means = np.array([mean_or(outcome[actions == column], mean) for column in columns])
    moved = drawn - _within(evaluation.data.behaviour, columns)
    value = float((moved @ means).mean())
    more = float(np.maximum(moved, 0.0).sum(axis=1).mean())
    far = UNTRIED_LOSS * more if metric == "quality" else abs(value)
    return Estimate("means of the arms", value, value - far, value + far, n, 0.0, "assumption")


def _loss(change: Outcome) -> float:
    """Quality per decision that may be lost."""
    return 0.0 if isinstance(change, Refused) else max(0.0, -change.low)


def _per_day(time_ns: Ints) -> float | None:
    span = int(time_ns.max()) - int(time_ns.min()) if len(time_ns) else 0
    return (len(time_ns) - 1) / span * NS_PER_DAY if span > 0 else None


def _times(change: Outcome, pace: float | None) -> Outcome:
    if pace is None:
        return change if isinstance(change, Refused) else Refused("the log spans no time, so nothing is known per day")
    return scaled(change, pace)
