"""What settled calls add up to, by minute and by trace: the rows that keep the lake's rollups. Pure.

Rows of `calls_by_minute` are only ever added, those that take away with negative counts, and joined again by the
upkeep; facts of traces lie in their own rows. The migration `rollups` says what the columns mean. Polars counts so few
rows in a fifth of the time that DuckDB takes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Literal

import orjson
import polars as pl

DIMENSIONS = (
    *("minute_ns", "grain_ns", "service", "workflow", "agent", "kind", "name", "tool", "provider", "model", "status"),
    *("unpriced", "retried", "dialect", "scope", "scope_version"),
)
"""What rows of `calls_by_minute` are told apart by, beside the day that brought the calls."""

HOUR_NS = 3_600_000_000_000
_MINUTE_NS = 60_000_000_000
_DAY_NS = 24 * HOUR_NS
_FRESH_NS = 2 * _DAY_NS
"""Calls that started longer before the day that brought them are counted by the hour."""

_MOST = 2**40
"""Tokens of one call that are counted at most, so that no sum of what was told overflows."""

_LONG_NUMBERS = "[0-9a-f]{12,}|[0-9]{9,}|[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f-]+"

_TOKENS = ("input_tokens", "cache_read_tokens", "cache_write_tokens", "output_tokens", "reasoning_tokens")
_USD = ("cost_usd", "input_usd", "cache_read_usd", "cache_write_usd", "output_usd", "reasoning_usd", "tools_usd")
_BOUNDS_S = (-math.inf, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, math.inf)
LATENCIES = (
    *("under_100ms", "under_200ms", "under_500ms", "under_1s", "under_2s", "under_5s", "under_10s", "under_20s"),
    *("under_50s", "under_100s", "under_200s", "longer"),
)
"""Columns that count calls by how long they took."""

_GROUPED = (
    *("service", "workflow", "agent", "kind", "name", "tool", "provider", "model", "status", "unpriced", "dialect"),
    *("scope", "scope_version"),
)
_OF_TRACES = ("models", "agents", "tools", "actions")

CALL_COLUMNS = (
    *("trace_id", "day", "start_ns", "end_ns", "service", "workflow", "agent", "kind", "name", "tool", "provider"),
    *("model_returned", "model_requested", "status", "unpriced", "attempt_of", "dialect", "scope", "scope_version"),
    *(*_TOKENS, *_USD, "session_id", "user_id", "input_chars", "output_chars", "policy_action"),
)
"""Columns of settled calls that are asked for here."""


def minutes(calls: pl.DataFrame, sign: Literal[1, -1] = 1) -> pl.DataFrame:
    """The rows that some calls add to `calls_by_minute`, or take away. calls: `CALL_COLUMNS` of settled calls."""
    start, took = pl.col("start_ns"), pl.col("latency_s")
    fresh = start >= pl.col("day").cast(pl.Int64) * _DAY_NS - _FRESH_NS
    grain = pl.when(pl.col("day").is_not_null() & (start.is_null() | fresh)).then(_MINUTE_NS).otherwise(HOUR_NS)
    found = calls.select(
        *(name for name in CALL_COLUMNS if name not in ("trace_id", "end_ns", "policy_action")),
        grain_ns=grain.cast(pl.Int64),
        model=pl.coalesce("model_returned", "model_requested"),
        latency_s=(pl.col("end_ns").cast(pl.Float64) - start.cast(pl.Float64)) / 1e9,
        retried=pl.col("attempt_of").is_not_null(),
    ).with_columns(minute_ns=pl.when(start > 0).then(start - start % pl.col("grain_ns")))
    none = {
        "no_model": pl.col("model").is_null(),
        "no_tokens": pl.col("input_tokens").is_null() & pl.col("output_tokens").is_null(),
        "no_session": pl.col("session_id").is_null(),
        "no_user": pl.col("user_id").is_null(),
        "no_input": pl.col("input_chars") == 0,
        "no_output": pl.col("output_chars") == 0,
        "no_end": took.is_null(),
    }
    lasted = {
        name: (took >= low) & (took < high) for name, (low, high) in zip(LATENCIES, pairwise(_BOUNDS_S), strict=True)
    }
    summed = found.group_by("day", "minute_ns", "grain_ns", "retried", *_GROUPED).agg(
        calls=sign * pl.len().cast(pl.Int64),
        errors=sign * (pl.col("status") == "error").sum().cast(pl.Int64),
        priced=sign * pl.col("cost_usd").count().cast(pl.Int64),
        **{name: sign * pl.col(name).clip(0, _MOST).sum() for name in _TOKENS},
        **{name: sign * pl.col(name).sum() for name in _USD},
        **{name: sign * test.sum().cast(pl.Int64) for name, test in (none | lasted).items()},
        latency_s=sign * took.sum(),
    )
    return summed.with_columns(pl.col("name").str.replace_all(_LONG_NUMBERS, "*"), merged=pl.lit(value=False))


def facts(calls: pl.DataFrame) -> pl.DataFrame:
    """trace_id, and the columns of `settled_traces` that come of a trace's calls, for traces that have calls."""
    distinct = dict(zip(_OF_TRACES, ("model", "agent", "tool", "policy_action"), strict=True))
    user = pl.col("user_id")
    found = (
        calls.with_columns(model=pl.coalesce("model_returned", "model_requested"))
        .group_by("trace_id")
        .agg(
            calls=pl.len().cast(pl.Int64),
            model_calls=pl.col("kind").is_in(["llm", "embedding"]).sum().cast(pl.Int64),
            errors=(pl.col("status") == "error").sum().cast(pl.Int64),
            retries=pl.col("attempt_of").count().cast(pl.Int64),
            unpriced=pl.col("unpriced").count().cast(pl.Int64),
            cost_usd=pl.when(pl.col("cost_usd").count() > 0).then(pl.col("cost_usd").sum()),
            **{name: pl.col(name).clip(0, _MOST).sum() for name in ("input_tokens", "output_tokens")},
            user_id=pl.when(user.min() == user.max()).then(user.min()),
            **{name: pl.col(column).drop_nulls().unique() for name, column in distinct.items()},
        )
    )
    return found.with_columns(pl.Series(name, _json(found[name].to_list()), pl.String) for name in _OF_TRACES)


def with_facts(traces: pl.DataFrame, calls: pl.DataFrame) -> pl.DataFrame:
    """Rows of `settled_traces` with the facts of their calls."""
    found = facts(calls)
    counts = [name for name, kind in found.schema.items() if kind == pl.Int64]
    own = traces.drop([name for name in found.columns if name != "trace_id" and name in traces.columns])
    return own.join(found, on="trace_id", how="left", maintain_order="left").with_columns(pl.col(counts).fill_null(0))


def joined(measures: Sequence[str]) -> str:
    """A SELECT of one `$day`'s rows of `calls_by_minute`, those of a key as one, of hours where `$hours`; `measures`
    are the columns to sum."""
    grain = f"case when $hours then {HOUR_NS} else grain_ns end"
    keys = [f"minute_ns - minute_ns % ({grain}) as minute_ns", f"{grain} as grain_ns", *DIMENSIONS[2:]]
    sums = [f"sum({name}){'' if name.endswith(('_usd', '_s')) else '::bigint'} as {name}" for name in measures]
    return (
        f"select {', '.join([*keys, *sums])}, true as merged, day from calls_by_minute "
        "where day is not distinct from $day group by all having sum(calls) <> 0"
    )


def _json(lists: list[list[str]]) -> list[str | None]:
    return [orjson.dumps(sorted(values)).decode() if values else None for values in lists]
