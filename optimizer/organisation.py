"""How the agents of a trace worked together: the graph of who acted after whom, and what the last steps were worth.

An activation is one agent's turn. Folding a trace makes the agents nodes and "acted next" edges; a step that branches
share is one activation. STOP ends a branch and is no step, no node and on no edge. n is the number of nodes, E the
distinct edges between different agents, m all edges with repeats and self-loops.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from optimizer.runtime import STOP

LONGEST_CYCLE = 4


@dataclass(frozen=True)
class Activation:
    """One agent's turn. Raises ValueError if it comes after itself or after a later one (see `organisation`)."""

    agent: str
    """Its name; `STOP` for the end of a branch."""
    after: tuple[int, ...] = ()
    """Places of the activations it followed: none begins a branch, two or more join branches."""


@dataclass(frozen=True)
class Organisation:
    """Metrics of one trace. None where they are not defined."""

    steps: int
    active_agents: int
    branches: int
    """Activations that nothing follows, and STOPs: one that stops while others go on from the same step is one more."""
    density: float | None
    """|E| / (n (n - 1)); None for fewer than two agents."""
    density_multi: float | None
    """m / (n (n - 1)): above 1 where agents act in turn again and again."""
    edges_per_node: float | None
    """|E| / n; None without agents."""
    cycles: Mapping[int, int]
    """Simple directed cycles of each length from 1 (an agent that follows itself) to `LONGEST_CYCLE`."""
    hub_share: float | None
    """Share of the activations that are the most active agent's."""
    entropy: float
    """Of the agents' shares of the activations, in bits."""
    revisit_rate: float | None
    """1 - active agents / steps."""


class Folding:
    """The graph of a trace as it grows, activation by activation: its metrics are known after each of them."""

    def __init__(self) -> None:
        self._agents: list[str] = []
        self._followed: set[int] = set()
        self._stops = 0
        self._counts: Counter[str] = Counter()
        self._most = 0
        self._logs = 0.0
        self._edges: set[tuple[str, str]] = set()
        self._transitions = 0
        self._after: dict[str, set[str]] = {}
        self._before: dict[str, set[str]] = {}
        self._cycles = dict.fromkeys(range(1, LONGEST_CYCLE + 1), 0)
        self._distinct = 0

    def add(self, activation: Activation) -> None:
        """The next activation. Raises ValueError if it follows itself, a later one, or one that is not there."""
        place, agent = len(self._agents), activation.agent
        if any(not 0 <= before < place for before in activation.after):
            raise ValueError(f"activation {place} ({agent}) follows {activation.after}: expected places before it")
        self._agents.append(agent)
        if agent == STOP:
            self._stops += 1
            self._followed.update(activation.after)
            return
        self._counts[agent] += 1
        count = self._counts[agent]
        self._most = max(self._most, count)
        self._logs += count * math.log2(count) - (count - 1) * math.log2(count - 1) if count > 1 else 0.0
        self._followed.update(activation.after)
        for before in activation.after:
            if self._agents[before] != STOP:
                self._add_edge(self._agents[before], agent)

    def _add_edge(self, source: str, target: str) -> None:
        self._transitions += 1
        if (source, target) in self._edges:
            return
        self._edges.add((source, target))
        if source == target:
            self._cycles[1] += 1
            return
        self._distinct += 1
        for length, ways in self._ways(target, source).items():
            self._cycles[length] += ways
        self._after.setdefault(source, set()).add(target)
        self._before.setdefault(target, set()).add(source)

    def _ways(self, start: str, end: str) -> dict[int, int]:
        """Simple paths back from `start` to `end`, by the length of the cycle that a new edge from `end` to `start`
        closes with them."""
        out, into, nothing = self._after.get(start, set()), self._before.get(end, set()), set[str]()
        between = sum(len((self._after.get(at, nothing) & into) - {start}) for at in out if at != end)
        return {2: int(end in out), 3: len(out & into), 4: between}

    @property
    def organisation(self) -> Organisation:
        """The metrics of what has been added."""
        n, steps = len(self._counts), len(self._agents) - self._stops
        pairs = n * (n - 1)
        return Organisation(
            steps=steps,
            active_agents=n,
            branches=len(self._agents) - len(self._followed),
            density=self._distinct / pairs if pairs else None,
            density_multi=self._transitions / pairs if pairs else None,
            edges_per_node=self._distinct / n if n else None,
            cycles=dict(self._cycles),
            hub_share=self._most / steps if steps else None,
            entropy=max(math.log2(steps) - self._logs / steps, 0.0) if n > 1 else 0.0,
            revisit_rate=1 - n / steps if steps else None,
        )


def organisation(activations: Sequence[Activation]) -> Organisation:
    """The metrics of a trace's activations, in the order in which they began.

    Raises ValueError naming the activation that follows itself, a later one, or one that is not there.
    """
    folding = Folding()
    for activation in activations:
        folding.add(activation)
    return folding.organisation


@dataclass(frozen=True)
class Course:
    """How an answer came about over the steps of a trace. Shares and gaps are of quality in [0, 1]."""

    wasted_suffix: int
    """Steps after the answer stopped changing."""
    abandoned: bool | None
    """An earlier answer was better than the last; None where no quality is known."""
    oracle_stop_gap: float | None
    """Quality of the best answer on the way minus that of the last: what stopping in time would have given."""


class Answers:
    """The course of a trace's answers as they come, step by step."""

    def __init__(self) -> None:
        self._standing: str | None = None
        self._suffix = 0
        self._best: float | None = None
        self._last: float | None = None

    def add(self, answer: str | None, quality: float | None) -> None:
        """What the next step gave. A step that gives no answer leaves the one before it standing."""
        if answer is not None and answer != self._standing:
            self._standing, self._suffix = answer, 0
        elif self._standing is not None:
            self._suffix += 1
        self._last = quality
        if quality is not None:
            self._best = quality if self._best is None else max(self._best, quality)

    @property
    def course(self) -> Course:
        """The course so far."""
        if self._best is None or self._last is None:
            return Course(self._suffix, None, None)
        gap = self._best - self._last
        return Course(self._suffix, gap > 0, gap)


def course(answers: Sequence[str | None], qualities: Sequence[float | None]) -> Course:
    """The course of a trace's answers. answers, qualities: one a step, None where a step gave or showed none.

    Raises ValueError when both differ in length.
    """
    if len(answers) != len(qualities):
        raise ValueError(f"{len(answers)} answers, but {len(qualities)} qualities")
    seen = Answers()
    for answer, quality in zip(answers, qualities, strict=True):
        seen.add(answer, quality)
    return seen.course
