"""Which calls of a trace are its steps, where nobody logged a decision: turns of agents, else calls of a model.

A turn begins with the call that names another agent than the call above it, whatever its kind: some frameworks tell of
agents, some of graph nodes. Turns that lie directly below the same one, or below none, stand side by side: those are
the steps of a workflow. Which level of a point that is, all of its traces together say, so that its actions mean the
same in each of them.

Legend: n calls; a place is a row number of the calls, -1 none.
"""

from __future__ import annotations

import numpy as np
import polars as pl

from optimizer.dataset import Bools, Ints
from optimizer.decisions import action

DEEPEST = 64
"""Agents within agents beyond this depth count as being at it."""
NOBODY = ""
"""The agent above the outermost turns."""


def nearest(parents: Ints, wanted: Bools) -> Ints:
    """(n,) the place of the nearest wanted call, itself or above it; -1 where there is none, as in a circle of calls of
    which none is wanted. parents: (n,) places."""
    n = len(parents)
    to = np.append(np.where(wanted, np.arange(n), parents), -1)
    for _ in range(n.bit_length() + 1):  # each round doubles how far up is looked
        further = to[to]
        if (further == to).all():
            break
        to = further
    found = to[:n]
    result: Ints = np.where((found >= 0) & wanted[found], found, -1)
    return result


def parents_of(calls: pl.DataFrame) -> Ints:
    """(n,) the place of the call right above; -1 where it is missing. calls: with trace_id, span_id, parent_call_id."""
    places = (
        calls.select("trace_id", "span_id", place=pl.int_range(pl.len(), dtype=pl.Int64))
        .unique(["trace_id", "span_id"], keep="first")
        .rename({"span_id": "parent_call_id"})
    )
    found = calls.select("trace_id", "parent_call_id").join(
        places, on=["trace_id", "parent_call_id"], how="left", maintain_order="left"
    )
    return found["place"].fill_null(-1).to_numpy().astype(np.int64)


def activations(calls: pl.DataFrame) -> pl.DataFrame:
    """The steps of each trace, in its order: trace_id, service, point, span_id (of the call that begins it), start_ns
    (of its first attempt) and action: the agent, with its model and its prompt where it ran several; for a model's call
    what `decisions.action` calls it.

    calls: rows of the query `decision_calls` in order of trace and start, with `service` and `point` of their trace.
    A call of a model that a tool makes is no step, and neither is a failed attempt. Where agents are the steps, a trace
    in which none of the workflow acts has none.
    """
    parents = parents_of(calls)
    agents = np.asarray(calls["agent"].fill_null(NOBODY).to_list(), dtype=object)
    above = np.where(parents >= 0, agents[parents], NOBODY)
    made = calls["name"].fill_null("").str.starts_with("create_agent").to_numpy()
    turns: Bools = (agents != NOBODY) & (agents != above) & ~made
    owner = nearest(parents, turns)
    outer = np.where(turns & (parents >= 0), owner[parents], -1)  # of a turn the one around it
    in_tool = nearest(parents, (calls["kind"] == "tool").to_numpy()) >= 0
    facts = calls.select(
        "trace_id",
        "service",
        "point",
        "agent",
        turn=pl.Series(turns),
        lone=pl.col("kind") == "llm",
        model=(pl.col("kind") == "llm") & pl.col("attempt_of").is_null() & ~pl.Series(in_tool),
        conductor=pl.Series(np.where(outer >= 0, agents[outer], NOBODY).tolist(), dtype=pl.String),
        outer=pl.Series(outer),
        depth=pl.Series(np.where(owner >= 0, 1 + _depth(outer)[owner], 0)),
    )
    turn = _turns(facts)
    by_turns = facts.select("service", "point", turn=turn).select(pl.col("turn").any().over("service", "point"))["turn"]
    model = _model_calls(facts) & ~by_turns
    return _described(calls, parents, turn, model)


def _depth(outer: Ints) -> Ints:
    """(n,) turns around each."""
    depth = np.zeros(len(outer), dtype=np.int64)
    at = outer.copy()
    for _ in range(DEEPEST):
        if (at < 0).all():
            break
        depth += at >= 0
        at = np.where(at >= 0, outer[at], -1)
    return depth


def _turns(facts: pl.DataFrame) -> pl.Series:
    """(n,) whether a call is a step as an agent's turn: one below the conductor that most traces of the point show with
    several turns side by side, the outermost of equals. None is where all are of one agent, or fewer than half of the
    traces have such. Where agents have spans of their own, a lone model call that names another is a helper's."""
    point = ["service", "point"]
    spans = (pl.col("turn") & ~pl.col("lone")).any().over(*point, "conductor")
    facts = facts.with_columns(turn=pl.col("turn") & ~(pl.col("lone") & spans))
    level = (
        facts.filter("turn")
        .with_columns(agents=pl.col("agent").n_unique().over(*point, "conductor"))
        .group_by(*point, "conductor", "trace_id", "outer")
        .agg(pl.len().alias("turns"), pl.col("depth").min(), pl.col("agents").first())
        .filter((pl.col("turns") >= 2) & (pl.col("agents") >= 2))
        .group_by(*point, "conductor")
        .agg(pl.col("trace_id").n_unique().alias("traces"), pl.col("depth").min())
        .sort(*point, "traces", "depth", "conductor", descending=[False, False, True, False, False])
        .unique(point, keep="first", maintain_order=True)
        .select(*point, "conductor", step=pl.lit(True))
    )
    marked = facts.join(level, on=[*point, "conductor"], how="left", nulls_equal=True, maintain_order="left")
    marked = marked.with_columns(step=pl.col("turn") & pl.col("step").fill_null(False))
    usual = (
        marked.group_by(*point, "trace_id")
        .agg(pl.col("step").any(), acts=(pl.col("turn") | pl.col("model")).any())
        .filter("acts")
        .group_by(point)
        .agg(usual=pl.col("step").mean() >= 0.5)
    )
    marked = marked.join(usual, on=point, how="left", nulls_equal=True, maintain_order="left")
    return marked.select(step=pl.col("step") & pl.col("usual").fill_null(False))["step"]


def _model_calls(facts: pl.DataFrame) -> pl.Series:
    """(n,) whether a call of a model is a step: those within as many turns as most of the point's; of a trace without
    such, the outermost."""
    point = ["service", "point"]
    usual = (
        facts.filter("model")
        .group_by(*point, "depth")
        .len()
        .sort(*point, "len", "depth", descending=[False, False, True, False])
        .unique(point, keep="first", maintain_order=True)
        .select(*point, usual="depth")
    )
    own = pl.when("model").then("depth")
    there = (own == pl.col("usual")).any().over("trace_id")
    level = pl.when(there).then("usual").otherwise(own.min().over("trace_id"))
    placed = facts.join(usual, on=point, how="left", nulls_equal=True, maintain_order="left")
    return placed.select(step=(own == level).fill_null(False))["step"]


def _described(calls: pl.DataFrame, parents: Ints, turn: pl.Series, model: pl.Series) -> pl.DataFrame:
    within = nearest(parents, (turn | model).to_numpy())
    own = (calls["kind"] == "llm").to_numpy() & (within >= 0)
    first = (
        calls.select(
            place=pl.Series(within),
            model=pl.coalesce("model_requested", "model_returned"),
            reasoning_effort="reasoning_effort",
            prompt_name="prompt_name",
            prompt_version="prompt_version",
        )
        .filter(pl.Series(own))
        .unique("place", keep="first", maintain_order=True)
    )
    begun = (
        calls.filter(pl.col("attempt_of").is_not_null())
        .group_by("trace_id", "attempt_of")
        .agg(begun=pl.col("start_ns").min())
    )
    steps = (
        calls.select("trace_id", "service", "point", "span_id", "start_ns", "agent")
        .with_columns(place=pl.int_range(pl.len(), dtype=pl.Int64), turn=turn)
        .filter(turn | model)
        .join(first, on="place", how="left")
        .join(begun, left_on=["trace_id", "span_id"], right_on=["trace_id", "attempt_of"], how="left")
        .with_columns(
            start_ns=pl.min_horizontal("start_ns", "begun"),
            policy_action=pl.lit(None, pl.String),
            prompt=pl.concat_str("prompt_name", "prompt_version", separator="@", ignore_nulls=True).replace("", None),
        )
        .sort("trace_id", "start_ns", "span_id")
    )
    parts = [_where_several(name) for name in ("model", "prompt")]
    named = pl.when("turn").then(pl.concat_str("agent", *parts)).otherwise(action())
    return steps.select("trace_id", "service", "point", "span_id", "start_ns", action=named)


def _where_several(name: str) -> pl.Expr:
    """ "|" and the value where an agent had more than one of it."""
    several = pl.col(name).drop_nulls().n_unique().over("service", "point", "agent") > 1
    return pl.when(several & pl.col(name).is_not_null()).then(pl.concat_str(pl.lit("|"), name)).otherwise(pl.lit(""))
