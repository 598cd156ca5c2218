"""Scores as signals of quality: what they cover, how late they come, and how far a judge agrees with others. No cache.

Looked at are the newest scores (`MOST`), which tell as much of delay and agreement as all of them would, and in a large
home cost far less to read; traces are counted from the same time on.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import polars as pl

from dashboard import data
from dashboard.figures import DAY_NS
from dashboard.records import ServiceVerdict
from optimizer.config import ServiceSettings
from optimizer.dataset import JUDGE
from optimizer.decisions import NO_JUDGES, quality_name, source_kind
from optimizer.judges import BINS, Agreement, agreement

MOST = 100_000
LATE_NS = 14 * DAY_NS
"""Scores of traces that began before a day are looked for so much longer."""


@dataclass(frozen=True, eq=False)
class Signals:
    """What scores say of the traces that began within a time, of one service or of all."""

    given: int
    """Scores of that time; the newest `MOST` are looked at."""
    from_ns: int | None
    """Since when they are looked at; None: all are."""
    scores: pl.DataFrame
    """Rows of the query `scores_judging`, with `kind` (see `decisions.source_kind`), `judged` (a judge's) and `main`
    (of the name that means quality for its service)."""
    names: Mapping[str, str]
    """Service -> the name of the score that means quality."""
    traces: pl.DataFrame
    """service, model, traces."""

    @property
    def cut(self) -> bool:
        return self.from_ns is not None


def load(
    service: str | None, since_ns: int | None, until_ns: int | None, verdicts: Mapping[str, ServiceVerdict]
) -> Signals:
    """The signals of the lake as it is now."""
    last = None if until_ns is None else until_ns + LATE_NS
    for most in (MOST, 4 * MOST, 16 * MOST):  # of a service with few scores some more of all are looked through
        reach = data.lake("score_reach", since_ns=since_ns, until_ns=last, most=most).row(0, named=True)
        first = max(since_ns or 0, reach["from_ns"]) or None
        rows = data.lake("scores_judging", service=service, since_ns=first, until_ns=last)
        if service is None or not reach["from_ns"] or rows.height >= MOST // 10:
            break
    traces = data.lake("trace_models", service=service, since_ns=first, until_ns=until_ns)
    within = pl.col("start_ns").is_null() | pl.col("start_ns").is_between(
        first or 0, until_ns if until_ns is not None else 2**62, closed="left"
    )
    settings = data.services_settings()
    names = _names(rows, verdicts, settings)
    told = _sided(rows.filter(within), names, settings)
    return Signals(int(reach["scores"]), reach["from_ns"] or None, told, names, traces)


def _names(
    rows: pl.DataFrame, verdicts: Mapping[str, ServiceVerdict], settings: Mapping[str, ServiceSettings]
) -> dict[str, str]:
    found = {}
    for name in rows["service"].drop_nulls().unique().sort().to_list():
        own = settings.get(name, ServiceSettings())
        judged = verdicts[name].coverage.quality_name if name in verdicts else None
        told = own.quality or judged or quality_name(rows.filter(pl.col("service") == name), None, own.judge)
        if told:
            found[name] = told
    return found


def _sided(rows: pl.DataFrame, names: Mapping[str, str], settings: Mapping[str, ServiceSettings]) -> pl.DataFrame:
    """The rows with kind, judged and main, as a night tells judges from others (see `decisions.find_decisions`)."""
    judges = {name: one.judge for name, one in settings.items() if one.judge}
    kind = source_kind()
    service = pl.col("service")
    main = pl.col("name") == service.replace_strict(dict(names), default=None, return_dtype=pl.String)
    named = pl.col("name") == service.replace_strict(judges, default=None, return_dtype=pl.String)
    by_judge = (named & ~kind.is_in(NO_JUDGES).fill_null(False)) | (kind == JUDGE)
    return rows.with_columns(kind=kind, judged=by_judge.fill_null(False), main=main.fill_null(False))


def by_name(signals: Signals) -> pl.DataFrame:
    """name, source, scores, traces (with one that means something), coverage (of all traces), mean, delay_p50_s,
    delay_p90_s, unmapped, drawn, least_probability, of_steps, main, last_ns; those of most scores first."""
    total = int(signals.traces["traces"].sum())
    useful = pl.col("value01").is_not_null()
    found = signals.scores.group_by("name", "source").agg(
        scores=pl.len().cast(pl.Int64),
        traces=pl.col("trace").filter(useful & pl.col("there")).n_unique().cast(pl.Int64),
        mean=pl.col("value01").mean(),
        delay_p50_s=pl.col("delay_s").quantile(0.5, "linear"),
        delay_p90_s=pl.col("delay_s").quantile(0.9, "linear"),
        unmapped=(~useful).sum().cast(pl.Int64),
        drawn=pl.col("probability").count().cast(pl.Int64),
        least_probability=pl.col("probability").min(),
        of_steps=pl.col("of_step").sum().cast(pl.Int64),
        main=pl.col("main").any(),
        last_ns=pl.col("time_ns").max(),
    )
    share = pl.col("traces") / total if total else pl.lit(None, pl.Float64)
    return found.with_columns(coverage=share).sort("scores", "name", "source", descending=[True, False, False])


def by_model(signals: Signals) -> pl.DataFrame:
    """service, model, traces, scored (traces with the score that means quality for the service), mean, delay_p50_s,
    delay_p90_s; those of most traces first."""
    useful = signals.scores.filter(pl.col("main") & pl.col("value01").is_not_null() & pl.col("there"))
    scored = useful.group_by("service", "model").agg(
        scored=pl.col("trace").n_unique().cast(pl.Int64),
        mean=pl.col("value01").mean(),
        delay_p50_s=pl.col("delay_s").quantile(0.5, "linear"),
        delay_p90_s=pl.col("delay_s").quantile(0.9, "linear"),
    )
    joined = signals.traces.join(scored, on=["service", "model"], how="left", nulls_equal=True)
    return joined.with_columns(pl.col("scored").fill_null(0)).sort(
        "traces", "service", "model", descending=[True, False, False]
    )


def by_day(signals: Signals) -> pl.DataFrame:
    """name, day_ns, scores, mapped, mean, low, high: of each day on which scores were given, with the 95 % interval of
    the mean (of large samples); by name and day."""
    day = pl.col("time_ns") - pl.col("time_ns") % DAY_NS
    found = (
        signals.scores.filter(pl.col("time_ns") > 0)
        .group_by("name", day_ns=day)
        .agg(
            scores=pl.len().cast(pl.Int64),
            mapped=pl.col("value01").count().cast(pl.Int64),
            mean=pl.col("value01").mean(),
            spread=pl.col("value01").std(),
        )
    )
    half = 1.96 * pl.col("spread").fill_null(0.5) / pl.col("mapped").sqrt()
    low, high = (pl.col("mean") - half).clip(0, 1), (pl.col("mean") + half).clip(0, 1)
    return found.with_columns(low=low, high=high).drop("spread").sort("name", "day_ns")


def distribution(signals: Signals) -> pl.DataFrame:
    """service, model, bin (tenths from 0), scores, share: how the values that mean quality are spread."""
    useful = signals.scores.filter(pl.col("main") & pl.col("value01").is_not_null() & pl.col("there"))
    place = (pl.col("value01") * BINS).floor().clip(0, BINS - 1).cast(pl.Int64)
    counted = useful.group_by("service", "model", bin=place).agg(scores=pl.len().cast(pl.Int64))
    return counted.with_columns(share=pl.col("scores") / pl.col("scores").sum().over("service", "model")).sort(
        "service", "model", "bin"
    )


@dataclass(frozen=True)
class Pair:
    """A judge's score beside another of the same targets."""

    judge: str
    other: str
    of: str
    """trace or step."""
    found: Agreement


def pairs(signals: Signals) -> list[Pair]:
    """Each judge's score beside each that means quality or that a person or a program gave, of the same trace or step;
    the newest of each counts. Those of most pairs first."""
    told = signals.scores.filter(pl.col("value01").is_not_null() & pl.col("trace").is_not_null())
    key = ["trace", "part", "name"]
    newest = (
        told.sort("time_ns")
        .group_by(*key, "judged", maintain_order=True)
        .agg(pl.col("value01").last(), counts=pl.col("main").last() | pl.col("kind").last().is_in(NO_JUDGES))
    )
    judged = newest.filter("judged").select("trace", "part", judge_name="name", judge="value01")
    others = newest.filter(~pl.col("judged") & pl.col("counts").fill_null(False))
    both = others.join(judged, on=["trace", "part"], how="inner", nulls_equal=True).with_columns(
        of=pl.when(pl.col("part").is_null()).then(pl.lit("trace")).otherwise(pl.lit("step"))
    )
    found = []
    for (judge, other, of), rows in both.group_by("judge_name", "name", "of"):
        values = (rows[name].to_numpy().astype(np.float64) for name in ("judge", "value01"))
        found.append(Pair(str(judge), str(other), str(of), agreement(*values)))
    return sorted(found, key=lambda pair: (-pair.found.pairs, pair.judge, pair.other, pair.of))
