"""Estimates beside each other, and predictions beside what came, as charts. No Streamlit here.

The axis of a chart reaches as far as the estimates that carry a verdict; wider intervals run off it, their numbers
stand in the table.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import altair as alt
import polars as pl

from dashboard import figures
from dashboard.axes import Axis
from dashboard.charts import SCALES, UNITS, layered, names, ticks
from dashboard.estimators_data import METRICS, Trial
from dashboard.figures import Unit
from dashboard.records import Figure
from dashboard.theme import FAILS, Ink

SHAPES = {"asymptotic": "circle", "certified": "square", "assumption": "triangle-up"}
"""The kind of an interval -> the mark of its estimate."""
LEADS = ("blend", "DR", "SNIPS", "sequential DR")
"""Whose intervals the axis must hold."""


def forest(rows: Sequence[tuple[str, Figure]], axis: Axis, ink: Ink) -> alt.LayerChart:
    """One axis's figure by every estimator, a line each under its short name; refused ones say so. The mark's shape is
    the kind."""
    scale, order = SCALES.get(axis.unit, 1), [name for name, _ in rows]
    at = None if axis.limit is None else scale * axis.limit
    low, high = _domain(rows, scale, at)
    told = [
        {
            "estimator": name,
            "method": figures.estimator(name),
            "kind": one.kind or "",
            "text": f"{figures.said(one, axis.unit).value}{figures.interval(one, axis.unit)}, {one.kind}",
            "value": value,
            "low": max(start, low),
            "high": min(end, high),
            "off": not low <= value <= high,
        }
        for name, one in rows
        if not one.refused
        for value, start, end in [[scale * x for x in one.span]]
    ]
    refused = [{"estimator": name, "text": "not estimated", "value": low} for name, one in rows if one.refused]
    data = pl.DataFrame(told, schema=_FOREST)
    across: dict[str, Any] = {
        "title": f"{axis.brief}, {UNITS[axis.unit]}",
        "scale": alt.Scale(domain=[low, high], nice=False),
        "axis": ticks(ink, 4),
    }
    y = alt.Y("estimator:N", title=None, sort=order, scale=alt.Scale(domain=order), axis=names(ink))
    tip = [alt.Tooltip("method:N", title="Method"), alt.Tooltip("text:N", title="Estimate")]
    marks = _lines(ink, at, across)
    base = alt.Chart(data)
    marks.append(
        base.mark_rule(strokeWidth=5, opacity=0.32, strokeCap="round", color=ink.text, clip=True).encode(
            x=alt.X("low:Q", **across), x2="high:Q", y=y, tooltip=tip
        )
    )
    shape = alt.Shape("kind:N", scale=alt.Scale(domain=list(SHAPES), range=list(SHAPES.values())), legend=None)
    inside = base.transform_filter("!datum.off")
    marks.append(
        inside.mark_point(filled=True, size=95, opacity=1, color=ink.text).encode(
            x=alt.X("value:Q", **across), y=y, shape=shape, tooltip=tip
        )
    )
    words = alt.Chart(pl.DataFrame(refused, schema={name: _FOREST[name] for name in ("estimator", "text", "value")}))
    marks.append(
        words.mark_text(align="left", dx=6, fontSize=12, color=ink.muted).encode(
            x=alt.X("value:Q", **across), y=y, text="text:N"
        )
    )
    return layered(marks, 62 + 30 * max(len(order), 1))


_FOREST = {
    "estimator": pl.String,
    "method": pl.String,
    "kind": pl.String,
    "text": pl.String,
    "value": pl.Float64,
    "low": pl.Float64,
    "high": pl.Float64,
    "off": pl.Boolean,
}


def _lines(ink: Ink, limit: float | None, across: dict[str, Any]) -> list[alt.Chart]:
    """Zero, and the limit where there is one."""
    zero = alt.Chart(pl.DataFrame({"value": [0.0]})).mark_rule(color=ink.muted, clip=True)
    marks = [zero.encode(x=alt.X("value:Q", **across))]
    if limit is not None:
        line = alt.Chart(pl.DataFrame({"value": [limit]})).mark_rule(color=ink.muted, strokeDash=[4, 3], clip=True)
        marks.append(line.encode(x=alt.X("value:Q", **across)))
    return marks


def _domain(rows: Sequence[tuple[str, Figure]], scale: float, limit: float | None) -> tuple[float, float]:
    """What the axis must hold: zero, the limit, every estimate that leads, and a part of wider intervals."""
    spans = [(name, [scale * x for x in one.span]) for name, one in rows if not one.refused]
    leading = [span for name, span in spans if name in LEADS] or [span for _, span in spans]
    ends = [x for span in leading for x in span if math.isfinite(x)] + [0.0] + ([] if limit is None else [limit])
    low, high = min(ends), max(ends)
    pad = 0.12 * (high - low) or 1.0
    return low - pad, high + pad


def trials(rows: Sequence[Trial], metric: str, ink: Ink) -> alt.LayerChart:
    """Of one outcome, at every cut: where it was expected (a line, with the prediction as a tick) and what was seen (a
    dot, in the colour of what fails where it lies outside)."""
    unit: Unit = METRICS[metric][1]
    scale = SCALES.get(unit, 100 if unit == "quality" else 1)
    own = [one for one in rows if one.metric == metric and one.held is not None]
    data = pl.DataFrame(
        [
            {
                "at": datetime.fromtimestamp(one.cut_ns / 1e9, UTC).strftime("%-d %b %H:%M"),
                "place": place,
                "predicted": scale * one.predicted.span[0],
                "low": None if one.low is None else scale * one.low,
                "high": None if one.high is None else scale * one.high,
                "seen": scale * one.seen.span[0],
                "held": bool(one.held),
                "text": f"{figures.said(one.predicted, unit).value}{figures.interval(one.predicted, unit)}",
                "came": f"{figures.said(one.seen, unit).value}{figures.interval(one.seen, unit)}",
                "said": "as predicted" if one.held else "not as predicted",
            }
            for place, one in enumerate(sorted(own, key=lambda one: one.cut_ns), start=1)
        ],
        schema=_TRIALS,
    )
    order = data["at"].to_list()
    x = alt.X("at:N", sort=order, title="Cut (UTC)", axis=alt.Axis(**_UPRIGHT, **_tones(ink)))
    title = {"usd": "USD per 1,000", "quality": "Quality, %", "seconds": "Seconds"}.get(unit, "")
    upright: dict[str, Any] = {
        "title": title,
        "scale": alt.Scale(zero=False, nice=True),
        "axis": ticks(ink, 4, grid=True),
    }
    tip = [
        alt.Tooltip("at:N", title="Cut"),
        alt.Tooltip("text:N", title="Predicted"),
        alt.Tooltip("came:N", title="Seen"),
        alt.Tooltip("said:N", title="So it came"),
    ]
    base = alt.Chart(data).encode(x=x, tooltip=tip)
    colour = alt.condition("datum.held", alt.value(ink.text), alt.value(FAILS))
    return layered(
        [
            base.mark_rule(strokeWidth=9, opacity=0.28, strokeCap="round", color=ink.text).encode(
                y=alt.Y("low:Q", **upright), y2="high:Q"
            ),
            base.mark_tick(thickness=2, size=16, color=ink.text).encode(y=alt.Y("predicted:Q", **upright)),
            base.mark_point(filled=True, size=90, opacity=1).encode(y=alt.Y("seen:Q", **upright), color=colour),
        ],
        230,
    )


_TRIALS = {
    "at": pl.String,
    "place": pl.Int64,
    **dict.fromkeys(("predicted", "low", "high", "seen"), pl.Float64),
    "held": pl.Boolean,
    **dict.fromkeys(("text", "came", "said"), pl.String),
}
_UPRIGHT: dict[str, Any] = {"labelAngle": 0, "labelLimit": 90, "labelOverlap": True, "titleFontWeight": "normal"}


def _tones(ink: Ink) -> dict[str, Any]:
    return {"domainColor": ink.line, "tickColor": ink.line, "labelColor": ink.muted, "titleColor": ink.muted}
