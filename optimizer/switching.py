"""What a switch of models inside a session would cost in lost cache reads and new cache writes.

Savings compare decisions as they were logged, each with the cache that its model had by then. A policy that answers a
session's next turn with another model finds nothing cached there. What that costs is learned from the log's own turns
and gaps (see `ingest.prices.prefix`) and stands beside the savings; it is not in them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import polars as pl

from ingest.prices.prefix import Habit, SwitchCost, Turn, learn, switch_cost
from ingest.prices.rates import STANDARD
from ingest.pricing import Key, Prices

MOST_TURNS = 5000
"""The newest turns that are looked at."""


def switching(calls: pl.DataFrame, prices: Prices, at: str) -> list[dict[str, Any]]:
    """Per model that was seen to read from its cache, what a turn costs more when it takes over from another model.

    calls: those of a service, with kind, session_id, model_requested, model_returned, provider, start_ns and tokens.
    Rows {model, turns, unknown_turns, usd_per_turn, lost_reads_usd_per_turn, new_writes_usd_per_turn}, at the prices of
    the day `at`; means over the `turns` of other models whose switch has a known cost. Nothing where the log tells no
    cache reads.
    """
    turns = _turns(calls)
    if not (turns["cache_read_tokens"].fill_null(0) > 0).any():
        return []
    sessions = [
        [Turn(*row) for row in session.select(_TURN).iter_rows()]
        for _, session in turns.group_by("session_id", maintain_order=True)
    ]
    habits = learn(sessions)
    sellers = dict(turns.group_by("model").agg(pl.col("provider").drop_nulls().mode().first()).iter_rows())
    pairs = [pair for session in sessions for pair in pairwise(session)]
    found = [
        _row(
            target,
            [_cost(pair, target, sellers.get(target), habits, prices, at) for pair in pairs if pair[0].model != target],
        )
        for target, habit in sorted(habits.items())
        if any(habit.read_share)
    ]
    return [row for row in found if row["turns"]]


def words(row: Mapping[str, Any]) -> str:
    """A row as a sentence for people."""
    writes = f" and ${row['new_writes_usd_per_turn']:.4f} in new cache writes" if row["new_writes_usd_per_turn"] else ""
    seen = f"{row['turns']:,} {'turn' if row['turns'] == 1 else 'turns'}; not in the savings"
    return (
        f"a turn of a session that {row['model']} takes over from another model costs "
        f"${row['lost_reads_usd_per_turn']:.4f} in lost cache reads{writes} ({seen})"
    )


def avoided(sticky: bool) -> str:
    """What becomes of these costs under a policy, in words."""
    if sticky:
        return "the policy keeps a session's model, so it switches only where that model cannot serve a request"
    return "a policy that chooses by request may pay it at any turn; with sticky = true it keeps a session's model"


_TURN = ("model", "start_ns", "input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens")


def _turns(calls: pl.DataFrame) -> pl.DataFrame:
    """The newest turns of sessions, in their order."""
    told = pl.all_horizontal(pl.col(name).is_not_null() for name in ("session_id", "model", *_TURN[1:3]))
    return (
        calls.with_columns(model=pl.coalesce("model_returned", "model_requested"))
        .filter((pl.col("kind") == "llm") & told)
        .sort("start_ns")
        .tail(MOST_TURNS)
        .sort("session_id", "start_ns")
        .select("session_id", "provider", *_TURN)
        .with_columns(pl.col("output_tokens").fill_null(0))
    )


def _cost(
    pair: tuple[Turn, Turn], target: str, provider: str | None, habits: Mapping[str, Habit], prices: Prices, at: str
) -> SwitchCost | None:
    before, turn = pair
    rates = prices.quote(Key((target,), provider, STANDARD, at), turn.input_tokens).rates
    return switch_cost(before, turn, target, rates, habits)


def _row(target: str, costs: Sequence[SwitchCost | None]) -> dict[str, Any]:
    known = [cost for cost in costs if cost is not None]
    count = max(len(known), 1)
    lost, new = sum(cost.lost_reads_usd for cost in known), sum(cost.new_writes_usd for cost in known)
    return {
        "model": target,
        "turns": len(known),
        "unknown_turns": len(costs) - len(known),
        "usd_per_turn": (lost + new) / count,
        "lost_reads_usd_per_turn": lost / count,
        "new_writes_usd_per_turn": new / count,
    }
