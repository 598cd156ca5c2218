"""What a run keeps of the experiment that would decide a service, and what a budget buys of it.

plan-SERVICE.json, written by `evaluate`: {format, unit, exploration, labels}. `exploration` is what `retroute plan
--json` says of the service, and so is `labels` of `--labels`, without its list of traces but with `drawn` (action ->
decisions to have scored) and `budgets` (what other numbers of scores buy: [{budget, half_width}]). For a service that
decides step by step the unit is "trace", `labels` null, and `exploration` has the sentence of the verdict; `actions`
are those among which a step is drawn, and `drawn` the chance of that.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from optimizer.export.experiment import DRAWN
from optimizer.logged import OTHER
from optimizer.planned import Question, labels_of
from optimizer.sizing import judged

FORMAT = 1
BUDGETS = (0.25, 0.5, 1.0, 2.0, 4.0)
"""Times the number of scores that is planned."""


def plan_json(question: Question, exploration: Mapping[str, Any]) -> dict[str, Any]:
    """The contents of the file. exploration: what `planned.exploration_json` says of the question."""
    labels = None if question.steps is not None else _labels(question)
    unit = "decision" if question.steps is None else "trace"
    return {"format": FORMAT, "unit": unit, "exploration": dict(exploration), "labels": labels}


def steps_plan_json(said: Mapping[str, Any], *, run_id: str, point: str, actions: Sequence[str]) -> dict[str, Any]:
    """The contents of the file for a service that decides step by step; said: its part of verdicts.json."""
    decided = said["plan"] is None
    exploration = {
        "verdict": said["verdict"],
        "run_id": run_id,
        "point": point,
        "policy_label": said["policy_label"],
        "decided": decided,
        "plan": None,
        "steps": said["plan"],
        "refused": None,
    }
    among = [name for name in actions if name != OTHER]
    return {
        "format": FORMAT,
        "unit": "trace",
        "exploration": exploration,
        "labels": None,
        "actions": among,
        "drawn": DRAWN,
    }


def _labels(question: Question) -> dict[str, Any]:
    planned = labels_of(question, None)
    said = {name: value for name, value in planned.said.items() if name != "traces"}
    data = question.data
    picked = planned.plan["drawn"].to_numpy() if len(planned.plan) else np.zeros(len(data), dtype=np.bool_)
    drawn = {name: int((picked & (data.actions == k)).sum()) for k, name in enumerate(data.action_names)}
    budgets: list[dict[str, Any]] = []
    if said["half_width"] is not None:
        least = said["budget"]
        for times in BUDGETS:
            count = min(math.ceil(times * least), said["unscored"])
            if count >= _floor(question) and count not in [one["budget"] for one in budgets]:
                budgets.append({"budget": count, "half_width": labels_of(question, count).said["half_width"]})
    return {**said, "drawn": drawn, "budgets": budgets}


def _floor(question: Question) -> int:
    from optimizer import label_plan

    lacking = np.isnan(question.data.quality) | question.data.judge_only
    return label_plan.smallest_budget(question.data.actions[lacking])


@dataclass(frozen=True)
class Bought:
    """What an experiment gives within a budget."""

    share: float
    """Of the traffic that takes part."""
    days: float | None
    """Until it ends: enough to decide, or the budget is spent. None: the log spans no time."""
    decisions: float
    """In the experiment."""
    cost_usd: float
    """Spent by then; negative: saved."""
    half_width: float
    """Of the interval of quality by then."""
    decides: bool


def bought(plan: Mapping[str, Any], *, total_usd: float | None, per_day_usd: float | None) -> Bought:
    """The plan (`exploration.plan` of the file) within a budget; None: without limit. Costs are taken at the upper end
    of their interval, so that the budget holds; where that is a saving, no budget limits anything."""
    pace, needed = plan["decisions_per_day"], float(plan["decisions"])
    cost = plan["cost_usd_per_day"]
    most = 0.0 if cost["high"] is None else max(float(cost["high"]), 0.0)
    share = 1.0 if per_day_usd is None or most <= per_day_usd else per_day_usd / most
    decisions = needed
    if total_usd is not None and most > 0 and pace:
        decisions = min(needed, total_usd / most * pace)
    days = None if not pace else decisions / pace / share if share > 0 else math.inf
    spent = 0.0 if cost["value"] is None or not pace else float(cost["value"]) * decisions / pace
    width = half_width(plan, decisions) if share > 0 else math.inf
    return Bought(share, days, decisions if share > 0 else 0.0, spent, width, decisions >= needed and share > 0)


def half_width(plan: Mapping[str, Any], decisions: float, *, as_today: bool = False) -> float:
    """Of the interval of quality after so many decisions by the table, or as today; infinite after none."""
    variance = float(plan["variance_today" if as_today else "variance"])
    count = judged(decisions, int(plan["earlier"]))
    return float(plan["z"]) * math.sqrt(variance / count) if count > 0 else math.inf
