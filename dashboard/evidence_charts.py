"""How far the logs identify an answer, drawn. No Streamlit here; darkness is a count, colour belongs to verdicts."""

from __future__ import annotations

from typing import Any

import altair as alt
import polars as pl

from dashboard import figures
from dashboard.charts import layered, names, ticks
from dashboard.theme import FAILS, Ink

HATCH = "╱" * 6
"""Marks a cell that no log can speak for; a vector chart has no hatching of its own."""


def overlap(cells: pl.DataFrame, needed: float, unit: str, ink: Ink) -> alt.LayerChart:
    """Segments x actions: the darker, the more effective decisions speak for the policy there. Hatched: never tried."""
    segments = cells["segment"].unique(maintain_order=True).to_list()
    actions = cells["action"].unique(maintain_order=True).to_list()
    shown = cells.with_columns(
        depth=pl.when(pl.col("state").is_in(["enough", "few"]))
        .then((pl.col("effective") / needed).clip(0, 1).sqrt())
        .otherwise(0.0),
        text=pl.when(pl.col("state") == "unused")
        .then(pl.lit("not used"))
        .when(pl.col("state") == "untried")
        .then(pl.lit(""))
        .otherwise(pl.col("effective").map_elements(figures.count, return_dtype=pl.String)),
        hatch=pl.when(pl.col("state") == "untried").then(pl.lit(HATCH)).otherwise(pl.lit("")),
        **{
            name: pl.col(name).map_elements(figures.share, return_dtype=pl.String, skip_nulls=False) for name in _SHARES
        },
        eff=pl.col("effective").map_elements(figures.count, return_dtype=pl.String),
        chance=pl.col("least").map_elements(lambda p: f"{p:.3f}", return_dtype=pl.String),
    )
    x = alt.X("action:N", title=None, sort=actions, axis=_heads(ink), scale=alt.Scale(domain=actions, padding=0.05))
    y = alt.Y("segment:N", title=None, sort=segments, axis=_rows(ink), scale=alt.Scale(domain=segments, padding=0.08))
    tips = [
        alt.Tooltip("segment:N", title="Where"),
        alt.Tooltip("action:N", title="Action"),
        alt.Tooltip("eff:N", title=f"Effective {unit}s"),
        alt.Tooltip("logged:Q", title="Logged there", format=","),
        alt.Tooltip("today_share:N", title="Today's share"),
        alt.Tooltip("policy_share:N", title="Suggested share"),
        alt.Tooltip("unsupported_share:N", title="Of it never tried"),
        alt.Tooltip("chance:N", title="Least probability in the log"),
    ]
    base = alt.Chart(shown).encode(x=x, y=y, tooltip=tips)
    edge = (
        alt.when("datum.state == 'untried'")
        .then(alt.value(FAILS))
        .when("datum.state == 'few'")
        .then(alt.value(ink.muted))
        .otherwise(alt.value(ink.line))
    )
    tiles = base.mark_rect(strokeWidth=1.5, cornerRadius=3).encode(
        color=alt.Color("depth:Q", scale=alt.Scale(domain=[0, 1], range=[ink.panel, ink.quiet]), legend=None),
        stroke=edge,
    )
    hatch = base.mark_text(fontSize=15, color=FAILS, opacity=0.75).encode(text="hatch:N")
    words = base.mark_text(fontSize=13, fontWeight=600).encode(
        text="text:N",
        color=alt.condition("datum.state == 'unused'", alt.value(ink.muted), alt.value(ink.text)),
    )
    return layered([tiles, hatch, words], 56 + 48 * max(len(segments), 1))


_SHARES = ("today_share", "policy_share", "unsupported_share")


def _heads(ink: Ink) -> alt.Axis:
    return alt.Axis(
        orient="top", labelAngle=0, labelLimit=190, labelColor=ink.text, labelFontSize=13, domain=False, ticks=False
    )


def _rows(ink: Ink) -> alt.Axis:
    """Names of segments, long ones in two lines."""
    words = "split(replace(datum.label, ' and ', ',\\n'), '\\n')"
    quiet: dict[str, Any] = {"domain": False, "ticks": False, "labelPadding": 8, "labelOffset": -4}
    return alt.Axis(labelLimit=360, labelColor=ink.text, labelFontSize=12, labelExpr=words, **quiet)


def propensities(data: pl.DataFrame, unit: str, ink: Ink) -> alt.LayerChart:
    """How often the taken action had which probability, by where the probability comes from."""
    x = alt.X(
        "low:Q",
        bin="binned",
        title="Probability of the action that was taken",
        scale=alt.Scale(domain=[0, 1]),
        axis=ticks(ink, 5),
    )
    y = alt.Y("decisions:Q", title=f"{figures.capital(unit)}s", stack=True, axis=ticks(ink, 4, grid=True))
    bars = (
        alt.Chart(data)
        .mark_bar(binSpacing=1)
        .encode(
            x=x,
            x2="high:Q",
            y=y,
            color=_origins(ink),
            tooltip=[
                alt.Tooltip("origin:N", title="Probability was"),
                alt.Tooltip("low:Q", title="From", format=".2f"),
                alt.Tooltip("high:Q", title="To", format=".2f"),
                alt.Tooltip("decisions:Q", title=figures.capital(f"{unit}s"), format=","),
            ],
        )
    )
    return layered([bars], 240)


def calibration(data: pl.DataFrame, ink: Ink) -> alt.LayerChart:
    """Of actions with a probability, the share that was taken; on the diagonal every probability is right."""
    line = alt.Chart(pl.DataFrame({"expected": [0.0, 1.0], "taken": [0.0, 1.0]}))
    domain = alt.Scale(domain=[0, 1])
    x = alt.X("expected:Q", title="Probability said", scale=domain, axis=ticks(ink, 5, format="%"))
    y = alt.Y("taken:Q", title="Share taken", scale=domain, axis=ticks(ink, 5, grid=True, format="%"))
    points = alt.Chart(data).encode(x=x, y=y, color=_origins(ink))
    tips = [
        alt.Tooltip("origin:N", title="Probability was"),
        alt.Tooltip("expected:Q", title="Said", format=".1%"),
        alt.Tooltip("taken:Q", title="Taken", format=".1%"),
        alt.Tooltip("pairs:Q", title="Chances", format=","),
    ]
    size = alt.Size("pairs:Q", scale=alt.Scale(type="sqrt", range=[30, 320]), legend=None)
    return layered(
        [
            line.mark_line(color=ink.line, strokeDash=[4, 3]).encode(x=x, y=y),
            points.mark_line(strokeWidth=1.5, opacity=0.6),
            points.mark_circle(opacity=1).encode(size=size, tooltip=tips),
        ],
        240,
    )


def _origins(ink: Ink) -> alt.Color:
    scale = alt.Scale(domain=["logged", "stated", "estimated"], range=[ink.text, ink.muted, ink.quiet])
    return alt.Color("origin:N", scale=scale, legend=None)


def weights(counts: pl.DataFrame, unit: str, ink: Ink) -> alt.LayerChart:
    """How many decisions carry which weight; 1 is as much as all others."""
    shown = counts.filter(pl.col("high") > 0).with_columns(
        middle=((pl.col("low") + pl.col("high")) / 2).round(3),
        text=pl.concat_str(pl.col("low").round(2), pl.lit(" to "), pl.col("high").round(2)),
        name=pl.col("high").round(2).cast(pl.String),
    )
    order = shown["name"].to_list()
    x = alt.X(
        "name:N",
        sort=order,
        title="Weight, up to",
        scale=alt.Scale(domain=order, paddingInner=0.08),
        axis=alt.Axis(
            labelAngle=0,
            labelOverlap=True,
            labelColor=ink.muted,
            titleColor=ink.muted,
            titleFontWeight="normal",
            domainColor=ink.line,
            tickColor=ink.line,
        ),
    )
    y = alt.Y(
        "decisions:Q",
        title=f"{figures.capital(unit)}s",
        scale=alt.Scale(type="symlog", constant=1),
        axis=ticks(ink, 4, grid=True),
    )
    bars = (
        alt.Chart(shown)
        .mark_bar(color=ink.quiet, cornerRadiusEnd=2)
        .encode(
            x=x,
            y=y,
            tooltip=[alt.Tooltip("text:N", title="Weight"), alt.Tooltip("decisions:Q", title=f"{unit}s", format=",")],
        )
    )
    return layered([bars], 240)


def tail(data: pl.DataFrame, limit: float, unit: str, ink: Ink) -> alt.LayerChart:
    """What share of all weight the heaviest decisions hold; a dashed line where the gate stops for the heaviest 1 %."""
    shown = data.with_columns(
        name=pl.col("share").map_elements(lambda s: f"{100 * s:g}%", return_dtype=pl.String),
        text=pl.col("holds").map_elements(figures.share, return_dtype=pl.String),
    )
    order = shown["name"].to_list()
    x = alt.X(
        "holds:Q",
        title="Share of all weight",
        scale=alt.Scale(domain=[0, 1.08], nice=False),
        axis=ticks(ink, 5, format="%", values=[0, 0.25, 0.5, 0.75, 1]),
    )
    y = alt.Y(
        "name:N",
        title=f"Heaviest {unit}s",
        sort=order,
        scale=alt.Scale(domain=order, paddingInner=0.3),
        axis=alt.Axis(
            labelColor=ink.text,
            labelFontSize=13,
            titleColor=ink.muted,
            titleFontWeight="normal",
            domain=False,
            ticks=False,
            labelPadding=8,
        ),
    )
    base = alt.Chart(shown).encode(x=x, y=y)
    bars = base.mark_bar(cornerRadiusEnd=2).encode(
        color=alt.condition("datum.name == '1%'", alt.value(ink.text), alt.value(ink.quiet))
    )
    said = base.mark_text(align="left", dx=5, fontSize=11, color=ink.muted).encode(text="text:N")
    line = alt.Chart(pl.DataFrame({"holds": [limit]})).mark_rule(color=ink.muted, strokeDash=[4, 3]).encode(x="holds:Q")
    return layered([bars, said, line], 240)


def labels(data: pl.DataFrame, unit: str, ink: Ink) -> alt.LayerChart:
    """Per action, how many of its decisions carry a score."""
    shown = data.filter(pl.col("decisions") > 0).with_columns(share=pl.col("labelled") / pl.col("decisions"))
    shown = shown.with_columns(
        text=pl.struct("labelled", "decisions", "share").map_elements(
            lambda row: f"{figures.share(row['share'])} of {figures.count(row['decisions'])}", return_dtype=pl.String
        )
    )
    order = shown["action"].to_list()
    x = alt.X(
        "share:Q",
        title="Scored",
        scale=alt.Scale(domain=[0, 1.3], nice=False),
        axis=ticks(ink, 5, format="%", values=[0, 0.25, 0.5, 0.75, 1]),
    )
    y = alt.Y("action:N", title=None, sort=order, scale=alt.Scale(domain=order, paddingInner=0.35), axis=names(ink))
    base = alt.Chart(shown).encode(x=x, y=y)
    tips = [
        alt.Tooltip("action:N", title="Action"),
        alt.Tooltip("labelled:Q", title="Scored", format=","),
        alt.Tooltip("decisions:Q", title=f"{figures.capital(unit)}s", format=","),
    ]
    return layered(
        [
            base.mark_bar(cornerRadiusEnd=2, color=ink.quiet).encode(tooltip=tips),
            base.mark_text(align="left", dx=5, fontSize=11, color=ink.muted).encode(text="text:N"),
        ],
        60 + 32 * max(len(order), 1),
    )


def sensitivity(data: pl.DataFrame, threshold: float, tipping: float | None, ink: Ink) -> alt.LayerChart:
    """Change of quality that is possible if hidden causes shift the odds of a choice by so much; the margin dashed."""
    shown = data.with_columns(pl.col(name) * 100 for name in ("low", "high", "low_limit", "high_limit"))
    x: dict[str, Any] = {
        "title": "Hidden causes shift the odds of a choice, times",
        "scale": alt.Scale(type="log", nice=False, domain=[1, max([*shown["gamma"], 1.1])]),
        "axis": ticks(ink, 5, values=shown["gamma"].to_list()),
    }
    y: dict[str, Any] = {"title": "Change of quality, points", "axis": ticks(ink, 5, grid=True)}
    base = alt.Chart(shown).encode(x=alt.X("gamma:Q", **x))
    tips = [alt.Tooltip(f"{name}:Q", title=title, format="+.1f") for name, title in _BOUNDS]
    layers = [
        base.mark_area(color=ink.muted, opacity=0.14).encode(y=alt.Y("low_limit:Q", **y), y2="high_limit:Q"),
        base.mark_area(color=ink.muted, opacity=0.3).encode(
            y=alt.Y("low:Q", **y), y2="high:Q", tooltip=[alt.Tooltip("gamma:Q", title="Odds times"), *tips]
        ),
    ]
    margin = alt.Chart(pl.DataFrame({"low": [100 * threshold]}))
    layers.append(margin.mark_rule(color=ink.muted, strokeDash=[4, 3]).encode(y=alt.Y("low:Q", **y)))
    if tipping is not None and tipping > 1:
        at = alt.Chart(pl.DataFrame({"gamma": [min(tipping, float(shown["gamma"].max()))]}))  # type: ignore[arg-type]
        layers.append(at.mark_rule(color=ink.text, strokeWidth=1.5).encode(x=alt.X("gamma:Q", **x)))
    return layered(layers, 240)


_BOUNDS = (("low", "At least"), ("high", "At most"), ("low_limit", "Lower limit"), ("high_limit", "Upper limit"))
