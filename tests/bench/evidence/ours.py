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

from optimizer.dataset import MIN_PROPENSITY, Floats, LoggedDataset
from optimizer.evidence import Evaluation, Metric
from optimizer.gate import Estimate
from optimizer.ope import estimators
from optimizer.ope.certificate import certified_change, plan_bets
from optimizer.ope.estimators import Evidence, doubly_robust, effective, today, weights
from optimizer.ope.intervals import mean_interval
from optimizer.ope.models import fit_predict, predict_labelled, predict_outcomes
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


def evidence(scene: Scene, log: Log, model: Floats) -> Evidence:
    """What the log says, with its propensities and label chances estimated where they are not told. model (n, a)."""
    features, a = scene.world.features[log.contexts], scene.outcome.shape[1]
    behaviour = log.behaviour
    if behaviour is None:
        behaviour = estimate_behaviour(features, log.actions, log.groups, a, seed=0).probabilities
    known = labelled(log).astype(np.int64)
    if log.judge is not None:
        features = np.column_stack([features, log.judge])
    chance = predict_labelled(features, log.actions, known, log.groups, a, seed=0)
    return Evidence(log.outcome, chance, log.actions, behaviour, model, log.groups)


def crossed(scene: Scene, log: Log) -> Evidence:
    """The evidence of a log by heads cross-fitted in it."""
    features, a = scene.world.features[log.contexts], scene.outcome.shape[1]
    model = predict_outcomes(features, log.actions, log.outcome, log.groups, a, seed=0)
    return evidence(scene, log, model)


def points(found: Evidence, policy: Floats) -> Found:
    """The policy's value by every estimator there is, with the asymptotic interval of each."""
    size = effective(weights(found, policy))
    result: Found = {}
    for name, estimator in estimators.ESTIMATORS.items():
        interval = mean_interval(
            estimator(found, policy), found.groups, confidence=CONFIDENCE, estimator=name, effective=size
        )
        result[name] = (interval.value, interval.low, interval.high)
    result["value"] = (_value(found, policy), float("nan"), float("nan"))
    return result


def _value(found: Evidence, policy: Floats) -> float:
    """The point that retroute stands for: its blend of estimators, or, where there is none, the shrunk one."""
    try:
        from optimizer.ope.blend import blend
    except ImportError:
        direct = estimators.direct(found, policy)
        correction = doubly_robust(found, policy) - direct
        mean, error = float(correction.mean()), float(correction.std()) / np.sqrt(len(correction))
        return float(direct.mean()) + (max(0.0, 1 - error**2 / mean**2) * mean if mean else 0.0)
    return float(blend(found, policy).value)


def change(found: Evidence, policy: Floats) -> tuple[float, float, float]:
    """The asymptotic interval of the policy's change."""
    scores = doubly_robust(found, policy) - today(found)
    size = effective(weights(found, policy))
    interval = mean_interval(scores, found.groups, confidence=CONFIDENCE, estimator="DR", effective=size)
    return interval.value, interval.low, interval.high


def certificate(
    found: Evidence, policy: Floats, between: Evidence, between_policy: Floats, metric: Metric
) -> tuple[float, float, float]:
    """The certified interval of the policy's change; NaN where the evaluation refuses it."""
    value = float((doubly_robust(found, policy) - today(found)).mean())
    if metric == "quality":
        bets = plan_bets(between, between_policy, confidence=CONFIDENCE)
        return (value, *certified_change(found, policy, bets, confidence=CONFIDENCE))
    outcome = evaluation(found, metric).certified_change(metric, policy, evaluation(between, metric), between_policy)
    if not isinstance(outcome, Estimate):
        return (value, float("nan"), float("nan"))
    return value, outcome.low, outcome.high


def evaluation(found: Evidence, metric: Metric) -> Evaluation:
    """The evidence as the product judges it, of this metric alone."""
    n = len(found.actions)
    blank = np.zeros(n)
    data = LoggedDataset(
        features=np.zeros((n, 1)),
        actions=found.actions,
        quality=found.outcome if metric == "quality" else blank,
        cost_usd=found.outcome if metric == "cost_usd" else blank,
        latency_s=blank,
        behaviour=found.behaviour,
        groups=found.groups,
        time_ns=np.arange(n),
        action_names=tuple(str(number) for number in range(found.behaviour.shape[1])),
        propensities_logged=True,
    )
    return Evaluation(data, {metric: found, "cost_usd": found}, CONFIDENCE)


def issued(found: Evidence, policy: Floats, metric: Metric) -> bool:
    """Whether the product would give a number at all."""
    return isinstance(evaluation(found, metric).change(metric, policy), Estimate)


def tried(found: Evidence, policy: Floats) -> float:
    """Share of the policy's decisions on actions that the log tried there."""
    return float(np.where(found.behaviour >= MIN_PROPENSITY, policy, 0.0).sum(axis=1).mean())


def processor_seconds() -> float:
    return time.process_time()
