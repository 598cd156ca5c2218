"""Sections of the page about agents, as HTML made of parts. Pure; every text from outside is escaped."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from itertools import groupby

from dashboard import figures
from dashboard.figures import Unit
from dashboard.flows import Baseline, Flow, HandoffRow, Metric, PromptRow, StepRow
from dashboard.parts import facts_row, figure, remark, table
from dashboard.records import Figure


def facts(flow: Flow) -> str:
    """How much there is, and how much of it the named steps do not explain."""
    told = [
        (figures.count(flow.episodes), "traces"),
        (f"{flow.decisions / flow.episodes:.1f}" if flow.episodes else "0", "decisions per trace"),
        (figures.count(len(flow.actions)), "actions, stopping among them" if "STOP" in flow.actions else "actions"),
    ]
    if flow.changed_routes is not None:
        told.append((figures.share(flow.changed_routes), "of traces change their route"))
    told.append((figures.share(flow.outside_tokens), "of tokens outside the named steps"))
    if flow.outside_cost is not None:
        told.append((figures.share(flow.outside_cost), "of the cost outside them"))
    return facts_row(told)


def lines(said: Sequence[str], label: str) -> str:
    """Rules, one a line, as they were written."""
    rows = "".join(f"<li><code>{escape(line)}</code></li>" for line in said)
    return f'<ol class="rr rr-lines" data-lines="{escape(label)}">{rows}</ol>'


def organisation(metrics: Sequence[Metric]) -> str:
    """Each metric before and after, with its definition."""
    rows = [
        _Row(
            one.title,
            one.definition,
            (
                _Cell(one.today, one.unit, f"{one.name}_today"),
                _Cell(one.policy, one.unit, f"{one.name}_policy"),
                _Cell(one.change, one.change_unit, f"{one.name}_change"),
            ),
        )
        for one in metrics
    ]
    return _grid(["Per trace", "Today", "Suggested", "Change"], rows, "organisation", kind=True)


def baselines(rows: Sequence[Baseline]) -> str:
    """What simpler routes would give, of those that can be estimated; latency where any of them has one."""
    shown = [row for row in rows if not row.refused]
    timed = any(row.latency is not None for row in shown)
    body = []
    for row in shown:
        cells = [_Cell(row.cost, "usd", "baseline_cost"), _Cell(row.quality, "quality", "baseline_quality")]
        if timed:
            cells.append(_Cell(row.latency or _UNSAID, "seconds", "baseline_latency"))
        body.append(_Row(row.label, "the suggestion" if row.chosen else "", tuple(cells)))
    head = ["Route", "Cost per 1,000 traces", "Quality", *(["Duration"] if timed else [])]
    return (_grid(head, body, "baselines", kind=True) if body else "") + _left_out(rows)


def _left_out(rows: Sequence[Baseline]) -> str:
    """The routes that cannot be estimated, and why."""
    told: dict[str, list[str]] = {}
    for row in rows:
        if row.refused:
            told.setdefault(_FEW.sub("too few", row.cost.reason), []).append(row.label)
    lines = (f"Not estimated, {reason}: {'; '.join(names)}." for reason, names in told.items())
    return "".join(remark(line) for line in lines)


_FEW = re.compile(r"^only \d+(?= effective)")
"""How many there are differs from route to route; that they are too few does not."""
_UNSAID = Figure(None, None, None, None, reason="the run does not say")


def prompts(rows: Sequence[PromptRow]) -> str:
    """Versions of prompts beside the other traces of their point."""
    body = [
        _Row(
            row.prompt,
            " · ".join(
                filter(
                    None,
                    (
                        f"version {row.version}" if row.version else "",
                        row.point,
                        f"{figures.counted(row.traces, 'trace')}, {figures.count(row.scored)} scored",
                    ),
                )
            ),
            (
                _Cell(row.cost, "usd", "prompt_cost"),
                _Cell(row.quality, "quality", "prompt_quality"),
                _Cell(row.difference, "quality_change", "prompt_difference", judged=True),
            ),
        )
        for row in rows
    ]
    head = ["Prompt", "Cost per 1,000 traces", "Quality of its traces", "Against the others"]
    return _grid(head, body, "prompts")


def handoffs(rows: Sequence[HandoffRow]) -> str:
    """Who hands over to whom, how that goes, and how the traces that hold it turn out."""
    body = [
        _Row(
            f"{row.source} → {row.target}",
            f"{figures.counted(row.count, 'time')} in {figures.counted(row.traces, 'trace')}",
            (
                _Cell(row.failed, "quality", "handoff_failed"),
                _Cell(row.cost, "usd", "handoff_cost"),
                _Cell(row.seconds, "seconds", "handoff_seconds"),
                _Cell(row.quality, "quality", "handoff_quality"),
                _Cell(row.difference, "quality_change", "handoff_difference", judged=True),
            ),
        )
        for row in rows
        if not row.refused
    ]
    head = [
        "Handoff",
        "The second fails",
        "Cost of 1,000 of its turns",
        "Time of a turn",
        "Quality of such traces",
        "Against the others",
    ]
    return _grid(head, body, "handoffs")


def steps(rows: Sequence[StepRow]) -> str:
    """Where time and money go."""
    body = [
        [
            row.agent,
            figures.count(row.turns),
            figures.count(row.traces),
            figures.share(row.cost_share),
            figures.share(row.seconds_share),
            figures.share(row.tokens_share),
            figures.share(row.failed_share),
        ]
        for row in rows
    ]
    head = ["Agent", "Turns", "Traces", "Of the cost", "Of the time", "Of the tokens", "Turns with an error"]
    return table(head, body, numbers=6, label="steps")


@dataclass(frozen=True)
class _Cell:
    figure: Figure
    unit: Unit
    metric: str
    judged: bool = False
    """Whether to say that the whole interval is better or worse than nothing."""

    def html(self, kind: bool) -> str:
        shown = figure(self.figure, self.unit, self.metric, kind=kind)
        if not self.judged or self.figure.refused:
            return shown
        _, low, high = self.figure.span
        word = "worse" if high < 0 else "better" if low > 0 else ""
        return f'{shown.removesuffix("</span>")}<span class="rr-kind">{word}</span></span>' if word else shown


@dataclass(frozen=True)
class _Row:
    name: str
    note: str
    cells: tuple[_Cell, ...]


def _grid(head: Sequence[str], rows: Sequence[_Row], label: str, *, kind: bool = False) -> str:
    """A table of figures. Neighbours that are refused for one and the same reason are one cell."""
    titles = "".join(f"<th>{escape(title)}</th>" for title in head)
    body = ""
    for row in rows:
        note = f'<span class="rr-note">{escape(row.note)}</span>' if row.note else ""
        body += f'<tr><th scope="row">{escape(row.name)}{note}</th>'
        together = groupby(zip(head[1:], row.cells, strict=True), key=lambda one: one[1].figure.reason or one[1])
        for _, cells in together:
            (title, first), *others = cells
            span = f' colspan="{len(others) + 1}"' if others else ""
            body += f'<td data-label="{escape(title)}"{span}>{first.html(kind)}</td>'
        body += "</tr>"
    grid = f'<table class="rr-policies rr-grid"><thead><tr>{titles}</tr></thead><tbody>{body}</tbody></table>'
    return f'<div class="rr rr-scroll" data-table="{escape(label)}">{grid}</div>'
