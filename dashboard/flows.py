"""What a run says of a service whose traces make several decisions, as records: checked once when read.

Units as in `records`, costs per 1,000 traces, shares in [0, 1]; metrics per trace, each in its own unit.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from dashboard.figures import Unit
from dashboard.records import AGAIN, Figure, Json, UnreadableError, figure

METRICS: Mapping[str, tuple[str, Unit]] = {
    "steps": ("Turns", "number"),
    "active_agents": ("Agents that act", "number"),
    "branches": ("Branches", "number"),
    "tokens": ("Tokens", "number"),
    "cost_usd": ("Cost", "usd"),
    "latency_s": ("Duration", "seconds"),
    "density": ("Density", "number"),
    "density_multi": ("Density with repeats", "number"),
    "edges_per_node": ("Handoffs per agent", "number"),
    "cycles_1": ("Agents that follow themselves", "number"),
    "cycles_2": ("Cycles of two", "number"),
    "cycles_3": ("Cycles of three", "number"),
    "cycles_4": ("Cycles of four", "number"),
    "hub_share": ("Share of the busiest agent", "quality"),
    "entropy": ("Spread over agents, bits", "number"),
    "revisit_rate": ("Turns of agents seen before", "quality"),
    "wasted_suffix": ("Steps after the answer stood", "number"),
    "abandoned": ("Better answer given up", "quality"),
    "oracle_stop_gap": ("Lost by stopping late", "quality_change"),
}
"""Metric -> what it is called, and its unit."""


@dataclass(frozen=True)
class RouteStep:
    """What traces do at a step, of those that get there; `reach` is the share that does (None: not said)."""

    step: int
    today: Mapping[str, float]
    policy: Mapping[str, float] | None
    """None: nothing is suggested."""
    today_reach: float | None
    policy_reach: float | None


@dataclass(frozen=True)
class Baseline:
    label: str
    cost: Figure
    quality: Figure
    latency: Figure | None
    """None: the run does not say."""
    chosen: bool

    @property
    def refused(self) -> bool:
        """Neither cost nor quality is estimated."""
        return self.cost.refused and self.quality.refused


@dataclass(frozen=True)
class Metric:
    """How the agents work together, before and after. `unit` is that of the means, `change_unit` of the change."""

    name: str
    title: str
    definition: str
    unit: Unit
    change_unit: Unit
    today: Figure
    policy: Figure
    change: Figure


@dataclass(frozen=True)
class PromptRow:
    point: str
    prompt: str
    version: str
    traces: int
    scored: int
    cost: Figure
    quality: Figure
    difference: Figure


@dataclass(frozen=True)
class HandoffRow:
    source: str
    target: str
    count: int
    traces: int
    failed: Figure
    cost: Figure
    seconds: Figure
    quality: Figure
    quality_without: Figure
    difference: Figure

    @property
    def refused(self) -> bool:
        """It is too rare for any number but its count."""
        return all(one.refused for one in (self.failed, self.cost, self.seconds, self.quality, self.difference))


@dataclass(frozen=True)
class StepRow:
    """What an agent's turns took of all turns; None: not known."""

    agent: str
    turns: int
    traces: int
    cost_share: float | None
    seconds_share: float | None
    tokens_share: float | None
    failed_share: float | None


@dataclass(frozen=True)
class Flow:
    """All of it. Tables are empty where the run found nothing to say."""

    episodes: int
    decisions: int
    actions: tuple[str, ...]
    outside_tokens: float | None
    outside_cost: float | None
    changed_routes: float | None
    route: tuple[RouteStep, ...]
    stop_rule: tuple[str, ...]
    rules: tuple[str, ...]
    baselines: tuple[Baseline, ...]
    metrics: tuple[Metric, ...]
    prompts: tuple[PromptRow, ...]
    handoffs: tuple[HandoffRow, ...]
    steps: tuple[StepRow, ...]
    confidence: float | None
    """Of the differences between prompts, and between handoffs, together. None: the run did not look at them."""


def flow(service: str, run_id: str, data: Json | None) -> Flow | None:
    """The record of a service's "orchestration"; None for one of single decisions. UnreadableError says what is
    missing or of the wrong kind."""
    if data is None:
        return None
    try:
        return _flow(data)
    except KeyError as error:
        raise UnreadableError(f"verdicts.json of run {run_id}: the flow of {service} lacks {error}", AGAIN) from error
    except (TypeError, ValueError, AttributeError) as error:
        raise UnreadableError(
            f"verdicts.json of run {run_id}: the flow of {service} is not as expected ({error})", AGAIN
        ) from error


def _flow(data: Json) -> Flow:
    outside, friction = data.get("outside_steps") or {}, data.get("friction") or {}
    return Flow(
        episodes=int(data["episodes"]),
        decisions=int(data["decisions"]),
        actions=tuple(map(str, data["actions"])),
        outside_tokens=_share(outside.get("tokens_share")),
        outside_cost=_share(outside.get("cost_share")),
        changed_routes=_share(data.get("changed_routes")),
        route=tuple(_step(row) for row in data["route"]),
        stop_rule=tuple(map(str, data.get("stop_rule") or ())),
        rules=tuple(map(str, data.get("rules") or ())),
        baselines=tuple(
            Baseline(
                str(row["label"]),
                figure(row["cost_usd_per_1k"]),
                figure(row["quality"]),
                figure(row["latency_s"]) if "latency_s" in row else None,
                bool(row.get("chosen")),
            )
            for row in data.get("baselines") or ()
        ),
        metrics=tuple(_metric(row) for row in data.get("organisation") or ()),
        prompts=tuple(_prompt(row) for row in friction.get("prompts") or ()),
        handoffs=tuple(_handoff(row) for row in friction.get("handoffs") or ()),
        steps=tuple(_total(row) for row in friction.get("steps") or ()),
        confidence=_share(friction.get("confidence")),
    )


def _step(row: Json) -> RouteStep:
    policy = row.get("policy")
    return RouteStep(
        int(row["step"]),
        _shares(row["today"]),
        None if policy is None else _shares(policy),
        _share(row.get("today_reach")),
        _share(row.get("policy_reach")),
    )


def _shares(row: Json) -> dict[str, float]:
    return {str(action): round(float(share), 9) for action, share in row.items()}  # 0.9999999999999996 is all of them


def _metric(row: Json) -> Metric:
    name = str(row["metric"])
    title, unit = METRICS.get(name, (name, "number"))
    changes: Mapping[Unit, Unit] = {
        "number": "number_change",
        "usd": "usd_change",
        "seconds": "seconds_change",
        "quality": "quality_change",
    }
    figures = (figure(row[key]) for key in ("today", "policy", "change"))
    return Metric(name, title, str(row.get("definition") or ""), unit, changes.get(unit, unit), *figures)


def _prompt(row: Json) -> PromptRow:
    return PromptRow(
        str(row.get("point") or ""),
        str(row["prompt"]),
        str(row.get("version") or ""),
        int(row["traces"]),
        int(row["scored"]),
        figure(row["cost_usd_per_1k"]),
        figure(row["quality"]),
        figure(row["difference"]),
    )


def _handoff(row: Json) -> HandoffRow:
    figures = ("failed", "cost_usd_per_1k", "seconds", "quality", "quality_without", "difference")
    return HandoffRow(
        str(row["from"]),
        str(row["to"]),
        int(row["count"]),
        int(row["traces"]),
        *(figure(row[name]) for name in figures),
    )


def _total(row: Json) -> StepRow:
    shares = ("cost_share", "seconds_share", "tokens_share", "failed_share")
    return StepRow(
        str(row["agent"]), int(row["turns"]), int(row["traces"]), *(_share(row.get(name)) for name in shares)
    )


def _share(value: object) -> float | None:
    return None if value is None else float(value)  # type: ignore[arg-type]
