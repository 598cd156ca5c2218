"""A rollout in words, for a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from optimizer.rollout.monitor import LOOK_FOR, NAMES, in_units
from optimizer.rollout.state import Rollout

_STAGES = {
    "shadow": "in shadow: the policy only says what it would do",
    "canary": "a canary",
    "full": "in full",
    "rolled_back": "rolled back",
    "none": "not begun",
}


def lines(rollout: Rollout) -> Iterator[str]:
    """The stage, who began it and why, then what the last look found."""
    yield (
        f"{rollout.service}: version {rollout.version}, revision {rollout.revision}, {_STAGES[rollout.stage]}, "
        f"{rollout.percent:g} % of sessions since {rollout.since[:19]}Z"
    )
    if rollout.stage == "rolled_back":
        yield f"  in force: {f'version {rollout.restored}' if rollout.restored else 'the incumbent alone'}"
    if rollout.steps:
        last = rollout.steps[-1]
        yield f"  by {last.by}" + (f": {last.why}" if last.why else "")
    if rollout.stage in ("shadow", "canary"):
        yield f"  the other sessions: {rollout.control}"
    yield f"  bundle: {rollout.folder}"
    if rollout.monitor is None:
        yield "  not looked at yet: retroute rollout watch"
        return
    yield from _seen(rollout.monitor)


def _seen(monitor: Mapping[str, Any]) -> Iterator[str]:
    unit, ratio = monitor["unit"], monitor["ratio"]
    yield f"  look {monitor['looks']} at {monitor['at'][:19]}Z, {unit} by {unit}"
    for name, arm in monitor["arms"].items():
        means = ", ".join(_mean(metric, arm[metric]) for metric in NAMES)
        yield f"    {name}: {arm['decisions']:,} decisions in {arm['units']:,} {unit}s; {means}"
    if shadow := monitor["shadow"]:
        share = shadow["changed"] / shadow["decisions"]
        yield f"    beside the others' {shadow['decisions']:,} decisions the policy would have changed {share:.0%}"
    for one in monitor["metrics"]:
        yield f"    {NAMES[one['metric']]}: {_difference(one)}"
    if ratio["seen"] is not None:
        right = "as drawn" if ratio["ok"] else f"NOT as drawn: {LOOK_FOR}"
        yield f"    arms: {ratio['seen']:.1%} under the policy, {ratio['expected']:.1%} drawn, {right}"
    if monitor["held"]:
        yield f"    {monitor['held']:,} decisions were left to the incumbent, {monitor['failed']:,} of them by an error"


def _mean(metric: str, value: float | None) -> str:
    if value is None:
        return f"no {NAMES[metric]} known"
    if metric == "quality":
        return f"quality {value:.3f}"
    return f"{value:.2f} s" if metric == "latency_s" else f"{value:.3g} USD per 1,000"


def _difference(one: Mapping[str, Any]) -> str:
    metric, seen, limit = one["metric"], one["difference"], one["limit"]
    if seen is None:
        return f"no difference yet: {one['reason']}"
    value, low, high = (in_units(metric, seen[key]) for key in ("value", "low", "high"))
    said = f"{value} ({low} to {high}, {seen['kind']})"
    if limit is not None:
        said += f", limit {in_units(metric, limit)}" + (": BEYOND IT" if one["crossed"] else "")
    if not one["known"]["alike"]:
        said += "; not known of both arms alike, so the difference may come of that"
    if (told := one["predicted"]) is not None and told["low"] is not None and told["high"] is not None:
        said += f"; predicted {in_units(metric, told['low'])} to {in_units(metric, told['high'])} ({told['of']})"
    return said
