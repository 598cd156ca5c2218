"""Attribute values as they come -> typed values; None for what is not one. Nothing here raises."""

from __future__ import annotations

import ast
import math
from collections.abc import Iterable

import orjson

_NOTHING = {"", "none", "null", "undefined"}
_LONGEST_NOTHING = 32
_OPENING = frozenset('{[" \t\r\n')
"""How a JSON text may begin that holds, or may hold, a structure."""


def text(value: object) -> str | None:
    """A non-empty text; numbers as text. 'None' and 'null' are how some emitters write nothing."""
    if isinstance(value, str):
        if "." < value[:1] < "\x7f" and value[0] not in "nNuU":  # the usual, in half the time
            return value
        return value if len(value) > _LONGEST_NOTHING or value.strip().lower() not in _NOTHING else None
    if isinstance(value, bool) or value is None:
        return None
    if isinstance(value, (int, float)):
        return str(value)
    return dumps(value)


def said(value: object) -> object:
    """A value as it came; None for the empty text."""
    return None if value == "" else value


def count(value: object) -> int | None:
    """A number of things: not negative. Doubles and texts of whole numbers count."""
    found = value if type(value) is int else number(value)
    return None if found is None or found < 0 or found > 2**62 else int(found)


def number(value: object) -> float | int | None:
    """A finite number of at most 64 bits, also when sent as text."""
    if isinstance(value, bool) or value is None:
        return None
    if isinstance(value, int):
        return value if abs(value) < 2**63 else None
    if isinstance(value, str):
        try:
            value = float(value)
        except ValueError:
            return None
    return value if isinstance(value, float) and math.isfinite(value) else None


def real(value: object) -> float | None:
    found = number(value)
    return None if found is None else float(found)


def boolean(value: object) -> bool | None:
    if isinstance(value, bool):
        return value
    return {"true": True, "false": False}.get(value.strip().lower()) if isinstance(value, str) else None


def structure(value: object, depth: int = 3) -> object:
    """A list or dict, also when sent as JSON, as JSON within JSON, or as Python's repr; else None."""
    if not isinstance(value, str):
        return value if isinstance(value, (list, dict)) else None
    if value[:1] not in _OPENING or not depth:  # a word, or a number at best
        return None
    try:
        found = orjson.loads(value)
    except orjson.JSONDecodeError:
        return _from_repr(value)
    return found if isinstance(found, (list, dict)) else structure(found, depth - 1)


def array(value: object) -> str | None:
    """A JSON array as text; None for anything else."""
    found = structure(value)
    return dumps(found) if isinstance(found, list) else None


def dumps(value: object) -> str:
    """JSON text. Keys that are no texts and odd values become texts; a broken surrogate becomes a question mark."""
    try:
        return orjson.dumps(value).decode()
    except TypeError:
        return _dumps_odd(value)


def _dumps_odd(value: object) -> str:
    try:
        return orjson.dumps(value, default=str, option=orjson.OPT_NON_STR_KEYS).decode()
    except TypeError:  # a lone surrogate, or an integer beyond 64 bits
        import json

        try:
            return json.dumps(value, default=str).encode("utf-8", "replace").decode()
        except RecursionError:
            return '"nested too deeply"'


def _from_repr(value: str) -> object:
    if not value.startswith(("{", "[")) or value.startswith(('{"', '[{"', '["')) or len(value) > 100_000:
        return None
    try:
        found = ast.literal_eval(value)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return None
    return found if isinstance(found, (list, dict)) else None


def unquoted(value: object) -> object:
    """The text in a JSON text literal; anything else as it is."""
    if isinstance(value, str) and len(value) > 1 and value[0] == value[-1] == '"':
        try:
            return orjson.loads(value)
        except orjson.JSONDecodeError:
            return value
    return value


def milliseconds(value: object) -> float | None:
    """Seconds from a number of milliseconds."""
    found = number(value)
    return None if found is None else found / 1000


def within(value: object, path: str) -> object:
    """What is at "a.b" in nested dicts; None when there is nothing."""
    return at(value, path.split("."))


def at(value: object, path: Iterable[str]) -> object:
    """What the keys of a path lead to in nested dicts; None when there is nothing."""
    for key in path:
        if not isinstance(value, dict):
            return None
        value = value.get(key)
    return value
