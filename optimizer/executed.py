"""What was carried out of a decision: the action that was chosen, or the model that a gateway fell back to."""

from __future__ import annotations

import polars as pl

from optimizer.decisions import MODEL_KINDS


def marked(decisions: pl.DataFrame, calls: pl.DataFrame, fallbacks: pl.DataFrame) -> pl.DataFrame:
    """The decisions with `executed`: their action, or the model that answered instead of it; null where no router chose
    or no call of the choice succeeded.

    decisions: with trace_id, service and action. calls: rows of the query `decision_calls`; fallbacks: those of the
    query of that name, which knows whether an action names the model that answered.
    """
    answered = (
        calls.filter(
            pl.col("kind").is_in(MODEL_KINDS)
            & pl.col("attempt_of").is_null()
            & pl.col("status").ne_missing("error")
            & pl.col("policy_action").is_not_null()
        )
        .sort("start_ns", "span_id")
        .group_by("trace_id", pl.col("policy_action").alias("action"))
        .agg(pl.coalesce("model_returned", "model_requested").drop_nulls().first().alias("answered_by"))
        .filter(pl.col("answered_by").is_not_null())
    )
    fell_back = fallbacks.select("service", "action", "answered_by", fell_back=pl.lit(True))
    return (
        decisions.join(answered, on=["trace_id", "action"], how="left", maintain_order="left")
        .join(fell_back, on=["service", "action", "answered_by"], how="left", maintain_order="left", nulls_equal=True)
        .with_columns(
            executed=pl.when("fell_back").then("answered_by").when(pl.col("answered_by").is_not_null()).then("action")
        )
        .drop("answered_by", "fell_back")
    )
