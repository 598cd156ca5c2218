"""Policies by cost and what they give for it. No Streamlit here; colour only for the suggestion's verdict."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import altair as alt
import polars as pl

from dashboard import figures, words
from dashboard.charts import SHAPES, layered, ticks
from dashboard.figures import Unit
from dashboard.frontier_data import Priced
from dashboard.records import CurvePoint, Figure, ServiceVerdict
from dashboard.theme import Ink

Metric = Literal["quality", "latency"]


@dataclass(frozen=True)
class Spot:
    """A policy in a panel."""

    role: str
    """A role of the table, "other" for a candidate, "priced" for the choice at the price that is looked at."""
    label: str
    name: str
    """Its mark in the panel; "" for none."""
    cost: Figure
    value: Figure


def spots(verdict: ServiceVerdict, metric: Metric, priced: Priced | None) -> list[Spot]:
    """Candidates first, then the policies of the comparison, then the choice at a price."""
    found = [
        Spot("other", row.label, "", row.cost, row.quality if metric == "quality" else row.latency)
        for row in verdict.frontier
        if not row.chosen
    ]
    found += [
        Spot(
            row.policy,
            row.label or words.ROLES[row.policy],
            words.ROLES[row.policy] if row.policy in ("today", "suggested") else "",
            row.cost,
            row.quality if metric == "quality" else row.latency,
        )
        for row in verdict.table
    ]
    if priced is not None and not priced.own:
        value = priced.quality if metric == "quality" else priced.latency
        found.append(Spot("priced", priced.label, "At this price", priced.cost, value))
    return [spot for spot in found if not spot.cost.refused and not spot.value.refused]


def limit(verdict: ServiceVerdict, metric: Metric) -> float | None:
    """Where a policy may not go: today's value moved by the limit; None without one."""
    today = next((row for row in verdict.table if row.policy == "today"), None)
    if today is None:
        return None
    if metric == "quality":
        return None if today.quality.refused else today.quality.span[0] - verdict.limits.quality_margin
    if verdict.limits.latency_s is None or today.latency.refused:
        return None
    return today.latency.span[0] + verdict.limits.latency_s


def panel(
    found: Sequence[Spot],
    metric: Metric,
    at: float | None,
    colour: str,
    ink: Ink,
    *,
    curve: Sequence[CurvePoint] = (),
    unit: str = "decisions",
    height: int = 340,
) -> alt.LayerChart:
    """Cost across, quality or latency upward, both with their intervals; the limit `at` dashed, beyond it shaded. The
    curve of prices is a line in its band."""
    scale, kind, title = (100, "quality", "Quality, %") if metric == "quality" else (1, "seconds", "Latency, s")
    data = pl.DataFrame([_row(spot, scale, kind) for spot in found], schema=_COLUMNS)  # type: ignore[arg-type]
    prices = _curve(curve)
    left, right = _reach([*data["cost"], *data["cost_low"], *data["cost_high"], *prices["cost"]], 0.06)
    line = None if at is None else scale * at
    ends = [frame[f"value{end}"] for frame in (data, prices) for end in ("", "_low", "_high")]
    low, high = _reach([*(number for column in ends for number in column), line], 0.1)
    if metric == "quality":
        low, high = max(low, 0.0), min(high, 100.0)  # an interval may reach beyond what quality can be
    across: dict[str, Any] = {
        "title": f"Cost per 1,000 {unit}, USD",
        "scale": alt.Scale(domain=[left, right + 0.1 * (right - left)], nice=False),
        "axis": ticks(ink, 6, grid=True),
    }
    upright: dict[str, Any] = {
        "title": title,
        "scale": alt.Scale(domain=[low, high], nice=False),
        "axis": ticks(ink, 5, grid=True),
    }
    x, y = alt.X("cost:Q", **across), alt.Y("value:Q", **upright)
    layers: list[alt.Chart] = []
    if line is not None:
        edge = low if metric == "quality" else high
        zone = pl.DataFrame({"value": [min(edge, line)], "high": [max(edge, line)], "text": ["limit"], "at": [line]})
        layers.append(alt.Chart(zone).mark_rect(color=ink.faint, opacity=0.8).encode(y=y, y2="high:Q"))
        rule = alt.Chart(zone).encode(y=alt.Y("at:Q", **upright))
        layers.append(rule.mark_rule(color=ink.muted, strokeDash=[4, 3]))
        place: dict[str, Any] = {"align": "right", "dx": -6, "dy": 10 if metric == "quality" else -8, "fontSize": 11}
        layers.append(rule.mark_text(**place, color=ink.muted).encode(text="text:N", x=alt.value("width")))
    if len(prices):
        along = alt.Chart(prices).encode(x=x)
        band = along.mark_area(color=ink.muted, opacity=0.15, clip=True)
        layers.append(band.encode(y=alt.Y("value_low:Q", **upright), y2="value_high:Q"))
        layers.append(along.mark_line(color=ink.muted, strokeWidth=1.5).encode(y=y, order="cost:Q"))
    layers += _marks(data, across, upright, metric, colour, ink)
    return layered(layers, height)


def _marks(
    data: pl.DataFrame, across: dict[str, Any], upright: dict[str, Any], metric: Metric, colour: str, ink: Ink
) -> list[alt.Chart]:
    x, y = alt.X("cost:Q", **across), alt.Y("value:Q", **upright)
    tint = (
        alt.when("datum.role == 'suggested'")
        .then(alt.value(colour))
        .when("datum.role == 'priced'")
        .then(alt.value(ink.text))
        .otherwise(alt.value(ink.muted))
    )
    base = alt.Chart(data).encode(opacity=alt.condition("datum.role == 'other'", alt.value(0.4), alt.value(1.0)))
    tips = [
        alt.Tooltip("label:N", title="Policy"),
        alt.Tooltip("cost_text:N", title="Cost per 1,000"),
        alt.Tooltip("text:N", title=figures.capital(metric)),
        alt.Tooltip("kind:N", title="Kind"),
    ]
    shapes = {**SHAPES, "priced": "cross"}
    place: dict[str, Any] = {"align": "left", "dx": 9, "fontSize": 12, "fontWeight": 600}
    named = [  # the two that may lie on each other are named above and below
        layer
        for dy, which in ((-9, "datum.role != 'priced'"), (14, "datum.role == 'priced'"))
        for layer in (
            base.transform_filter(which)
            .mark_text(**place, dy=dy, color=ink.page, stroke=ink.page, strokeWidth=4)
            .encode(x=x, y=y, text="name:N"),
            base.transform_filter(which).mark_text(**place, dy=dy, color=ink.text).encode(x=x, y=y, text="name:N"),
        )
    ]
    return [
        base.mark_rule(strokeWidth=1.5).encode(x=alt.X("cost_low:Q", **across), x2="cost_high:Q", y=y, color=tint),
        base.mark_rule(strokeWidth=1.5, clip=True).encode(
            x=x, y=alt.Y("value_low:Q", **upright), y2="value_high:Q", color=tint
        ),
        base.mark_point(filled=True).encode(
            x=x,
            y=y,
            color=tint,
            shape=alt.Shape("role:N", scale=alt.Scale(domain=list(shapes), range=list(shapes.values())), legend=None),
            size=alt.condition("datum.role == 'suggested'", alt.value(190), alt.value(100)),
            tooltip=tips,
        ),
        *named,
    ]


def _row(spot: Spot, scale: float, unit: Unit) -> dict[str, Any]:
    return {
        "role": spot.role,
        "label": spot.label,
        "name": spot.name,
        **_ends("cost", spot.cost, 1),
        **_ends("value", spot.value, scale),
        "cost_text": f"{figures.said(spot.cost, 'usd').value}{figures.interval(spot.cost, 'usd')}",
        "text": f"{figures.said(spot.value, unit).value}{figures.interval(spot.value, unit)}",
        "kind": spot.value.kind or "",
    }


_COLUMNS = {
    **dict.fromkeys(("role", "label", "name"), pl.String),
    **{f"{name}{end}": pl.Float64 for name in ("cost", "value") for end in ("", "_low", "_high")},
    **dict.fromkeys(("cost_text", "text", "kind"), pl.String),
}


def _curve(curve: Sequence[CurvePoint]) -> pl.DataFrame:
    known = [at for at in curve if not at.cost.refused and not at.quality.refused]
    rows = [{"cost": at.cost.span[0], **_ends("value", at.quality, 100)} for at in known]
    columns = ("cost", "value", "value_low", "value_high")
    return pl.DataFrame(rows, schema=dict.fromkeys(columns, pl.Float64)).sort("cost")


def _ends(name: str, figure: Figure, scale: float) -> dict[str, float | None]:
    value, low, high = (scale * x for x in figure.span)
    bounded = math.isfinite(low) and math.isfinite(high)
    return {name: value, f"{name}_low": low if bounded else None, f"{name}_high": high if bounded else None}


def _reach(values: Sequence[float | None], margin: float) -> tuple[float, float]:
    finite = [x for x in values if x is not None and math.isfinite(x)] or [0.0]
    low, high = min(finite), max(finite)
    pad = margin * (high - low) or 1.0
    return low - pad, high + pad
