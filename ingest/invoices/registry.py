"""The formats of invoices known. A new one is a module with `recognises` and `read`, named here."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from ingest.errors import UsageError
from ingest.invoices import anthropic, columns, litellm, openai
from ingest.invoices.records import Invoice, Terms
from ingest.invoices.source import Record, Source, load


class Format(Protocol):
    """How a format is known and read."""

    def recognises(self, record: Record) -> bool:
        """Whether a record of a file, a JSON document or a table's row, is of this format."""

    def read(self, source: Source, terms: Terms) -> Invoice:
        """Raises UsageError for what cannot be laid beside our calls, with its place and how to map it."""


FORMATS: dict[str, Format] = {"openai": openai, "anthropic": anthropic, "litellm": litellm, "csv": columns}
"""csv is any table (CSV, TSV, Parquet, JSON lines) whose columns are named by hand or by our own names."""


def read(path: Path, form: str, terms: Terms) -> Invoice:
    """The invoice in a file. `form` is a name in `FORMATS`, or auto. Raises UsageError, with how to map a file."""
    source = load(path)
    return FORMATS[_form(source, terms) if form == "auto" else form].read(source, terms)


def _form(source: Source, terms: Terms) -> str:
    if terms.columns:
        return "csv"
    firsts: dict[str, str] = {}
    for record, place in zip(source.records, source.places, strict=True):
        form = next((name for name, format in FORMATS.items() if format.recognises(record)), "")
        firsts.setdefault(form, place)
        if source.table:
            break
    if len(firsts) > 1:
        said = "; ".join(f"{place} is {form or 'of no known format'}" for form, place in firsts.items())
        raise UsageError(f"the file mixes formats: {said}", "Reconcile one invoice at a time: split the file.")
    form = next(iter(firsts))
    if not form:
        raise columns.unknown(source)
    return form
