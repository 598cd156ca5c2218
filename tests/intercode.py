"""A world of real steps: InterCode's SQL tasks, on which every arm (model and strategy) has a logged episode.

Its data are opt-in: the environment variable SAMPLE_DATA names a folder with `intercode` (tasks, episodes and steps as
Parquet). What an arm does at its k-th step on a task, what that gave and cost, is as it was logged; see
`optimizer.replay_truth` for how steps of several arms are put together. Seconds were not logged: half a second and
20 ms a token of the answer, an assumption. The environment ends an episode at reward 1, for every policy.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from optimizer import replay_truth
from optimizer.dataset import Bools, Floats, Ints
from optimizer.replay_truth import Moment, Replay, Script, Steps
from optimizer.runtime import DENSE, DIM, STEP_DENSE, Model, featurise, history_features
from optimizer.sequential.episodes import STOP, EpisodeLog
from optimizer.truth import Truth

INCUMBENT = "gpt-4|try_again"
FEW = (
    INCUMBENT,
    "gpt-3.5-turbo|try_again_schema",
    "gpt-3.5-turbo|single_turn_schema",
    "text-bison-001|try_again_schema",
    "gpt-3.5-turbo|react",
    "gpt-3.5-turbo|try_again",
)
"""Arms that are neither hopeless nor a lesser version of another one."""
LIMIT = 21
"""Steps of an episode: two arms to their ends, and one step before."""
_HISTORY = DENSE.index("history")
Rule = Callable[[Floats, Bools], Floats]
"""features (m, d) and candidates (m, a) -> probabilities (m, a)."""


def folder() -> Path | None:
    """Where the data are; None where they are not."""
    named = os.environ.get("SAMPLE_DATA")
    found = Path(named) / "intercode" if named else None
    return found if found is not None and found.is_dir() else None


def script(arms: Sequence[str], *, first: float = 0.5, later: float = 0.15) -> Script:
    """The incumbent, exploring evenly: at the first decision with chance `first`, and with `later` at each one after
    it, until the episode has changed its arm."""
    others = [arm for arm in arms if arm != INCUMBENT]
    return Script(INCUMBENT, first, dict.fromkeys(others, 1 / len(others)), later, LIMIT, LIMIT)


@dataclass(frozen=True, eq=False)
class World:
    """The tasks, and all that can happen on them."""

    replay: Replay
    prompts: Mapping[str, Floats]
    """(DIM,) features of each task's question."""
    group: Mapping[str, int]
    """Tasks of one gold query are paraphrases: no split parts them."""

    @classmethod
    def read(cls, arms: Sequence[str] = (), *, rewards_shown: bool = False) -> World:
        """With these arms (all by default), on the tasks that all of them have an episode of."""
        data = folder()
        assert data is not None
        tasks = pl.read_parquet(data / "tasks.parquet").filter(pl.col("env") == "sql").sort("task_id")
        episodes = pl.read_parquet(data / "episodes.parquet").filter(pl.col("env") == "sql")
        episodes = episodes.with_columns(arm=pl.concat_str("model", "agent", separator="|"))
        if not arms:
            counts = episodes.group_by("arm").len().filter(pl.col("len") > len(tasks) / 2)
            arms = [INCUMBENT, *(arm for arm in sorted(counts["arm"]) if arm != INCUMBENT)]
        wanted = episodes.filter(pl.col("arm").is_in(list(arms)))
        steps = pl.read_parquet(data / "steps.parquet").join(
            wanted.select("episode_id", "task_id", "arm"), on="episode_id"
        )
        known: dict[str, dict[str, Steps]] = {}
        for (task, arm), rows in steps.sort("step").group_by(["task_id", "arm"], maintain_order=True):
            known.setdefault(str(task), {})[str(arm)] = _steps(rows)
        every = {row["task_id"]: row for row in tasks.to_dicts() if len(known.get(row["task_id"], ())) == len(arms)}
        return cls(
            Replay(
                tuple(arms),
                {task: tuple(known[task][arm] for arm in arms) for task in every},
                script(arms),
                rewards_shown=rewards_shown,
            ),
            {task: featurise({"messages": row["query"]}) for task, row in every.items()},
            dict(zip(every, _numbered([row["group_id"] for row in every.values()]), strict=True)),
        )

    @property
    def tasks(self) -> list[str]:
        return list(self.group)

    def split(self, seed: int, share: float = 0.6) -> tuple[list[str], list[str]]:
        """The tasks of this share of the groups, and the others."""
        groups = np.random.default_rng(seed).permutation(sorted(set(self.group.values())))
        first = set(groups[: round(share * len(groups))].tolist())
        return [t for t in self.tasks if self.group[t] in first], [t for t in self.tasks if self.group[t] not in first]

    def features(self, moment: Moment) -> Floats:
        """(144 + 2a,) as `runtime.orchestration_features` of the question and the history."""
        prompt = self.prompts[moment.task].copy()
        prompt[_HISTORY] = np.float16(np.log1p(len(moment.history)))
        return np.concatenate([prompt, history_features(list(moment.history), self.replay.actions)])

    def draw(self, tasks: Iterable[str], episodes_per_task: int = 8, *, seed: int) -> EpisodeLog:
        """Episodes of the script on these tasks, groups in random order of time."""
        rng = np.random.default_rng(seed)
        tasks = list(tasks)
        decide = replay_truth.of_script(self.replay)
        after = dict(zip(sorted({self.group[t] for t in tasks}), rng.permutation(len(tasks)), strict=False))
        names = sorted(tasks * episodes_per_task, key=lambda task: (after[self.group[task]], task))
        rows: dict[str, list[Any]] = {name: [] for name in ("x", "action", "b", "cost", "latency", "stop", "episode")}
        quality = []
        for number, task in enumerate(names):
            moment = self.replay.begin(task)
            while not moment.over:
                chances = decide([moment])[0]
                action = int(rng.choice(len(chances), p=chances))
                following = None if action == len(self.replay.arms) else self.replay.after(moment, action)
                for name, value in {
                    "x": self.features(moment),
                    "action": action,
                    "b": chances,
                    "cost": 0.0 if following is None else following.cost_usd - moment.cost_usd,
                    "latency": 0.0 if following is None else following.latency_s - moment.latency_s,
                    "stop": moment.quality if moment.taken else np.nan,
                    "episode": number,
                }.items():
                    rows[name].append(value)
                if following is None:
                    break
                moment = following
            quality.append(moment.quality)
        return EpisodeLog(
            features=np.array(rows["x"], dtype=np.float64),
            actions=np.array(rows["action"]),
            behaviour=np.array(rows["b"]),
            cost_usd=np.array(rows["cost"]),
            latency_s=np.array(rows["latency"]),
            stop_quality=np.array(rows["stop"]),
            episode=np.array(rows["episode"]),
            quality=np.array(quality),
            groups=np.array([self.group[task] for task in names]),
            time_ns=np.arange(len(names)),
            action_names=self.replay.actions,
            propensities_logged=True,
        )

    def value(self, rule: Rule | Model, tasks: Sequence[str]) -> Truth:
        """Exact mean outcomes per episode on these tasks."""
        return replay_truth.value(self.replay, self.policy(rule), tasks)

    def policy(self, rule: Rule | Model) -> replay_truth.Policy:
        """A rule of features as a policy of moments, kept to their candidates; a model without its exploration."""
        decide = rule_of(rule) if isinstance(rule, Model) else rule

        def at(moments: Sequence[Moment]) -> Floats:
            features = np.array([self.features(moment) for moment in moments])
            return decide(features, np.array([moment.candidates for moment in moments]))

        return at

    def routes(self, rule: Rule | Model, tasks: Sequence[str]) -> dict[str, tuple[int, ...]]:
        """What a rule that leaves nothing to chance does on each task: its actions in order."""
        decide = self.policy(rule)
        found, due = {}, [self.replay.begin(task) for task in tasks]
        while due:
            actions = decide(due).argmax(axis=1).tolist()
            following = []
            for moment, action in zip(due, actions, strict=True):
                if action == len(self.replay.arms):
                    found[moment.task] = (*moment.taken, action)
                elif (after := self.replay.after(moment, action)).over:
                    found[moment.task] = after.taken
                else:
                    following.append(after)
            due = following
        return found

    @cached_property
    def _seen(self) -> dict[str, tuple[Ints, Ints, Floats, Floats]]:
        """By arm: steps until it is over or right (t,), steps it has (t,), and after each number of steps the best
        reward and the cost (t, LIMIT + 1), in the order of the tasks."""
        found = {}
        for arm, name in enumerate(self.replay.arms):
            t = len(self.tasks)
            until, size = np.zeros(t, dtype=np.int64), np.zeros(t, dtype=np.int64)
            best, cost = np.zeros((t, LIMIT + 1)), np.zeros((t, LIMIT + 1))
            for place, task in enumerate(self.tasks):
                steps = self.replay.tasks[task][arm]
                size[place] = min(len(steps), LIMIT)
                right = [k for k, reward in enumerate(steps.reward[:LIMIT]) if reward >= 1]
                until[place] = right[0] + 1 if right else size[place]
                for k in range(LIMIT):
                    last = k >= until[place]
                    best[place, k + 1] = best[place, k] if last else max(best[place, k], steps.reward[k])
                    cost[place, k + 1] = cost[place, k] if last else cost[place, k] + steps.cost_usd[k]
            found[name] = (until, size, best, cost)
        return found

    def of_route(self, route: Sequence[tuple[str, int]], tasks: Sequence[str]) -> Truth:
        """As `replay_truth.value` of `replay_truth.of_route`, for many routes: all tasks at once. No latency."""
        place = {task: k for k, task in enumerate(self.tasks)}
        rows = np.array([place[task] for task in tasks])
        best, cost, left = np.zeros(len(rows)), np.zeros(len(rows)), np.full(len(rows), LIMIT)
        for name, most in route:
            until, _, rewards, costs = (part[rows] for part in self._seen[name])
            take = np.where(best >= 1, 0, np.minimum(np.minimum(until, most), left))
            at = np.arange(len(rows)), take
            best, cost, left = np.maximum(best, rewards[at]), cost + costs[at], left - take
        return Truth(float(cost.mean()), float(best.mean()), float("nan"))


def rule_of(model: Model) -> Rule:
    """What a model does, without its exploration; its actions are the world's."""
    certain = replace(model, epsilon=0.0)
    return lambda features, may: np.asarray(certain.probabilities(features, may), dtype=np.float64)


def greedy_rule(values: Callable[[Floats], Floats]) -> Rule:
    """The candidate of most value."""

    def decide(features: Floats, may: Bools) -> Floats:
        masked = np.where(may, values(features), -np.inf)
        return np.eye(may.shape[1])[masked.argmax(axis=1)]

    return decide


def baselines(arms: Sequence[str]) -> list[tuple[tuple[str, int], ...]]:
    """Fixed routes: every arm for 1, 2, 3, 5 steps or to the end; every cascade of two, and of three."""
    found: list[tuple[tuple[str, int], ...]] = [((arm, k),) for arm in arms for k in (1, 2, 3, 5, LIMIT)]
    for first, second in itertools.permutations(arms, 2):
        found += [((first, k), (second, m)) for k in (1, 2, 3, 5) for m in (1, 3, LIMIT)]
    for one, two, three in itertools.permutations(arms, 3):
        found += [((one, k), (two, m), (three, LIMIT)) for k in (1, 2) for m in (1, 3)]
    return found


def words(route: Sequence[tuple[str, int]]) -> str:
    """A route in a line."""
    return ", then ".join(arm if most == LIMIT else f"{most} x {arm}" for arm, most in route) + f", {STOP}"


def _numbered(names: Sequence[str]) -> list[int]:
    place = {name: number for number, name in enumerate(sorted(set(names)))}
    return [place[name] for name in names]


def _steps(rows: pl.DataFrame) -> Steps:
    return Steps(
        reward=rows["reward"].to_list(),
        cost_usd=rows["cost_usd"].to_list(),
        latency_s=(0.5 + 0.02 * rows["completion_tokens"]).to_list(),
        tokens=(rows["prompt_tokens"] + rows["completion_tokens"]).to_list(),
        failed=rows["observation"].str.starts_with("Error executing query").to_list(),
        output=rows["observation"].to_list(),
    )


assert DIM + len(STEP_DENSE) == 144
