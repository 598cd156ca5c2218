"""Which decisions each trace holds, in order, and which of its calls belong to which.

A decision is one that a span carries itself (policy.action, whatever the span is); in a trace without any, each step is
one (see `activations`). A call belongs to the decision that it lies below, else to the last one that began before it;
what is before the first decision belongs to the first. Branches are folded in order of their starts, attempts are one
call. Where parents are missing or go in a circle, a call belongs to the last decision before it.

What is left out has one of these reasons, and is counted:

    NO_TIME    a decision says no start, so that its place is not known
    ENDED      decisions follow one that stops: the trace holds more than one episode
    OTHER      a decision stands beside those of an orchestrator that decides more often: it is no row, what it cost is
               in the row that it falls into
    UNLOGGED   others of the point log their decisions, and the steps of this trace have other names
    NO_STEP    nothing in the trace is a step, as where agents are the steps of a point and none acts
    LONG       decisions after the first `MOST`: they are no rows, what they cost is in the last row, so that a policy
               decides the first ones and the rest stays as logged
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl

from optimizer.runtime import STOP
from optimizer.sequential.activations import activations, nearest, parents_of

MOST = 100
"""Decisions of a trace that are told apart."""

NO_TIME = "a decision says no start"
ENDED = "decisions follow one that stops"
OTHER = "another orchestrator decides beside the one that decides more often"
UNLOGGED = "no decision is logged, and its steps have other names than those that are"
NO_STEP = "nothing in it is a step"
LONG = f"only its first {MOST} decisions are told apart"

_TRACE = ("trace_id", "service", "point")
_POLICY = ("policy_propensity", "policy_candidates", "policy_probabilities", "policy_features")
_COLUMNS = (*_TRACE, "span_id", "call_id", "start_ns", "end_ns", "action", "logged", "explored", *_POLICY)


@dataclass(frozen=True, eq=False)
class Decided:
    """The decisions of some traces."""

    decisions: pl.DataFrame
    """trace_id, service, point, step (from 0), span_id, call_id (null: it is no call), start_ns, end_ns, action,
    logged, explored and the policy_* columns; in order of trace and step."""
    left_out: pl.DataFrame
    """service, point, reason, traces."""


def decided(calls: pl.DataFrame, spans: pl.DataFrame) -> Decided:
    """calls: rows of the query `decision_calls` in order of trace and start, with `service` and `point` of their trace;
    spans: rows of the query `decision_spans`."""
    traces = calls.select(_TRACE).unique()
    logged = _logged(spans, traces)
    untimed = logged.filter(pl.col("start_ns").is_null())
    other = _of_others(logged)
    others = calls.join(logged.select("trace_id").unique(), on="trace_id", how="anti", maintain_order="left")
    shown = _shown(others)
    unlogged = _unlogged(shown, logged)
    every = pl.concat(
        [
            logged.join(untimed.select("trace_id").unique(), on="trace_id", how="anti").join(
                other, on=["service", "policy_id"], how="anti"
            ),
            shown.join(unlogged, on="trace_id", how="anti"),
        ],
        how="diagonal",
    ).select(_COLUMNS)
    every = every.sort("trace_id", "start_ns", pl.col("action") == STOP, "span_id").with_columns(
        step=pl.int_range(pl.len(), dtype=pl.Int64).over("trace_id"), decisions=pl.len().over("trace_id")
    )
    ended = every.filter((pl.col("action") == STOP) & (pl.col("step") < pl.col("decisions") - 1))
    every = every.join(ended.select("trace_id").unique(), on="trace_id", how="anti", maintain_order="left")
    without = others.join(shown.select("trace_id").unique(), on="trace_id", how="anti")
    left_out = {
        NO_TIME: untimed,
        OTHER: logged.join(other, on=["service", "policy_id"], how="semi"),
        UNLOGGED: others.join(unlogged, on="trace_id", how="semi"),
        NO_STEP: without.filter(pl.col("kind").is_in(("llm", "agent", "tool"))),
        ENDED: ended,
        LONG: every.filter(pl.col("step") >= MOST),
    }
    return Decided(every.filter(pl.col("step") < MOST).drop("decisions"), _counted(left_out))


def _logged(spans: pl.DataFrame, traces: pl.DataFrame) -> pl.DataFrame:
    drawn = pl.coalesce("policy_explored", pl.coalesce("policy_reason", "policy_arm") == "explore")
    return spans.join(traces, on="trace_id", how="inner").with_columns(
        action="policy_action",
        policy_id=pl.col("policy_id").fill_null(""),
        logged=pl.lit(True),
        explored=drawn.fill_null(False),
    )


def _of_others(logged: pl.DataFrame) -> pl.DataFrame:
    """service, policy_id of orchestrators that decide in the same traces as one that decides more often."""
    every = logged.group_by("service", "policy_id").len()
    beside = logged.select("trace_id", "service", "policy_id").unique().join(every, on=["service", "policy_id"])
    main = pl.col("policy_id").sort_by("len", "policy_id", descending=[True, False]).first().over("trace_id")
    return beside.filter(pl.col("policy_id") != main).select("service", "policy_id").unique()


def _shown(calls: pl.DataFrame) -> pl.DataFrame:
    """The steps that nobody logged. A turn that is called STOP ends a branch: it is none."""
    stops = calls.filter(pl.col("name") == STOP).select("trace_id", "span_id")
    found = activations(calls).join(stops, on=["trace_id", "span_id"], how="anti", maintain_order="left")
    return found.with_columns(
        call_id="span_id",
        logged=pl.lit(False),
        explored=pl.lit(False),
        end_ns=pl.lit(None, pl.Int64),
        policy_propensity=pl.lit(None, pl.Float64),
        **{name: pl.lit(None, pl.String) for name in _POLICY[1:]},
    )


def _unlogged(shown: pl.DataFrame, logged: pl.DataFrame) -> pl.DataFrame:
    """trace_id of traces with steps that others of their point log by other names."""
    logs = logged.select("service", "point").unique()
    named = logged.select("service", "point", "action").unique()
    strange = shown.join(logs, on=["service", "point"], how="semi").join(
        named, on=["service", "point", "action"], how="anti"
    )
    return strange.select("trace_id").unique()


def _counted(left_out: dict[str, pl.DataFrame]) -> pl.DataFrame:
    frames = [
        found.group_by("service", "point")
        .agg(pl.col("trace_id").n_unique().cast(pl.Int64).alias("traces"))
        .select("service", "point", pl.lit(reason).alias("reason"), "traces")
        for reason, found in left_out.items()
    ]
    return pl.concat(frames).sort("service", "point", "reason")


def placed(calls: pl.DataFrame, decisions: pl.DataFrame) -> pl.DataFrame:
    """The calls of traces that have decisions, with `step` (the decision that a call belongs to), `below` (it lies
    below that decision, or is it), `since` (it began no earlier than the decision) and `named`: it is part of what the
    action names, which is what lies below the decision, and of a model's call also the tools that follow; of a decision
    that is no call those of its agent, model or tool, and the tools that follow its model's call; where there is
    nothing of these, all since the decision.

    calls: as for `decided`.
    """
    parents = parents_of(calls)
    every = calls.with_columns(place=pl.int_range(pl.len(), dtype=pl.Int64))
    heads = decisions.filter(pl.col("call_id").is_not_null()).join(
        every.select("trace_id", "place", "kind", call_id="span_id"), on=["trace_id", "call_id"]
    )
    heads = heads.unique(["trace_id", "call_id"], keep="last", maintain_order=True)
    is_head = np.zeros(len(calls), dtype=np.bool_)
    is_head[heads["place"].to_numpy()] = True
    of_head = heads.select(head="place", own="step")
    attempts = heads.select("trace_id", attempt_of="call_id", tried="step").unique(["trace_id", "attempt_of"])
    in_tool = nearest(parents, (calls["kind"] == "tool").to_numpy()) >= 0
    every = (
        every.with_columns(head=pl.Series(nearest(parents, is_head)), in_tool=pl.Series(in_tool))
        .join(of_head, on="head", how="left", maintain_order="left")
        .join(attempts, on=["trace_id", "attempt_of"], how="left", maintain_order="left")
        .join(decisions.select("trace_id").unique(), on="trace_id", how="semi", maintain_order="left")
        .with_columns(own=pl.coalesce("own", "tried"))
    )
    every = every.with_columns(
        step=pl.coalesce("own", last_before(every, decisions)), below=pl.col("own").is_not_null()
    )
    by_model = heads.select("trace_id", "step", by_model=pl.col("kind") == "llm")
    about = decisions.select("trace_id", "step", "action", decided_ns="start_ns").join(
        by_model, on=["trace_id", "step"], how="left", maintain_order="left"
    )
    every = every.join(about, on=["trace_id", "step"], how="left", maintain_order="left")
    parts = pl.col("action").str.split("|")
    model = pl.coalesce("model_requested", "model_returned")
    acts = pl.any_horizontal(parts.list.contains(name).fill_null(False) for name in ("agent", "tool", model))
    since = pl.col("start_ns").fill_null(0) >= pl.col("decided_ns")
    tool = (pl.col("kind").is_in(("tool", "retrieval")) | pl.col("in_tool")) & since
    asked = (acts & since & (pl.col("kind") == "llm")).any().over("trace_id", "step")
    direct = (
        pl.when("below")
        .then(True)
        .when("by_model")
        .then(tool)
        .when(pl.col("by_model").is_null())
        .then((acts & since) | (tool & asked))
    ).fill_null(False)
    stops = pl.col("action") == STOP
    return every.with_columns(
        since=since, named=(direct | (since & ~direct.any().over("trace_id", "step"))) & ~stops
    ).select(pl.exclude("place", "head", "own", "tried", "in_tool", "by_model", "action", "decided_ns"))


def last_before(found: pl.DataFrame, decisions: pl.DataFrame, *, before_first: int = 0) -> pl.Series:
    """(n,) of each row (trace_id, start_ns) the step of the last decision that began no later."""
    marks = pl.concat(
        [
            decisions.select("trace_id", "start_ns", "step", place=pl.lit(-1, pl.Int64)),
            found.select(
                "trace_id",
                pl.col("start_ns").fill_null(-1),
                step=pl.lit(None, pl.Int64),
                place=pl.int_range(pl.len(), dtype=pl.Int64),
            ),
        ]
    ).sort("trace_id", "start_ns", "place", "step", nulls_last=True)
    filled = marks.with_columns(pl.col("step").forward_fill().over("trace_id").fill_null(before_first))
    return filled.filter(pl.col("place") >= 0).sort("place")["step"]
