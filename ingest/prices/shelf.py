"""Price lists of a home: those that were added by hand lie in `<home>/prices`, and the lake's table shows those used.

A file there is {"list": name, "date": "YYYY-MM-DD", "changes": [{"m", "p", "f"}]}, as a line of the shipped history;
what a list says no otherwise than those before is not in it. The lake's table is for `retroute sql`: it has what the
lists say of the models that calls were priced by.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import orjson
import polars as pl
import pyarrow as pa

from ingest.errors import UsageError, WorkError
from ingest.home import replace_file
from ingest.lake import Lake
from ingest.prices.book import Book, Change, current, differences, read_list, with_changes
from ingest.pricing import Discount, Price, Prices, price_list

_SHOWN = {
    "input": "input_cost_per_token",
    "output": "output_cost_per_token",
    "cache_read": "cache_read_input_token_cost",
    "cache_write": "cache_creation_input_token_cost",
}
"""Columns of the lake's table, USD per million tokens, and the fields they show."""


@dataclass(frozen=True)
class Added:
    """What became of a price file: entries that differ from the lists before, and those refused, with the reason."""

    listed: str
    date: str
    changed: int
    unchanged: int
    refused: tuple[tuple[str, str], ...]


def home_book(home: Path) -> Book:
    """All price lists that a home knows: shipped, installed, added."""
    book = current()
    for file in sorted((home / "prices").glob("*.json")):
        _, date, changes = _read(file)
        book = with_changes(book, changes, (date,))
    return book


def add_list(home: Path, file: Path, date: str | None = None) -> Added:
    """Adds a list in litellm's form whose prices hold from `date` on (None: today, UTC).

    A bad entry is refused and named, the rest is added. Raises UsageError when the file is no price list.
    """
    try:
        loaded = read_list(orjson.loads(file.read_bytes()))
    except OSError as error:
        raise UsageError(f"{file} cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise UsageError(f"{file} is no price list: {error}", "Expected the form of litellm's price file.") from None
    if not loaded.entries and loaded.refused:
        name, why = loaded.refused[0]
        raise UsageError(f"{file}: every entry is refused; {name} {why}")
    since = date or datetime.now(UTC).strftime("%Y-%m-%d")
    changes = differences(home_book(home), loaded, file.name, since)
    if changes:
        folder = home / "prices"
        folder.mkdir(exist_ok=True)
        number = 1 + max(
            (int(found[1]) for path in folder.glob("*.json") if (found := _NUMBERED.match(path.name))), default=0
        )
        listed = f"{file.name} #{number}"
        content = {
            "list": listed,
            "date": since,
            "changes": [{"m": c.model, "p": c.provider, "f": c.fields} for c in changes],
        }
        replace_file(folder / f"{number:04d}-{since}.json", orjson.dumps(content).decode())
    else:
        listed = file.name
    return Added(listed, since, len(changes), len(loaded.entries) - len(changes), loaded.refused)


_NUMBERED = re.compile(r"(\d+)-")


def home_prices(home: Path, overrides: Sequence[Price] = (), discounts: Sequence[Discount] = ()) -> Prices:
    """The prices of a home; its lists are read when they are first needed."""
    return price_list(overrides, discounts, partial(home_book, home))


class PriceRecord:
    """Keeps in the lake, which is open to write, what the lists say of every model whose price was looked up."""

    def __init__(self, lake: Lake, prices: Prices) -> None:
        self._lake = lake
        self._prices = prices
        self._kept: set[str] = set()

    def keep(self) -> None:
        """Appends to the table `prices` what it lacks."""
        fresh = self._prices.used() - self._kept
        if not fresh:
            return
        known = set(self._lake.query("price_lists", models=sorted(fresh)).iter_rows())
        rows = [
            row for model in sorted(fresh) for row in _rows(self._prices.book, model) if (model, row[3]) not in known
        ]
        if rows:
            frame = pl.DataFrame(rows, schema=_SCHEMA, orient="row")
            types = self._lake.schema("prices")
            self._lake.write({"prices": frame.to_arrow().cast(pa.schema([types.field(name) for name in _SCHEMA]))})
        self._kept |= fresh


_SCHEMA = {
    "model": pl.String,
    "provider": pl.String,
    "valid_from": pl.String,
    "list": pl.String,
    **dict.fromkeys(_SHOWN, pl.Float64),
    "fields": pl.String,
}


def _rows(book: Book, model: str) -> list[tuple[object, ...]]:
    found: list[tuple[object, ...]] = []
    for change, version in zip(book.changes[model], book.versions(model), strict=True):
        fields = change.fields or {}
        usd = [fields.get(name) for name in _SHOWN.values()]
        shown = [float(value) * 1e6 if isinstance(value, int | float) else None for value in usd]
        said = None if change.fields is None else orjson.dumps(change.fields).decode()
        found.append((change.model, change.provider, version.valid_from, change.listed, *shown, said))
    return found


def _read(file: Path) -> tuple[str, str, list[Change]]:
    try:
        found = orjson.loads(file.read_bytes())
        name, date = found["list"], found["date"]
        return name, date, [Change(row["m"], row["p"], name, date, row["f"]) for row in found["changes"]]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise WorkError(
            f"{file} cannot be read: {error}", "Remove it and run `retroute prices update` again."
        ) from None
