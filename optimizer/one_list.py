"""Costs at one price list: what savings are computed with.

The lake keeps what each call cost at the prices of its day. Two actions that were logged in different months are
compared fairly only at the same prices, so every call is priced again as of one day. A call that has no price there has
no cost: never that of its day, and never 0.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

import polars as pl

from ingest.prices import frames
from ingest.prices.newest import newest_list
from ingest.pricing import Prices

FAILED_WITHOUT_USAGE = "failed without usage"
"""Why a call has no cost, as settling says it, when it failed before anything was billed."""


@dataclass(frozen=True)
class PriceList:
    """The prices of one day ("YYYY-MM-DD", UTC)."""

    at: str
    listed: str | None
    """The newest list that holds then, by name; None when there is none."""
    dated: str | None
    """The day of that list."""
    stated: int
    """[[prices]] of retroute.toml that hold then; they come before the list."""
    discounts: int
    """[[discounts]] of retroute.toml that hold then."""


def newest(prices: Prices, day: str | None = None) -> PriceList:
    """The newest prices that hold on a day. None: today."""
    at = day or datetime.now(UTC).strftime("%Y-%m-%d")
    listed, dated = newest_list(prices.book, at) or (None, None)
    stated = sum(1 for price in prices.overrides if price.valid_from is None or price.valid_from <= at)
    off = sum(
        1 for d in prices.discounts if (d.valid_from or at) <= at <= (d.valid_until or at)
    )  # days are texts that sort by time
    return PriceList(at, listed, dated, stated, off)


def with_one_list(calls: pl.DataFrame, prices: Prices, at: str) -> pl.DataFrame:
    """Calls of the query `decision_calls` with `cost_usd` and `unpriced` as of the day `at`; what the lake says of them
    is in `billed_usd` and `billed_unpriced`.

    A call that was never to be priced (a tool run, a failure before anything was billed) stays as it is.
    """
    listed = frames.repriced(calls, prices, at)
    counted = pl.col("billed_usd").is_not_null() | (
        pl.col("billed_unpriced").is_not_null() & pl.col("billed_unpriced").ne_missing(FAILED_WITHOUT_USAGE)
    )
    return calls.rename({"cost_usd": "billed_usd", "unpriced": "billed_unpriced"}).with_columns(
        pl.when(counted).then(listed["cost_usd"]).alias("cost_usd"),
        pl.when(counted).then(listed["unpriced"]).otherwise("billed_unpriced").alias("unpriced"),
    )
