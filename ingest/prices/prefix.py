"""The cached prefix: what answering a session's next turn with another model costs in lost cache reads and new writes.

A turn's prompt begins with the prompt and the answer of the turn before: the prefix. Of it a provider reads a share
from its cache, less the longer the gap; a model that was not used in the session has nothing cached. The shares are
those seen in the log, by model and gap. With P tokens of prefix, s the share read after such a gap, w the share of
other input that is written, and prices of the model switched to:

    lost reads   s P (input - read)         the prefix costs full input once
    new writes   s P w (write - input)      and is written into the cache
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from ingest.prices.rates import CLASSES, Rates

GAPS_S = (60.0, 300.0, 3600.0, float("inf"))
"""Upper ends of the classes of gaps: providers keep a prefix for minutes, or an hour when asked."""


@dataclass(frozen=True, slots=True)
class Turn:
    """One call of a session. `input_tokens` holds what was read from or written to a cache; None: not told."""

    model: str
    start_ns: int
    input_tokens: int
    output_tokens: int
    cache_read_tokens: int | None = None
    cache_write_tokens: int | None = None


@dataclass(frozen=True, slots=True)
class Habit:
    """What a model's cache did in the log."""

    read_share: tuple[float | None, ...]
    """Share of the prefix that was read, by class of gap (`GAPS_S`); None: no such turn was seen."""
    turns: tuple[int, ...]
    """Turns seen by class of gap."""
    written_share: float
    """Share of input not read that was written; 0 where a provider caches without being asked."""

    def share(self, gap_s: float) -> float | None:
        """Share of the prefix read after a gap; None: unknown."""
        return self.read_share[gap_class(gap_s)]


@dataclass(frozen=True, slots=True)
class SwitchCost:
    """USD that a switch costs beyond the same turn on the same model with its cache warm."""

    lost_reads_usd: float
    new_writes_usd: float

    @property
    def usd(self) -> float:
        return self.lost_reads_usd + self.new_writes_usd


def gap_class(gap_s: float) -> int:
    """The place of a gap in `GAPS_S`."""
    return next(at for at, end in enumerate(GAPS_S) if gap_s <= end)


def prefix_tokens(before: Turn, turn: Turn) -> int:
    """Tokens at the start of a turn's prompt that the turn before held: at most all of both."""
    return min(before.input_tokens + before.output_tokens, turn.input_tokens)


def learn(sessions: Iterable[Sequence[Turn]]) -> Mapping[str, Habit]:
    """Each model's habit, from turns that follow one of the same model and tell their cache reads, in any order."""
    prefixes: dict[str, list[int]] = {}
    reads: dict[str, list[int]] = {}
    seen: dict[str, list[int]] = {}
    fresh: dict[str, int] = {}
    written: dict[str, int] = {}
    for session in sessions:
        turns = sorted(session, key=lambda turn: turn.start_ns)
        for turn in turns:
            if turn.cache_read_tokens is not None:
                fresh[turn.model] = fresh.get(turn.model, 0) + turn.input_tokens - turn.cache_read_tokens
                written[turn.model] = written.get(turn.model, 0) + (turn.cache_write_tokens or 0)
        for before, turn in pairwise(turns):
            if before.model != turn.model or turn.cache_read_tokens is None:
                continue
            at = gap_class((turn.start_ns - before.start_ns) / 1e9)
            for sums, value in (
                (prefixes, prefix_tokens(before, turn)),
                (reads, min(turn.cache_read_tokens, prefix_tokens(before, turn))),
                (seen, 1),
            ):
                sums.setdefault(turn.model, [0] * len(GAPS_S))[at] += value
    return {
        model: Habit(
            tuple(r / p if p else None for r, p in zip(reads[model], prefixes[model], strict=True)),
            tuple(seen[model]),
            min(1.0, written[model] / fresh[model]) if fresh.get(model) else 0.0,
        )
        for model in prefixes
    }


def switch_cost(before: Turn, turn: Turn, target: str, rates: Rates, habits: Mapping[str, Habit]) -> SwitchCost | None:
    """What it would cost to answer `turn` with `target`, whose rates are given, after `before` was answered by another.

    Nothing when `target` answered the turn before. None when the target's cache was never seen after such a gap, or has
    no price: unknown is not free.
    """
    if before.model == target:
        return SwitchCost(0.0, 0.0)
    habit = habits.get(target)
    share = habit.share((turn.start_ns - before.start_ns) / 1e9) if habit else None
    price = dict(zip(CLASSES, rates.usd, strict=True))
    given, read, write = price["input"], price["cache_read"], price["cache_write"]
    if habit is None or share is None or given is None or read is None or (habit.written_share and write is None):
        return None
    tokens = share * prefix_tokens(before, turn)
    new = tokens * habit.written_share * ((write or given) - given) if habit.written_share else 0.0
    return SwitchCost(tokens * (given - read), new)
