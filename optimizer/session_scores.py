"""Scores that name only a session, joined to the decision that they judge.

A session's score is an outcome of the whole session. It is that of a decision where the session has no other: in a
service in which it made one decision, or whose settings say that a session is one decision (`sticky`) or one episode
(see `sequential.sessions`). Where a session made several decisions on their own, its score is none of theirs: copied to
each it would count one judgement several times and lay to each what the others did. It then reaches no decision, and
`retroute doctor` says so.
"""

from __future__ import annotations

from collections.abc import Collection

import polars as pl

from optimizer.decisions import MODEL_KINDS

_TARGETS = ("trace_id", "span_id", "response_id")


def placed(scores: pl.DataFrame, calls: pl.DataFrame, sticky: Collection[str] = ()) -> pl.DataFrame:
    """Scores, and those of sessions once more with the trace_id and service of the decision that they judge.

    scores: rows of the query `scores`; calls: with trace_id, span_id, service, session_id, kind and start_ns. Of a
    service in `sticky` the decision is that of the session's first trace, of others its only one.
    """
    bare = scores.filter(pl.all_horizontal(pl.col(name).is_null() for name in _TARGETS if name in scores.columns))
    if bare["session_id"].is_null().all():
        return scores
    judged = _decisions(calls).filter((pl.col("decisions") == 1) | pl.col("service").is_in(list(sticky)))
    found = bare.drop("trace_id", "service").join(judged, on="session_id", how="inner", maintain_order="left")
    return pl.concat([scores, found.select(scores.columns)])


def _decisions(calls: pl.DataFrame) -> pl.DataFrame:
    """Per session and service the first trace with a model call, and how many there are."""
    traces = (
        calls.sort("start_ns", "span_id")
        .group_by("trace_id", maintain_order=True)
        .agg(pl.col("service", "session_id").drop_nulls().first(), decides=pl.col("kind").is_in(MODEL_KINDS).any())
        .filter(pl.col("decides") & pl.col("session_id").is_not_null())
    )
    return traces.group_by("service", "session_id", maintain_order=True).agg(
        pl.col("trace_id").first(), decisions=pl.len()
    )
