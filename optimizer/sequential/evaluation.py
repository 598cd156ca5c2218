"""What a policy of many steps would have given, by the episodes of another one.

Sequential doubly robust estimate (Jiang, Li 2016, arXiv 1511.03722): from the last decision back,

    D_t = sum_a pi(a) Q(s_t, a) + w_t (r_t + D_(t+1) - Q(s_t, a_t)),   w_t = pi(a_t) / b(a_t),

with Q a model of the policy's own future outcomes, fitted on other episodes. Right if b is known or Q is right; the
mean of D_0 is the value. Where it is known what stopping gives, Q(s, STOP) is that: a policy that only stops earlier
than the log is then replayed exactly, without any weight.

Not every episode has a score. Then r / e times what the score and Q differ stands for the difference, with r whether
there is one and e the probability of that (see `EpisodeLog.heft`): at the last decision for the score, and at each one
for what stopping gives, where step scores come with the score of the episode.

Legend: N episodes, n decisions, m new ones, d features, a actions, k outcomes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from optimizer.dataset import Bools, Floats, Ints, folds
from optimizer.evidence import METRICS, Metric, Outcome, Refused
from optimizer.gate import MIN_LABEL_SHARE, Kind
from optimizer.ope.agreement import parted
from optimizer.ope.estimators import effective
from optimizer.ope.intervals import mean_interval
from optimizer.ope.models import FOLDS
from optimizer.sequential.episodes import OUTCOMES, EpisodeLog
from optimizer.sequential.leaves import Leaves, read

MIN_EFFECTIVE = 100.0
"""Below this many effective episodes there is no number at all."""
MAX_UNSUPPORTED = 0.01
"""Largest share of a policy's episodes that may come to take an action which the log did not try there."""
LEAST_FOLLOWED = 10.0
"""Effective decisions of the log that have to speak for what a policy does at a step."""
FEW = 5.0
TOLERANCE = 0.01
"""Sweeps end when the targets move less than this, in root mean square, as a share of their spread."""


# ------------------------------------------------------------------------------------------------------------ models


@dataclass(frozen=True, eq=False)
class FittedOutcomes:
    """Models of a policy's future outcomes after each action."""

    leaves: Leaves | None
    """None: there was nothing to learn from."""
    values: Floats
    """(k, nodes)"""
    sweeps: int
    action_count: int

    def predict(self, features: Floats) -> Floats:
        """features (m, d) -> (k, m, a); NaN where nothing is known of an outcome."""
        if self.leaves is None:
            return np.full((len(OUTCOMES), len(features), self.action_count), np.nan)
        if not len(features):
            return np.zeros((len(OUTCOMES), 0, self.action_count))
        return read(self.leaves.of(features), self.values)


def fitted_outcomes(log: EpisodeLog, policy: Floats, *, seed: int) -> FittedOutcomes:
    """Models of the policy's future outcomes after each action: fitted Q evaluation (Le, Voloshin, Yue 2019, arXiv
    1903.08738), from what was seen after each decision, in sweeps that end when they change little (`TOLERANCE`), at
    the latest when the longest episode is swept through. What stopping is known to give is learned from as well.

    policy: (n, a) on the log's decisions.
    """
    rewards, n, a = log.rewards(), len(log.actions), len(log.action_names)
    if not n:
        return FittedOutcomes(None, np.zeros((len(OUTCOMES), 0)), 0, a)
    stops = np.flatnonzero(~np.isnan(log.stop_quality) & (log.actions != log.stop))
    features = np.concatenate([log.features, log.features[stops]])
    actions = np.concatenate([log.actions, np.full(len(stops), log.stop)])
    stopped = np.array([log.stop_quality[stops], *np.zeros((len(OUTCOMES) - 1, len(stops)))])
    targets = np.concatenate([_to_come(log, rewards), stopped], axis=1)
    leaves = Leaves.grow(features, actions, targets, a, seed=seed)
    nodes = leaves.of(log.features)
    spread = np.array([_known(one).std() if len(_known(one)) else 0.0 for one in targets])
    following = np.where(log.last, 0, np.arange(n) + 1)
    sweeps = 0
    values = leaves.filled(targets)
    while sweeps < log.horizon:
        ahead = (policy * with_known_stops(log, read(nodes, values))).sum(axis=2)
        moved = targets.copy()
        moved[:, :n] = rewards + np.where(log.last, 0.0, ahead[:, following])
        steps = [_known(one) for one in (moved - targets) ** 2]
        change = np.array([np.sqrt(one.mean()) if len(one) else 0.0 for one in steps])
        targets, sweeps = moved, sweeps + 1
        values = leaves.filled(targets)
        if not (change > TOLERANCE * spread + 1e-12).any():
            break
    return FittedOutcomes(leaves, values, sweeps, a)


def _known(values: Floats) -> Floats:
    return values[~np.isnan(values)]


def cross_fitted(log: EpisodeLog, policy: Floats, *, seed: int) -> Floats:
    """(k, n, a) the policy's future outcomes by models of the episodes of other groups (three parts of them)."""
    part = folds(log.groups, FOLDS, seed)
    result = np.full((len(OUTCOMES), *log.behaviour.shape), np.nan)
    for number in range(FOLDS):
        here = part[log.episode] == number
        if here.any():
            others = log.take(np.flatnonzero(part != number))
            result[:, here] = fitted_outcomes(others, policy[~here], seed=seed).predict(log.features[here])
    return result


def with_known_stops(log: EpisodeLog, model: Floats) -> Floats:
    """The model's outcomes (k, n, a), with what stopping gives: the known quality, and no further cost or time."""
    result = model.copy()
    result[1:, :, log.stop] = 0.0
    known = ~np.isnan(log.stop_quality)
    heft = log.heft[log.episode] if log.stops_are_labels else np.ones(len(known))
    guess = model[0, known, log.stop]
    left = log.stop_quality[known] - guess
    # where all are known nothing of the guess is left, not even a rounding error
    result[0, known, log.stop] = np.where(heft[known] == 1.0, log.stop_quality[known], guess + heft[known] * left)
    return result


def _to_come(log: EpisodeLog, rewards: Floats) -> Floats:
    """(k, n) sum of the rewards (k, n) from each decision to the end of its episode."""
    result: Floats = rewards.copy()
    for later in log.at_step[:0:-1]:
        result[:, later - 1] += result[:, later]
    return result


# ----------------------------------------------------------------------------------------------------------- weights


def reach(log: EpisodeLog, policy: Floats) -> Floats:
    """(n,) for how many of the policy's own episodes each logged one stands when a decision is due: the product of
    pi(a) / b(a) over the earlier ones, and 0 after a STOP of the log whose outcome is known."""
    weight = _going_on(log, policy)
    result = np.ones(len(log.actions))
    for later in log.at_step[1:]:
        result[later] = result[later - 1] * weight[later - 1]
    return result


def carried(log: EpisodeLog, policy: Floats) -> Floats:
    """(N,) how much of the policy's own episodes each logged one stands for; 1 on average.

    The product of its weights, and on the way whatever share the policy stops where that outcome is known.
    """
    stopped, ended = carried_parts(log, policy)
    return np.bincount(log.episode, stopped + ended, minlength=len(log)).astype(np.float64)


def carried_parts(log: EpisodeLog, policy: Floats) -> tuple[Floats, Floats]:
    """(n,) each, together `carried`: for how many of the policy's own episodes a decision stands where they stop there
    and the outcome of that is known, and where they end there as the logged one did."""
    left = reach(log, policy)
    return left * _stopping(log, policy), np.where(log.last, left * _going_on(log, policy), 0.0)


def effective_episodes(log: EpisodeLog, policy: Floats, metric: Metric = "quality") -> float:
    """Effective episodes behind the policy's value: (sum w)^2 / sum w^2 of what each logged one stands for, of quality
    only those with a score (see `EpisodeLog.heft`)."""
    weight = carried(log, policy)
    return effective(weight * log.heft if metric == "quality" else weight)


def unsupported(log: EpisodeLog, policy: Floats) -> float:
    """Share of the policy's own episodes that come to take an action which the log did not try there, or tried so
    seldom that what follows is not known from it (see `thin`)."""
    beyond = np.where(log.supported & ~thin(log, policy), 0.0, policy).sum(axis=1)
    return min(float((reach(log, policy) * beyond).sum() / max(len(log), 1)), 1.0)


def thin(log: EpisodeLog, policy: Floats) -> Bools:
    """(n, a) choices of the policy that too few decisions of the log can speak for.

    At each step, the policy's episodes that choose an action there are m = sum_i R_i pi_i of the log's, with R as
    `reach` says; the log has on average e = m^2 / sum_i R_i^2 pi_i^2 / b_i effective decisions of them. Where e is
    below `LEAST_FOLLOWED` and a quarter of m, a weighted mean is a few heavy decisions or, by chance, none: the
    estimate is then what the model says, and no interval knows it. It is judged by probabilities, not by what
    happened to be drawn. Choices that concern fewer than five episodes are taken together over the steps. STOP where
    its outcome is known needs no weights.
    """
    left = reach(log, policy)
    wanted = np.where(log.supported, left[:, None] * policy, 0.0)  # what was not tried is counted as such
    wanted[~np.isnan(log.stop_quality), log.stop] = 0.0
    with np.errstate(divide="ignore", invalid="ignore"):
        squares = np.where(wanted > 0, wanted**2 / log.behaviour, 0.0)
    count = len(log.action_names)
    m, q = np.zeros((len(log.at_step) + 1, count)), np.zeros((len(log.at_step) + 1, count))
    for step, now in enumerate(log.at_step):
        m[step], q[step] = wanted[now].sum(axis=0), squares[now].sum(axis=0)
    few = m < FEW
    m[-1], q[-1] = np.where(few, m, 0.0).sum(axis=0), np.where(few, q, 0.0).sum(axis=0)
    with np.errstate(divide="ignore", invalid="ignore"):
        known = np.where(q > 0, m**2 / q, 0.0)
    lacking = (m > 0) & (known < np.minimum(LEAST_FOLLOWED, m / 4))
    place = np.where(few[log.step], len(log.at_step), log.step[:, None])
    result: Bools = lacking[place, np.arange(count)] & (wanted > 0)
    return result


def _weights(log: EpisodeLog, policy: Floats) -> Floats:
    """(n,) pi(a) / b(a) of the logged actions."""
    rows = np.arange(len(log.actions))
    result: Floats = policy[rows, log.actions] / log.behaviour[rows, log.actions]
    return result


def _going_on(log: EpisodeLog, policy: Floats) -> Floats:
    """(n,) the weights, but 0 for a STOP whose outcome is known: it is counted by the policy's own chance of it."""
    return np.where(log.stops_known & (log.actions == log.stop), 0.0, _weights(log, policy))


def _stopping(log: EpisodeLog, policy: Floats) -> Floats:
    """(n,) the policy's chance of STOP where its outcome is known, else 0."""
    return np.where(log.stops_known, policy[:, log.stop], 0.0)


# -------------------------------------------------------------------------------------------------------- estimators


def doubly_robust(log: EpisodeLog, policy: Floats, model: Floats) -> Floats:
    """(k, N) the scores D_0. policy (n, a), model (k, n, a) of the policy's future outcomes, by other episodes."""
    model = with_known_stops(log, model)
    rows = np.arange(len(log.actions))
    weight = _weights(log, policy)
    expected = (policy * model).sum(axis=2)
    return backward(log, expected, model[:, rows, log.actions], lambda now, _: weight[now])


def backward(log: EpisodeLog, expected: Floats, taken: Floats, weigh: Callable[[Ints, Floats], Floats]) -> Floats:
    """(k, N) D_0 of D_t = expected_t + w_t x_t with x_t = r_t + D_(t+1) - taken_t, from the ends of the episodes on.

    expected, taken: (k, n) the model's outcome under the policy and of the logged action. weigh: rows and their x
    (k, rows) -> w.
    """
    rewards = _scored(log, taken)
    result = np.zeros((len(OUTCOMES), len(log)))
    for now in reversed(log.at_step):
        of = log.episode[now]
        beyond = rewards[:, now] + np.where(log.last[now], 0.0, result[:, of]) - taken[:, now]
        result[:, of] = expected[:, now] + weigh(now, beyond) * beyond
    return result


def per_decision(log: EpisodeLog, policy: Floats, _model: Floats | None = None) -> Floats:
    """(k, N) self-normalised per-decision importance sampling (Precup, Sutton, Singh 2000), without any model, as
    influence values around the estimate, which is their mean.

    At each step what the episodes stand for is divided by its mean; an ended episode keeps its own. Where the policy
    stops and that outcome is known, its share ends there with it. Valid with a known b; biased for few episodes.
    """
    left, go, stop = reach(log, policy), _going_on(log, policy), _stopping(log, policy)
    rewards = _scored(log, np.zeros((len(OUTCOMES), len(log.actions))))
    stop_quality = np.nan_to_num(log.stop_quality)
    if log.stops_are_labels:
        stop_quality = stop_quality * log.heft[log.episode]
    ended, going = np.zeros(len(log)), np.ones(len(log))
    result = np.zeros((len(OUTCOMES), len(log)))
    for now in log.at_step:
        of = log.episode[now]
        ended[of] += left[now] * stop[now]
        going[of] = left[now] * go[now]
        gained = np.zeros_like(result)
        gained[:, of] = going[of] * rewards[:, now]
        gained[0, of] += left[now] * stop[now] * stop_quality[now]
        weight = ended + going
        mean = float(weight.mean())
        if mean > 0:
            value = gained.mean(axis=1, keepdims=True) / mean
            result += value + (gained - value * weight) / mean
    return result


def weighted_per_decision(log: EpisodeLog, policy: Floats) -> Floats:
    """(k,) the estimate of `per_decision`."""
    result: Floats = per_decision(log, policy).mean(axis=1)
    return result


def modelled(log: EpisodeLog, policy: Floats, model: Floats) -> Floats:
    """(k, N) what the model says at the first decisions: fitted Q evaluation. Right only if the model is."""
    first = log.first
    result: Floats = (policy[first] * model[:, first]).sum(axis=2)
    return result


def _scored(log: EpisodeLog, guess: Floats) -> Floats:
    """(k, n) the rewards, that of quality with r / e (y - guess) + guess in place of y. guess: (k, n)."""
    rewards = log.rewards()
    if not np.isnan(log.quality).any():
        return rewards
    ends = np.flatnonzero(log.last)
    quality = np.where(np.isnan(log.quality), 0.0, log.quality)
    rewards[0, ends] = guess[0, ends] + log.heft * (quality - guess[0, ends])
    return rewards


Estimator = Callable[[EpisodeLog, Floats, Floats], Floats]
SEQUENTIAL_DR = "sequential DR"
ESTIMATORS: Mapping[str, Estimator] = {SEQUENTIAL_DR: doubly_robust, "PDIS": per_decision, "FQE": modelled}
_PARTED = {
    ("FQE", "PDIS"): "the outcome model or the weights are off",
    ("FQE", SEQUENTIAL_DR): "the outcome model is off",
    ("PDIS", SEQUENTIAL_DR): "few heavy weights, or probabilities that were not those used",
}


# ---------------------------------------------------------------------------------------------------------- outcomes


def value(log: EpisodeLog, policy: Floats, model: Floats, *, confidence: float) -> dict[Metric, Outcome]:
    """Mean outcomes per episode under the policy; refused as `change` is."""
    return _outcomes(log, policy, doubly_robust(log, policy, model), SEQUENTIAL_DR, confidence)


def change(
    log: EpisodeLog, policy: Floats, model: Floats, today: Floats, *, confidence: float
) -> dict[Metric, Outcome]:
    """The policy's outcomes minus today's on the same episodes, by name; refused below `MIN_EFFECTIVE` episodes.

    model, today: (k, n, a) future outcomes under the policy and under the logged behaviour, by other episodes.
    """
    return by_estimator(log, policy, model, today, confidence=confidence, names=(SEQUENTIAL_DR,))[SEQUENTIAL_DR]


def by_estimator(
    log: EpisodeLog,
    policy: Floats,
    model: Floats,
    today: Floats,
    *,
    confidence: float,
    names: tuple[str, ...] = tuple(ESTIMATORS),
) -> dict[str, dict[Metric, Outcome]]:
    """`change` by each estimator. That of fitted Q evaluation is an assumption: its interval ignores the model's
    error."""
    found = {}
    for name in names:
        scores = ESTIMATORS[name](log, policy, model) - ESTIMATORS[name](log, log.behaviour, today)
        found[name] = _outcomes(log, policy, scores, name, confidence)
    return found


def disagreement(log: EpisodeLog, policy: Floats, model: Floats) -> dict[Metric, str]:
    """Of the metrics that can be estimated, where two estimators of the policy's value part: which (see
    `ope.agreement.parted`)."""
    scores = {name: estimate(log, policy, model) for name, estimate in ESTIMATORS.items()}
    found: dict[Metric, str] = {}
    for metric in METRICS:
        of_metric = {name: one[OUTCOMES.index(metric)] for name, one in scores.items()}
        if not refusal(log, policy, metric) and (said := parted(of_metric, log.groups, _PARTED)):
            found[metric] = said
    return found


def refusal(log: EpisodeLog, policy: Floats, metric: Metric) -> str:
    """Why there is no number; "" where there is one."""
    if why := unknown(log, metric):
        return why
    if (size := effective_episodes(log, policy, metric)) < MIN_EFFECTIVE:
        return f"only {size:.0f} effective episodes; below {MIN_EFFECTIVE:.0f} no interval can be trusted"
    if (share := unsupported(log, policy)) > MAX_UNSUPPORTED:
        return f"{share:.0%} of its episodes come to take actions that were not tried there"
    return ""


def unknown(log: EpisodeLog, metric: Metric) -> str:
    """What is not known of the log's own outcomes; "" where enough is."""
    if metric == "quality":
        return f"none of {len(log)} episodes has a score" if np.isnan(log.quality).all() else ""
    parts = np.isnan(log.cost_usd if metric == "cost_usd" else log.latency_s)
    missing = len(np.unique(log.episode[parts]))
    what = "cost" if metric == "cost_usd" else "duration"
    return f"{missing} of {len(log)} episodes have no known {what}" if missing else ""


def _outcomes(
    log: EpisodeLog, policy: Floats, scores: Floats, estimator: str, confidence: float
) -> dict[Metric, Outcome]:
    """scores (k, N) in the order of `OUTCOMES`."""
    found: dict[Metric, Outcome] = {}
    for metric in METRICS:
        if why := refusal(log, policy, metric):
            found[metric] = Refused(why)
            continue
        found[metric] = mean_interval(
            scores[OUTCOMES.index(metric)],
            log.groups,
            confidence=confidence,
            estimator=estimator,
            effective=effective_episodes(log, policy, metric),
            kind=kind_of(log, policy, metric, estimator),
        )
    return found


def kind_of(log: EpisodeLog, policy: Floats, metric: Metric, estimator: str) -> Kind:
    """An estimate is an assumption where it rests on a model that no chance backs."""
    sound = estimator != "FQE" and (log.propensities_logged or policy is log.behaviour)
    if metric == "quality":
        sound = sound and float(np.mean(~np.isnan(log.quality))) >= MIN_LABEL_SHARE
    return "asymptotic" if sound else "assumption"
