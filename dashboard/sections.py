"""Sections of pages about one service or policy, as HTML made of parts. Pure; every text from outside is escaped."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from dashboard import axes, figures, words
from dashboard.axes import Axis
from dashboard.brief import Answer, Gauge
from dashboard.parts import coded, facts_row, figure, table, tone
from dashboard.records import (
    Coverage,
    Figure,
    PartRow,
    Point,
    PolicyRow,
    Reconciled,
    RulesOfThumb,
    ServiceVerdict,
    Support,
)
from optimizer.gate import Reason


def verdict_head(verdict: ServiceVerdict, month: Figure | None) -> str:
    """The answer first: the word, what it is worth, whether it is safe."""
    return (
        f'<section class="rr rr-verdict {tone(verdict.outcome)}" data-verdict="{verdict.outcome}" '
        f'data-service="{escape(verdict.service)}">'
        f'<p class="rr-eyebrow">{escape(verdict.service)}</p>'
        f"<h1>{words.VERDICTS[verdict.outcome]}</h1>"
        f'<p class="rr-lead">{escape(words.lead(verdict, month))}</p></section>'
    )


def answers(found: Sequence[Answer]) -> str:
    """Questions and their answers, each with the pages behind it."""
    cells = "".join(
        f'<section class="rr-answer"><h2 class="rr-eyebrow">{escape(one.question)}</h2>'
        f'<p class="rr-headline">{escape(one.headline)}</p>'
        f"<ul>{''.join(f'<li>{coded(line)}</li>' for line in one.lines)}</ul>"
        f'<p class="rr-behind">{_links(one)}</p></section>'
        for one in found
    )
    return f'<div class="rr rr-answers">{cells}</div>'


def _links(one: Answer) -> str:
    return " · ".join(f'<a href="{escape(href)}" target="_self">{escape(text)}</a>' for text, href in one.links)


def way(text: str, href: str) -> str:
    """A link on a line of its own."""
    return f'<p class="rr rr-remark"><a href="{escape(href)}" target="_self">{escape(text)}</a></p>'


def gauges(found: Sequence[Gauge]) -> str:
    """How much of the log can speak: a bar each, with a tick where the gate asks for so much."""
    return f'<ul class="rr rr-gauges">{"".join(_gauge(one) for one in found)}</ul>'


def _gauge(one: Gauge) -> str:
    enough = one.least is None or (one.share is not None and one.share >= one.least)
    tick = "" if one.least is None else f'<i style="left:{100 * one.least:.1f}%"></i>'
    asked = "" if one.least is None else f", {figures.share(one.least)} needed"
    width = 100 * (one.share or 0.0)
    state = "" if enough else " rr-short"
    return (
        f'<li class="rr-gauge{state}"><span class="rr-gauge-name">{escape(one.name)}</span>'
        f'<span class="rr-gauge-bar" role="img" aria-label="{figures.share(one.share)}{asked}">'
        f'<b style="width:{width:.1f}%"></b>{tick}</span>'
        f'<span class="rr-gauge-value">{figures.share(one.share)}</span>'
        f'<span class="rr-note">{escape(one.note)}{asked}</span></li>'
    )


def axis(data: Axis) -> str:
    """One of the three axes: its name, its figure, and where the interval lies."""
    return (
        f'<div class="rr rr-metric"><p class="rr-eyebrow">{escape(data.title)}</p>'
        f'<p class="rr-note">{escape(data.note)}</p>'
        f"{figure(data.figure, data.unit, data.name)}"
        f'<p class="rr-status">{escape(data.status)}</p></div>'
    )


def nothing(verdict: ServiceVerdict) -> str:
    """The three axes where none can be estimated, for one and the same reason."""
    return (
        f'<div class="rr rr-metric rr-nothing"><p class="rr-eyebrow">{axes.TITLES}</p>'
        f"{figure(verdict.savings, 'usd', 'all')}</div>"
    )


def card(verdict: ServiceVerdict, month: Figure | None = None) -> str:
    """A service in one row: verdict, what it is worth a month, then cost, quality, latency."""
    found = axes.of(verdict)
    if axes.silent(found):
        cells = (
            f'<div class="rr-wide"><p class="rr-axis">{axes.TITLES}</p>{figure(verdict.savings, "usd", "all")}</div>'
        )
    else:
        cells = "".join(
            f'<div><p class="rr-axis">{escape(one.brief)}</p>{figure(one.figure, one.unit, one.name)}</div>'
            for one in found
        )
    return (
        f'<section class="rr rr-card {tone(verdict.outcome)}" data-verdict="{verdict.outcome}" '
        f'data-service="{escape(verdict.service)}"><div><p class="rr-eyebrow">{escape(verdict.service)}</p>'
        f'<p class="rr-word"><span class="rr-dot"></span>{words.VERDICTS[verdict.outcome]}</p>'
        f'<p class="rr-note">{figures.counted(verdict.coverage.decisions, "decision")}, '
        f"{figures.share(verdict.coverage.label_share)} scored</p>{_month(month)}</div>{cells}</section>"
    )


def _month(month: Figure | None) -> str:
    if month is None:
        return ""
    told = figures.said(month, "usd_change")
    return f'<p class="rr-note">{told.value} a month ({told.interval})</p>'


def checklist(reasons: Sequence[Reason]) -> str:
    """The gate's conditions, failing ones first."""
    items = "".join(_condition(reason) for reason in sorted(reasons, key=lambda reason: reason.holds))
    return f'<ul class="rr rr-checks">{items}</ul>'


def _condition(reason: Reason) -> str:
    state, mark = ("holds", "✓") if reason.holds else ("fails", "✕")
    remedy = (
        ""
        if reason.holds or not reason.remedy
        else f'<p class="rr-remedy">{escape(figures.capital(figures.sentence(reason.remedy)))}</p>'
    )
    return (
        f'<li class="rr-{state}"><span class="rr-mark" aria-hidden="true">{mark}</span><div>'
        f'<p class="rr-condition">{escape(figures.capital(reason.condition))} <span class="rr-state">{state}</span></p>'
        f'<p class="rr-facts"><span>Found</span> {escape(reason.got)} <span>Needed</span> {escape(reason.needed)}</p>'
        f"{remedy}</div></li>"
    )


def policies(rows: Sequence[PolicyRow]) -> str:
    """The table of policies: cost, quality, latency, each with its interval."""
    body = "".join(
        f'<tr class="rr-row-{row.policy.replace("_", "-")}" data-policy="{row.policy}">'
        f'<th scope="row">{words.ROLES[row.policy]}<span class="rr-note">{escape(_role(row))}</span></th>'
        f"{_outcomes(row)}</tr>"
        for row in rows
    )
    head = "<th>Policy</th><th>Cost per 1,000 decisions</th><th>Quality</th><th>Latency</th>"
    grid = f'<table class="rr-policies"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>'
    return f'<div class="rr rr-scroll">{grid}</div>'


def _outcomes(row: PolicyRow) -> str:
    figures = (row.cost, row.quality, row.latency)
    if all(one.refused for one in figures) and len({one.reason for one in figures}) == 1:
        return f'<td colspan="3">{figure(row.cost, "usd", "cost_usd_per_1k")}</td>'
    return (
        f'<td data-label="Cost per 1,000">{figure(row.cost, "usd", "cost_usd_per_1k")}</td>'
        f'<td data-label="Quality">{figure(row.quality, "quality", "quality")}</td>'
        f'<td data-label="Latency">{figure(row.latency, "seconds", "latency_s")}</td>'
    )


def _role(row: PolicyRow) -> str:
    return row.label if row.label.lower() not in ("", words.ROLES[row.policy].lower()) else words.ROLE_NOTES[row.policy]


def marks(verdict: ServiceVerdict) -> str:
    """What the marks of the frontier mean."""
    glyphs = {"today": "■", "cheapest": "▼", "strongest": "▲", "cost_matched_random": "◆", "suggested": "●"}
    drawn = [row.policy for row in verdict.table if not row.cost.refused and not row.quality.refused]
    items = [
        f'<span class="rr-glyph {"rr-own" if role == "suggested" else ""}">{glyphs[role]}</span>'
        f"<span>{words.ROLES[role]}</span>"
        for role in drawn
    ]
    if any(not row.chosen for row in verdict.frontier):
        items.append('<span class="rr-glyph rr-faint">●</span><span>Tried too</span>')
    return f'<p class="rr rr-pair {tone(verdict.outcome)}">{"".join(items)}</p>'


def coverage(data: Coverage, support: Support) -> str:
    """What the estimates beside it rest on, as a row of facts."""
    facts = [
        (figures.count(data.decisions), "decisions"),
        (figures.share(data.label_share), f"scored for {data.quality_name}" if data.quality_name else "scored"),
        (figures.share(data.logged_share), "with logged probabilities"),
        *([(figures.share(data.stated_share), "with stated ones")] if data.stated_share else []),
        (figures.count(support.effective), "effective decisions"),
        (figures.share(support.unsupported_share), "without support in the log"),
    ]
    if data.latency_cut_share:
        facts.append((figures.share(data.latency_cut_share), "longest latencies cut"))
    if data.unpriced:
        facts.append((figures.count(data.unpriced), "unpriced"))
    return facts_row(facts)


def suggestion_head(verdict: ServiceVerdict) -> str:
    """What is suggested, and whether it may be followed."""
    follow = {
        "deploy": "Every condition holds: this may go live.",
        "promising": "Not proven yet: this is what the policy would do, not a call to switch.",
        "keep": "Shown for inspection only: the verdict is to keep today's routing.",
        "cannot_tell": "The logs hold no answer, so nothing is suggested. The shares below are today's.",
    }[verdict.outcome]
    if verdict.outcome == "cannot_tell" and any(action.policy for point in verdict.points for action in point.actions):
        follow = "The logs cannot tell what this is worth: something to explore, not to switch to."
    label = f" The policy: {escape(verdict.policy_label)}." if verdict.policy_label else ""
    return (
        f'<section class="rr rr-title {tone(verdict.outcome)}" data-verdict="{verdict.outcome}" '
        f'data-service="{escape(verdict.service)}"><h1>{escape(verdict.service)}</h1>'
        f'<p class="rr-word"><span class="rr-dot"></span>{words.VERDICTS[verdict.outcome]}</p>'
        f"<p>{follow}{label}</p></section>"
    )


def point(data: Point) -> str:
    """A decision point's saving, and its actions with shares and logged counts."""
    rows = [
        [action.action, figures.share(action.today), figures.share(action.policy), figures.count(action.logged)]
        for action in sorted(data.actions, key=lambda action: (-(action.today or 0), action.action))
    ]
    saving = figure(data.savings, "usd_change", "savings_usd_per_1k")
    return (
        f'<div class="rr rr-point" data-point="{escape(data.name)}"><p class="rr-note">Saving per 1,000 decisions</p>'
        f"{saving}</div>" + table(["Action", "Today", "Suggested", "Logged"], rows, numbers=3, label="actions")
    )


def rules(data: RulesOfThumb) -> str:
    """The suggestion in words, and how well the words fit."""
    rows = [
        [
            figures.capital(row.said),
            row.action,
            f"{row.today}, {figures.share(row.today_share)}",
            figures.share(row.share),
            figures.share(row.agreement),
        ]
        for row in data.rows
    ]
    head = ["Prompts with", "Suggested", "Mostly today", "Of decisions", "Policy agrees"]
    saving = figure(data.savings, "usd_change", "rules_savings_usd_per_1k")
    quality = figure(data.quality, "quality_change", "rules_quality_change")
    return (
        table(head, rows, numbers=2, label="rules")
        + '<div class="rr rr-point"><p class="rr-note">Followed to the letter: saving per 1,000, and quality</p>'
        + f"{saving} {quality}</div>"
    )


def policy(verdict: ServiceVerdict, made: str, *, active: bool) -> str:
    """One policy of the list: when, which, how it was judged."""
    mark = '<span class="rr-kind">in use</span>' if active else ""
    name = verdict.policy_label or "no policy"
    return (
        f'<div class="rr rr-policy {tone(verdict.outcome)}" data-run="{escape(verdict.run_id)}">'
        f'<p class="rr-word"><span class="rr-dot"></span>{words.VERDICTS[verdict.outcome]} {mark}</p>'
        f'<p class="rr-note">{escape(figures.date(made))} · {escape(name)} · {escape(verdict.policy_id or "no id")} · '
        f"run {escape(verdict.run_id)}</p></div>"
    )


def services(rows: Sequence[Mapping[str, Any]], ranges: Mapping[str, Mapping[str, Any]]) -> str:
    """One row per service: how much arrived, and what is missing from it."""
    body = []
    for row in rows:
        seen = ranges.get(row["service"], {})
        body.append(
            [
                row["service"] or "unknown",
                figures.window(seen.get("first_ns"), seen.get("last_ns")),
                figures.count(row["spans"]),
                figures.count(row["calls"]),
                figures.count(row["llm_calls"]),
                figures.part(row["unpriced"], row["llm_calls"]),
                figures.part(row["errors"], row["llm_calls"]),
                figures.part(row["no_session"], row["llm_calls"]),
                figures.part(row["scored_traces"], row["traces"]),
            ]
        )
    head = [
        "Service",
        "Calls from",
        "Spans",
        "Calls",
        "Model calls",
        "Unpriced",
        "Failed",
        "No session",
        "Traces scored",
    ]
    return table(head, body, numbers=7, label="services")


def unpriced(rows: Sequence[Mapping[str, Any]], calls: int) -> str:
    """Calls without a price by reason, with their share of all `calls` that were to be priced."""
    body = [
        [
            row["service"] or "unknown",
            row["model"] or "unknown",
            row["reason"],
            figures.part(row["calls"], calls),
            figures.count(row["tokens"]) if row["uncounted_calls"] < row["calls"] else "not told",
        ]
        for row in rows
    ]
    return table(["Service", "Model", "Reason", "Calls", "Tokens"], body, numbers=2, label="unpriced")


def tried_in_part(rows: Sequence[PartRow]) -> str:
    """Bounds on policies with actions that the log did not try everywhere."""
    body = [
        [
            row.policy,
            "quality" if row.outcome == "quality_change" else "cost per 1,000",
            f"{_with_kind(row.tried, row.outcome)}, on {figures.share(row.share)} of decisions",
            figures.said(Figure(sum(row.bounds) / 2, *row.bounds, None), row.outcome).interval,
            _with_kind(row.modelled, row.outcome),
        ]
        for row in rows
    ]
    head = [
        "Policy",
        "Change of",
        "Where the logs tried it",
        "Over all, whatever the rest gives",
        "If the model is right",
    ]
    return table(head, body, label="parts")


def _with_kind(data: Figure, unit: figures.Unit) -> str:
    if data.refused:
        return f"not estimated: {data.reason}"
    said = figures.said(data, unit)
    return f"{said.value} ({said.interval}; {data.kind})"


def reconciled(found: Reconciled, most: int) -> str:
    """The total, then days and models: those outside the tolerance first."""
    form = _usd if found.in_usd else figures.count
    unit = "USD" if found.in_usd else "tokens"

    def amount(value: float | None) -> str:
        return "none" if value is None else form(value)

    lines = [found.total, *sorted(found.lines, key=lambda line: (line.within, line.day, line.model))[:most]]
    body = [
        [
            line.day,
            line.model,
            "within" if line.within else "outside",
            amount(line.ours),
            amount(line.theirs),
            amount(line.difference),
            amount(line.tolerance),
        ]
        for line in lines
    ]
    head = ["Day", "Model", "Tolerance kept", f"Our {unit}", f"Their {unit}", "Difference", "Tolerance"]
    return table(head, body, numbers=4, label="reconciled")


def reasons(found: Sequence[tuple[str, str, str, int | None]]) -> str:
    """What explains the differences."""
    body = [[day, model, why, "" if calls is None else figures.count(calls)] for day, model, why, calls in found]
    return table(["Day", "Model", "Why", "Calls"], body, numbers=1, label="reasons")


def _usd(value: float) -> str:
    return f"{'−' if value < 0 else ''}${abs(value):,.4f}"


def uncounted(rows: Sequence[Mapping[str, Any]]) -> str:
    """Calls without token counts, and the estimates of their tokens."""
    body = [
        [
            row["service"] or "unknown",
            row["model"] or "unknown",
            figures.count(row["calls"]),
            figures.count(row["estimated_calls"]),
            figures.count(row["estimated_input_tokens"]),
            figures.count(row["estimated_output_tokens"]),
        ]
        for row in rows
    ]
    head = ["Service", "Model", "Calls", "Estimated", "Estimated input tokens", "Estimated output tokens"]
    return table(head, body, numbers=4, label="estimated-tokens")


def coverage_head(verdict: ServiceVerdict) -> str:
    name = f" for {verdict.coverage.quality_name}" if verdict.coverage.quality_name else ""
    return (
        f'<div class="rr rr-sub"><p class="rr-eyebrow">{escape(verdict.service)}</p><p class="rr-note">'
        f"{figures.share(verdict.coverage.label_share)} of {figures.counted(verdict.coverage.decisions, 'decision')} "
        f"scored{escape(name)}</p></div>"
    )
