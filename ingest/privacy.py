"""What may be written of what arrives: `Policy.apply` turns a request's body into the body that is stored.

Three wishes, each off by default; then the body is stored as it came, unread and unchanged:

    deny       attributes of these keys are dropped
    redact     personal and secret strings become marks such as `<email>` (see redact.py)
    content    off: no text is kept at all, only facts, numbers, lengths, fingerprints and features (see sealing.py)

It is applied before anything is written, the write-ahead log included, by everyone who writes there. What was marked is
counted by kind, here and in the body itself, so that the lake can count it, too. Applying it twice is applying it once.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import orjson

from ingest import privacy_json, privacy_protobuf
from ingest.otlp_problems import Problems
from ingest.redact import Redactor
from ingest.sealing import seal_score
from ingest.sketches import Vector

Signal = Literal["traces", "logs", "metrics", "scores"]
Encoding = Literal["protobuf", "json"]


@dataclass(frozen=True, slots=True)
class Wishes:
    """What one body is edited by, and what was found in it. `found` counts marks by kind."""

    redactor: Redactor | None
    denied_keys: frozenset[str]
    denied_prefixes: tuple[str, ...]
    content: bool
    vector: Vector | None
    found: Counter[str] = field(default_factory=Counter)

    def denies(self, key: str) -> bool:
        return key in self.denied_keys or key.startswith(self.denied_prefixes)

    def text(self, value: str, key: str = "") -> str:
        """The text with marks; the same object when nothing was found."""
        return value if self.redactor is None else self.redactor.text(value, self.found, key)

    def number(self, value: int) -> int | str:
        """The whole number; a mark when it is a card's."""
        return value if self.redactor is None else self.redactor.number(value, self.found)

    def raw(self, value: bytes) -> bytes:
        """Bytes, treated as the text that they may be."""
        try:
            return self.text(value.decode()).encode() if self.redactor else value
        except UnicodeDecodeError:
            return value


class Policy:
    """The wishes of a home. Safe from several threads.

    `deny` are keys, or prefixes ending in a dot or `*`. `vector` gives the features of a user's text: without it there
    are none once content is off. Raises ValueError for an unknown kind or a pattern that cannot be used.
    """

    def __init__(
        self,
        *,
        content: bool = True,
        deny: Sequence[str] = (),
        redact: Sequence[str] = (),
        patterns: Mapping[str, str] = {},
        vector: Vector | None = None,
    ) -> None:
        self._redactor = Redactor(redact, patterns) if redact or patterns else None
        prefixes = tuple(key.removesuffix("*") for key in deny if key.endswith((".", "*")))
        self._denied = (frozenset(key for key in deny if not key.endswith((".", "*"))), prefixes)
        self._content = content
        self._vector = vector
        self._counting = threading.Lock()
        self.redacted: Counter[str] = Counter(dict.fromkeys((*redact, *patterns), 0))
        """How many marks were set, by kind."""

    @property
    def active(self) -> bool:
        """Whether bodies are changed at all."""
        return not self._content or self._redactor is not None or any(self._denied)

    def apply(self, body: bytes, signal: Signal, encoding: Encoding) -> bytes:
        """The body to be stored; the same object when it is the body as it came.

        The body must be one that `otlp.inspect` or `parse_scores` reads: raises their errors for another.
        """
        if not self.active:
            return body
        wishes = Wishes(self._redactor, *self._denied, self._content, self._vector)
        if signal == "scores":
            edited = _scores(body, wishes)
        elif encoding == "protobuf":
            edited = privacy_protobuf.edited(body, signal, wishes, Problems())
        else:
            edited = privacy_json.edited(body, signal, wishes, Problems())
        if wishes.found:
            with self._counting:
                self.redacted.update(wishes.found)
        return body if edited == body else edited


OFF = Policy()
"""Everything is stored as it comes."""


def _scores(body: bytes, wishes: Wishes) -> bytes:
    sent = orjson.loads(body)
    found = [_score(item, wishes) for item in (sent if isinstance(sent, list) else [sent])]
    return orjson.dumps(found if isinstance(sent, list) else found[0])


def _score(score: Mapping[str, object], wishes: Wishes) -> dict[str, object]:
    kept = dict(score) if wishes.content else seal_score(score)
    texts = ("name", "label", "explanation", "source", "session_id", "response_id", "score_id")
    return {
        key: wishes.text(value, key) if key in texts and isinstance(value, str) else value
        for key, value in kept.items()
    }
