"""Recorded messages -> what to show of them: who said what, cut at a size. Pure; nothing is interpreted as markup."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

from ingest.sketches import is_sketch

CUT = 4_000
"""Characters of one message that are shown at first."""
MOST = 200_000
"""Characters of one message that are shown at all: a browser draws more only slowly. The download has all."""
MESSAGES = 60
"""Messages of one call that are shown: the first and the newest."""


@dataclass(frozen=True)
class Message:
    """What one message said. `text` is whole; `hidden` says that only a sketch of it was kept."""

    role: str
    text: str
    kind: str = ""
    """Of what the text is, where it is no words: tool call, reasoning, attachment."""
    hidden: bool = False


def read(text: str | None) -> list[Message]:
    """The messages of a JSON text; what is no list of messages is one message as it is."""
    if not text:
        return []
    try:
        found = json.loads(text)
    except ValueError:
        return [Message("", text)]
    if not isinstance(found, list):
        return [Message("", found if isinstance(found, str) else _pretty(found))]
    messages: list[Message] = []
    for one in found:
        messages += _message(one)
    return messages


def few(messages: list[Message]) -> tuple[list[Message], int]:
    """The first and the newest of many messages, and how many are left out between them."""
    if len(messages) <= MESSAGES:
        return messages, 0
    return [*messages[:2], *messages[2 - MESSAGES :]], len(messages) - MESSAGES


def _message(one: object) -> list[Message]:
    if not isinstance(one, Mapping):
        return [Message("", one if isinstance(one, str) else _pretty(one))]
    role = str(one.get("role") or "")
    found = []
    if isinstance(reasoning := one.get("reasoning"), str) and reasoning:
        found.append(Message(role, reasoning, "reasoning"))
    found += _content(role, one.get("content"))
    calls = one.get("tool_calls")
    for call in calls if isinstance(calls, list) else []:
        if isinstance(call, Mapping):
            given = call.get("arguments")
            said = given if isinstance(given, str) else _pretty(given)
            found.append(Message(role, f"{call.get('name') or 'a tool'}({_tidy(said)})", "tool call"))
    return found or [Message(role, "", "empty")]


def _content(role: str, content: object) -> list[Message]:
    if isinstance(content, str):
        return [Message(role, _tidy(content) if role == "tool" else content)] if content else []
    found = []
    for part in content if isinstance(content, list) else [] if content is None else [content]:
        if is_sketch(part):
            found.append(Message(role, f"{part['chars']:,} characters, not kept", hidden=True))
        elif isinstance(part, Mapping) and isinstance(part.get("text"), str):
            found.append(Message(role, str(part["text"])))
        elif isinstance(part, str):
            found.append(Message(role, part))
        else:
            named = str(part.get("type") or "attachment") if isinstance(part, Mapping) else "attachment"
            found.append(Message(role, _pretty(part), named.replace("_", " ")))
    return found


def _tidy(text: str) -> str:
    """JSON with line breaks; anything else, and what is long, as it is."""
    if len(text) > CUT or not text.lstrip().startswith(("{", "[")):
        return text
    try:
        return _pretty(json.loads(text))
    except ValueError:
        return text


def _pretty(value: object) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False, default=str)
