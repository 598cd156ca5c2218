"""What a policy of many steps is truly worth where every arm's own steps on every task are known: by replay.

A decision takes an arm or STOP. An arm gives its next known step on the task: one that was left is continued where it
was left, another one begins with its first step. The quality is the best reward so far. The episode ends at reward 1,
at STOP, and after as many steps as the rule allows. An arm whose steps are used up is no candidate any more; STOP is
none at the first decision. All of it is fixed by the sequence of actions, so the mean over tasks, and over whatever the
policy leaves to chance, is exact.

Legend: m moments at which decisions are due, a actions of which the last is STOP.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from optimizer.dataset import Bools, Floats
from optimizer.runtime import Model
from optimizer.sequential.episodes import STOP
from optimizer.truth import Truth

NEGLIGIBLE = 1e-9
"""Probability of a course of an episode below which it is left out."""


@dataclass(frozen=True)
class Script:
    """How a log was made: `arm` at first, then the arm that is running, and STOP where that one is used up. At each
    decision it explores with a known chance."""

    arm: str
    first_share: float
    """How often the first decision explores, and with what probabilities of arms."""
    first: Mapping[str, float]
    later_share: float
    """How often each of the decisions 1 to `later_decisions` (the first is 0) explores, evenly among the candidates,
    as long as a single arm was taken: an episode changes its arm once at most."""
    later_decisions: int
    limit: int
    """Steps of an episode, of all arms together."""

    def usual(self, taken: Sequence[str], candidates: Sequence[str]) -> str:
        """What it does where it does not explore."""
        if not taken:
            return self.arm
        return taken[-1] if taken[-1] in candidates else STOP

    def share(self, taken: Sequence[str]) -> float:
        """The chance of exploring after these actions."""
        if not taken:
            return self.first_share
        return self.later_share if len(taken) <= self.later_decisions and len(set(taken)) == 1 else 0.0

    def drawn(self, taken: Sequence[str], candidates: Sequence[str]) -> dict[str, float]:
        """What it does where it explores: the probability of each candidate."""
        if not taken:
            return {name: self.first.get(name, 0.0) for name in candidates}
        return dict.fromkeys(candidates, 1 / len(candidates))

    def probabilities(self, taken: Sequence[str], candidates: Sequence[str]) -> dict[str, float]:
        """Of each candidate."""
        share, usual = self.share(taken), self.usual(taken, candidates)
        return {
            name: share * chance + (1 - share) * (name == usual)
            for name, chance in self.drawn(taken, candidates).items()
        }


@dataclass(frozen=True)
class Steps:
    """The steps of one arm on one task, in order."""

    reward: Sequence[float]
    cost_usd: Sequence[float]
    latency_s: Sequence[float]
    """From the decision for the step to the next one."""
    tokens: Sequence[float]
    failed: Sequence[bool]
    output: Sequence[str]

    def __len__(self) -> int:
        return len(self.reward)

    def entry(self, place: int, action: str, signal: float | None) -> dict[str, object]:
        """The step as an entry of an episode's history."""
        return {
            "action": action,
            "status": "error" if self.failed[place] else "ok",
            "cost_usd": self.cost_usd[place],
            "tokens": self.tokens[place],
            "seconds": self.latency_s[place],
            "output": self.output[place],
            "signal": signal,
        }


@dataclass(frozen=True, eq=False)
class Replay:
    """Everything that can happen on the tasks."""

    arms: tuple[str, ...]
    tasks: Mapping[str, Sequence[Steps]]
    """By name of the task (or trace), the steps of each arm."""
    script: Script
    """What made the log; its limit holds for every policy."""
    stop_s: float = 0.0
    """What a decision for STOP takes."""
    rewards_shown: bool = False
    """The reward of a step is its `signal`."""

    @property
    def actions(self) -> tuple[str, ...]:
        """The arms and STOP."""
        return (*self.arms, STOP)

    def begin(self, task: str) -> Moment:
        """An episode before its first decision."""
        return Moment(task, (), (), self._candidates(task, ()), 0.0, 0.0, 0.0, False)

    def after(self, moment: Moment, arm: int) -> Moment:
        """Where the episode stands after the arm's next step."""
        steps, place = self.tasks[moment.task][arm], moment.taken.count(arm)
        reward, taken = steps.reward[place], (*moment.taken, arm)
        best = max(moment.quality, reward)
        return Moment(
            moment.task,
            taken,
            (*moment.history, steps.entry(place, self.arms[arm], reward if self.rewards_shown else None)),
            self._candidates(moment.task, taken),
            best,
            moment.cost_usd + steps.cost_usd[place],
            moment.latency_s + steps.latency_s[place],
            best >= 1 or len(taken) >= self.script.limit,
        )

    def moment(self, task: str, taken: Iterable[int]) -> Moment:
        """Where an episode stands after these arms were taken."""
        found = self.begin(task)
        for arm in taken:
            found = self.after(found, arm)
        return found

    def _candidates(self, task: str, taken: tuple[int, ...]) -> Bools:
        may = [taken.count(arm) < len(steps) for arm, steps in enumerate(self.tasks[task])]
        return np.array([*may, bool(taken)])


@dataclass(frozen=True, eq=False)
class Moment:
    """Where an episode stands when a decision is due, or when it is over."""

    task: str
    taken: tuple[int, ...]
    """Arms of the steps so far."""
    history: Sequence[Mapping[str, object]]
    candidates: Bools
    """(a,)"""
    quality: float
    cost_usd: float
    latency_s: float
    over: bool
    """The environment has ended it."""


Policy = Callable[[Sequence[Moment]], Floats]
"""(m, a) probabilities at the moments, none outside their candidates."""


def value(replay: Replay, policy: Policy, tasks: Iterable[str] | None = None) -> Truth:
    """The policy's exact mean outcomes per episode over these tasks (all of them by default; a task may come twice).

    All courses of all episodes are followed step by step, those of the same step together.
    """
    names = Counter(list(replay.tasks if tasks is None else tasks))
    total = names.total()
    outcomes = np.zeros(3)
    due = [(replay.begin(name), count / total) for name, count in names.items()]
    while due:
        moments, chances = [moment for moment, _ in due], np.array([chance for _, chance in due])
        shares = chances[:, None] * policy(moments)
        due = []
        for row, action in zip(*map(np.ndarray.tolist, np.nonzero(shares > NEGLIGIBLE / total)), strict=True):
            moment, share = moments[row], shares[row, action]
            if action < len(replay.arms):
                after = replay.after(moment, action)
                if not after.over:
                    due.append((after, share))
                    continue
                ended = after.cost_usd, after.quality, after.latency_s
            else:
                ended = moment.cost_usd, moment.quality, moment.latency_s + replay.stop_s
            outcomes += share * np.array(ended)
    return Truth(*(float(one) for one in outcomes))


def of_script(replay: Replay) -> Policy:
    """The policy that made the log."""

    actions = replay.actions

    @cache
    def chances(taken: tuple[int, ...], candidates: bytes) -> Floats:
        may = np.flatnonzero(np.frombuffer(candidates, dtype=np.bool_))
        found = replay.script.probabilities([actions[arm] for arm in taken], [actions[place] for place in may])
        result = np.zeros(len(actions))
        result[may] = list(found.values())
        return result

    return lambda moments: np.array([chances(moment.taken, moment.candidates.tobytes()) for moment in moments])


def of_route(replay: Replay, route: Sequence[tuple[str, int]]) -> Policy:
    """A fixed route: each arm for as many steps as are given with it, or until it is used up; then STOP."""

    def action(moment: Moment) -> int:
        for name, most in route:
            arm = replay.arms.index(name)
            if moment.candidates[arm] and moment.taken.count(arm) < most:
                return arm
        return len(replay.arms)

    def decide(moments: Sequence[Moment]) -> Floats:
        return np.eye(len(replay.actions))[[action(moment) for moment in moments]]

    return decide


def of_model(model: Model, replay: Replay, features: Callable[[Moment], Floats]) -> Policy:
    """An orchestrating model without its exploration. features: what it reads at a moment.

    Raises ValueError for a model with an action that the replay does not know.
    """
    if unknown := sorted(set(model.actions) - set(replay.actions)):
        raise ValueError(f"the replay does not know the actions {unknown}")
    columns = [replay.actions.index(name) for name in model.actions]
    certain = replace(model, epsilon=0.0)

    def decide(moments: Sequence[Moment]) -> Floats:
        result = np.zeros((len(moments), len(replay.actions)))
        may = np.array([moment.candidates for moment in moments])[:, columns]
        result[:, columns] = certain.probabilities(np.array([features(moment) for moment in moments]), may)
        return result

    return decide


def write(replay: Replay, folder: Path, service: str) -> None:
    """As <service>.parquet, one row per task and arm with its steps as lists, and <service>.json, the script."""
    rows: list[dict[str, Any]] = [
        {"trace_id": task, "action": name, **{key: list(value) for key, value in vars(steps).items()}}
        for task, arms in replay.tasks.items()
        for name, steps in zip(replay.arms, arms, strict=True)
    ]
    frame = pl.DataFrame(rows, schema={"trace_id": pl.String, "action": pl.String, **_LISTS})
    frame.write_parquet(folder / f"{service}.parquet", compression="zstd", compression_level=19)
    told = {"stop_s": replay.stop_s, "script": asdict(replay.script)}
    (folder / f"{service}.json").write_text(json.dumps(told, indent=2) + "\n", encoding="utf-8")


def read(folder: Path, service: str) -> Replay | None:
    """What `write` wrote; None for a service without a script, whose traces hold one decision."""
    file = folder / f"{service}.json"
    if not file.is_file():
        return None
    told = json.loads(file.read_text(encoding="utf-8"))
    frame = pl.read_parquet(folder / f"{service}.parquet")
    arms = tuple(frame["action"].unique(maintain_order=True))
    tasks: dict[str, dict[str, Steps]] = {}
    for row in frame.iter_rows(named=True):
        tasks.setdefault(row["trace_id"], {})[row["action"]] = Steps(**{name: row[name] for name in _LISTS})
    ordered = {task: tuple(steps[arm] for arm in arms) for task, steps in tasks.items()}
    return Replay(arms, ordered, Script(**told["script"]), told["stop_s"])


_LISTS = {
    "reward": pl.List(pl.Float64),
    "cost_usd": pl.List(pl.Float64),
    "latency_s": pl.List(pl.Float64),
    "tokens": pl.List(pl.Int64),
    "failed": pl.List(pl.Boolean),
    "output": pl.List(pl.String),
}
