"""Sections of the page on spend, as words and HTML. Pure; every text from outside is escaped."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from html import escape
from typing import Any

import polars as pl

from dashboard import figures
from dashboard.figures import count, counted, share
from dashboard.spend_charts import usd
from dashboard.spend_data import BY_TASK, OTHER, UNNAMED, Cache, Totals, Window

Link = Callable[..., str]


def lead(found: Totals, before: Totals | None, shown: Window) -> str:
    """What was spent on what, and how it changed; what is not in it."""
    when = figures.window(shown.since_ns, shown.until_ns - 1)
    text = f"{usd(found.cost_usd)} for {counted(found.calls, 'call')} in {counted(found.tasks, 'task')}, {when}"
    if before is not None and before.cost_usd > 0:
        change = found.cost_usd / before.cost_usd - 1
        amount = f"{share(abs(change))} {'more' if change > 0 else 'less'}" if abs(change) >= 0.0005 else "as much"
        text += f", {amount} {'as' if amount == 'as much' else 'than'} in the same time before ({usd(before.cost_usd)})"
    text += "."
    if found.unpriced:
        them = "it is" if found.unpriced == 1 else "they are"
        text += f" {counted(found.unpriced, 'call has', 'calls have')} no price; {them} in no amount here."
    return text


def facts(found: Totals, before: Totals | None, cache: Cache) -> list[tuple[str, str]]:
    """(value, name): what it came to by task and call, and what bought nothing."""
    said = [
        (usd(found.cost_usd), "cost"),
        ("unknown" if found.per_task is None else usd(found.per_task), "per task"),
        (usd(found.cost_usd / found.priced) if found.priced else "unknown", "per call with a price"),
        (_of(found.cost_before_retry, found.cost_usd), "for attempts that were tried again"),
        (_of(found.cost_of_errors, found.cost_usd), "for calls that failed"),
    ]
    if cache.hit_share:
        said.append((share(cache.hit_share), "of input tokens from caches"))
        said.append(("unknown" if cache.saved_usd is None else usd(cache.saved_usd), "saved by caches"))
    if found.unpriced:
        said.append((figures.part(found.unpriced, found.calls), "calls without a price"))
    if before is not None and before.per_task and found.per_task is not None:
        change = found.per_task / before.per_task - 1
        said.insert(2, (f"{'+' if change >= 0 else '−'}{share(abs(change))}", "per task against the time before"))
    return said


def cached(cache: Cache) -> str:
    """What caching did, in a sentence."""
    if not cache.hit_share:
        return "No call read from a provider's cache."
    text = f"{share(cache.hit_share)} of input tokens were read from caches"
    if cache.saved_usd is not None:
        verb = "saved" if cache.saved_usd >= 0 else "cost"
        text += f", which {verb} {usd(abs(cache.saved_usd))} against the mean price of the same model's other input"
        text += ", what writing them cost taken off"
    text += "."
    if cache.unknown_tokens:
        text += f" {count(cache.unknown_tokens)} of them were of models without other input, and are in no saving."
    return text


def groups(rows: pl.DataFrame, by: str, title: str, of: Totals, link: Link, bounds: Mapping[str, str | None]) -> str:
    """The table of groups: each name leads to its traces."""
    tasks = by in BY_TASK
    heads = [
        title,
        "Cost",
        "Share",
        *(["Tasks", "Per task"] if tasks else []),
        "Calls",
        "Per call",
        "Failed",
        "Unpriced",
    ]
    heads += [] if tasks else ["Tried again"]
    body = "".join(_row(row, by, tasks, of, link, bounds) for row in rows.iter_rows(named=True))
    numbers = "".join(f'<th class="rr-number">{escape(head)}</th>' for head in heads[1:])
    head = f'<tr><th class="rr-text">{escape(heads[0])}</th>{numbers}</tr>'
    return (
        f'<div class="rr rr-scroll" data-table="spend"><table class="rr-plain"><thead>{head}</thead>'
        f"<tbody>{body}</tbody></table></div>"
    )


def _row(row: Mapping[str, Any], by: str, tasks: bool, of: Totals, link: Link, bounds: Mapping[str, str | None]) -> str:
    known = row["priced"] or (tasks and row["cost_usd"])
    none = "unknown" if row["unpriced"] else "–"
    cells = [usd(row["cost_usd"]), share(row["cost_usd"] / of.cost_usd)] if known and of.cost_usd else [none, none]
    if tasks:
        cells += [count(row["tasks"]), usd(row["cost_usd"] / row["tasks"]) if known else none, count(row["calls"])]
    else:
        cells += [count(row["calls"]), usd(row["cost_usd"] / row["priced"]) if known else none]
    cells += [figures.part(row["errors"], row["calls"]), figures.part(row["unpriced"], row["calls"])]
    cells += [] if tasks else [usd(row["cost_before_retry"]) if known else none]
    numbers = "".join(f'<td class="rr-number">{escape(cell)}</td>' for cell in cells)
    return f'<tr><td class="rr-text">{_name(row, by, link, bounds)}</td>{numbers}</tr>'


def _name(row: Mapping[str, Any], by: str, link: Link, bounds: Mapping[str, str | None]) -> str:
    if row["rest"]:
        return escape(f"{count(row['rest'])} {OTHER}")
    name = row["name"]
    if name in (None, ""):
        return escape(UNNAMED)
    if (filters := traces_of(by, name)) is None:
        return escape(str(name))
    href = escape(link("traces", **{**bounds, **filters}))
    return f'<a href="{href}" target="_self">{escape(str(name))}</a>'


def traces_of(by: str, name: str) -> dict[str, str] | None:
    """The filter of the page on traces that finds a group; None where it has none."""
    if by in ("service", "agent", "model", "tool"):
        return {by: name}
    return {"search": name} if by in BY_TASK else None


def _of(part: float, whole: float) -> str:
    return f"{usd(part)} ({share(part / whole)})" if whole and part else usd(part)
