"""An entry of a price list -> USD per unit of each class, for a service tier, a prompt's length and an hour.

A class inside another that the entry never prices costs what the other costs: audio and images inside the input,
reasoning inside the output, cached input where the list knows no cache. A class that the entry does price, but not at
this tier or this length, has no rate: the base rate would be a guess.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from zoneinfo import ZoneInfo

from ingest.prices.fields import OTHER_UNITS, parse

CLASSES = (
    *("input", "cache_read", "cache_write", "cache_write_1h", "input_audio", "input_image"),
    *("output", "reasoning", "output_audio", "output_image"),
    *("request", "web_search", "code_interpreter", "file_search"),
)
"""What is counted, in the order of every tuple of rates: tokens; then requests and calls of the provider's tools."""

SAID: Mapping[str, str] = {
    "input": "input",
    "cache_read": "cache reads",
    "cache_write": "cache writes",
    "cache_write_1h": "cache writes of 1 hour",
    "input_audio": "audio input",
    "input_image": "image input",
    "output": "output",
    "reasoning": "reasoning",
    "output_audio": "audio output",
    "output_image": "image output",
    "request": "requests",
    "web_search": "web searches",
    "code_interpreter": "code interpreter sessions",
    "file_search": "file searches",
}
STANDARD = "standard"
_INSIDE = {"reasoning": "output", "output_audio": "output", "output_image": "output"}
_CACHE = ("cache_read", "cache_write", "cache_write_1h")
_INCLUSIVE = "xai"
"""This provider's long-context price starts at the threshold, not above it."""

SLOT_S = 1800
"""Seconds of a slot of the week in which an hourly price does not change."""
SLOTS = 7 * 86400 // SLOT_S

_TIER_NAMES: Mapping[str, str] = {
    **dict.fromkeys(
        ("", "default", "standard", "on_demand", "ondemand", "standard_only", "on_demand_standard"), STANDARD
    ),
    **dict.fromkeys(("batch", "batches"), "batch"),
    **dict.fromkeys(("flex", "on_demand_flex"), "flex"),
    **dict.fromkeys(("priority", "fast", "on_demand_priority"), "priority"),
}


def service_tier(said: str | None) -> str:
    """The list's word for a service tier; what is not said, or left to the provider, is standard."""
    lowered = (said or "").strip().lower()
    return _TIER_NAMES.get(lowered, lowered)


@dataclass(frozen=True, slots=True)
class Rates:
    """USD per unit in the order of `CLASSES`; None: no price. `missing` says why no call at all can be priced by it."""

    usd: tuple[float | None, ...]
    missing: str | None = None


@dataclass(frozen=True)
class Entry:
    """What a list says of one model. `fields` are litellm's; problems of them were refused before."""

    name: str
    provider: str | None
    fields: Mapping[str, object]

    @cached_property
    def _priced(self) -> dict[tuple[str, int, str], float]:
        """(class, above so many tokens, service tier) -> USD."""
        found: dict[tuple[str, int, str], float] = {}
        for key, value in self.fields.items():
            if (what := parse(key)) and isinstance(value, int | float):
                found[what.token_class, what.above, what.tier] = float(value)
        parts = self.fields.get("tiered_pricing")
        for part in parts if isinstance(parts, list) else ():
            above = int(part.get("range", (0, 0))[0])
            for key, value in part.items():
                if (what := parse(key)) and isinstance(value, int | float):
                    found[what.token_class, above, what.tier] = float(value)
        return found

    @cached_property
    def thresholds(self) -> tuple[int, ...]:
        """Prompt lengths above which other prices hold, ascending."""
        less = 1 if self.provider == _INCLUSIVE else 0
        return tuple(sorted({above - less for _, above, _ in self._priced if above}))

    @cached_property
    def by_token(self) -> bool:
        """Whether the list prices it by tokens; other entries are of images, seconds, pages."""
        if self.fields.get("mode") in ("embedding", "rerank"):
            return ("input", 0, STANDARD) in self._priced
        given, answered = (self._priced.get((name, 0, STANDARD)) for name in ("input", "output"))
        if given is None or answered is None:
            return False
        return bool(given or answered) or not any(self.fields.get(name) for name in OTHER_UNITS)

    @cached_property
    def hourly(self) -> bool:
        """Whether the price depends on the hour."""
        return isinstance(self.fields.get("off_peak_pricing"), dict)

    def rates(self, tier: str, input_tokens: int, search_size: str | None = None, slot: int | None = None) -> Rates:
        """The rates of a call. `slot`: the half hour of the week (UTC, from Monday), None when its time is unknown."""
        if self.hourly and slot is None:
            return _none(f"the price of {self.name} depends on the hour and the call's time is unknown")
        less = 1 if self.provider == _INCLUSIVE else 0
        priced = self._priced
        reached = {(name, k) for name, k, told in priced if told == tier and k and input_tokens > k - less}
        lengths = {k for name, k, _ in priced if name == "input" and k and input_tokens > k - less}
        above = max(lengths, default=0)
        given, answered = priced.get(("input", above, tier)), priced.get(("output", above, tier))
        if answered is None and self.fields.get("mode") in ("embedding", "rerank"):
            answered = 0.0
        if given is None or answered is None:
            return _none(f"no {_where(tier, above)} price for {self.name}")
        usd = {"input": given, "output": answered}
        for name in CLASSES[1:10]:
            if name in usd:
                continue
            outer = usd[_INSIDE.get(name, "input")]
            length = max((k for said, k in reached if said == name and k >= above), default=above)
            if (own := priced.get((name, length, tier))) is not None:
                usd[name] = own
            elif self._follows(name):
                usd[name] = outer
        usd.update(self._charges(search_size))
        if self.hourly and slot is not None and tier == STANDARD and not above:
            usd.update(self._off_peak(slot))
        return Rates(tuple(usd.get(name) for name in CLASSES))

    def _follows(self, name: str) -> bool:
        """Whether a class costs what the one around it costs: the list never priced it apart."""
        if name in _CACHE:
            return not any(key[0] == name or (key[0] in _CACHE[1:] and name in _CACHE[1:]) for key in self._priced)
        own = {key[1:]: usd for key, usd in self._priced.items() if key[0] == name}
        outer = _INSIDE.get(name, "input")
        return all(self._priced.get((outer, *key)) == usd for key, usd in own.items())

    def _charges(self, search_size: str | None) -> dict[str, float]:
        found: dict[str, float] = {"request": 0.0}
        if isinstance(fee := self.fields.get("input_cost_per_request"), int | float):
            found["request"] = float(fee)
        if self.fields.get("mode") == "rerank" and isinstance(
            fee := self.fields.get("input_cost_per_query"), int | float
        ):
            found["request"] += float(fee)
        if isinstance(fee := self.fields.get("code_interpreter_cost_per_session"), int | float):
            found["code_interpreter"] = float(fee)
        if isinstance(fee := self.fields.get("file_search_cost_per_1k_calls"), int | float):
            found["file_search"] = float(fee) / 1000
        sizes = self.fields.get("search_context_cost_per_query")
        if isinstance(sizes, dict):
            fees = {key.removeprefix("search_context_size_"): value for key, value in sizes.items()}
            if search_size is not None:
                if isinstance(fee := fees.get(search_size.lower()), int | float):
                    found["web_search"] = float(fee)
            elif len(set(fees.values())) == 1 and isinstance(fee := next(iter(fees.values())), int | float):
                found["web_search"] = float(fee)
        return found

    def _off_peak(self, slot: int) -> dict[str, float]:
        block = self.fields["off_peak_pricing"]
        assert isinstance(block, dict)
        if not _is_open(block, slot):
            return {}
        return {
            what.token_class: float(value)
            for key, value in block.items()
            if (what := parse(key)) and isinstance(value, int | float)
        }


def slot_of(at_ns: int) -> int:
    """The half hour of the week, UTC, from Monday 00:00. The first of January 1970 was a Thursday."""
    return (at_ns // (SLOT_S * 10**9) + 3 * 48) % SLOTS


def _none(why: str) -> Rates:
    return Rates((None,) * len(CLASSES), why)


def _where(tier: str, above: int) -> str:
    parts = [*([] if tier == STANDARD else [tier]), *([f"above-{above // 1000}k-tokens"] if above else [])]
    return " ".join(parts) or STANDARD


def _is_open(block: Mapping[str, object], slot: int) -> bool:
    """Whether a slot is inside one of the windows of hours, on its weekdays (1 is Monday)."""
    minute = slot % 48 * 30
    moment = datetime.fromtimestamp(slot * SLOT_S + 4 * 86400, UTC)  # the fifth of January 1970 was a Monday
    zone = block.get("weekday_timezone")
    weekday = (moment.astimezone(ZoneInfo(zone)) if isinstance(zone, str) else moment).isoweekday()
    windows = block.get("windows")
    rules: list[Mapping[str, object]] = (
        [rule for rule in windows if isinstance(rule, dict)] if isinstance(windows, list) else []
    )
    if block.get("hours_utc"):
        rules.append({"hours_utc": block["hours_utc"]})
    for rule in rules:
        days = rule.get("weekdays")
        if isinstance(days, list) and weekday not in days:
            continue
        if any(_inside(hours, minute) for hours in _texts(rule.get("hours_utc"))):
            return True
    return False


def _texts(value: object) -> Sequence[str]:
    if isinstance(value, str):
        return (value,)
    return [item for item in value if isinstance(item, str)] if isinstance(value, list) else ()


def _inside(hours: str, minute: int) -> bool:
    """Whether "10:00-00:00" holds a minute of the day; a window that ends where it starts is the whole day."""
    start, _, end = hours.partition("-")
    first, last = (int(h) * 60 + int(m) for h, _, m in (part.strip().partition(":") for part in (start, end)))
    return first <= minute < last if first < last else minute >= first or minute < last
