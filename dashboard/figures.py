"""Numbers -> short texts. Pure: the same figure reads the same on every page and in every test.

An interval decides how many digits its figure deserves: one or two of its half width, no more.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal

from dashboard.records import Figure

Unit = Literal["usd", "usd_change", "quality", "quality_change", "seconds", "seconds_change", "number", "number_change"]


Side = Literal["below", "above"]


KINDS = {
    "certified": "holds whatever the sample size, given the logged probabilities",
    "asymptotic": "right for large samples; from small ones the truth may lie further out",
    "assumption": "right only if the model behind it is",
}


ESTIMATORS = {
    "dm": "Outcome model (DM)",
    "snips": "Reweighted log (SNIPS)",
    "ips": "Reweighted log (IPS)",
    "dr": "Doubly robust (DR)",
    "blend": "Blend of these, doubly robust bounds",
    "bootstrap": "Doubly robust, bounds by resampling",
    "betting": "Doubly robust, bounds by betting",
    "ls": "Reweighted log, smoothed bounds (LS)",
}


DAY_NS = 86_400_000_000_000


@dataclass(frozen=True)
class Said:
    """A figure in words: its value and its interval ("" where refused)."""

    value: str
    interval: str


def said(figure: Figure, unit: Unit) -> Said:
    if figure.refused:
        return Said("Not estimated", "")
    value, low, high = figure.span
    form = _form(unit, value, low, high)
    if math.isinf(low) and math.isinf(high):
        return Said(form(value, True), "no bounds")
    if math.isinf(low) or math.isinf(high):
        return Said(
            form(value, True), f"at most {form(high, True)}" if math.isinf(low) else f"at least {form(low, True)}"
        )
    return Said(form(value, True), f"{form(low, False)} to {form(high, True)}")


def _form(unit: Unit, value: float, low: float, high: float) -> Callable[[float, bool], str]:
    """(number, whether to write the unit behind it) -> text, with as many digits as the interval deserves."""
    change, reach = unit.endswith("_change"), max(abs(x) for x in (value, low, high) if math.isfinite(x))
    half = (high - low) / 2 if math.isfinite(high - low) else reach / 10
    if unit in ("usd", "usd_change"):
        places = _places(half, 2 if reach < 1000 else 0, 6)
        return lambda x, end: _signed(x, places, "$", "", change)
    if unit in ("quality", "quality_change"):
        places = _places(100 * half, 1, 2)
        after = "\u00a0points" if change else "%"
        return lambda x, end: _signed(100 * x, places, "", after if end else "", change)
    if unit in ("number", "number_change"):
        places = _places(half, 0 if reach >= 100 else 1 if reach >= 10 else 2, 4)
        return lambda x, end: _signed(x, places, "", "", change)
    if reach < 0.1:
        return lambda x, end: _signed(1000 * x, _places(1000 * half, 0, 1), "", "\u00a0ms" if end else "", change)
    return lambda x, end: _signed(x, _places(half, 2, 3), "", "\u00a0s" if end else "", change)


def _places(half: float, least: int, most: int) -> int:
    """Decimals that show two digits of a half width whose first digit is 1 to 3, else one."""
    if half <= 0:
        return least
    exponent = math.floor(math.log10(half))
    wanted = -exponent + (1 if half / 10**exponent < 3.55 else 0)
    return max(least, min(most, wanted))


def _signed(x: float, places: int, before: str, after: str, plus: bool) -> str:
    digits = f"{abs(x):,.{places}f}"
    zero = not any(digit in "123456789" for digit in digits)
    sign = "" if zero else "−" if x < 0 else "+" if plus else ""
    return f"{sign}{before}{digits}{after}"


def interval(figure: Figure, unit: Unit) -> str:
    """ " (a to b)", or nothing where there is no interval."""
    text = said(figure, unit).interval
    return f" ({text})" if text else ""


def count(n: int | float | None) -> str:
    return "unknown" if n is None else f"{n:,.0f}"


def counted(n: int | None, one: str, many: str | None = None) -> str:
    return f"{count(n)} {one if n == 1 else many or one + 's'}"


def share(x: float | None) -> str:
    """A share in percent; a small one is never rounded to 0, nor a nearly full one to 100."""
    if x is None:
        return "unknown"
    if 0 < x < 0.001:
        return "<0.1%"
    if 0.999 < x < 1:
        return ">99.9%"
    return f"{100 * x:.0f}%" if x in (0, 1) or 0.0995 <= x <= 0.99 else f"{100 * x:.1f}%"


def part(n: int, of: int) -> str:
    """A count with its share, e.g. "12 (0.6%)"; of nothing, and for none, there is no share."""
    return f"{count(n)} ({share(n / of)})" if of and n else count(n)


def window(first_ns: int | None, last_ns: int | None) -> str:
    """The days from first to last, e.g. "3 to 17 Mar 2026"."""
    if first_ns is None or last_ns is None:
        return "no time range"
    first, last = (datetime.fromtimestamp(ns / 1e9, UTC) for ns in (first_ns, last_ns))
    if f"{first:%Y-%m-%d %H:%M}" == f"{last:%Y-%m-%d %H:%M}":
        return f"{first.day} {first:%b %Y, %H:%M} UTC"
    if first.date() == last.date():
        return f"{first.day} {first:%b %Y, %H:%M} to {last:%H:%M} UTC"
    if first.year != last.year:
        start = f"{first.day} {first:%b %Y}"
    else:
        start = f"{first.day}" if first.month == last.month else f"{first.day} {first:%b}"
    return f"{start} to {last.day} {last:%b %Y}"


def date(iso: str) -> str:
    """An ISO date and time for people; what is not one, as it is."""
    try:
        at = datetime.fromisoformat(iso).astimezone(UTC)
    except ValueError:
        return iso or "unknown date"
    return f"{at.day} {at:%b %Y, %H:%M} UTC"


def estimator(name: str) -> str:
    return ESTIMATORS.get(name.lower(), name)


def points(x: float) -> str:
    size = f"{100 * abs(x):.2f}".rstrip("0").rstrip(".")
    return f"{'−' if x < 0 else '+' if x > 0 else ''}{size}\u00a0{'point' if size == '1' else 'points'}"


def seconds(x: float) -> str:
    return _signed(x, 2 if abs(x) < 10 else 0, "", "\u00a0s", True)


def sentence(text: str) -> str:
    """`text` ended by a full stop, once."""
    text = text.strip()
    return text if not text or text[-1] in ".!?" else f"{text}."


def capital(text: str) -> str:
    """`text` with a capital first letter; the rest as it is."""
    return text[:1].upper() + text[1:]
