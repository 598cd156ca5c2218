"""What is missing, drawn. No Streamlit here; darkness is a share, colour belongs to verdicts."""

from __future__ import annotations

import altair as alt
import polars as pl

from dashboard import figures
from dashboard.charts import layered
from dashboard.health_data import FIELDS
from dashboard.theme import Ink


def missing(cells: pl.DataFrame, ink: Ink) -> alt.LayerChart:
    """Sources x fields: the darker, the more model calls do not say it. cells: as `health_data.missing` gives them."""
    sources = cells["source"].unique(maintain_order=True).to_list()
    shown = cells.with_columns(
        text=pl.col("share").map_elements(figures.share, return_dtype=pl.String),
        dark=pl.col("share") > 0.6,
    ).with_columns(text=pl.when(pl.col("missing") > 0).then("text").otherwise(pl.lit("")))
    heads = alt.Axis(orient="top", labelAngle=0, domain=False, ticks=False, labelColor=ink.muted, labelFontSize=12)
    rows = alt.Axis(domain=False, ticks=False, labelColor=ink.text, labelFontSize=12, labelLimit=380, labelPadding=8)
    fields = list(FIELDS.values())
    base = alt.Chart(shown).encode(
        x=alt.X("field:N", title=None, sort=fields, axis=heads, scale=alt.Scale(domain=fields, padding=0.05)),
        y=alt.Y("source:N", title=None, sort=sources, axis=rows, scale=alt.Scale(domain=sources, padding=0.1)),
        tooltip=[
            alt.Tooltip("source:N", title="Source"),
            alt.Tooltip("field:N", title="Field"),
            alt.Tooltip("missing:Q", title="Calls without it", format=","),
            alt.Tooltip("calls:Q", title="Model calls", format=","),
        ],
    )
    tint = alt.Color("share:Q", scale=alt.Scale(domain=[0, 1], range=[ink.panel, ink.muted]), legend=None)
    tiles = base.mark_rect(stroke=ink.line, cornerRadius=3).encode(color=tint)
    words = alt.when("datum.dark").then(alt.value(ink.page)).otherwise(alt.value(ink.text))
    return layered([tiles, base.mark_text(fontSize=12).encode(text="text:N", color=words)], 40 + 34 * len(sources))
