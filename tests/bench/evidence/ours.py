"""retroute's own functions on a log: outcome heads, point estimates, both intervals.

Two designs, both as the product does it:

held     heads of earlier decisions, shared by a few logs; bets planned on decisions between; n decisions judged. An
         interval's promise is about any head that did not see the judged rows, so sharing heads costs no validity.
crossed  heads cross-fitted within the n decisions, as peers do it
"""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np

from optimizer.dataset import Floats, LoggedDataset
from optimizer.evidence import Evaluation, Metric, cross_fitted, held_out
from optimizer.gate import Estimate
from optimizer.ope import estimators
from optimizer.ope.blend import blend
from optimizer.ope.bounds import smoothed_change, smoothed_value
from optimizer.ope.certificate import certified_change, plan_bets
from optimizer.ope.estimators import Evidence, doubly_robust, effective, today, weights
from optimizer.ope.intervals import mean_interval
from optimizer.ope.models import fit_predict
from optimizer.propensity import estimate_behaviour

from .regimes import Log, Scene, labelled
from .worlds import World

CONFIDENCE = 0.95
TEACHING = 5_000
"""Most earlier decisions that heads learn from in the held design; their promise does not depend on it."""
LEARNED_FROM = 3_000
BETTING = 5_000
"""Most decisions between, by which bets are planned."""
PRICE = 0.1
"""A target policy gives up this much quality for the whole of the mean cost."""

Found = dict[str, tuple[float, float, float]]
"""Name of an estimate -> value, low, high; NaN bounds where it comes without."""


@dataclass(frozen=True)
class Targets:
    """Policies to evaluate, fixed before any log is drawn: (N, a) each."""

    policies: dict[str, Floats]


def targets(world: World) -> Targets:
    """learned: the best action by heads of 3,000 evenly drawn decisions; smoothed: four fifths of that and a fifth
    even; cheapest: always the cheapest action."""
    rng = np.random.default_rng(4)
    a = world.quality.shape[1]
    rows, actions = rng.integers(0, len(world), LEARNED_FROM), rng.integers(0, a, LEARNED_FROM)
    mean = world.quality[rows, actions]
    outcome = (rng.random(LEARNED_FROM) < mean) * 1.0 if world.chance else mean
    guess = fit_predict(world.features[rows], actions, outcome, world.features, a, seed=0)
    utility = guess - PRICE * world.cost_usd.mean(axis=0) / world.cost_usd.mean()
    learned = np.eye(a)[utility.argmax(axis=1)]
    cheapest = np.tile(np.eye(a)[int(world.cost_usd.mean(axis=0).argmin())], (len(world), 1))
    return Targets({"learned": learned, "smoothed": 0.8 * learned + 0.2 / a, "cheapest": cheapest})


def heads(scene: Scene, n: int, rng: np.random.Generator) -> Floats:
    """(N, a) predictions for the whole population by heads of an earlier log."""
    size = min(n, TEACHING)
    earlier = scene.draw(size, rng)
    known = labelled(earlier)
    features = scene.world.features
    return fit_predict(
        features[earlier.contexts[known]],
        earlier.actions[known],
        earlier.outcome[known],
        features,
        scene.outcome.shape[1],
        seed=0,
    )


def dataset(scene: Scene, log: Log) -> LoggedDataset:
    """The log as the product holds it, with propensities estimated where they are not told."""
    world, metric = scene.world, scene.regime.metric
    features, a, n = world.features[log.contexts], scene.outcome.shape[1], len(log.actions)
    behaviour, blank = log.behaviour, np.zeros(n)
    if behaviour is None:
        behaviour = estimate_behaviour(features, log.actions, log.groups, a, seed=0).probabilities
    return LoggedDataset(
        features=features,
        actions=log.actions,
        quality=log.outcome if metric == "quality" else blank,
        cost_usd=log.outcome if metric == "cost_usd" else blank,
        latency_s=blank,
        behaviour=behaviour,
        groups=log.groups,
        time_ns=np.arange(n),
        action_names=world.names,
        propensities_logged=log.behaviour is not None,
        judge=blank[:0] if log.judge is None else log.judge,
    )


def by_heads(scene: Scene, log: Log, model: Floats) -> Evaluation:
    """The log judged by heads at hand. model (N, a). Only for logs that tell propensities and outcomes of all rows."""
    data, metric = dataset(scene, log), scene.regime.metric
    known = np.ones(len(data))
    outcome = data.quality if metric == "quality" else data.cost_usd
    found = Evidence(outcome, known, data.actions, data.behaviour, model[log.contexts], data.groups)
    return Evaluation(data, {metric: found, "cost_usd": found}, CONFIDENCE)


def held(scene: Scene, earlier: Log, log: Log) -> Evaluation:
    """The log judged by heads fitted on an earlier one, label chances and surrogates as the product finds them."""
    both = Log(
        contexts=np.concatenate([earlier.contexts, log.contexts]),
        actions=np.concatenate([earlier.actions, log.actions]),
        outcome=np.concatenate([earlier.outcome, log.outcome]),
        behaviour=None
        if earlier.behaviour is None or log.behaviour is None
        else np.concatenate([earlier.behaviour, log.behaviour]),
        judge=None if earlier.judge is None or log.judge is None else np.concatenate([earlier.judge, log.judge]),
        groups=np.concatenate([earlier.groups, log.groups + 1 + earlier.groups.max()]),
    )
    first, last = np.split(np.arange(len(both.actions)), [len(earlier.actions)])
    return held_out(dataset(scene, both), first, last, confidence=CONFIDENCE, seed=0)


def crossed(scene: Scene, log: Log) -> Evaluation:
    """The log judged by heads cross-fitted in it."""
    return cross_fitted(dataset(scene, log), confidence=CONFIDENCE, seed=0)


def points(found: Evidence, policy: Floats) -> Found:
    """The policy's value by every estimator, with the asymptotic interval of each, and by the blend that the product
    shows as its point ("value")."""
    size = effective(weights(found, policy))
    result: Found = {}
    for name, estimator in estimators.ESTIMATORS.items():
        interval = mean_interval(
            estimator(found, policy), found.groups, confidence=CONFIDENCE, estimator=name, effective=size
        )
        result[name] = (interval.value, interval.low, interval.high)
    result["value"] = (blend(found, policy).value, float("nan"), float("nan"))
    return result


def change(found: Evidence, policy: Floats) -> tuple[float, float, float]:
    """The asymptotic interval of the policy's change."""
    scores = doubly_robust(found, policy) - today(found)
    size = effective(weights(found, policy))
    interval = mean_interval(scores, found.groups, confidence=CONFIDENCE, estimator="DR", effective=size)
    return interval.value, interval.low, interval.high


def certificate(
    found: Evaluation, policy: Floats, between: Evaluation, between_policy: Floats, metric: Metric
) -> tuple[float, float, float]:
    """The certified interval of the policy's change. For quality also where the product would rather show none, since
    its promise is without conditions on overlap; NaN where a cost is beyond the range that was seen."""
    one, before = found.outcomes[metric], between.outcomes[metric]
    value = float((doubly_robust(one, policy) - today(one)).mean())
    if metric == "quality":
        bets = plan_bets(before, between_policy, confidence=CONFIDENCE)
        return (value, *certified_change(one, policy, bets, confidence=CONFIDENCE))
    outcome = found.certified_change(metric, policy, between, between_policy)
    if not isinstance(outcome, Estimate):
        return (value, float("nan"), float("nan"))
    return value, outcome.low, outcome.high


def smoothed(found: Evaluation, policy: Floats, *, change: bool) -> tuple[float, float, float]:
    """Bounds of the policy's value, or of its change, by logarithmic smoothing; no point."""
    bound = smoothed_change if change else smoothed_value
    return (float("nan"), *bound(found.outcomes["quality"], policy, confidence=CONFIDENCE))


def processor_seconds() -> float:
    return time.process_time()
