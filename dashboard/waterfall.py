"""The spans of one trace -> rows and a chart: what ran below what, when, and what it cost. No Streamlit here.

Bars are in neutral tones by what a span is; only failures have the colour of what fails, beside the word.
"""

from __future__ import annotations

import math
from typing import Any

import altair as alt
import polars as pl

from dashboard import figures, theme
from dashboard.charts import layered, ticks
from dashboard.theme import Ink

MOST = 150
"""Rows of a picture; the table below it and the download have all."""
NAME = 46
"""Characters of a row's name, indent included."""
SINCE_NS = 1_420_070_400_000_000_000  # 2015: a clock before that is wrong
FAR_NS = 7 * figures.DAY_NS
"""A span further than this from the middle one has a wrong clock."""
GROUPS = ("model call", "tool", "agent", "other", "shown twice")
_GROUP = {"llm": "model call", "embedding": "model call", "tool": "tool", "retrieval": "tool", "agent": "agent"}
ROLES = {"roll-up": "sums up the calls below it", "duplicate": "the same call by another instrumentation"}
ROW = 26
_TEXTS = 150
"""Pixels at the right for cost and tokens."""


def rows(spans: pl.DataFrame, calls: pl.DataFrame, decided: frozenset[str] = frozenset()) -> pl.DataFrame:
    """One row per span, parents before children: place, depth, name, group, kind, role, model, agent, tool, status,
    error, attempt ("attempt 1 of 3"), from_s and to_s since the trace began (null where the clock cannot be), seconds,
    cost_usd, unpriced, tokens, decided, span_id, call_id.

    spans: rows of the query `trace_shown`; calls: of `trace_calls`; decided: spans and calls with a decision. Costs
    and tokens stand at the span that is the call: what sums up or repeats it has none.
    """
    told = spans.join(
        calls.select(
            *("span_id", "cost_usd", "unpriced", "attempt_of"),
            call_kind="kind",
            tokens=pl.sum_horizontal("input_tokens", "output_tokens", ignore_nulls=True),
            told=pl.any_horizontal(pl.col("input_tokens", "output_tokens").is_not_null()),
        ),
        on="span_id",
        how="left",
        maintain_order="left",
    )
    tries = _attempts(calls)
    placed = _tree(spans)
    starts = _sound(spans)
    first = min((start for start in starts.values() if start is not None), default=0)
    found: list[dict[str, Any]] = []
    for row in told.iter_rows(named=True):
        start = starts[row["span_id"]]
        place, depth = placed[row["span_id"]]
        role = row["role"] or "own"
        kind = row["call_kind"] or row["kind"] or "other"
        ends = start is not None and row["end_ns"] is not None and row["end_ns"] >= row["start_ns"]
        seconds = (row["end_ns"] - row["start_ns"]) / 1e9 if ends else None
        from_s = None if start is None else (start - first) / 1e9
        found.append(
            {
                "place": place,
                "depth": depth,
                "name": row["name"] or "(no name)",
                "group": "shown twice" if role in ROLES else _GROUP.get(kind, "other"),
                "kind": kind,
                "role": role,
                "model": row["model"],
                "agent": row["agent"],
                "tool": row["tool"],
                "status": "error" if row["status"] == "error" or row["error_type"] else row["status"],
                "error": row["status_message"] or row["error_type"],
                "attempt": tries.get(row["span_id"]),
                "from_s": from_s,
                "to_s": None if from_s is None else from_s + (seconds or 0.0),
                "seconds": seconds,
                "cost_usd": row["cost_usd"],
                "unpriced": row["unpriced"],
                "tokens": row["tokens"] if row["told"] else None,
                "decided": row["span_id"] in decided or (role == "own" and row["call_id"] in decided),
                "span_id": row["span_id"],
                "call_id": row["call_id"],
            }
        )
    return pl.DataFrame(found, schema=_SCHEMA, orient="row").sort("place")


_SCHEMA: dict[str, Any] = {
    "place": pl.Int64,
    "depth": pl.Int64,
    **dict.fromkeys(
        ("name", "group", "kind", "role", "model", "agent", "tool", "status", "error", "attempt"), pl.String
    ),
    **dict.fromkeys(("from_s", "to_s", "seconds", "cost_usd"), pl.Float64),
    "unpriced": pl.String,
    "tokens": pl.Int64,
    "decided": pl.Boolean,
    "span_id": pl.String,
    "call_id": pl.String,
}


def _attempts(calls: pl.DataFrame) -> dict[str, str]:
    """Call -> which try it was, of calls that were tried again."""
    chains: dict[str, list[str]] = {}
    for span, last in calls.select("span_id", "attempt_of").iter_rows():
        if last is not None:
            chains.setdefault(last, []).append(span)
    found = {}
    for last, failed in chains.items():
        for number, span in enumerate([*failed, last], start=1):
            found[span] = f"attempt {number} of {len(failed) + 1}"
    return found


def _tree(spans: pl.DataFrame) -> dict[str, tuple[int, int]]:
    """Span -> its place from the top and its depth; parents that are missing or below themselves are none."""
    order = spans["span_id"].to_list()
    known = set(order)
    below: dict[str | None, list[str]] = {}
    for span, parent in spans.select("span_id", "parent_span_id").iter_rows():
        below.setdefault(parent if parent in known and parent != span else None, []).append(span)
    found: dict[str, tuple[int, int]] = {}

    def walk(roots: list[str]) -> None:
        stack = [(span, 0) for span in reversed(roots)]
        while stack:
            span, depth = stack.pop()
            if span not in found:
                found[span] = (len(found), depth)
                stack += [(child, depth + 1) for child in reversed(below.get(span, []))]

    walk(below.get(None, []))
    for span in order:  # what is left goes in circles
        if span not in found:
            walk([span])
    return found


def _sound(spans: pl.DataFrame) -> dict[str, int | None]:
    """Span -> its start; None where its clock cannot be right."""
    every = dict(spans.select("span_id", "start_ns").iter_rows())
    sound = sorted(start for start in every.values() if start is not None and start > SINCE_NS)
    middle = sound[len(sound) // 2] if sound else 0
    return {
        span: start if start is not None and start > SINCE_NS and abs(start - middle) <= FAR_NS else None
        for span, start in every.items()
    }


def chart(found: pl.DataFrame, ink: Ink) -> alt.LayerChart:
    """Bars over time, one row each, with cost and tokens at the right; a diamond where something was decided."""
    shown = found.head(MOST)
    seconds = max(shown["to_s"].drop_nulls().to_list(), default=0.0) or 1.0
    data = pl.DataFrame([_drawn(row, i) for i, row in enumerate(shown.iter_rows(named=True))], schema=_DRAWN)
    order = data["row"].to_list()
    x = alt.X(
        "from_s:Q",
        title="Seconds since the trace began",
        scale=alt.Scale(domain=[0, seconds], nice=False),
        axis=ticks(ink, 6, grid=True, orient="top"),
    )
    labels = alt.Axis(
        labelExpr="slice(datum.label, 5)",
        labelLimit=340,
        labelColor=ink.text,
        labelFontSize=13,
        domain=False,
        ticks=False,
        labelPadding=310,
        labelAlign="left",
        offset=0,
        minExtent=310,
        maxExtent=310,
        labelOffset=0,
        labelBaseline="middle",
    )
    y = alt.Y("row:N", title=None, sort=order, scale=alt.Scale(domain=order, paddingInner=0.35), axis=labels)
    tones = {"model call": ink.text, "tool": ink.muted, "agent": ink.quiet, "other": ink.line, "shown twice": ink.page}
    fill = alt.Color("group:N", scale=alt.Scale(domain=list(tones), range=list(tones.values())), legend=None)
    tips = [
        alt.Tooltip("name:N", title="Span"),
        alt.Tooltip("what:N", title="Is"),
        alt.Tooltip("took:N", title="Took"),
        alt.Tooltip("cost:N", title="Cost"),
        alt.Tooltip("tokens:N", title="Tokens"),
        alt.Tooltip("error:N", title="Error"),
    ]
    base = alt.Chart(data).encode(y=y, tooltip=tips)
    known = data.filter(pl.col("from_s").is_not_null())

    def timed(rows: pl.DataFrame) -> alt.Chart:
        return alt.Chart(rows).encode(y=y, tooltip=tips)

    outline = alt.condition("datum.failed", alt.value(theme.FAILS), alt.value(ink.muted))
    bars = (
        timed(known)
        .mark_bar(cornerRadius=2, strokeWidth=1, minBandSize=4)
        .encode(
            x=x,
            x2="to_s:Q",
            color=fill,
            stroke=outline,
            strokeDash=alt.condition("datum.group == 'shown twice'", alt.value([3, 2]), alt.value([1, 0])),
        )
    )
    marks = [bars]
    moments = timed(known.filter(pl.col("to_s") == pl.col("from_s"))).mark_tick(color=ink.muted, thickness=2)
    marks.append(moments.encode(x=x))
    failed = timed(known.filter("failed")).mark_text(
        text="✕ failed", align="left", dx=5, fontSize=11, fontWeight="bold", color=theme.FAILS
    )
    marks.append(failed.encode(x=alt.X("to_s:Q")))
    marks.append(
        timed(known.filter("decided"))
        .mark_point(shape="diamond", size=85, filled=True, opacity=1, color=ink.page, stroke=ink.text, strokeWidth=1.6)
        .encode(x=x)
    )
    for text, dx in (("cost", -86), ("tokens", -4)):
        at = base.mark_text(align="right", dx=_TEXTS + dx, fontSize=12, color=ink.muted)
        marks.append(at.encode(x=alt.value("width"), text=f"{text}:N"))
    return layered(marks, 64 + ROW * max(len(order), 1)).properties(
        padding={"right": _TEXTS, "left": 5, "top": 5, "bottom": 5}
    )


_DRAWN: dict[str, Any] = {
    **dict.fromkeys(("row", "name", "what", "group", "took", "cost", "tokens", "error"), pl.String),
    **dict.fromkeys(("from_s", "to_s"), pl.Float64),
    **dict.fromkeys(("failed", "decided"), pl.Boolean),
}


def _drawn(row: dict[str, Any], number: int) -> dict[str, Any]:
    depth = min(row["depth"], 8)  # a leading space would be cut off
    name = f"{'│ ' * (depth - 1)}{'└ ' * (depth > 0)}{row['name']}"
    told = [row["kind"], row["model"] or row["tool"] or row["agent"], row["attempt"], ROLES.get(row["role"])]
    if row["from_s"] is None:
        told.append("its clock cannot be right")
    return {
        "row": f"{number:05d}{name if len(name) <= NAME else name[: NAME - 1] + '…'}",
        "name": row["name"],
        "what": ", ".join(text for text in told if text),
        "group": row["group"],
        "took": "unknown" if row["seconds"] is None else duration(row["seconds"]),
        "cost": money(row["cost_usd"]) if row["cost_usd"] is not None else "unpriced" if row["unpriced"] else "",
        "tokens": "" if row["tokens"] is None else figures.count(row["tokens"]),
        "error": (row["error"] or "failed")[:200] if row["status"] == "error" else "none",
        "from_s": row["from_s"],
        "to_s": row["to_s"],
        "failed": row["status"] == "error",
        "decided": row["decided"],
    }


def money(usd: float | None) -> str:
    """USD of one call or trace: two digits that mean something, at least cents."""
    if usd is None:
        return "unpriced"
    if usd == 0:
        return "$0"
    places = max(2, 1 - math.floor(math.log10(abs(usd)))) if abs(usd) < 100 else 2
    return f"{'−' if usd < 0 else ''}${abs(usd):,.{min(places, 8)}f}"


def duration(seconds: float | None) -> str:
    """How long something took, in the unit that suits it."""
    if seconds is None:
        return "unknown"
    if seconds < 1:
        return f"{1000 * seconds:.0f}\u00a0ms"
    if seconds < 120:
        return f"{seconds:.{2 if seconds < 10 else 1}f}\u00a0s"
    if seconds < 7200:
        return f"{seconds / 60:.0f}\u00a0min"
    return f"{seconds / 3600:.1f}\u00a0h"
