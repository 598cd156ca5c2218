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
"""Columns of the query missing_fields, and what is missing."""

SOURCES = 20
"""Sources that are drawn, those of most calls."""

_COUNTS = ("calls", "llm_calls", "unpriced", "errors", "no_session", "traces", "spans", "scored_traces")


@dataclass(frozen=True)
class Health:
    """All counts of the page. `services` one row each; `spend` as the query unpriced_shares has it."""

    counts: Mapping[str, int]
    services: pl.DataFrame
    spend: pl.DataFrame
    uncounted: int
    """Model calls without token counts."""


def load(service: str | None, since_ns: int | None, until_ns: int | None) -> Health:
    """What there is of a service and a time."""
    asked: dict[str, Any] = {"service": service, "since_ns": since_ns, "until_ns": until_ns}
    calls, traces = data.lake("health_services", **asked), data.lake("health_traces", **asked)
    services = calls.join(traces, on="service", how="full", coalesce=True, nulls_equal=True)
    services = services.with_columns(pl.col(_COUNTS).fill_null(0)).sort("service", nulls_last=True)
    counts = {
        "spans": int(services["spans"].sum()),
        "traces": int(services["traces"].sum()),
        "calls": int(services["calls"].sum()),
        "scores": int(data.lake("scores_counted").item()),
        "unsettled_traces": int(data.lake("waiting_traces").item()),
    }
    spend = calls.select(
        *("service", "unpriced_calls", "tokens", "unpriced_tokens", "uncounted_calls"), calls="billable_calls"
    )
    return Health(counts, services, spend, int(calls["uncounted"].sum()))


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


def missing(service: str | None, since_ns: int | None, until_ns: int | None) -> pl.DataFrame:
    """source, service, calls, field, missing, share: one row for each field of each source of model calls."""
    found = data.lake("missing_fields", service=service, since_ns=since_ns, until_ns=until_ns).head(SOURCES)
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
