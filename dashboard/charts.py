"""Records -> Altair charts. No Streamlit here; the tests read a chart's JSON.

Colour belongs to verdicts: everything else is drawn in the ink it is given. Intervals are thick lines, estimates dots,
zero a thin line, a limit a dashed one with the forbidden side shaded.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any, Literal

import altair as alt
import polars as pl

from dashboard import figures, words
from dashboard.axes import Axis
from dashboard.figures import Unit
from dashboard.records import CurvePoint, Figure, FrontierPoint, PolicyRow
from dashboard.theme import Ink

SCALES: dict[Unit, float] = {"quality": 100, "quality_change": 100}
"""Quality is drawn in percent and points; everything else as it is."""
SHAPES = {
    "suggested": "circle",
    "today": "square",
    "cheapest": "triangle-down",
    "strongest": "triangle-up",
    "cost_matched_random": "diamond",
    "other": "circle",
}
UNITS: dict[Unit, str] = {"usd_change": "USD", "quality_change": "points", "seconds_change": "s"}


def interval_bar(axis: Axis, ink: Ink) -> alt.LayerChart:
    """One estimate on its own axis, with zero and, where there is one, the limit and its forbidden side."""
    scale = SCALES.get(axis.unit, 1)
    value, low, high = (scale * x for x in axis.figure.span)
    at = None if axis.limit is None else scale * axis.limit
    left, right = _reach([low, high, value, 0.0, *([] if at is None else [at])], 0.2)
    low, high = max(low, left), min(high, right)  # an unbounded interval runs off the axis
    x = alt.X("low:Q", title=axis.better, scale=alt.Scale(domain=[left, right], nice=False), axis=ticks(ink, 4))
    layers: list[alt.Chart] = []
    if at is not None:
        edge = left if axis.forbidden == "below" else right
        zone = pl.DataFrame({"low": [min(edge, at)], "high": [max(edge, at)]})
        layers.append(alt.Chart(zone).mark_rect(color=ink.faint).encode(x=x, x2="high:Q"))
        layers += _mark("limit", at, x, ink, side="left" if at < 0 else "right", dash=[4, 3])
    layers += _mark("no change", 0.0, x, ink, side="left" if at is not None and at > 0 else "right", dash=[1, 0])
    data = pl.DataFrame({"low": [low], "high": [high], "value": [value], "text": [_tip(axis.figure, axis.unit)]})
    base = alt.Chart(data).encode(y=alt.value(36), tooltip=alt.Tooltip("text:N", title=axis.title))
    layers.append(
        base.mark_rule(strokeWidth=7, color=ink.text, opacity=0.32, strokeCap="round").encode(x=x, x2="high:Q")
    )
    layers.append(base.mark_circle(size=130, color=ink.text, opacity=1).encode(x=alt.X("value:Q")))
    return layered(layers, 112)


def _mark(
    text: str, place: float, x: alt.X, ink: Ink, *, side: Literal["left", "right"], dash: list[int]
) -> list[alt.Chart]:
    """A line across the axis and its name, written to one side of it."""
    base = alt.Chart(pl.DataFrame({"low": [place], "text": [text]})).encode(x=x)
    style: dict[str, Any] = {"align": "right", "dx": -5} if side == "left" else {"align": "left", "dx": 5}
    name = base.mark_text(color=ink.muted, fontSize=11, limit=90, **style)
    return [base.mark_rule(color=ink.muted, strokeDash=dash), name.encode(y=alt.value(7), text="text:N")]


def frontier(
    rows: Sequence[FrontierPoint],
    table: Sequence[PolicyRow],
    colour: str,
    ink: Ink,
    curve: Sequence[CurvePoint] = (),
) -> alt.LayerChart:
    """Cost against quality with both intervals; the suggestion in its verdict's colour, the baselines by their shapes.

    The curve of prices is a line in a band. What the shapes mean stands above the chart, in words; only today and the
    suggestion are named at their place."""
    points = [("other", row.label, row.cost, row.quality) for row in rows if not row.chosen]
    points += [(row.policy, words.ROLES[row.policy], row.cost, row.quality) for row in table]
    data = pl.DataFrame(
        [
            {
                "role": role,
                "label": label,
                "name": label if role in ("today", "suggested") else "",
                "suggested": role == "suggested",
                **_ends("cost", cost, 1),
                **_ends("quality", quality, 100),
                "cost_text": _tip(cost, "usd"),
                "quality_text": _tip(quality, "quality"),
            }
            for role, label, cost, quality in points
            if not cost.refused and not quality.refused
        ],
        schema=_FRONTIER,
    )
    tips = [
        alt.Tooltip("label:N", title="Policy"),
        alt.Tooltip("cost_text:N", title="Cost per 1,000"),
        alt.Tooltip("quality_text:N", title="Quality"),
    ]
    prices = _prices(curve)
    left, right = _reach([*data["cost"], *data["cost_low"], *data["cost_high"], *prices["cost"]], 0.06)
    across: dict[str, Any] = {
        "title": "Cost per 1,000 decisions, USD",
        "scale": alt.Scale(domain=[left, right + 0.1 * (right - left)], nice=False),
        "axis": ticks(ink, 6, grid=True),
    }
    drawn = [frame[f"quality{end}"] for frame in (data, prices) for end in ("", "_low", "_high")]
    ends = _reach([number for column in drawn for number in column], 0.1)
    upright: dict[str, Any] = {
        "title": "Quality, %",
        "scale": alt.Scale(domain=ends, nice=False),
        "axis": ticks(ink, 5, grid=True),
    }
    x, y = alt.X("cost:Q", **across), alt.Y("quality:Q", **upright)
    tint = alt.condition("datum.suggested", alt.value(colour), alt.value(ink.muted))
    base = alt.Chart(data).encode(opacity=alt.condition("datum.role == 'other'", alt.value(0.4), alt.value(1.0)))
    costs = base.mark_rule(strokeWidth=1.5).encode(x=alt.X("cost_low:Q", **across), x2="cost_high:Q", y=y, color=tint)
    qualities = base.mark_rule(strokeWidth=1.5).encode(
        x=x, y=alt.Y("quality_low:Q", **upright), y2="quality_high:Q", color=tint
    )
    dots = base.mark_point(filled=True).encode(
        x=x,
        y=y,
        color=tint,
        shape=alt.Shape("role:N", scale=alt.Scale(domain=list(SHAPES), range=list(SHAPES.values())), legend=None),
        size=alt.condition("datum.suggested", alt.value(190), alt.value(90)),
        tooltip=tips,
    )
    place: dict[str, Any] = {"align": "left", "dx": 9, "dy": -9, "fontSize": 12, "fontWeight": 600}
    halo = base.mark_text(**place, color=ink.page, stroke=ink.page, strokeWidth=4).encode(x=x, y=y, text="name:N")
    names = base.mark_text(**place, color=ink.text).encode(x=x, y=y, text="name:N")
    along = alt.Chart(prices).encode(x=x)
    band = along.mark_area(color=ink.muted, opacity=0.15).encode(
        y=alt.Y("quality_low:Q", **upright), y2="quality_high:Q"
    )
    line = along.mark_line(color=ink.muted, strokeWidth=1.5).encode(y=y, order="cost:Q")
    return layered([*([band, line] if len(prices) else []), costs, qualities, dots, halo, names], 340)


def _prices(curve: Sequence[CurvePoint]) -> pl.DataFrame:
    """The curve from the cheapest point on."""
    known = [at for at in curve if not at.cost.refused and not at.quality.refused]
    rows = [{"cost": at.cost.span[0], **_ends("quality", at.quality, 100)} for at in known]
    columns = ("cost", "quality", "quality_low", "quality_high")
    return pl.DataFrame(rows, schema=dict.fromkeys(columns, pl.Float64)).sort("cost")


_FRONTIER = {
    "role": pl.String,
    "label": pl.String,
    "name": pl.String,
    "suggested": pl.Boolean,
    **{f"{axis}{end}": pl.Float64 for axis in ("cost", "quality") for end in ("", "_low", "_high")},
    "cost_text": pl.String,
    "quality_text": pl.String,
}


def forest(found: Sequence[tuple[str, Figure]], axis: Axis, ink: Ink) -> alt.LayerChart:
    """An axis's figure by several estimators, one line each; a refused one says so in words."""
    scale = SCALES.get(axis.unit, 1)
    order = [name for name, _ in found]
    data = pl.DataFrame(
        [
            {"estimator": name, "text": _tip(figure, axis.unit), **_ends("value", figure, scale)}
            for name, figure in found
            if not figure.refused
        ],
        schema={
            "estimator": pl.String,
            "text": pl.String,
            **dict.fromkeys(("value", "value_low", "value_high"), pl.Float64),
        },
    )
    refused = pl.DataFrame(
        [{"estimator": name, "text": "not estimated", "value": 0.0} for name, figure in found if figure.refused],
        schema={"estimator": pl.String, "text": pl.String, "value": pl.Float64},
    )
    at = None if axis.limit is None else scale * axis.limit
    reach = [0.0, at, *data["value"], *data["value_low"], *data["value_high"]]
    domain = _reach(reach, 0.08)
    title = f"{axis.brief}, {UNITS[axis.unit]}"
    across: dict[str, Any] = {"title": title, "scale": alt.Scale(domain=domain, nice=False), "axis": ticks(ink, 5)}
    x, lows = alt.X("value:Q", **across), alt.X("value_low:Q", **across)
    y = alt.Y("estimator:N", title=None, sort=order, scale=alt.Scale(domain=order), axis=names(ink))
    base = alt.Chart(data)
    marks = [alt.Chart(pl.DataFrame({"value": [0.0]})).mark_rule(color=ink.muted).encode(x=x)]
    if at is not None:
        line = alt.Chart(pl.DataFrame({"value": [at]})).mark_rule(color=ink.muted, strokeDash=[4, 3])
        marks.append(line.encode(x=x))
    marks.append(
        base.mark_rule(strokeWidth=5, opacity=0.32, strokeCap="round", color=ink.text).encode(
            x=lows, x2="value_high:Q", y=y
        )
    )
    tip = alt.Tooltip("text:N", title="Estimate")
    marks.append(base.mark_circle(size=90, opacity=1, color=ink.text).encode(x=x, y=y, tooltip=["estimator:N", tip]))
    words_of = alt.Chart(refused).mark_text(align="left", dx=6, fontSize=12, color=ink.muted)
    marks.append(words_of.encode(x=x, y=y, text="text:N"))
    return layered(marks, 76 + 34 * len(order))


def layered(layers: Sequence[alt.Chart], height: float) -> alt.LayerChart:
    """The layers as one chart without a frame, as wide as its place. A layer without a mark, which would have no name
    for a screen reader, is left out."""
    drawn = [one for one in layers if not (isinstance(one.data, pl.DataFrame) and one.data.is_empty())] or layers
    chart: alt.LayerChart = alt.layer(*drawn).properties(height=height).configure_view(stroke=None)
    return chart


def ticks(ink: Ink, n: int, *, grid: bool = False, **more: Any) -> alt.Axis:
    """A quiet numeric axis of about `n` ticks; `more` goes to Altair."""
    return alt.Axis(
        tickCount=n,
        grid=grid,
        gridColor=ink.faint,
        domainColor=ink.line,
        tickColor=ink.line,
        labelColor=ink.muted,
        titleColor=ink.muted,
        titleFontWeight="normal",
        labelFlush=False,
        **more,
    )


def names(ink: Ink) -> alt.Axis:
    """An axis of names, which are read rather than measured."""
    return alt.Axis(labelLimit=200, labelColor=ink.text, labelFontSize=13, domain=False, ticks=False, labelPadding=8)


def _ends(name: str, figure: Figure, scale: float) -> dict[str, float | None]:
    """Value and ends for a chart's data; without both ends no line is drawn."""
    value, low, high = (scale * x for x in figure.span)
    bounded = math.isfinite(low) and math.isfinite(high)
    return {name: value, f"{name}_low": low if bounded else None, f"{name}_high": high if bounded else None}


def _reach(values: Iterable[float | None], margin: float) -> list[float]:
    """A domain around the finite values; never empty."""
    finite = [x for x in values if x is not None and math.isfinite(x)] or [0.0]
    low, high = min(finite), max(finite)
    pad = margin * (high - low) or 1.0
    return [low - pad, high + pad]


def _tip(figure: Figure, unit: Unit) -> str:
    return "not estimated" if figure.refused else f"{figures.said(figure, unit).value}{figures.interval(figure, unit)}"
