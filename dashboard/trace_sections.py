"""Sections of the page Traces as HTML made of parts. Pure; every text from outside is escaped."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from html import escape
from typing import Any

import polars as pl

from dashboard import figures, parts
from dashboard.messages import CUT, MOST, Message
from dashboard.records import Figure
from dashboard.theme import Ink
from dashboard.trace_data import Decided
from dashboard.waterfall import duration, money
from optimizer.decision_reasons import in_words
from optimizer.explain import Considered
from optimizer.gate import Estimate
from optimizer.similar import LEAST, Expected

ASKED = 90
"""Characters of a prompt that a row of the list shows."""
Link = Callable[[str], str]
"""Id of a trace -> its address."""


def moment(ns: int | None) -> str:
    """A time to the second, UTC."""
    if not ns or not 0 < ns < 4_102_444_800_000_000_000:
        return "unknown time"
    return f"{datetime.fromtimestamp(ns / 1e9, UTC):%Y-%m-%d %H:%M:%S}"


def several(text: str | None) -> list[str]:
    """The values of a trace's JSON list."""
    try:
        found = json.loads(text) if text else []
    except ValueError:
        return []
    return [str(one) for one in found] if isinstance(found, list) else []


def traces(rows: pl.DataFrame, link: Link, *, content: bool, service: bool) -> str:
    """The list: one row per trace, each with a link to it. `service`: whether to name it."""
    head = [
        ("Start (UTC)", "text"),
        *([("Service", "text")] if service else []),
        *([("What was asked", "text")] if content else [("Trace", "text")]),
        ("Steps", "number"),
        ("Models", "text"),
        ("Cost", "number"),
        ("Tokens", "number"),
        ("Took", "number"),
        ("Quality", "number"),
        ("Policy", "text"),
    ]
    titles = "".join(f'<th class="rr-{kind}" scope="col">{escape(title)}</th>' for title, kind in head)
    body = "".join(_trace(row, link, content, service) for row in rows.iter_rows(named=True))
    return (
        '<div class="rr rr-scroll" data-table="traces"><table class="rr-plain rr-traces">'
        f"<thead><tr>{titles}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def _trace(row: Mapping[str, Any], link: Link, content: bool, service: bool) -> str:
    asked = cut(" ".join((row["asked"] or "").split()), ASKED) if content else ""
    named = asked or row["name"] or row["trace_id"]
    failed = f'<span class="rr-failed">✕ {row["errors"]} failed</span>' if row["errors"] else ""
    retried = f'<span class="rr-note">{figures.counted(row["retries"], "retry", "retries")}</span>'
    models = several(row["models"])
    shown = escape(", ".join(models[:2])) + (f" +{len(models) - 2}" if len(models) > 2 else "")
    lacking = f'<span class="rr-note">{row["unpriced"]} unpriced</span>' if row["unpriced"] else ""
    known = row["start_ns"] is not None and row["end_ns"] is not None and row["end_ns"] >= row["start_ns"]
    took = duration((row["end_ns"] - row["start_ns"]) / 1e9) if known else "unknown"
    address, title = escape(link(row["trace_id"])), escape(row["trace_id"])
    cells = [
        ("text", when(row["start_ns"])),
        *([("text", escape(row["service"] or "none"))] if service else []),
        (
            "text rr-asked",
            f'<a href="{address}" target="_self" title="{title}">{escape(named)}</a>{failed}',
        ),
        ("number", f"{figures.count(row['calls'])}{retried if row['retries'] else ''}"),
        ("text", shown),
        ("number", ("" if row["cost_usd"] is None else money(row["cost_usd"])) + lacking or "none"),
        ("number", figures.count((row["input_tokens"] or 0) + (row["output_tokens"] or 0))),
        ("number", took),
        ("number", "unscored" if row["quality"] is None else figures.share(row["quality"])),
        ("text", beside(row["action"], row["policy"], models)),
    ]
    return "<tr>" + "".join(f'<td class="rr-{kind}">{cell}</td>' for kind, cell in cells) + "</tr>"


def choice(done: str | None, policy: str | None) -> str:
    """What was done, and what the policy would do instead."""
    if done is None:
        return '<span class="rr-note">not in the run</span>'
    if policy is None or policy == done:
        kept = "" if policy is None else '<span class="rr-note">kept</span>'
        return f"{escape(done)}{kept}"
    return f'{escape(done)} <b class="rr-change">→ {escape(policy)}</b>'


def beside(done: str | None, policy: str | None, models: Sequence[str]) -> str:
    """`choice` beside a column with the models: what was done is named only where that does not say it."""
    if done is None or [done] != list(models):
        return choice(done, policy)
    if policy is None:
        return '<span class="rr-note">no policy</span>'
    return '<span class="rr-note">kept</span>' if policy == done else f'<b class="rr-change">→ {escape(policy)}</b>'


def when(ns: int | None) -> str:
    """A time in two lines, the day first."""
    day, _, time = moment(ns).partition(" ")
    return f'<span class="rr-when">{day}<span class="rr-note">{time}</span></span>'


def head(row: Mapping[str, Any]) -> list[tuple[str, str]]:
    """The facts of a trace for `parts.facts_row`."""
    known = row["start_ns"] is not None and row["end_ns"] is not None and row["end_ns"] >= row["start_ns"]
    cost = "none" if row["cost_usd"] is None else money(row["cost_usd"])
    facts = [
        (cost, "cost" + (f", {row['unpriced']} unpriced" if row["unpriced"] else "")),
        (duration((row["end_ns"] - row["start_ns"]) / 1e9) if known else "unknown", "took"),
        (figures.count((row["input_tokens"] or 0) + (row["output_tokens"] or 0)), "tokens"),
        (figures.count(row["calls"]), "steps" if row["calls"] != 1 else "step"),
        (figures.count(row["spans"]), "spans" if row["spans"] != 1 else "span"),
    ]
    if row["errors"]:
        facts.append((f"✕ {figures.count(row['errors'])}", "failed"))
    if row["retries"]:
        facts.append((figures.count(row["retries"]), "tried again"))
    return facts


def cut(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"


# ---- decisions


def decision(one: Decided, number: int | None) -> str:
    """What was done, what the policy would do and why. `number`: of a trace with several decisions."""
    eyebrow = "" if number is None else f'<p class="rr-eyebrow">Decision {number}</p>'
    return (
        f'<section class="rr rr-decision" data-changed="{one.changed}">{eyebrow}'
        f'<p class="rr-word">{choice(one.today, one.explained.action if one.explained else None)}</p>'
        f'<p class="rr-note">{escape(as_logged(one))}</p>'
        f"{''.join(f'<p>{escape(text)}</p>' for text in why(one))}</section>"
    )


def as_logged(one: Decided) -> str:
    """Probability, arm, reason and draw of what was done, as logged."""
    told = []
    if one.propensity is not None:
        origin = "as logged" if one.origin == "logged" else "estimated from the log"
        told.append(f"taken with probability {figures.share(one.propensity)}, {origin}")
    else:
        told.append("with what probability it was taken is not known")
    told += [f"arm {one.arm}"] if one.arm else []
    if one.draw:
        told.append("the one draw of its session" if one.draw == "session" else f"draw {one.draw}")
    if one.policy_id:
        told.append(f"by {one.policy_id}")
    because = f" {in_words(one.reason)}" if one.reason and one.reason != "policy" else ""
    return f"{figures.capital(', '.join(told))}.{because}"


def why(one: Decided) -> list[str]:
    """Why the policy would do what it would do, in sentences."""
    found = one.explained
    if found is None:
        return [f"What a policy would do is not known: {figures.sentence(one.unexplained)}"]
    told = []
    if found.reason != "policy":
        told.append(in_words(found.reason))
    elif found.because:
        told.append(f"The policy's rule here: {found.because}.")
    elif one.thumb is not None and one.thumb.agreement >= 0.8:
        follows = "so does the policy here" if one.thumb.action == found.action else "the policy parts from it here"
        told.append(
            f"The rule of thumb here: {one.thumb.conditions}: {one.thumb.action}; {follows}. "
            f"Rule and policy agree in {figures.share(one.thumb.agreement)} of the newest decisions."
        )
    else:
        told.append("No short rule imitates the policy well: it goes by all features of the prompt together.")
    if one.note:
        told.append(one.note)
    return told


def candidates(one: Decided) -> str:
    """The candidates: the policy's score and probability, today's, what to expect, and what rules one out."""
    expected = ("Cost expected", "Quality expected") if one.near else ()
    heads = ("Candidate", "Policy's score", "Policy takes it", "Today takes it", *expected, "Ruled out by")
    rows = list(one.explained.rows) if one.explained else []
    named = {row.action for row in rows}
    rows += [Considered(name, None, 0.0, 0.0) for name in one.candidates if name not in named]
    if one.today not in {row.action for row in rows}:
        rows.append(Considered(one.today, None, 0.0, 0.0))
    titles = "".join(
        f'<th class="rr-{"text" if title in (heads[0], heads[-1]) else "number"}" scope="col">{title}</th>'
        for title in heads
    )
    body = "".join(_candidate(row, one) for row in rows)
    return (
        '<div class="rr rr-scroll" data-table="candidates"><table class="rr-plain rr-candidates">'
        f"<thead><tr>{titles}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def _candidate(row: Considered, one: Decided) -> str:
    marks = [
        *(["done"] if row.action == one.today else []),
        *(["policy"] if one.explained and row.action == one.explained.action else []),
    ]
    tags = "".join(f'<span class="rr-kind">{mark}</span>' for mark in marks)
    logged = one.candidates.get(row.action)
    today = "unknown" if logged is None and not one.candidates else "no" if logged is None else figures.share(logged)
    near = one.near.get(row.action)
    out = "; ".join(row.ruled_out) or ("" if one.explained else "unknown")
    probability = figures.share(row.probability) if one.explained else "unknown"
    known = row.value is not None
    cells = [
        f'<th scope="row">{escape(row.action)}{tags}</th>',
        f'<td class="rr-number">{f"{row.value:.3g}" if known else "unknown"}</td>',
        f'<td class="rr-number" data-probability="{row.probability!r}">{probability if known else "never"}</td>',
        f'<td class="rr-number">{today}</td>',
        *(f'<td class="rr-number">{_expected(near, what)}</td>' for what in (("cost", "quality") if one.near else ())),
        f'<td class="rr-text">{escape(figures.capital(out)) or "nothing"}</td>',
    ]
    return f"<tr>{''.join(cells)}</tr>"


def _expected(near: Expected | None, what: str) -> str:
    found: Estimate | None = None if near is None else near.cost_usd if what == "cost" else near.quality
    if found is None:
        return f'<span class="rr-note" title="fewer than {LEAST} logged decisions like it">too few alike</span>'
    figure = Figure(found.value, found.low, found.high, found.kind)
    if what == "cost":
        text = f"{money(found.value)}", f"{money(max(found.low, 0.0))} to {money(found.high)}"
    else:
        said = figures.said(figure, "quality")
        text = said.value, said.interval
    return f'{text[0]}<span class="rr-note">{text[1]}</span>'


# ---- scores and messages


def scores(rows: pl.DataFrame) -> str:
    """The scores of a trace, each with its source."""
    told = [
        [
            row["name"] or "",
            "not on a scale" if row["value01"] is None else figures.share(row["value01"]),
            row["label"] or ("" if row["value"] is None else f"{row['value']:g}"),
            row["source"] or "not named",
            moment(row["time_ns"]),
            "a step" if row["span_id"] else "the trace",
            cut(row["explanation"] or "", 300),
        ]
        for row in rows.iter_rows(named=True)
    ]
    heads = ["Score", "On 0 to 100%", "As sent", "Source", "Given (UTC)", "Of", "Why"]
    return parts.table(heads, told, label="scores")


def session(rows: pl.DataFrame, here: str, link: Link) -> str:
    """The traces of a session, in their order; where the reader is, is no link."""
    items = []
    for row in rows.iter_rows(named=True):
        name = f"{moment(row['start_ns'])} {row['name'] or ''}"
        inner = (
            f"<b>{escape(name)} (here)</b>"
            if row["trace_id"] == here
            else f'<a href="{escape(link(row["trace_id"]))}" target="_self">{escape(name)}</a>'
        )
        cost = "" if row["cost_usd"] is None else f", {money(row['cost_usd'])}"
        failed = f', <span class="rr-failed">✕ {row["errors"]} failed</span>' if row["errors"] else ""
        items.append(f"<li>{inner}, <span>{figures.counted(row['calls'], 'step')}{cost}{failed}</span></li>")
    return f'<ol class="rr rr-lines">{"".join(items)}</ol>'


def message(one: Message, *, whole: bool) -> str:
    """One message as text: nothing in it is markup. `whole`: as much as a browser draws at once."""
    most = MOST if whole else CUT
    text = one.text[:most]
    left = len(one.text) - len(text)
    more = f'<p class="rr-note">{figures.count(left)} more characters</p>' if left > 0 else ""
    what = ", ".join(part for part in (one.role or "message", one.kind) if part)
    body = f'<p class="rr-note">{escape(text)}</p>' if one.hidden else f"<pre>{escape(text)}</pre>"
    return f'<div class="rr rr-message"><p class="rr-eyebrow">{escape(what)}</p>{body}{more}</div>'


def outcomes(one: Sequence[Decided]) -> str:
    """How many of a trace's decisions the policy would make otherwise, in a sentence."""
    known = [found for found in one if found.changed is not None]
    if not known:
        return "Nothing is suggested for it."
    other = sum(bool(found.changed) for found in known)
    if len(known) == 1:
        return "The policy would do something else." if other else "The policy would do the same."
    return f"The policy would do something else at {other} of {len(known)} decisions."


def legend(ink: Ink) -> str:
    """What the tones of the bars mean."""
    tones = {"Model call": ink.text, "Tool": ink.muted, "Agent": ink.quiet, "Other": ink.line}
    swatches = "".join(
        f'<span class="rr-swatch" style="background:{tone}"></span><span>{name}</span>' for name, tone in tones.items()
    )
    return f'<p class="rr rr-pair">{swatches}</p>'
