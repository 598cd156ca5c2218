"""A policy as a few fixed rules with fixed weights, for routers that cannot run it, and what that costs.

The conditions are those of the tree that puts the policy into words (see `rules`). Inside a rule the weights are the
policy's mean probabilities on the decisions that the tree was grown on, exploration included, in thousandths. What a
rule gives up is measured on the certifying decisions, by the evaluation that judged the policy: the doubly robust
difference of both on the same decisions.

Legend: n decisions, a actions of the log.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from optimizer.dataset import Bools, Floats, LoggedDataset
from optimizer.evidence import METRICS, Evaluation, Metric, Outcome
from optimizer.mixtures import unmixed
from optimizer.policy import Learned
from optimizer.rules import MOST_ROWS, Path, covers, in_words, leaves, merged
from optimizer.runtime import DENSE, Model

UNITS = 1000
"""Weights are whole numbers that sum to this, so that every router holds the same ones."""
DEFAULT = "default"
_AS_THEY_ARE = ("json_response", "uppercase_share", "non_ascii_share", "unique_word_share")
"""Features that are no logarithm of a count."""


@dataclass(frozen=True)
class Condition:
    """number > above, and number <= at_most, of a feature as a caller counts it (no logarithm)."""

    feature: str
    above: float | None = None
    at_most: float | None = None


@dataclass(frozen=True)
class StaticRule:
    """Where all conditions hold, the actions are drawn by these weights."""

    id: str
    conditions: tuple[Condition, ...]
    words: str
    share: float
    """Of the decisions that the rules were made from."""
    weights: Mapping[str, int]
    """Action -> thousandths; sum to `UNITS`, none is 0."""

    @property
    def best(self) -> str:
        """The action of the largest weight; the first of equals."""
        return max(self.weights, key=lambda action: self.weights[action])


@dataclass(frozen=True, eq=False)
class StaticRouting:
    """Rules of which exactly one covers a decision, and one for those of which nothing is known."""

    actions: tuple[str, ...]
    rules: tuple[StaticRule, ...]
    """Empty where the policy does the same whatever the request."""
    default: StaticRule
    """Blind to the request."""

    @property
    def features(self) -> tuple[str, ...]:
        """Those that a caller has to count, in the order of the rules."""
        return tuple(dict.fromkeys(one.feature for rule in self.rules for one in rule.conditions))

    def probabilities(self, features: Floats, names: tuple[str, ...]) -> Floats:
        """(n, a) by the rules, for callers that send what they need."""
        if not self.rules:
            return self.blind(features, names)
        result = np.zeros((len(features), len(names)))
        for rule in self.rules:
            result[holds(rule.conditions, features)] = _row(rule.weights, names)
        return result

    def blind(self, features: Floats, names: tuple[str, ...]) -> Floats:
        """(n, a) by the default alone."""
        return np.tile(_row(self.default.weights, names), (len(features), 1))

    def certain(self, features: Floats, names: tuple[str, ...]) -> Floats:
        """(n, a) by the heaviest action of each rule, for routers that draw nothing."""
        result = np.tile(_row({self.default.best: UNITS}, names), (len(features), 1))
        for rule in self.rules:
            result[holds(rule.conditions, features)] = _row({rule.best: UNITS}, names)
        return result


def distilled(known: LoggedDataset, model: Model) -> StaticRouting:
    """The rules that imitate the model on the newest of the `known` decisions. ValueError if there are none."""
    if not len(known):
        raise ValueError("no decisions to make rules from")
    newest = known.take(np.argsort(known.time_ns, kind="stable")[-MOST_ROWS:])
    names = known.action_names
    does = Learned(model, names).probabilities(newest.features, newest.behaviour)
    greedy = Learned(unmixed(model), names).probabilities(newest.features, newest.behaviour)
    found = merged(leaves(newest.features[:, : len(DENSE)], greedy.argmax(axis=1)))
    columns = [names.index(action) for action in model.actions]

    def rule(name: str, path: Path, rows: Bools) -> StaticRule:
        mean = does[rows][:, columns].mean(axis=0)
        words = " and ".join(in_words(path)) or "always"
        return StaticRule(name, conditions(path), words, float(rows.mean()), _thousandths(mean, model.actions))

    everything = np.ones(len(newest), dtype=np.bool_)
    covered = [(path, covers(path, newest.features)) for path, _ in found]
    kept = [(path, rows) for path, rows in covered if rows.any()] if len(covered) > 1 else []
    rules = tuple(rule(f"rule-{number}", path, rows) for number, (path, rows) in enumerate(kept, start=1))
    return StaticRouting(model.actions, rules, rule(DEFAULT, (), everything))


def losses(
    evaluation: Evaluation, model: Model, routing: Callable[[Floats, tuple[str, ...]], Floats]
) -> dict[Metric, Outcome]:
    """What a static routing changes per decision against the policy itself."""
    data = evaluation.data
    full = Learned(model, data.action_names).probabilities(data.features, data.behaviour)
    static = routing(data.features, data.action_names)
    return {metric: evaluation.difference(metric, static, full) for metric in METRICS}


def conditions(path: Path) -> tuple[Condition, ...]:
    """A tree's path in numbers that a caller can count, one condition for each feature."""
    found: dict[str, Condition] = {}
    for bound in path:
        name = DENSE[bound.place]
        at, had = _counted(name, bound.at), found.get(name, Condition(name))
        if bound.above:
            found[name] = Condition(name, at if had.above is None else max(at, had.above), had.at_most)
        else:
            found[name] = Condition(name, had.above, at if had.at_most is None else min(at, had.at_most))
    return tuple(found.values())


def holds(found: Sequence[Condition], features: NDArray[np.floating[Any]]) -> Bools:
    """(n,) whether all conditions hold."""
    inside: Bools = np.ones(len(features), dtype=np.bool_)
    for one in found:
        values = features[:, DENSE.index(one.feature)].astype(np.float64)
        numbers = values if one.feature in _AS_THEY_ARE else np.expm1(values)
        inside &= (one.above is None or numbers > one.above) & (one.at_most is None or numbers <= one.at_most)
    return inside


def counted(name: str, feature: float) -> float:
    """What a caller would have counted where the feature has this value."""
    return float(feature) if name in _AS_THEY_ARE else math.expm1(float(feature))


def _counted(name: str, at: float) -> float:
    return round(counted(name, at), 6)


def _row(weights: Mapping[str, int], names: tuple[str, ...]) -> Floats:
    return np.array([weights.get(name, 0) / UNITS for name in names])


def _thousandths(shares: Floats, actions: tuple[str, ...]) -> dict[str, int]:
    """Shares as whole thousandths that sum to `UNITS`, by the largest remainders."""
    exact = np.asarray(shares, dtype=np.float64) / float(np.sum(shares)) * UNITS
    whole = np.floor(exact).astype(int)
    for place in np.argsort(whole - exact, kind="stable")[: UNITS - int(whole.sum())]:
        whole[place] += 1
    return {action: int(weight) for action, weight in zip(actions, whole, strict=True) if weight}
