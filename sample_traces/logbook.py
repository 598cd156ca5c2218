"""Drawing a log: which action each prompt got, whether it was labelled, in which session and when.

Every kind of draw has its own stream of the service's seed, so changing the label share, say, moves no action. Only
uniform numbers are drawn; everything else is computed from them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from statistics import NormalDist

import numpy as np
from outcomes import Outcome, Task
from stepwise import DRAWS, Episode, draw

from optimizer.replay_truth import Script

FIRST = datetime(2026, 11, 9, tzinfo=UTC)  # a Monday
LAST = datetime(2026, 11, 29, 17, 30, tzinfo=UTC)  # Sunday evening: late scores still arrive on that day
RHYTHM = (2, 1, 1, 1, 1, 2, 4, 8, 14, 18, 20, 19, 16, 18, 20, 19, 17, 14, 11, 10, 9, 8, 6, 4)  # by hour, weekdays
WEEKEND = 0.4
SESSION_SIZES = (0.34, 0.24, 0.17, 0.12, 0.08, 0.05)  # of 1 to 6 traces
STREAMS = ("action", "label", "order", "session", "time", "id", "steps")


@dataclass(frozen=True)
class Logging:
    """How one service chose, and what of it was written down."""

    service: str
    seed: int
    arms: tuple[str, ...]
    label_share: float  # share of traces with a score
    propensities_logged: bool  # policy.* attributes on the deciding span
    latency_modelled: bool
    probabilities: Callable[[Task], Sequence[float]] | None = None  # one per arm, summing to 1; None with a script
    script: Script | None = None  # how an agent that is routed step by step chose
    traces_per_task: int = 1
    score: str = "quality"  # name of the final evaluation


@dataclass(frozen=True)
class Choice:
    """One arm for the whole trace."""

    action: str
    probabilities: Mapping[str, float]  # of every arm, given this task


@dataclass(frozen=True)
class Logged:
    """One trace of the log, before it becomes spans."""

    task: Task
    trace_id: str
    chosen: Choice | Episode
    labelled: bool
    session: str
    start_ns: int
    score_delay: float  # uniform in [0, 1): quantile of the time until the score arrives

    @property
    def choice(self) -> Choice:
        """The single choice. ValueError for an episode."""
        if not isinstance(self.chosen, Choice):
            raise ValueError(f"trace {self.trace_id} was routed step by step")
        return self.chosen

    @property
    def episode(self) -> Episode:
        """All its decisions. ValueError for a single choice."""
        if not isinstance(self.chosen, Episode):
            raise ValueError(f"trace {self.trace_id} was routed once")
        return self.chosen

    @property
    def outcome(self) -> Outcome | Episode:
        """Of what was chosen."""
        return self.chosen if isinstance(self.chosen, Episode) else self.task.outcomes[self.chosen.action]


class Streams:
    """Independent random streams by name."""

    def __init__(self, seed: int) -> None:
        self._by_name = {name: np.random.default_rng([seed, n]) for n, name in enumerate(STREAMS)}

    def uniform(self, name: str, n: int) -> np.ndarray:
        """(n,) numbers in [0, 1)."""
        return self._by_name[name].random(n)

    def hex(self, digits: int) -> str:
        """A random id."""
        return self._by_name["id"].bytes(digits // 2).hex()


def draw_log(logging: Logging, tasks: Sequence[Task], streams: Streams) -> list[Logged]:
    """The traces of all tasks, ordered by start within a session, sessions in order of time."""
    tasks = [task for task in tasks for _ in range(logging.traces_per_task)]
    chosen = _choices(logging, tasks, streams) if logging.script is None else _episodes(logging.script, tasks, streams)
    labelled = streams.uniform("label", len(tasks)) < logging.label_share
    sessions = list(_sessions(tasks, streams))
    log = []
    for members, start in zip(sessions, _starts(len(sessions), streams), strict=True):
        session, clock_us = f"conv_{streams.hex(24)}", start
        for index in members:
            nanos, pause, score = streams.uniform("time", 3)
            trace = Logged(
                task=tasks[index],
                trace_id=streams.hex(32),
                chosen=chosen[index],
                labelled=bool(labelled[index]),
                session=session,
                start_ns=clock_us * 1000 + int(nanos * 1000),
                score_delay=float(score),
            )
            log.append(trace)
            clock_us += trace.outcome.latency_us + _pause_us(float(pause))
    return log


def late(uniform: float, median_s: float, sigma: float, low_s: float, high_s: float) -> int:
    """A log-normal delay in microseconds, kept within [low_s, high_s]."""
    seconds = median_s * math.exp(sigma * NormalDist().inv_cdf(min(max(uniform, 1e-9), 1 - 1e-9)))
    return round(min(max(seconds, low_s), high_s) * 1e6)


def _choices(logging: Logging, tasks: Sequence[Task], streams: Streams) -> Sequence[Choice]:
    result = []
    for task, uniform in zip(tasks, streams.uniform("action", len(tasks)), strict=True):
        if logging.probabilities is None:
            raise ValueError(f"{logging.service} has neither probabilities nor a script")
        probabilities = tuple(logging.probabilities(task))
        index = int(np.searchsorted(np.cumsum(probabilities), uniform, side="right"))
        action = logging.arms[min(index, len(logging.arms) - 1)]
        result.append(Choice(action, dict(zip(logging.arms, probabilities, strict=True))))
    return result


def _episodes(script: Script, tasks: Sequence[Task], streams: Streams) -> Sequence[Episode]:
    return [draw(task, script, streams.uniform("steps", DRAWS * script.limit)) for task in tasks]


def _sessions(tasks: Sequence[Task], streams: Streams) -> Iterator[list[int]]:
    """Indices of the tasks of each session: a group's tasks together, else 1 to 6 tasks in random order."""
    order = [int(i) for i in np.argsort(streams.uniform("order", len(tasks)), kind="stable")]
    if tasks[0].group is not None:
        groups: dict[str | None, list[int]] = {}
        for index in order:
            groups.setdefault(tasks[index].group, []).append(index)
        yield from groups.values()
        return
    bounds = np.cumsum(SESSION_SIZES)
    while order:
        size = 1 + min(int(np.searchsorted(bounds, streams.uniform("session", 1)[0], side="right")), len(bounds) - 1)
        yield order[:size]
        order = order[size:]


def _starts(n: int, streams: Streams) -> list[int]:
    """n session starts in microseconds since 1970, in order, by the rhythm of day and week."""
    whole = int((LAST - FIRST) / timedelta(hours=1))
    days = [FIRST + timedelta(hours=hour) for hour in range(whole + 1)]
    weight = [RHYTHM[day.hour] * (WEEKEND if day.weekday() >= 5 else 1.0) for day in days]
    edges = [*range(whole + 1), (LAST - FIRST) / timedelta(hours=1)]
    weight[-1] *= edges[-1] - edges[-2]
    reached = np.concatenate([[0.0], np.cumsum(weight)])
    hours = np.interp(np.sort(streams.uniform("time", n)) * reached[-1], reached, edges)
    first_us = round(FIRST.timestamp()) * 1_000_000
    return [first_us + round(float(hour) * 3.6e9) for hour in hours]


def _pause_us(uniform: float) -> int:
    """The user's time between an answer and the next question."""
    return late(uniform, median_s=45, sigma=0.8, low_s=5, high_s=600)
