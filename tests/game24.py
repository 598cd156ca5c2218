"""A world of real attempts: the game of 24, with cheap answers at once or in thoughts, and a dear search.

Its data are opt-in as those of `intercode`: the folder `tot_game24` of SAMPLE_DATA. An arm's attempts at a puzzle are
independent and logged in order, so any route over them is replayed exactly. Arithmetic checks an answer: its reward is
seen at once and a right one ends the episode. A search is paid for at its first answer; the cost of a single answer is
that of its tokens and of a prompt of 250, as `cost_usd` was logged for all hundred together. Seconds are assumed.

It is a world for estimates, not for learning: 45 of its 75 puzzles teach, and what three steps of fitted Q-iteration
learned of eight episodes on each was worth 0.12 more, 0.16 less and 0.11 less than the search (three splits, at 2 USD a
right answer).

tau-bench gives no such world: its user and its database answer what this agent did, so no other agent can take up a
logged conversation, and each agent design has one trial of a task: the first decision is all that its logs identify.
"""

from __future__ import annotations

import os
from pathlib import Path

import polars as pl
from intercode import World

from optimizer.replay_truth import Replay, Script, Steps
from optimizer.runtime import featurise

SEARCH, ANSWER, THOUGHT = "search", "answer", "thought"
_STRATEGIES = {SEARCH: "tot_b5", ANSWER: "io", THOUGHT: "cot"}
LIMIT = 12
"""Attempts of an episode."""
MOST = 8
"""Attempts of one arm."""
PROMPT_USD = 250 * 30e-6
OUTPUT_USD = 60e-6
"""A token."""


def folder() -> Path | None:
    """Where the data are; None where they are not."""
    named = os.environ.get("SAMPLE_DATA")
    found = Path(named) / "tot_game24" if named else None
    return found if found is not None and found.is_dir() else None


def read() -> World:
    """The puzzles, each a group of its own. The incumbent searches."""
    data = folder()
    assert data is not None
    puzzles = dict(pl.read_parquet(data / "tasks.parquet").sort("task_id").select("task_id", "puzzle").iter_rows())
    attempts = pl.read_parquet(data / "attempts.parquet").sort("attempt").filter(pl.col("attempt") < MOST)
    found = dict(attempts.group_by(["task_id", "strategy"], maintain_order=True))
    searched = pl.read_parquet(data / "runs.parquet").filter(pl.col("strategy") == "tot_b5")
    cost = dict(searched.select("task_id", "cost_usd").iter_rows())
    others = {ANSWER: 0.5, THOUGHT: 0.5}
    return World(
        Replay(
            tuple(_STRATEGIES),
            {
                task: tuple(_steps(found[task, name], cost[task] if arm == SEARCH else None) for arm, name in arms())
                for task in puzzles
            },
            Script(SEARCH, 0.5, others, 0.15, LIMIT, LIMIT),
            rewards_shown=True,
        ),
        {task: featurise({"messages": f"Make 24 of {puzzle}"}) for task, puzzle in puzzles.items()},
        {task: number for number, task in enumerate(puzzles)},
    )


def arms() -> list[tuple[str, str]]:
    """Their names, and the data's."""
    return list(_STRATEGIES.items())


def _steps(rows: pl.DataFrame, search_usd: float | None) -> Steps:
    single = (PROMPT_USD + OUTPUT_USD * rows["completion_tokens"]).to_list()
    tokens = rows["completion_tokens"].cast(pl.Float64)
    return Steps(
        reward=rows["reward"].cast(pl.Float64).to_list(),
        cost_usd=single if search_usd is None else [search_usd, *[0.0] * (len(rows) - 1)],
        latency_s=(0.5 + 0.02 * tokens).to_list(),
        tokens=tokens.to_list(),
        failed=[False] * len(rows),
        output=rows["output"].to_list(),
    )
