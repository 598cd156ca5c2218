"""Policies between which limits choose, and what another price of quality would suggest. Numbers are the run's."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dashboard import data
from dashboard.records import AGAIN, ActionShare, Figure, ServiceVerdict, UnreadableError, figure
from optimizer import at_price, runs


@dataclass(frozen=True)
class Priced:
    """What a price of quality suggests. `own`: the run's own price, whose numbers were judged; any other is
    exploratory. `confidence`: of each interval by itself."""

    value_usd: float
    own: bool
    label: str
    admissible: bool
    savings: Figure
    quality_change: Figure
    latency_change: Figure
    cost: Figure
    quality: Figure
    latency: Figure
    shares: Mapping[str, float]
    confidence: float


@dataclass(frozen=True)
class Prices:
    """The prices to choose among; `own` is that of the run. `why` says why there are none."""

    own: float = 0.0
    values: tuple[float, ...] = ()
    epsilon: float = 0.0
    why: str = ""


def prices(verdict: ServiceVerdict, *, steps: bool) -> Prices:
    """The prices that the run's kept scores can be asked about. steps: the service decides step by step."""
    if steps:
        return Prices(
            why="its traces make several decisions: at another price every step would meet other states, which the "
            "kept scores do not hold. Set value_usd and let a night learn anew"
        )
    training = data.run_json(verdict.run_id, "training.json")
    scores = ((training or {}).get(verdict.service) or {}).get("scores")
    if scores is None:
        why = "nothing is suggested" if not verdict.policy_id else "this run was made before runs kept their scores"
        return Prices(why=why)
    own = float(scores["value_usd"])
    return Prices(own, at_price.grid(own), float(scores["epsilon"]))


def priced(verdict: ServiceVerdict, prices: Prices, value_usd: float) -> Priced | str:
    """What the price suggests, or why nothing; at the run's own price its verdict speaks. UnreadableError for kept
    scores that are not as expected."""
    if value_usd == prices.own:
        return _judged(verdict, value_usd)
    try:
        said = data.at_price(verdict.run_id, verdict.service, value_usd)
    except (KeyError, TypeError, ValueError) as error:
        name = runs.kept_name(verdict.service, "judged_scores")
        raise UnreadableError(f"{name} of run {verdict.run_id} is not as expected ({error})", AGAIN) from error
    return said if isinstance(said, str) else _priced(said)


def _priced(said: Mapping[str, Any]) -> Priced:
    return Priced(
        float(said["value_usd"]),
        bool(said["own"]),
        str(said["label"]),
        bool(said["admissible"]),
        figure(said["savings_usd_per_1k"]),
        figure(said["quality_change"]),
        figure(said["latency_change_s"]),
        figure(said["cost_usd_per_1k"]),
        figure(said["quality"]),
        figure(said["latency_s"]),
        {str(name): float(share) for name, share in said["shares"].items()},
        float(said["confidence"]),
    )


def _judged(verdict: ServiceVerdict, value_usd: float) -> Priced | str:
    row = next((row for row in verdict.table if row.policy == "suggested"), None)
    if row is None:
        return "the run compares no suggestion"
    held = {reason.condition: reason.holds for reason in verdict.reasons}
    return Priced(
        value_usd,
        True,
        verdict.policy_label,
        held.get("chosen inside the limits", False),
        verdict.savings,
        verdict.quality,
        verdict.latency,
        row.cost,
        row.quality,
        row.latency,
        {one.action: one.policy or 0.0 for point in verdict.points[:1] for one in point.actions},
        verdict.limits.confidence,
    )


def shares(verdict: ServiceVerdict, found: Priced) -> tuple[ActionShare, ...]:
    """Today's shares beside those at the price."""
    today = {one.action: one for point in verdict.points[:1] for one in point.actions}
    return tuple(
        ActionShare(name, today[name].today if name in today else None, share, None)
        for name, share in found.shares.items()
        if share > 0 or (name in today and today[name].today)
    )


def snippet(service: str, value_usd: float) -> str:
    """What to put into retroute.toml to train at that price."""
    return f"[services.{at_price.toml_key(service)}]\nvalue_usd = {value_usd:.4g}"
