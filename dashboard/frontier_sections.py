"""What the page Frontier says in words. Pure; every text from outside is escaped."""

from __future__ import annotations

from collections.abc import Callable
from html import escape

import polars as pl

from dashboard import figures, words
from dashboard.frontier_charts import limit, spots
from dashboard.frontier_data import Priced
from dashboard.parts import figure, tone
from dashboard.records import Figure, ServiceVerdict


def answer(verdict: ServiceVerdict) -> str:
    """How many policies keep the limits, and which is the cheapest of them by estimate."""
    floor = limit(verdict, "quality")
    judged = [spot for spot in spots(verdict, "quality", None) if spot.role not in ("today", "other")]
    tried = [spot for spot in spots(verdict, "quality", None) if spot.role == "other"]
    known = judged + [spot for spot in tried if spot.label not in [one.label for one in judged]]
    if floor is None or not known:
        return "Only today's routing can be placed: the logs say too little of any other."
    inside = [spot for spot in known if spot.value.span[0] >= floor]
    sure = [spot for spot in inside if spot.value.span[1] >= floor]
    margin = figures.points(verdict.limits.quality_margin).removeprefix("+")
    said = (
        f"{len(inside)} of {figures.counted(len(known), 'policy', 'policies')} stay within {margin} of today's quality"
    )
    if not inside:
        return f"None of {figures.counted(len(known), 'policy', 'policies')} stays within {margin} of today's quality."
    cheapest = min(inside, key=lambda spot: spot.cost.span[0])
    return (
        f"{said} by estimate, {figures.count(len(sure))} with their whole interval. The cheapest of them: "
        f"{cheapest.label}, {figures.said(cheapest.cost, 'usd').value} per 1,000."
    )


def marks(verdict: ServiceVerdict, found: Priced | None) -> str:
    """What the marks mean."""
    glyphs = {"today": "■", "cheapest": "▼", "strongest": "▲", "cost_matched_random": "◆", "suggested": "●"}
    items = [
        f'<span class="rr-glyph {"rr-own" if row.policy == "suggested" else ""}">{glyphs[row.policy]}</span>'
        f"<span>{words.ROLES[row.policy]}</span>"
        for row in verdict.table
        if not row.cost.refused and not row.quality.refused
    ]
    if any(not row.chosen for row in verdict.frontier):
        items.append('<span class="rr-glyph rr-faint">●</span><span>Tried too</span>')
    if verdict.curve:
        items.append('<span class="rr-glyph rr-faint">━</span><span>Prices of quality, with their band</span>')
    if found is not None and not found.own:
        items.append('<span class="rr-glyph" style="color:inherit">✚</span><span>At this price</span>')
    return f'<p class="rr rr-pair {tone(verdict.outcome)}">{"".join(items)}</p>'


def reading(verdict: ServiceVerdict) -> str:
    """How to read the panels."""
    said = (
        "Up is better on the left, down on the right; left is cheaper. The shaded side is past the limit. What was "
        "tried too is measured on the decisions that chose the suggestion, everything else on the newer ones that "
        f"judge it; {figures.share(verdict.limits.confidence)} intervals, each by itself."
    )
    if verdict.curve:
        said += " The line is exploratory: its band holds at all of its points at once, but none of them was judged."
    if limit(verdict, "latency") is None:
        said += " No limit on latency is set: latency_s in retroute.toml sets one."
    return said


def priced(found: Priced) -> str:
    """The choice at a price, with its three changes."""
    changes: tuple[tuple[str, Figure, figures.Unit, str], ...] = (
        ("Saving per 1,000", found.savings, "usd_change", "priced_savings_usd_per_1k"),
        ("Quality change", found.quality_change, "quality_change", "priced_quality_change"),
        ("Latency change", found.latency_change, "seconds_change", "priced_latency_change_s"),
    )
    cells = "".join(
        f'<div><p class="rr-axis">{title}</p>{figure(one, unit, name)}</div>' for title, one, unit, name in changes
    )
    inside = (
        "inside the limits where it was chosen" if found.admissible else "not inside the limits where it was chosen"
    )
    return (
        f'<section class="rr rr-card" data-price="{found.value_usd!r}" data-own="{found.own}"><div>'
        f'<p class="rr-eyebrow">At ${found.value_usd:.4g}</p><p class="rr-word">{escape(figures.capital(found.label))}'
        f'</p><p class="rr-note">{inside}</p></div>{cells}</section>'
    )


def kind(found: Priced, verdict: ServiceVerdict) -> str:
    """What may be concluded from the numbers at a price."""
    level = figures.share(verdict.limits.confidence)
    if found.own:
        return f"This run's own price: the numbers of its verdict, {level} intervals."
    return (
        "Exploratory: picked after looking at the decisions that judge it, so no verdict. The intervals are as wide as "
        f"the band of the curve ({100 * found.confidence:.4g}% each), which covers all prices at once with {level}. "
        "Only training at this price and judging on new decisions gives a verdict."
    )


def traces(verdict: ServiceVerdict, link: Callable[..., str]) -> str:
    """Where the decisions behind the panels are: those that the suggestion changes, and those of each action."""
    changed = link("traces", service=verdict.service, decision="changed")
    what = f'<a href="{escape(changed)}" target="_self">what the suggestion would change</a>'
    actions = [
        f'<a href="{escape(link("traces", service=verdict.service, action=one.action))}" target="_self">'
        f"{escape(one.action)}</a>"
        for point in verdict.points[:1]
        for one in point.actions
        if one.logged
    ]
    items = [what, *actions] if verdict.policy_id else actions
    return f'<p class="rr rr-remark">The traces behind it: {" · ".join(items)}</p>'


def how(found: Priced) -> str:
    if found.own:
        return "This run was trained so."
    return "Put this into retroute.toml; the next night learns, chooses and judges by it."


def frame(verdict: ServiceVerdict, found: Priced | None) -> pl.DataFrame:
    """What the panels show."""
    rows = []
    for metric, name in (("quality", "quality"), ("latency", "latency_s")):
        for spot in spots(verdict, "quality" if metric == "quality" else "latency", found):
            cost, value = spot.cost.span, spot.value.span
            rows.append((spot.role, spot.label, name, *cost, *value, spot.value.kind))
    schema = ["role", "policy", "metric", "cost_usd_per_1k", "cost_low", "cost_high", "value", "low", "high", "kind"]
    return pl.DataFrame(rows, schema=schema, orient="row")
