"""Neural learners of orchestration, for logs of more than a million decisions or on request.

Both return the policy's probabilities, which `students` turn into a model that a router carries. One thread, seeded:
the same log gives the same policy.

Legend: n decisions, m new ones, d features, a actions.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from optimizer.dataset import Bools, Floats, Ints
from optimizer.ope.torch_heads import one_torch_thread
from optimizer.sequential.episodes import EpisodeLog
from optimizer.sequential.fitted_q import Reward, returns, utility

if TYPE_CHECKING:
    import torch

MOST_ROWS = 1_000_000
"""Decisions up to which trees learn as well, in less time."""
WIDTH = 64
BATCH = 1024
LEARNING_RATE = 3e-3
MOST_WEIGHT = 20.0


@dataclass(frozen=True)
class Settings:
    """Of both learners."""

    steps: int = 1500
    """Batches that each network sees."""
    expectile: float = 0.8
    """Of IQL: 0.5 is the mean over what the log did, towards 1 its best."""
    temperature: float = 10.0
    """Of IQL's extraction: how much a better action is preferred, in standard deviations of the advantage."""
    closeness: float = 0.05
    """Of the policy gradient: utility that one nat of distance from the logged behaviour costs at a decision."""


@dataclass(frozen=True, eq=False)
class NeuralPolicy:
    """Probabilities of all actions, by one network."""

    mean: Floats
    scale: Floats
    weights: tuple[torch.Tensor, ...]

    def probabilities(self, features: Floats, supported: Bools) -> Floats:
        """(m, d), (m, a) -> (m, a): none for what is not supported, unless nothing is."""
        import torch

        with one_torch_thread(), torch.no_grad():
            scores = _forward(self.weights, _inputs(features, self.mean, self.scale)).numpy().astype(np.float64)
        scores = np.where(supported | ~supported.any(axis=1, keepdims=True), scores, -np.inf)
        shares = np.exp(scores - scores.max(axis=1, keepdims=True))
        result: Floats = shares / shares.sum(axis=1, keepdims=True)
        return result


def implicit_q(log: EpisodeLog, reward: Reward, *, seed: int, settings: Settings | None = None) -> NeuralPolicy:
    """Implicit Q-learning (Kostrikov, Nair, Levine 2022, arXiv 2110.06169) with discrete actions, and as the policy
    advantage-weighted regression (Peng et al. 2019, arXiv 1910.00177): it never asks what an action that was not logged
    would give.

    V is an expectile of Q(s, a) over logged actions, Q(s, a) the mean of r + V(s'); both are improved together. The
    policy imitates each logged action as much as exp(temperature * advantage) says, at most `MOST_WEIGHT` times, and as
    if every action had been as likely (1 / b).
    """
    import torch

    how = settings or Settings()
    data = _Data.of(log, utility(log, reward), seed)
    with one_torch_thread():
        d, a = data.x.shape[1], len(log.action_names)
        q, v, target = (_network(d, size, data.chance) for size in (a, 1, 1))
        slow = [one.detach().clone() for one in target]

        def loss(rows: torch.Tensor) -> torch.Tensor:
            x, taken = data.x[rows], data.taken[rows]
            found = _forward(q, x).gather(1, taken[:, None])[:, 0]
            with torch.no_grad():
                ahead = torch.where(data.last[rows], 0.0, _forward(slow, data.x[data.following[rows]])[:, 0])
            behind = found.detach() - _forward(v, x)[:, 0]
            pull = torch.where(behind > 0, how.expectile, 1 - how.expectile)
            for old, new in zip(slow, v, strict=True):
                old.lerp_(new.detach(), 0.01)
            weight = data.weight[rows]
            return (weight * ((found - data.rewards[rows] - ahead) ** 2 + pull * behind**2)).mean()

        _trained([*q, *v], loss, data, how.steps)
        with torch.no_grad():
            behind = _forward(q, data.x).gather(1, data.taken[:, None])[:, 0] - _forward(v, data.x)[:, 0]
        eager = (how.temperature * behind / behind.std().clamp(min=1e-6)).exp().clamp(max=MOST_WEIGHT)
        policy = _network(d, a, data.chance)

        def imitate(rows: torch.Tensor) -> torch.Tensor:
            likely = torch.log_softmax(_forward(policy, data.x[rows]), dim=1).gather(1, data.taken[rows][:, None])[:, 0]
            return -(data.weight[rows] * eager[rows] * likely).mean()

        _trained(policy, imitate, data, how.steps)
    return NeuralPolicy(data.mean, data.scale, tuple(one.detach() for one in policy))


def policy_gradient(
    log: EpisodeLog, reward: Reward, values: Floats, *, seed: int, settings: Settings | None = None
) -> NeuralPolicy:
    """The Puppeteer paper's learner (REINFORCE: Williams 1992) made offline: it climbs the doubly robust estimate of
    changing one decision, and pays for the distance from the logged behaviour.

        maximise  mean over decisions of  sum_a pi(a | s) A(s, a)  -  closeness KL(pi || b),
        A(s, a) = Q(s, a) - V(s) + 1{a taken} min(1 / b(a), most) (G - Q(s, a))

    G is what came from there on. values: (n, a) a model Q of that, as of `fitted_q`. All actions of a decision count,
    so that nothing is drawn and the gradient has no noise of its own. Actions without support are not taken.
    """
    import torch

    how = settings or Settings()
    data = _Data.of(log, utility(log, reward), seed)
    rows = np.arange(len(log.actions))
    came = returns(log, utility(log, reward))
    robust = values.copy()
    own = values[rows, log.actions]
    weight = np.minimum(1 / log.behaviour[rows, log.actions], MOST_WEIGHT)
    robust[rows, log.actions] += np.where(np.isnan(came), 0.0, weight * (came - own))
    advantage = np.nan_to_num(robust - (log.behaviour * values).sum(axis=1, keepdims=True))
    with one_torch_thread():
        gains = torch.from_numpy(advantage.astype(np.float32))
        before = torch.from_numpy(np.log(np.maximum(log.behaviour, 1e-3)).astype(np.float32))
        barred = torch.from_numpy(~log.supported & log.supported.any(axis=1, keepdims=True))
        policy = _network(data.x.shape[1], len(log.action_names), data.chance)

        def loss(some: torch.Tensor) -> torch.Tensor:
            scores = _forward(policy, data.x[some]).masked_fill(barred[some], -30.0)
            likely = torch.log_softmax(scores, dim=1)
            away = likely.exp() * (likely - before[some])
            return -(likely.exp() * gains[some] - how.closeness * away).sum(dim=1).mean()

        _trained(policy, loss, data, how.steps)
    return NeuralPolicy(data.mean, data.scale, tuple(one.detach() for one in policy))


@dataclass(frozen=True, eq=False)
class _Data:
    """A log as tensors."""

    mean: Floats
    scale: Floats
    x: torch.Tensor
    taken: torch.Tensor
    rewards: torch.Tensor
    following: torch.Tensor
    last: torch.Tensor
    weight: torch.Tensor
    """(n,) 1 / b, at most `MOST_WEIGHT`; 0 where the reward is unknown."""
    chance: torch.Generator

    @classmethod
    def of(cls, log: EpisodeLog, rewards: Floats, seed: int) -> _Data:
        import torch

        rows: Ints = np.arange(len(log.actions))
        spread = log.features.std(axis=0)
        mean, scale = log.features.mean(axis=0), np.where(spread > 1e-9, spread, 1.0)
        weight = np.minimum(1 / log.behaviour[rows, log.actions], MOST_WEIGHT)
        return cls(
            mean,
            scale,
            _inputs(log.features, mean, scale),
            torch.from_numpy(log.actions.astype(np.int64)),
            torch.from_numpy(np.nan_to_num(rewards).astype(np.float32)),
            torch.from_numpy(np.where(log.last, 0, rows + 1)),
            torch.from_numpy(log.last),
            torch.from_numpy(np.where(np.isnan(rewards), 0.0, weight / weight.mean()).astype(np.float32)),
            torch.Generator().manual_seed(seed),
        )


def _trained(
    weights: Sequence[torch.Tensor], loss: Callable[[torch.Tensor], torch.Tensor], data: _Data, steps: int
) -> None:
    import torch

    optimiser = torch.optim.AdamW(list(weights), lr=LEARNING_RATE, weight_decay=1e-3)
    pace = torch.optim.lr_scheduler.OneCycleLR(optimiser, max_lr=LEARNING_RATE, total_steps=steps)
    batch = min(BATCH, len(data.x))
    for _ in range(steps):
        found = loss(torch.randint(len(data.x), (batch,), generator=data.chance))
        optimiser.zero_grad()
        found.backward()  # type: ignore[no-untyped-call]
        optimiser.step()
        pace.step()


def _network(inputs: int, outputs: int, chance: torch.Generator) -> list[torch.Tensor]:
    import torch

    sizes = (inputs, WIDTH, WIDTH, outputs)
    weights = []
    for before, after in itertools.pairwise(sizes):
        matrix = torch.randn(before, after, generator=chance) * (2.0 / before) ** 0.5
        weights += [matrix, torch.zeros(after)]
    weights[-2] *= 0.1
    for one in weights:
        one.requires_grad_()
    return weights


def _forward(weights: Sequence[torch.Tensor], x: torch.Tensor) -> torch.Tensor:
    """x (m, d) -> (m, outputs)."""
    hidden = x
    for matrix, bias in zip(weights[:-2:2], weights[1:-2:2], strict=True):
        hidden = (hidden @ matrix + bias).relu()
    return hidden @ weights[-2] + weights[-1]


def _inputs(features: Floats, mean: Floats, scale: Floats) -> torch.Tensor:
    import torch

    return torch.from_numpy(np.ascontiguousarray((features - mean) / scale, dtype=np.float32))
