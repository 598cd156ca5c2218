"""How the agents of a trace worked together: the graph of who acted after whom, and what the last steps were worth.

An activation is one agent's turn. Folding a trace makes the agents nodes and "acted next" edges; a step that branches
share is one activation, and STOP is none. n is the number of nodes, E the distinct edges between different agents, m
all edges with repeats and self-loops.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

LONGEST_CYCLE = 4


@dataclass(frozen=True)
class Activation:
    """One agent's turn. Raises ValueError if it comes after itself or after a later one (see `organisation`)."""

    agent: str
    after: tuple[int, ...] = ()
    """Places of the activations it followed: none begins a branch, two or more join branches."""


@dataclass(frozen=True)
class Organisation:
    """Metrics of one trace. None where they are not defined."""

    steps: int
    active_agents: int
    branches: int
    """Activations that nothing follows."""
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


def organisation(activations: Sequence[Activation]) -> Organisation:
    """The metrics of a trace's activations, in the order in which they began.

    Raises ValueError naming the activation that follows itself, a later one, or one that is not there.
    """
    for place, activation in enumerate(activations):
        if any(not 0 <= before < place for before in activation.after):
            raise ValueError(
                f"activation {place} ({activation.agent}) follows {activation.after}: expected places before it"
            )
    followed = [(before, place) for place, one in enumerate(activations) for before in one.after]
    edges = Counter((activations[before].agent, activations[place].agent) for before, place in followed)
    counts = Counter(one.agent for one in activations)
    n, steps = len(counts), len(activations)
    distinct = sum(source != target for source, target in edges)
    pairs = n * (n - 1)
    return Organisation(
        steps=steps,
        active_agents=n,
        branches=steps - len({before for before, _ in followed}),
        density=distinct / pairs if pairs else None,
        density_multi=edges.total() / pairs if pairs else None,
        edges_per_node=distinct / n if n else None,
        cycles=_cycles(edges),
        hub_share=max(counts.values()) / steps if steps else None,
        entropy=-sum(count / steps * math.log2(count / steps) for count in counts.values()) if n > 1 else 0.0,
        revisit_rate=1 - n / steps if steps else None,
    )


def _cycles(edges: Mapping[tuple[str, str], int]) -> dict[int, int]:
    """How many simple cycles of each length, each counted once: from its first agent in the order of names."""
    following: dict[str, list[str]] = {}
    for source, target in edges:
        following.setdefault(source, []).append(target)
    found = dict.fromkeys(range(1, LONGEST_CYCLE + 1), 0)
    paths: list[tuple[str, ...]] = [(agent,) for agent in following]
    while paths:
        path = paths.pop()
        for target in following.get(path[-1], ()):
            if target == path[0]:
                found[len(path)] += 1
            elif target > path[0] and target not in path and len(path) < LONGEST_CYCLE:
                paths.append((*path, target))
    return found


@dataclass(frozen=True)
class Course:
    """How an answer came about over the steps of a trace. Shares and gaps are of quality in [0, 1]."""

    wasted_suffix: int
    """Steps after the answer stopped changing."""
    abandoned: bool | None
    """An earlier answer was better than the last; None where no quality is known."""
    oracle_stop_gap: float | None
    """Quality of the best answer on the way minus that of the last: what stopping in time would have given."""


def course(answers: Sequence[str | None], qualities: Sequence[float | None]) -> Course:
    """The course of a trace's answers. answers, qualities: one a step, None where a step gave or showed none.

    A step that gives no answer leaves the one before it standing. Raises ValueError when both differ in length.
    """
    if len(answers) != len(qualities):
        raise ValueError(f"{len(answers)} answers, but {len(qualities)} qualities")
    changed = [place for place, answer in enumerate(answers) if answer is not None and answer != _last(answers[:place])]
    wasted = len(answers) - 1 - changed[-1] if changed else 0
    known = [quality for quality in qualities if quality is not None]
    if not known or qualities[-1] is None:
        return Course(wasted, None, None)
    gap = max(known) - qualities[-1]
    return Course(wasted, gap > 0, gap)


def _last(answers: Sequence[str | None]) -> str | None:
    return next((answer for answer in reversed(answers) if answer is not None), None)
