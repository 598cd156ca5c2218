"""A home whose traces are known: a service of one decision a trace and one of several steps, with real policies."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
from dashboard_fixture import START_NS, Json, verdicts

from ingest.lake import Lake
from optimizer.bundle import write_policy
from optimizer.decisions import COLUMNS
from optimizer.runtime import DENSE, DIM, STOP, Model, featurise, step_features, width
from optimizer.sequential.steps import COLUMNS as STEP_COLUMNS

RUN, CREATED = "20260309T021500", "2026-03-09T02:15:00+00:00"
SHOP, DESK = "shop", "desk"
BIG, SMALL = "big-model", "small-model"
STEPS = ("plan", "code", STOP)
NASTY = "<script>alert(1)</script> **bold** [x](javascript:alert(2))"
LONG = "tell me about this " * 60_000
"""A prompt of more than 1 MB."""
CONTENT = '\n[dashboard]\ncontent = "everyone"\n'
SECOND = 1_000_000_000


def prompt(i: int) -> str:
    return {1: NASTY, 2: LONG}.get(
        i, f"Short question {i}?" if i % 2 else f"Long question {i} " + "and more words " * 30
    )


def trace_id(i: int) -> str:
    return f"{i:032x}"


def write(home: Path, traces: int = 70, *, judge: bool = True) -> Path:
    """The home with its lake and one run; `traces` of each service. Of SHOP every tenth is unpriced, every seventh
    failed, every fifth unscored; a judge scores what a person scored, and often agrees."""
    home.mkdir(exist_ok=True)
    _lake(home, traces, judge)
    _run(home, traces)
    return home


def short_goes_small() -> Model:
    """Short prompts go to the small model, others to the big one, which calls no tools."""
    place = DENSE.index("words")
    arrays: dict[str, Any] = {name: np.zeros((1, 3), dtype=np.int64) for name in ("left", "right")}
    arrays["feature"] = np.array([[place, -1, -1]])
    arrays["left"][0, 0], arrays["right"][0, 0] = 1, 2
    arrays["threshold"] = np.array([[np.log1p(20.5), 0.0, 0.0]])
    arrays["value"] = np.array([[[0.0, 0.0], [0.2, 0.9], [0.8, 0.3]]])
    arrays["able"] = np.array([[0.0, 0.0, 1.0, 1.0], [0.0, 1.0, 1.0, 1.0]])
    return Model("trees", (BIG, SMALL), arrays, 0.1)


def plan_then_stop() -> Model:
    d = width(STEPS)
    weights = np.zeros((d, 3))
    weights[DIM, :] = [-1.0, 0.0, 2.0]  # by the number of steps so far
    arrays = {"mean": np.zeros(d), "scale": np.ones(d), "weights": weights, "bias": np.array([1.0, 0.5, 0.0])}
    return Model("linear", STEPS, arrays, 0.0)


def _run(home: Path, traces: int) -> None:
    folder = home / "runs" / RUN
    said: dict[str, Any] = {"policy_id": "p", "version": RUN, "revision": 1, "evaluation": {}, "created_at": CREATED}
    write_policy(folder / "policy" / SHOP, short_goes_small(), virtual_model=SHOP, incumbent=BIG, **said)
    orchestrator: dict[str, Any] = {"virtual_model": DESK, "incumbent": "plan", "script": ("plan", "code", STOP)}
    write_policy(folder / "policy" / DESK, plan_then_stop(), **orchestrator, **said)
    rows, steps, would = [], [], []
    for i in range(traces):
        features = featurise({"messages": [{"role": "user", "content": prompt(i)}]})
        rows.append(_decision(SHOP, i, 0, BIG if i % 3 else SMALL, features))
        rows.append(_decision(DESK, traces + i, 0, "plan", features))
        history: list[dict[str, object]] = []
        for step, action in enumerate(("plan", "code", STOP)):
            row = _decision(DESK, traces + i, step, action, features)
            steps.append({**row, "step_features": step_features(history), "stop_quality": None, "explored": False})
            history.append({"action": action})
        small = len(prompt(i).split()) <= 20
        for action in (BIG, SMALL):
            chance = 0.95 if (action == SMALL) == small else 0.05
            would.append({"trace_id": trace_id(i), "policy": "suggested", "action": action, "probability": chance})
    pl.DataFrame(rows, schema=dict(COLUMNS)).write_parquet(folder / "decisions.parquet")
    pl.DataFrame(steps, schema=dict(STEP_COLUMNS)).write_parquet(folder / f"steps-{DESK}.parquet")
    pl.DataFrame(would).write_parquet(folder / f"policy_probabilities-{SHOP}.parquet")
    services = verdicts()["services"]
    told = {SHOP: services["alpha"], DESK: {**services["beta-agent"], "orchestration": None}}
    for one in told.values():
        one["run_id"], one["bundle"] = RUN, None
    manifest = {
        "format": 1,
        "run_id": RUN,
        "created_at": "2026-03-09T02:15:00+00:00",
        "snapshot": 1,
        "services": [*told],
    }
    (folder / "manifest.json").write_text(json.dumps(manifest))
    (folder / "verdicts.json").write_text(json.dumps({"services": told}))


def _decision(service: str, i: int, step: int, action: str, features: Any) -> Json:
    names = [BIG, SMALL] if service == SHOP else ["plan", "code", *([STOP] if step else [])]
    share = 1 / len(names)
    known = {"decision_id": f"{trace_id(i)}/{step}", "trace_id": trace_id(i), "service": service, "point": "chat"}
    known |= {
        "span_id": f"{100 * i + step:016x}",
        "step": step,
        "time_ns": START_NS + i * 3600 * SECOND + step * SECOND,
    }
    known |= {"group": f"s{i // 3}", "action": action, "candidates": names, "probabilities": [share] * len(names)}
    known |= {"propensity": share, "propensity_origin": "logged", "quality": 1.0 if i % 2 else 0.0}
    known |= {"cost_usd": 0.002, "billed_usd": 0.002, "latency_s": 1.0, "features": features}
    return {**dict.fromkeys(COLUMNS), **known}


def _lake(home: Path, traces: int, judge: bool) -> None:
    tables: dict[str, list[Json]] = {name: [] for name in ("span_log", "settled_calls", "settled_traces", "span_roles")}
    tables |= {"content_log": [], "score_log": []}
    for i in range(2 * traces):
        _trace(tables, i, SHOP if i < traces else DESK)
        _scores(tables["score_log"], i, judge)
    with Lake.open(home, write=True) as lake:
        lake.write({name: _rows(rows, lake.schema(name)) for name, rows in tables.items() if rows})


def _trace(tables: dict[str, list[Json]], i: int, service: str) -> None:
    trace, start = trace_id(i), START_NS + i * 3600 * SECOND
    failed, unpriced = i % 7 == 0, i % 10 == 0 and service == SHOP
    spans = [
        ("chat <b>", "llm", 0, 900),
        *([] if service == SHOP else [("run", "tool", 1, 400), ("stop", "other", 2, 0)]),
    ]
    if i == 0:  # the same call by another instrumentation, and one with a clock of 1970
        spans += [("twin", "llm", 1, 880), ("lost", "other", 2, 5)]
    costs = [None if unpriced else 0.002 + i / 1e6] + [None] * (len(spans) - 1)
    calls = []
    for place, (name, kind, after, took) in enumerate(spans):
        span, begun = f"{100 * i + place:016x}", start + after * SECOND
        begun = 5 if name == "lost" else begun
        parent = f"{100 * i:016x}" if place else None
        status = "error" if failed and place == 0 else "ok"
        seen = {"trace_id": trace, "span_id": span, "name": name, "service": service, "kind": kind, "status": status}
        seen |= {"start_ns": begun, "end_ns": begun + took * 1_000_000, "policy_action": None}
        tables["span_log"].append(
            {**seen, "parent_span_id": parent, "status_message": "boom" if failed else None}
            | {"attributes": '{"policy.draw": "session"}', "received_ns": start, "batch": 1, "line": 100 * i + place}
        )
        role = {"twin": "duplicate"}.get(name, "own")
        call = f"{100 * i:016x}" if role == "duplicate" else span
        tables["span_roles"].append({"trace_id": trace, "span_id": span, "role": role, "call_id": call})
        if role == "own":
            calls.append(
                {**seen, "model_requested": (BIG if i % 3 else SMALL) if kind == "llm" else None}
                | {"agent": "helper" if service == DESK else None, "tool": name if kind == "tool" else None}
                | {"cost_usd": costs[place], "unpriced": "no price" if unpriced and place == 0 else None}
                | {"input_tokens": 100 if kind == "llm" else None, "output_tokens": 20 if kind == "llm" else None}
                | {"session_id": f"s{i // 3}", "content_span_id": span if kind == "llm" else None, "attempt_of": None}
            )
    tables["settled_calls"] += calls
    tables["content_log"].append(
        {"trace_id": trace, "span_id": f"{100 * i:016x}", "batch": 1}
        | {"input_text": json.dumps([{"role": "user", "content": prompt(i)}])}
        | {"output_text": json.dumps([{"role": "assistant", "content": f"Answer <i>{i}</i>"}])}
    )
    models = sorted({call["model_requested"] for call in calls} - {None})
    tools = sorted({call["tool"] for call in calls} - {None})
    tables["settled_traces"].append(
        {"trace_id": trace, "service": service, "spans": len(spans), "batch": 1}
        | {"settled_ns": start, "session_id": f"s{i // 3}", "name": "chat <b>", "start_ns": start}
        | {"end_ns": start + (1 + i % 9) * SECOND, "calls": len(calls), "model_calls": 1, "errors": int(failed)}
        | {"retries": 0, "unpriced": int(unpriced), "cost_usd": None if unpriced else 0.002 + i / 1e6}
        | {"input_tokens": 100, "output_tokens": 20, "models": json.dumps(models)}
        | {"tools": json.dumps(tools) if tools else None, "agents": '["helper"]' if service == DESK else None}
    )


def _scores(rows: list[Json], i: int, judge: bool) -> None:
    if i % 5 == 0:
        return
    end = START_NS + i * 3600 * SECOND + 10 * SECOND
    good = float(i % 2)
    found = [("quality", good, "human", 60)]
    if judge:
        found.append(("judge", 1 - good if i % 4 == 0 else good * 0.8, "llm-judge", 5))
    if i % 6 == 0:
        found.append(("stars", 4.0, "user", 600))
    for name, value, source, late in found:
        rows.append(
            {"score_id": f"{name}-{i}", "trace_id": trace_id(i), "name": name, "value": value, "source": source}
            | {
                "time_ns": end + late * SECOND,
                "received_ns": end,
                "explanation": NASTY,
                "batch": 1,
                "line": 10 * i + len(name),
            }
            | {"probability": 0.5 if name == "quality" else None}
        )


def _rows(rows: list[Json], schema: pa.Schema) -> pa.Table:
    kept = pa.schema([field for field in schema if field.name in rows[0]])
    return pa.Table.from_pylist(rows, schema=kept)
