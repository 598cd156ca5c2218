"""Times as other systems write them -> integer nanoseconds UTC; None for what is no time. Pure.

Read are ISO 8601 (a time without a zone is UTC) with up to nine decimals, and numbers since 1970 in seconds,
milliseconds, microseconds or nanoseconds, told apart by their size.
"""

from __future__ import annotations

import math
import re
from datetime import UTC, date, datetime

_ISO = re.compile(
    r"(?P<second>\d{4}-\d{2}-\d{2}[T ]\d{2}:\d{2}(?::\d{2})?)(?:[.,](?P<fraction>\d{1,9})\d*)?"
    r"\s*(?P<zone>Z|UTC|[+-]\d{2}:?(?:\d{2})?)?",
    re.IGNORECASE,
)
_SECONDS_BELOW = 1e11  # the year 5138; as milliseconds 1973
_LAST_NS = 2**63 - 1


def nanoseconds(value: object) -> int | None:
    """A time as nanoseconds since 1970."""
    if isinstance(value, datetime):
        moment = value if value.tzinfo else value.replace(tzinfo=UTC)
        nanos = getattr(value, "nanosecond", 0)  # pandas keeps more than microseconds
        return _bounded(_whole_seconds(moment) * 1_000_000_000 + moment.microsecond * 1000 + int(nanos))
    if isinstance(value, date):
        return nanoseconds(datetime(value.year, value.month, value.day, tzinfo=UTC))
    if isinstance(value, bool) or value is None:
        return None
    if isinstance(value, int | float):
        return _since_1970(value)
    return _from_text(value.strip()) if isinstance(value, str) else None


def _since_1970(value: int | float) -> int | None:
    if not math.isfinite(value) or value <= 0:
        return None
    for scale, below in ((10**9, _SECONDS_BELOW), (10**6, _SECONDS_BELOW * 1e3), (1000, _SECONDS_BELOW * 1e6)):
        if value < below:
            return _bounded(value * scale if isinstance(value, int) else round(value * 1e6) * (scale // 1000) // 1000)
    return _bounded(int(value))


def _from_text(text: str) -> int | None:
    if match := _ISO.fullmatch(text):
        zone = (match["zone"] or "+00:00").upper()
        try:
            moment = datetime.fromisoformat(match["second"] + ("+00:00" if zone in ("Z", "UTC") else zone))
        except ValueError:
            return None
        fraction = int((match["fraction"] or "0").ljust(9, "0"))
        return _bounded(_whole_seconds(moment) * 1_000_000_000 + fraction)
    try:
        return _since_1970(int(text))
    except ValueError:
        pass
    try:
        return _since_1970(float(text))
    except ValueError:
        pass
    try:
        return nanoseconds(date.fromisoformat(text))
    except ValueError:
        return None


def _whole_seconds(moment: datetime) -> int:
    since = moment - datetime(1970, 1, 1, tzinfo=UTC)
    return since.days * 86_400 + since.seconds


def _bounded(value: int | float) -> int | None:
    return int(value) if 0 <= value <= _LAST_NS else None
