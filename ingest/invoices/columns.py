"""Any table (CSV, TSV, Parquet, JSON lines), by the names of its columns: those given by hand, else our own.

day            a day, or a moment that lies in it                                     needed
model
input          input tokens without the cached part; input_total: with it
cache_read, cache_write, output
tokens         with token_class, one of input, cache_read, cache_write, output, tools, other, total
usd            money, of the token class where there is one, else of the whole line
currency       of the money
requests       how many
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from difflib import get_close_matches

from ingest.errors import UsageError
from ingest.invoices import cells
from ingest.invoices.records import CLASSES, Invoice, Lines, Terms
from ingest.invoices.source import Record, Source

FIELDS = (
    *("day", "model", "input", "input_total", "cache_read", "cache_write", "output"),
    *("tokens", "token_class", "usd", "currency", "requests"),
)
_AMOUNTS = ("input", "input_total", "cache_read", "cache_write", "output", "tokens", "usd")
_OTHER_NAMES = {
    "date": "day",
    "input_tokens": "input_total",
    "prompt_tokens": "input_total",
    "uncached_input_tokens": "input",
    "cache_read_tokens": "cache_read",
    "cached_tokens": "cache_read",
    "cache_write_tokens": "cache_write",
    "output_tokens": "output",
    "completion_tokens": "output",
    "cost_usd": "usd",
}
_CLASS_NAMES = {"uncached_input": "input", "cached_input": "cache_read", "cache_creation": "cache_write"}


def recognises(record: Record) -> bool:
    fields = set(_known(tuple(record)).values())
    return "day" in fields and bool(fields & set(_AMOUNTS))


def read(source: Source, terms: Terms) -> Invoice:
    found = _mapped(source, terms)
    if not recognises(dict.fromkeys(found.values())):
        raise unknown(source)
    lines = Lines()
    for record, place in zip(source.records, source.places, strict=True):
        _line(lines, {field: record.get(column) for column, field in found.items()}, place, terms)
    unused = [name for name in source.columns if name not in found]
    notes = (f"columns not used: {', '.join(unused)}",) if unused else ()
    return lines.invoice("csv", terms, source.path, notes=notes)


def unknown(source: Source) -> UsageError:
    """What to say of a file whose columns say too little."""
    found = _known(source.columns)
    missing = [] if "day" in found.values() else ["day"]
    if not set(found.values()) & set(_AMOUNTS):
        missing.append("tokens or usd")
    others = [name for name in source.columns if name not in found][:20]
    example = " ".join(f"--map {name}={field}" for name, field in zip(others, ("day", "model", "usd"), strict=False))
    return UsageError(
        f"{source.path} is of no known format, and as a table it lacks {' and '.join(missing) or 'a known format'}: "
        f"unknown columns {', '.join(others)}",
        f"Say what they are, as in {example or '--map Date=day'}. Fields: {', '.join(FIELDS)}.",
    )


def parse_map(pairs: tuple[str, ...]) -> dict[str, str]:
    """`COLUMN=FIELD` texts as a mapping. Raises UsageError for a field that there is not, or one given twice."""
    found: dict[str, str] = {}
    for pair in pairs:
        column, mark, field = pair.rpartition("=")
        if not mark or not column:
            raise UsageError(f"--map {pair} is not COLUMN=FIELD", f"Fields: {', '.join(FIELDS)}.")
        if field not in FIELDS:
            near = get_close_matches(field, FIELDS, n=1)
            meant = f"Did you mean {near[0]}? " if near else ""
            raise UsageError(f"--map {pair}: there is no field {field}", f"{meant}Fields: {', '.join(FIELDS)}.")
        if field in found.values() or column in found:
            raise UsageError(f"--map {pair}: {field if field in found.values() else column} is mapped already")
        found[column] = field
    return found


def _known(names: tuple[str, ...]) -> dict[str, str]:
    """Columns that name themselves -> field; of two for the same field the first."""
    found: dict[str, str] = {}
    for name in names:
        plain = name.strip().lower().replace(" ", "_")
        field = plain if plain in FIELDS else _OTHER_NAMES.get(plain)
        if field and field not in found.values():
            found[name] = field
    return found


def _mapped(source: Source, terms: Terms) -> Mapping[str, str]:
    for column in terms.columns:
        if column not in source.columns:
            near = get_close_matches(column, source.columns, n=1)
            meant = f"Did you mean {near[0]}? " if near else ""
            raise UsageError(
                f"{source.path} has no column {column}", f"{meant}It has {', '.join(source.columns[:20])}."
            )
    given = dict(terms.columns)
    known = {name: field for name, field in _known(source.columns).items() if field not in given.values()}
    return {**{name: field for name, field in known.items() if name not in given}, **given}


def _line(lines: Lines, row: Record, place: str, terms: Terms) -> None:
    moment = cells.moment(row["day"], f"{place}: day", terms.days_in)
    offset = moment.utcoffset() if isinstance(moment, datetime) else None
    if terms.zone is None and offset not in (None, timedelta(0)):
        raise UsageError(
            f"{place}: the moment {row['day']} is of another time zone than UTC",
            "Say in which zone the invoice's days are: --time-zone Europe/Berlin, or --time-zone UTC.",
        )
    day = cells.day(moment, place, terms)
    lines.days.add(day)
    model = str(row["model"]).strip() if row.get("model") else None
    usd = terms.usd(cells.number(row.get("usd"), f"{place}: usd"), row.get("currency"), place)
    counts = {name: cells.count(row.get(name), f"{place}: {name}") for name in (*_AMOUNTS[:-1], "requests")}
    if row.get("token_class"):
        lines.add(day, model, _token_class(row["token_class"], place), counts["tokens"], usd, counts["requests"])
        return
    whole = counts["input_total"]
    cached = (counts["cache_read"] or 0) + (counts["cache_write"] or 0)
    if whole is not None and whole < cached:
        raise UsageError(
            f"{place}: input_total {whole} is less than its cached part {cached}",
            "If the column does not include the cached part, map it to input.",
        )
    fresh = counts["input"] if whole is None else whole - cached
    lines.add(day, model, "input", fresh)
    for name in ("cache_read", "cache_write"):
        lines.add(day, model, name, counts[name] or None)
    lines.add(day, model, "output", counts["output"])
    split = (fresh, counts["output"]) != (None, None)
    lines.add(day, model, "total", None if split else counts["tokens"], usd, counts["requests"])


def _token_class(value: object, place: str) -> str:
    plain = str(value).strip().lower().replace(" ", "_").removesuffix("_tokens")
    plain = _CLASS_NAMES.get(plain, plain)
    if plain not in CLASSES:
        raise UsageError(f"{place}: token_class is {value}, expected one of {', '.join(CLASSES)}")
    return plain
