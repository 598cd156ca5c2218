"""Made-up contents of what a run keeps beside its verdicts: backtest and regressions of a service."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from dashboard_fixture import START_NS, number, refused

Json = dict[str, Any]
DAY_NS = 86_400_000_000_000
METRICS = {"cost_usd_per_1k": (0.6, 0.05), "quality": (0.71, 0.03), "latency_s": (1.4, 0.1)}


def trial(policy: str, metric: str, estimator: str, day: int, *, held: bool | None = True) -> Json:
    value, half = METRICS[metric]
    seen = number(value + (0 if held else 3 * half), half, estimator="SNIPS")
    predicted = number(value, half, estimator=estimator)
    if held is None:
        predicted = refused("only 14 effective decisions; below 20 no interval can be trusted")
    return {
        "policy": policy,
        "metric": metric,
        "estimator": estimator,
        "cut_ns": START_NS + day * DAY_NS,
        "before": 300,
        "after": 310,
        "predicted": predicted,
        "seen": seen,
        "low": None if held is None else value - 1.41 * half,
        "high": None if held is None else value + 1.41 * half,
        "held": held,
    }


def backtest() -> Json:
    """What backtest.json keeps: 2 policies, 3 outcomes, 2 methods, 3 cuts; quality fails once, a latency is refused."""
    trials = [
        trial(policy, metric, estimator, day, held=_held(metric, estimator, day))
        for policy in ("logged", "learned")
        for metric in METRICS
        for estimator in ("DM", "DR")
        for day in (4, 5, 6)
    ]
    keys = dict.fromkeys((one["policy"], one["metric"], one["estimator"]) for one in trials)
    counts = []
    for key in keys:
        own = [one["held"] for one in trials if (one["policy"], one["metric"], one["estimator"]) == key]
        told = [held for held in own if held is not None]
        counts.append(
            dict(zip(("policy", "metric", "estimator"), key, strict=True)) | {"trials": len(told), "held": sum(told)}
        )
    chosen = [beside("cost_usd_per_1k", True), beside("quality", False)]
    in_force = [{"run_id": "20260301T021500Z", "decisions": 812, "figures": [beside(name, True) for name in METRICS]}]
    return {
        "refused": None,
        "confidence": 0.95,
        "trials": trials,
        "counts": counts,
        "chosen": chosen,
        "in_force": in_force,
    }


def _held(metric: str, estimator: str, day: int) -> bool | None:
    if (metric, day) == ("latency_s", 6):
        return None
    return not (metric == "quality" and estimator == "DM" and day == 5)


def beside(metric: str, held: bool) -> Json:
    value, half = METRICS[metric]
    seen = number(value + (0.2 if held else 4) * half, half, estimator="mean")
    return {
        "metric": metric,
        "predicted": number(value, half),
        "seen": seen,
        "low": value - 1.41 * half,
        "high": value + 1.41 * half,
        "held": held,
    }


def segment(
    dimension: str, name: str, quality: Json, saving: Json, flags: tuple[str, str], decisions: int = 400
) -> Json:
    return {
        "dimension": dimension,
        "segment": name,
        "decisions": decisions,
        "changed_share": 0.42,
        "savings_usd_per_1k": saving,
        "quality_change": quality,
        "cost_flag": flags[0],
        "quality_flag": flags[1],
    }


def regressions() -> Json:
    """What regressions.json keeps: four segments, one that loses, one refused; two worst decisions; a version."""
    few = refused("only 12 effective decisions; below 20 no interval can be trusted")
    rule = {"conditions": ["at most 90 words"], "action": "small-model", "share": 1.0, "agreement": 0.9}
    return {
        "refused": None,
        "method": "Bonferroni",
        "confidence": 0.95,
        "each": 1 - 0.05 / 8,
        "intervals": 8,
        "quality_margin": 0.01,
        "segments": [
            segment("Prompt length", "up to 90 characters", number(0.05, 0.02), number(0.3, 0.1), ("better", "better")),
            segment(
                "Prompt length", "over 90 characters", number(-0.08, 0.05), number(0.5, 0.1), ("better", "worse"), 900
            ),
            segment("Suggested", "<b>small</b>", number(0.01, 0.03), number(-0.1, 0.4), ("unclear", "unclear"), 600),
            segment("Tools", "tools offered", few, number(0.2, 0.3), ("unclear", "refused"), 61),
        ],
        "small": [{"dimension": "Answer", "segment": "JSON asked for", "decisions": 9}],
        "worst": [
            {
                "trace_id": f"{place:032x}",
                "time_ns": START_NS + place * DAY_NS,
                "today": "big-model",
                "suggested": "small-model",
                "quality_today": 0.8,
                "quality_suggested": quality,
                "savings_usd_per_1k": 0.4,
            }
            for place, quality in ((1, 0.31), (2, 0.52))
        ],
        "previous": {
            "run_id": "20260301T021500Z",
            "in_force": True,
            "gone": ["old-model"],
            "new": ["small-model"],
            "rules": {"rules": [{**rule, "today": "big-model", "today_share": 0.6}]},
            "refused": None,
            "actions": [
                {"action": "big-model", "before": 0.55, "after": 0.18},
                {"action": "small-model", "before": 0.45, "after": 0.82},
            ],
            "agreement": 0.61,
            "moved": 0.37,
            "savings_usd_per_1k": number(0.12, 0.05),
            "quality_change": number(0.004, 0.02),
        },
    }


def keep(folder: Path, service: str, kind: str, content: Json | str) -> None:
    """Writes a kept file of a run; a text as it is."""
    text = content if isinstance(content, str) else json.dumps(content)
    (folder / f"{kind}-{service}.json").write_text(text)
