"""Records in, measures out: RMSE, bias, coverage, width, effective decisions, seconds of every cell and estimate.

Errors and coverage are about the truth in the population. A cell pools its target policies; `worst` is the coverage of
the worst of them. Costs count in units of the world's mean, so that RMSE of different cells can be averaged.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

Record = dict[str, Any]
MIN_EFFECTIVE = 100.0
MIN_PAIRS = 100
"""Logs times policies that are left at least, to speak of a coverage."""


@dataclass(frozen=True)
class Measure:
    """One estimate in one cell."""

    cell: str
    estimate: str
    logs: int
    rmse: float
    bias: float
    coverage: float
    """Of two-sided 95 % intervals; NaN without any."""
    lower: float
    """Share of logs whose lower bound is at most the truth."""
    worst: float
    width: float
    effective: float
    issued: float
    """Share that the product would show at all."""
    seconds: float


@dataclass(frozen=True)
class _Seen:
    policy: str
    truth: float
    value: float
    low: float
    high: float
    effective: float
    issued: bool
    seconds: float


def measures(records: Iterable[Record]) -> list[Measure]:
    """All measures of all estimates."""
    return [_measure(cell, name, seen) for (cell, name), seen in sorted(_gathered(records).items())]


def backed(records: Iterable[Record]) -> list[Measure]:
    """Measures of those policies alone for which a cell's logs have, by their median, 100 effective decisions, and
    which the product would mostly show."""
    found = []
    for (cell, name), seen in sorted(_gathered(records).items()):
        kept = []
        for policy in sorted({one.policy for one in seen}):
            mine = [one for one in seen if one.policy == policy]
            if np.median([one.effective for one in mine]) >= MIN_EFFECTIVE and np.mean([o.issued for o in mine]) > 0.5:
                kept += mine
        if kept:
            found.append(_measure(cell, name, kept))
    return found


def shown(records: Iterable[Record]) -> list[Measure]:
    """Measures of those single estimates alone that have 100 effective decisions in their log and that the product
    would show: a selection by the logs' luck, as users meet it."""
    found = []
    for (cell, name), seen in sorted(_gathered(records).items()):
        kept = [one for one in seen if one.issued and one.effective >= MIN_EFFECTIVE]
        if len(kept) >= MIN_PAIRS:
            found.append(_measure(cell, name, kept))
    return found


def _gathered(records: Iterable[Record]) -> dict[tuple[str, str], list[_Seen]]:
    gathered: dict[tuple[str, str], list[_Seen]] = defaultdict(list)
    for record in records:
        if record["cell"].startswith(("coverage/", "accuracy/")):
            for name, seen in _seen(record):
                gathered[record["cell"], name].append(seen)
    return gathered


def as_rows(found: Sequence[Measure]) -> list[dict[str, Any]]:
    """For JSON: NaN as null."""
    return [
        {key: None if isinstance(value, float) and np.isnan(value) else value for key, value in asdict(one).items()}
        for one in found
    ]


def _seen(record: Record) -> Iterable[tuple[str, _Seen]]:
    for policy, one in record["policies"].items():
        shared = one["effective"], one["issued"]
        for name, (value, low, high) in one["change"].items():
            yield name, _Seen(policy, one["true_change"], value, low, high, *shared, record["seconds"])
        for name, (value, low, high) in one.get("value", {}).items():
            yield name, _Seen(policy, one["truth"], value, low, high, *shared, record["seconds"])
        for peer, result in record.get("peers", {}).items():
            for name, (value, low, high) in result["policies"][policy].items():
                yield f"{peer} {name}", _Seen(policy, one["truth"], value, low, high, *shared, result["seconds"])


def _measure(cell: str, name: str, seen: Sequence[_Seen]) -> Measure:
    def column(what: str) -> np.ndarray:
        return np.array([getattr(one, what) for one in seen], dtype=float)

    errors, low, high, truth = column("value") - column("truth"), column("low"), column("high"), column("truth")
    bounded = ~np.isnan(low)
    inside = (low <= truth) & (truth <= high)
    policies = np.array([one.policy for one in seen])
    by_policy = [inside[bounded & (policies == policy)] for policy in np.unique(policies)]
    nothing = float("nan")
    return Measure(
        cell=cell,
        estimate=name,
        logs=int(max(np.unique(policies, return_counts=True)[1])),
        rmse=float(np.sqrt(np.mean(errors**2))),
        bias=float(errors.mean()),
        coverage=float(inside[bounded].mean()) if bounded.any() else nothing,
        lower=float((low <= truth)[bounded].mean()) if bounded.any() else nothing,
        worst=min((float(part.mean()) for part in by_policy if len(part)), default=nothing),
        width=float((high - low)[bounded].mean()) if bounded.any() else nothing,
        effective=float(np.median(column("effective"))),
        issued=float(column("issued").mean()),
        seconds=float(column("seconds").mean()),
    )


def table(found: Sequence[Measure]) -> str:
    """Markdown: a row per cell and estimate."""
    head = "| cell | estimate | logs | RMSE | bias | coverage | lower | worst | width | effective | shown | s |"
    lines = [head, "| " + " | ".join(["---"] * 12) + " |"]
    for one in found:
        figures = [one.rmse, one.bias, one.coverage, one.lower, one.worst, one.width]
        shown = ["" if np.isnan(value) else f"{value:.3f}" for value in figures]
        last = [f"{one.effective:.0f}", f"{one.issued:.2f}", f"{one.seconds:.2f}"]
        lines.append("| " + " | ".join([one.cell, one.estimate, str(one.logs), *shown, *last]) + " |")
    return "\n".join(lines)
