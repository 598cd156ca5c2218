"""Pieces of pages as HTML: figures, tables, headings, empty states. Pure; every text from outside is escaped.

Each figure carries its exact numbers as `data-` attributes, so that a page can be compared with the run it shows.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Literal

from dashboard import figures, theme
from dashboard.figures import Unit
from dashboard.records import Figure

_FORK = '<path d="M3 16h6c5 0 5-9 10-9h4"/><path d="M9 16c5 0 5 9 10 9h4" opacity=".45"/><path d="M20 3l4 4-4 4"/>'
_STROKE = 'fill="none" stroke-width="2.6" stroke-linecap="round" stroke-linejoin="round"'


_MARKS = re.compile(r"[\\`*_{}\[\]()<>#+!|$~:&]")


def plain(text: str) -> str:
    """A text for a label or a tooltip, which Streamlit reads as Markdown with its own directives."""
    return _MARKS.sub(lambda mark: f"\\{mark[0]}", text)


def icon() -> str:
    """The browser tab's icon as SVG; no icon font is fetched for it."""
    mark = f'<g {_STROKE} stroke="{theme.VERDICT_COLOURS["keep"]}">{_FORK}</g>'
    return f'<svg xmlns="http://www.w3.org/2000/svg" width="28" height="32" viewBox="0 0 28 32">{mark}</svg>'


def logo(mode: str | None) -> str:
    """The wordmark as SVG, in the mode's ink."""
    tones = theme.ink(mode)
    return (
        '<svg xmlns="http://www.w3.org/2000/svg" width="132" height="32" viewBox="0 0 132 32">'
        f'<g {_STROKE} stroke="{tones.text}">{_FORK}</g>'
        f'<text x="33" y="22" font-family="Source Sans, Source Sans Pro, Segoe UI, Helvetica, Arial, sans-serif" '
        f'font-size="19" font-weight="600" fill="{tones.text}">retroute</text></svg>'
    )


def style() -> str:
    """The style sheet, with the verdicts' colours."""
    colours = "".join(f".rr-{name.replace('_', '-')}{{--rr:{hue}}}" for name, hue in theme.VERDICT_COLOURS.items())
    sheet = Path(__file__).with_name("style.css").read_text(encoding="utf-8")
    return f"<style>{sheet}.rr{{--rr-holds:{theme.HOLDS};--rr-fails:{theme.FAILS}}}{colours}</style>"


def tone(outcome: str) -> str:
    """The class that carries a verdict's colour."""
    return f"rr-{outcome.replace('_', '-')}"


def figure(data: Figure, unit: Unit, metric: str, *, kind: bool = True) -> str:
    """Value, interval and kind; a refused figure in words, with its reason."""
    if data.refused:
        return (
            f'<span class="rr-figure rr-refused" data-metric="{escape(metric)}">'
            f'<span class="rr-value">Not estimated</span>'
            f'<span class="rr-interval">{escape(data.reason)}</span></span>'
        )
    text = figures.said(data, unit)
    value, low, high = data.span
    promise = figures.KINDS.get(data.kind or "", "")
    label = f'<span class="rr-kind" title="{escape(promise)}">{escape(data.kind)}</span>' if kind and data.kind else ""
    truth = "" if data.truth is None else f'<span class="rr-truth">truth {_alone(data.truth, data, unit)}</span>'
    return (
        f'<span class="rr-figure" data-metric="{escape(metric)}" '
        f'data-value="{value!r}" data-low="{_bound(low)}" data-high="{_bound(high)}">'
        f'<span class="rr-value">{text.value}</span>'
        f'<span class="rr-interval">{text.interval}</span>'
        f"{label}{truth}</span>"
    )


def _bound(x: float) -> str:
    return repr(x) if math.isfinite(x) else ""


def _alone(value: float, like: Figure, unit: Unit) -> str:
    """`value` with the digits of `like`."""
    _, low, high = like.span
    half = (high - low) / 2
    return figures.said(Figure(value, value - half, value + half, None), unit).value


def facts_row(facts: Sequence[tuple[str, str]]) -> str:
    cells = "".join(f"<div><dd>{escape(value)}</dd><dt>{escape(name)}</dt></div>" for value, name in facts)
    return f'<dl class="rr rr-facts-row">{cells}</dl>'


def table(head: Sequence[str], rows: Sequence[Sequence[str]], *, numbers: int = 0, label: str = "") -> str:
    """A plain table; cells are text, the last `numbers` columns are right-aligned."""
    kinds = ["rr-number" if i >= len(head) - numbers else "rr-text" for i in range(len(head))]
    titles = "".join(f'<th class="{kind}">{escape(title)}</th>' for kind, title in zip(kinds, head, strict=True))
    body = "".join(
        "<tr>"
        + "".join(f'<td class="{kind}">{escape(cell)}</td>' for kind, cell in zip(kinds, row, strict=True))
        + "</tr>"
        for row in rows
    )
    return (
        f'<div class="rr rr-scroll" data-table="{escape(label)}"><table class="rr-plain">'
        f"<thead><tr>{titles}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def heading(title: str, note: str = "") -> str:
    return f'<div class="rr rr-heading"><h2>{escape(title)}</h2><p>{escape(note)}</p></div>'


def page_title(title: str, note: str = "") -> str:
    return f'<div class="rr rr-title"><h1>{escape(title)}</h1><p>{escape(note)}</p></div>'


def empty(title: str, text: str, command: str = "") -> str:
    """A state with nothing to draw: what is missing, why that may be, and the next command."""
    code = f"<pre>{escape(command)}</pre>" if command else ""
    return f'<section class="rr rr-empty"><h2>{escape(title)}</h2><p>{escape(text)}</p>{code}</section>'


def commands(lines: Sequence[str]) -> str:
    """Lines for a terminal."""
    return f'<pre class="rr rr-commands">{escape(chr(10).join(lines))}</pre>'


def choice(title: str, about: str) -> str:
    """One of several things to take: its name, and what it is."""
    return f'<div class="rr"><p class="rr-condition">{escape(title)}</p><p class="rr-note">{escape(about)}</p></div>'


Step = tuple[Literal["done", "next", "later"], str, str, str]
"""A step on the way: where it stands, what it is, more about it, and a command ("" for none)."""


def steps(found: Sequence[Step]) -> str:
    """Steps on the way, numbered, each with where it stands."""
    words = {"done": "done", "next": "now", "later": "later"}
    items = "".join(
        f'<li class="rr-step-{state}"><span class="rr-mark" aria-hidden="true">{"✓" if state == "done" else k}</span>'
        f'<div><p class="rr-condition">{escape(title)} <span class="rr-state">{words[state]}</span></p>'
        f'<p class="rr-facts"><span>{escape(text)}</span></p>{f"<pre>{escape(command)}</pre>" if command else ""}'
        f"</div></li>"
        for k, (state, title, text, command) in enumerate(found, start=1)
    )
    return f'<ol class="rr rr-checks rr-steps">{items}</ol>'


def section(name: str) -> str:
    """The name of a part of the menu."""
    return f'<p class="rr rr-section">{escape(name)}</p>'


def lead(text: str) -> str:
    return f'<p class="rr rr-lead">{escape(text)}</p>'


def notice(text: str) -> str:
    return f'<p class="rr rr-notice">{escape(text)}</p>'


def pair() -> str:
    """Which of two paired bars is which."""
    swatches = "".join(
        f'<span class="rr-swatch rr-{name.lower()}"></span><span>{name}</span>' for name in ("Today", "Suggested")
    )
    return f'<p class="rr rr-pair">{swatches}</p>'


def coded(text: str) -> str:
    """A text with what stands in backticks as code."""
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(text))


def remark(text: str) -> str:
    return f'<p class="rr rr-remark">{coded(text)}</p>'


def kinds() -> str:
    """What the three kinds of interval promise."""
    items = "".join(f"<li><b>{name}</b> {escape(promise)}</li>" for name, promise in figures.KINDS.items())
    return f'<ul class="rr rr-legend">{items}</ul>'
