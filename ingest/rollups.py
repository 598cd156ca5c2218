"""What settled calls add up to, by minute and by trace: the statements that keep the rollups of the lake.

One text each says what is counted, wherever the calls are: in memory on their way into the lake, or in it. Rows of
`calls_by_minute` are only ever added, those that take away with negative counts, and joined again by the upkeep; facts
of traces lie in their own rows. The migration `rollups` says what the columns mean.
"""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import Literal

import pyarrow as pa

DIMENSIONS = (
    *("minute_ns", "grain_ns", "service", "workflow", "agent", "kind", "name", "tool", "provider", "model", "status"),
    *("unpriced", "retried", "dialect", "scope", "scope_version"),
)
"""What rows of `calls_by_minute` are told apart by, beside the day that brought the calls."""

HOUR_NS = 3_600_000_000_000

TRACE_FACTS = (
    *("calls", "model_calls", "errors", "retries", "unpriced", "cost_usd", "input_tokens", "output_tokens", "user_id"),
    *("models", "agents", "tools", "actions"),
)
"""Columns of `settled_traces` that come of the trace's calls."""

_COUNTS = frozenset({"calls", "model_calls", "errors", "retries", "unpriced", "input_tokens", "output_tokens"})

Source = Literal["incoming", "those_in_incoming", "of_traces"]
_SOURCES: dict[Source, str] = {
    "incoming": "incoming",
    "those_in_incoming": "(select * from settled_calls "
    "where (trace_id, span_id) in (select (trace_id, span_id) from incoming))",
    "of_traces": "(select * from settled_calls where trace_id in (select unnest($ids::varchar[])))",
}


def minutes(source: Source, sign: Literal[1, -1] = 1) -> str:
    """A SELECT of the rows that some calls add to `calls_by_minute`, or take away."""
    return _text("minutes").format(calls=_SOURCES[source], sign=sign)


def taken(source: Source, sign: Literal[1, -1]) -> str:
    """An INSERT of the rows of `minutes`, for calls that are in the lake."""
    return f"insert into calls_by_minute by name {minutes(source, sign)}"


def joined(measures: list[str]) -> str:
    """A SELECT of one day's rows of `calls_by_minute`, those of a key as one, of hours where `$hours`; `measures` are
    the columns to sum."""
    grain = f"case when $hours then {HOUR_NS} else grain_ns end"
    keys = [
        f"minute_ns - minute_ns % ({grain}) as minute_ns",
        f"{grain} as grain_ns",
        *DIMENSIONS[2:],
    ]
    sums = [f"sum({name}){'' if name.endswith(('_usd', '_s')) else '::bigint'} as {name}" for name in measures]
    return (
        f"select {', '.join([*keys, *sums])}, true as merged, day from calls_by_minute "
        "where day is not distinct from $day group by all having sum(calls) <> 0"
    )


def by_trace(source: Source) -> str:
    """A SELECT of `TRACE_FACTS` with the trace_id, for traces that have calls."""
    return _text("traces").format(calls=_SOURCES[source])


def traces_with_facts() -> str:
    """A SELECT of the rows of `incoming_traces` with the facts of the calls in `incoming`."""
    found = [f"coalesce(f.{name}, 0) as {name}" if name in _COUNTS else f"f.{name}" for name in TRACE_FACTS]
    return (
        f"select t.* exclude ({', '.join(TRACE_FACTS)}), {', '.join(found)} "
        f"from incoming_traces t left join ({by_trace('incoming')}) f on f.trace_id = t.trace_id"
    )


def costs_of_traces() -> str:
    """An UPDATE of what traces cost, where calls in `incoming` were priced again."""
    whole = "(select * from settled_calls where trace_id in (select trace_id from incoming))"
    facts = _text("traces").format(calls=whole)
    return (
        "update settled_traces set cost_usd = f.cost_usd, unpriced = f.unpriced "
        f"from ({facts}) f where f.trace_id = settled_traces.trace_id"
    )


def filled(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """The rows with every column of a table; NULL in those that they lack."""
    columns = [
        rows.column(field.name) if field.name in rows.column_names else pa.nulls(rows.num_rows, field.type)
        for field in schema
    ]
    return pa.Table.from_arrays(
        columns, schema=pa.schema([pa.field(f.name, c.type) for f, c in zip(schema, columns, strict=True)])
    )


@cache
def _text(name: str) -> str:
    return (files("ingest") / "sql" / "rollups" / f"{name}.sql").read_text(encoding="utf-8")
