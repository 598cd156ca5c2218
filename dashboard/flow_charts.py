"""The flow between agents as charts: what traces do step by step, and who hands over to whom. No Streamlit here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import altair as alt
import polars as pl

from dashboard import figures
from dashboard.charts import layered, names, ticks
from dashboard.figures import Unit
from dashboard.flows import HandoffRow, RouteStep
from dashboard.records import Figure
from dashboard.theme import Ink

Shown = Literal["count", "failed", "cost", "seconds"]
REACHED = "Traces that get here"
"""The first row of the route."""
_WIDE, _NARROW = 0.8, 0.6
"""Of a step's column the part that a share of 100 % fills: of a few steps, and of more, so that numbers fit in."""
_SEEN = 0.005
"""A smaller share is not drawn."""


def route(steps: Sequence[RouteStep], actions: Sequence[str], ink: Ink) -> alt.LayerChart:
    """A column for each step and a row for each action: paired bars of the share of the traces that get there, today's
    in grey, the suggestion's in ink. The first row is how many get there. Which is which stands above, in words."""
    rows: list[dict[str, Any]] = []
    few = len(steps) <= 6

    def add(step: RouteStep, action: str, who: str, share: float | None) -> None:
        if share is not None and share >= _SEEN:
            at = float(step.step)
            text = figures.share(share)
            rows.append(
                {
                    "step": at,
                    "end": at + (_WIDE if few else _NARROW) * share,
                    "action": action,
                    "who": who,
                    "text": text,
                    "column": step.step,
                }
            )

    for step in steps:
        for who, shares, reach in (
            ("Today", step.today, step.today_reach),
            ("Suggested", step.policy, step.policy_reach),
        ):
            add(step, REACHED, who, reach)
            for action in actions:
                add(step, action, who, None if shares is None else shares.get(action))
    order = [REACHED, *actions] if any(step.today_reach is not None for step in steps) else list(actions)
    schema = {"step": pl.Float64, "end": pl.Float64, "action": pl.String, "who": pl.String, "text": pl.String}
    data = pl.DataFrame(rows, schema={**schema, "column": pl.Int64})
    numbers = [step.step for step in steps]
    first, last = (min(numbers), max(numbers)) if numbers else (1, 1)
    x = alt.X(
        "step:Q",
        title=None,
        scale=alt.Scale(domain=[first, last + 1], nice=False),
        axis=ticks(
            ink, 10, grid=True, orient="top", values=numbers, labelExpr="'Step ' + datum.value", labelAlign="left"
        ),
    )
    y = alt.Y("action:N", title=None, sort=order, scale=alt.Scale(domain=order, paddingInner=0.35), axis=names(ink))
    both = ["Today", "Suggested"]
    offset = alt.YOffset("who:N", sort=both, scale=alt.Scale(domain=both, paddingInner=0.1))
    tint = alt.Color("who:N", scale=alt.Scale(domain=both, range=[ink.quiet, ink.text]), legend=None)
    tips = [
        alt.Tooltip("column:Q", title="Step"),
        alt.Tooltip("action:N", title="Next"),
        alt.Tooltip("who:N", title="Policy"),
        alt.Tooltip("text:N", title="Share"),
    ]
    base = alt.Chart(data).encode(y=y, yOffset=offset)
    bars = base.mark_bar(cornerRadiusEnd=2).encode(x=x, x2="end:Q", color=tint, tooltip=tips)
    labels = base.mark_text(align="left", dx=3, fontSize=10 if few else 9, color=ink.muted).encode(
        x=alt.X("end:Q", title=None), text="text:N"
    )
    return layered([bars, labels], 50 + 40 * max(len(order), 1))


def handoffs(rows: Sequence[HandoffRow], what: Shown, ink: Ink) -> alt.LayerChart:
    """Who hands over (rows) to whom (columns): the darker, the more of `what`, which is written in each cell. A cell
    without a number is too rare for one."""
    cells = [_cell(row, what) for row in rows]
    most = max((cell["value"] for cell in cells if cell["value"] is not None), default=0.0) or 1.0
    data = pl.DataFrame(
        [{**cell, "shade": 0.06 + 0.74 * (cell["value"] or 0.0) / most} for cell in cells],
        schema={
            **dict.fromkeys(("source", "target", "text", "tip"), pl.String),
            **dict.fromkeys(("value", "shade"), pl.Float64),
        },
    ).with_columns(dark=pl.col("shade") > 0.45)
    agents = list(dict.fromkeys(name for row in rows for name in (row.source, row.target)))
    scale = alt.Scale(domain=agents, paddingInner=0.06)
    quiet: dict[str, Any] = {"titleColor": ink.muted, "titleFontWeight": "normal"}
    room = max(60, 900 // max(len(agents), 1))
    across = alt.Axis(**{**names(ink).to_dict(), **quiet, "orient": "top", "labelAngle": 0, "labelLimit": room})
    x = alt.X("target:N", title="… to", sort=agents, scale=scale, axis=across)
    axis = alt.Axis(**{**names(ink).to_dict(), **quiet})
    y = alt.Y("source:N", title="From …", sort=agents, scale=scale, axis=axis)
    tips = [
        alt.Tooltip("source:N", title="From"),
        alt.Tooltip("target:N", title="To"),
        alt.Tooltip("tip:N", title=WORDS[what]),
    ]
    base = alt.Chart(data).encode(x=x, y=y)
    boxes = base.mark_rect(color=ink.text, cornerRadius=3).encode(
        opacity=alt.Opacity("shade:Q", scale=None, legend=None), tooltip=tips
    )
    text = base.mark_text(fontSize=12).encode(
        text="text:N", color=alt.condition("datum.dark", alt.value(ink.page), alt.value(ink.text)), tooltip=tips
    )
    return layered([boxes, text], 70 + 44 * max(len(agents), 1))


WORDS: Mapping[Shown, str] = {
    "count": "How often",
    "failed": "The second one fails",
    "cost": "Cost of the second one",
    "seconds": "Time of the second one",
}
_UNITS: Mapping[Shown, Unit] = {"failed": "quality", "cost": "usd", "seconds": "seconds"}


def _cell(row: HandoffRow, what: Shown) -> dict[str, Any]:
    ends = {"source": row.source, "target": row.target}
    if what == "count":
        return {**ends, "value": float(row.count), "text": figures.count(row.count), "tip": figures.count(row.count)}
    data: Figure = getattr(row, what)
    if data.refused:
        return {**ends, "value": None, "text": "–", "tip": f"not estimated: {data.reason}"}
    unit = _UNITS[what]
    said = figures.said(data, unit).value
    return {**ends, "value": data.value, "text": said, "tip": f"{said}{figures.interval(data, unit)}"}
