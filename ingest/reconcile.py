"""Our calls beside an invoice, per day, model and token class. Frames in, frames out.

A call lies on the day on which it started, in the invoice's time zone. Differences are ours minus theirs; where one
side has nothing it counts as 0; where neither has, or the invoice tells no tokens or no USD at all, there is none.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import polars as pl

from ingest import mismatches, providers
from ingest.invoices.records import Invoice
from ingest.mismatches import NO_MODEL
from ingest.model_aliases import Names, match

FLOOR_USD = 0.005
"""Half a cent: invoices are paid in cents."""
ALL_MODELS = "all models"
TOKENS = ("input", "cache_read", "cache_write", "output")

_KEYS = ("day", "model", "token_class")


@dataclass(frozen=True)
class Tolerance:
    """A difference is within when it is at most so large a share of the invoice's figure. USD also by half a cent, or
    by what the invoice's rounding makes of it."""

    share: float = 0.01

    def __post_init__(self) -> None:
        if not 0 <= self.share < 1:
            raise ValueError(f"tolerance is {self.share}, expected a share from 0 to below 1")


@dataclass(frozen=True)
class Reconciliation:
    """`classes`: day, model, token_class. `models`: their sums by day and model, with what the emitters say. `totals`:
    one row. `reasons`: what explains differences. All with ours, theirs, difference, tolerance, within."""

    classes: pl.DataFrame
    models: pl.DataFrame
    totals: pl.DataFrame
    reasons: pl.DataFrame
    notes: tuple[str, ...] = ()
    within: bool = field(default=False)


def reconcile(
    calls: pl.DataFrame, invoice: Invoice, tolerance: Tolerance | None = None, aliases: Mapping[str, str] | None = None
) -> Reconciliation:
    """Lays calls beside an invoice. `calls` has the columns of the query calls_billable, and where the invoice splits
    USD also `<class>_usd` for each class. `aliases`: our model name -> the invoice's."""
    share = (tolerance or Tolerance()).share
    placed, notes = _placed(calls, invoice)
    names = match(placed["model"].unique().to_list(), _theirs(invoice)["model"].unique().to_list(), aliases)
    ours = placed.with_columns(pl.col("model").alias("named"), pl.col("model").replace(dict(names.ours)))
    theirs = _theirs(invoice).with_columns(pl.col("model").replace(dict(names.theirs)))
    split = invoice.splits_usd
    classes = _compared(
        _our_classes(ours, split),
        theirs.filter(pl.col("token_class") != "total").drop("requests"),
        _KEYS,
        invoice,
        share,
        usd=split,
    )
    keys = _KEYS[:2]
    models = _compared(_our_models(ours), _summed(theirs, keys), keys, invoice, share)
    totals = _compared(_our_models(ours, ()), _summed(theirs, ()), (), invoice, share)
    frames = (classes, models, totals)
    reasons = mismatches.explain(ours, models, classes, names.unsure, _aliased(ours, names))
    within = all(bool(frame["within"].all()) for frame in frames)
    return Reconciliation(classes, models, totals, reasons, (*invoice.notes, *notes), within)


def _placed(calls: pl.DataFrame, invoice: Invoice) -> tuple[pl.DataFrame, list[str]]:
    """The calls that the invoice can hold, with `day` and `model`; and what was left out."""
    notes = []
    local = [
        pl.from_epoch(name, "ns").dt.replace_time_zone("UTC").dt.convert_time_zone(invoice.zone).dt.date().alias(to)
        for name, to in (("start_ns", "day"), ("end_ns", "end_day"))
    ]
    name = pl.coalesce("model_returned", "model_requested", pl.lit(NO_MODEL))
    dated = calls.with_columns(*local, name.alias("model"))
    if undated := dated.filter(pl.col("day").is_null()).height:
        notes.append(f"{undated} calls have no start time, so they lie on no day")
    dated = dated.filter(pl.col("day").is_between(invoice.first, invoice.last))
    if invoice.providers is not None:
        spelt = {p: providers.canonical(p) for p in dated["provider"].unique().to_list() if p is not None}
        known = pl.col("provider").replace_strict(spelt, default=None, return_dtype=pl.String)
        billed = set(match((), _theirs(invoice)["model"].to_list()).theirs)
        mapped = match(dated["model"].unique().to_list(), billed).ours
        theirs = [ours for ours, label in mapped.items() if label in billed]
        inside = known.is_in(sorted(invoice.providers)) | (known.is_null() & pl.col("model").is_in(theirs))
        outside = dated.filter(~inside).group_by("provider").len().sort("provider", nulls_last=True)
        notes += [
            f"{n} calls to {provider or 'providers that they do not name'} are left out: the invoice is not theirs"
            for provider, n in outside.iter_rows()
        ]
        dated = dated.filter(inside)
    if not invoice.by_model:
        dated = dated.with_columns(pl.lit(ALL_MODELS).alias("model"))
    return dated, notes


def _theirs(invoice: Invoice) -> pl.DataFrame:
    missing = pl.lit(NO_MODEL if invoice.by_model else ALL_MODELS)
    return invoice.rows.with_columns(pl.col("model").fill_null(missing))


def _our_classes(calls: pl.DataFrame, split: bool) -> pl.DataFrame:
    cached = pl.col("cache_read_tokens").fill_null(0) + pl.col("cache_write_tokens").fill_null(0)
    tokens = {
        "input": pl.max_horizontal(pl.col("input_tokens") - cached, 0 * pl.col("input_tokens")),
        **{name: pl.col(f"{name}_tokens") for name in TOKENS[1:]},
        **dict.fromkeys(("tools", "other"), pl.lit(None, pl.Int64)),
    }
    parts = [
        calls.select(
            "day",
            "model",
            pl.lit(name).alias("token_class"),
            count.cast(pl.Int64).alias("tokens"),
            (pl.col(f"{name}_usd") if split else pl.lit(None, pl.Float64)).alias("usd"),
        )
        for name, count in tokens.items()
    ]
    used = pl.col("tokens").fill_null(0) + pl.col("usd").fill_null(0.0).abs() > 0
    return pl.concat(parts).filter(used).group_by(_KEYS).agg(_sum("tokens"), _sum("usd"))


def _our_models(calls: pl.DataFrame, keys: Sequence[str] = _KEYS[:2]) -> pl.DataFrame:
    sums = (
        _sum("tokens"),
        _sum("usd"),
        _sum("reported_cost_usd").alias("reported_usd"),
        pl.len().cast(pl.Int64).alias("calls"),
        pl.col("usd").is_null().sum().cast(pl.Int64).alias("unpriced_calls"),
        pl.col("reported_cost_usd").is_not_null().sum().cast(pl.Int64).alias("reported_calls"),
    )
    tokens = pl.sum_horizontal("input_tokens", "output_tokens", ignore_nulls=True)
    known = pl.col("input_tokens").is_not_null() | pl.col("output_tokens").is_not_null()
    counted = calls.with_columns(pl.when(known).then(tokens).alias("tokens"), pl.col("cost_usd").alias("usd"))
    return counted.group_by(list(keys)).agg(*sums) if keys else counted.select(*sums)


def _summed(rows: pl.DataFrame, keys: Sequence[str]) -> pl.DataFrame:
    sums = (_sum("tokens"), _sum("usd"), _sum("requests"), pl.col("lines").sum())
    return rows.group_by(list(keys)).agg(*sums) if keys else rows.select(*sums)


def _compared(
    ours: pl.DataFrame, theirs: pl.DataFrame, keys: Sequence[str], invoice: Invoice, share: float, usd: bool = True
) -> pl.DataFrame:
    """Both sides in one row per key, with differences, tolerances and whether they hold."""
    ours = ours.rename({"tokens": "our_tokens", "usd": "our_usd"})
    theirs = theirs.rename({"tokens": "their_tokens", "usd": "their_usd"})
    if "requests" not in theirs.columns and "token_class" in theirs.columns:
        theirs = _regrouped(theirs, keys)
    joined = (
        ours.join(theirs, on=list(keys), how="full", coalesce=True, nulls_equal=True)
        if keys
        else pl.concat([ours, theirs], how="horizontal")
    )
    told = {"tokens": invoice.has_tokens, "usd": invoice.has_usd and usd}
    for what, kind in (("tokens", pl.Int64), ("usd", pl.Float64)):
        gap = pl.col(f"our_{what}").fill_null(0) - pl.col(f"their_{what}").fill_null(0)
        known = pl.col(f"our_{what}").is_not_null() | pl.col(f"their_{what}").is_not_null()
        counts = _counts(what, keys) & known & pl.lit(told[what])
        joined = joined.with_columns(pl.when(counts).then(gap).cast(kind).alias(f"{what}_difference"))
    allowed = pl.col("their_tokens").fill_null(0).abs() * share
    rounding = pl.max_horizontal(pl.lit(FLOOR_USD), pl.col("lines").fill_null(0) * invoice.rounding_usd)
    money = pl.max_horizontal(pl.col("their_usd").fill_null(0.0).abs() * share, rounding)
    joined = joined.with_columns(
        pl.when(pl.col("tokens_difference").is_not_null()).then(allowed).alias("tokens_tolerance"),
        pl.when(pl.col("usd_difference").is_not_null()).then(money).alias("usd_tolerance"),
    )
    holds = [
        (pl.col(f"{what}_difference").abs() <= pl.col(f"{what}_tolerance") + 1e-9).fill_null(True)
        for what in ("tokens", "usd")
    ]
    return joined.with_columns(pl.all_horizontal(holds).alias("within")).sort(list(keys) or "within", nulls_last=True)


def _regrouped(theirs: pl.DataFrame, keys: Sequence[str]) -> pl.DataFrame:
    """Sums again by key: names of several of the invoice's models may now be one."""
    return theirs.group_by(list(keys)).agg(_sum("their_tokens"), _sum("their_usd"), pl.col("lines").sum())


def _counts(what: str, keys: Sequence[str]) -> pl.Expr:
    """Where a figure is compared: charges are no tokens."""
    if what == "tokens" and "token_class" in keys:
        return ~pl.col("token_class").is_in(["tools", "other"])
    return pl.lit(True)


def _aliased(calls: pl.DataFrame, names: Names) -> pl.DataFrame:
    """Calls whose model the invoice names otherwise: named, model, calls."""
    return (
        calls.filter(pl.col("named") != pl.col("model"))
        .group_by("named", "model")
        .agg(pl.len().cast(pl.Int64).alias("calls"))
        .sort("named", "model")
    )


def _sum(name: str) -> pl.Expr:
    """The sum of what is known; null when nothing is."""
    return pl.when(pl.col(name).is_not_null().any()).then(pl.col(name).sum()).alias(name)
