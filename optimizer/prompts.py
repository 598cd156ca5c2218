"""The recorded messages of a decision -> its features, be they whole or, with content off, sketches.

A sketch of a user's text holds the features of that text alone, made when it arrived. What the rules take from the rest
of the conversation (roles, lengths, attachments, tools) the sketches hold as numbers. Hence both kinds give one vector.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ingest.sketches import flat, is_sketch
from optimizer.runtime import DENSE, DIM, SPEC, Floats, decode_features, encode_features, featurise

_USERS = ("user", "human")
_OF_THE_CONVERSATION = frozenset(
    {
        *("attachments", "system_messages", "user_messages", "assistant_messages", "tool_messages"),
        *("conversation_characters", "tools", "json_response", "history"),
    }
)
_OF_THE_TEXT = np.array(
    [*(i for i, name in enumerate(DENSE) if name not in _OF_THE_CONVERSATION), *range(len(DENSE), DIM)]
)
"""Places of the features that the last text of a user decides alone."""


def vector(text: str) -> str:
    """The features of a user's text by itself, with the name of the rules: what a sketch holds."""
    return f"{SPEC}/{encode_features(featurise({'messages': text}))}"


def features(messages: object, tools: object) -> Floats:
    """(DIM,) float32. Never raises. Without features of today's rules a sketched text counts as no text."""
    if not isinstance(messages, list):
        return featurise({"messages": messages, "tools": tools})
    told: Floats | None = None
    whole: list[object] = []
    for message in messages:
        sketch = _sketch(message)
        whole.append(message if sketch is None else _stand_in(message, sketch))
        if isinstance(message, Mapping) and message.get("role") in _USERS:
            if sketch is None:
                told = None if flat(message.get("content"))[0] else told
            elif sketch["chars"]:
                told = _told(sketch)
    found = featurise({"messages": whole, "tools": tools})
    if told is not None:
        found[_OF_THE_TEXT] = told[_OF_THE_TEXT]
    return found


def _sketch(message: object) -> Mapping[str, object] | None:
    content = message.get("content") if isinstance(message, Mapping) else None
    part = content[0] if isinstance(content, list) and len(content) == 1 else None
    return part if is_sketch(part) else None


def _stand_in(message: Mapping[str, object], sketch: Mapping[str, object]) -> dict[str, object]:
    """A message of the same role, length and number of parts."""
    chars, parts = sketch["chars"], sketch["parts"]
    assert isinstance(chars, int)
    assert isinstance(parts, int)
    return {**message, "content": [{"text": " " * min(chars, 1 << 26)}, *[{}] * min(parts, 10_000)]}


def _told(sketch: Mapping[str, object]) -> Floats:
    spec, _, encoded = str(sketch.get("features", "")).partition("/")
    try:
        return decode_features(encoded) if spec == SPEC else np.zeros(DIM, dtype=np.float32)
    except ValueError:
        return np.zeros(DIM, dtype=np.float32)
