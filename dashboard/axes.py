"""The three axes of every page, always in this order: cost, quality, latency; with limits and where intervals lie."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from dashboard import figures
from dashboard.figures import Side, Unit
from dashboard.records import Figure, ServiceVerdict

TITLES = "Cost, quality, latency"


@dataclass(frozen=True)
class Axis:
    """One axis of a verdict. `name` is the figure's key in verdicts.json; beyond `limit`, on the `forbidden` side, a
    policy may not go (None: no limit). `better` says which way the axis improves."""

    title: str
    note: str
    brief: str
    """Title and note in one, for narrow places."""
    name: str
    figure: Figure
    unit: Unit
    status: str
    better: str
    limit: float | None
    forbidden: Side


def of(verdict: ServiceVerdict) -> tuple[Axis, Axis, Axis]:
    modelled = verdict.coverage.latency_note
    return (
        Axis(
            "Cost",
            "saving per 1,000 decisions",
            "Saving per 1,000 decisions",
            "savings_usd_per_1k",
            verdict.savings,
            "usd_change",
            _status(verdict.savings, _savings),
            "saves more →",
            None,
            "below",
        ),
        Axis(
            "Quality",
            "change against today",
            "Quality change",
            "quality_change",
            verdict.quality,
            "quality_change",
            _status(verdict.quality, lambda low, high: _quality(low, high, verdict.limits.quality_margin)),
            "better →",
            -verdict.limits.quality_margin,
            "below",
        ),
        Axis(
            "Latency",
            f"change against today, {modelled}" if modelled else "change against today",
            f"Latency change, {modelled}" if modelled else "Latency change",
            "latency_change_s",
            verdict.latency,
            "seconds_change",
            _status(verdict.latency, lambda low, high: _latency(low, high, verdict.limits.latency_s)),
            "← faster",
            verdict.limits.latency_s,
            "above",
        ),
    )


def silent(axes: Sequence[Axis]) -> bool:
    """Whether nothing can be estimated, for one and the same reason."""
    return all(axis.figure.refused for axis in axes) and len({axis.figure.reason for axis in axes}) == 1


def _status(figure: Figure, say: Callable[[float, float], str]) -> str:
    return "" if figure.refused else say(*figure.span[1:])


def _savings(low: float, high: float) -> str:
    if low > 0:
        return "The whole interval is a saving."
    return "The whole interval costs more." if high <= 0 else "No saving is inside the interval."


def _quality(low: float, high: float, margin: float) -> str:
    limit = f"the limit of {figures.points(-margin)}"
    if low >= -margin:
        return f"The whole interval is inside {limit}."
    return f"The whole interval is past {limit}." if high < -margin else f"The interval reaches past {limit}."


def _latency(low: float, high: float, most: float | None) -> str:
    if most is None:
        side = "Faster" if high < 0 else "Slower" if low > 0 else "Neither clearly faster nor slower"
        return f"{side}; no limit is set."
    limit = f"the limit of {figures.seconds(most)}"
    if high <= most:
        return f"The whole interval is inside {limit}."
    return f"The whole interval is past {limit}." if low > most else f"The interval reaches past {limit}."
