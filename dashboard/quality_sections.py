"""Sections of the page Quality signals: sentences and tables. Pure; every text from outside is escaped."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from html import escape
from typing import Any

import polars as pl

from dashboard import figures, parts
from dashboard.quality_data import Pair, Signals
from dashboard.records import Figure
from dashboard.trace_sections import moment
from dashboard.waterfall import duration
from optimizer.gate import Estimate

Address = Callable[[Mapping[str, Any]], str]
"""A row of `by_model` -> the address of its traces without a score."""

HOW = """curl -X POST http://127.0.0.1:4318/v1/scores -H 'Content-Type: application/json' \\
  -d '{"trace_id": "...", "name": "quality", "value": 0.8, "source": "human"}'"""
"""How to send a score."""


def lead(signals: Signals, models: pl.DataFrame) -> str:
    """How much of the traffic has a score that counts, in two sentences."""
    traces, scored = int(models["traces"].sum()), int(models["scored"].sum())
    given = figures.counted(signals.scores.height, "score")
    share = figures.share(scored / traces) if traces else "none"
    text = f"{given} of {figures.counted(signals.scores['name'].n_unique(), 'name')}. "
    if not signals.names:
        return text + "None of them is known to mean quality: retroute.toml can name it (services.NAME.quality)."
    return text + f"{share} of {figures.counted(traces, 'trace')} have the score that means quality."


def uneven(models: pl.DataFrame) -> str:
    """Where coverage differs much between the models of a service; "" where it does not."""
    told = []
    for (service,), rows in models.filter(pl.col("traces") >= 30).group_by("service", maintain_order=True):
        shares = (rows["scored"] / rows["traces"]).to_list()
        if len(shares) > 1 and max(shares) - min(shares) > 0.15:
            low, high = rows["model"][shares.index(min(shares))], rows["model"][shares.index(max(shares))]
            told.append(
                f"{service}: {figures.share(min(shares))} of {low or 'no model'} but {figures.share(max(shares))} of "
                f"{high or 'no model'}"
            )
    if not told:
        return ""
    return f"Coverage is uneven: {'; '.join(told)}. If what is scored was not drawn at random, means mislead."


def signals_table(rows: pl.DataFrame) -> str:
    """Scores by name and source."""
    heads = ["Score", "From", "Scores", "Traces with it", "Mean", "Half came within", "90% within", "Last given (UTC)"]
    told = []
    for row in rows.iter_rows(named=True):
        covered = figures.count(row["traces"]) + (
            "" if row["coverage"] is None else f" ({figures.share(row['coverage'])})"
        )
        told.append(
            [
                (row["name"] or "") + (" (means quality)" if row["main"] else ""),
                row["source"] or "not named",
                figures.count(row["scores"]),
                covered,
                "none" if row["mean"] is None else figures.share(row["mean"]),
                late(row["delay_p50_s"]),
                late(row["delay_p90_s"]),
                moment(row["last_ns"]),
            ]
        )
    return parts.table(heads, told, numbers=6, label="signals")


def late(seconds: float | None) -> str:
    """A delay; before the end of the trace is at once."""
    if seconds is None:
        return "unknown"
    if seconds <= 0:
        return "at once"
    return duration(seconds) if seconds < 48 * 3600 else f"{seconds / 86400:.1f}\u00a0days"


def models_table(rows: pl.DataFrame, address: Address, *, service: bool) -> str:
    """Coverage, mean and delay by model, each with a link to its traces without a score."""
    heads = [*(["Service"] if service else []), "Model", "Traces", "Scored", "Mean", "Half within", "90% within", ""]
    titles = "".join(
        f'<th class="rr-{"text" if i < 1 + service else "number"}" scope="col">{escape(title)}</th>'
        for i, title in enumerate(heads)
    )
    body = ""
    for row in rows.iter_rows(named=True):
        left = row["traces"] - row["scored"]
        link = (
            f'<a href="{escape(address(row))}" target="_self">{figures.count(left)} unscored</a>'
            if left > 0
            else "all scored"
        )
        cells = [
            figures.count(row["traces"]),
            figures.share(row["scored"] / row["traces"]) if row["traces"] else "none",
            "none" if row["mean"] is None else figures.share(row["mean"]),
            late(row["delay_p50_s"]) if row["scored"] else "none",
            late(row["delay_p90_s"]) if row["scored"] else "none",
        ]
        named = f"<td>{escape(row['service'] or 'none')}</td>" if service else ""
        numbers = "".join(f'<td class="rr-number">{cell}</td>' for cell in cells)
        body += (
            f'<tr>{named}<td>{escape(row["model"] or "no model")}</td>{numbers}<td class="rr-number">{link}</td></tr>'
        )
    return (
        '<div class="rr rr-scroll rr-links" data-table="models"><table class="rr-plain">'
        f"<thead><tr>{titles}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def agreement(pair: Pair) -> str:
    """The three figures of one judge, side by side."""
    found = pair.found
    why = found.refused or "not estimated"
    cells = (
        (
            "Agreement beyond chance",
            "Cohen's kappa; 1 is perfect",
            found.kappa,
            "number",
            "kappa",
        ),
        ("Correlation", "Pearson's; 1 is perfect", found.correlation, "number", "correlation"),
        ("Bias", "the judge's mean less theirs", found.bias, "quality_change", "bias"),
    )
    items = "".join(
        f'<div class="rr-metric"><p class="rr-eyebrow">{escape(title)}</p><p class="rr-note">{escape(note)}</p>'
        f"{parts.figure(_figure(one, why), unit, name)}</div>"  # type: ignore[arg-type]  # a literal above
        for title, note, one, unit, name in cells
    )
    return f'<div class="rr rr-card">{items}</div>'


def _figure(one: Estimate | None, why: str) -> Figure:
    if one is None:
        return Figure(None, None, None, None, reason=why)
    return Figure(one.value, one.low, one.high, one.kind, one.estimator)


def judged(pair: Pair) -> str:
    """What was compared, in a sentence."""
    found = pair.found
    alike = "" if found.alike is None else f", and passes or fails alike in {figures.share(found.alike)}"
    return (
        f"The judge's {pair.judge} beside {pair.other} of the same {pair.of}: "
        f"{figures.counted(found.pairs, 'pair')}{alike}."
    )


def drawn(rows: pl.DataFrame) -> list[str]:
    """Which scores say with what probability they were to be given, in sentences."""
    told = [
        f"{figures.part(row['drawn'], row['scores'])} of {row['name']} say with what probability they were to be "
        f"given, at least {figures.share(row['least_probability'])}."
        for row in rows.filter(pl.col("drawn") > 0).iter_rows(named=True)
    ]
    if told:
        return told
    text = (
        "No score says with what probability its target was drawn to be scored (probability, in POST /v1/scores). "
        "Without it, what is scored counts as if it had been drawn at random among traces alike."
    )
    return [text]


def unmapped(rows: pl.DataFrame) -> str:
    """Scores that mean nothing on [0, 1], by name."""
    told = [
        [row["name"] or "", row["source"] or "not named", figures.part(row["unmapped"], row["scores"])]
        for row in rows.iter_rows(named=True)
    ]
    return parts.table(["Score", "From", "Not on a scale"], told, numbers=1, label="unmapped")
