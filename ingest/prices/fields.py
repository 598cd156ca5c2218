"""Names of the price fields of litellm's list -> what they price. Which entries are refused, and why.

A field is `<class>[_above_<N>k_tokens][_<service tier>]`; `cache_creation_input_token_cost` may have `_above_1hr`
before that: its threshold is a cache's lifetime. All prices are USD per single unit.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

CLASSES: Mapping[str, str] = {
    "input_cost_per_token": "input",
    "cache_read_input_token_cost": "cache_read",
    "cache_creation_input_token_cost": "cache_write",
    "cache_creation_input_token_cost_above_1hr": "cache_write_1h",
    "output_cost_per_token": "output",
    "output_cost_per_reasoning_token": "reasoning",
    "input_cost_per_audio_token": "input_audio",
    "output_cost_per_audio_token": "output_audio",
    "input_cost_per_image_token": "input_image",
    "output_cost_per_image_token": "output_image",
}
"""Field of the list -> token class."""

TIERS: Mapping[str, str] = {
    "batches": "batch",
    "flex": "flex",
    "priority": "priority",
    "ultrafast": "ultrafast",
    "balanced": "balanced",
}
"""Ending of a field -> service tier."""

OTHER = (
    "input_cost_per_request",
    "input_cost_per_query",
    "code_interpreter_cost_per_session",
    "file_search_cost_per_1k_calls",
)
"""Fields that are prices of one number and not of tokens."""

NESTED = ("search_context_cost_per_query", "tiered_pricing", "off_peak_pricing")
"""Fields that hold prices inside."""

OTHER_UNITS = (
    *("input_cost_per_second", "output_cost_per_second", "input_cost_per_character", "output_cost_per_character"),
    *("input_cost_per_pixel", "output_cost_per_pixel", "input_cost_per_image", "output_cost_per_image"),
)
"""Prices of what is not counted in tokens: kept to know that tokens alone do not say the cost."""

_FIELD = re.compile(
    rf"(?P<cls>{'|'.join(sorted(CLASSES, key=len, reverse=True))})"
    rf"(_above_(?P<k>\d+)k_tokens)?(_(?P<tier>{'|'.join(TIERS)}))?"
)


@dataclass(frozen=True, slots=True)
class Field:
    """What a field prices: tokens of a class, of prompts of more than `above` tokens, at a service tier."""

    token_class: str
    above: int = 0
    tier: str = "standard"


@lru_cache(maxsize=4096)
def parse(name: str) -> Field | None:
    """What a field of the list prices; None when it is not a price of tokens."""
    found = _FIELD.fullmatch(name)
    if found is None:
        return None
    return Field(
        CLASSES[found["cls"]],
        int(found["k"]) * 1000 if found["k"] else 0,
        TIERS[found["tier"]] if found["tier"] else "standard",
    )


def price_fields(entry: object) -> dict[str, object]:
    """The fields of an entry that a price depends on; of others only whether it is an embedding or a rerank model."""
    if not isinstance(entry, dict):
        return {}
    kept = {
        key: value
        for key, value in entry.items()
        if value is not None and (parse(key) or key in OTHER or key in NESTED or key in OTHER_UNITS)
    }
    if kept and entry.get("mode") in ("embedding", "rerank"):
        kept["mode"] = entry["mode"]
    return kept


def problem(entry: object) -> str | None:
    """Why an entry is refused; None when it is sound. An entry without any price is sound: it prices nothing."""
    if not isinstance(entry, dict):
        return f"is {_told(entry)}, expected a table of prices"
    for name, value in entry.items():
        if not isinstance(name, str):
            return f"has a field {name!r}, expected a text"
        if (parse(name) or name in OTHER) and value is not None and (wrong := _wrong(value)):
            return f"{name} is {wrong}"
    for name in NESTED:
        if name in entry and entry[name] is not None and (wrong := _wrong_inside(name, entry[name])):
            return f"{name} {wrong}"
    return _contradiction(entry)


def _wrong(value: object) -> str | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return f"{_told(value)}, expected USD per unit"
    if not math.isfinite(value) or value < 0:
        return f"{value}, expected USD per unit, at least 0"
    if value > 1000:
        return f"{value}, expected USD for one unit, not for a million"
    return None


def _wrong_inside(name: str, value: object) -> str | None:
    if name == "tiered_pricing":
        if not isinstance(value, list) or not all(isinstance(part, dict) for part in value):
            return "is no list of tables"
        for part in value:
            bounds = part.get("range")
            if bounds is not None and not (isinstance(bounds, list) and len(bounds) == 2 and bounds[0] < bounds[1]):
                return f"has the range {bounds}"
        parts = value
    else:
        parts = [value]
    for part in parts:
        if not isinstance(part, dict):
            return "is no table"
        for key, number in part.items():
            priced = parse(key) is not None or key.startswith("search_context_size_")
            if priced and number is not None and (wrong := _wrong(number)):
                return f"{key} is {wrong}"
    return None


def _contradiction(entry: Mapping[str, object]) -> str | None:
    """Prices that cannot both hold: output without input, a range twice, cached input dearer than twice fresh input."""
    given, answered = entry.get("input_cost_per_token"), entry.get("output_cost_per_token")
    inputs = any(key.startswith("input_cost_per_") and value is not None for key, value in entry.items())
    if answered is not None and not inputs and not any(entry.get(name) is not None for name in (*NESTED, *OTHER)):
        return "has a price of output and none of input"
    read = entry.get("cache_read_input_token_cost")
    if isinstance(read, int | float) and isinstance(given, int | float) and given > 0 and read > 2 * given:
        return f"cache_read_input_token_cost {read} is more than twice input_cost_per_token {given}"
    return None


def _told(value: object) -> str:
    return "nothing" if value is None else f"the {type(value).__name__} {str(value)[:40]!r}"
