"""Learned orchestration against every fixed route on real steps: `SAMPLE_DATA=DIR pytest -m bench -s
tests/bench/test_orchestration_replay.py`, some four minutes of one core for each setting.

Ten redraws. In each, 60 % of the groups of InterCode's SQL tasks log eight episodes a task of the incumbent, which
explores (see `intercode.script`); a policy is learned of that log alone, as the tree that a router carries. Fixed
routes (an arm for some steps or to its end, every cascade of two and of three, each ended by the environment at reward
1, as the learned policy is) are chosen by what they *truly* give on the same tasks, which no log would tell. Both are
judged by their truth on the other tasks.

The best route of all is a cascade of three arms in every redraw, and the log changes its arm once at most: of a third
arm after two others no episode tells. So the learned policy is compared with the best route of at most two arms as
well, those that the log can show, chosen by their truth too.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby

import intercode
import numpy as np
import pytest
from intercode import World

from optimizer.dataset import Floats
from optimizer.gate import Limits
from optimizer.rewards import RewardSpec
from optimizer.runtime import Model
from optimizer.sequential.candidates import candidates
from optimizer.sequential.episodes import EpisodeLog
from optimizer.sequential.study import learn, per_episode
from optimizer.truth import Truth

REDRAWS = 10
EQUAL = 0.02
"""Quality that may be lost at equal cost."""
SHOWN_ARMS = 2
"""Arms of an episode of the log."""

pytestmark = [
    pytest.mark.bench,
    pytest.mark.skipif(intercode.folder() is None, reason="SAMPLE_DATA names no data folder"),
]


@dataclass(frozen=True)
class Result:
    """One redraw. Truths are of the tasks that nothing was learned of."""

    learned: Truth
    label: str
    best: Truth
    """The route of most utility on the training tasks."""
    best_route: str
    shown: Truth
    """The same of the routes that the log can show, of `SHOWN_ARMS` arms at most."""
    equal: Truth
    """The route of most quality on the training tasks that costs no more there than what was learned."""
    equal_route: str
    value_usd: float
    changed: float
    """Share of tasks whose route is not the incumbent's."""
    commonest: float
    """Share of the commonest route, repeated steps left out."""
    seconds: float
    """CPU time of learning."""

    def utility(self, truth: Truth) -> float:
        return truth.quality - truth.cost_usd / self.value_usd

    def line(self) -> str:
        """For people."""
        return (
            f"learned {_figures(self.learned)} ({self.label}); equal cost {_figures(self.equal)} ({self.equal_route}); "
            f"best {_figures(self.best)} ({self.best_route}); utility {self.utility(self.learned):.3f} against "
            f"{self.utility(self.best):.3f}, of two arms {self.utility(self.shown):.3f}; "
            f"{self.changed:.0%} changed, commonest route {self.commonest:.0%}, "
            f"{self.seconds:.0f} s"
        )


Learner = Callable[[EpisodeLog, RewardSpec, int], tuple[str, Model]]


def furthest(log: EpisodeLog, reward: RewardSpec, seed: int) -> tuple[str, Model]:
    """What fitted Q-iteration learns in all its sweeps, as one tree."""
    found = [one for one in candidates(log, reward, seed=seed) if one.label.endswith("ahead, a tree")]
    return found[-1].label, found[-1].model


def suggested(log: EpisodeLog, reward: RewardSpec, seed: int) -> tuple[str, Model]:
    """What the study picks, which has to be certain of it as well."""
    suggestion = learn(log, Limits(), reward.value_usd, seed=seed).suggestion
    assert suggestion.model is not None, suggestion.refused
    return suggestion.label or "", suggestion.model


def redraw(world: World, seed: int, learner: Learner) -> Result:
    """Split, log, learn, and the truth of it."""
    train, test = world.split(seed)
    log = world.draw(train, 8, seed=seed)
    reward = RewardSpec.default(per_episode(log)[1])
    began = time.process_time()
    label, model = learner(log, reward, seed)
    took = time.process_time() - began
    routes = intercode.baselines(world.replay.arms)
    known = [world.of_route(route, train) for route in routes]
    dearest = world.value(model, train).cost_usd
    worth = np.array([true.quality - true.cost_usd / reward.value_usd for true in known])
    best = int(np.argmax(worth))
    shown = int(np.argmax(np.where([len(route) <= SHOWN_ARMS for route in routes], worth, -np.inf)))
    equal = int(np.argmax([true.quality if true.cost_usd <= dearest else -1.0 for true in known]))
    changed, commonest = _routes(world, model, test)
    return Result(
        world.value(model, test),
        label,
        world.of_route(routes[best], test),
        intercode.words(routes[best]),
        world.of_route(routes[shown], test),
        world.of_route(routes[equal], test),
        intercode.words(routes[equal]),
        reward.value_usd,
        changed,
        commonest,
        took,
    )


def _routes(world: World, model: Model, tasks: Sequence[str]) -> tuple[float, float]:
    found = world.routes(model, tasks)
    incumbent = world.routes(lambda x, may: np.eye(may.shape[1])[np.where(may[:, 0], 0, may.shape[1] - 1)], tasks)
    changed = np.mean([found[task] != incumbent[task] for task in tasks])
    shapes = Counter(tuple(arm for arm, _ in groupby(route)) for route in found.values())
    return float(changed), shapes.most_common(1)[0][1] / len(tasks)


def _figures(truth: Truth) -> str:
    return f"{truth.quality:.3f} at {1000 * truth.cost_usd:.2f}"


def measured(world: World, learner: Learner) -> tuple[Floats, Floats, Floats]:
    """(REDRAWS,) quality more than at equal cost, utility more than the best route's that the log can show, and than
    the best of all."""
    results = []
    for seed in range(REDRAWS):
        results.append(redraw(world, seed, learner))
        print(results[-1].line(), flush=True)
    equal = np.array([one.learned.quality - one.equal.quality for one in results])
    more = np.array([one.utility(one.learned) - one.utility(one.best) for one in results])
    shown = np.array([one.utility(one.learned) - one.utility(one.shown) for one in results])
    names = ("at equal cost", "utility beside routes of two arms", "beside all routes")
    for name, found in zip(names, (equal, shown, more), strict=True):
        print(f"{name} {found.mean():+.3f} (worst {found.min():+.3f})")
    return equal, shown, more


@pytest.mark.parametrize("rewards_shown", [False, True])
def test_what_is_learned_beats_the_best_fixed_route(rewards_shown: bool) -> None:
    print(f"\nlearned, step rewards {'shown' if rewards_shown else 'hidden'}; USD per 1,000 tasks")
    equal, shown, more = measured(World.read(intercode.FEW, rewards_shown=rewards_shown), furthest)
    assert (equal >= -EQUAL).all(), equal
    assert shown.mean() > 0, shown
    assert more.mean() > 0, more


def test_what_is_suggested_is_far_better_than_the_incumbent() -> None:
    """It need not be the best: few logs tell a route of several arms well enough to be certain of it."""
    print("\nsuggested, step rewards hidden; USD per 1,000 tasks")
    world = World.read(intercode.FEW)
    *_, more = measured(world, suggested)
    assert more.mean() > -0.1, more
