"""Named queries and migrations: .sql files beside this module, checked against their own headers.

A query's header comment says what it gives, its parameters, its columns and its order:

    -- Purpose, in a sentence or two.
    -- parameters: service, since_ns           ("none" without any)
    -- columns: service, calls, first_ns       what they mean, if the names do not say it
    -- order: service                          ("one row" when there is but one)
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

QUERIES = (
    "calls",
    "calls_billable",
    "calls_by_time",
    "calls_to_reprice",
    "calls_within",
    "clock_faults",
    "counts",
    "decision_calls",
    "decision_spans",
    "echoed_responses",
    "estimated_tokens",
    "fallbacks",
    "health_batches",
    "health_by_service",
    "health_calls",
    "health_traces",
    "instrumentations",
    "last_batch",
    "logged_features",
    "model_scopes",
    "modelled_latency",
    "policy_versions",
    "price_lists",
    "priced_days",
    "propensity_faults",
    "received_by_time",
    "recorded_twice",
    "redactions",
    "rejections",
    "repricings",
    "response_keys",
    "rollout_decisions",
    "score_reach",
    "score_scales",
    "scored_spans",
    "scores",
    "scores_counted",
    "scores_judging",
    "scores_lost",
    "services",
    "services_seen",
    "session_draws",
    "session_traces",
    "settled_among",
    "spend_by_step",
    "spend_by_task",
    "spend_by_time",
    "step_links",
    "step_texts",
    "stored_days",
    "tasks_by_time",
    "texts_of_call",
    "trace_calls",
    "trace_events",
    "trace_keys",
    "trace_models",
    "trace_options",
    "trace_prompts",
    "trace_scores",
    "trace_shown",
    "trace_sizes",
    "trace_spans",
    "traces_found",
    "traces_with",
    "unknown_attributes",
    "unmapped_scores",
    "unpriced",
    "unpriced_shares",
    "unsettled_traces",
    "waiting_traces",
)
"""Every file of sql/queries; a name that is not here does not exist."""


@dataclass(frozen=True)
class Query:
    """One named query. `parameters` are bound by name; one left out is NULL."""

    name: str
    purpose: str
    parameters: tuple[str, ...]
    columns: tuple[str, ...]
    order: str
    text: str


@dataclass(frozen=True)
class Migration:
    """One numbered step of the lake's schema."""

    number: int
    name: str
    text: str


@cache
def query(name: str) -> Query:
    """The query called `name`. Raises ValueError when there is none."""
    if name not in QUERIES:
        raise ValueError(f"no query is called {name!r}; there are {', '.join(QUERIES)}")
    return parse(name, (files("ingest") / "sql" / "queries" / f"{name}.sql").read_text(encoding="utf-8"))


def parse(name: str, text: str) -> Query:
    """A query from its file's text. Raises ValueError when a part of the header is missing."""
    header = [line[2:].strip() for line in text.splitlines() if line.startswith("--")]
    fields: dict[str, str] = {}
    purpose: list[str] = []
    for line in header:
        field, colon, value = line.partition(":")
        if colon and field in ("parameters", "columns", "order"):
            fields[field] = value.strip()
        elif not fields:
            purpose.append(line)
    if not purpose or fields.keys() != {"parameters", "columns", "order"}:
        raise ValueError(f"query {name}: the header needs a purpose, parameters, columns and order, in that sequence")
    return Query(
        name, " ".join(purpose), _names(fields["parameters"]), _names(fields["columns"]), fields["order"], text
    )


def used_parameters(text: str) -> tuple[str, ...]:
    """Names of the `$parameters` that a query's statement uses, sorted."""
    statement = "\n".join(line.partition("--")[0] for line in text.splitlines())
    return tuple(sorted(set(re.findall(r"\$([a-z_]+)", statement))))


@cache
def migrations() -> tuple[Migration, ...]:
    """All migrations in the order in which they are applied."""
    folder = files("ingest") / "sql" / "migrations"
    found = [
        Migration(int(named[1]), named[2], file.read_text(encoding="utf-8"))
        for file in folder.iterdir()
        if (named := re.fullmatch(r"(\d{3})_(\w+)\.sql", file.name))
    ]
    return tuple(sorted(found, key=lambda migration: migration.number))


def _names(text: str) -> tuple[str, ...]:
    return () if text == "none" else tuple(name.strip() for name in text.split(","))
