"""A session as one episode: its traces joined into one, for services whose settings say `episode = "session"`.

The joined trace has the id of the session's first one. Time between two traces, in which nobody worked but the user,
is taken out, so that latency is time spent working; what came after the first trace is dated earlier by as much. The
quality of a session is its last score, given to the session or to one of its traces.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import polars as pl


@dataclass(frozen=True, eq=False)
class Sessions:
    """Which traces are one episode. Frames without any are returned as they are."""

    places: pl.DataFrame
    """trace_id, episode (the trace that gives its id), earlier_ns (time to take out before the trace)."""
    names: pl.DataFrame
    """service, session_id, episode; a session that two services share is in it twice."""

    def joined(self, rows: pl.DataFrame) -> pl.DataFrame:
        """rows: with trace_id, and maybe start_ns and end_ns. The same rows under their episode's id."""
        if self.places.is_empty():
            return rows
        times = [name for name in ("start_ns", "end_ns") if name in rows.columns]
        return (
            rows.join(self.places, on="trace_id", how="left", maintain_order="left")
            .with_columns(
                pl.coalesce("episode", "trace_id").alias("trace_id"),
                *((pl.col(name) - pl.col("earlier_ns").fill_null(0)).alias(name) for name in times),
            )
            .drop("episode", "earlier_ns")
        )

    def judged(self, scores: pl.DataFrame) -> pl.DataFrame:
        """Scores (with trace_id, session_id and service) under the ids of episodes. One that names only a session
        becomes the episode's; where two services share the session, that of each."""
        if self.places.is_empty():
            return scores
        bare = pl.col("trace_id").is_null() & pl.col("response_id").is_null() & pl.col("session_id").is_not_null()
        of_sessions = (
            scores.filter(bare)
            .join(self.names, on="session_id", how="inner", suffix="_named", maintain_order="left")
            .with_columns(trace_id="episode", service="service_named")
            .select(scores.columns)
        )
        return pl.concat([self.joined(scores), of_sessions])

    def traces(self, episodes: Collection[str]) -> list[str]:
        """The ids of all traces of some episodes."""
        inside = self.places.filter(pl.col("episode").is_in(list(episodes)))["trace_id"].to_list()
        return inside + [one for one in episodes if one not in set(inside)]


def sessions(calls: pl.DataFrame, services: Collection[str]) -> Sessions:
    """calls: with trace_id, service, session_id, start_ns and end_ns (one without an end counts as ended when it
    began). services: whose sessions are episodes. A trace without a session stays an episode of its own; one that names
    several belongs to the first, and a trace that two services share to the service that began it."""
    own = (
        calls.sort("start_ns", "span_id")
        .group_by("trace_id", maintain_order=True)
        .agg(
            pl.col("service").drop_nulls().first(),
            pl.col("session_id").drop_nulls().first(),
            begun=pl.col("start_ns").min(),
            ended=pl.max_horizontal("start_ns", "end_ns").max(),
        )
        .filter(
            pl.col("service").is_in(list(services)) & pl.col("session_id").is_not_null() & pl.col("begun").is_not_null()
        )
        .sort("service", "session_id", "begun", "trace_id")
    )
    of = ("service", "session_id")
    so_far = pl.col("ended").cum_max().shift(1).over(of)
    idle = (pl.col("begun") - so_far).clip(lower_bound=0).fill_null(0)
    placed = own.with_columns(episode=pl.col("trace_id").first().over(of), idle=idle).with_columns(
        earlier_ns=pl.col("idle").cum_sum().over(of)
    )
    return Sessions(placed.select("trace_id", "episode", "earlier_ns"), placed.select(*of, "episode").unique())
