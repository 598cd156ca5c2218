"""The study of one service: learn on the oldest decisions, choose on the next, judge once on the newest.

Pure: arrays in, records out. Legend: n decisions, a actions.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Literal

import numpy as np

from optimizer import label_plan
from optimizer.ability import Ability
from optimizer.choosing import Scored, choose, score
from optimizer.constraints import Told, allowed, limited, told
from optimizer.dataset import MIN_PROPENSITY, Bools, Floats, Ints, LoggedDataset, Splits, folds, split
from optimizer.drift import Drift, compare
from optimizer.evidence import (
    BLEND,
    MAX_UNSUPPORTED,
    METRICS,
    Evaluation,
    Metric,
    Outcome,
    Refused,
    by_parts,
    held_out,
    joined,
    savings,
    segment,
    taught,
)
from optimizer.expectations import Expected, PriceScores, expected, level_of
from optimizer.expectations import joined as expected_everywhere
from optimizer.frontier import PricePoint, price_curve
from optimizer.gate import Case, Estimate, Kind, Limits, Segment, Verdict, judge
from optimizer.kept_scores import newest
from optimizer.learners import Candidate, Lesson, candidates
from optimizer.learners.lesson import WEIGHT_CAP, doubly_robust_targets
from optimizer.learners.linear import Heads
from optimizer.logged import OTHER, Logged
from optimizer.looks import Look
from optimizer.mixtures import unmixed
from optimizer.ope import labels
from optimizer.ope.agreement import disagreement
from optimizer.ope.estimators import ESTIMATORS
from optimizer.ope.models import MAX_FITTED
from optimizer.ope.negative_control import ControlFinding, negative_control, previous_outcome
from optimizer.ope.partial import Partial, partial_change
from optimizer.ope.sensitivity import MOST_GAMMA, tipping_point
from optimizer.policy import Fixed, Learned, Policy, Today
from optimizer.rewards import RewardSpec
from optimizer.rules import Rules, explain
from optimizer.runtime import Model, of_session
from optimizer.segments import Protected

MIN_DECISIONS = 100
MIN_GROUPS = 10
"""Sessions needed to split a log three ways and to tell how much they differ."""
CONTROL_ROWS = 50_000
"""Newest decisions on which the negative control is tested: enough to find any that matters."""
PARTS = 4
CROSS_CHOSEN = 40_000
"""Up to so many rows each learner is scored on all of them; of more, the choosing rows alone tell enough."""
MIN_TAKEN = 30
"""An action is learned and suggested only if the learning rows took it this often."""

PolicyName = Literal["today", "cheapest", "strongest", "cost_matched_random", "suggested"]


@dataclass(frozen=True, eq=False)
class Suggestion:
    """What the learning and choosing rows suggest. `model` is None, with the reason in `refused`, where they say
    nothing."""

    label: str | None = None
    model: Model | None = None
    admissible: bool = False
    """The choosing rows put it inside the limits."""
    cheapest: str | None = None
    """The action of the lowest estimated cost on the learning rows."""
    strongest: str | None = None
    """The action of the highest estimated quality on the learning rows."""
    refused: str = ""


@dataclass(frozen=True, eq=False)
class Lessons:
    """The suggestion, and every candidate as the choosing rows see it."""

    suggestion: Suggestion
    frontier: tuple[Scored, ...]
    curve: tuple[PricePoint, ...] = ()
    """What other prices of quality would buy, exploratory."""
    constraints: Told | None = None
    """What the abilities of the actions rule out, on all decisions."""
    scores: PriceScores | None = None
    """By which other prices can be tried later; None where nothing is suggested."""


@dataclass(frozen=True)
class Row:
    """One policy of the comparison: mean outcomes per decision."""

    policy: PolicyName
    label: str
    outcomes: Mapping[Metric, Outcome]


@dataclass(frozen=True)
class PartOf:
    """What can be said of one outcome of a policy that the log supports in part only."""

    label: str
    metric: Metric
    found: Partial


@dataclass(frozen=True)
class Support:
    """How much the log knows of the suggestion, on the certifying rows."""

    effective: float
    top_share: float
    unsupported: float
    changed: float
    """Share of decisions that it makes otherwise than today: the mean total variation between both."""


@dataclass(frozen=True, eq=False)
class Findings:
    """What the certifying rows say about the suggestion. Changes are policy minus today, per decision."""

    splits: Splits
    verdict: Verdict
    rows: tuple[Row, ...]
    changes: Mapping[Metric, Outcome]
    estimators: Mapping[str, Mapping[Metric, Outcome]]
    probabilities: Mapping[PolicyName, Floats]
    """(m, a) per policy, for the m certifying rows."""
    support: Support | None
    rules: Rules | None
    """The suggestion in words."""
    rule_changes: Mapping[Metric, Outcome]
    """What following these rules instead would change."""
    disagreement: Mapping[Metric, str]
    """Of which outcomes the estimators differ by more than chance, and what that means."""
    partial: tuple[PartOf, ...]
    """What can be said of policies that take actions which the log did not try."""
    control: ControlFinding | None
    """Whether estimated probabilities miss what moved a choice; None where they are logged."""
    evaluation: Evaluation
    """The certifying rows, by models of all earlier ones."""
    newer: Evaluation
    """The choosing rows, then the certifying ones, by models of the training rows."""
    drift: Drift | None
    """What differs between those that chose and those that judge; None where nothing is suggested."""
    hidden_odds: float | None
    """How wrong estimated probabilities may be: see `hidden_odds`."""


def learn(
    logged: Logged,
    limits: Limits,
    value_usd: float | None,
    *,
    epsilon: float,
    seed: int,
    actions: Collection[str] | None = None,
    abilities: Mapping[str, Ability] = MappingProxyType({}),
    sticky: bool = False,
) -> Lessons:
    """Fit all candidates on the training rows and pick one on the choosing rows; in a smaller log, on both by parts.

    `actions` are those that may be suggested; None: all that the log shows often enough. `abilities`: what is known of
    the actions; one that cannot serve a decision is not taken there. `sticky`: the policy sees of a session only what
    all its requests share.
    """
    data = logged.data
    splits = split(data.groups, data.time_ns)
    train = data.take(splits.train)
    if (refused := _unlearnable(logged, train, data.take(splits.choose), actions)) is not None:
        return Lessons(Suggestion(refused=refused), ())
    columns = _learnable(train, actions, labels.told(data))
    reward = RewardSpec.default(train.cost_usd) if value_usd is None else RewardSpec(value_usd)

    def seen(data: LoggedDataset) -> Floats:
        return np.asarray(of_session(data.features), dtype=np.float64) if sticky else data.features

    def tried(lesson: Lesson) -> list[Candidate]:
        return [
            replace(one, model=limited(one.model, abilities)) for one in candidates(lesson, reward, epsilon=epsilon)
        ]

    terms = _Terms(columns, seen, tried, limits, reward, seed)
    enough = len(splits.train) + len(splits.choose) > CROSS_CHOSEN
    made = _by_split(data, splits, terms) if enough else _by_parts(data, splits, terms)
    if made is None:
        return Lessons(Suggestion(refused="too few decisions with a score and a cost to learn from"), ())
    lesson, found, chooser, seen_by_choice, curve_of = made
    choice = choose(found, chooser, limits, reward)
    if choice is None:
        refused = labels.refusal(data) or "no candidate keeps to actions that the logs tried"
        return Lessons(Suggestion(refused=refused), ())
    suggestion = Suggestion(
        label=choice.candidate.label,
        model=choice.candidate.model,
        admissible=choice.admissible,
        cheapest=lesson.action_names[int(np.argmin(lesson.cost_usd.mean(axis=0)))],
        strongest=lesson.action_names[int(np.argmax(lesson.quality.mean(axis=0)))],
    )
    frontier = tuple(found if choice.scored in found else [*found, choice.scored])
    names = lesson.action_names
    heads, unseen = curve_of
    may = allowed(unseen.data.features, names, abilities)
    curve = price_curve(heads, unseen, reward, epsilon=epsilon, seed=seed, allowed=may)
    judging = splits.certify[newest(data.time_ns[splits.certify])]
    scores = PriceScores(
        value_usd=reward.value_usd,
        epsilon=epsilon,
        learned=names,
        chose=chooser,
        chose_rows=splits.choose if enough else np.sort(np.concatenate([splits.train, splits.choose])),
        expected=seen_by_choice,
        judging=expected(lesson, tried(lesson), data.take(judging)),
        judging_rows=judging,
        level=level_of(curve, limits.confidence),
    )
    return Lessons(suggestion, frontier, curve, told(data.features, names, abilities), scores)


@dataclass(frozen=True, eq=False)
class _Terms:
    """What candidates are made of, and by what they are scored."""

    columns: Sequence[int]
    """Actions that may be learned."""
    seen: Callable[[LoggedDataset], Floats]
    """What of the features a policy reads."""
    tried: Callable[[Lesson], list[Candidate]]
    limits: Limits
    reward: RewardSpec
    seed: int


_Made = tuple[Lesson, list[Scored], Evaluation, Expected, tuple[Heads, Evaluation]]
"""What was learned in the end, the candidates as the choosing rows see them, those rows, what was expected of them, and
heads with rows that they have not seen."""


def _by_split(data: LoggedDataset, splits: Splits, by: _Terms) -> _Made | None:
    """Learned on the training rows, scored on the choosing rows."""
    known, chooser = taught(data, splits.train, splits.choose, confidence=by.limits.confidence, seed=by.seed)
    lesson = _lesson(data.take(splits.train), known, by.columns, by.seen)
    if not _whole(lesson):
        return None
    tried = by.tried(lesson)
    found = [scored for one in tried if (scored := score(one, chooser, by.limits, by.reward)) is not None]
    return lesson, found, chooser, expected(lesson, tried, chooser.data), (lesson.robust, chooser)


def _by_parts(data: LoggedDataset, splits: Splits, by: _Terms) -> _Made | None:
    """Learned on all rows but the certifying ones, and each learner scored on every part of them by what it learned on
    the others: four times the choosing rows, where a choice by few rows is mostly luck."""
    earlier = data.take(np.sort(np.concatenate([splits.train, splits.choose])))
    part = folds(earlier.groups, PARTS, by.seed)
    pairs = by_parts(earlier, part, PARTS, confidence=by.limits.confidence, seed=by.seed)
    lessons = [_lesson(known.data, known, by.columns, by.seen) for known, _ in pairs]
    everywhere = joined([here for _, here in pairs], earlier, part)
    last = _lesson(earlier, everywhere, by.columns, by.seen)
    if not all(map(_whole, [*lessons, last])):
        return None
    policies, foreseen = [], []
    for lesson, (_, here) in zip(lessons, pairs, strict=True):
        tried = by.tried(lesson)
        does = {
            one.label: Learned(one.model, data.action_names).probabilities(here.data.features, here.data.behaviour)
            for one in tried
        }
        policies.append(does)
        foreseen.append(expected(lesson, tried, here.data, does))
    order = np.argsort(np.argsort(part, kind="stable"), kind="stable")
    found = []
    for one in by.tried(last):
        if all(one.label in does for does in policies):
            policy = np.concatenate([does[one.label] for does in policies])[order]
            if (scored := score(one, everywhere, by.limits, by.reward, policy)) is not None:
                found.append(scored)
    return last, found, everywhere, expected_everywhere(foreseen, order), (lessons[0].robust, pairs[0][1])


def _whole(lesson: Lesson) -> bool:
    return not (np.isnan(lesson.quality).any() or np.isnan(lesson.cost_usd).any())


def look_at(data: LoggedDataset, suggestion: Suggestion, service: str, point: str) -> Look | None:
    """The look that `assess` takes at the certifying rows; None when there are none, or nothing to judge."""
    judged = data.take(split(data.groups, data.time_ns).certify)
    if suggestion.model is None or not len(judged):
        return None
    does = Learned(suggestion.model, data.action_names).probabilities(judged.features, judged.behaviour)
    seen = hashlib.blake2b(repr((data.action_names, judged.time_ns.tolist())).encode(), digest_size=16)
    seen.update(np.round(does, 9).tobytes())
    return Look(service, point, int(judged.time_ns.min()), int(judged.time_ns.max()), seen.hexdigest())


def assess(
    data: LoggedDataset,
    suggestion: Suggestion,
    limits: Limits,
    *,
    seed: int,
    segments: Mapping[str, Protected] = MappingProxyType({}),
) -> Findings:
    """Judge the suggestion on the certifying rows, by models that saw the other rows only."""
    splits = split(data.groups, data.time_ns)
    evaluation, newer = _by_earlier(data, splits, limits.confidence, seed)
    policies = _policies(data.action_names, suggestion, evaluation)
    probabilities = {
        name: policy.probabilities(evaluation.data.features, evaluation.data.behaviour)
        for name, (_, policy) in policies.items()
    }
    rows = tuple(
        Row(name, label, {metric: evaluation.value(metric, probabilities[name]) for metric in METRICS})
        for name, (label, _) in policies.items()
    )
    suggested = probabilities.get("suggested")
    drift: Drift | None = None
    rules: Rules | None = None
    if suggested is None:
        refused = Refused(suggestion.refused)
        changes: dict[Metric, Outcome] = dict.fromkeys(METRICS, refused)
        others: tuple[PolicyName, ...] = ("cheapest", "strongest", "cost_matched_random", "suggested")
        rows += tuple(Row(name, "not known", dict.fromkeys(METRICS, refused)) for name in others)
        estimators: dict[str, dict[Metric, Outcome]] = {}
    else:
        changes = _changes(evaluation, suggested)
        known = np.concatenate([splits.train, splits.choose])
        rules = _in_words(data.take(known), evaluation, suggestion, suggested)
        drift = shifted(newer, len(splits.choose), seed=seed)
        chooser = newer.take(np.arange(len(splits.choose)))
        chosen = policies["suggested"][1].probabilities(chooser.data.features, chooser.data.behaviour)
        estimators = {BLEND: changes, **_estimators(evaluation, suggested, chooser, chosen)}
    gamma = None if suggested is None else hidden_odds(evaluation, suggested, limits)
    case = replace(
        _case(data, suggestion, evaluation, changes, suggested),
        tipping=_tipping(gamma),
        moved=_alarms(drift, limits),
        segments=() if suggested is None else _segments(evaluation, suggested, splits.certify, segments),
        unlabelled="" if suggested is None else _unlabelled(evaluation, suggested, limits),
    )
    verdict = judge(case, limits)
    return Findings(
        splits=splits,
        verdict=verdict,
        rows=rows,
        changes=changes,
        estimators=estimators,
        probabilities=probabilities,
        support=None if suggested is None else _support(evaluation, suggested),
        rules=rules,
        rule_changes={} if rules is None else _changes(evaluation, rules.policy(len(data.action_names))),
        disagreement={} if suggested is None else _disagreement(evaluation, suggested, changes),
        partial=_partial(evaluation, policies, suggestion, limits),
        control=None if data.propensities_logged else control_of(data, seed=seed),
        evaluation=evaluation,
        newer=newer,
        drift=drift,
        hidden_odds=gamma,
    )


def certifying(data: LoggedDataset, *, confidence: float, seed: int) -> tuple[LoggedDataset, Evaluation]:
    """The decisions that a policy may be learned from, and the evaluation of the others that `assess` judges by."""
    splits = split(data.groups, data.time_ns)
    known = data.take(np.concatenate([splits.train, splits.choose]))
    return known, _by_earlier(data, splits, confidence, seed)[0]


def _estimators(
    evaluation: Evaluation, policy: Floats, chooser: Evaluation, chosen: Floats
) -> dict[str, dict[Metric, Outcome]]:
    """The change by every method beside the one that is shown. chosen: the policy on the rows of `chooser`, which say
    how to bet."""
    ways: dict[str, Callable[[Metric], Outcome]] = {
        name: lambda metric, name=name: evaluation.change(metric, policy, name)  # type: ignore[misc]
        for name in ESTIMATORS
    }
    ways["bootstrap"] = lambda metric: evaluation.resampled_change(metric, policy)
    ways["betting"] = lambda metric: evaluation.certified_change(metric, policy, chooser, chosen)
    ways["LS"] = lambda metric: evaluation.smoothed_change(metric, policy, chooser)
    return {name: {metric: way(metric) for metric in METRICS} for name, way in ways.items()}


def _by_earlier(data: LoggedDataset, splits: Splits, confidence: float, seed: int) -> tuple[Evaluation, Evaluation]:
    """The certifying rows by models of all earlier ones; and the choosing rows, then the certifying ones, by models of
    the training rows. Where those alone are more than a model is fitted on, the second models serve for both."""
    later, known = np.concatenate([splits.choose, splits.certify]), np.concatenate([splits.train, splits.choose])
    newer = held_out(data, splits.train, later, confidence=confidence, seed=seed)
    if len(splits.train) >= MAX_FITTED:
        return newer.take(np.arange(len(splits.choose), len(later))), newer
    return held_out(data, known, splits.certify, confidence=confidence, seed=seed), newer


def _unlearnable(
    logged: Logged, train: LoggedDataset, chooser: LoggedDataset, actions: Collection[str] | None
) -> str | None:
    """Why nothing can be learned; None if something can."""
    if len(logged.data) < MIN_DECISIONS:
        return f"only {len(logged.data)} decisions; a study needs {MIN_DECISIONS}"
    if (sessions := len(np.unique(logged.data.groups))) < MIN_GROUPS:
        return f"only {sessions} sessions; a study needs {MIN_GROUPS}: decisions of one session are not independent"
    if logged.deterministic:
        return (
            "the choice follows the prompt almost without exception, so the logs never show what another action "
            "would have given"
        )
    if np.isnan(train.quality).all() or np.isnan(chooser.quality).all():
        return "no decision has a quality score to learn from"
    if np.isnan(train.cost_usd).all():
        return "no decision has a known cost; set prices for its models"
    told = labels.told(logged.data)
    if len(_learnable(train, actions, told)) < 2 <= len(_learnable(train, actions, np.ones_like(told))):
        return labels.refusal(logged.data)
    if len(_learnable(train, actions, told)) < 2:
        return f"fewer than two of the actions to choose among were taken {MIN_TAKEN} times or more"
    return None


def _learnable(train: LoggedDataset, actions: Collection[str] | None, told: Bools) -> list[int]:
    """Actions that the rows know well enough; `told` (a,): of whose quality more is known than a judge's opinion."""
    counts = np.bincount(train.actions, minlength=len(train.action_names))
    return [
        number
        for number, name in enumerate(train.action_names)
        if name != OTHER
        and told[number]
        and (actions is None or name in actions)
        and counts[number] >= MIN_TAKEN
        and counts[number] >= MIN_PROPENSITY * len(train)
    ]


def _lesson(
    train: LoggedDataset, evaluation: Evaluation, columns: Sequence[int], seen: Callable[[LoggedDataset], Floats]
) -> Lesson:
    quality, cost = evaluation.outcomes["quality"], evaluation.outcomes["cost_usd"]
    outcome, known = labels.corrected(quality, WEIGHT_CAP)
    picked = list(columns)
    return Lesson(
        seen(train),
        doubly_robust_targets(train, outcome, quality.model, known)[:, picked],
        doubly_robust_targets(train, train.cost_usd, cost.model, cost.known)[:, picked],
        quality.model[:, picked],
        cost.model[:, picked],
        tuple(train.action_names[number] for number in picked),
        train.groups,
    )


def _policies(
    names: tuple[str, ...], suggestion: Suggestion, evaluation: Evaluation
) -> dict[PolicyName, tuple[str, Policy]]:
    policies: dict[PolicyName, tuple[str, Policy]] = {"today": ("as logged", Today())}
    if suggestion.model is None or suggestion.cheapest is None or suggestion.strongest is None:
        return policies
    policies["cheapest"] = _always(suggestion.cheapest, names)
    policies["strongest"] = _always(suggestion.strongest, names)
    suggested = Learned(suggestion.model, names)
    shares = suggested.probabilities(evaluation.data.features, evaluation.data.behaviour).mean(axis=0)
    policies["cost_matched_random"] = ("the suggestion's shares, blind to the prompt", Fixed(shares))
    policies["suggested"] = (suggestion.label or "", suggested)
    return policies


def _always(action: str, names: tuple[str, ...]) -> tuple[str, Policy]:
    return f"always {action}", Fixed.always(names.index(action), len(names))


def _in_words(known: LoggedDataset, evaluation: Evaluation, suggestion: Suggestion, suggested: Floats) -> Rules | None:
    """What the suggestion does, or would do if it were not mixed with today's routing."""
    judged, model = evaluation.data, suggestion.model
    if model is None:
        return None
    whole = unmixed(model)
    policy = Learned(whole, judged.action_names)
    does = suggested if whole is model else policy.probabilities(judged.features, judged.behaviour)
    return explain(known, judged, policy, does)


def _changes(evaluation: Evaluation, policy: Floats) -> dict[Metric, Outcome]:
    return {metric: evaluation.change(metric, policy) for metric in METRICS}


def _support(evaluation: Evaluation, policy: Floats) -> Support:
    changed = float(np.abs(policy - evaluation.data.behaviour).sum(axis=1).mean()) / 2
    return Support(evaluation.effective(policy), evaluation.top_share(policy), evaluation.unsupported(policy), changed)


def _disagreement(evaluation: Evaluation, policy: Floats, changes: Mapping[Metric, Outcome]) -> dict[Metric, str]:
    known = [metric for metric in METRICS if isinstance(changes[metric], Estimate)]
    found = {metric: disagreement(evaluation.outcomes[metric], policy) for metric in known}
    return {metric: said for metric, said in found.items() if said}


def _partial(
    evaluation: Evaluation, policies: Mapping[PolicyName, tuple[str, Policy]], suggestion: Suggestion, limits: Limits
) -> tuple[PartOf, ...]:
    """Bounds on quality and cost for every reference policy with actions that were not tried; without a suggestion, for
    the action that cost least."""
    data, found = evaluation.data, []
    wanted = {label: policy for label, policy in policies.values() if not isinstance(policy, Today)}
    if suggestion.model is None and (least := _cheapest_seen(data)) is not None:
        wanted = dict([_always(least, data.action_names)])
    kind: Kind = "asymptotic" if data.propensities_logged else "assumption"
    for label, policy in wanted.items():
        does = policy.probabilities(data.features, data.behaviour)
        if evaluation.unsupported(does) <= MAX_UNSUPPORTED:
            continue
        for metric in ("quality", "cost_usd"):
            evidence = evaluation.outcomes[metric]
            if np.isnan(evidence.model).any() or np.isnan(evidence.outcome).all():
                continue
            part = partial_change(
                evidence,
                does,
                within=(0.0, 1.0 if metric == "quality" else float(np.nanmax(evidence.outcome))),
                action_names=data.action_names,
                margin=limits.quality_margin,
                confidence=limits.confidence,
                kind=kind,
            )
            found.append(PartOf(label, metric, part))
    return tuple(found)


def _cheapest_seen(data: LoggedDataset) -> str | None:
    """The action of the lowest mean cost among those taken often enough to tell."""
    costs = {}
    for number, name in enumerate(data.action_names):
        known = data.cost_usd[(data.actions == number) & ~np.isnan(data.cost_usd)]
        if name != OTHER and len(known) >= MIN_TAKEN:
            costs[name] = float(known.mean())
    return min(costs, key=lambda name: costs[name]) if len(costs) > 1 else None


def control_of(data: LoggedDataset, *, seed: int) -> ControlFinding:
    """Whether the session's previous outcome tells the choice beyond the features, on the newest decisions."""
    newest = np.argsort(data.time_ns, kind="stable")[-CONTROL_ROWS:]
    before = previous_outcome(data.quality, data.groups, data.time_ns)
    return negative_control(
        before[newest],
        data.features[newest],
        data.actions[newest],
        data.behaviour[newest],
        data.groups[newest],
        data.action_names,
        name="the score of the session's previous decision",
        seed=seed,
    )


def shifted_outcomes(newer: Evaluation, chosen: int, limits: Limits, *, seed: int) -> tuple[str, ...]:
    """Outcomes that differ, at the same features, between the first `chosen` rows and the others. Latency is one where
    it is limited: else nothing was chosen by it, and every provider's moves."""
    return _alarms(shifted(newer, chosen, seed=seed), limits)


def shifted(newer: Evaluation, chosen: int, *, seed: int) -> Drift | None:
    """What differs between the first `chosen` rows and the others; None without a model or without rows."""
    usable = {str(metric): one for metric, one in newer.outcomes.items() if not np.isnan(one.model).any()}
    if not usable or not len(newer.data):
        return None
    later = np.arange(len(newer.data)) >= chosen
    return compare(newer.data.features, usable, later, newer.data.action_names, seed=seed)


def _alarms(found: Drift | None, limits: Limits) -> tuple[str, ...]:
    alarms = () if found is None else found.alarms("outcome")
    counted = [one for one in alarms if limits.latency_s is not None or not one.what.startswith("latency_s ")]
    return tuple(shift.reason.partition(":")[0] for shift in counted)


def hidden_odds(evaluation: Evaluation, policy: Floats, limits: Limits) -> float | None:
    """How wrong the odds of estimated probabilities may be before quality is no longer certain; None where they are
    logged, or where it is not certain at all."""
    evidence = evaluation.outcomes["quality"]
    if evaluation.data.propensities_logged or np.isnan(evidence.outcome).all() or np.isnan(evidence.model).any():
        return None
    return tipping_point(evidence, policy, -limits.quality_margin, confidence=limits.confidence)


def _tipping(gamma: float | None) -> str:
    if gamma is None:
        return ""
    least = f"{gamma:.2f}-fold" if gamma < MOST_GAMMA else f"{MOST_GAMMA:.0f}-fold or more"
    return f"; quality holds unless hidden causes shift the odds of a choice {least}"


def _unlabelled(evaluation: Evaluation, policy: Floats, limits: Limits) -> str:
    """How far decisions without a score could move the change of quality, if why they have none is not known."""
    evidence = evaluation.outcomes["quality"]
    if evaluation.labels_drawn or np.isnan(evidence.model).any():
        return ""
    low, high = labels.whatever_the_rest(evidence, policy, confidence=limits.confidence)
    return f"; whatever the others would have got, quality changes by {100 * low:+.1f} to {100 * high:+.1f} points"


def _segments(
    evaluation: Evaluation, policy: Floats, judged: Ints, segments: Mapping[str, Protected]
) -> tuple[Segment, ...]:
    """What the rows that judge say of each protected segment; judged: (m,) their places in the log."""
    found = []
    for name, protected in segments.items():
        rows = np.flatnonzero(protected.rows[judged])
        if len(rows):
            change = evaluation.take(rows).change("quality", policy[rows])
        else:
            change = Refused("none of the newest decisions is in it")
        found.append(segment(name, len(rows), change, protected.quality_margin))
    return tuple(found)


def _case(
    data: LoggedDataset,
    suggestion: Suggestion,
    evaluation: Evaluation,
    changes: Mapping[Metric, Outcome],
    suggested: Floats | None,
) -> Case:
    refusals = [change.reason for change in changes.values() if isinstance(change, Refused)]
    saving, quality, latency = savings(changes["cost_usd"]), changes["quality"], changes["latency_s"]
    return Case(
        saving=saving if isinstance(saving, Estimate) else None,
        quality_change=quality if isinstance(quality, Estimate) else None,
        latency_change_s=latency if isinstance(latency, Estimate) else None,
        refused=refusals[0] if refusals else "",
        top_share=1.0 if suggested is None else evaluation.top_share(suggested),
        unsupported=1.0 if suggested is None else evaluation.unsupported(suggested),
        propensities_logged=data.propensities_logged,
        label_share=float(np.mean(~np.isnan(data.quality))),
        label_sources=data.label_sources,
        labels_drawn=evaluation.labels_drawn,
        labels_needed=label_plan.smallest_budget(data.actions),
        admissible=suggestion.admissible,
    )
