"""Traces in, step rows out: what an app decided one time after the other, what each decision cost and what was known.

The rows of a trace together cost what the trace cost, helpers and aggregation included. What is known at a decision is
what had ended before it (see `histories`); of the prompt, the first one of the trace, from the decision on whose step
it was sent in. Traces without an outcome are rows like others, with null. `decided` says which decisions there are, and
what is left out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from types import MappingProxyType

import numpy as np
import polars as pl

from optimizer import decisions as single
from optimizer import prompts
from optimizer.dataset import Floats
from optimizer.runtime import DENSE, DIM, STEP_DENSE, decode_features, decode_orchestration
from optimizer.sequential import histories
from optimizer.sequential.decided import decided, placed
from optimizer.sequential.stop_scores import StepScore, score_name, scored_steps, stop_quality

COLUMNS: Mapping[str, pl.DataType | type[pl.DataType]] = {
    **single.COLUMNS,
    "step_features": pl.Array(pl.Float32, len(STEP_DENSE)),
    "stop_quality": pl.Float64,
    "explored": pl.Boolean,
}
"""Of a row: `decision_id` is trace_id/step, steps from 0. `time_ns` is when it was decided; `cost_usd`, `billed_usd`
and `latency_s` are of what happened until the next decision, after STOP too (an aggregation). `quality` is the trace's,
on all of its rows. `step_features`: of what was known of the steps before. `stop_quality`: what the quality would have
been without this decision and all after it; null where nobody knows. `explored`: drawn in order to learn."""

UNPLACED = "workflow"
"""The point of traces that nothing names, not even a model call."""
_HISTORY = DENSE.index("history")

Texts = Callable[[Sequence[str]], pl.DataFrame]
"""Ids of traces -> rows of the query `step_texts`."""


@dataclass(frozen=True, eq=False)
class Steps:
    """All decisions of some traces."""

    rows: pl.DataFrame
    """Those of orchestrated points, with columns `COLUMNS`, by time of their trace."""
    decisions: pl.DataFrame
    """All, with less: trace_id, service, point, step, action, logged, propensity, candidates, probabilities and
    stop_quality."""
    points: pl.DataFrame
    """service, point, orchestrated, why (not; null where it is)."""
    left_out: pl.DataFrame
    """service, point, reason, traces."""
    outside: pl.DataFrame
    """service, point, tokens_share, cost_share: of all tokens and costs those outside of what the actions name, such as
    helpers and aggregation. Null without any."""


def find_steps(
    calls: pl.DataFrame,
    spans: pl.DataFrame,
    scores: pl.DataFrame,
    quality_names: Mapping[str, str | None],
    judge_names: Mapping[str, str | None] = MappingProxyType({}),
    *,
    scored_spans: pl.DataFrame | None = None,
    texts: Texts | None = None,
    step_scores: Mapping[str, StepScore] = MappingProxyType({}),
    orchestrate: Mapping[str, bool | None] = MappingProxyType({}),
    with_rows: bool = True,
) -> Steps:
    """The decisions of all traces.

    calls, scores, quality_names, judge_names: as for `decisions.find_decisions`. spans, scored_spans: rows of the
    queries of these names (`decision_spans`); without scored_spans, scores of spans that are neither calls nor
    decisions say nothing. texts: asked for the traces of orchestrated points; without, outputs are not known.
    step_scores, orchestrate: per service, what its settings say. with_rows: False leaves `rows` empty, which saves most
    of the time.

    A point is orchestrated where a trace has two decisions or more and there is something to learn: probabilities are
    logged at a step after the first, or a step's quality is known; or where `orchestrate` says so.
    """
    firsts = single.first_calls(calls).with_columns(
        pl.col("point").fill_null(UNPLACED), pl.col("service").fill_null("")
    )
    calls = calls.drop("service").join(firsts.select("trace_id", "service", "point"), on="trace_id")
    calls = calls.sort("trace_id", "start_ns", "span_id")
    found = decided(calls, spans)
    every = placed(calls, found.decisions)
    scored = scored_steps(every, found.decisions, scores, scored_spans, quality_names, step_scores)
    rows = single.with_propensities(found.decisions)
    rows = rows.with_columns(stop_quality=stop_quality(rows, scored, step_scores))
    points = _points(rows, quality_names, step_scores, orchestrate)
    chosen = points.filter("orchestrated").select("service", "point")
    wanted = rows.join(chosen, on=["service", "point"], how="semi", maintain_order="left")
    wanted = wanted if with_rows else wanted.clear()
    firsts = firsts.join(wanted.select("trace_id").unique(), on="trace_id", how="semi")
    labelled = single.with_labels(firsts, calls, scores, quality_names, judge_names)
    labelled = labelled.select("trace_id", "group", "quality", "label_source", "judge")
    return Steps(
        _whole(wanted, every, scored, labelled, texts),
        rows.select(
            *("trace_id", "service", "point", "step", "action", "logged"),
            *("propensity", "candidates", "probabilities", "stop_quality"),
        ),
        points,
        found.left_out,
        _outside(every),
    )


def _points(
    rows: pl.DataFrame,
    quality_names: Mapping[str, str | None],
    step_scores: Mapping[str, StepScore],
    orchestrate: Mapping[str, bool | None],
) -> pl.DataFrame:
    found = rows.group_by("service", "point").agg(
        steps=pl.col("step").max() + 1,
        logged=(pl.col("probabilities").is_not_null() & (pl.col("step") > 0)).any(),
        scored=pl.col("stop_quality").is_not_null().any(),
    )
    told = []
    for service, point, steps, logged, scored in found.sort("service", "point").iter_rows():
        name = score_name(service, quality_names, step_scores)
        told.append((service, point, _why_not(steps, logged, scored, name, orchestrate.get(service))))
    schema = {"service": pl.String, "point": pl.String, "why": pl.String}
    return pl.DataFrame(told, schema=schema, orient="row").select(
        "service", "point", pl.col("why").is_null().alias("orchestrated"), "why"
    )


def _why_not(steps: int, logged: bool, scored: bool, score: str | None, stated: bool | None) -> str | None:
    if steps < 2:
        return "no trace has two decisions"
    if stated is False:
        return "orchestrate = false"
    if stated or logged or scored:
        return None
    named = f"no score {score} says" if score else "no score of a step says"
    return (
        "nothing to learn from: no step after the first logs the probabilities of its candidates, and "
        f"{named} what stopping after a step gives"
    )


def _outside(every: pl.DataFrame) -> pl.DataFrame:
    tokens = pl.sum_horizontal("input_tokens", "output_tokens")
    apart = ~pl.col("named")
    return (
        every.group_by("service", "point")
        .agg(
            tokens_share=tokens.filter(apart).sum() / tokens.sum(),
            cost_share=pl.col("cost_usd").filter(apart).sum() / pl.col("cost_usd").sum(),
        )
        .with_columns(pl.col("tokens_share", "cost_share").fill_nan(None))
        .sort("service", "point")
    )


def _whole(
    rows: pl.DataFrame, every: pl.DataFrame, scored: pl.DataFrame, labelled: pl.DataFrame, texts: Texts | None
) -> pl.DataFrame:
    """The columns `COLUMNS`. labelled: trace_id, group, quality, label_source and judge of each trace."""
    every = every.join(rows.select("trace_id").unique(), on="trace_id", how="semi", maintain_order="left")
    told = pl.DataFrame(
        schema={"trace_id": pl.String, "span_id": pl.String, "input_text": pl.String, "output_text": pl.String}
    )
    if texts is not None and len(rows):
        told = texts(rows["trace_id"].unique(maintain_order=True).to_list())
    every = every.join(
        told.select("trace_id", "span_id", "output_text", other_input="input_text"),
        on=["trace_id", "span_id"],
        how="left",
        maintain_order="left",
    )
    features, step_features = _features(rows, every), histories.features_of(rows, _ended(every), _signals(scored))
    for place, text in enumerate(rows["policy_features"].to_list()):
        if text:
            _take_logged(text, features[place], step_features[place])
    rows = (
        rows.join(_spent(rows, every), on=["trace_id", "step"], how="left", maintain_order="left")
        .join(labelled, on="trace_id", how="left", maintain_order="left")
        .with_columns(
            decision_id=pl.concat_str("trace_id", "step", separator="/"),
            time_ns="start_ns",
            label_probability=pl.lit(None, pl.Float64),
            features=pl.Series(features, dtype=pl.Array(pl.Float32, DIM)),
            step_features=pl.Series(step_features, dtype=pl.Array(pl.Float32, len(STEP_DENSE))),
        )
    )
    return rows.sort(pl.col("time_ns").first().over("trace_id"), "trace_id", "step").select(
        pl.col(name).cast(kind) for name, kind in COLUMNS.items()
    )


def _spent(rows: pl.DataFrame, every: pl.DataFrame) -> pl.DataFrame:
    """trace_id, step, cost_usd, billed_usd, latency_s of each row. Without any call that was to be priced, the cost of
    a trace is not known."""
    names = ("cost_usd", "unpriced"), ("billed_usd", "billed_unpriced")
    priced = every.group_by("trace_id").agg(
        *((pl.col(usd).is_not_null() | single.cost_unknown(usd, why)).any().alias(f"{usd}_told") for usd, why in names),
        begun=pl.col("start_ns").min(),
        ended=pl.col("end_ns").max(),
    )
    sums = every.group_by("trace_id", "step").agg(*(single.cost(usd, why) for usd, why in names), calls=pl.len())
    start = pl.col("start_ns")
    first, last = pl.min_horizontal(start, "begun"), pl.max_horizontal("ended", "end_ns", start)
    seconds = (
        start.shift(-1).over("trace_id").fill_null(last) - pl.when(pl.col("step") == 0).then(first).otherwise(start)
    ) / 1e9
    return (
        rows.select("trace_id", "step", "start_ns", "end_ns")
        .join(priced, on="trace_id", how="left", maintain_order="left")
        .join(sums, on=["trace_id", "step"], how="left", maintain_order="left")
        .select(
            "trace_id",
            "step",
            *(
                pl.when(f"{usd}_told").then(pl.when(pl.col("calls").is_null()).then(0.0).otherwise(usd)).alias(usd)
                for usd, _ in names
            ),
            latency_s=seconds,
        )
    )


def _ended(every: pl.DataFrame) -> pl.DataFrame:
    """The calls as `histories.features_of` wants them. One without an end counts as ended when it began."""
    says = pl.col("named") & (pl.col("kind") != "chain")
    return every.select(
        "trace_id",
        "step",
        "span_id",
        pl.max_horizontal("start_ns", "end_ns").fill_null(0).alias("end_ns"),
        "cost_usd",
        single.cost_unknown("cost_usd", "unpriced").alias("unknown"),
        pl.when(pl.col("input_tokens").is_not_null() | pl.col("output_tokens").is_not_null())
        .then(pl.sum_horizontal("input_tokens", "output_tokens"))
        .alias("tokens"),
        pl.when("named").then("status").alias("status"),
        pl.when(says).then("output_text").alias("output_text"),
    ).filter(pl.any_horizontal(pl.col("cost_usd", "tokens", "status", "output_text").is_not_null()) | pl.col("unknown"))


def _signals(scored: pl.DataFrame) -> pl.DataFrame:
    return scored.filter((pl.col("kind") == "check") & pl.col("time_ns").is_not_null())


def _features(rows: pl.DataFrame, every: pl.DataFrame) -> Floats:
    """(n, DIM) of the first prompt of each trace, from the decision on whose step it was sent in, and of the tools
    offered in the first step; with the number of steps before."""
    prompt = pl.coalesce("input_text", "other_input")
    of_trace = every.group_by("trace_id", maintain_order=True).agg(
        text=prompt.drop_nulls().first(),
        since=pl.col("step").filter(prompt.is_not_null()).first(),
        tools=pl.col("tools_offered").filter(pl.col("step") == 0).drop_nulls().first(),
    )
    found: Floats = np.zeros((len(rows), DIM), dtype=np.float32)
    steps = rows["step"].to_numpy()
    joined = rows.select("trace_id", "step").join(of_trace, on="trace_id", how="left", maintain_order="left")
    starts = [*np.flatnonzero(steps == 0).tolist(), len(rows)]
    for first, end in pairwise(starts):
        _, _, text, since, tools = joined.row(first)
        offered = single.parsed(tools)
        told = first + (since if text is not None else end)
        found[first:told] = prompts.features(None, offered) if told > first else 0.0
        if told < end:
            found[told:end] = prompts.features(single.parsed(text), offered)
    found[:, _HISTORY] = np.log1p(steps).astype(np.float16)
    return found


def _take_logged(text: str, features: Floats, step_features: Floats) -> None:
    """Puts the features that the router logged in the place of the computed ones; those of other rules stand for
    nothing."""
    try:
        features[:] = decode_features(text)
        return
    except ValueError:
        pass
    try:
        whole = decode_orchestration(text)
    except ValueError:
        return
    features[:], step_features[:] = whole[:DIM], whole[DIM : DIM + len(STEP_DENSE)]
