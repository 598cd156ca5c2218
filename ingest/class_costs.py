"""What each token class of a call cost, so that an invoice's lines can be laid beside it.

The parts add up to the call's cost as it was settled. Where today's prices give another sum, or none, the settled cost
still counts: it is divided in the same shares, or is `other` as a whole.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

import polars as pl

from ingest.prices.rates import CLASSES
from ingest.pricing import Prices, Usage

PARTS: Mapping[str, tuple[str, ...]] = {
    "input_usd": ("input", "input_audio", "input_image"),
    "cache_read_usd": ("cache_read",),
    "cache_write_usd": ("cache_write", "cache_write_1h"),
    "output_usd": ("output", "reasoning", "output_audio", "output_image"),
    "tools_usd": ("web_search", "code_interpreter", "file_search"),
    "other_usd": ("request",),
}
"""Our columns, and the price classes that they sum."""

_POSITIONS = tuple(tuple(CLASSES.index(name) for name in names) for names in PARTS.values())
_WHOLE_IS_OTHER = (0.0,) * (len(PARTS) - 1)


def with_parts(calls: pl.DataFrame, prices: Prices) -> pl.DataFrame:
    """`calls` with the columns of `PARTS`, null where the call has no cost. Whatever `Usage` knows and a column says
    is priced."""
    parts = [_parts(row, prices) for row in calls.iter_rows(named=True)]
    added = pl.DataFrame(parts, dict.fromkeys(PARTS, pl.Float64), orient="row")
    return pl.concat([calls, added], how="horizontal")


def _parts(row: Mapping[str, Any], prices: Prices) -> tuple[float | None, ...]:
    settled = row["cost_usd"]
    if settled is None:
        return (None,) * len(PARTS)
    cost = prices.cost(_usage(row))
    if not cost.usd or cost.parts is None:
        return (*_WHOLE_IS_OTHER, settled)
    share = settled / cost.usd
    return tuple(share * sum(cost.parts[at] for at in positions) for positions in _POSITIONS)


def _usage(row: Mapping[str, Any]) -> Usage:
    said = {field.name: row[field.name] for field in fields(Usage) if field.name in row}
    return Usage(**{**said, "at_ns": row["start_ns"], "embedding": row["kind"] == "embedding"})
