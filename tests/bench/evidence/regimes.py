"""Regimes: how a log of a world comes about, and what of it is told.

Legend: n decisions, N contexts, a actions. Contexts are drawn with replacement, so decisions (or sessions) are
independent, and the estimand of every interval is a mean over the world's population:

    value     sum_a pi(a) outcome(a), averaged over the population
    change    that of the policy minus that of the behaviour which wrote the log (with drift, of both halves' mean)

not the mean of the contexts that happened to be drawn.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from optimizer.dataset import Bools, Floats, Ints

from .worlds import World

Labels = Literal["all", "random", "judge", "unlogged"]
HEAVY_SPREAD, HEAVY_CAP = 1.2, 30.0
"""A heavy cost is its mean times a lognormal of this spread, cut at this multiple as a limit of tokens would."""
TILT = 0.17
"""Half of the logarithm by which the hidden cause moves the odds between the dear and the cheap half of the actions."""


@dataclass(frozen=True)
class Regime:
    """What holds in a log."""

    name: str
    told: bool = True
    """Propensities are logged."""
    confounded: bool = False
    labels: Labels = "all"
    drift: bool = False
    heavy: bool = False
    retries: bool = False
    rule: float | None = None
    """Share of exploration around a fixed rule; None: a soft choice."""
    incumbent: bool = False
    """The strongest model answers seven in ten, the others are explored evenly."""

    @property
    def metric(self) -> Literal["quality", "cost_usd"]:
        return "cost_usd" if self.heavy else "quality"

    @property
    def certifiable(self) -> bool:
        """The certificate's conditions hold."""
        return self.told and self.labels == "all"

    @property
    def answerable(self) -> bool:
        """What is logged suffices, in principle, for an estimate without bias."""
        return not self.confounded and self.labels != "unlogged"


REGIMES = {
    regime.name: regime
    for regime in (
        Regime("soft"),
        Regime("eps10", rule=0.10),
        Regime("eps02", rule=0.02),
        Regime("incumbent", incumbent=True),
        Regime("drift", drift=True),
        Regime("heavy", heavy=True),
        Regime("retries", retries=True),
        Regime("hidden", told=False),
        Regime("confounded", told=False, confounded=True),
        Regime("labels10", labels="random"),
        Regime("labels10judge", labels="judge"),
        Regime("labels10unlogged", labels="unlogged"),
    )
}


@dataclass(frozen=True, eq=False)
class Log:
    """n decisions as they were made, with what an honest logger writes down."""

    contexts: Ints
    """(n,) row of the world."""
    actions: Ints
    """(n,)"""
    outcome: Floats
    """(n,) of the regime's metric; NaN where unlabelled."""
    behaviour: Floats | None
    """(n, a) as logged; None where it is not."""
    judge: Floats | None
    """(n,) a cheap score of every answer, where it is logged."""
    groups: Ints
    """(n,) session."""


@dataclass(frozen=True, eq=False)
class Scene:
    """A world under a regime."""

    world: World
    regime: Regime
    behaviours: tuple[Floats, ...]
    """(N, a) what chose; one after the other, equally long."""
    outcome: Floats
    """(N, a) mean of the regime's metric."""

    def value(self, policy: Floats) -> float:
        """Mean outcome of a policy (N, a)."""
        return float((policy * self.outcome).sum(axis=1).mean())

    @property
    def today(self) -> float:
        return float(np.mean([self.value(behaviour) for behaviour in self.behaviours]))

    def draw(self, n: int, rng: np.random.Generator) -> Log:
        """A log of n decisions."""
        world, regime = self.world, self.regime
        groups = np.arange(n)
        if regime.retries:
            groups = np.repeat(np.arange(n), rng.integers(1, 5, n))[:n]
        contexts = rng.integers(0, len(world), n)[groups]
        behaviour = np.concatenate(
            [one[part] for one, part in zip(self.behaviours, _parts(contexts, self.behaviours), strict=True)]
        )
        actions = (rng.random(n)[:, None] > np.cumsum(behaviour, axis=1)[:, :-1]).sum(axis=1)
        luck = rng.random((2, n))[:, groups]
        outcome = self._outcome(contexts, actions, luck, rng)
        judge = None
        if regime.labels != "all":
            score = np.clip(0.7 * outcome + 0.15 + 0.12 * rng.normal(size=n), 0, 1)
            outcome = np.where(rng.random(n) < self._labelled(contexts, actions, score), outcome, np.nan)
            judge = score if regime.labels == "judge" else None
        return Log(contexts, actions, outcome, behaviour if regime.told else None, judge, groups)

    def _outcome(self, contexts: Ints, actions: Ints, luck: Floats, rng: np.random.Generator) -> Floats:
        world, regime = self.world, self.regime
        if regime.heavy:
            tail = np.exp(HEAVY_SPREAD * rng.normal(size=len(actions)) - HEAVY_SPREAD**2 / 2)
            return _in_means(world)[contexts, actions] * np.minimum(tail, HEAVY_CAP)
        outcome = _realised(world, contexts, actions, luck[0])
        if regime.retries:
            again = _realised(world, contexts, np.full(len(actions), _strongest(world)), luck[1])
            return np.where(outcome < 0.5, np.maximum(outcome, again), outcome)
        return outcome

    def _labelled(self, contexts: Ints, actions: Ints, score: Floats) -> Floats:
        """(n,) probability of a label, 5 % to 15 %: by features and action, or by the judge's score."""
        if self.regime.labels == "random":
            dear = actions >= self.world.quality.shape[1] / 2
            return np.where(dear, 0.12, 0.08) + 0.03 * np.tanh(self.world.features[contexts, 0])
        return 0.15 - 0.10 * score


def scene(world: World, name: str) -> Scene:
    """The world under the regime of this name."""
    regime = REGIMES[name]
    a = world.quality.shape[1]
    rng = np.random.default_rng(77)
    scores = [_score(world, rng) for _ in range(2)]
    if regime.incumbent:
        shares = 0.7 * np.eye(a)[_strongest(world)] + 0.3 / a
        behaviours = (np.tile(shares, (len(world), 1)),)
    elif regime.rule is not None:
        best = scores[0].argmax(axis=1)
        behaviours = ((1 - regime.rule) * np.eye(a)[best] + regime.rule / a,)
    else:
        soft = [np.exp(score) / np.exp(score).sum(axis=1, keepdims=True) for score in scores]
        behaviours = tuple(0.8 * one + 0.2 / a for one in (soft if regime.drift else soft[:1]))
    if regime.confounded:
        behaviours = (tilted(behaviours[0], world.hidden),)
    return Scene(world, regime, behaviours, _mean_outcome(world, regime))


def tilted(behaviour: Floats, hidden: Ints) -> Floats:
    """(N, a) the behaviour with the odds of the dearer half of the actions moved by the hidden cause."""
    a = behaviour.shape[1]
    dear = np.where(np.arange(a) >= a / 2, 1.0, -1.0)
    moved = behaviour * np.exp(TILT * (2 * hidden[:, None] - 1) * dear)
    return np.asarray(moved / moved.sum(axis=1, keepdims=True))


def gamma(behaviour: Floats) -> float:
    """The largest factor by which the hidden cause can move the odds of an action from their mean given the features:
    bounded by the ratio between both values of the cause."""
    up, down = (tilted(behaviour, np.full(len(behaviour), side)) for side in (1, 0))
    ratio = up / (1 - up) * (1 - down) / down
    return float(np.maximum(ratio, 1 / ratio).max())


def _score(world: World, rng: np.random.Generator) -> Floats:
    """(N, a) what a homely logger goes by: a few features, and a liking for some actions."""
    features = (world.features - world.features.mean(axis=0)) / np.maximum(world.features.std(axis=0), 1e-9)
    d, a = features.shape[1], world.quality.shape[1]
    raw = features @ rng.normal(size=(d, a)) / np.sqrt(d) + 0.7 * rng.normal(size=a)
    return np.asarray(1.2 * raw)


def _parts(contexts: Ints, behaviours: tuple[Floats, ...]) -> list[Ints]:
    return np.array_split(contexts, len(behaviours))


def _realised(world: World, contexts: Ints, actions: Ints, luck: Floats) -> Floats:
    mean = world.quality[contexts, actions]
    return (luck < mean) * 1.0 if world.chance else mean


def _strongest(world: World) -> int:
    return int(world.quality.mean(axis=0).argmax())


def _mean_outcome(world: World, regime: Regime) -> Floats:
    quality = world.quality
    if regime.heavy:
        return _in_means(world) * _mean_of_cut_lognormal(HEAVY_SPREAD, HEAVY_CAP)
    if not regime.retries:
        return quality
    again = quality[:, [_strongest(world)]]
    if world.chance:
        return quality + (1 - quality) * again
    return np.where(quality < 0.5, np.maximum(quality, again), quality)


def _in_means(world: World) -> Floats:
    """(N, a) cost in units of the mean over contexts and actions, so that errors compare between worlds."""
    return np.asarray(world.cost_usd / world.cost_usd.mean())


def _mean_of_cut_lognormal(spread: float, cap: float) -> float:
    """E min(L, cap) of a lognormal L with mean 1."""
    from scipy.stats import norm

    place = np.log(cap) / spread
    return float(norm.cdf(place - spread / 2) + cap * norm.sf(place + spread / 2))


def labelled(log: Log) -> Bools:
    """(n,) whether the outcome is known."""
    return ~np.isnan(log.outcome)
