"""Logfire's placeholders: a span sent when another starts, as its child and with its attributes, so that both would be
taken for calls. It is none, be the real span there or not.
"""

from __future__ import annotations

from ingest.dialects.facts import Dialect, Kind
from ingest.spans import Attributes


def kind(attributes: Attributes) -> Kind | None:
    """Nothing that counts, for a placeholder; all other spans are named by other conventions."""
    return "other" if attributes.get("logfire.span_type") == "pending_span" else None


DIALECT = Dialect("logfire", ("logfire.span_type",), kind)
