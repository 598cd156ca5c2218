"""How a canary went, as charts. No Streamlit here, and no colour: the verdict is in the words beside them."""

from __future__ import annotations

import math
from datetime import datetime, timedelta
from typing import Any

import altair as alt
import polars as pl

from dashboard import figures
from dashboard.charts import SCALES, UNITS, layered, ticks
from dashboard.records import Figure
from dashboard.rollout_data import Change
from dashboard.theme import Ink


def timeline(looks: pl.DataFrame, steps: pl.DataFrame, change: Change, ink: Ink) -> alt.LayerChart:
    """What was known at each look: the estimate as a line, its interval as a band, zero, the limit, and each new stage.

    `looks` and `steps` as `rollout_data` gives them."""
    axis, scale = change.axis, SCALES.get(change.axis.unit, 1)
    data = looks.with_columns(pl.col("value", "low", "high") * scale)
    seen = (Figure(value, low, high, None) for value, low, high in looks.select("value", "low", "high").iter_rows())
    texts = [figures.said(one, axis.unit) for one in seen]
    data = data.with_columns(pl.Series("text", [f"{one.value} ({one.interval})" for one in texts], pl.String))
    across: dict[str, Any] = {
        "title": None,
        "scale": alt.Scale(type="utc"),
        "axis": _axis(looks, ink),
    }
    x = alt.X("at:T", **across)
    y = alt.Y("value:Q", title=f"{axis.brief}, {UNITS[axis.unit]}", axis=ticks(ink, 4, grid=True))
    tips = [
        alt.Tooltip("utcyearmonthdatehoursminutes(at):T", title="Look (UTC)"),
        alt.Tooltip("text:N", title=axis.brief),
        alt.Tooltip("decisions:Q", title="Seen", format=","),
    ]
    base = alt.Chart(data)
    level = [0.0] + ([] if axis.limit is None else [scale * axis.limit])
    layers = [
        alt.Chart(pl.DataFrame({"value": [place]})).mark_rule(color=ink.muted, strokeDash=dash).encode(y=y)
        for place, dash in zip(level, ([1, 0], [4, 3]), strict=False)
    ]
    layers.append(base.mark_area(color=ink.quiet, opacity=0.35).encode(x=x, y=alt.Y("low:Q"), y2="high:Q"))
    layers.append(base.mark_line(color=ink.text, strokeWidth=1.5).encode(x=x, y=y))
    layers.append(base.mark_circle(color=ink.text, size=26, opacity=1).encode(x=x, y=y, tooltip=tips))
    begun = alt.Chart(steps)
    layers.append(begun.mark_rule(color=ink.line).encode(x=x))
    layers.append(
        begun.mark_text(color=ink.muted, fontSize=11, align="left", dx=4, baseline="top").encode(
            x=x, y=alt.value(2), text="text:N"
        )
    )
    return layered(layers, 190)


def _axis(looks: pl.DataFrame, ink: Ink) -> alt.Axis:
    """Days where there are several, else hours."""
    first, last = looks["at"].min(), looks["at"].max()
    days = (last - first) / timedelta(days=1) if isinstance(first, datetime) and isinstance(last, datetime) else 0.0
    if days < 2:
        return ticks(ink, 4, format="%H:%M", labelOverlap=True)
    every = alt.TimeIntervalStep(interval="day", step=math.ceil(days / 5))
    axis = ticks(ink, 5, format="%-d %b", labelOverlap=True)
    axis.tickCount = every
    return axis
