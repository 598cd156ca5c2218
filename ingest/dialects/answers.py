"""What is read from a provider's raw answer, where that is all there is."""

from __future__ import annotations

import re

_ID = re.compile(r'\s*\{\s*"id"\s*:\s*"((?:chatcmpl-|cmpl-|resp_|msg_|gen-)[^"\\]+)"')
"""The id comes first in the answers of OpenAI, Anthropic and what is compatible with them."""


def raw_id(answer: object) -> str | None:
    """The response's id; None when this is no raw answer."""
    found = _ID.match(answer) if isinstance(answer, str) else None
    return found[1] if found else None
