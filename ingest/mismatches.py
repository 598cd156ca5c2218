"""Why our calls and an invoice differ: rows of (day, model, reason) with the calls, tokens and USD in question. Pure.

Unpriced calls and other names of a model are always told; the rest for days and models outside the tolerance. Reasons
may overlap: a failed call can also be one that the invoice does not have.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date
from typing import Any

import polars as pl

NO_MODEL = "no model named"

SCHEMA = {
    "day": pl.Date,
    "model": pl.String,
    "reason": pl.String,
    "calls": pl.Int64,
    "tokens": pl.Int64,
    "usd": pl.Float64,
    "detail": pl.String,
}

Row = tuple[date | None, str, str, int | None, int | None, float | None, str]


def explain(
    calls: pl.DataFrame,
    models: pl.DataFrame,
    classes: pl.DataFrame,
    unsure: Mapping[str, tuple[str, ...]],
    aliased: pl.DataFrame,
) -> pl.DataFrame:
    """The reasons, in `SCHEMA`. `calls` have day, end_day and model; `models` and `classes` are compared."""
    bad = classes.filter(~pl.col("within")).select("day", "model")
    outside = pl.concat([models.filter(~pl.col("within")).select("day", "model"), bad]).unique()
    rows: list[Row] = [
        (None, model, "model alias", count, None, None, f"our calls say {named}")
        for named, model, count in aliased.iter_rows()
    ]
    rows += _unpriced(calls)
    rows += _uncounted(calls.join(outside, on=["day", "model"], how="semi"))
    compared = models.join(outside, on=["day", "model"], how="semi").sort("day", "model")
    days = set(calls["day"].unique())
    billed = set(models.filter(pl.col("lines").is_not_null())["day"].unique())
    for row in compared.iter_rows(named=True):
        rows += _one_sided(row, days, billed, unsure)
        rows += _counted(row)
    rows += _other_prices(classes.join(outside, on=["day", "model"], how="semi"), models)
    rows += _shifted(models)
    return pl.DataFrame(rows, SCHEMA, orient="row").sort("day", "model", "reason", nulls_last=True, maintain_order=True)


def _unpriced(calls: pl.DataFrame) -> list[Row]:
    why = pl.col("unpriced").fill_null("no cost")
    found = calls.filter(pl.col("cost_usd").is_null())
    return _grouped(found.with_columns(why.alias("detail")), "unpriced")


def _uncounted(calls: pl.DataFrame) -> list[Row]:
    failed = ((pl.col("status") == "error") | pl.col("attempt_of").is_not_null()).fill_null(False)
    used = pl.col("input_tokens").is_not_null() | pl.col("output_tokens").is_not_null()
    kinds = (
        (failed & used, "failed calls", "they have usage; the provider may not have billed them"),
        (failed & ~used, "failed calls", "they have no usage; the provider may have billed them"),
        (pl.col("end_day") != pl.col("day"), "over midnight", "they ended on another day than they started"),
    )
    return [
        row
        for chosen, reason, detail in kinds
        for row in _grouped(calls.filter(chosen).with_columns(pl.lit(detail).alias("detail")), reason)
    ]


def _grouped(calls: pl.DataFrame, reason: str) -> list[Row]:
    tokens = pl.sum_horizontal("input_tokens", "output_tokens")
    found = calls.group_by("day", "model", "detail").agg(
        pl.len(),
        tokens.sum().alias("tokens"),
        pl.col("cost_usd").sum().alias("usd"),
        pl.col("cost_usd").count().alias("n"),
    )
    return [
        (day, model, reason, count, tokens, usd if priced else None, detail)
        for day, model, detail, count, tokens, usd, priced in found.sort("day", "model", "detail").iter_rows()
    ]


def _one_sided(
    row: Mapping[str, Any], days: set[object], billed: set[object], unsure: Mapping[str, tuple[str, ...]]
) -> list[Row]:
    day, model = row["day"], str(row["model"])
    if row["calls"] is None:
        what = "no call of this day was received" if day not in days else "no call of this model was received this day"
        if row["model"] == NO_MODEL:
            what = "the invoice names no model for it"
        if meant := [name for name, others in unsure.items() if model in others]:
            what += f"; calls to {', '.join(meant)} may be meant"
        return [_of(row, "only in the invoice", row["requests"], row["their_tokens"], row["their_usd"], what)]
    if row["lines"] is None:
        what = "the invoice has nothing on this day" if day not in billed else "the invoice has no such model this day"
        if model in unsure:
            what += f"; it may mean {' or '.join(unsure[model])}"
        return [_of(row, "only in our calls", row["calls"], row["our_tokens"], row["our_usd"], what)]
    return []


def _counted(row: Mapping[str, Any]) -> list[Row]:
    calls, requests, gap = row["calls"], row["requests"], row["tokens_difference"]
    if calls is None or row["lines"] is None:
        return []
    if requests is not None and requests != calls:
        if requests > calls:
            what = "requests of the invoice without a call: spans not received, or calls past the instrumentation"
            return [
                _of(
                    row,
                    "spans not received",
                    requests - calls,
                    -gap if gap is not None and gap < 0 else None,
                    None,
                    what,
                )
            ]
        what = "calls more than the invoice's requests: another key or project, or not billed"
        return [
            _of(row, "calls not billed", calls - requests, gap if gap is not None and gap > 0 else None, None, what)
        ]
    if gap is None or abs(gap) <= row["tokens_tolerance"]:
        return []
    if gap < 0:
        what = "tokens of the invoice that no call has: spans not received, or calls past the instrumentation"
        return [_of(row, "spans not received", None, -gap, None, what)]
    what = "tokens that the invoice does not have: another key or project, not billed, or counted twice"
    return [_of(row, "calls not billed", None, gap, None, what)]


def _other_prices(classes: pl.DataFrame, models: pl.DataFrame) -> list[Row]:
    """Where the tokens agree and the USD do not, by class where the invoice splits its USD."""
    unpriced = {(row["day"], row["model"]) for row in models.iter_rows(named=True) if row["unpriced_calls"]}
    split = {(row["day"], row["model"]) for row in classes.iter_rows(named=True) if row["their_usd"] is not None}
    compared = [(f"{row['token_class']}: ", row) for row in classes.iter_rows(named=True)]
    compared += [("", row) for row in models.iter_rows(named=True) if (row["day"], row["model"]) not in split]
    rows: list[Row] = []
    for part, row in compared:
        if (row["day"], row["model"]) in unpriced or not row["their_tokens"] or not row["our_tokens"]:
            continue
        if None in (row["our_usd"], row["their_usd"], row["usd_difference"], row["tokens_difference"]):
            continue
        same = abs(row["tokens_difference"]) <= row["tokens_tolerance"]
        if same and abs(row["usd_difference"]) > row["usd_tolerance"]:
            ours, theirs = (1e6 * row[f"{who}_usd"] / row[f"{who}_tokens"] for who in ("our", "their"))
            what = f"{part}same tokens, ours at {ours:.4g} and theirs at {theirs:.4g} USD per million"
            rows.append(_of(row, "another price", None, row["their_tokens"], abs(row["usd_difference"]), what))
    return rows


def _shifted(models: pl.DataFrame) -> list[Row]:
    """Models whose days differ while the sum over the days does not."""
    days: dict[str, list[Mapping[str, Any]]] = {}
    for row in models.iter_rows(named=True):
        if not row["within"]:
            days.setdefault(row["model"], []).append(row)
    rows: list[Row] = []
    for model, wrong in sorted(days.items()):
        for what in ("tokens", "usd"):
            gaps = [row[f"{what}_difference"] for row in wrong if row[f"{what}_difference"] is not None]
            allowed = max(
                (row[f"{what}_tolerance"] for row in wrong if row[f"{what}_tolerance"] is not None), default=0
            )
            if len(gaps) >= 2 and max(map(abs, gaps)) > allowed >= abs(sum(gaps)):
                detail = "days differ and their sum does not: the invoice may count days in another time zone"
                rows.append((None, model, "another day", None, None, None, detail))
                break
    return rows


def _of(
    row: Mapping[str, Any], reason: str, calls: int | None, tokens: int | None, usd: float | None, detail: str
) -> Row:
    return row["day"], str(row["model"]), reason, calls, tokens, usd, detail
