"""How a stored body tells what was marked in it: a last resource without records has the counts as its attribute."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping

_KIND = re.compile(r"[a-z][a-z0-9_-]{0,31}")

REDACTED = "retroute.redacted"
"""Attribute of that resource: kind -> number of marks."""


def counts(attributes: Mapping[str, object]) -> dict[str, int]:
    """The counts in a resource's attributes; empty when it is an ordinary one."""
    if attributes.keys() != {REDACTED}:
        return {}
    told = attributes[REDACTED]
    found = told.items() if isinstance(told, dict) else ()
    return {kind: n for kind, n in found if _KIND.fullmatch(kind) and isinstance(n, int) and 0 < n < 2**31}


def merged(parts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    """The sums, in order of kind."""
    total: Counter[str] = Counter()
    for part in parts:
        total.update(part)
    return dict(sorted(total.items()))
