"""What each token class of a call cost, so that an invoice's lines can be laid beside it.

The parts add up to the call's cost as it was settled. Where today's prices give another sum, or none, the settled cost
still counts: it is divided in the same shares, or is `other` as a whole.
"""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl

from ingest.prices import frames
from ingest.pricing import Prices

PARTS: Mapping[str, tuple[str, ...]] = {
    "input_usd": ("input", "input_audio", "input_image"),
    "cache_read_usd": ("cache_read",),
    "cache_write_usd": ("cache_write", "cache_write_1h"),
    "output_usd": ("output", "reasoning", "output_audio", "output_image"),
    "tools_usd": ("web_search", "code_interpreter", "file_search"),
    "other_usd": ("request",),
}
"""Our columns, and the price classes that they sum."""


COST_PARTS: Mapping[str, tuple[str, ...]] = {
    "input_usd": ("input", "input_audio", "input_image"),
    "cache_read_usd": ("cache_read",),
    "cache_write_usd": ("cache_write", "cache_write_1h"),
    "output_usd": ("output", "output_audio", "output_image"),
    "reasoning_usd": ("reasoning",),
    "tools_usd": ("request", "web_search", "code_interpreter", "file_search"),
}
"""Columns of settled calls, and the price classes that they sum."""

_UNKNOWN = (None,) * len(COST_PARTS)


def cost_parts(parts: tuple[float, ...] | None) -> tuple[float | None, ...]:
    """USD by class, in the order of `CLASSES` -> the columns of `COST_PARTS`, None of None."""
    if parts is None:
        return _UNKNOWN
    given, read, write, write_1h, audio, image, said, thought, spoken, drawn, *tools = parts
    return given + audio + image, read, write + write_1h, said + spoken + drawn, thought, sum(tools)


def with_parts(calls: pl.DataFrame, prices: Prices) -> pl.DataFrame:
    """`calls` with the columns of `PARTS`, null where the call has no cost."""
    costs = frames.priced(calls, prices).rename({"cost_usd": "today_usd"}).drop("unpriced", "price")
    settled = pl.col("cost_usd")
    shared = pl.col("today_usd") > 0
    parts = []
    for name, classes in PARTS.items():
        part = pl.sum_horizontal(*(f"usd_{name}" for name in classes)) * settled / pl.col("today_usd")
        alone = settled if name == "other_usd" else pl.lit(0.0)
        parts.append(pl.when(settled.is_not_null()).then(pl.when(shared).then(part).otherwise(alone)).alias(name))
    both = pl.concat([calls, costs.drop([name for name in costs.columns if name in calls.columns])], how="horizontal")
    return both.with_columns(parts).drop(costs.columns)
