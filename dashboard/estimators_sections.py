"""What the page on estimators says, as sentences and tables. Pure; every text from outside is escaped."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from dashboard import axes, figures
from dashboard.estimators_data import METRICS, POLICIES, Backtest, Beside, Count, Past
from dashboard.parts import figure, remark
from dashboard.records import ServiceVerdict

MARKS = (("●", "asymptotic"), ("■", "certified"), ("▲", "assumption"))


def answer(verdict: ServiceVerdict, found: Backtest | None) -> str:
    """Whether the methods agree, and whether they predicted well, in two sentences."""
    return f"{agreement(verdict)} {foresight(found)}".strip()


def agreement(verdict: ServiceVerdict) -> str:
    if not any(not row.savings.refused or not row.quality.refused for row in verdict.estimators):
        return "No method gives a number here."
    parted = [doubt for doubt in verdict.doubts if "standard errors" in doubt]
    if parted:
        return f"The methods do not agree: {figures.sentence('; '.join(parted))}"
    return "The methods agree: no two of them differ by more than two standard errors."


def foresight(found: Backtest | None) -> str:
    if found is None or not found.counts:
        return ""
    held, trials = found.held()
    chance = (1 - found.confidence) * trials
    return (
        f"Of {figures.counted(trials, 'prediction')} that decisions before a cut gave of those after it, {held} held "
        f"({figures.share(held / trials)}); about {chance:.0f} are expected to fail by chance."
    )


def eyebrow(text: str) -> str:
    return f'<p class="rr rr-eyebrow">{escape(text)}</p>'


def key() -> str:
    """What the marks of the forest mean."""
    items = "".join(
        f'<span class="rr-glyph">{glyph}</span><span title="{escape(figures.KINDS[kind])}">{kind}</span>'
        for glyph, kind in MARKS
    )
    return f'<p class="rr rr-pair">{items}<span class="rr-glyph">┆</span><span>limit</span></p>'


def table(verdict: ServiceVerdict) -> str:
    """The change by every method: cost, quality, latency, each with interval and kind."""
    found = axes.of(verdict)
    body = "".join(
        f'<tr data-estimator="{escape(row.estimator)}"><th scope="row">{escape(row.estimator)}'
        f'<span class="rr-note">{escape(figures.estimator(row.estimator))}</span></th>'
        + "".join(f"<td>{figure(row.on(axis.name), axis.unit, axis.name)}</td>" for axis in found)
        + "</tr>"
        for row in verdict.estimators
    )
    head = "".join(f"<th>{escape(title)}</th>" for title in ("Method", *(axis.brief for axis in found)))
    return (
        f'<div class="rr rr-scroll" data-table="estimators"><table class="rr-grid"><thead><tr>{head}</tr></thead>'
        f"<tbody>{body}</tbody></table></div>"
    )


def counts(rows: Sequence[Count]) -> str:
    """How many predictions of each method held, by outcome."""
    kinds = list(dict.fromkeys((row.policy, row.estimator) for row in rows))
    body = "".join(
        f'<tr><th scope="row">{escape(POLICIES.get(policy, policy))}</th>'
        f"<td>{escape(figures.estimator(estimator))}</td>"
        + "".join(
            _held([row for row in rows if (row.policy, row.estimator, row.metric) == (policy, estimator, metric)])
            for metric in METRICS
        )
        + _held([row for row in rows if (row.policy, row.estimator) == (policy, estimator)])
        + "</tr>"
        for policy, estimator in kinds
    )
    head = "<th>Tested on</th><th>Method</th><th>Cost</th><th>Quality</th><th>Latency</th><th>All</th>"
    return (
        f'<div class="rr rr-scroll" data-table="counts"><table class="rr-plain"><thead><tr>{head}</tr></thead>'
        f"<tbody>{body}</tbody></table></div>"
    )


def _held(rows: Sequence[Count]) -> str:
    trials, held = sum(row.trials for row in rows), sum(row.held for row in rows)
    return f"<td>{held} of {trials}</td>" if trials else "<td>not tested</td>"


def beside(rows: Sequence[Beside], label: str) -> str:
    """Predictions beside what came, a row each."""
    body = "".join(
        f'<tr><th scope="row">{escape(row.title)}</th>'
        f"<td>{figure(row.predicted, row.unit, f'predicted_{row.metric}')}</td>"
        f"<td>{figure(row.seen, row.unit, f'seen_{row.metric}')}</td><td>{_came(row)}</td></tr>"
        for row in rows
    )
    head = "<th></th><th>Predicted</th><th>What came</th><th>As predicted</th>"
    return (
        f'<div class="rr rr-scroll" data-table="{escape(label)}"><table class="rr-grid"><thead><tr>{head}</tr></thead>'
        f"<tbody>{body}</tbody></table></div>"
    )


def _came(row: Beside) -> str:
    if row.held is None:
        return "cannot be said"
    mark, word, tone = ("✓", "yes", "holds") if row.held else ("✕", "no", "fails")
    return f'<span class="rr-came rr-came-{tone}"><span aria-hidden="true">{mark}</span> {word}</span>'


def past(found: Past) -> str:
    """One earlier policy: its name and on how many decisions its figures rest."""
    many = "" if found.decisions is None else f", {figures.counted(found.decisions, 'decision')} under it"
    return remark(f"{found.name}{many}")


_TESTED = (
    "What was logged: its cost, quality and latency after a cut, by what was known before it. And any policy whose "
    "choices the log took by itself, with known chances."
)
_UNTESTED = (
    "What a choice gives where the log never made it; what people do once they notice a change; and, where chances had "
    "to be estimated, whether something hidden moved both a choice and its outcome. A rollout with a control group "
    "tests these."
)
_FAILS = (
    "By chance, because the traffic changed at the cut, or because a method is wrong. The first is expected at a known "
    "rate, the second hits all methods alike, the third only some."
)
TESTABLE = {"Can be tested": _TESTED, "Cannot be tested from logs": _UNTESTED, "Why a prediction fails": _FAILS}
"""What a backtest from logs can and cannot say."""


def testable() -> str:
    items = "".join(f"<li><b>{escape(title)}.</b> {escape(text)}</li>" for title, text in TESTABLE.items())
    return f'<ul class="rr rr-legend rr-wide-legend">{items}</ul>'
