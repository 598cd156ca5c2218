"""Spend, drawn: over time by token class, and from the service down to the model. No Streamlit here, and no colour:
tones tell parts apart, from the darkest, input, to the lightest."""

from __future__ import annotations

import math
from datetime import timedelta

import altair as alt
import polars as pl

from dashboard import figures
from dashboard.charts import layered, ticks
from dashboard.spend_data import LEVELS, OTHER, PARTS, UNDIVIDED, UNNAMED
from dashboard.theme import DARK, Ink

BOX = 46
"""Height of a level of the icicle."""

_LIGHT = ("#1b2129", "#4d5763", "#748091", "#9ba7b4", "#c0c8d0", "#dde2e7", "#eceef1")
_DARK = ("#e9ecef", "#b9c2cb", "#8f9ba7", "#6d7985", "#515b66", "#3b434c", "#2b3138")


def over_time(data: pl.DataFrame, step_ns: int, ink: Ink, per: str = "total") -> alt.LayerChart:
    """Stacked areas of cost by token class. data: at_ns, part, usd, of what `per` says (a key of `spend_data.PER`)."""
    order = [part for part in (*PARTS.values(), UNDIVIDED) if part in set(data["part"].to_list())]
    shown = data.with_columns(
        at=pl.from_epoch("at_ns", time_unit="ns").dt.replace_time_zone("UTC"),
        text=pl.col("usd").map_elements(usd, return_dtype=pl.String),
        place=pl.col("part").replace_strict(order, list(range(len(order))), return_dtype=pl.Int64),
    )
    long = shown.height > 1 and shown["at"].max() - shown["at"].min() > timedelta(days=2)  # type: ignore[operator]
    axis = ticks(ink, 6, format="%-d %b" if long else "%H:%M", labelOverlap=True)
    tints = alt.Scale(domain=order, range=_spread(_tones(ink), len(order)))
    legend = alt.Legend(title=None, orient="top", labelColor=ink.muted, labelFontSize=12, symbolType="square")
    base = alt.Chart(shown).encode(
        x=alt.X("at:T", title=None, scale=alt.Scale(type="utc"), axis=axis),
        y=alt.Y(
            "usd:Q",
            title=f"USD per {_length(step_ns) if per == 'total' else per}",
            stack=True,
            axis=ticks(ink, 4, grid=True, format="$,~r"),
        ),
        color=alt.Color("part:N", sort=order, scale=tints, legend=legend),
        order=alt.Order("place:Q"),
        tooltip=[
            alt.Tooltip("utcyearmonthdatehoursminutes(at):T", title="From (UTC)"),
            alt.Tooltip("part:N", title="Token class"),
            alt.Tooltip("text:N", title="Cost"),
        ],
    )
    few = data["at_ns"].n_unique() < 4
    mark = base.mark_bar(width=38) if few else base.mark_area(interpolate="step-after", line=False)
    return layered([mark], 240)


def icicle(boxes: pl.DataFrame, ink: Ink) -> alt.LayerChart:
    """Boxes as wide as what they cost: service, agent, step, model from above. A click on one opens its `href`.

    boxes: as `spend_data.icicle` gives them, with `href`."""
    tones = _tones(ink)
    shown = boxes.with_columns(
        top=pl.col("level"),
        bottom=pl.col("level") + 0.94,
        middle=(pl.col("x0") + pl.col("x1")) / 2,
        text=pl.struct("name", "x0", "x1").map_elements(_fitting, return_dtype=pl.String),
        cost=pl.col("usd").map_elements(usd, return_dtype=pl.String),
        share=(pl.col("x1") - pl.col("x0")).map_elements(figures.share, return_dtype=pl.String),
        what=pl.col("level").replace_strict(dict(enumerate(LEVELS)), return_dtype=pl.String).str.to_titlecase(),
        dim=pl.col("name").str.ends_with(f" {OTHER}") | (pl.col("name") == UNNAMED),
    )
    y = {
        "y": alt.Y("top:Q", axis=None, scale=alt.Scale(domain=[0, len(LEVELS)], reverse=True)),
        "y2": alt.Y2("bottom:Q"),
    }
    tips = [
        alt.Tooltip("what:N", title="Level"),
        alt.Tooltip("name:N", title="Name"),
        alt.Tooltip("cost:N", title="Cost"),
        alt.Tooltip("share:N", title="Of all"),
        alt.Tooltip("calls:Q", title="Calls", format=","),
    ]
    x = alt.X("x0:Q", axis=None, scale=alt.Scale(domain=[0, 1], nice=False))
    base = alt.Chart(shown)
    boxed = base.mark_rect(stroke=ink.page, strokeWidth=1.5, cornerRadius=3, cursor="pointer").encode(
        x=x,
        x2="x1:Q",
        **y,
        href="href:N",
        tooltip=tips,
        color=alt.when("datum.dim").then(alt.value(ink.faint)).otherwise(alt.value(tones[5])),
    )
    middles = base.transform_calculate(at="datum.level + 0.47")
    names = middles.mark_text(fontSize=12, color=ink.text, baseline="middle", limit=900).encode(
        x=alt.X("middle:Q", axis=None, scale=alt.Scale(domain=[0, 1], nice=False)),
        y=alt.Y("at:Q", axis=None, scale=alt.Scale(domain=[0, len(LEVELS)], reverse=True)),
        text="text:N",
        tooltip=tips,
        href="href:N",
    )
    return layered([boxed, names], BOX * len(LEVELS) + 20)


def usd(amount: float) -> str:
    """An amount of money; as many digits as it takes to see two of them."""
    if amount == 0:
        return "$0"
    if amount < 0:
        return f"−{usd(-amount)}"
    if amount >= 1000:
        return f"${amount:,.0f}"
    if amount >= 1:
        return f"${amount:,.2f}"
    places = min(max(2, 1 - math.floor(math.log10(amount))), 10)
    return f"${amount:.{places}f}"


def _tones(ink: Ink) -> tuple[str, ...]:
    return _DARK if ink == DARK else _LIGHT


def _spread(tones: tuple[str, ...], count: int) -> list[str]:
    """So many of the tones, as far apart as they can be, without the darkest."""
    rest = tones[1:]
    if count >= len(rest):
        return [*tones][:count]
    return [rest[round(k * (len(rest) - 2) / max(count - 1, 1))] for k in range(count)]


def _fitting(box: dict[str, object]) -> str:
    """The name as far as it fits into the box, at the width of a page."""
    letters = int((float(box["x1"]) - float(box["x0"])) * 150)  # type: ignore[arg-type]
    name = str(box["name"])
    return name if len(name) <= letters else (f"{name[: letters - 1]}…" if letters >= 4 else "")


def _length(step_ns: int) -> str:
    minutes = step_ns // (60 * 10**9)
    named = {5: "5 minutes", 60: "hour", 360: "6 hours", 1440: "day", 7 * 1440: "week", 28 * 1440: "4 weeks"}
    return named.get(minutes, f"{minutes} minutes")
