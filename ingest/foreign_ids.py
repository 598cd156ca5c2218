"""Ids of other systems -> trace and span ids: the same input gives the same id, whichever way it came. Pure.

An id that is already one of OpenTelemetry's is kept, so that what came over OTLP and what comes from an export meet. A
UUID is a trace id once its dashes are gone. Anything else is hashed, as Langfuse's SDKs do with a seed.
"""

from __future__ import annotations

import hashlib
import re

_TRACE = re.compile("[0-9a-f]{32}")
_SPAN = re.compile("[0-9a-f]{16}")
_UUID = re.compile("[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")


def trace_id(text: str) -> str:
    """32 hex digits for any text."""
    found = text.strip().lower()
    if _UUID.fullmatch(found):
        found = found.replace("-", "")
    if _TRACE.fullmatch(found) and found.strip("0"):
        return found
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:32]


def span_id(text: str) -> str:
    """16 hex digits for any text."""
    found = text.strip().lower()
    if _SPAN.fullmatch(found) and found.strip("0"):
        return found
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:16]
