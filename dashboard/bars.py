"""Shares, times and coverage as bars. No Streamlit here, and no colour: there is no verdict in a count."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

import altair as alt
import polars as pl

from dashboard import figures
from dashboard.charts import layered, names, ticks
from dashboard.records import ActionShare
from dashboard.theme import Ink


def shares(actions: Sequence[ActionShare], ink: Ink) -> alt.LayerChart:
    """Paired bars per action: today's share in grey, the suggestion's in ink; in the order of today's shares.

    Which is which stands above the chart, in words."""
    ranked = sorted(actions, key=lambda action: (-(action.today or 0), action.action))
    order = [action.action for action in ranked]
    rows = [
        {"action": action.action, "who": who, "share": value, "text": figures.share(value)}
        for action in ranked
        for who, value in (("Today", action.today), ("Suggested", action.policy))
        if value is not None
    ]
    data = pl.DataFrame(rows, schema={"action": pl.String, "who": pl.String, "share": pl.Float64, "text": pl.String})
    x = alt.X(
        "share:Q",
        title="Share of decisions",
        scale=alt.Scale(domain=[0, 1.08], nice=False),
        axis=ticks(ink, 5, format="%", values=[0, 0.25, 0.5, 0.75, 1]),
    )
    y = alt.Y("action:N", title=None, sort=order, scale=alt.Scale(domain=order, paddingInner=0.3), axis=names(ink))
    who = alt.YOffset(
        "who:N", sort=["Today", "Suggested"], scale=alt.Scale(domain=["Today", "Suggested"], paddingInner=0.12)
    )
    tint = alt.Color("who:N", scale=alt.Scale(domain=["Today", "Suggested"], range=[ink.quiet, ink.text]), legend=None)
    tips = [
        alt.Tooltip("action:N", title="Action"),
        alt.Tooltip("who:N", title="Policy"),
        alt.Tooltip("text:N", title="Share"),
    ]
    base = alt.Chart(data).encode(x=x, y=y, yOffset=who)
    bars = base.mark_bar(cornerRadiusEnd=2).encode(color=tint, tooltip=tips)
    labels = base.mark_text(align="left", dx=5, fontSize=11, color=ink.muted).encode(text="text:N")
    return layered([bars, labels], 76 + 46 * max(len(order), 1))


def timeline(data: pl.DataFrame, at: str, what: str, ink: Ink, *, rejected: str | None = None) -> alt.LayerChart:
    """Bars over time: column `what` by column `at` (UTC nanoseconds); a `rejected` column is drawn below zero."""
    lost = pl.lit(0.0) if rejected is None else -pl.col(rejected).cast(pl.Float64)
    frame = data.select(
        pl.from_epoch(at, time_unit="ns").dt.replace_time_zone("UTC").alias("at"),
        pl.col(what).cast(pl.Float64).alias("count"),
        lost.alias("lost"),
    )
    days = frame.height > 1 and frame["at"][-1] - frame["at"][0] > timedelta(days=2)
    label = "%-d %b" if days else "%H:%M"
    x = alt.X("at:T", title=None, scale=alt.Scale(type="utc"), axis=ticks(ink, 6, format=label, labelOverlap=True))
    y = alt.Y("count:Q", title=figures.capital(what), axis=ticks(ink, 4, grid=True, format="~s"))
    tips = [
        alt.Tooltip("utcyearmonthdatehoursminutes(at):T", title="From (UTC)"),
        alt.Tooltip("count:Q", title=figures.capital(what), format=","),
    ]
    width = max(1.5, min(22.0, 380 / max(frame.height, 1)))
    layers = [alt.Chart(frame).mark_bar(color=ink.quiet, width=width).encode(x=x, y=y, tooltip=tips)]
    below = alt.Chart(frame.filter(pl.col("lost") < 0)).mark_bar(color=ink.text, width=width)
    layers.append(below.encode(x=x, y=alt.Y("lost:Q", title=figures.capital(what)), tooltip=tips))
    return layered(layers, 190)


def coverage(data: pl.DataFrame, ink: Ink) -> alt.LayerChart:
    """Share of decisions with a score, per action. Columns: action, decisions, labelled."""
    frame = data.with_columns(
        (pl.col("labelled") / pl.col("decisions")).alias("share"),
    ).with_columns(
        pl.struct("share", "labelled", "decisions")
        .map_elements(
            lambda row: f"{figures.share(row['share'])} of {figures.count(row['decisions'])}", return_dtype=pl.String
        )
        .alias("text")
    )
    order = frame["action"].to_list()
    x = alt.X(
        "share:Q",
        title="Decisions with a score",
        scale=alt.Scale(domain=[0, 1.45], nice=False),
        axis=ticks(ink, 5, format="%", values=[0, 0.25, 0.5, 0.75, 1]),
    )
    y = alt.Y("action:N", title=None, sort=order, scale=alt.Scale(domain=order, paddingInner=0.4), axis=names(ink))
    base = alt.Chart(frame).encode(x=x, y=y)
    bars = base.mark_bar(color=ink.quiet, cornerRadiusEnd=2).encode(
        tooltip=[alt.Tooltip("action:N", title="Action"), alt.Tooltip("text:N", title="Scored")]
    )
    labels = base.mark_text(align="left", dx=5, fontSize=11, color=ink.muted).encode(text="text:N")
    return layered([bars, labels], 64 + 30 * max(len(order), 1))
