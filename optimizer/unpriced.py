"""The share of the spend that no price is known for: calls and tokens without a cost, by reason.

What is not known is never 0: a call without a cost is counted here instead, and one without token counts, whose tokens
are in no share, by itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import polars as pl


def shares(calls: pl.DataFrame) -> dict[str, Any]:
    """{calls, unpriced_calls, share_of_calls, tokens, unpriced_tokens, share_of_tokens, uncounted_calls, reasons}.

    calls: kind, cost_usd, unpriced, input_tokens, output_tokens; those that were never to be priced are left out.
    Tokens are input and output of the calls that told them; shares are null where there is nothing to share.
    reasons: {reason, calls, tokens, uncounted_calls}, the most calls first.
    """
    tokens = pl.sum_horizontal("input_tokens", "output_tokens")
    counted = pl.col("input_tokens").is_not_null() | pl.col("output_tokens").is_not_null()
    spent = calls.filter(pl.col("cost_usd").is_not_null() | pl.col("unpriced").is_not_null()).select(
        pl.col("unpriced").alias("reason"),
        pl.col("cost_usd").is_null().alias("without"),
        pl.when(counted).then(tokens).alias("tokens"),
    )
    sums = (
        pl.len().cast(pl.Int64).alias("calls"),
        pl.col("tokens").sum(),
        pl.col("tokens").is_null().sum().cast(pl.Int64).alias("uncounted_calls"),
    )
    without = spent.filter("without")
    reasons = without.group_by("reason").agg(*sums).sort(["calls", "reason"], descending=[True, False])
    whole = spent.select(*sums).row(0, named=True)
    lacking = without.select(*sums).row(0, named=True)
    return {
        "calls": whole["calls"],
        "unpriced_calls": lacking["calls"],
        "share_of_calls": _share(lacking["calls"], whole["calls"]),
        "tokens": whole["tokens"],
        "unpriced_tokens": lacking["tokens"],
        "share_of_tokens": _share(lacking["tokens"], whole["tokens"]),
        "uncounted_calls": lacking["uncounted_calls"],
        "reasons": reasons.to_dicts(),
    }


def in_all(services: pl.DataFrame) -> dict[str, Any]:
    """The same without reasons, summed over the rows of the query `unpriced_shares`."""
    found = {name: int(services[name].sum()) for name in services.columns if name != "service"}
    return {
        **found,
        "share_of_calls": _share(found["unpriced_calls"], found["calls"]),
        "share_of_tokens": _share(found["unpriced_tokens"], found["tokens"]),
    }


def sentence(found: Mapping[str, Any]) -> str:
    """The shares in words, as a part of a sentence."""
    if not found["calls"]:
        return "no call is to be priced"
    if not found["unpriced_calls"]:
        return f"all {found['calls']:,} calls have a price"
    said = (
        f"{found['unpriced_calls']:,} of {found['calls']:,} calls ({found['share_of_calls']:.1%}) have no cost, "
        f"and {_percent(found['share_of_tokens'])} of the tokens that were told"
    )
    if found["uncounted_calls"]:
        said += f"; {found['uncounted_calls']:,} told no tokens"
    return said


def _share(part: int, whole: int) -> float | None:
    return part / whole if whole else None


def _percent(share: float | None) -> str:
    return "none" if share is None else f"{share:.1%}"
