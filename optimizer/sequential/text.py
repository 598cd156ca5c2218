"""What a person reads in the terminal about an orchestrated service; the numbers are those of verdicts.json."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

Record = Mapping[str, Any]
Estimated = Callable[[Record, Callable[[float, float], str]], str]
"""An estimate and its unit -> text with the interval; see `report.estimate`."""

SHOWN = ("steps", "active_agents", "cost_usd", "cycles_1", "cycles_2", "hub_share", "abandoned", "oracle_stop_gap")
"""Metrics of organisation that are printed; the others are in the JSON and on the dashboard."""
MOST = 3
"""Rows of a table of friction that are printed."""
NOTABLE = 0.05
"""Actions of a step with a smaller share are not printed."""


def lines(service: Record, estimate: Estimated) -> list[str]:
    """Route, rules, organisation and friction of a service; nothing for one of single decisions."""
    said = service.get("orchestration")
    if not said:
        return []
    found = [f"{said['decisions']:,} decisions in {said['episodes']:,} traces among {', '.join(said['actions'])}"]
    found += [f"left out: {count:,} traces, {reason}" for reason, count in said["left_out"].items()]
    outside = said["outside_steps"]
    if outside["tokens_share"] is not None:
        cost = outside["cost_share"]
        paid = "" if cost is None else f" and {cost:.1%} of the cost"
        found.append(f"outside the named steps: {outside['tokens_share']:.1%} of the tokens{paid}")
    found += _route(said)
    if said["rules"]:
        found += ["what it does:", *(f"  {line}" for line in said["rules"])]
        found += ["when it stops:", *(f"  {line}" for line in said["stop_rule"])]
        found.append(
            f"judged without its exploration: exported, it draws one step of a trace at random, each of them with "
            f"{said['explored_per_step']:.0%} until it has"
        )
    return [*found, *_organised(said, estimate), *_friction(said, estimate)]


def _route(said: Record) -> list[str]:
    found = []
    if said["changed_routes"] is not None:
        found.append(f"{said['changed_routes']:.0%} of the judging traces would have taken another route")
    for step in said["route"]:
        now = f"today {step['today_reach']:.0%} of traces: {_shares(step['today'])}"
        then = "" if step["policy"] is None else f"; policy {step['policy_reach']:.0%}: {_shares(step['policy'])}"
        found.append(f"  step {step['step']}: {now}{then}")
    return found


def _shares(shares: Mapping[str, float]) -> str:
    kept = sorted(((name, share) for name, share in shares.items() if share >= NOTABLE), key=lambda one: -one[1])
    return ", ".join(f"{name} {share:.0%}" for name, share in kept) or "nothing"


def _organised(said: Record, estimate: Estimated) -> list[str]:
    """Today's mean and, where it can be told, the policy's."""
    shown = [one for one in said["organisation"] if one["metric"] in SHOWN and one["today"]["value"] is not None]
    found = []
    for one in shown:
        told = f", policy {estimate(one['policy'], _plain)}" if one["policy"]["value"] is not None else ""
        found.append(f"  {one['metric']}: today {estimate(one['today'], _plain)}{told}")
    refused = {one["policy"]["reason"] for one in shown if one["policy"]["value"] is None}
    head = ["how its agents work together, mean per trace:"] if found else []
    return [*head, *found, *(f"  refused for the policy: {reason}" for reason in sorted(filter(None, refused)))]


def _friction(said: Record, estimate: Estimated) -> list[str]:
    tables = said.get("friction") or {"prompts": [], "handoffs": []}
    found = []
    worse = [row for row in tables["prompts"] if _below(row["difference"])]
    for row in sorted(worse, key=lambda row: row["difference"]["value"])[:MOST]:
        version = f"@{row['version']}" if row["version"] else ""
        found.append(
            f"  prompt {row['prompt']}{version}: its {row['traces']:,} traces score "
            f"{estimate(row['difference'], _points)} beside the others"
        )
    fails = [row for row in tables["handoffs"] if row["failed"]["value"]]
    found += [
        f"  {row['from']} to {row['to']}: fails in {estimate(row['failed'], _percent)} of {row['count']:,}"
        for row in sorted(fails, key=lambda row: -row["failed"]["value"] * row["count"])[:MOST]
    ]
    return ["where it goes wrong (association, not effect):", *found] if found else []


def _below(difference: Record) -> bool:
    return difference["high"] is not None and difference["high"] < 0


def _plain(value: float, _scale: float) -> str:
    return f"{value:.3g}"


def _points(value: float, _scale: float) -> str:
    return f"{100 * value:+.1f} points"


def _percent(value: float, _scale: float) -> str:
    return f"{100 * value:.1f} %"
