"""LiteLLM's proxy: its spend logs, one record a request, and its daily activity by model. Times are UTC.

Input includes the cached part. Requests that the proxy answered from its own cache are left out: nobody was paid.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date
from typing import Any
from zoneinfo import ZoneInfo

import orjson

from ingest.errors import UsageError
from ingest.invoices import cells
from ingest.invoices.records import Invoice, Lines, Terms
from ingest.invoices.source import Record, Source

_UTC = ZoneInfo("UTC")


def recognises(record: Record) -> bool:
    if _is_log(record):
        return True
    wrapped = record.get("data")
    if isinstance(wrapped, list) and wrapped:
        return isinstance(wrapped[0], dict) and _is_log(wrapped[0])
    return any(isinstance(day, dict) and {"date", "metrics"} <= day.keys() for day in _days(record))


def read(source: Source, terms: Terms) -> Invoice:
    lines = Lines()
    notes: list[str] = []
    cached = 0
    for record, place in zip(source.records, source.places, strict=True):
        if not recognises(record):
            raise UsageError(f"{place} is not LiteLLM's: it has {', '.join(list(record)[:8])}", "Try --format auto.")
        if _days(record):
            _activity(lines, record, place, terms)
            pages = record.get("metadata") or {}
            if (pages.get("page") or 1) < (pages.get("total_pages") or 1) and record is source.records[-1]:
                notes.append(f"the export is not whole: page {pages.get('page')} of {pages['total_pages']} is its last")
            continue
        logs = [record] if _is_log(record) else record["data"]
        for number, log in enumerate(logs, 1):
            where = place if len(logs) == 1 else f"{place}: row {number}"
            cached += _log(lines, log, where, terms)
    if cached:
        notes.append(f"requests answered from the proxy's cache are left out: {cached}")
    return lines.invoice("litellm", terms, source.path, notes=tuple(notes))


def _is_log(record: Record) -> bool:
    return {"request_id", "spend", "startTime"} <= record.keys()


def _days(record: Record) -> list[Any]:
    results = record.get("results")
    return results if isinstance(results, list) else []


def _log(lines: Lines, log: Record, where: str, terms: Terms) -> bool:
    day = cells.day(log["startTime"], f"{where}: startTime", terms, naive=_UTC)
    lines.days.add(day)
    if str(log.get("cache_hit")).lower() == "true":
        return True
    model = str(log["model"]) if log.get("model") else None
    extra = _object(_object(log.get("metadata")).get("additional_usage_values"))
    _split(lines, day, model, {**log, **{name: extra.get(name) for name in _CACHE if name in extra}}, where)
    usd = terms.usd(cells.number(log["spend"], f"{where}: spend"), None, where)
    lines.add(day, model, "total", usd=usd, requests=0 if log.get("status") == "failure" else 1)
    return False


_CACHE = ("cache_read_input_tokens", "cache_creation_input_tokens")


def _split(lines: Lines, day: date, model: str | None, told: Record, where: str) -> None:
    prompt = cells.count(told.get("prompt_tokens"), f"{where}: prompt_tokens")
    read, written = (cells.count(told.get(name), f"{where}: {name}") or 0 for name in _CACHE)
    if prompt is not None:
        lines.add(day, model, "input", prompt - read - written if prompt >= read + written else prompt)
    lines.add(day, model, "cache_read", read or None)
    lines.add(day, model, "cache_write", written or None)
    lines.add(day, model, "output", cells.count(told.get("completion_tokens"), f"{where}: completion_tokens"))


def _activity(lines: Lines, record: Record, place: str, terms: Terms) -> None:
    if str(terms.days_in) != "UTC":
        raise UsageError(
            f"{place}: its days are those of the proxy, UTC, not of {terms.days_in}",
            "Leave --time-zone out, or reconcile the spend logs, which have moments.",
        )
    for number, entry in enumerate(_days(record), 1):
        where = f"{place}: day {number}"
        day = cells.day(entry["date"], f"{where}: date", terms)
        lines.days.add(day)
        models = (entry.get("breakdown") or {}).get("models") or {None: entry}
        for model, told in models.items():
            metrics = told.get("metrics", told)
            at = f"{where}: {model or 'metrics'}"
            _split(lines, day, model, metrics, at)
            requests = metrics.get("successful_requests", metrics.get("api_requests"))
            usd = terms.usd(cells.number(metrics.get("spend"), f"{at}: spend"), None, at)
            lines.add(day, model, "total", usd=usd, requests=cells.count(requests, f"{at}: requests"))


def _object(value: object) -> Mapping[str, Any]:
    """A JSON object, also one kept as text; empty for what is none."""
    if isinstance(value, str):
        try:
            value = orjson.loads(value)
        except orjson.JSONDecodeError:
            return {}
    return value if isinstance(value, dict) else {}
