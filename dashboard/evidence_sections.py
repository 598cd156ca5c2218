"""What the page Evidence says in words, and its tables. Pure; every text from outside is escaped."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from html import escape

import polars as pl

from dashboard import figures, parts
from dashboard.evidence_data import Evidence
from dashboard.records import ServiceVerdict
from optimizer.gate import Reason

ABOUT_EVIDENCE = (
    "evidence",
    "enough decisions",
    "no few decisions dominate",
    "the logs tried it",
    "probabilities are known",
    "outcomes are scored",
    "quality is more than a judge's opinion",
    "nothing has moved",
)
"""Conditions of the gate that are about evidence, not about the policy."""


def answer(verdict: ServiceVerdict, found: Evidence) -> str:
    """Whether the logs identify what the suggestion would do, in two sentences."""
    failing = conditions(verdict, holds=False)
    if verdict.savings.refused and verdict.quality.refused:
        return f"No. {figures.capital(figures.sentence(verdict.quality.reason))} {_seen(found)}"
    support = verdict.support
    said = (
        f"{figures.count(support.effective)} effective {found.unit}s speak for the suggestion "
        f"({figures.count(found.effective_needed)} are needed), and the heaviest 1% of {found.unit}s hold "
        f"{figures.share(support.top1_share)} of the weight."
    )
    if failing:
        names = ", ".join(reason.condition for reason in failing)
        return f"Not well enough to deploy: {said} What fails: {names}."
    return f"Yes. {said} {_seen(found)}"


def _seen(found: Evidence) -> str:
    untried = found.cells.filter(pl.col("state") == "untried")
    if untried.is_empty():
        return "Nothing that it takes was left untried."
    cells = figures.counted(untried.height, "of the cells below was", "of the cells below were")
    return f"{cells} never tried."


def conditions(verdict: ServiceVerdict, *, holds: bool) -> list[Reason]:
    """The gate's conditions on evidence that hold, or that fail."""
    return [one for one in verdict.reasons if one.condition in ABOUT_EVIDENCE and one.holds == holds]


def holding(verdict: ServiceVerdict) -> str:
    """Which conditions on evidence hold, in one sentence; "" for none."""
    names = [reason.condition for reason in conditions(verdict, holds=True)]
    return figures.sentence(f"These hold: {', '.join(names)}") if names else ""


def decides(verdict: ServiceVerdict, link: Callable[..., str]) -> str:
    """What would decide an open verdict, with the page that plans it."""
    said = escape(figures.capital(figures.sentence(verdict.plan.replace("`", ""))))
    plan = f'<a href="{escape(link("plan", service=verdict.service))}" target="_self">The exploration plan</a>'
    return f'<p class="rr rr-remark"><b>What would decide it.</b> {said} {plan} has the shares and what they cost.</p>'


def facts(verdict: ServiceVerdict, found: Evidence) -> str:
    support, coverage = verdict.support, verdict.coverage
    rows = (
        []
        if support.effective is None
        else [
            (figures.count(support.effective), f"effective {found.unit}s"),
            (figures.share(support.top1_share), "of weight on the heaviest 1%"),
            (figures.share(support.unsupported_share), f"of {found.unit}s not tried"),
        ]
    )
    rows += [
        (figures.count(found.judged), f"newest {found.unit}s that judge"),
        (figures.share(coverage.logged_share), "of probabilities logged"),
        *([(figures.share(coverage.stated_share), "of probabilities stated")] if coverage.stated_share else []),
        (figures.share(coverage.label_share), "scored"),
    ]
    return parts.facts_row(rows)


def nothing_suggested(found: Evidence) -> bool:
    """The rows of the heat map are today's routing, for want of a suggestion."""
    return "today" in found.cells["kind"].to_list()


def key(found: Evidence) -> str:
    """How to read the heat map."""
    if nothing_suggested(found):
        asked = (
            "Rows: today's routing in words. Numbers: effective decisions that would speak for always acting so there"
        )
    else:
        asked = f"Numbers: effective {found.unit}s that speak for the suggestion where it takes the action"
    need, least = figures.count(found.effective_needed), figures.count(found.cell_needed)
    return (
        f"{asked}. Darkest from {need} on, which are needed in all; outlined below {least}, too few to say anything of "
        "the cell alone; hatched where the log gave the action no chance."
    )


def links(service: str, cells: pl.DataFrame, link: Callable[..., str]) -> str:
    """The logged decisions of each action, as links to their traces."""
    counts = (
        cells.filter(pl.col("kind") != "segment").group_by("action", maintain_order=True).agg(pl.col("logged").sum())
    )
    items = " · ".join(
        f'<a href="{escape(link("traces", service=service, action=action))}" target="_self">{escape(action)}</a> '
        f"({figures.count(count)})"
        for action, count in counts.iter_rows()
    )
    return f'<p class="rr rr-remark">The traces that took it: {items}</p>'


def largest(service: str, found: Evidence, link: Callable[..., str], most: int = 8) -> str:
    """The heaviest decisions, each with its trace."""
    body = "".join(
        f'<tr><td class="rr-text"><a href="{escape(link("traces", service=service, trace=row["trace_id"]))}" '
        f'target="_self"><code>{escape(row["trace_id"])}</code></a></td>'
        f'<td class="rr-text">{escape(row["action"])}</td>'
        f'<td class="rr-number">{row["weight"]:,.2f}</td></tr>'
        for row in found.largest.head(most).iter_rows(named=True)
    )
    head = f"<th>Trace</th><th>{'Action' if found.unit == 'decision' else 'First action'}</th>"
    return (
        f'<div class="rr rr-scroll" data-table="largest"><table class="rr-plain"><thead><tr>{head}'
        f'<th class="rr-number">Weight</th></tr></thead><tbody>{body}</tbody></table></div>'
    )


def fixed(found: Evidence) -> str:
    """Segments whose choice was a rule."""
    body = [
        [str(rule["rule"]), str(rule["action"]), figures.share(rule["taken"]), figures.share(rule["share"])]
        for rule in found.fixed
    ]
    return parts.table(["Where", "Always", "Of its decisions", "Of all decisions"], body, numbers=2, label="fixed")


def drift(shifts: pl.DataFrame, most: int = 8) -> str:
    """What was compared, what moved first."""
    body = [
        [
            {"outcome": "Outcome", "mix": "Prompts", "behaviour": "Routing"}.get(row["aspect"], row["aspect"]),
            row["what"],
            "moved" if row["alarm"] else "as before",
            _moved(row["aspect"], row["size"]),
            "unknown" if row["p_value"] is None else f"{row['p_value']:.2g}",
        ]
        for row in shifts.head(most).iter_rows(named=True)
    ]
    return parts.table(["What", "Of", "Verdict", "Later minus earlier", "p"], body, numbers=2, label="drift")


def _moved(aspect: str, size: float | None) -> str:
    if size is None:
        return "unknown"
    return f"AUC {size:.2f}" if aspect == "mix" else f"{size:+.3g}".replace("-", "−")


def doubt(found: Evidence, margin: float) -> str:
    """How wrong estimated probabilities may be."""
    limit = figures.points(-margin)
    if found.unbounded:
        return f"Not drawn: {figures.sentence(found.unbounded)}"
    if found.tipping is None:
        return f"Even if nothing hidden moved a choice, quality is not certain to stay within {limit}."
    if found.most is not None and found.tipping >= found.most:
        return f"Quality stays within {limit} even if hidden causes shift the odds of a choice {found.most:.0f}-fold."
    odds = f"{found.tipping:.2f}-fold or more"
    return f"Quality stays within {limit} unless hidden causes shift the odds of a choice {odds}."


def origins(names: Sequence[str]) -> str:
    """What the tones of the two charts on probabilities mean."""
    tones = {"logged": "1", "stated": "0.66", "estimated": "0.4"}
    said = {
        "logged": "logged with the decision",
        "stated": "stated by a gateway's weights",
        "estimated": "estimated from the log",
    }
    items = "".join(
        f'<span class="rr-swatch" style="opacity:{tones[name]}"></span><span>{said[name]}</span>'
        for name in tones
        if name in names
    )
    return f'<p class="rr rr-pair">{items}</p>'
