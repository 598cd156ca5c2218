"""Anthropic: pages of the usage and cost reports of its Admin API, and the CSV files of its Console.

Input is told without what the cache served or stored. The API's amounts are cents; the Console's are USD rounded to
the cent, line by line. Days are UTC.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date
from zoneinfo import ZoneInfo

from ingest.errors import UsageError
from ingest.invoices import cells
from ingest.invoices.records import Invoice, Lines, Terms
from ingest.invoices.source import Record, Source

_TOKEN_TYPES = {
    "uncached_input_tokens": "input",
    "input_no_cache": "input",
    "cache_read_input_tokens": "cache_read",
    "input_cache_read": "cache_read",
    "cache_creation.ephemeral_5m_input_tokens": "cache_write",
    "cache_creation.ephemeral_1h_input_tokens": "cache_write",
    "input_cache_write_5m": "cache_write",
    "input_cache_write_1h": "cache_write",
    "output_tokens": "output",
    "output": "output",
}
_TOOLS = {"web_search", "code_execution", "session_usage"}
_CONSOLE_TOKENS = {
    "usage_input_tokens_no_cache": "input",
    "usage_input_tokens_cache_write_5m": "cache_write",
    "usage_input_tokens_cache_write_1h": "cache_write",
    "usage_input_tokens_cache_read": "cache_read",
    "usage_output_tokens": "output",
}
_CENT_USD = 0.01


def recognises(record: Record) -> bool:
    if "data" in record:
        data = record["data"]
        return isinstance(data, list) and any(isinstance(b, dict) and "starting_at" in b for b in data)
    return "usage_date_utc" in record and bool({"cost_usd", *_CONSOLE_TOKENS} & record.keys())


def read(source: Source, terms: Terms) -> Invoice:
    lines = Lines()
    notes: list[str] = []
    for record, place in zip(source.records, source.places, strict=True):
        if not recognises(record):
            raise UsageError(f"{place} is not Anthropic's: it has {', '.join(list(record)[:8])}", "Try --format auto.")
        if "data" in record:
            for day, result, where in _results(record, place, terms):
                _api_line(lines, day, result, where, terms)
            if record.get("has_more") and record is source.records[-1]:
                notes.append("the export is not whole: its last page says that more follow (has_more)")
        else:
            _console_line(lines, record, place, terms)
    rounded = _CENT_USD / 2 if source.table else 0.0
    scope = frozenset({"anthropic"})
    return lines.invoice("anthropic", terms, source.path, providers=scope, rounding_usd=rounded, notes=tuple(notes))


def _results(page: Record, place: str, terms: Terms) -> Iterator[tuple[date, Record, str]]:
    for number, bucket in enumerate(page["data"], 1):
        where = f"{place}: bucket {number}"
        day = cells.bucket_day(bucket.get("starting_at"), bucket.get("ending_at"), where, terms)
        for result in bucket.get("results") or [{}]:
            yield day, result, where


def _api_line(lines: Lines, day: date, result: Record, where: str, terms: Terms) -> None:
    lines.days.add(day)
    model = _model(result.get("model"))
    if "amount" in result:
        cents = cells.number(result["amount"], f"{where}: amount")
        usd = terms.usd(None if cents is None else cents / 100, result.get("currency"), where)
        token_class = _token_class(result.get("cost_type"), result.get("token_type"))
        lines.add(day, model, token_class, usd=usd)
        return
    written = result.get("cache_creation") or {}
    for name, value in {
        "uncached_input_tokens": result.get("uncached_input_tokens"),
        "cache_read_input_tokens": result.get("cache_read_input_tokens"),
        "cache_creation.ephemeral_5m_input_tokens": written.get("ephemeral_5m_input_tokens"),
        "cache_creation.ephemeral_1h_input_tokens": written.get("ephemeral_1h_input_tokens"),
        "output_tokens": result.get("output_tokens"),
    }.items():
        _tokens(lines, day, model, _TOKEN_TYPES[name], value, f"{where}: {name}")


def _console_line(lines: Lines, row: Record, place: str, terms: Terms) -> None:
    moment = cells.moment(row["usage_date_utc"], f"{place}: usage_date_utc", ZoneInfo("UTC"))
    if type(moment) is date and str(terms.days_in) != "UTC":
        raise UsageError(
            f"{place}: usage_date_utc is a day in UTC, not in {terms.days_in}",
            "Leave --time-zone out, or export the usage by hour.",
        )
    day = cells.day(moment, place, terms)
    lines.days.add(day)
    if "cost_usd" in row:
        usd = terms.usd(cells.number(row["cost_usd"], f"{place}: cost_usd"), "USD", place)
        lines.add(day, _model(row.get("model")), _token_class(row.get("cost_type"), row.get("token_type")), usd=usd)
        return
    for name, token_class in _CONSOLE_TOKENS.items():
        _tokens(lines, day, _model(row.get("model_version")), token_class, row.get(name), f"{place}: {name}")


def _tokens(lines: Lines, day: date, model: str | None, token_class: str, value: object, where: str) -> None:
    tokens = cells.count(value, where)
    if tokens or token_class in ("input", "output"):  # a cache that was not used is no line
        lines.add(day, model, token_class, tokens)


def _model(value: object) -> str | None:
    return str(value) if value and value != "--" else None


def _token_class(cost_type: object, token_type: object) -> str:
    if cost_type in _TOOLS:
        return "tools"
    if token_type in (None, "", "--"):
        return "total"
    return _TOKEN_TYPES.get(str(token_type), "other")
