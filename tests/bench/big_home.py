"""A home as large as wanted, made fast: rows of a busy app, with decisions and scores, straight into the lake, and the
folder of a run over as many decisions.

    PYTHONPATH=tests:tests/bench python tests/bench/big_home.py HOME 10000000

Of ten spans one is a routing decision; a third of the traces is scored.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path

import dashboard_fixture
import lake_load
import numpy as np
import polars as pl
import pyarrow as pa

from ingest.lake import Lake

COMMIT = 250_000
"""Spans of one commit, and so of one file of each table."""

AGENTS = ("planner", "researcher", "writer", "critic")
Tables = Mapping[str, pa.Table]


def make(home: Path, spans: int) -> Path:
    """Writes a home with so many spans and a tenth as many decisions."""
    with Lake.open(home, write=True) as lake:
        tomorrow = datetime.now(UTC).date() + timedelta(1)
        for number, rows in enumerate(lake_load.commits(lake, spans, COMMIT, text_chars=240)):
            lake.write(_with_decisions(lake, rows, number))
            lake.join_minutes(tomorrow)  # to hours, as the upkeep does with what is a week old
        lake.compact()
    _run(home, spans // 10)
    return home


def _with_decisions(lake: Lake, rows: Tables, batch: int) -> Tables:
    """The rows with agents, users, retries, costs by token class, decisions of the first model call of most traces, and
    scores of some traces."""
    rng = np.random.default_rng(batch)
    calls, spans = pl.DataFrame(rows["settled_calls"]), pl.DataFrame(rows["span_log"])
    count = calls.height
    trace = np.arange(count) // lake_load.TRACE
    traces = int(trace[-1]) + 1
    decided = pl.Series((rng.random(traces) < 0.8)[trace] & (np.arange(count) % lake_load.TRACE == 1))
    agent = pl.Series(np.array(AGENTS)[rng.integers(0, len(AGENTS), traces)][trace])
    told = {
        "agent": agent,
        "user_id": pl.Series([f"user-{n}" for n in rng.integers(0, 5000, traces)])[trace],
        "policy_id": pl.when(decided).then(pl.lit("bench")),
        "policy_action": pl.when(decided).then("model_requested"),
        "policy_propensity": pl.when(decided).then(0.25),
    }
    failed, read = pl.Series(rng.random(count) < 0.02), rng.random(count) * 0.6
    cached = (pl.col("input_tokens") * pl.Series(read)).cast(pl.Int64)
    calls = calls.with_columns(
        **told,
        status=pl.when(failed).then(pl.lit("error")).otherwise(pl.lit("ok")),
        scope=pl.lit("opentelemetry.instrumentation.openai"),
        scope_version=pl.lit("2.1"),
        cache_read_tokens=cached,
        input_usd=(pl.col("input_tokens") - cached) * 2.5e-6,
        cache_read_usd=cached * 2.5e-6,
        output_usd=pl.col("output_tokens") * 1e-5,
        input_chars=pl.lit(240),
        output_chars=pl.lit(240),
        name=pl.when(pl.col("kind") == "llm").then(pl.concat_str(pl.lit("chat "), "model_requested")).otherwise("kind"),
    )
    settled = pl.DataFrame(rows["settled_traces"])
    starts = calls.group_by("trace_id", maintain_order=True).agg(
        start_ns=pl.col("start_ns").min(), end_ns=pl.col("end_ns").max(), name=pl.col("name").first()
    )
    settled = settled.drop("start_ns", "end_ns", "name").join(starts, on="trace_id", maintain_order="left")
    scored = settled.gather_every(3)
    scores = scored.select(
        "trace_id", score_id=pl.concat_str(pl.lit("s-"), "trace_id"), name=pl.lit("quality"),
        value=pl.Series(rng.random(scored.height)), value01=pl.Series(rng.random(scored.height)),
        source=pl.lit("judge"), time_ns="end_ns", received_ns="end_ns", batch="batch", line=pl.int_range(pl.len()),
    )  # fmt: skip
    arrived = pl.DataFrame(rows["ingest_log"]).drop("received_ns", "rejected")
    minute = int(calls["start_ns"][0]) // 60_000_000_000 * 60_000_000_000
    arrived = arrived.with_columns(received_ns=pl.lit(minute), rejected=pl.lit(0))
    found = {
        "settled_calls": calls,
        "settled_traces": settled,
        "span_log": spans.with_columns(**told, received_ns=pl.lit(minute)),
        "score_log": scores,
        "ingest_log": arrived,
    }
    return {**rows, **{name: _typed(frame, lake.schema(name)) for name, frame in found.items()}}


def _typed(frame: pl.DataFrame, schema: pa.Schema) -> pa.Table:
    made = frame.to_arrow()
    fields = [field for field in schema if field.name in made.column_names and field.name != "day"]
    return pa.Table.from_arrays([made[f.name].cast(f.type) for f in fields], schema=pa.schema(fields))


def _run(home: Path, decisions: int) -> None:
    """The folder of a run with so many decisions."""
    folder = dashboard_fixture.write_run(home)
    file = folder / "decisions.parquet"
    few = pl.read_parquet(file)
    pl.concat([few] * (decisions // few.height + 1)).head(decisions).write_parquet(file)


if __name__ == "__main__":
    make(Path(sys.argv[1]), int(sys.argv[2]))
