"""OpenAI: pages of the organization's usage and costs APIs, and the CSV files of its usage dashboard.

Usage has tokens and requests but no money, costs have money but no tokens; a file of JSON lines may hold pages of both.
The cached part is inside the input; audio and image tokens are inside their direction.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from datetime import date

from ingest.errors import UsageError
from ingest.invoices import cells
from ingest.invoices.records import Invoice, Lines, Terms
from ingest.invoices.source import Record, Source

_TIERS = {"batch", "flex", "priority", "scale", "default", "standard"}
_MODALITIES = {"audio", "text", "image"}
_CHARGES = ("search", "interpreter", "storage", "session", "tool call", "container", "assistants")


def recognises(record: Record) -> bool:
    if "data" in record:
        return any("start_time" in bucket for bucket in _buckets(record))
    return bool({"start_time", "start_time_iso"} & record.keys()) and bool(
        {"amount_value", "input_tokens", "num_model_requests"} & record.keys()
    )


def read(source: Source, terms: Terms) -> Invoice:
    lines = Lines()
    notes: list[str] = []
    skipped: Counter[str] = Counter()
    for record, place in zip(source.records, source.places, strict=True):
        if not recognises(record):
            raise UsageError(f"{place} is not OpenAI's: it has {', '.join(list(record)[:8])}", "Try --format auto.")
        for start, end, result, where in _results(record, place):
            day = cells.bucket_day(start, end, where, terms)
            lines.days.add(day)
            if result and not (_cost(lines, day, result, where, terms) or _usage(lines, day, result, where)):
                skipped[str(result.get("object") or "rows of another kind")] += 1
        if record.get("has_more") and record is source.records[-1]:
            notes.append("the export is not whole: its last page says that more follow (has_more)")
    notes += [f"{n} lines of {kind} are left out: they have no tokens" for kind, n in skipped.items()]
    return lines.invoice("openai", terms, source.path, providers=frozenset({"openai"}), notes=tuple(notes))


def _buckets(page: Record) -> list[Record]:
    data = page["data"]
    return [bucket for bucket in data if isinstance(bucket, dict)] if isinstance(data, list) else []


def _results(record: Record, place: str) -> Iterator[tuple[object, object, Record, str]]:
    if "data" not in record:
        yield record.get("start_time") or record.get("start_time_iso"), record.get("end_time"), record, place
        return
    for number, bucket in enumerate(_buckets(record), 1):
        where = f"{place}: bucket {number}"
        for result in bucket.get("results") or bucket.get("result") or [{}]:
            yield bucket.get("start_time"), bucket.get("end_time"), result, where


def _usage(lines: Lines, day: date, result: Record, where: str) -> bool:
    told = cells.count(result.get("input_tokens"), f"{where}: input_tokens")
    answered = cells.count(result.get("output_tokens"), f"{where}: output_tokens")
    requests = cells.count(result.get("num_model_requests"), f"{where}: num_model_requests")
    if (told, answered) == (None, None):
        return bool({"input_tokens", "amount_value"} & result.keys())  # a day without use
    read = cells.count(result.get("input_cached_tokens"), f"{where}: input_cached_tokens") or 0
    written = cells.count(result.get("input_cache_write_tokens"), f"{where}: input_cache_write_tokens") or 0
    model = str(result["model"]) if result.get("model") else None
    lines.add(day, model, "input", None if told is None else max(0, told - read - written))
    lines.add(day, model, "cache_read", read or None)
    lines.add(day, model, "cache_write", written or None)
    lines.add(day, model, "output", answered)
    lines.add(day, model, "total", requests=requests)
    return True


def _cost(lines: Lines, day: date, result: Record, where: str, terms: Terms) -> bool:
    amount = result.get("amount")
    value, currency = (
        (amount.get("value"), amount.get("currency"))
        if isinstance(amount, dict)
        else (result.get("amount_value"), result.get("amount_currency"))
    )
    usd = terms.usd(cells.number(value, f"{where}: amount"), currency, where)
    if usd is None:
        return False
    model, token_class = line_item(result.get("line_item"))
    lines.add(day, model, token_class, usd=usd)
    return True


def line_item(text: object) -> tuple[str | None, str]:
    """Model and token class of a line item, such as "priority | gpt-5, cached input" or "web search tool calls"."""
    item = str(text or "").strip()
    if not item:
        return None, "total"
    if any(word in item.lower() for word in _CHARGES):
        return None, "tools"
    *tier, named = (part.strip() for part in item.split("|"))
    if tier and tier[-1].lower() not in _TIERS:
        return None, "other"
    head, _, kind = named.partition(",")
    words = head.split()
    while len(words) > 1 and words[-1].lower() in _TIERS | _MODALITIES | {"api"}:
        words.pop()
    model = " ".join(words)
    if not re.search(r"\d", model):
        return None, "other"
    kind = kind.lower()
    for word, token_class in (
        ("write", "cache_write"),
        ("cached", "cache_read"),
        ("input", "input"),
        ("output", "output"),
    ):
        if word in kind:
            return model, token_class
    return model, "other" if kind.strip() else "total"
