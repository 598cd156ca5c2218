"""A verdict, a run, a lake -> the sentences people read. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl

from dashboard.axes import Axis
from dashboard.figures import DAY_NS, capital, count, counted, date, interval, points, said, sentence, share, window
from dashboard.records import Costs, EstimatorRow, Figure, Reconciled, Role, ServiceVerdict
from optimizer import unpriced as lacking
from optimizer.gate import Outcome

VERDICTS: dict[Outcome, str] = {
    "deploy": "Deploy",
    "promising": "Promising",
    "keep": "Keep today's routing",
    "cannot_tell": "Your logs cannot tell",
}
ROLES: dict[Role, str] = {
    "today": "Today",
    "cheapest": "Cheapest",
    "strongest": "Strongest",
    "cost_matched_random": "Cost-matched random",
    "suggested": "Suggested",
}
ROLE_NOTES: dict[Role, str] = {
    "today": "what the logs show",
    "cheapest": "the one action with the lowest cost",
    "strongest": "the one action with the highest quality",
    "cost_matched_random": "the suggestion's shares, drawn without looking at the prompt",
    "suggested": "",
}
MONTH_DAYS = 30


def monthly(savings: Figure, decisions: int, span_ns: int) -> Figure | None:
    """Savings per 1,000 decisions at the logged pace for 30 days; None from less than a day of logs."""
    if savings.refused or span_ns < DAY_NS or decisions < 1:
        return None
    thousands = decisions / (span_ns / DAY_NS) * MONTH_DAYS / 1000
    value, low, high = (thousands * x for x in savings.span)
    return Figure(value, low, high, savings.kind, savings.estimator)


def lead(verdict: ServiceVerdict, month: Figure | None) -> str:
    """The answer in two sentences: what it is worth, whether it is safe."""
    savings, change = verdict.savings, verdict.quality
    if savings.refused and change.refused and savings.reason == change.reason:
        return f"Neither a saving nor a change of quality can be estimated: {sentence(savings.reason)}"
    return f"{worth(verdict, month)} {safety(verdict)}"


def worth(verdict: ServiceVerdict, month: Figure | None) -> str:
    """What the suggestion is worth, in one sentence."""
    savings = verdict.savings
    if savings.refused:
        return f"What it would save is not estimated: {sentence(savings.reason)}"
    saves = savings.span[0] >= 0
    verb = "saves" if saves else "costs"
    text = f"The best candidate {verb}" if verdict.outcome == "keep" else verb.capitalize()
    more, told = "" if saves else " more", savings if saves else _negated(savings)
    level = f"{share(verdict.limits.confidence)} interval "
    bounds = said(told, "usd").interval
    text += f" {said(told, 'usd').value}{more} per 1,000 decisions{f' ({level}{bounds})' if bounds else ''}"
    if month is not None:
        pace = month if saves else _negated(month)
        text += f", about {said(pace, 'usd').value}{more} a month{interval(pace, 'usd')} at the logged pace"
    return f"{text}."


def _negated(figure: Figure) -> Figure:
    value, low, high = figure.span
    return Figure(-value, -high, -low, figure.kind, figure.estimator)


def safety(verdict: ServiceVerdict) -> str:
    """What it does to quality and whether that keeps the limit, read off the interval that is drawn."""
    change = verdict.quality
    if change.refused:
        return f"What it does to quality is not estimated: {sentence(change.reason)}"
    amount = f"{said(change, 'quality_change').value}{interval(change, 'quality_change')}"
    return f"Quality changes by {amount}; {_inside(verdict)}."


def _inside(verdict: ServiceVerdict) -> str:
    _, low, high = verdict.quality.span
    margin = verdict.limits.quality_margin
    limit = points(-margin)
    if low >= -margin:
        return f"all of that is inside the limit of {limit}"
    return (
        f"all of that is past the limit of {limit}" if high < -margin else f"part of that is past the limit of {limit}"
    )


def refusals(rows: Sequence[EstimatorRow]) -> list[tuple[str, str]]:
    """(estimator, reason) of all that was refused, each reason once."""
    figures = ((row.estimator, one) for row in rows for one in (row.savings, row.quality, row.latency))
    return list(dict.fromkeys((name, one.reason) for name, one in figures if one.refused))


def certified(rows: Sequence[EstimatorRow], axes: Sequence[Axis]) -> str:
    """The bounds that hold at any number of decisions, in one sentence; "" where there are none."""
    found = [
        f"{axis.brief[:1].lower()}{axis.brief[1:]} {bounds}"
        for row in rows
        for axis in axes
        if (figure := row.on(axis.name)).kind == "certified" and (bounds := said(figure, axis.unit).interval)
    ]
    return f"Certain at any number of decisions, by betting against less: {', '.join(found)}." if found else ""


def provenance(verdict: ServiceVerdict, made: str, first_ns: int | None, last_ns: int | None) -> str:
    """Which run said so, when, and about which days."""
    days = "" if first_ns is None else f" Decisions from {window(first_ns, last_ns)}, the data's own range."
    level = f" All intervals are {share(verdict.limits.confidence)} intervals."
    return f"Run {verdict.run_id}, {date(made)}.{days}{level}"


def ranked(verdicts: Sequence[ServiceVerdict]) -> list[ServiceVerdict]:
    """What can be acted on first: deploy, promising, keep, cannot tell."""
    order = list(VERDICTS)
    return sorted(verdicts, key=lambda verdict: (order.index(verdict.outcome), verdict.service))


def tally(verdicts: Sequence[ServiceVerdict]) -> str:
    """How many services have which verdict, in one sentence."""
    found = Counter(verdict.outcome for verdict in verdicts)
    parts = [f"{found[name]} {phrase}" for name, phrase in _TALLY.items() if found[name]]
    return f"{counted(len(verdicts), 'service')}: {', '.join(parts)}."


_TALLY: dict[Outcome, str] = {
    "deploy": "ready to deploy",
    "promising": "promising",
    "keep": "best left as it is",
    "cannot_tell": "without enough evidence",
}


def arrived(counts: Mapping[str, Any], rejected: int, services: pl.DataFrame) -> str:
    """What arrived and what is wrong with it, in one or two sentences."""
    told = f"{counted(counts['spans'], 'span')} in {counted(counts['traces'], 'trace')} arrived"
    told += f"; {counted(rejected, 'record')} could not be used." if rejected else "; nothing was rejected."
    models, unpriced = int(services["llm_calls"].sum()), int(services["unpriced"].sum())
    if models:
        told += f" {count(unpriced) if unpriced else 'None'} of {counted(models, 'model call')} lack a price."
    if counts["unsettled_traces"]:
        told += f" {counted(counts['unsettled_traces'], 'trace')} not settled yet."
    return told


def spend(services: pl.DataFrame) -> str:
    """How much of the spend has no price: calls, and the tokens that they told."""
    return capital(sentence(lacking.sentence(lacking.in_all(services))))


def costs(found: Costs) -> str:
    """At which prices the costs are, what today's was as billed, and what has no price."""
    told = f"Costs are at the {found.prices}."
    if found.billed is not None and found.one_list is not None:
        billed, listed = (
            f"${usd:,.2f}" if max(found.billed, found.one_list) >= 1 else f"${usd:,.4f}"
            for usd in (found.billed, found.one_list)
        )
        told += f" Today costs {billed} per 1,000 decisions as billed, {listed} at these prices"
        told += f" ({counted(found.decisions, 'decision')} with both)."
    return f"{told} {capital(sentence(found.unpriced))}"


def reconciled(found: Reconciled) -> str:
    """Which invoice our costs were laid beside, and whether the two agree."""
    agree = "agree within" if found.within else "differ by more than"
    return (
        f"{found.form} invoice {found.file}, {found.first} to {found.last}, compared {date(found.made_at)}: "
        f"ours and theirs {agree} {100 * found.tolerance:g}%."
    )


def arrived_facts(counts: Mapping[str, Any], rejected: int) -> list[tuple[str, str]]:
    names = {"spans": "spans", "traces": "traces", "calls": "settled calls", "scores": "scores"}
    facts = [(count(counts[key]), name) for key, name in names.items()]
    return [*facts, (count(rejected), "rejected"), (count(counts["unsettled_traces"]), "traces still settling")]


def received(batches: pl.DataFrame) -> str:
    if not batches.height:
        return "Nothing yet."
    first, last = int(batches["received_ns"][0]), int(batches["received_ns"][-1])
    return f"{counted(int(batches['requests'].sum()), 'request')}, by the time of receipt: {window(first, last)}."


def happened(calls: pl.DataFrame) -> str:
    if not calls.height:
        return "No call is settled yet."
    return f"Calls by the time they started: {window(int(calls['start_ns'][0]), int(calls['start_ns'][-1]))}."


def listening(collector: Mapping[str, Any] | None, home: str) -> tuple[str, str]:
    """(text, command) for a lake that is still empty."""
    if collector is None:
        return "No collector is running on this home. Start one, or import files.", f"retroute collect --home {home}"
    address = f"http://{collector.get('host')}:{collector.get('port')}"
    return "A collector is listening. Point your exporter at it.", f"OTEL_EXPORTER_OTLP_ENDPOINT={address}"
