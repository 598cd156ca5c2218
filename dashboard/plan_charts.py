"""What an experiment buys, drawn. No Streamlit here, and no colour: a plan has no verdict."""

from __future__ import annotations

from typing import Any, Literal

import altair as alt
import polars as pl

from dashboard.charts import layered, ticks
from dashboard.theme import Ink

By = Literal["days", "usd", "decisions"]
TITLES: dict[By, str] = {"days": "Days", "usd": "USD more than today", "decisions": "Decisions in the experiment"}


def widths(
    data: pl.DataFrame, by: By, wanted: float, ends: float | None, ink: Ink, *, saves: bool = False
) -> alt.LayerChart:
    """The half-width of quality's interval, falling with days, money or decisions. Dashed: what decides; the upright
    line: where the experiment ends."""
    shown = data.filter(pl.col(by).is_not_null() & pl.col("half_width").is_not_null()).with_columns(
        points=100 * pl.col("half_width")
    )
    if saves and by == "usd":
        shown = shown.with_columns(-pl.col("usd"))
        ends = None if ends is None else -ends
    top = 100 * wanted * 4
    shown = shown.filter(pl.col("points") <= top)
    most = max([*shown[by], ends or 0.0, 1e-9])
    across: dict[str, Any] = {
        "title": "USD saved against today" if saves and by == "usd" else TITLES[by],
        "scale": alt.Scale(domain=[0, most], nice=False),
        "axis": ticks(ink, 6, format="$,.2f" if by == "usd" else ",.0f"),
    }
    upright: dict[str, Any] = {
        "title": "Quality known to within ± points",
        "scale": alt.Scale(domain=[0, top], nice=False),
        "axis": ticks(ink, 4, grid=True),
    }
    x, y = alt.X(f"{by}:Q", **across), alt.Y("points:Q", **upright)
    tips = [
        alt.Tooltip("who:N", title="Who draws"),
        alt.Tooltip("decisions:Q", title="Decisions", format=",.0f"),
        alt.Tooltip("days:Q", title="Days", format=",.1f"),
        alt.Tooltip("points:Q", title="± points", format=".2f"),
    ]
    base = alt.Chart(shown).encode(x=x, y=y)
    tint = alt.Color(
        "who:N", scale=alt.Scale(domain=["Experiment", "As today"], range=[ink.text, ink.quiet]), legend=None
    )
    dash = alt.StrokeDash(
        "who:N", scale=alt.Scale(domain=["Experiment", "As today"], range=[[1, 0], [2, 3]]), legend=None
    )
    goal = alt.Chart(pl.DataFrame({"points": [100 * wanted], "text": ["decides"]})).encode(y=y)
    layers = [
        goal.mark_rule(color=ink.muted, strokeDash=[4, 3]),
        goal.mark_text(color=ink.muted, fontSize=11, align="right", dx=-4, dy=-8).encode(
            x=alt.value("width"), text="text:N"
        ),
        base.mark_line(strokeWidth=2).encode(color=tint, strokeDash=dash, tooltip=tips),
    ]
    if ends is not None and ends <= most:
        end = alt.Chart(pl.DataFrame({by: [ends]})).encode(x=alt.X(f"{by}:Q", **across))
        layers.append(end.mark_rule(color=ink.text, strokeWidth=1))
    return layered(layers, 260)


def scores(data: pl.DataFrame, wanted: float | None, ink: Ink) -> alt.LayerChart:
    """How narrow the interval gets with scores."""
    shown = data.with_columns(points=100 * pl.col("half_width"))
    y = alt.Y(
        "points:Q", title="Quality known to within ± points", scale=alt.Scale(zero=True), axis=ticks(ink, 4, grid=True)
    )
    x = alt.X(
        "budget:Q", title="Decisions to have scored", scale=alt.Scale(zero=True), axis=ticks(ink, 5, format=",.0f")
    )
    base = alt.Chart(shown).encode(x=x, y=y)
    tips = [
        alt.Tooltip("budget:Q", title="Scores", format=","),
        alt.Tooltip("points:Q", title="± points", format=".2f"),
    ]
    layers = [
        base.mark_line(color=ink.text, strokeWidth=1.5),
        base.mark_circle(color=ink.text, size=70, opacity=1).encode(tooltip=tips),
    ]
    if wanted is not None:
        goal = alt.Chart(pl.DataFrame({"points": [100 * wanted]}))
        layers.insert(0, goal.mark_rule(color=ink.muted, strokeDash=[4, 3]).encode(y=y))
    return layered(layers, 240)
