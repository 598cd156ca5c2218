"""Decisions that hold for a session: one row each, since what was inherited is no evidence of its own.

A sticky service decides with a session's first request, so its decision is the session: its outcome is the cost of all
requests together, the mean quality of those that have a score (each counts alike, however many a session has), and the
mean time of a request (what a user waits for). Whatever was decided later (a newer policy, a model that could no longer
serve) is part of what the decision brought about.

That holds where the log drew once a session too. Where each request was drawn by itself, a session that met several
actions tells nothing about keeping one: it counts as `OTHER`, which is never suggested, and the first draw's
probability is not that of the session. It is then estimated, so that nothing is deployed on it.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import polars as pl

from optimizer.logged import OTHER

_MEANS = ("quality", "judge", "latency_s")
_TOTALS = ("cost_usd", "billed_usd")
_BEHAVIOUR = ("candidates", "probabilities", "propensity", "propensity_origin")


def once_a_session(decisions: pl.DataFrame, sticky: Collection[str], inherited: Collection[str]) -> pl.DataFrame:
    """The decisions with one row for each session of a sticky service, and one for those of a session that repeat one
    draw; with `requests`, the number of traces that a row stands for.

    decisions: columns `decisions.COLUMNS`, by time. sticky: names of services. inherited: traces whose decision says
    that it is its session's (`policy.draw`). Costs are unknown if one is. The probability of a score is known of a
    session of one request, and where all were to be scored for certain.
    """
    repeats = pl.col("trace_id").is_in(list(inherited))
    rows = decisions.with_columns(_repeats=repeats, requests=pl.lit(1, pl.Int64))
    once = rows.filter(pl.col("_repeats") | pl.col("service").is_in(list(sticky)))
    if once.is_empty():
        return rows.drop("_repeats")
    scored = pl.col("quality").is_not_null()
    found = once.group_by("service", "group", maintain_order=True).agg(
        pl.all().exclude(*_MEANS, *_TOTALS, "label_source", "label_probability", "requests").first(),
        *(pl.col(name).mean() for name in _MEANS),
        *(
            pl.when(pl.col(name).is_null().any()).then(None).otherwise(pl.col(name).sum()).alias(name)
            for name in _TOTALS
        ),
        pl.col("label_source").filter(scored).drop_nulls().first(),
        pl.when(pl.len() == 1)
        .then(pl.col("label_probability").first())
        .when((scored & (pl.col("label_probability") == 1)).all())
        .then(1.0)
        .alias("label_probability"),
        pl.len().cast(pl.Int64).alias("requests"),
        (pl.col("action").n_unique() > 1).alias("_several"),
    )
    apart = ~pl.col("_repeats") & (pl.col("requests") > 1)
    found = found.with_columns(
        action=pl.when(apart & pl.col("_several")).then(pl.lit(OTHER)).otherwise("action"),
        **{name: pl.when(~apart).then(name) for name in _BEHAVIOUR},
    )
    rest = rows.join(once.select("decision_id"), on="decision_id", how="anti")
    return pl.concat([found.select(rows.columns), rest]).drop("_repeats").sort("time_ns", "trace_id")


def sessions_json(decisions: pl.DataFrame) -> dict[str, Any]:
    """What a run says of a sticky service's decisions: {sessions, requests, several}, the last the number of sessions
    that met several actions."""
    several = (pl.col("action") == OTHER) & (pl.col("requests") > 1) & pl.col("propensity").is_null()
    return {
        "sessions": len(decisions),
        "requests": int(decisions["requests"].sum()),
        "several": int(decisions.select(several.sum()).item()),
    }


def words(said: dict[str, Any]) -> str:
    """`sessions_json` as a sentence."""
    mixed = ""
    if said["several"]:
        mixed = f"; {said['several']:,} met several models and tell nothing about keeping one"
    each = said["requests"] / max(said["sessions"], 1)
    return f"sticky: a decision is a session ({said['sessions']:,}, of {each:.1f} requests in the mean){mixed}"
