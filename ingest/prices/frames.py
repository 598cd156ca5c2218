"""Many calls at once: a frame of calls -> a frame of their costs, by the same rates as `Prices.cost`.

What a price depends on takes few different values in a million calls: each combination is quoted once, and the numbers
are multiplied column by column.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date

import polars as pl

from ingest.prices.rates import CLASSES, SAID, SLOT_S, SLOTS, service_tier
from ingest.pricing import OWN_CACHE, Key, Prices, as_of

_COUNTS = (
    *("cache_read_tokens", "cache_write_tokens", "cache_write_1h_tokens", "input_audio_tokens", "input_image_tokens"),
    *("reasoning_tokens", "output_audio_tokens", "output_image_tokens"),
    *("web_search_calls", "code_interpreter_calls", "file_search_calls"),
)
_TEXTS = ("model_returned", "model_requested", "provider", "service_tier", "search_size", "kind")
_KEY = ("model_returned", "model_requested", "provider", "service_tier", "search_size", "day")
_EARLIEST_S = 1_577_836_800
_DAY_S = 86_400


def priced(calls: pl.DataFrame, prices: Prices) -> pl.DataFrame:
    """What each call cost at the prices of its day: a row per row of `calls`, in order.

    `calls` has the columns of the lake's calls that a price depends on; one that is missing is unknown throughout.
    Columns of the result: cost_usd (USD; null: unpriced), unpriced (why), price (which), and usd_<class> for each of
    `CLASSES`, the parts of the cost.
    """
    rows = _prepared(calls, prices)
    keys = rows.select(*_KEY).unique(maintain_order=True).with_row_index("key")
    named = [_key(row) for row in keys.select(*_KEY).iter_rows(named=True)]
    limits = sorted({limit for key in named for limit in prices.thresholds(key)})
    keys = keys.with_columns(pl.Series("hourly", [prices.hourly(key) for key in named], dtype=pl.Boolean))
    rows = rows.join(keys, on=list(_KEY), how="left", nulls_equal=True, maintain_order="left")
    rows = rows.with_columns(
        slot=pl.when(pl.col("hourly")).then(pl.col("slot")),
        length=pl.sum_horizontal(
            pl.lit(0, dtype=pl.Int64), *[(pl.col("input_tokens") > limit).fill_null(False) for limit in limits]
        ),
    )
    quoted = rows.select("key", "length", "slot").unique(maintain_order=True)
    rates = _rates(quoted, named, limits, prices)
    rows = rows.join(rates, on=["key", "length", "slot"], how="left", nulls_equal=True, maintain_order="left")
    return _costs(rows)


def repriced(calls: pl.DataFrame, prices: Prices, at: date | str) -> pl.DataFrame:
    """What each call would cost at the price list of one day, what savings are computed with. Columns as `priced`."""
    return priced(calls, as_of(prices, at))


def _prepared(calls: pl.DataFrame, prices: Prices) -> pl.DataFrame:
    def column(name: str, kind: type[pl.DataType]) -> pl.Expr:
        found = pl.col(name).cast(kind) if name in calls.columns else pl.lit(None, dtype=kind)
        return found.alias(name)

    seconds = column("start_ns", pl.Int64) // 10**9
    day = (
        pl.lit(prices.at, dtype=pl.String)
        if prices.at is not None
        else pl.when(seconds >= _EARLIEST_S).then((seconds // _DAY_S).cast(pl.Int32).cast(pl.Date))
    )
    hit = column("cache_hit", pl.Boolean).fill_null(False)
    return calls.select(
        *[column(name, pl.String) for name in _TEXTS],
        *[column(name, pl.Int64) for name in ("input_tokens", "output_tokens", "start_ns")],
        *[column(name, pl.Int64).fill_null(0) for name in _COUNTS],
        hit,
    ).with_columns(
        day=day,
        slot=pl.when(seconds >= _EARLIEST_S).then((seconds // SLOT_S + 3 * 48) % SLOTS),
        cache_write_tokens=pl.max_horizontal("cache_write_tokens", "cache_write_1h_tokens"),
    )


def _key(row: Mapping[str, object]) -> Key:
    models = tuple(str(row[name]) for name in ("model_returned", "model_requested") if row[name])
    day = row["day"]
    provider, tier, size = (None if row[name] is None else str(row[name]) for name in _KEY[2:5])
    return Key(models, provider, service_tier(tier), None if day is None else str(day), size)


def _rates(quoted: pl.DataFrame, named: Sequence[Key], limits: Sequence[int], prices: Prices) -> pl.DataFrame:
    """One row per combination: the rate of each class, what cannot be priced and why, and the price's name."""
    quotes = [
        prices.quote(named[key], limits[length - 1] + 1 if length else 0, slot) if named[key].models else None
        for key, length, slot in quoted.iter_rows()
    ]
    columns: dict[str, list[object]] = {f"rate_{name}": [] for name in CLASSES}
    for quote in quotes:
        for name, usd in zip(CLASSES, quote.rates.usd if quote else (None,) * len(CLASSES), strict=True):
            columns[f"rate_{name}"].append(usd)
    return quoted.with_columns(
        *[pl.Series(name, found, dtype=pl.Float64) for name, found in columns.items()],
        pl.Series("missing", [q.rates.missing if q else "no model name" for q in quotes], dtype=pl.String),
        pl.Series("price", [q.price if q else None for q in quotes], dtype=pl.String),
        pl.Series(
            "model", [named[key].models[0] if named[key].models else None for key in quoted["key"]], dtype=pl.String
        ),
    )


def _counted() -> dict[str, pl.Expr]:
    """How much of each class was used: as `pricing.counts`."""
    fresh = pl.col("input_tokens") - pl.col("cache_read_tokens") - pl.col("cache_write_tokens")
    heard = pl.min_horizontal(pl.col("input_audio_tokens"), fresh)
    seen = pl.min_horizontal(pl.col("input_image_tokens"), fresh - heard)
    out = pl.col("output_tokens").fill_null(0)
    reasoned = pl.min_horizontal(pl.col("reasoning_tokens"), out)
    spoken = pl.min_horizontal(pl.col("output_audio_tokens"), out - reasoned)
    drawn = pl.min_horizontal(pl.col("output_image_tokens"), out - reasoned - spoken)
    return {
        "input": fresh - heard - seen,
        "cache_read": pl.col("cache_read_tokens"),
        "cache_write": pl.col("cache_write_tokens") - pl.col("cache_write_1h_tokens"),
        "cache_write_1h": pl.col("cache_write_1h_tokens"),
        "input_audio": heard,
        "input_image": seen,
        "output": out - reasoned - spoken - drawn,
        "reasoning": reasoned,
        "output_audio": spoken,
        "output_image": drawn,
        "request": pl.lit(1, dtype=pl.Int64),
        "web_search": pl.col("web_search_calls"),
        "code_interpreter": pl.col("code_interpreter_calls"),
        "file_search": pl.col("file_search_calls"),
    }


def _costs(rows: pl.DataFrame) -> pl.DataFrame:
    rows = rows.with_columns(**{f"n_{name}": count for name, count in _counted().items()})
    embedding = (pl.col("kind") == "embedding").fill_null(False)
    cached = pl.col("cache_read_tokens") + pl.col("cache_write_tokens")
    unknown = pl.any_horizontal(
        pl.col("input_tokens").is_null(),
        pl.col("output_tokens").is_null() & ~embedding,
        (cached > pl.col("input_tokens")).fill_null(False),
        pl.col("missing").is_not_null(),
    )
    parts = {
        name: pl.when(pl.col(f"n_{name}") == 0).then(0.0).otherwise(pl.col(f"n_{name}") * pl.col(f"rate_{name}"))
        for name in CLASSES
    }
    told = rows.with_columns(
        **{f"usd_{name}": pl.when(~unknown).then(usd) for name, usd in parts.items()},
    ).with_columns(cost_usd=pl.sum_horizontal([f"usd_{name}" for name in CLASSES], ignore_nulls=False))
    if told["cache_hit"].any():
        hit = pl.col("cache_hit")
        free = {f"usd_{name}": pl.when(hit).then(0.0).otherwise(f"usd_{name}") for name in CLASSES}
        price = pl.when(hit).then(pl.lit(OWN_CACHE)).otherwise("price")
        told = told.with_columns(cost_usd=pl.when(hit).then(0.0).otherwise("cost_usd"), price=price, **free)
    priced_ = pl.col("cost_usd").is_not_null()
    return told.select(
        "cost_usd",
        _reasons(told.filter(~priced_), told.select(priced_).to_series()),
        pl.when(priced_).then("price").alias("price"),
        *[pl.when(priced_).then(f"usd_{name}").alias(f"usd_{name}") for name in CLASSES],
    )


_UNKNOWN = ("no model name", "no input token count", "no output token count", "more cached than input tokens")


def _reasons(unpriced: pl.DataFrame, priced_: pl.Series) -> pl.Series:
    """Why rows have no cost, at their places: the different reasons are spelled once each."""
    embedding = (pl.col("kind") == "embedding").fill_null(False)
    code = pl.coalesce(
        pl.when(pl.col("model").is_null()).then(0),
        pl.when(pl.col("input_tokens").is_null()).then(1),
        pl.when(pl.col("output_tokens").is_null() & ~embedding).then(2),
        pl.when(pl.col("cache_read_tokens") + pl.col("cache_write_tokens") > pl.col("input_tokens")).then(3),
        pl.when(pl.col("missing").is_not_null()).then(4),
        *[
            pl.when((pl.col(f"n_{name}") > 0) & pl.col(f"rate_{name}").is_null()).then(5 + at)
            for at, name in enumerate(CLASSES)
        ],
    )
    coded = unpriced.select(code.alias("code"), "model", "missing")
    kinds = coded.unique(maintain_order=True)
    said = [
        _UNKNOWN[code] if code < 4 else missing if code == 4 else f"no price for {SAID[CLASSES[code - 5]]} of {model}"
        for code, model, missing in kinds.iter_rows()
    ]
    kinds = kinds.with_columns(pl.Series("why", said, dtype=pl.String))
    told = coded.join(kinds, on=["code", "model", "missing"], how="left", nulls_equal=True, maintain_order="left")
    places = (~priced_).arg_true()
    found = pl.Series("unpriced", [None], dtype=pl.String).new_from_index(0, len(priced_))
    return found.scatter(places, told["why"]) if len(places) else found
