"""Settled calls in, decisions out: where an app chose, what it chose, with what probability, and what came of it.

One decision per trace here: the first one, judged by the whole trace (its cost, its duration, its score). A decision
point is named by the workflow or agent that the trace starts with, else by the call itself.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from types import MappingProxyType

import numpy as np
import polars as pl

from optimizer import prompts
from optimizer.dataset import JUDGE, Bools, Floats
from optimizer.one_list import FAILED_WITHOUT_USAGE
from optimizer.runtime import DIM, decode_features, opening

MODEL_KINDS = ("llm", "embedding")
COLUMNS: Mapping[str, pl.DataType | type[pl.DataType]] = {
    "decision_id": pl.String,
    "trace_id": pl.String,
    "span_id": pl.String,
    "service": pl.String,
    "point": pl.String,
    "step": pl.Int64,
    "time_ns": pl.Int64,
    "group": pl.String,
    "action": pl.String,
    "candidates": pl.List(pl.String),
    "probabilities": pl.List(pl.Float64),
    "propensity": pl.Float64,
    "propensity_origin": pl.String,
    "quality": pl.Float64,
    "label_source": pl.String,
    "judge": pl.Float64,
    "label_probability": pl.Float64,
    "cost_usd": pl.Float64,
    "billed_usd": pl.Float64,
    "latency_s": pl.Float64,
    "features": pl.Array(pl.Float32, DIM),
}
"""`propensity` and `propensity_origin` are null until a behaviour is estimated where the log carries none.
`cost_usd` is at one price list, `billed_usd` at the prices of each call's day. `label_source` is what gave `quality`
(see `SOURCES`), null where that was not named. `judge` is a judge's opinion beside it; where a point has nothing else,
that opinion is `quality` and its `label_source` is "judge". `label_probability` is what the scores themselves state
(see `_stated_probability`), until `planned_labels` says otherwise."""

SOURCES: Mapping[str, str] = {
    **dict.fromkeys(("judge", "llm", "llm_judge", "llm_as_judge", "llm_as_a_judge", "ai", "model"), JUDGE),
    **dict.fromkeys(("human", "person", "annotator", "annotation", "expert"), "human"),
    **dict.fromkeys(("user", "end_user", "user_feedback", "feedback"), "user"),
    **dict.fromkeys(("check", "code", "program", "programmatic", "test", "exact", "benchmark"), "check"),
}
"""What a score's source is called -> which kind it is. Others keep their name and count as no judge."""
NO_JUDGES = ("human", "user", "check")


def find_decisions(
    calls: pl.DataFrame,
    scores: pl.DataFrame,
    quality_names: Mapping[str, str | None],
    judge_names: Mapping[str, str | None] = MappingProxyType({}),
    sticky: Collection[str] = (),
) -> pl.DataFrame:
    """The decisions of all traces that hold a model call, ordered by time; columns `COLUMNS`.

    calls: rows of the query `decision_calls` with costs at one price list (see `one_list.with_one_list`). scores: rows
    of the lake's scores. quality_names: per service, the score that means quality (see `quality_name`); judge_names:
    the one in which a judge guesses it, where that has a name of its own. sticky: services whose features are those of
    a conversation's opening, as their router reads them. Cost is null when any call of the trace that was to be priced
    has none; quality when no score of that name has arrived.
    """
    firsts = first_calls(calls).filter("decides")
    if firsts.is_empty():
        return pl.DataFrame(schema=dict(COLUMNS))
    rows = with_labels(firsts, calls, scores, quality_names, judge_names)
    rows = rows.join(_totals(calls), on="trace_id", how="left").sort("time_ns", "trace_id")
    rows = rows.with_columns(label_probability=_stated_probability())
    rows = rows.with_columns(
        decision_id=pl.col("trace_id") + "/0",
        step=pl.lit(0, pl.Int64),
        action=action(),
        features=pl.Series(_features(rows, sticky), dtype=pl.Array(pl.Float32, DIM)),
    )
    rows = with_propensities(rows)
    return rows.select(pl.col(name).cast(kind) for name, kind in COLUMNS.items())


def with_labels(
    firsts: pl.DataFrame,
    calls: pl.DataFrame,
    scores: pl.DataFrame,
    quality_names: Mapping[str, str | None],
    judge_names: Mapping[str, str | None],
) -> pl.DataFrame:
    """Rows of `first_calls` with the trace's quality, label_source, judge, and the probability that the score which
    gave the quality states."""
    rows = firsts.join(_labels(calls, scores, quality_names, judge_names, firsts), on="trace_id", how="left")
    judged_only = pl.col("quality").is_null().all().over("service", "point") & pl.col("judge").is_not_null()
    return rows.with_columns(
        quality=pl.when(judged_only).then("judge").otherwise("quality"),
        label_source=pl.when(judged_only).then(pl.lit(JUDGE)).otherwise("label_source"),
        judge=pl.when(~judged_only).then("judge"),
        score_probability=pl.when(judged_only).then("judge_probability").otherwise("score_probability"),
    ).drop("judge_probability")


def _stated_probability() -> pl.Expr:
    """Of rows with score_probability, what is known of how likely each quality was to be found out.

    A probability states all of why a decision was scored only where every score has one. So it counts in a service from
    its last decision on whose score has none: a scored one has its own, and one without a score was drawn and not
    picked (1, which counts nowhere). What is newer than the newest score may still get one: null.
    """
    scored, stated = pl.col("quality").is_not_null(), pl.col("score_probability").is_not_null()
    time = pl.col("time_ns")
    bare = time.filter(scored & ~stated).max().over("service")
    newest = time.filter(scored & stated).max().over("service")
    drawn = (time > bare).fill_null(True) & (time <= newest).fill_null(False)
    return pl.when(drawn & scored).then("score_probability").when(drawn).then(1.0).cast(pl.Float64)


def with_propensities(rows: pl.DataFrame) -> pl.DataFrame:
    """Rows with policy_propensity, policy_candidates, policy_probabilities (both JSON) and their action -> with the
    logged probabilities as columns, where they can be: see the query `propensity_faults`. A list that cannot be
    discredits the propensity beside it."""
    rows = rows.with_columns(
        candidates=_json_list(rows["policy_candidates"], pl.String),
        probabilities=_json_list(rows["policy_probabilities"], pl.Float64),
    )
    propensity, shares, candidates = pl.col("policy_propensity"), pl.col("probabilities"), pl.col("candidates")
    listed = pl.col("policy_candidates").is_not_null() | pl.col("policy_probabilities").is_not_null()
    whole = (
        (shares.list.len() == candidates.list.len())
        & (shares.list.min() >= 0)
        & ((shares.list.sum() - 1).abs() <= 1e-3)
        & candidates.list.contains(pl.col("action"))
    )
    usable = (propensity > 0) & (propensity <= 1) & (~listed | whole.fill_null(False))
    return rows.with_columns(
        propensity=pl.when(usable).then(propensity),
        propensity_origin=pl.when(usable).then(pl.lit("logged")),
        candidates=pl.when(whole).then(candidates),
        probabilities=pl.when(whole).then(shares),
    )


def quality_name(scores: pl.DataFrame, configured: str | None, judge: str | None = None) -> str | None:
    """The score that means quality for a service: the configured one, else "quality" if there is one, else the only
    one beside the judge's; the judge's where there is no other; else None. A score of steps, "step_" and the name of
    another, is none of these."""
    if configured is not None:
        return configured
    names = set(scores.filter(pl.col("value01").is_not_null())["name"].to_list())
    if "quality" in names:
        return "quality"
    names = names - {judge} or names
    names = {name for name in names if name.removeprefix("step_") == name or name.removeprefix("step_") not in names}
    return str(names.pop()) if len(names) == 1 else None


def first_calls(calls: pl.DataFrame) -> pl.DataFrame:
    """One row per trace: its first call (an agent or chain before the model call that starts with it), the first
    model call's names, and the first policy attributes that any of its calls carries. `decides`: it has a model call.
    `point` is null where nothing names one."""
    ordered = calls.with_columns(
        model_call=pl.col("kind").is_in(MODEL_KINDS), below=pl.col("parent_call_id").is_not_null()
    ).sort("trace_id", "start_ns", "below", "model_call", "span_id", nulls_last=True)
    model = pl.col("model_call")
    policy = ("policy_action", "policy_propensity", "policy_candidates", "policy_probabilities", "policy_features")

    def first_known(name: str, among: pl.Expr | None = None) -> pl.Expr:
        column = pl.col(name) if among is None else pl.col(name).filter(among)
        return column.drop_nulls().first().alias(name)

    return ordered.group_by("trace_id", maintain_order=True).agg(
        pl.col("span_id").first(),
        first_known("service"),
        pl.coalesce(
            pl.col("workflow").first(),
            pl.col("agent").first(),
            pl.col("kind").filter(model).first().replace({"llm": "chat"}),
        ).alias("point"),
        pl.col("start_ns").first().alias("time_ns"),
        pl.coalesce(pl.col("session_id").drop_nulls().first(), pl.col("trace_id").first()).alias("group"),
        pl.coalesce("model_requested", "model_returned").filter(model).first().alias("model"),
        pl.col("reasoning_effort").filter(model).first(),
        pl.col("prompt_name").filter(model).first(),
        pl.col("prompt_version").filter(model).first(),
        first_known("input_text"),
        first_known("tools_offered"),
        *(first_known(name) for name in policy),
        model.any().alias("decides"),
    )


def _totals(calls: pl.DataFrame) -> pl.DataFrame:
    """Per trace: cost over all its calls, failed attempts included, at one price list and as billed; and wall time from
    first start to last end."""
    duration = (pl.col("end_ns").max() - pl.col("start_ns").min()) / 1e9
    return calls.group_by("trace_id").agg(
        cost("cost_usd", "unpriced"),
        cost("billed_usd", "billed_unpriced"),
        pl.when(duration >= 0).then(duration).alias("latency_s"),
    )


def cost(usd: str, unpriced: str) -> pl.Expr:
    """The sum of some calls' costs, null if one that was to be priced is unknown (see `cost_unknown`)."""
    return pl.when(cost_unknown(usd, unpriced).any()).then(None).otherwise(pl.col(usd).sum()).alias(usd)


def cost_unknown(usd: str, unpriced: str) -> pl.Expr:
    """Whether a call was to be priced and is not.

    A failed call that reported no usage is taken as not billed: without that, one retry would hide the cost of its
    trace.
    """
    to_be_priced = pl.col("kind").is_in(MODEL_KINDS) | pl.col(unpriced).is_not_null()
    return to_be_priced & pl.col(usd).is_null() & pl.col(unpriced).ne_missing(FAILED_WITHOUT_USAGE)


def _labels(
    calls: pl.DataFrame,
    scores: pl.DataFrame,
    quality_names: Mapping[str, str | None],
    judge_names: Mapping[str, str | None],
    firsts: pl.DataFrame,
) -> pl.DataFrame:
    """Per trace the last score of its service's quality that no judge gave, what gave it, and the last one that a judge
    gave; joined by trace or else by response id.

    A judge's is a score of the judge's name, unless its source says that a person or a program gave it, and one of the
    quality's name whose source is a judge.
    """
    named_judge = pl.col("name").eq_missing(pl.col("judge_name"))
    named_quality = pl.col("name").eq_missing(pl.col("quality_name"))
    by_judge = (named_judge & ~pl.col("kind").is_in(NO_JUDGES).fill_null(False)) | (
        named_quality & pl.col("kind").eq_missing(pl.lit(JUDGE))
    )
    measured = pl.col("measured")
    return (
        _with_trace(scores, calls)
        .join(firsts.select("trace_id", "service"), on="trace_id", how="inner")
        .join(_wanted(quality_names, judge_names), on="service", how="inner")
        .with_columns(judged=by_judge, measured=named_quality & ~by_judge)
        .with_columns(own=pl.col("judged") & named_judge)  # a judge of its own name goes before others
        .sort("own", "time_ns", "score_id")
        .group_by("trace_id")
        .agg(
            pl.col("value01").filter(measured).last().alias("quality"),
            pl.when(pl.col("kind").filter(measured).last() != "")
            .then(pl.col("kind").filter(measured).last())
            .alias("label_source"),
            pl.col("value01").filter("judged").last().alias("judge"),
            pl.col("probability").filter(measured).last().alias("score_probability"),
            pl.col("probability").filter("judged").last().alias("judge_probability"),
        )
    )


def _with_trace(scores: pl.DataFrame, calls: pl.DataFrame) -> pl.DataFrame:
    """The scores that have a value, with the trace that they name or else the one of the response that they name."""
    by_response = (
        calls.filter(pl.col("response_id").is_not_null())
        .select("response_id", trace_of_response="trace_id")
        .unique("response_id", keep="none")  # an id that recurs names no trace
    )
    if "probability" not in scores.columns:
        scores = scores.with_columns(probability=pl.lit(None, pl.Float64))
    return (
        scores.filter(pl.col("value01").is_not_null())
        .select("trace_id", "response_id", "name", "value01", "time_ns", "score_id", "probability", kind=source_kind())
        .join(by_response, on="response_id", how="left")
        .with_columns(trace_id=pl.coalesce("trace_id", "trace_of_response"))
    )


def _wanted(quality_names: Mapping[str, str | None], judge_names: Mapping[str, str | None]) -> pl.DataFrame:
    """service, quality_name, judge_name: which scores count."""
    return pl.DataFrame(
        [(service, name, judge_names.get(service)) for service, name in quality_names.items()],
        schema={"service": pl.String, "quality_name": pl.String, "judge_name": pl.String},
        orient="row",
    )


def action() -> pl.Expr:
    """The logged action, else model, reasoning effort and - where a point uses several - prompt."""
    prompt = pl.concat_str(
        pl.col("prompt_name").fill_null(""), pl.col("prompt_version").fill_null(""), separator="@"
    ).str.strip_chars("@")
    several_prompts = prompt.n_unique().over("service", "point") > 1
    described = pl.concat_str(
        pl.col("model").fill_null("unknown model"),
        pl.when(pl.col("reasoning_effort").is_not_null())
        .then(pl.lit(":") + pl.col("reasoning_effort"))
        .otherwise(pl.lit("")),
        pl.when(several_prompts & (prompt != "")).then(pl.lit("|") + prompt).otherwise(pl.lit("")),
    )
    return pl.coalesce("policy_action", described)


def source_kind() -> pl.Expr:
    """The kind of a score's source, see `SOURCES`."""
    return pl.col("source").str.to_lowercase().str.replace_all("[- ]", "_").replace(SOURCES)


def _json_list(column: pl.Series, inner: type[pl.DataType]) -> pl.Series:
    """Lists from JSON text; null where it is missing or no list."""
    texts = column.unique()  # few: each is read once
    values = [parsed(text) for text in texts.to_list()]
    lists = pl.Series([v if isinstance(v, list) else None for v in values], dtype=pl.List(inner), strict=False)
    known = pl.DataFrame({"text": texts, "list": lists}, schema={"text": pl.String, "list": pl.List(inner)})
    return pl.DataFrame({"text": column}, schema={"text": pl.String}).join(
        known, on="text", how="left", maintain_order="left"
    )["list"]


def parsed(text: str | None) -> object:
    """The value of a JSON text; None where there is none."""
    if not text:
        return None
    try:
        return json.loads(text)
    except ValueError:
        return None


def _features(rows: pl.DataFrame, sticky: Collection[str]) -> Floats:
    """(n, DIM): the vector that the router logged, else one computed from the recorded messages; of a sticky service
    from their opening, also instead of a logged one where the conversation was further on."""
    features, further = _recomputed(rows, sticky)
    for place, logged in enumerate(rows["policy_features"].to_list()):
        if logged and not further[place]:
            try:
                features[place] = decode_features(logged)
            except ValueError:
                continue  # a vector of other rules: the recomputed one stands
    return features


def _recomputed(rows: pl.DataFrame, sticky: Collection[str]) -> tuple[Floats, Bools]:
    """(n, DIM) from the recorded messages, and (n,) where these went further than the opening that a sticky service
    decides by."""
    features: Floats = np.zeros((len(rows), DIM), dtype=np.float32)
    further = np.zeros(len(rows), dtype=np.bool_)
    columns = (rows[name].to_list() for name in ("input_text", "tools_offered", "service"))
    for place, (text, tools, service) in enumerate(zip(*columns, strict=True)):
        messages = parsed(text)
        if service in sticky and isinstance(messages, list):
            messages, whole = opening({"messages": messages})["messages"], messages
            further[place] = messages != whole
        features[place] = prompts.features(messages, parsed(tools))
    return features, further
