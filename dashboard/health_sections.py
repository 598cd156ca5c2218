"""Sections of the page on data health as HTML. Pure; every text from outside is escaped."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape


def links(found: Sequence[tuple[str, str]]) -> str:
    """Ways to the traces with what is missing: (what, address)."""
    ways = ", ".join(f'<a href="{escape(href)}" target="_self">{escape(what)}</a>' for what, href in found)
    return f'<p class="rr rr-remark">Traces with {ways}.</p>'
