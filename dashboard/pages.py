"""The dashboard's pages, section by section, as the navigation shows them. A finished view adds its line here."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from dashboard.views import (
    estimators,
    evidence,
    frontier,
    health,
    orchestration,
    plan,
    quality,
    rollout,
    routing,
    segments,
    spend,
    traces,
    verdict,
)


@dataclass(frozen=True)
class Page:
    """A page: its title, its stable path in the URL, and the function that draws it."""

    title: str
    path: str
    view: Callable[[], None]


SECTIONS: Mapping[str, Sequence[Page]] = {
    "Decide": (
        Page("Verdict", "verdict", verdict.page),
        Page("Rollout and export", "rollout", rollout.page),
    ),
    "Your app": (
        Page("Data health", "health", health.page),
        Page("Spend", "spend", spend.page),
        Page("Traces", "traces", traces.page),
        Page("Agent flow", "flow", orchestration.page),
        Page("Quality signals", "quality", quality.page),
    ),
    "Evidence": (
        Page("Suggested routing", "routing", routing.page),
        Page("Evidence", "evidence", evidence.page),
        Page("Frontier", "frontier", frontier.page),
        Page("Estimators", "estimators", estimators.page),
        Page("Segments and rules", "segments", segments.page),
        Page("Exploration plan", "plan", plan.page),
    ),
}


FIRST = SECTIONS["Decide"][0]
"""The page that opens without a path."""


def pages() -> list[Page]:
    """All pages, in the order of the navigation."""
    return [page for section in SECTIONS.values() for page in section]
