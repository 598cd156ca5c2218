"""Which price list is the newest one."""

from __future__ import annotations

from collections.abc import Iterator

from ingest.prices.book import Book


def newest_list(book: Book, at: str) -> tuple[str, str] | None:
    """(name, day) of the newest list up to a day ("YYYY-MM-DD"). Of two of one day the shipped one comes first."""

    def known() -> Iterator[tuple[str, bool, str]]:
        for changes in book.changes.values():
            for change in changes:
                if change.date <= at:
                    yield change.date, change.listed != book.newest, change.listed

    found = max(known(), default=None)
    return None if found is None else (found[2], found[0])
