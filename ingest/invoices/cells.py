"""Numbers, days and moments as invoices write them. Every problem names its place and what was expected."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo

from ingest.errors import UsageError
from ingest.invoices.records import Terms

_GROUPED = re.compile(r"-?\d{1,3}(,\d{3})+(\.\d+)?")
_EPOCHS = ((1e17, 1e9), (1e14, 1e6), (1e11, 1e3), (1e8, 1.0))
"""From which size on a number of a moment counts so many parts of a second."""


def number(value: object, where: str) -> float | None:
    """A finite number; None where nothing stands."""
    if value is None or value == "":
        return None
    text = str(value).strip().removeprefix("$")
    if text in ("", "--", "-"):
        return None
    if _GROUPED.fullmatch(text):
        text = text.replace(",", "")
    try:
        found = float(text)
    except ValueError:
        raise UsageError(f"{where} is {value!r}, expected a number", "Decimals are written with a point.") from None
    if isinstance(value, bool) or found != found or abs(found) == float("inf"):
        raise UsageError(f"{where} is {value!r}, expected a number")
    return found


def count(value: object, where: str) -> int | None:
    """A whole number, at least 0; None where nothing stands."""
    found = number(value, where)
    if found is not None and (found < 0 or found != int(found)):
        raise UsageError(f"{where} is {value!r}, expected a whole number, at least 0")
    return None if found is None else int(found)


def moment(value: object, where: str, naive: ZoneInfo) -> date | datetime:
    """A day, or an instant with its zone. One without a zone is meant in `naive`."""
    if isinstance(value, datetime):
        return value if value.tzinfo else value.replace(tzinfo=naive)
    if isinstance(value, date):
        return value
    text = str(value).strip()
    if isinstance(value, int | float) or re.fullmatch(r"\d{9,}(\.\d+)?", text):
        seconds = float(text)
        for size, parts in _EPOCHS:
            if seconds >= size:
                return datetime.fromtimestamp(seconds / parts, UTC)
    elif re.fullmatch(r"\d{4}-\d{2}-\d{2}|\d{8}", text):
        try:
            return date.fromisoformat(text)
        except ValueError:
            pass
    else:
        try:
            found = datetime.fromisoformat(text)
            return found if found.tzinfo else found.replace(tzinfo=naive)
        except ValueError:
            pass
    raise UsageError(
        f"{where} is {value!r}, expected a day or a moment",
        "Days are written 2026-11-30, moments 2026-11-30T14:00:00Z or in seconds since 1970.",
    )


def day(value: object, where: str, terms: Terms, naive: ZoneInfo | None = None) -> date:
    """The invoice's day of a day or moment. One without a zone is meant in `naive`, by default the invoice's own."""
    found = moment(value, where, naive or terms.days_in)
    return found.astimezone(terms.days_in).date() if isinstance(found, datetime) else found


def bucket_day(start: object, end: object, where: str, terms: Terms) -> date:
    """The day of a bucket from `start` to `end`. Raises UsageError when it does not lie in one day of the zone."""
    utc = ZoneInfo("UTC")
    begin = moment(start, f"{where}: its start", utc)
    if not isinstance(begin, datetime):
        return begin
    local = begin.astimezone(terms.days_in)
    stop = moment(end, f"{where}: its end", utc) if end not in (None, "") else None
    width = stop - begin if isinstance(stop, datetime) else timedelta(0)
    if width > timedelta(hours=25):
        raise UsageError(f"{where} spans {width}, longer than a day", "Export it by day (bucket_width=1d) or finer.")
    if width > timedelta(hours=1) and local.time().replace(tzinfo=None) != datetime.min.time():
        raise UsageError(
            f"{where}: its day begins at {begin.astimezone(UTC):%H:%M} UTC, "
            f"which is {local:%H:%M} in {terms.days_in}: the invoice's days are those of another time zone",
            "Name the invoice's own zone with --time-zone, such as UTC or America/Los_Angeles, or export it by hour.",
        )
    return local.date()
