"""Promises against measures: the only place where a target is written down.

Each row says what was promised, what was measured, over how many logs, and whether it is met; None: not measured in
this run. Measured values come from the records alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from .gate import Rates
from .learning import Lesson
from .measure import Measure, Record, backed, measures, shown
from .regimes import REGIMES
from .speed import Speed

MIN_LOGS = 200
"""Fewer logs a cell than this are a preview: the verdict is shown with a question mark."""
PEER = "obp "


@dataclass(frozen=True)
class Promise:
    """One line of the verdict table."""

    promise: str
    measured: str
    logs: int
    """The fewest behind any figure of this line."""
    met: bool | None
    misses: tuple[str, ...] = ()
    """The cells that miss."""


def promises(
    records: Sequence[Record], gates: Sequence[Rates], lessons: Sequence[Lesson], speeds: Sequence[Speed]
) -> list[Promise]:
    """All lines, measured or not."""
    every = measures(records)
    return [
        _certificate(every),
        *_asymptotic(backed(records), "policies with ESS >= 100"),
        *_asymptotic(shown(records), "single estimates with ESS >= 100, as shown"),
        _width(every),
        *_accuracy(every),
        *_gate(gates),
        *_learning(lessons),
        *_speed(speeds),
    ]


def table(found: Sequence[Promise]) -> str:
    """Markdown."""
    lines = ["| promise | measured | logs | met | misses |", "| --- | --- | --- | --- | --- |"]
    for one in found:
        met = "not measured" if one.met is None else "yes" if one.met else "**no**"
        doubt = "?" if one.met is not None and one.logs < MIN_LOGS else ""
        lines.append(f"| {one.promise} | {one.measured} | {one.logs} | {met}{doubt} | {', '.join(one.misses)} |")
    return "\n".join(lines)


def _unmeasured(promise: str) -> Promise:
    return Promise(promise, "", 0, None)


def _regime(cell: str) -> str:
    return cell.split("/")[2]


def _at_least(promise: str, found: Iterable[tuple[str, float, int]], least: float) -> Promise:
    """Met where the smallest of (cell, figure, logs) reaches `least`."""
    seen = [one for one in found if not np.isnan(one[1])]
    if not seen:
        return _unmeasured(promise)
    cell, worst, _ = min(seen, key=lambda one: one[1])
    misses = tuple(f"{name} {value:.3f}" for name, value, _ in seen if value < least)
    measured = f"worst {worst:.3f} ({cell}), {len(seen)} cells"
    return Promise(promise, measured, min(logs for *_, logs in seen), not misses, misses)


def _certificate(every: Sequence[Measure]) -> Promise:
    found = [(m.cell, m.coverage, m.logs) for m in every if m.estimate == "certificate"]
    return _at_least("certificate covers >= 0.95 in every cell where its conditions hold", found, 0.95)


def _sound(cell: str) -> bool:
    regime = REGIMES[_regime(cell)]
    return regime.told and regime.answerable


def _asymptotic(found: Sequence[Measure], which: str) -> list[Promise]:
    """Only where the product calls it asymptotic: propensities told, nothing hidden."""
    mine = [m for m in found if m.estimate == "asymptotic" and _sound(m.cell)]
    cells = [(m.cell, m.coverage, m.logs) for m in mine]
    worst = _at_least(f"asymptotic covers >= 0.92 in every cell ({which})", cells, 0.92)
    promise = "... and >= 0.945 pooled"
    if not mine:
        return [worst, _unmeasured(promise)]
    pooled = float(np.average([m.coverage for m in mine], weights=[m.logs for m in mine]))
    return [worst, Promise(promise, f"{pooled:.3f}", min(m.logs for m in mine), pooled >= 0.945)]


def _width(every: Sequence[Measure]) -> Promise:
    """The certificate is of the change, obp's interval of the value: obp has none of the change."""
    promise = "certificate of the change <= 0.6x as wide as obp's SNIPW bootstrap of the value (synthetic, n = 20,000)"
    ratios = []
    for m in every:
        part, world, regime, n = m.cell.split("/")
        if (part, world, n, m.estimate) == ("coverage", "synthetic", "20000", "certificate"):
            rival = _find(every, f"accuracy/{world}/{regime}/{n}", PEER + "quickstart SNIPW")
            if rival is not None:
                ratios.append((regime, m.width / rival.width, min(m.logs, rival.logs)))
    if not ratios:
        return _unmeasured(promise)
    mean = float(np.exp(np.mean([np.log(ratio) for _, ratio, _ in ratios])))
    measured = f"{mean:.2f}x ({', '.join(f'{regime} {ratio:.2f}' for regime, ratio, _ in ratios)})"
    misses = tuple(regime for regime, ratio, _ in ratios if ratio > 0.6)
    return Promise(promise, measured, min(logs for *_, logs in ratios), mean <= 0.6, misses)


def _find(every: Sequence[Measure], cell: str, estimate: str) -> Measure | None:
    return next((m for m in every if (m.cell, m.estimate) == (cell, estimate)), None)


def _ratios(every: Sequence[Measure]) -> list[tuple[Measure, Measure]]:
    """Our point and, for each cell, obp's estimator that hindsight prefers."""
    pairs = []
    for ours in (m for m in every if m.estimate == "value"):
        rivals = [m for m in every if m.cell == ours.cell and m.estimate.startswith(PEER) and not np.isnan(m.rmse)]
        if rivals:
            pairs.append((ours, min(rivals, key=lambda m: m.rmse)))
    return pairs


def _accuracy(every: Sequence[Measure]) -> list[Promise]:
    pairs = [(ours, best) for ours, best in _ratios(every) if REGIMES[_regime(ours.cell)].answerable]
    texts = (
        "RMSE of the point <= the best obp estimator by hindsight (geometric mean)",
        "... and never above 1.3x",
        "RMSE >= 5x lower than obp's DR with hidden propensities",
        "RMSE >= 3x lower than every obp estimator with 10 % labels that a logged judge drives",
        "... with 10 % labels at random given features and action",
    )
    if not pairs:
        return [_unmeasured(text) for text in texts]
    ratio = {ours.cell: ours.rmse / best.rmse for ours, best in pairs}
    logs = min(ours.logs for ours, _ in pairs)
    mean = float(np.exp(np.mean(np.log(list(ratio.values())))))
    worst = max(ratio, key=lambda cell: ratio[cell])
    misses = tuple(f"{cell} {value:.2f}" for cell, value in ratio.items() if value > 1.3)
    found = [
        Promise(texts[0], f"{mean:.2f}x over {len(ratio)} cells", logs, mean <= 1.0),
        Promise(texts[1], f"worst {ratio[worst]:.2f}x ({worst})", logs, not misses, misses),
    ]
    hidden = [(ours, _find(every, ours.cell, PEER + "quickstart DR")) for ours, _ in pairs if _is(ours, "hidden")]
    found.append(_at_least(texts[2], [(o.cell, r.rmse / o.rmse, o.logs) for o, r in hidden if r is not None], 5.0))
    for text, regime in zip(texts[3:], ("labels10judge", "labels10"), strict=True):
        few = [(ours.cell, best.rmse / ours.rmse, ours.logs) for ours, best in pairs if _is(ours, regime)]
        found.append(_at_least(text, few, 3.0))
    return found


def _is(one: Measure, regime: str) -> bool:
    return _regime(one.cell) == regime


def _gate(gates: Sequence[Rates]) -> list[Promise]:
    texts = (
        "unsafe deployments <= 5 % of nights, confounded ones included",
        "power >= 80 % at +2 points, 20,000 decisions judged, at the promise's corner (arms 10 %, 30 % changed)",
        "power >= 80 % at +2 points, 20,000 decisions logged (4,000 judged), at the corner",
        "the same inside the promise (arms >= 10 %, 10 to 30 % changed)",
    )
    harmful = [g for g in gates if g.cell.split("/")[1] in ("mixed", "boundary", "confounded")]
    if not harmful:
        found = [_unmeasured(texts[0])]
    else:
        total = sum(g.nights for g in harmful)
        unsafe = sum(g.unsafe * g.nights for g in harmful) / total
        worst = max(harmful, key=lambda g: g.unsafe)
        misses = tuple(f"{g.cell} {g.unsafe:.3f}" for g in harmful if g.unsafe > 0.05)
        foils = [g for g in harmful if g.foil_unsafe is not None]
        foil = f"; bootstrap gate on obp's tuned DR: {max((g.foil_unsafe or 0) for g in foils):.1%}" if foils else ""
        measured = f"{unsafe:.1%}, worst kind {worst.unsafe:.1%} ({worst.cell}){foil}"
        found = [Promise(texts[0], measured, total, unsafe <= 0.05 and not misses, misses)]
    for text, cell in zip(texts[1:], ("corner/20000", "corner/4000", "typical/4000"), strict=True):
        seen = next((g for g in gates if g.cell == f"gate/{cell}"), None)
        if seen is None:
            found.append(_unmeasured(text))
        else:
            measured = f"{seen.deployed:.1%}; by the certificate {seen.certified:.1%}"
            found.append(Promise(text, measured, seen.nights, seen.deployed >= 0.8))
    return found


def _learning(lessons: Sequence[Lesson]) -> list[Promise]:
    """In utility, whose unit is quality: of what learning finds most useful, and of what is suggested, which has to
    save too."""
    found = [
        _at_least(
            "after the gate not below what ran, on average over logs",
            [(one.cell, one.values["gated"].utility - one.values["logged"].utility, one.logs) for one in lessons],
            0.0,
        )
    ]
    late = [one for one in lessons if int(one.cell.split("/")[3]) >= 20_000]
    for what in ("most useful", "suggested"):
        gaps = [(one.cell, one.values[what].utility - one.values["best single"].utility, one.logs) for one in late]
        routed = [one for one in gaps if one[0].split("/")[1] == "llmrouter9"]
        found.append(_at_least(f"at n >= 20,000 the {what} policy is not below the best single by > 0.01", gaps, -0.01))
        found.append(_at_least(f"... and above it on llmrouter9 ({what})", routed, 0.0))
    return found


def _speed(speeds: Sequence[Speed]) -> list[Promise]:
    """Processor seconds of one thread: the wall clock of a quiet machine, or less."""
    found = []
    for n, most, memory in ((100_000, 6.0, 4.0), (1_000_000, 120.0, 4.0)):
        text = f"{n:,} decisions x 10 actions learned, evaluated, certified and judged in {most:.0f} s, {memory:.0f} GB"
        seen = next((one for one in speeds if one.cell.endswith(f"/{n}")), None)
        if seen is None:
            found.append(_unmeasured(text))
            continue
        rival = "" if seen.obp is None else f"; obp {seen.obp:.1f} s, {seen.obp / seen.seconds:.1f}x"
        met = seen.seconds <= most and seen.peak_gb <= memory
        found.append(Promise(text, f"{seen.seconds:.1f} s, {seen.peak_gb:.1f} GB{rival}", MIN_LOGS, met))
    return found
