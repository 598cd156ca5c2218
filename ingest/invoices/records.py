"""An invoice, whoever wrote it: rows of (day, model, token class) with tokens and USD. None is "does not say"."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import date
from zoneinfo import ZoneInfo

import polars as pl

from ingest.errors import UsageError

CLASSES = ("input", "cache_read", "cache_write", "output", "tools", "other", "total")
"""input: without what the cache served or stored. tools: charges for searches and the like; other: charges that name no
token class. total: what is said of a model's day as a whole, its requests and the USD that are not split."""

SCHEMA = {
    "day": pl.Date,
    "model": pl.String,
    "token_class": pl.String,
    "tokens": pl.Int64,
    "usd": pl.Float64,
    "requests": pl.Int64,
    "lines": pl.Int64,
}
"""`model` None: not by model. `lines`: rows of the file that were added up."""

_KEY = ("day", "model", "token_class")


@dataclass(frozen=True)
class Terms:
    """What a reader is told: `zone` of the invoice's days (None: as the format has them, UTC), money, column names."""

    zone: ZoneInfo | None = None
    currency: str = "USD"
    usd_per_unit: float = 1.0
    columns: Mapping[str, str] = field(default_factory=dict)
    """The file's column -> our field, for files in no known format."""

    @property
    def days_in(self) -> ZoneInfo:
        return self.zone or ZoneInfo("UTC")

    def usd(self, amount: float | None, currency: object, where: str) -> float | None:
        """An amount in USD. Raises UsageError when it is in a currency that no rate is known for."""
        said = str(currency).strip().upper() if currency else self.currency
        if amount is None:
            return None
        if said == self.currency:
            return amount * self.usd_per_unit
        if self.currency != "USD":
            raise UsageError(f"{where}: the amount is in {said}, but --currency says {self.currency}")
        raise UsageError(
            f"{where}: the amount is in {said}, and our costs are in USD",
            f"Give the rate that the invoice was paid at, USD for one {said}: --currency {said}=1.08",
        )


@dataclass(frozen=True)
class Invoice:
    """What a file says. `providers`: whose calls it can hold, None: anybody's."""

    form: str
    rows: pl.DataFrame
    first: date
    last: date
    zone: str
    providers: frozenset[str] | None = None
    rounding_usd: float = 0.0
    """By how much a line's amount can be off because it is written rounded."""
    notes: tuple[str, ...] = ()

    @property
    def has_tokens(self) -> bool:
        return bool(self.rows["tokens"].is_not_null().any())

    @property
    def has_usd(self) -> bool:
        return bool(self.rows["usd"].is_not_null().any())

    @property
    def splits_usd(self) -> bool:
        """Whether USD are given by token class."""
        classes = self.rows.filter(pl.col("token_class").is_in(["input", "cache_read", "cache_write", "output"]))
        return bool(classes["usd"].is_not_null().any())

    @property
    def by_model(self) -> bool:
        """Whether tokens and costs are told by model; charges for tools have none."""
        spent = self.rows.filter(~pl.col("token_class").is_in(["tools", "other"]))
        return spent.is_empty() or bool(spent["model"].is_not_null().any())

    def between(self, first: date | None, last: date | None) -> Invoice:
        """Its part within days, both included. Raises UsageError when none of its days is among them."""
        begin, end = max(first or self.first, self.first), min(last or self.last, self.last)
        if begin > end:
            raise UsageError(
                f"the file has days from {self.first} to {self.last}, none of those asked for",
                "Choose other days with --from and --to, both included.",
            )
        return replace(self, rows=self.rows.filter(pl.col("day").is_between(begin, end)), first=begin, last=end)


class Lines:
    """Lines of an invoice, added up by day, model and token class as they come."""

    def __init__(self) -> None:
        self._rows: list[tuple[date, str | None, str, int | None, float | None, int | None]] = []
        self.days: set[date] = set()
        """Every day that the file speaks of, also those without use."""

    def add(
        self,
        day: date,
        model: str | None,
        token_class: str,
        tokens: int | None = None,
        usd: float | None = None,
        requests: int | None = None,
    ) -> None:
        """One line; a line that says nothing is left out."""
        self.days.add(day)
        if (tokens, usd, requests) != (None, None, None):
            self._rows.append((day, model, token_class, tokens, usd, requests))

    def frame(self) -> pl.DataFrame:
        """The sums, in `SCHEMA`; what no line of a group says stays null."""
        frame = pl.DataFrame([(*row, 1) for row in self._rows], schema=SCHEMA, orient="row", infer_schema_length=None)
        sums = [
            pl.when(pl.col(name).is_not_null().any()).then(pl.col(name).sum()).alias(name)
            for name in ("tokens", "usd", "requests")
        ]
        return frame.group_by(_KEY).agg(*sums, pl.col("lines").sum()).sort(_KEY, nulls_last=True)

    def invoice(self, form: str, terms: Terms, path: object, **more: object) -> Invoice:
        """The invoice of these lines. Raises UsageError when there are none."""
        rows = self.frame()
        if rows.is_empty():
            raise UsageError(f"{path} has no line with tokens or costs", "Export a period in which there was use.")
        return Invoice(form, rows, min(self.days), max(self.days), str(terms.days_in), **more)  # type: ignore[arg-type]
