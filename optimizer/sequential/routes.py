"""Routes that need no learning: what every learned policy has to beat.

As logged, always the same action, as logged until k steps, one agent alone, verified cascades, and nearest neighbours.
All but the first are models, so that what is compared can be exported; the first is approximated by one (`as_logged`).

Legend: n decisions, d features, a actions of which the last is STOP.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from optimizer.dataset import Floats, Ints
from optimizer.runtime import DIM, STEP_DENSE, Model
from optimizer.sequential.decision_trees import Tree, always, model, simplified, split
from optimizer.sequential.episodes import EpisodeLog
from optimizer.sequential.students import small_tree

STEPS, SIGNAL = (DIM + STEP_DENSE.index(name) for name in ("steps", "signal_last"))
"""Places among an orchestrator's features."""
VERIFIED = 0.999
"""A check's score above which a cascade takes the answer."""
CLONE_DEPTH, CLONE_LEAVES, LESS_ALIKE = 8, 40, 0.01
NEIGHBOURS, POINTS = 50, 1500
"""Of the nearest-neighbour route: so many are averaged, of at most so many logged decisions."""


def below(count: int) -> float:
    """The threshold between `count` - 1 and `count` of a feature that is log1p of a count."""
    return (math.log1p(count - 1) + math.log1p(count)) / 2 if count > 0 else -1.0


def as_logged(log: EpisodeLog, *, seed: int = 0) -> Tree:
    """What the logged behaviour does most at a decision, as a tree: by the step alone, by the last step, by all steps
    so far, or by the prompt too, whichever comes first that does as the log about as often as any of them."""
    d, a = log.features.shape[1], len(log.action_names)
    places = np.arange(d)
    options = [places[STEPS : STEPS + 1], places[-a:], places[DIM:], places] if d > DIM else [places]
    how: dict[str, Any] = {"seed": seed, "depth": CLONE_DEPTH, "leaves": CLONE_LEAVES}
    trees = [simplified(small_tree(log.features, log.behaviour, columns=columns, **how)) for columns in options]
    alike = np.array([_agreement(tree, log) for tree in trees])
    return trees[int((alike >= alike.max() - LESS_ALIKE).argmax())]


def _agreement(tree: Tree, log: EpisodeLog) -> float:
    """Mean probability with which the log did what the tree does."""
    does = model([tree], log.action_names).values(log.features).argmax(axis=1)
    return float(log.behaviour[np.arange(len(does)), does].mean())


def stop_after(tree: Tree, k: int, action_names: tuple[str, ...]) -> Model:
    """The tree's actions in the first k steps, STOP from then on."""
    last = len(action_names) - 1
    found = split(STEPS, below(k), tree, always(last, last + 1))
    return model([simplified(found)], action_names)


def at_step(tree: Tree, t: int, other: Tree) -> Tree:
    """`other` at step t (from 0), the tree at all other steps."""
    later = split(STEPS, below(t + 1), other, tree)
    return simplified(split(STEPS, below(t), tree, later) if t else later)


@dataclass(frozen=True)
class Cascade:
    """Agents in their order, each at most so many times; STOP as soon as a check says that the answer is right, and
    after the last one."""

    agents: tuple[int, ...]
    """Columns."""
    most: tuple[int, ...]
    """At least 1 each."""

    def label(self, action_names: Sequence[str]) -> str:
        """What it does, in a few words."""
        parts = [
            action_names[agent] if most == 1 else f"{action_names[agent]} up to {most} times"
            for agent, most in zip(self.agents, self.most, strict=True)
        ]
        return f"{', then '.join(parts)}, until a check is passed"

    def tree(self, count: int) -> Tree:
        """For `count` actions. How often each agent was taken is read from the features of counts."""
        stop = count - 1
        found = always(stop, count)
        for agent, most in reversed(list(zip(self.agents, self.most, strict=True))):
            place = DIM + len(STEP_DENSE) + agent
            found = split(place, below(most), always(agent, count), found)
        return split(SIGNAL, VERIFIED, found, always(stop, count))


def single_agents(agents: Sequence[int], most: Sequence[int] = (1, 2, 3)) -> Iterator[Cascade]:
    """One agent alone, tried again until a check is passed."""
    for agent in agents:
        for times in most:
            yield Cascade((agent,), (times,))


def cascades(agents: Sequence[int], most: Sequence[int] = (1, 2, 3)) -> Iterator[Cascade]:
    """Every ordered pair of different agents."""
    for first in agents:
        for second in agents:
            if first != second:
                for k in most:
                    for m in most:
                        yield Cascade((first, second), (k, m))


def nearest(log: EpisodeLog, outcome: Floats, *, seed: int) -> Model:
    """The best action by the mean outcome of similar logged decisions, all features alike standardised.

    outcome: (n,) what came of each decision, NaN where unknown. What the actions not taken would have given is, at each
    point, the action's mean over the log; the one taken differs from that by its own outcome, counted 1 / b times, at
    most ten.
    """
    a = len(log.action_names)
    rows = np.flatnonzero(~np.isnan(outcome))
    means = np.array(
        [outcome[rows][log.actions[rows] == k].mean() if (log.actions[rows] == k).any() else np.nan for k in range(a)]
    )
    means = np.where(np.isnan(means), np.nanmin(means) - 1.0 if len(rows) else 0.0, means)
    if not len(rows):
        return Model("constant", log.action_names, {"values": means}, 0.0)
    taken = log.behaviour[rows, log.actions[rows]]
    kept = _points(rows, taken, seed)
    weight = np.minimum(1 / log.behaviour[kept, log.actions[kept]], 10.0)
    targets = np.tile(means, (len(kept), 1))
    place = np.arange(len(kept))
    targets[place, log.actions[kept]] += weight * (outcome[kept] - means[log.actions[kept]])
    x = log.features[kept].astype(np.float64)
    mean, spread = x.mean(axis=0), x.std(axis=0)
    scale = np.where(spread > 1e-9, spread, 1.0)
    arrays = {
        "mean": mean,
        "scale": scale,
        "points": (x - mean) / scale,
        "targets": targets,
        "k": np.array(min(NEIGHBOURS, len(kept))),
    }
    return Model("knn", log.action_names, arrays, 0.0)


def _points(rows: Ints, taken: Floats, seed: int) -> Ints:
    """At most `POINTS` of the rows, those with a rare action as many as the others where there are."""
    if len(rows) <= POINTS:
        return rows
    rng = np.random.default_rng(seed)
    rare, usual = rows[taken < 0.5], rows[taken >= 0.5]
    some = min(len(rare), max(POINTS // 2, POINTS - len(usual)))
    chosen = [rng.choice(rare, some, replace=False), rng.choice(usual, POINTS - some, replace=False)]
    return np.sort(np.concatenate(chosen))
