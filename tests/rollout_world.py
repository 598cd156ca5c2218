"""An app that is routed by an exported policy and sends its spans through the real ingest, without a process."""

from __future__ import annotations

import random
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from ingest import converter, wal
from ingest.lake import Lake
from ingest.options import ConverterOptions
from ingest.pricing import Price
from optimizer import bundle, runs
from optimizer.rollout.arms import SCHEMA
from optimizer.runtime import Decision, Model, Router

SERVICE = "assistant"
MODELS = ("small", "large")
USD = {"small": 1.0, "large": 10.0}
"""Of a million tokens."""
SETTINGS = """
[services.assistant]
incumbent = "large"
[services.assistant.limits]
quality_margin = 0.05
latency_s = 1.0
[[prices]]
model = "small"
input = 1.0
output = 1.0
[[prices]]
model = "large"
input = 10.0
output = 10.0
"""
CHANGE = {"kind": "asymptotic", "estimator": "blend", "reason": None}


def judged_run(
    home: Path,
    run_id: str,
    *,
    verdict: str = "deploy",
    service: str = SERVICE,
    models: Sequence[str] = MODELS,
    choice: str = "small",
    **settings: Any,
) -> Path:
    """A run whose policy for the service takes `choice`, and what was said of it; the policy's folder. The last of the
    models is the incumbent."""
    folder = home / "runs" / run_id
    values = np.array([float(name == choice) for name in models])
    policy = runs.policy_folder(folder, service)
    usual: dict[str, Any] = {"revision": 1, "incumbent": models[-1]}
    bundle.write_policy(
        policy,
        settings.pop("model", Model("constant", tuple(models), {"values": values}, 0.05)),
        policy_id=service,
        version=run_id,
        virtual_model=service,
        evaluation={},
        created_at="2026-11-30T00:00:00+00:00",
        **usual | settings,
    )
    said = {
        "verdict": verdict,
        "run_id": run_id,
        "policy_id": f"{service}@{run_id}",
        "reasons": [{"condition": "evidence", "got": "little", "needed": "", "remedy": "", "holds": False}],
        "limits": {"confidence": 0.95},
        "support": {"certify_decisions": 400, "effective": 210.5},
        "savings_usd_per_1k": {**CHANGE, "value": 1.6, "low": 1.2, "high": 2.0},
        "quality_change": {**CHANGE, "value": 0.0, "low": -0.04, "high": 0.04},
        "latency_change_s": dict.fromkeys(("value", "low", "high", "kind")) | {"reason": "no duration is known"},
    }
    runs.write_json(folder / "verdicts.json", {"services": {service: said}})
    runs.write_json(folder / "manifest.json", {"run_id": run_id, "created_at": "", "services": [service]})
    return policy


@dataclass
class App:
    """Whoever asks is a new session; each answer is right with its model's probability."""

    home: Path
    bundle: Path
    right: Mapping[str, float] = field(default_factory=lambda: {"small": 0.9, "large": 0.9})
    seconds: Mapping[str, float] = field(default_factory=lambda: {"small": 0.5, "large": 1.0})
    rng: random.Random = field(default_factory=lambda: random.Random(3))
    asked: int = 0
    sent: list[dict[str, Any]] = field(default_factory=list)
    """What arrived, as rows of `arms.SCHEMA`, with the version that decided."""
    stores: bool = True
    """Whether spans go through the real ingest."""

    def __post_init__(self) -> None:
        if self.stores:
            Lake.open(self.home, write=True).close()
        (self.home / "home.json").write_text('{"format": 1}')
        (self.home / "retroute.toml").write_text(SETTINGS)

    def router(self) -> Router:
        """What a proxy loads."""
        return Router.load(self.bundle / "policy", draw=self.rng.random)

    def serve(self, requests: int, *, lost: float = 0.0, turns: int = 1, scored: float = 1.0) -> list[Decision]:
        """Route requests and send their spans; `lost` is the share of the policy's own that never arrive."""
        exporter, provider = InMemorySpanExporter(), TracerProvider(resource=Resource({"service.name": SERVICE}))
        provider.add_span_processor(SimpleSpanProcessor(exporter))
        tracer, router, decisions = provider.get_tracer("app"), self.router(), []
        for _ in range(requests):
            self.asked += 1
            for turn in range(turns):
                session = f"s{self.asked}"
                context = {"messages": f"question {self.asked} {turn}", "metadata": {"session": session}}
                decision = router.decide(context)
                decisions.append(decision)
                if decision.arm == "treatment" and self.rng.random() < lost:
                    continue
                self._answer(tracer, decision, session, self.rng.random() < scored)
        if self.stores:
            store(self.home, exporter)
        return decisions

    def arrived(self, version: str, since_ns: int) -> pl.DataFrame:
        """What a look finds in the lake."""
        rows = [row for row in self.sent if row["version"] == version and row["time_ns"] >= since_ns]
        return pl.DataFrame(rows, schema={**SCHEMA, "version": pl.String}).drop("version")

    def _answer(self, tracer: Any, decision: Decision, session: str, scored: bool) -> None:
        tokens = 100 + self.rng.randrange(200)
        took = round(self.seconds[decision.action] * (0.5 + self.rng.random()) * 1e9)
        quality = float(self.rng.random() < self.right[decision.action]) if scored else None
        facts = {
            "gen_ai.operation.name": "chat",
            "gen_ai.request.model": decision.action,
            "gen_ai.usage.input_tokens": tokens,
            "gen_ai.usage.output_tokens": 50,
            "gen_ai.conversation.id": session,
        }
        start = time.time_ns()
        span = tracer.start_span("chat", attributes=facts | decision.attributes(), start_time=start)
        if scored:
            result = {"gen_ai.evaluation.name": "quality", "gen_ai.evaluation.score.value": quality}
            span.add_event("gen_ai.evaluation.result", result)
        span.end(end_time=start + took)
        self.sent.append(
            {
                "trace_id": f"{span.get_span_context().trace_id:032x}",
                "session": session,
                "time_ns": start,
                "arm": decision.arm,
                "reason": decision.reason,
                "action": decision.action,
                "revision": decision.revision,
                "shadow": decision.shadow or None,
                "cost_usd_per_1k": (tokens + 50) * USD[decision.action] / 1e3,
                "quality": quality,
                "latency_s": took / 1e9,
                "version": decision.version,
            }
        )


def store(home: Path, exporter: InMemorySpanExporter) -> None:
    """What a collector does with the spans."""
    body = encode_spans(exporter.get_finished_spans()).SerializeToString()
    log = wal.Wal(home / "wal")
    log.write([wal.Record("traces", "protobuf", 1, body)])
    log.close()
    prices = tuple(Price(name, usd, usd) for name, usd in USD.items())
    converter.run(home, ConverterOptions(quiet_s=0.0, commit_s=0.0, prices=prices), lambda: True)
