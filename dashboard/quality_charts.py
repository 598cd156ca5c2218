"""Signals of quality as charts. No Streamlit here, and no colour: there is no verdict in a score."""

from __future__ import annotations

from collections.abc import Sequence

import altair as alt
import polars as pl

from dashboard import figures
from dashboard.charts import layered, names, ticks
from dashboard.theme import Ink
from optimizer.judges import BINS, Bin

_DAY_MS = 86_400_000


def coverage(rows: pl.DataFrame, ink: Ink) -> alt.LayerChart:
    """Share of the traces that have a score. Columns: label, traces, scored."""
    data = rows.with_columns(share=pl.col("scored") / pl.col("traces")).select(
        "label",
        "share",
        text=pl.struct("share", "traces").map_elements(
            lambda row: f"{figures.share(row['share'])} of {figures.count(row['traces'])}", return_dtype=pl.String
        ),
    )
    order = data["label"].to_list()
    x = alt.X(
        "share:Q",
        title="Traces with a score",
        scale=alt.Scale(domain=[0, 1.45], nice=False),
        axis=ticks(ink, 5, format="%", values=[0, 0.25, 0.5, 0.75, 1]),
    )
    y = alt.Y("label:N", title=None, sort=order, scale=alt.Scale(domain=order, paddingInner=0.4), axis=names(ink))
    base = alt.Chart(data).encode(x=x, y=y)
    tips = [alt.Tooltip("label:N", title="Model"), alt.Tooltip("text:N", title="Scored")]
    bars = base.mark_bar(color=ink.quiet, cornerRadiusEnd=2).encode(tooltip=tips)
    labels = base.mark_text(align="left", dx=5, fontSize=11, color=ink.muted).encode(text="text:N")
    return layered([bars, labels], 64 + 30 * max(len(order), 1))


def days(rows: pl.DataFrame, ink: Ink) -> alt.LayerChart:
    """The mean of each day's scores in its interval. Columns: day_ns, mean, low, high, scores."""
    data = rows.filter(pl.col("mean").is_not_null()).select(
        pl.from_epoch("day_ns", time_unit="ns").dt.replace_time_zone("UTC").alias("day"),
        *(pl.col(name) * 100 for name in ("mean", "low", "high")),
        "scores",
    )
    x = alt.X(
        "day:T", title=None, scale=alt.Scale(type="utc"), axis=ticks(ink, 5, format="%-d %b", tickMinStep=_DAY_MS)
    )
    scale = alt.Scale(domain=[0, 100])
    y = alt.Y("mean:Q", title="Mean score, %", scale=scale, axis=ticks(ink, 5, grid=True))
    tips = [
        alt.Tooltip("utcyearmonthdate(day):T", title="Day (UTC)"),
        alt.Tooltip("mean:Q", title="Mean, %", format=".1f"),
        alt.Tooltip("low:Q", title="At least", format=".1f"),
        alt.Tooltip("high:Q", title="At most", format=".1f"),
        alt.Tooltip("scores:Q", title="Scores", format=","),
    ]
    base = alt.Chart(data).encode(x=x)
    lows = alt.Y("low:Q", title="Mean score, %", scale=scale)
    band = base.mark_area(color=ink.text, opacity=0.14).encode(y=lows, y2="high:Q")
    line = base.mark_line(color=ink.text, strokeWidth=1.6).encode(y=y)
    dots = base.mark_circle(color=ink.text, size=36, opacity=1).encode(y=y, tooltip=tips)
    return layered([band, line, dots], 190)


def distribution(rows: pl.DataFrame, order: Sequence[str], ink: Ink) -> alt.LayerChart:
    """How the scores of each row are spread over tenths: the darker, the more. Columns: label, bin, share, scores."""
    data = rows.select(
        "label",
        "share",
        "scores",
        low=pl.col("bin") * 100 / BINS,
        high=(pl.col("bin") + 1) * 100 / BINS,
        text=pl.col("share").map_elements(figures.share, return_dtype=pl.String),
    )
    x = alt.X("low:Q", title="Score, %", scale=alt.Scale(domain=[0, 100], nice=False), axis=ticks(ink, 10))
    y = alt.Y(
        "label:N", title=None, sort=list(order), scale=alt.Scale(domain=list(order), paddingInner=0.15), axis=names(ink)
    )
    tips = [
        alt.Tooltip("label:N", title="Model"),
        alt.Tooltip("low:Q", title="From, %"),
        alt.Tooltip("high:Q", title="To, %"),
        alt.Tooltip("text:N", title="Share of its scores"),
        alt.Tooltip("scores:Q", title="Scores", format=","),
    ]
    base = alt.Chart(data).encode(y=y, tooltip=tips)
    shade = alt.Opacity("share:Q", scale=alt.Scale(domain=[0, 1], range=[0.05, 0.38]), legend=None)
    boxes = base.mark_rect(color=ink.text, stroke=ink.page, strokeWidth=2).encode(x=x, x2="high:Q", opacity=shade)
    middle = alt.X("middle:Q")
    said = alt.Chart(data.with_columns(middle=(pl.col("low") + pl.col("high")) / 2)).mark_text(
        fontSize=11, color=ink.text
    )
    return layered([boxes, said.encode(x=middle, y=y, text="text:N")], 64 + 34 * max(len(order), 1))


def reliability(bins: Sequence[Bin], ink: Ink) -> alt.LayerChart:
    """What others gave where the judge gave so much, with intervals; on the line both would give the same."""
    data = pl.DataFrame(
        [
            {
                "judge": 100 * one.judge,
                "other": 100 * one.other.value,
                "low": 100 * one.other.low,
                "high": 100 * one.other.high,
                "pairs": one.pairs,
            }
            for one in bins
        ],
        schema={**dict.fromkeys(("judge", "other", "low", "high"), pl.Float64), "pairs": pl.Int64},
    )
    scale = alt.Scale(domain=[0, 100], nice=False)
    x = alt.X("judge:Q", title="The judge gave, % (mean of each tenth)", scale=scale, axis=ticks(ink, 6, grid=True))
    y = alt.Y("other:Q", title="Others gave to the same, %", scale=scale, axis=ticks(ink, 6, grid=True))
    line = alt.Chart(pl.DataFrame({"judge": [0.0, 100.0], "other": [0.0, 100.0]}))
    tips = [
        alt.Tooltip("judge:Q", title="Judge, %", format=".1f"),
        alt.Tooltip("other:Q", title="Others, %", format=".1f"),
        alt.Tooltip("low:Q", title="At least", format=".1f"),
        alt.Tooltip("high:Q", title="At most", format=".1f"),
        alt.Tooltip("pairs:Q", title="Pairs", format=","),
    ]
    base = alt.Chart(data).encode(x=x, tooltip=tips)
    lows = alt.Y("low:Q", title="Others gave to the same, %", scale=scale)
    size = alt.Size("pairs:Q", scale=alt.Scale(range=[60, 320]), legend=None)
    marks = [
        line.mark_line(color=ink.muted, strokeDash=[4, 3], strokeWidth=1).encode(x=x, y=y),
        base.mark_rule(color=ink.text, strokeWidth=5, opacity=0.32, strokeCap="round").encode(y=lows, y2="high:Q"),
        base.mark_circle(color=ink.text, opacity=1).encode(y=y, size=size),
    ]
    return layered(marks, 340)
