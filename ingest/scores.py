"""Scores as JSON: the body of POST /v1/scores -> records. Pure.

One object or a list of objects:

    name          text                                              required
    value, label  number (or true, false), text                     at least one of the two
    trace_id, span_id, session_id, response_id                      at least one
    score_id, source, explanation                                   text, optional
    time_ns       integer nanoseconds UTC, optional                 default: when it was received
    probability   above 0, at most 1, optional                      with which this target was drawn to be scored
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Mapping

import orjson

from ingest.spans import Score

TARGETS = ("trace_id", "span_id", "session_id", "response_id")
KEYS = {"name", "value", "label", "score_id", "source", "explanation", "time_ns", "probability", *TARGETS}
_HEX = re.compile("[0-9a-fA-F]*")


class ScoreError(ValueError):
    """Not a valid score; the text says which one and why."""


def parse_scores(body: bytes, received_ns: int) -> tuple[Score, ...]:
    """The scores of a request. Raises `ScoreError` when any of them is invalid: then none is to be stored."""
    try:
        sent = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise ScoreError(f"not JSON: {error}") from None
    scores = []
    for index, item in enumerate(sent if isinstance(sent, list) else [sent]):
        try:
            scores.append(_score(item, received_ns))
        except ScoreError as error:
            raise ScoreError(f"score {index}: {error}") from None
    return tuple(scores)


def score_id(target: str, name: str, source: str, time_ns: int, value: float | str | None) -> str:
    """The id of a score that was sent without one: equal for a score that is sent again."""
    text = "\0".join((target, name, source, str(time_ns), repr(value)))
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def _score(item: object, received_ns: int) -> Score:
    if not isinstance(item, dict):
        raise ScoreError("not an object")
    if unknown := sorted(set(item) - KEYS):
        raise ScoreError(f"unknown key {unknown[0]!r}; known are {', '.join(sorted(KEYS))}")
    name, label = _text(item, "name"), _text(item, "label")
    if not name:
        raise ScoreError("name is missing")
    value = _number(item)
    if value is None and label is None:
        raise ScoreError("value or label is missing")
    trace_id, span_id = _hex(item, "trace_id", 32), _hex(item, "span_id", 16)
    session_id, response_id = _text(item, "session_id"), _text(item, "response_id")
    if not (trace_id or span_id or session_id or response_id):
        raise ScoreError(f"one of {', '.join(TARGETS)} is missing")
    source = _text(item, "source") or ""
    time_ns = item.get("time_ns")
    if time_ns is None:
        time_ns = received_ns
    elif not isinstance(time_ns, int) or isinstance(time_ns, bool) or not 0 <= time_ns < 2**63:
        raise ScoreError("time_ns is not an integer of nanoseconds")
    target = "/".join((trace_id or "", span_id or "", session_id or "", response_id or ""))
    return Score(
        _text(item, "score_id") or score_id(target, name, source, time_ns, label if value is None else value),
        name,
        value,
        time_ns,
        source,
        trace_id,
        span_id,
        session_id,
        response_id,
        label,
        _text(item, "explanation"),
        _probability(item),
    )


def _text(item: Mapping[str, object], key: str) -> str | None:
    value = item.get(key)
    if value is None or isinstance(value, str):
        return value or None
    raise ScoreError(f"{key} is not text")


def _number(item: Mapping[str, object]) -> float | None:
    value = item.get("value")
    if value is None:
        return None
    if not isinstance(value, int | float) or not math.isfinite(value):
        raise ScoreError("value is not a number")
    return float(value)


def _probability(item: Mapping[str, object]) -> float | None:
    value = item.get("probability")
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= 1:
        raise ScoreError(f"probability {value!r} is not a number above 0 and at most 1: how likely it was to be scored")
    return float(value)


def _hex(item: Mapping[str, object], key: str, digits: int) -> str | None:
    value = _text(item, key)
    if value is None:
        return None
    if len(value) != digits or not _HEX.fullmatch(value) or not value.strip("0"):
        raise ScoreError(f"{key} is not {digits} hex digits")
    return value.lower()
