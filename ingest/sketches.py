"""Canonical messages without their words: what is left of a prompt when content is off. Pure.

A message keeps its role, the names of the tools it calls and its ids; in the place of its content is one part

    {"type": "sketch", "chars": length of its text, "parts": number of parts that are no text, "digest": fingerprint}

and, for the last message of a user that has a text, "features": the vector that a policy decides by, made by a function
that is passed in. Messages of sketches are canonical messages, and a sketch of them is they themselves.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping
from typing import TypeGuard

import orjson

from ingest.dialects.values import dumps

Vector = Callable[[str], str]
"""The features of a user's text, as a short text: see `optimizer.prompts`."""

PART = "sketch"
NAME_CHARS = 200
"""A longer text, or one of several lines, is no name."""

_USERS = ("user", "human")
_FORM: Mapping[str, re.Pattern[str]] = {
    "digest": re.compile(r"[0-9a-f]{24}"),
    "features": re.compile(r"[\w.:-]{1,64}/[A-Za-z0-9+/=]{1,2048}"),
}


def sketched(text: str | None, vector: Vector | None) -> str | None:
    """Canonical messages (JSON) -> their sketches (JSON). None of None, and of what are no messages."""
    if text is None:
        return None
    try:
        messages = orjson.loads(text)
    except orjson.JSONDecodeError:
        return None
    if not isinstance(messages, list):
        return None
    found: list[dict[str, object]] = []
    for message in reversed(messages):
        if isinstance(message, dict):
            found.append(_message(message, vector))
            if "features" in _part(found[-1]):
                vector = None
    return dumps(found[::-1]) if found else None


def sealed(role: str, said: str, vector: Vector | None) -> str:
    """A lone text as a text that holds its sketch."""
    (message,) = orjson.loads(sketched(dumps([{"role": role, "content": unsealed(said)}]), vector) or "[]")
    return dumps(message["content"])


def unsealed(said: str) -> str | list[object]:
    """The content in what `sealed` made; any other text as it is."""
    if not said.startswith('[{"type":"sketch"'):
        return said
    try:
        found = orjson.loads(said)
    except orjson.JSONDecodeError:
        return said
    return found if len(found) == 1 and is_sketch(found[0]) else said


def name(value: object) -> str | None:
    """A text that may be a name; None for what may be prose, and for what is no text."""
    short = isinstance(value, str) and len(value) <= NAME_CHARS and "\n" not in value
    return str(value) if short else None


def is_sketch(part: object) -> TypeGuard[Mapping[str, object]]:
    """Whether a part of a message is a sketch, and nothing but a sketch."""
    return (
        isinstance(part, dict)
        and part.get("type") == PART
        and isinstance(part.get("chars"), int)
        and isinstance(part.get("parts"), int)
        and part.keys() <= {"type", "chars", "parts", *_FORM}
        and all(isinstance(part[key], str) and form.fullmatch(part[key]) for key, form in _FORM.items() if key in part)
    )


def _message(given: Mapping[str, object], vector: Vector | None) -> dict[str, object]:
    role = name(given.get("role")) or "user"
    content = given.get("content")
    calls = given.get("tool_calls")
    if isinstance(content, list) and len(content) == 1 and is_sketch(content[0]):
        part = dict(content[0])
    else:
        text, parts = flat(content)
        everything = dumps([content, calls, given.get("reasoning")])
        digest = hashlib.blake2b(everything.encode("utf-8", "replace"), digest_size=12).hexdigest()
        part = {"type": PART, "chars": len(text), "parts": parts, "digest": digest}
        if vector is not None and text and role in _USERS:
            part["features"] = vector(text)
    message: dict[str, object] = {"role": role, "content": [part]}
    if isinstance(calls, list):
        message["tool_calls"] = [
            {"id": name(call.get("id")), "name": name(call.get("name")), "arguments": None}
            for call in calls
            if isinstance(call, dict)
        ]
    for key in ("tool_call_id", "finish_reason"):
        if said := name(given.get(key)):
            message[key] = said
    return message


def _part(message: Mapping[str, object]) -> Mapping[str, object]:
    content = message["content"]
    assert isinstance(content, list)
    part: Mapping[str, object] = content[0]
    return part


def flat(content: object) -> tuple[str, int]:
    """The text of a canonical message's content, and its number of parts without one."""
    if isinstance(content, str):
        return content, 0
    texts, others = [], 0
    for part in content if isinstance(content, list) else ():
        inner = (
            (part.get("text") if isinstance(part.get("text"), str) else part.get("content"))
            if isinstance(part, dict)
            else part
        )
        if isinstance(inner, str):
            texts.append(inner)
        else:
            others += 1
    return "\n".join(texts), others
