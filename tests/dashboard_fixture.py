"""A home with made-up numbers: one run, four services, the four verdicts. Nothing here comes from a model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa

from ingest.lake import Lake

RUN = "20260309T021500Z-made-up"
START_NS = 1_772_323_200_000_000_000  # 1 March 2026
DAYS = 7
HOUR_NS = 3_600_000_000_000

Json = dict[str, Any]


def number(value: float, half: float, kind: str = "asymptotic", estimator: str = "DR", **more: object) -> Json:
    base = {"value": value, "low": value - half, "high": value + half, "kind": kind, "estimator": estimator}
    return {**base, "episodes": 1200, "effective": 412.0, "reason": None, **more}


def refused(reason: str) -> Json:
    keys = ("value", "low", "high", "kind", "estimator", "episodes", "effective")
    return {**dict.fromkeys(keys), "reason": reason}


def check(condition: str, got: str, needed: str, holds: bool, remedy: str = "") -> Json:
    return {"condition": condition, "got": got, "needed": needed, "remedy": remedy, "holds": holds}


NO_OVERLAP = "every long prompt went to big-model, so the log never shows small-model on them"


def _table(today: float, quality: float, suggested: tuple[Json, Json, Json], label: str) -> list[Json]:
    return [
        _row("today", "today's routing", number(today, 0.02), number(quality, 0.012), number(1.82, 0.09)),
        _row("cheapest", "small-model", number(today * 0.2, 0.004), number(quality - 0.09, 0.03), number(0.61, 0.05)),
        _row("strongest", "big-model", number(today * 1.3, 0.03), number(quality + 0.004, 0.02), number(2.31, 0.14)),
        _row(
            "cost_matched_random",
            "cost-matched random",
            number(today * 0.6, 0.03),
            number(quality - 0.03, 0.025),
            number(1.25, 0.1),
        ),
        _row("suggested", label, *suggested),
    ]


def _row(policy: str, label: str, cost: Json, quality: Json, latency: Json) -> Json:
    return {"policy": policy, "label": label, "cost_usd_per_1k": cost, "quality": quality, "latency_s": latency}


def _actions(today: tuple[float, ...], policy: tuple[float | None, ...], n: int) -> list[Json]:
    names = ("big-model", "middle-model-with-a-rather-long-name-2026-02", "small-model")
    return [
        {"action": name, "today_share": was, "policy_share": will, "logged": round(was * n)}
        for name, was, will in zip(names, today, policy, strict=True)
    ]


def costs(decisions: int) -> Json:
    lacking = {"calls": 2 * decisions, "unpriced_calls": decisions // 10, "share_of_calls": 0.05, "tokens": 900}
    lacking |= {"unpriced_tokens": 63, "share_of_tokens": 0.07, "uncounted_calls": 3, "reasons": []}
    listed = {"at": "2026-03-09", "listed": "a list", "dated": "2026-03-01", "stated": 2, "discounts": 1}
    return {
        "price_list": listed,
        "decisions": decisions - 12,
        "billed_usd_per_1k": 1.31,
        "one_list_usd_per_1k": 1.05,
        "billed_unknown": 12,
        "one_list_unknown": 4,
        "unpriced": {"billed": lacking, "one_list": lacking},
        "switching": [
            {"model": "big-model", "turns": 212, "unknown_turns": 3, "usd_per_turn": 0.0061}
            | {"lost_reads_usd_per_turn": 0.0054, "new_writes_usd_per_turn": 0.0007}
        ],
    }


def _service(outcome: str, decisions: int, **more: Any) -> Json:
    base: Json = {
        "verdict": outcome,
        "policy_id": "made-up-policy",
        "policy_label": "doubly robust",
        "run_id": RUN,
        "bundle": None,
        "support": {
            "effective": 412.0,
            "top1_share": 0.04,
            "unsupported_share": 0.0,
            "decisions": decisions,
            "certify_decisions": decisions // 2,
            "actions": [],
        },
        "data": {
            "decisions": decisions,
            "labelled": round(0.9 * decisions),
            "label_share": 0.9,
            "quality_name": "quality",
            "propensity_origin": {"logged": decisions, "estimated": 0},
            "splits": {"train": decisions // 4, "choose": decisions // 4, "certify": decisions // 2},
            "latency_cut_share": None,
            "latency_label": None,
            "unpriced": 0,
        },
        "costs": costs(decisions),
        "limits": {"quality_margin": 0.01, "confidence": 0.95, "latency_s": None},
        "plan": None,
    }
    return {**base, **more}


def _estimator(name: str, savings: Json, quality: Json, latency: Json) -> Json:
    figures = {"savings_usd_per_1k": savings, "quality_change": quality, "latency_change_s": latency}
    kind = {"estimator": name, "kind": {"DM": "assumption", "betting": "certified"}.get(name, "asymptotic")}
    return {"estimator": name, **{key: one if one["value"] is None else one | kind for key, one in figures.items()}}


def _rule(share: float, action: str, *conditions: str) -> Json:
    today = {"today": "large-model", "today_share": 0.61, "agreement": 0.93}
    return {"conditions": list(conditions), "action": action, "share": share, **today}


def verdicts() -> Json:
    """The content of verdicts.json."""
    saved, better, faster = number(0.4125, 0.0911), number(0.0131, 0.0102), number(-0.412, 0.093)
    deploy = _service(
        "deploy",
        3500,
        bundle="bundles/alpha",
        savings_usd_per_1k=saved,
        quality_change=better,
        latency_change_s=faster,
        reasons=[
            check("it saves", "+0.413 USD per 1,000, at least +0.321", "a lower bound above 0", True),
            check(
                "quality stays",
                "+1.3 points, at least +0.3, at most +2.3",
                "a lower bound of at least -1.0 points",
                True,
            ),
            check("enough decisions", "412 effective decisions", "at least 100", True),
        ],
        table=_table(1.05, 0.702, (number(0.6375, 0.05), number(0.7151, 0.014), number(1.408, 0.1)), "doubly robust"),
        points=[
            {
                "point": "answer",
                "decisions": 3500,
                "actions": _actions((0.6, 0.2, 0.2), (0.18, 0.31, 0.51), 3500),
                "savings_usd_per_1k": saved,
                "rules": {
                    "rules": [
                        _rule(0.7, "small-model", "at most 120 words", "no code fences"),
                        _rule(0.3, "large-model", "more than 120 words"),
                    ],
                    "fidelity": 0.93,
                    "savings_usd_per_1k": number(0.38, 0.1),
                    "quality_change": better,
                },
            }
        ],
        frontier=[
            {
                "label": f"weight {i}",
                "cost_usd_per_1k": number(0.3 + 0.12 * i, 0.04),
                "quality": number(0.66 + 0.012 * i, 0.015),
                "chosen": i == 3,
            }
            for i in range(6)
        ],
        curve=[
            {"value_usd": 0.001 * 2**i, "cost_usd_per_1k": number(0.3 + 0.1 * i, 0.06), "quality": number(q, 0.03)}
            for i, q in enumerate((0.65, 0.69, 0.71, 0.72))
        ],
        estimators=[
            _estimator("DM", number(0.39, 0.05), number(0.011, 0.008), number(-0.38, 0.06)),
            _estimator("SNIPS", number(0.44, 0.13), number(0.016, 0.021), number(-0.45, 0.17)),
            _estimator("DR", saved, better, faster),
            _estimator(
                "betting", number(0.42, 0.31), number(0.013, 0.09), refused("a certificate needs every outcome")
            ),
        ],
    )
    deploy["limits"] = {**deploy["limits"], "latency_s": 0.25}
    deploy["data"] = {**deploy["data"], "latency_label": "modelled"}
    small, unclear, even = number(6.21, 2.04), number(0.004, 0.031), number(0.02, 0.31)
    promising = _service(
        "promising",
        758,
        savings_usd_per_1k=small,
        quality_change=unclear,
        latency_change_s=even,
        reasons=[
            check("it saves", "+6.21 USD per 1,000, at least +4.17", "a lower bound above 0", True),
            check(
                "quality stays",
                "+0.4 points, at least -2.7, at most +3.5",
                "a lower bound of at least -1.0 points",
                False,
                "more scored decisions with the suggested actions narrow the interval",
            ),
        ],
        table=_table(22.4, 0.61, (number(16.19, 1.9), number(0.614, 0.03), number(1.84, 0.3)), "best single action"),
        points=[
            {
                "point": "first step",
                "decisions": 758,
                "actions": _actions((0.7, 0.2, 0.1), (0.0, 1.0, 0.0), 758),
                "savings_usd_per_1k": small,
            },
            {
                "point": "second step",
                "decisions": 512,
                "actions": _actions((1.0, 0.0, 0.0), (1.0, 0.0, 0.0), 512),
                "savings_usd_per_1k": refused("the log never chose otherwise here"),
            },
        ],
        frontier=[],
        estimators=[
            _estimator("DM", number(5.9, 1.1), number(0.002, 0.02), number(0.05, 0.2)),
            _estimator("SNIPS", *[refused("only 14 effective decisions")] * 3),
            _estimator("DR", small, unclear, even),
        ],
        plan={"text": "About 2,900 more scored decisions, a third of them with middle-model", "decisions_needed": 2900},
    )
    dearer, worse, slower = number(-0.82, 0.31), number(-0.043, 0.017), number(0.81, 0.22)
    keep = _service(
        "keep",
        2000,
        savings_usd_per_1k=dearer,
        quality_change=worse,
        latency_change_s=slower,
        reasons=[
            check(
                "it saves",
                "-0.82 USD per 1,000, at least -1.13",
                "a lower bound above 0",
                False,
                "keep today's routing",
            ),
            check(
                "probabilities are known",
                "estimated from the log",
                "logged by the router",
                False,
                "log policy.propensity with each decision",
            ),
            check("outcomes are scored", "90% of decisions carry a score", "at least 50%", True),
        ],
        table=_table(2.4, 0.811, (number(3.22, 0.3), number(0.768, 0.02), number(2.63, 0.2)), "plug-in"),
        points=[
            {
                "point": "classify",
                "decisions": 2000,
                "actions": _actions((0.9, 0.05, 0.05), (1.0, 0.0, 0.0), 2000),
                "savings_usd_per_1k": dearer,
            }
        ],
        frontier=[],
        estimators=[_estimator("DR", dearer, worse, slower)],
    )
    keep["data"] = {
        **keep["data"],
        "propensity_origin": {"logged": 0, "estimated": 2000},
        "latency_cut_share": 0.001,
        "unpriced": 12,
    }
    no = refused(NO_OVERLAP)
    cannot = _service(
        "cannot_tell",
        1600,
        policy_id=None,
        policy_label=None,
        savings_usd_per_1k=no,
        quality_change=no,
        latency_change_s=no,
        reasons=[check("evidence", NO_OVERLAP, "an estimate of cost and quality", False, "see what would decide it")],
        table=_table(3.1, 0.74, (no, no, no), "none"),
        points=[
            {
                "point": "answer",
                "decisions": 1600,
                "actions": _actions((0.5, 0.0, 0.5), (None, None, None), 1600),
                "savings_usd_per_1k": no,
            }
        ],
        frontier=[],
        estimators=[],
        plan={
            "text": "Send one in ten requests to the other model, at random, for about nine days",
            "decisions_needed": 1200,
        },
        partial=[
            {
                "policy": "always <i>small</i>",
                "metric": "quality_change",
                "share": 0.44,
                "segment": number(0.012, 0.03),
                "low": -0.478,
                "high": 0.146,
                "extrapolated": number(0.004, 0.026) | {"kind": "assumption"},
                "experiment": "",
            },
        ],
        disagreement={"quality": "DM and DR differ by 3.1 standard errors: the outcome model is off"},
        control={"holds": False, "reason": "the tenant was fixed before the decision, yet moved it"},
    )
    cannot["support"] = {**cannot["support"], "effective": None, "top1_share": None, "unsupported_share": 0.48}
    return {"services": {"alpha": deploy, "beta-agent": promising, "gamma": keep, "delta": cannot}}


def write_run(home: Path, run_id: str = RUN, *, content: Json | None = None) -> Path:
    """A finished run below `home`, with policy folders and, for the deployable service, its exported bundle."""
    folder = home / "runs" / run_id
    folder.mkdir(parents=True)
    content = verdicts() if content is None else content
    end_ns = START_NS + DAYS * 24 * HOUR_NS
    manifest = {
        "format": 1,
        "run_id": run_id,
        "created_at": "2026-03-09T02:15:00+00:00",
        "seconds": 12.5,
        "snapshot": 7,
        "from_ns": START_NS,
        "to_ns": end_ns,
        "services": list(content["services"]),
        "versions": {},
    }
    (folder / "manifest.json").write_text(json.dumps(manifest))
    for name, said in content["services"].items():
        said["run_id"] = run_id
        if said["policy_id"]:
            _write_policy(folder / "policy" / name, run_id, name)
        if said["bundle"]:
            _write_policy(home / said["bundle"] / "policy", run_id, name)
            (home / said["bundle"] / "config.yaml").write_text("model_list: []\n")
    _decisions(content).write_parquet(folder / "decisions.parquet")
    (folder / "verdicts.json").write_text(json.dumps(content))
    (home / "runs" / "active.json").write_text(json.dumps({"alpha": run_id}))
    return folder


def _write_policy(folder: Path, run_id: str, service: str) -> None:
    folder.mkdir(parents=True)
    (folder / "manifest.json").write_text(
        json.dumps({"policy_id": "made-up-policy", "run": run_id, "service": service})
    )
    (folder / "weights.npz").write_bytes(bytes(2048))


def _decisions(content: Json) -> pl.DataFrame:
    """Decisions spread evenly over the days, with the logged counts of the points' actions."""
    rows = []
    for service, said in content["services"].items():
        for point in said["points"]:
            taken = [action["action"] for action in point["actions"] for _ in range(action["logged"])]
            step = DAYS * 24 * HOUR_NS // max(len(taken) - 1, 1)
            rows += [
                {
                    "service": service,
                    "point": point["point"],
                    "action": action,
                    "time_ns": START_NS + i * step,
                    "quality": None if i % 10 == 0 else 0.7,
                }
                for i, action in enumerate(taken)
            ]
    schema = {"service": pl.String, "point": pl.String, "action": pl.String, "time_ns": pl.Int64, "quality": pl.Float64}
    return pl.DataFrame(rows, schema=schema)


def write_lake(home: Path, *, traces: int = 120, first: int = 0) -> None:
    """A lake of made-up calls of two services, some unpriced, failed, unscored or without a session."""
    spans, calls, settled, scores = [], [], [], []
    for i in range(first, traces):
        service = "alpha" if i % 3 else "gamma"
        trace, span = f"{i:032x}", f"{i:016x}"
        start = START_NS + i * HOUR_NS
        spans.append(
            {"trace_id": trace, "span_id": span, "name": "chat", "service": service, "start_ns": start}
            | {"end_ns": start + 10**9, "unknown_keys": '["app.tenant"]' if i % 4 == 0 else None, "batch": 1, "line": i}
        )
        calls.append(
            {"trace_id": trace, "span_id": span, "kind": "llm", "name": "chat", "service": service}
            | {"model_requested": "big-model", "start_ns": start, "end_ns": start + 10**9}
            | {
                "cost_usd": None if i % 10 == 0 else 0.002,
                "unpriced": "no price for big-model" if i % 10 == 0 else None,
            }
            | {"status": "error" if i % 40 == 0 else "ok", "session_id": None if i % 2 else f"s{i}"}
        )
        settled.append({"trace_id": trace, "service": service, "spans": 1, "batch": 1, "settled_ns": start})
        if i % 5:
            scores.append(
                {
                    "score_id": f"score-{i}",
                    "trace_id": trace,
                    "name": "quality",
                    "value": 1.0,
                    "value01": 1.0,
                    "batch": 1,
                    "line": i,
                }
            )
    received = [
        {
            "batch": 1,
            "position": "0",
            "received_ns": START_NS + i * 60_000_000_000,
            "requests": 2,
            "spans": traces // 6,
            "rejected": int(i == 3),
        }
        for i in range(6)
    ]
    found = {
        "span_log": spans,
        "settled_calls": calls,
        "settled_traces": settled,
        "score_log": scores,
        "ingest_log": received,
    }
    with Lake.open(home, write=True) as lake:
        lake.write({table: _rows(rows, lake.schema(table)) for table, rows in found.items()})


def _rows(rows: list[Json], schema: pa.Schema) -> pa.Table:
    kept = pa.schema([field for field in schema if field.name in rows[0]])
    return pa.Table.from_pylist(rows, schema=kept)
