"""What a look at a rollout finds, and whether it may go on or must go back.

Each interval has the confidence 1 - (1 - confidence) / 3 of the limits, so that all three hold together, and at every
look there ever is: looking often costs nothing.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import polars as pl

from optimizer.gate import Limits, Reason
from optimizer.ope.sequences import FEWEST, Difference, bounded_difference, difference, ratio_p_value
from optimizer.prediction import forecast_of
from optimizer.rollout.arms import METRICS, Arms
from optimizer.rollout.state import Rollout

MIN_UNITS = FEWEST
"""Units of each arm that a stage needs before the next one."""
RATIO_LEVEL = 0.01
"""An arm ratio that is right is doubted in at most one rollout of a hundred, however often it is looked at."""
MAX_FAILED = 0.01
NAMES = {"cost_usd_per_1k": "cost", "quality": "quality", "latency_s": "latency"}

LOOK_FOR = (
    "look for requests that lose their policy.* attributes (an exporter that drops spans, a fallback or a cache in "
    "front of the router), for a router that still has an older bundle, for traces of one model that never settle, and "
    "for sessions that the router is told and spans do not name (gen_ai.conversation.id)"
)


def look(found: Arms, limits: Limits, predicted: Mapping[str, Any], *, at: str, looks: int) -> dict[str, Any]:
    """What one look finds, as the state keeps it. A difference is treatment minus control; None comes with a reason."""
    units = found.units
    treated, share = units["treated"].to_numpy().astype(np.bool_), units["share"].to_numpy().astype(np.float64)
    p = ratio_p_value(treated, share)
    return {
        "at": at,
        "looks": looks,
        "unit": "session" if found.by_session else "decision",
        "held": found.held,
        "failed": found.failed,
        "arms": {name: _arm(units.filter(pl.col("treated") == on)) for name, on in _ARMS.items()},
        "metrics": [_metric(name, found, limits, predicted.get(name)) for name in METRICS],
        "ratio": {
            "expected": float(share.mean()) if len(share) else None,
            "seen": float(treated.mean()) if len(treated) else None,
            "p_anytime": p,
            "ok": p >= RATIO_LEVEL,
        },
        "shadow": _shadow(found.decisions),
    }


def crossed(monitor: Mapping[str, Any]) -> list[str]:
    """What is beyond a limit for certain, in words; empty while nothing is."""
    return [
        f"{NAMES[one['metric']]} differs by {_interval(one['metric'], one['difference'])}, beyond the limit "
        f"{in_units(one['metric'], one['limit'])}"
        for one in monitor["metrics"]
        if one["crossed"]
    ]


def conditions(rollout: Rollout, found: Arms, monitor: Mapping[str, Any], *, to: float) -> list[Reason]:
    """All that must hold before `to` percent of sessions are under the policy, the failed ones first."""
    reasons = [_ratio(monitor["ratio"]), _answers(found), _enough(rollout, found, monitor["unit"])]
    if rollout.stage == "canary":
        limited = [one for one in monitor["metrics"] if one["limit"] is not None]
        reasons += [_inside(one) for one in limited]
        reasons += [_alike(one) for one in limited if one["difference"] is not None]
    if to >= 100 and rollout.verdict != "deploy":
        reasons.append(_proven(rollout, {one["metric"]: one for one in monitor["metrics"]}))
    return sorted(reasons, key=lambda reason: reason.holds)


def in_units(metric: str, value: float) -> str:
    """A difference or a limit as people read it."""
    if metric == "quality":
        return f"{100 * value:+.1f} points"
    return f"{value:+.2f} s" if metric == "latency_s" else f"{value:+.3g} USD per 1,000"


def _interval(metric: str, seen: Mapping[str, Any]) -> str:
    value, low, high = (in_units(metric, seen[key]) for key in ("value", "low", "high"))
    return f"{value} ({low} to {high}, {seen['kind']})"


_ARMS = {"treatment": True, "control": False}


def _arm(units: pl.DataFrame) -> dict[str, Any]:
    """How much was seen of an arm and its means, None where nothing is known; `scored` is the share with a quality."""
    return {
        "decisions": int(units["decisions"].sum()),
        "units": len(units),
        "scored": units["quality"].is_not_null().mean() if len(units) else None,
        **{metric: units[metric].mean() for metric in METRICS},
    }


def _metric(name: str, found: Arms, limits: Limits, predicted: Mapping[str, Any] | None) -> dict[str, Any]:
    y, treated, share = found.known(name)
    together = 1 - (1 - limits.confidence) / len(METRICS)
    seen = (bounded_difference if name == "quality" else difference)(y, treated, share, confidence=together)
    limit = {"quality": -limits.quality_margin, "cost_usd_per_1k": 0.0, "latency_s": limits.latency_s}[name]
    p = ratio_p_value(treated, share)
    return {
        "metric": name,
        "difference": None if seen is None else _shown(seen),
        "reason": _why_none(name, treated) if seen is None else "",
        "limit": limit,
        "crossed": seen is not None and limit is not None and _beyond(name, seen, limit),
        "units": len(y),
        "known": {**{arm: _known(found.units, name, on) for arm, on in _ARMS.items()}, "alike": p >= RATIO_LEVEL},
        "predicted": _prediction(name, predicted, int(treated.sum()), int((~treated).sum())),
    }


def _shown(seen: Difference) -> dict[str, Any]:
    return {"value": seen.value, "low": seen.low, "high": seen.high, "kind": seen.kind}


def _beyond(name: str, seen: Difference, limit: float) -> bool:
    return seen.high < limit if name == "quality" else seen.low > limit


def _why_none(name: str, treated: np.ndarray[Any, Any]) -> str:
    arms = f"{int(treated.sum())} of treatment and {int((~treated).sum())} of control"
    if name == "quality":
        return f"scores of both arms are needed; there are {arms}"
    return f"{FEWEST} of each arm are needed; known are {arms}"


def _known(units: pl.DataFrame, metric: str, treated: bool) -> float | None:
    arm = units.filter(pl.col("treated") == treated)
    return float(arm[metric].is_not_null().sum()) / len(arm) if len(arm) else None


def _prediction(name: str, said: Mapping[str, Any] | None, treated: int, control: int) -> dict[str, Any] | None:
    """Where the difference of so many units was to lie; the estimate's own interval where that was not kept."""
    if said is None or said.get("value") is None:
        return None
    found = forecast_of(said.get("forecast"))
    if found is None or not treated or not control:
        return {**{key: said[key] for key in ("value", "low", "high")}, "of": "the estimate"}
    if name == "cost_usd_per_1k":
        found = found.scaled(-1.0)  # kept as savings
    ahead = found.beside(treated, control)
    if not math.isfinite(ahead.high - ahead.low):
        return None
    return {"value": ahead.value, "low": ahead.low, "high": ahead.high, "of": f"{treated} and {control} new decisions"}


def _shadow(decisions: pl.DataFrame) -> dict[str, Any] | None:
    """What the policy would have done where the incumbent acted; None where no router said so."""
    said = decisions.filter(pl.col("shadow").is_not_null())
    if said.is_empty():
        return None
    counts = said["shadow"].value_counts(sort=True)
    return {
        "decisions": len(said),
        "changed": int((said["shadow"] != said["action"]).sum()),
        "actions": dict(zip(counts["shadow"].to_list(), counts["count"].to_list(), strict=True)),
    }


def _ratio(ratio: Mapping[str, Any]) -> Reason:
    got = "nothing was seen yet"
    if ratio["seen"] is not None:
        got = (
            f"{ratio['seen']:.1%} under the policy where {ratio['expected']:.1%} were drawn, p {ratio['p_anytime']:.2g}"
        )
    return Reason("arms are as drawn", got, f"a p-value of at least {RATIO_LEVEL} at all times", LOOK_FOR, ratio["ok"])


def _answers(found: Arms) -> Reason:
    every = len(found.decisions) + found.held
    share = found.failed / every if every else 0.0
    return Reason(
        "the policy decides",
        f"it failed in {found.failed:,} of {every:,} decisions",
        f"at most {MAX_FAILED:.0%}",
        "see policy.reason of these decisions: error:<what>",
        share <= MAX_FAILED,
    )


def _enough(rollout: Rollout, found: Arms, unit: str) -> Reason:
    now = found.units.filter(pl.col("revision") == rollout.revision)
    treated = int(now["treated"].sum())
    counts = {"treatment": treated, "control": len(now) - treated}
    needed = {"shadow": ("control",), "canary": ("treatment", "control")}.get(rollout.stage, ("treatment",))
    return Reason(
        f"enough {unit}s at this stage",
        " and ".join(f"{counts[arm]:,} of {arm}" for arm in needed),
        f"at least {MIN_UNITS} of each",
        "wait for more traffic",
        all(counts[arm] >= MIN_UNITS for arm in needed),
    )


def _inside(one: Mapping[str, Any]) -> Reason:
    metric, limit, seen = one["metric"], one["limit"], one["difference"]
    needed = f"{'at least' if metric == 'quality' else 'at most'} {in_units(metric, limit)}"
    if seen is None:
        return Reason(f"{NAMES[metric]} stays", one["reason"], needed, "send scores, prices and end times", False)
    holds = seen["value"] >= limit if metric == "quality" else seen["value"] <= limit
    return Reason(f"{NAMES[metric]} stays", _interval(metric, seen), needed, "wait, or roll back", holds)


def _alike(one: Mapping[str, Any]) -> Reason:
    known = one["known"]
    return Reason(
        f"{NAMES[one['metric']]} is known of both arms alike",
        f"of {known['treatment'] or 0:.0%} under the policy and {known['control'] or 0:.0%} of the others",
        "the same share, up to chance",
        "find out why scores or prices of one arm are missing: the difference may come of that alone",
        known["alike"],
    )


def _proven(rollout: Rollout, metrics: Mapping[str, Mapping[str, Any]]) -> Reason:
    quality, cost = metrics["quality"], metrics["cost_usd_per_1k"]
    seen, spent = quality["difference"], cost["difference"]
    holds = seen is not None and spent is not None and seen["low"] >= quality["limit"] and spent["high"] < 0
    return Reason(
        "what the logs left open is proven",
        f"the verdict of run {rollout.run_id} was '{rollout.verdict}'",
        "'deploy', or a canary whose whole intervals are inside the limit of quality and below today's cost",
        "go on with the canary, or at a larger percent",
        holds,
    )
