"""What a run says of a service's costs: as billed, at one price list, and for which share no price is known."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import polars as pl

from ingest.pricing import Prices
from optimizer import unpriced
from optimizer.one_list import PriceList
from optimizer.switching import switching


def costs_json(price_list: PriceList, calls: pl.DataFrame, decisions: pl.DataFrame, prices: Prices) -> dict[str, Any]:
    """{price_list, decisions, billed_usd_per_1k, one_list_usd_per_1k, billed_unknown, one_list_unknown, unpriced,
    switching}.

    calls: the service's, with both costs (see `one_list.with_one_list`). decisions: those that are judged. The two
    means, USD per 1,000 decisions as they were logged, are over the `decisions` whose cost is known both ways, so that
    they differ by prices alone; null without any. `unpriced` has the shares both ways, `switching` what
    a switch of models inside a session costs (see `optimizer.switching`).
    """
    both = decisions.filter(pl.col("billed_usd").is_not_null() & pl.col("cost_usd").is_not_null())
    billed = calls.select("kind", "input_tokens", "output_tokens", cost_usd="billed_usd", unpriced="billed_unpriced")
    return {
        "price_list": asdict(price_list),
        "decisions": len(both),
        "billed_usd_per_1k": _per_1k(both["billed_usd"]),
        "one_list_usd_per_1k": _per_1k(both["cost_usd"]),
        "billed_unknown": decisions["billed_usd"].null_count(),
        "one_list_unknown": decisions["cost_usd"].null_count(),
        "unpriced": {"billed": unpriced.shares(billed), "one_list": unpriced.shares(calls)},
        "switching": switching(calls, prices, price_list.at),
    }


def list_words(said: Mapping[str, Any]) -> str:
    """The price list in words: its day, the newest list then, and what retroute.toml adds."""
    parts = [f"{said['listed']} of {said['dated']}" if said["listed"] else "no built-in list"]
    parts += [
        f"{said[key]} {name}{'' if said[key] == 1 else 's'} of retroute.toml"
        for key, name in (("stated", "price"), ("discounts", "discount"))
        if said[key]
    ]
    return f"prices of {said['at']} ({', '.join(parts)})"


def _per_1k(usd: pl.Series) -> float | None:
    return 1000 * float(usd.sum()) / len(usd) if len(usd) else None
