"""What arrived -> what the page on data health shows, all from rollups: it costs the same however much there is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import polars as pl

from dashboard import data
from dashboard.spend_data import HOUR_NS, step, window

FIELDS: Mapping[str, str] = {
    "no_model": "Model",
    "no_tokens": "Tokens",
    "no_price": "Price",
    "no_session": "Session",
    "no_user": "User",
    "no_input": "Prompt",
    "no_output": "Answer",
    "no_end": "End",
}
"""Counts of what model calls do not say, and what is missing."""

SOURCES = 20
"""Sources that are drawn, those of most calls."""

MODEL_CALLS = ("llm", "embedding")

_COUNTS = ("calls", "llm_calls", "unpriced", "errors", "no_session", "traces", "spans", "scored_traces")


@dataclass(frozen=True)
class Health:
    """All counts of the page. `services` one row each; `spend` as the query unpriced_shares has it."""

    counts: Mapping[str, int]
    services: pl.DataFrame
    spend: pl.DataFrame
    unpriced: pl.DataFrame
    """service, model, reason, calls, tokens, uncounted_calls: calls without a cost, the most first."""
    missing: pl.DataFrame
    """source, service, calls, field, missing, share: of each source of model calls, field by field."""
    uncounted: int
    """Model calls without token counts."""


def load(service: str | None, since_ns: int | None, until_ns: int | None) -> Health:
    """What there is of a service and a time."""
    asked: dict[str, Any] = {"service": service, "since_ns": since_ns, "until_ns": until_ns}
    told = data.lake("health_calls", **asked)
    calls, traces = _by_service(told), data.lake("health_traces", **asked)
    services = calls.join(traces, on="service", how="full", coalesce=True, nulls_equal=True)
    services = services.with_columns(pl.col(_COUNTS).fill_null(0)).sort("service", nulls_last=True)
    counts = {
        "spans": int(services["spans"].sum()),
        "traces": int(services["traces"].sum()),
        "calls": int(services["calls"].sum()),
        "scores": int(data.lake("scores_counted").item()),
        "unsettled_traces": int(data.lake("waiting_traces").item()),
    }
    told_by = {"calls": "billable_calls", "unpriced_calls": "unpriced"}
    spend = calls.select("service", "tokens", "unpriced_tokens", "uncounted_calls", **told_by)
    return Health(counts, services, spend, _unpriced(told), _missing(told), int(calls["uncounted"].sum()))


def _by_service(told: pl.DataFrame) -> pl.DataFrame:
    """Rows of the query health_calls, summed. `tokens` are those told by calls that were to be priced."""
    modelled, lacking = pl.col("kind").is_in(MODEL_CALLS), pl.col("reason").is_not_null()
    return (
        told.group_by("service")
        .agg(
            pl.col("calls").sum(),
            pl.col("calls").filter(pl.col("kind") == "llm").sum().alias("llm_calls"),
            pl.col("calls").filter(lacking).sum().alias("unpriced"),
            pl.col("errors").filter(modelled).sum(),
            pl.col("no_session").filter(modelled).sum(),
            pl.col("no_tokens").filter(modelled).sum().alias("uncounted"),
            pl.when(lacking).then("calls").otherwise("priced").sum().alias("billable_calls"),
            pl.col("tokens").sum(),
            pl.col("tokens").filter(lacking).sum().alias("unpriced_tokens"),
            pl.col("no_tokens").filter(lacking).sum().alias("uncounted_calls"),
        )
        .sort("service", nulls_last=True)
    )


def _unpriced(told: pl.DataFrame) -> pl.DataFrame:
    """service, model, reason, calls, tokens, uncounted_calls: calls without a cost, the most first."""
    by = ["service", "model", "reason"]
    uncounted = pl.col("no_tokens").sum().alias("uncounted_calls")
    summed = told.filter(pl.col("reason").is_not_null()).group_by(by).agg(pl.col("calls", "tokens").sum(), uncounted)
    return summed.sort("calls", *by, descending=[True, False, False, False], nulls_last=True)


def received(since_ns: int | None, until_ns: int | None) -> pl.DataFrame:
    """received_ns, requests, spans, rejected, problem: in steps that suit the time there is."""
    asked = {"since_ns": since_ns, "until_ns": until_ns}
    hours = data.lake("received_by_time", step_ns=HOUR_NS, **asked)
    if not hours.height:
        return hours
    size = _step(int(hours["received_ns"][-1]) - int(hours["received_ns"][0]))
    return hours if size == HOUR_NS else data.lake("received_by_time", step_ns=size, **asked)


def happened(service: str | None, since_ns: int | None, until_ns: int | None, now_ns: int) -> pl.DataFrame:
    """start_ns, calls: in steps that suit the time there is."""
    asked = window(data.lake("services_seen"), service, since_ns, until_ns, now_ns)
    size = HOUR_NS if asked is None else _step(asked.until_ns - asked.since_ns - HOUR_NS)
    found = data.lake("calls_by_time", service=service, since_ns=since_ns, until_ns=until_ns, step_ns=size)
    return found.filter(pl.col("start_ns").is_not_null())


def _step(length_ns: int) -> int:
    return 60 * 10**9 if length_ns <= HOUR_NS else step(length_ns + HOUR_NS)


def _missing(told: pl.DataFrame) -> pl.DataFrame:
    """source, service, calls, field, missing, share: one row for each field of each source of model calls."""
    by = ["service", "dialect", "scope", "scope_version"]
    lacking = pl.col("calls").filter(pl.col("reason").is_not_null()).sum().alias("no_price")
    counted = [pl.col("calls", *(name for name in FIELDS if name != "no_price")).sum(), lacking]
    found = told.filter(pl.col("kind").is_in(MODEL_CALLS)).group_by(by).agg(counted)
    found = found.sort("calls", *by, descending=[True, *[False] * len(by)], nulls_last=True).head(SOURCES)
    version = pl.when(pl.col("scope_version").fill_null("") != "").then(pl.format(" {}", "scope_version"))
    source = pl.format(
        "{} · {}{}",
        pl.col("service").fill_null("unknown"),
        pl.coalesce(pl.when(pl.col("scope") != "").then("scope"), "dialect", pl.lit("unknown")),
        version.otherwise(pl.lit("")),
    )
    long = found.with_columns(source=source).unpivot(
        list(FIELDS), index=["source", "service", "calls"], variable_name="column", value_name="missing"
    )
    return long.with_columns(
        field=pl.col("column").replace_strict(dict(FIELDS), return_dtype=pl.String),
        share=pl.col("missing") / pl.col("calls"),
    )
