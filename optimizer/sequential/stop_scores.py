"""Which scores judge which step of a trace, and what the quality would be if the trace had stopped there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import polars as pl

from optimizer.decisions import source_kind
from optimizer.sequential.decided import last_before


@dataclass(frozen=True)
class StepScore:
    """Which score says what quality a trace would have if it stopped after a step: None: "step_" and the name of the
    service's quality. Of the last step that has one, or the best so far."""

    name: str | None = None
    of: Literal["last", "best"] = "last"


def scored_steps(
    every: pl.DataFrame,
    decisions: pl.DataFrame,
    scores: pl.DataFrame,
    spans: pl.DataFrame | None,
    quality_names: Mapping[str, str | None],
    step_scores: Mapping[str, StepScore],
) -> pl.DataFrame:
    """The scores of steps: trace_id, step, value, kind (of what gave it), time_ns, score_id."""
    names = {service: score_name(service, quality_names, step_scores) for service in quality_names}
    wanted = pl.DataFrame(list(names.items()), schema={"service": pl.String, "name": pl.String}, orient="row")
    services = decisions.select("trace_id", "service").unique()
    return (
        scores.filter(pl.col("value01").is_not_null() & pl.col("trace_id").is_not_null())
        .select(*("trace_id", "span_id", "name", "time_ns", "score_id"), value="value01", kind=source_kind())
        .join(services, on="trace_id")
        .join(wanted, on=["service", "name"], how="semi")
        .join(_steps_of_spans(every, decisions, spans), on=["trace_id", "span_id"])
        .select("trace_id", "step", "value", "kind", "time_ns", "score_id")
        .sort("trace_id", "step", "time_ns", "score_id")
    )


def _steps_of_spans(every: pl.DataFrame, decisions: pl.DataFrame, spans: pl.DataFrame | None) -> pl.DataFrame:
    """trace_id, span_id, step of the spans that are of one step: calls below its decision, or begun and ended before
    the next; the decision's own span; of other spans those that last over no more than one decision's start, which
    belong to the step in which they end."""
    following = decisions.select("trace_id", step=pl.col("step") - 1, following_ns="start_ns")
    inside = pl.col("since") & (pl.col("end_ns") <= pl.col("following_ns")).fill_null(True)
    calls = (
        every.join(following, on=["trace_id", "step"], how="left")
        .filter(pl.col("below") | inside)
        .select("trace_id", "span_id", "step")
    )
    found = [calls, decisions.select("trace_id", "span_id", "step")]
    if spans is not None:
        shown = spans.select("trace_id", "span_id", call_id=pl.col("call_id")).join(
            calls.rename({"span_id": "call_id"}), on=["trace_id", "call_id"]
        )
        apart = spans.filter(pl.col("call_id").is_null() & pl.col("start_ns").is_not_null())
        apart = apart.join(decisions.select("trace_id").unique(), on="trace_id", how="semi", maintain_order="left")
        ends = apart.select("trace_id", start_ns=pl.max_horizontal("start_ns", "end_ns"))
        apart = apart.select("trace_id", "span_id").with_columns(
            step=last_before(ends, decisions, before_first=-1),
            begun=last_before(apart.select("trace_id", "start_ns"), decisions, before_first=-1),
        )
        apart = apart.filter((pl.col("step") >= 0) & (pl.col("step") - pl.col("begun") <= 1))
        found += [shown.select("trace_id", "span_id", "step"), apart.select("trace_id", "span_id", "step")]
    return pl.concat(found).unique(["trace_id", "span_id"], keep="first", maintain_order=True)


def score_name(
    service: str, quality_names: Mapping[str, str | None], step_scores: Mapping[str, StepScore]
) -> str | None:
    """The name of the score that says what stopping after a step gives; None where nothing names the quality."""
    stated, quality = step_scores.get(service, StepScore()).name, quality_names.get(service)
    return stated or (None if quality is None else f"step_{quality}")


def stop_quality(rows: pl.DataFrame, scored: pl.DataFrame, step_scores: Mapping[str, StepScore]) -> pl.Series:
    """(n,) of the steps before each row the last score, or the best; null without one."""
    of_step = scored.group_by("trace_id", "step", maintain_order=True).agg(pl.col("value").last())
    best = pl.col("service").is_in([service for service, one in step_scores.items() if one.of == "best"])
    value = pl.when(best).then(pl.col("value").cum_max().over("trace_id")).otherwise("value")
    return (
        rows.select("trace_id", "step", "service")
        .join(of_step, on=["trace_id", "step"], how="left", maintain_order="left")
        .select(value.alias("value"), "trace_id")
        .select(pl.col("value").forward_fill().shift(1).over("trace_id"))["value"]
    )
