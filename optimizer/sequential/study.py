"""The study of an orchestrated service: as `optimizer.study`, for policies that decide at every step and when to stop.

Learn on the oldest episodes, choose on the next, judge once on the newest. Pure: arrays in, records out. Legend: N
episodes, n decisions, a actions.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType

import numpy as np

from optimizer.ability import Ability
from optimizer.choosing import Scored, pick
from optimizer.constraints import limited
from optimizer.dataset import Floats, Ints, LoggedDataset, Splits, split
from optimizer.evidence import METRICS, Metric, Outcome, Refused, held_out, savings, segment
from optimizer.gate import Case, Estimate, Limits, Segment, Verdict, judge
from optimizer.learners import Candidate
from optimizer.logged import OTHER
from optimizer.looks import Look
from optimizer.ope.negative_control import ControlFinding
from optimizer.rewards import Preset, PuppeteerReward, RewardSpec
from optimizer.runtime import Model
from optimizer.segments import Protected
from optimizer.sequential import evaluation, mixture
from optimizer.sequential.candidates import candidates
from optimizer.sequential.episodes import EpisodeLog
from optimizer.sequential.policies import barred, constant_route, on_log
from optimizer.study import MIN_DECISIONS, MIN_GROUPS, Support, control_of, shifted_outcomes

MIN_EPISODES = MIN_DECISIONS
ENOUGH = 1.25 * evaluation.MIN_EFFECTIVE
"""Effective episodes of a candidate among those that choose, so that those that judge are likely to be enough too."""
WELL_SUPPORTED = evaluation.MAX_UNSUPPORTED / 2
"""Largest share of untried actions there, for the same reason."""


@dataclass(frozen=True, eq=False)
class Suggestion:
    """What the learning and choosing episodes suggest. `model` is None, with the reason in `refused`, where they say
    nothing."""

    label: str | None = None
    model: Model | None = None
    admissible: bool = False
    """The choosing episodes put it inside the limits."""
    share: float = 1.0
    """Of the episodes, drawn at their beginning; the others stay as they were."""
    cheapest: str | None = None
    """The action of the constant route with the lowest estimated cost among those that could be estimated."""
    strongest: str | None = None
    """The same with the highest estimated quality."""
    refused: str = ""


@dataclass(frozen=True, eq=False)
class Lessons:
    """The suggestion, and every candidate as the choosing episodes see it."""

    suggestion: Suggestion
    scored: tuple[Scored, ...] = ()


@dataclass(frozen=True)
class Row:
    """One policy of the comparison: mean outcomes per episode."""

    policy: str
    label: str
    outcomes: Mapping[Metric, Outcome]


@dataclass(frozen=True, eq=False)
class Findings:
    """What the certifying episodes say about the suggestion. Changes are policy minus today, per episode."""

    splits: Splits
    """Of episodes."""
    verdict: Verdict
    rows: tuple[Row, ...]
    changes: Mapping[Metric, Outcome]
    estimators: Mapping[str, Mapping[Metric, Outcome]]
    support: Support | None
    judged: EpisodeLog
    """The certifying episodes."""
    policy: Floats | None
    """(n, a) the suggestion on them."""
    disagreement: Mapping[Metric, str] = field(default_factory=dict)
    """Where estimators of the suggestion part by more than chance, which."""
    control: ControlFinding | None = None
    """Whether estimated probabilities of the first decisions miss what moved a choice; None where they are logged."""
    expected: tuple[Floats, Floats] | None = None
    """(k, n, a) future outcomes on them under the suggestion, and under the logged behaviour."""


def learn(
    log: EpisodeLog,
    limits: Limits,
    value_usd: float | None,
    *,
    seed: int,
    may: Collection[str] | None = None,
    preset: Preset = "real",
    abilities: Mapping[str, Ability] = MappingProxyType({}),
) -> Lessons:
    """Fit all candidates on the training episodes and pick one on the choosing episodes.

    `may`: actions besides STOP that may be suggested; None: all that the log tried. `preset` "puppeteer" teaches by
    that paper's reward instead of utility in real units; what is chosen and judged stays in real units. `abilities`:
    what is known of what agents can do; no policy asks one for what it cannot.
    """
    splits = split(log.groups, log.time_ns)
    train, chooser = log.take(splits.train), log.take(splits.choose)
    if (refused := _unlearnable(log, train, chooser)) is not None:
        return Lessons(Suggestion(refused=refused))
    reward = RewardSpec.default(per_episode(train)[1]) if value_usd is None else RewardSpec(value_usd)
    today = evaluation.fitted_outcomes(train, train.behaviour, seed=seed).predict(chooser.features)
    banned = {name for name in log.action_names[:-1] if name == OTHER or (may is not None and name not in may)}
    tried = [
        replace(one, model=limited(barred(one.model, banned), abilities))
        for one in candidates(train, reward, seed=seed, taught_by=_lesson(train, preset))
    ]
    found = [scored for one in tried if (scored := _score(one, chooser, today, limits, reward)) is not None]
    suggestion = _picked(found, chooser, today, limits)
    if suggestion.model is not None:
        constant = {
            name: scored
            for name in log.action_names[:-1]
            if name not in banned
            and (scored := _score(always(name, log.action_names), chooser, today, limits, reward)) is not None
        }
        suggestion = replace(
            suggestion,
            cheapest=min(constant, key=lambda name: constant[name].cost_change, default=None),
            strongest=max(constant, key=lambda name: constant[name].quality_change, default=None),
        )
    return Lessons(suggestion, tuple(found))


def _lesson(train: EpisodeLog, preset: Preset) -> PuppeteerReward | None:
    """The reward that fitted values are taught by, where it is not utility in real units."""
    spent = per_episode(train)[1].mean()
    return PuppeteerReward(float(spent) or 1.0) if preset == "puppeteer" else None


def _picked(found: Sequence[Scored], chooser: EpisodeLog, today: Floats, limits: Limits) -> Suggestion:
    """The best of the candidates, for all episodes or for as large a share as is certain; `today` as of `_score`."""
    choice = pick(found, chooser.groups, lambda _saving: None, least=ENOUGH)
    if choice is None:
        return Suggestion(refused="no candidate keeps to steps that the logs tried")
    share, admissible = 1.0, choice.admissible
    if not admissible or choice.scored.effective < ENOUGH:
        less = _deviating_less(found, chooser, today, limits)
        if less is not None:
            choice, share, admissible = replace(choice, scored=less[0]), less[1], True
    part = "" if share == 1.0 else f" for {share:.0%} of traces, else as today"
    return Suggestion(choice.candidate.label + part, choice.candidate.model, admissible, share)


def look_at(log: EpisodeLog, suggestion: Suggestion, service: str, point: str) -> Look | None:
    """The look that `assess` takes at the certifying episodes; None when there are none, or nothing to judge."""
    judged = log.take(split(log.groups, log.time_ns).certify)
    if suggestion.model is None or not len(judged):
        return None
    seen = hashlib.blake2b(repr((judged.action_names, judged.time_ns.tolist())).encode(), digest_size=16)
    seen.update(np.round(suggestion.share * on_log(suggestion.model, judged), 9).tobytes())
    return Look(service, point, int(judged.time_ns.min()), int(judged.time_ns.max()), seen.hexdigest())


def assess(
    log: EpisodeLog,
    suggestion: Suggestion,
    limits: Limits,
    *,
    seed: int,
    segments: Mapping[str, Protected] = MappingProxyType({}),
) -> Findings:
    """Judge the suggestion on the certifying episodes, by models that saw the other episodes only."""
    splits = split(log.groups, log.time_ns)
    control = None if log.propensities_logged else control_of(beginnings(log), seed=seed)
    known, judged = log.take(np.concatenate([splits.train, splits.choose])), log.take(splits.certify)
    level = limits.confidence
    today = _foreseen(known, judged, None, seed)
    rows = _compared(known, judged, suggestion, today, level, seed)
    if suggestion.model is None:
        return _unjudged(log, splits, judged, suggestion, limits, rows, control)
    own = _foreseen(known, judged, suggestion.model, seed)
    by_estimator, outcomes = _estimated(judged, own, today.model, suggestion.share, level)
    changes = by_estimator[evaluation.SEQUENTIAL_DR]
    case = _case(log, judged, suggestion, changes, own.policy, _moved(log, splits, limits, seed))
    parts = _segments(judged, splits.certify, own.policy, own.model, today.model, suggestion.share, segments, level)
    return Findings(
        splits,
        judge(replace(case, segments=parts), limits),
        (*rows, Row("suggested", suggestion.label or "", outcomes)),
        changes,
        by_estimator,
        _support(judged, own.policy),
        judged,
        own.policy,
        evaluation.disagreement(judged, own.policy, own.model) if suggestion.share == 1.0 else {},
        control,
        (own.model, today.model),
    )


@dataclass(frozen=True, eq=False)
class _Foreseen:
    """A policy on the judging episodes."""

    policy: Floats
    """(n, a) what it does."""
    model: Floats
    """(k, n, a) its future outcomes, by a model of the other episodes."""


def _foreseen(known: EpisodeLog, judged: EpisodeLog, model: Model | None, seed: int) -> _Foreseen:
    """None: the logged behaviour."""
    taught, policy = (
        (known.behaviour, judged.behaviour) if model is None else (on_log(model, known), on_log(model, judged))
    )
    return _Foreseen(policy, evaluation.fitted_outcomes(known, taught, seed=seed).predict(judged.features))


def _compared(
    known: EpisodeLog, judged: EpisodeLog, suggestion: Suggestion, today: _Foreseen, level: float, seed: int
) -> tuple[Row, ...]:
    """What the suggestion is compared with: today, the cheapest and the strongest constant route."""
    rows = [Row("today", "as logged", evaluation.value(judged, today.policy, today.model, confidence=level))]
    routes: dict[str, Mapping[Metric, Outcome]] = {}
    for name, action in (("cheapest", suggestion.cheapest), ("strongest", suggestion.strongest)):
        if action is None:
            continue
        if action not in routes:
            own = _foreseen(known, judged, constant_route(action, judged.action_names), seed)
            routes[action] = evaluation.value(judged, own.policy, own.model, confidence=level)
        rows.append(Row(name, f"always {action}", routes[action]))
    return tuple(rows)


def _unjudged(
    log: EpisodeLog,
    splits: Splits,
    judged: EpisodeLog,
    suggestion: Suggestion,
    limits: Limits,
    rows: tuple[Row, ...],
    control: ControlFinding | None,
) -> Findings:
    """The findings where nothing is suggested."""
    refused: dict[Metric, Outcome] = dict.fromkeys(METRICS, Refused(suggestion.refused))
    return Findings(
        splits,
        judge(_case(log, judged, suggestion, refused, None, ()), limits),
        (*rows, Row("suggested", "not known", refused)),
        refused,
        {},
        None,
        judged,
        None,
        control=control,
    )


def _estimated(
    judged: EpisodeLog, own: _Foreseen, today: Floats, share: float, level: float
) -> tuple[Mapping[str, Mapping[Metric, Outcome]], Mapping[Metric, Outcome]]:
    """The suggestion's changes by estimator, and its own outcomes; today: as of `_Foreseen.model`, as logged."""
    if share == 1.0:
        by_estimator = evaluation.by_estimator(judged, own.policy, own.model, today, confidence=level)
        return by_estimator, evaluation.value(judged, own.policy, own.model, confidence=level)
    part = (judged, own.policy, own.model, today, share)
    change = {evaluation.SEQUENTIAL_DR: mixture.change(*part, confidence=level)}
    return change, mixture.value(*part, confidence=level)


def always(action: str, action_names: tuple[str, ...]) -> Candidate:
    """The constant route, as a candidate."""
    return Candidate(f"always {action}", 0, constant_route(action, action_names))


def per_episode(log: EpisodeLog) -> Floats:
    """(k, N) the sum of every outcome over each episode, in the order of `OUTCOMES`; NaN where a part is unknown."""
    return np.array([np.bincount(log.episode, weights=one, minlength=len(log)) for one in log.rewards()])


def _unlearnable(log: EpisodeLog, train: EpisodeLog, chooser: EpisodeLog) -> str | None:
    """Why nothing can be learned; None if something can."""
    if len(log) < MIN_EPISODES:
        return f"only {len(log)} traces; a study needs {MIN_EPISODES}"
    if (sessions := len(np.unique(log.groups))) < MIN_GROUPS:
        return f"only {sessions} sessions; a study needs {MIN_GROUPS}: traces of one session are not independent"
    if np.isnan(train.quality).all() or np.isnan(chooser.quality).all():
        return "no trace has a quality score to learn from"
    if unpriced := int(np.isnan(per_episode(log)[1]).sum()):
        count = "no trace has a" if unpriced == len(log) else f"{unpriced:,} of {len(log):,} traces have no"
        return f"{count} known cost; set prices for the models in them"
    others = train.supported.copy()
    others[np.arange(len(train.actions)), train.actions] = False
    if not others.any():
        return "every step was chosen by a fixed rule and no step has a score, so nothing else was ever seen"
    return None


def _score(
    candidate: Candidate, chooser: EpisodeLog, today: Floats, limits: Limits, reward: RewardSpec
) -> Scored | None:
    """A candidate on the choosing episodes; None where the log has no evidence about it.

    today: (k, n, a) future outcomes as logged. They serve as the model for every candidate: with logged probabilities
    the estimate is right whatever the model, and a model of its own would cost a fit for each.
    """
    policy = on_log(candidate.model, chooser)
    if evaluation.unsupported(chooser, policy) > WELL_SUPPORTED:
        return None
    scores = evaluation.doubly_robust(chooser, policy, today) - evaluation.doubly_robust(
        chooser, chooser.behaviour, today
    )
    quality, cost, latency = scores
    if not np.isfinite(scores[:2]).all():
        return None
    late = limits.latency_s is not None and not float(latency.mean()) <= limits.latency_s
    outcomes = evaluation.value(chooser, policy, today, confidence=limits.confidence)
    return Scored(
        candidate,
        outcomes["cost_usd"],
        outcomes["quality"],
        float(cost.mean()),
        float(quality.mean()),
        reward.utility(quality, cost),
        float(quality.mean()) >= -limits.quality_margin and not late,
        evaluation.effective_episodes(chooser, policy),
        policy,
        late,
        outcomes["latency_s"],
    )


def _deviating_less(
    found: Sequence[Scored], chooser: EpisodeLog, today: Floats, limits: Limits
) -> tuple[Scored, float] | None:
    """The candidate of which the largest useful part is certainly inside the limits, and that share of the episodes."""
    parts = []
    for one in found:
        if one.utility > 0 and one.cost_change < 0 and not one.late:
            largest = mixture.largest_mixture(chooser, one.policy, today, today, limits)
            if largest is not None:
                parts.append((largest.share * one.utility, one, largest.share))
    if not parts:
        return None
    _, one, share = max(parts, key=lambda part: part[0])
    return one, share


def _moved(log: EpisodeLog, splits: Splits, limits: Limits, seed: int) -> tuple[str, ...]:
    """Outcomes of whole episodes that differ, at the same beginning, between the choosing and the certifying ones."""
    later = np.concatenate([splits.choose, splits.certify])
    newer = held_out(beginnings(log), splits.train, later, confidence=limits.confidence, seed=seed)
    return shifted_outcomes(newer, len(splits.choose), limits, seed=seed)


def beginnings(log: EpisodeLog) -> LoggedDataset:
    """Every episode as one decision, its first, with what came of all of it."""
    quality, cost, latency = per_episode(log)
    return LoggedDataset(
        features=log.features[log.first],
        actions=log.actions[log.first],
        quality=quality,
        cost_usd=cost,
        latency_s=latency,
        behaviour=log.behaviour[log.first],
        groups=log.groups,
        time_ns=log.time_ns,
        action_names=log.action_names,
        propensities_logged=log.propensities_logged,
    )


def _support(judged: EpisodeLog, policy: Floats) -> Support:
    weight = np.sort(evaluation.carried(judged, policy))[::-1]
    total = float(weight.sum())
    return Support(
        effective=evaluation.effective_episodes(judged, policy),
        top_share=float(weight[: max(1, len(weight) // 100)].sum()) / total if total else 1.0,
        unsupported=evaluation.unsupported(judged, policy),
        changed=float(np.abs(policy - judged.behaviour).sum(axis=1).mean()) / 2,
    )


def change_of(
    episodes: Ints, judged: EpisodeLog, policy: Floats, model: Floats, today: Floats, share: float, level: float
) -> Mapping[Metric, Outcome]:
    """The suggestion's changes on some of the judging episodes alone."""
    rows = np.isin(judged.episode, episodes)
    known = (judged.take(episodes), policy[rows], model[:, rows], today[:, rows])
    if share == 1.0:
        return evaluation.change(*known, confidence=level)
    return mixture.change(*known, share, confidence=level)


def _segments(
    judged: EpisodeLog,
    places: Ints,
    policy: Floats,
    model: Floats,
    today: Floats,
    share: float,
    segments: Mapping[str, Protected],
    level: float,
) -> tuple[Segment, ...]:
    """What the judging episodes say of each protected segment; places: (N,) theirs in the log."""
    found = []
    for name, protected in segments.items():
        episodes = np.flatnonzero(protected.rows[places])
        change: Outcome = Refused("none of the newest traces is in it")
        if len(episodes):
            change = change_of(episodes, judged, policy, model, today, share, level)["quality"]
        found.append(segment(name, len(episodes), change, protected.quality_margin))
    return tuple(found)


def _case(
    log: EpisodeLog,
    judged: EpisodeLog,
    suggestion: Suggestion,
    changes: Mapping[Metric, Outcome],
    policy: Floats | None,
    shifts: tuple[str, ...],
) -> Case:
    refusals = [change.reason for change in changes.values() if isinstance(change, Refused)]
    saving, quality, latency = savings(changes["cost_usd"]), changes["quality"], changes["latency_s"]
    known = None if policy is None else _support(judged, policy)
    return Case(
        saving=saving if isinstance(saving, Estimate) else None,
        quality_change=quality if isinstance(quality, Estimate) else None,
        latency_change_s=latency if isinstance(latency, Estimate) else None,
        refused=refusals[0] if refusals else "",
        top_share=1.0 if known is None else known.top_share,
        unsupported=1.0 if known is None else known.unsupported,
        propensities_logged=log.propensities_logged,
        label_share=float(np.mean(~np.isnan(log.quality))),
        label_sources=log.label_sources,
        moved=shifts,
        admissible=suggestion.admissible,
    )
