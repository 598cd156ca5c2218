"""Who gains and who loses, as a chart: a line a segment. No Streamlit here; colour says what is past a limit."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import altair as alt
import polars as pl

from dashboard import figures
from dashboard.charts import SCALES, layered, ticks
from dashboard.figures import Unit
from dashboard.records import Figure
from dashboard.segments_data import Segment
from dashboard.theme import FAILS, HOLDS, Ink

ROW = 30
WORDS = {
    "better": "better",
    "worse": "past the limit",
    "inside": "inside the limit",
    "unclear": "not clear",
    "refused": "not estimated",
}


def forest(segments: Sequence[Segment], what: str, total: Figure, limit: float | None, ink: Ink) -> alt.LayerChart:
    """The change of "quality" or "saving" in every segment, in their order; the change of all decisions as a thin line,
    and the limit as a dashed one."""
    unit: Unit = "quality_change" if what == "quality" else "usd_change"
    scale = SCALES.get(unit, 1)
    order = [one.title for one in segments]
    rows = []
    for one in segments:
        figure, flag = (one.quality, one.quality_flag) if what == "quality" else (one.saving, one.cost_flag)
        text = (
            "not estimated" if figure.refused else f"{figures.said(figure, unit).value}{figures.interval(figure, unit)}"
        )
        value, low, high = (None, None, None) if figure.refused else (_finite(scale * x) for x in figure.span)
        rows.append(
            {
                "segment": one.title,
                "value": value,
                "low": low,
                "high": high,
                "flag": flag,
                "text": text,
                "said": WORDS[flag],
                "decisions": one.decisions,
            }
        )
    data = pl.DataFrame(rows, schema=_SCHEMA)
    at = None if limit is None else scale * limit
    lines = [0.0, *([] if at is None else [at]), *([] if total.refused else [scale * total.span[0]])]
    ends = [x for name in ("value", "low", "high") for x in data[name].drop_nulls()] + lines
    pad = 0.08 * (max(ends) - min(ends)) or 1.0
    title = "Change of quality, points" if what == "quality" else "Saving per 1,000 decisions, USD"
    across: dict[str, Any] = {
        "title": title,
        "scale": alt.Scale(domain=[min(ends) - pad, max(ends) + pad], nice=False),
        "axis": ticks(ink, 5, grid=True),
    }
    y = alt.Y(
        "segment:N",
        title=None,
        sort=order,
        scale=alt.Scale(domain=order),
        axis=_names(ink) if what == "quality" else None,
    )
    tip = [
        alt.Tooltip("segment:N", title="Segment"),
        alt.Tooltip("decisions:Q", title="Decisions", format=","),
        alt.Tooltip("text:N", title="Change"),
        alt.Tooltip("said:N", title="That is"),
    ]
    tint = alt.Color(
        "flag:N", scale=alt.Scale(domain=list(WORDS), range=[HOLDS, FAILS, ink.text, ink.text, ink.muted]), legend=None
    )
    marks = [_rule(0.0, across, ink, [1, 0])]
    if at is not None:
        marks.append(_rule(at, across, ink, [4, 3]))
    if not total.refused:
        marks.append(_rule(scale * total.span[0], across, ink, [1, 3]))
    base = alt.Chart(data).encode(y=y, tooltip=tip, color=tint)
    marks.append(
        base.mark_rule(strokeWidth=6, opacity=0.42, strokeCap="round").encode(x=alt.X("low:Q", **across), x2="high:Q")
    )
    marks.append(base.mark_circle(size=85, opacity=1).encode(x=alt.X("value:Q", **across)))
    refused = alt.Chart(data.filter(pl.col("flag") == "refused").with_columns(value=pl.lit(0.0)))
    marks.append(
        refused.mark_text(align="left", dx=6, fontSize=12, color=ink.muted).encode(
            y=y, x=alt.X("value:Q", **across), text="text:N"
        )
    )
    return layered(marks, 66 + ROW * max(len(order), 1))


_SCHEMA = {
    "segment": pl.String,
    **dict.fromkeys(("value", "low", "high"), pl.Float64),
    **dict.fromkeys(("flag", "text", "said"), pl.String),
    "decisions": pl.Int64,
}


def _rule(place: float, across: dict[str, Any], ink: Ink, dash: list[int]) -> alt.Chart:
    line = alt.Chart(pl.DataFrame({"value": [place]})).mark_rule(color=ink.muted, strokeDash=dash)
    drawn: alt.Chart = line.encode(x=alt.X("value:Q", **across))
    return drawn


def _names(ink: Ink) -> alt.Axis:
    return alt.Axis(labelLimit=330, labelColor=ink.text, labelFontSize=13, domain=False, ticks=False, labelPadding=8)


def _finite(x: float) -> float | None:
    return x if math.isfinite(x) else None
