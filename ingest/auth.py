"""Who may send: named tokens, known by their SHA-256 only. Pure.

A client shows its token in one of the ways exporters have:

    authorization: Bearer TOKEN                    OTLP exporters
    authorization: Basic base64(ANYTHING:TOKEN)    Langfuse's SDKs: the secret key is the token
    x-api-key: TOKEN                               LangSmith's SDKs

A plain hash is enough for what `new_token` makes: 256 random bits cannot be guessed from it.
"""

from __future__ import annotations

import binascii
import hashlib
import hmac
import re
import secrets
from base64 import b64decode
from collections.abc import Sequence
from dataclasses import dataclass

_PREFIX = "sha256:"
_NAME = re.compile(r"[A-Za-z0-9._-]{1,64}")
_HASH = re.compile(r"sha256:[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class Token:
    """A token's name, which counters show, and its hash as `hashed` writes it. ValueError when either is not one."""

    name: str
    sha256: str

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise ValueError("a token's name of up to 64 letters, digits, '.', '_' or '-'")
        if not _HASH.fullmatch(self.sha256):
            raise ValueError('"sha256:..." as `retroute token NAME` prints it (a token itself is not stored)')


def new_token() -> str:
    """A fresh random token."""
    return f"rr_{secrets.token_urlsafe(32)}"


def hashed(token: str) -> str:
    """What is stored of a token."""
    return _PREFIX + hashlib.sha256(token.encode()).hexdigest()


def find(tokens: Sequence[Token], authorization: bytes, api_key: bytes = b"") -> str | None:
    """The name of the token that a request carries; None when it carries none of `tokens`.

    Takes the same time whichever token it is, and however much of it is right.
    """
    sent = _sent(authorization) or api_key.strip()
    digest = _PREFIX + hashlib.sha256(sent).hexdigest()
    found = None
    for token in tokens:
        if hmac.compare_digest(digest, token.sha256):
            found = token.name
    return found


def _sent(authorization: bytes) -> bytes:
    scheme, _, rest = authorization.strip().partition(b" ")
    if scheme.lower() == b"bearer":
        return rest.strip()
    if scheme.lower() == b"basic":
        try:
            return b64decode(rest.strip(), validate=True).partition(b":")[2]
        except binascii.Error:
            return b""
    return b""
