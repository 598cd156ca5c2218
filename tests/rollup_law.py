"""The law of the rollups: what they say is what the settled calls add up to, counted here by other means."""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

import pytest

from ingest import rollups
from ingest.lake import Lake

HOUR_NS = 3_600_000_000_000
NAMES = (
    *("under_100ms", "under_200ms", "under_500ms", "under_1s", "under_2s", "under_5s", "under_10s", "under_20s"),
    *("under_50s", "under_100s", "under_200s", "longer"),
)
BOUNDS = dict(zip(NAMES, (0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100, 200, math.inf), strict=True))
TOKENS = ("input_tokens", "cache_read_tokens", "cache_write_tokens", "output_tokens", "reasoning_tokens")
USD = ("cost_usd", "input_usd", "cache_read_usd", "cache_write_usd", "output_usd", "reasoning_usd", "tools_usd")
KEYS = tuple(name for name in rollups.DIMENSIONS if name not in ("minute_ns", "grain_ns"))


def check(lake: Lake, *, hours: bool = False) -> None:
    """Asserts the law for a lake's newest state; `hours`: of hours only, where minutes may have been joined."""
    calls = list(lake.sql("select * from settled_calls").iter_rows(named=True))
    stored = list(lake.sql("select * from calls_by_minute").iter_rows(named=True))
    measures = [name for name in stored[0] if name not in (*rollups.DIMENSIONS, "merged", "day")] if stored else []
    told, true = _summed(stored, measures, hours), _summed(map(_contribution, calls), measures, hours)
    assert told.keys() == true.keys()
    assert not {key: (told[key], true[key]) for key in true if told[key] != pytest.approx(true[key], abs=1e-12)}
    _check_traces(lake, calls)


def _summed(rows: Iterable[Mapping[str, Any]], measures: list[str], hours: bool) -> dict[tuple[Any, ...], float]:
    """(keys of a row, its measure) -> the sum; without the keys that no call is left of."""
    found: dict[tuple[Any, ...], dict[str, float]] = defaultdict(lambda: dict.fromkeys(measures, 0.0))
    for row in rows:
        at = row["minute_ns"]
        key = (at - at % HOUR_NS if hours and at is not None else at, row["day"], *(row[name] for name in KEYS))
        for name in measures:
            found[key][name] += row[name]
    return {(*key, name): sums[name] for key, sums in found.items() if sums["calls"] for name in measures}


def _contribution(call: Mapping[str, Any]) -> dict[str, Any]:
    """What one settled call adds."""
    start, end, day = call["start_ns"], call["end_ns"], call["day"]
    took = None if start is None or end is None else (float(end) - float(start)) / 1e9
    midnight = None if day is None else (day.toordinal() - 719_163) * 24 * HOUR_NS
    old = midnight is None or (start is not None and start < midnight - 48 * HOUR_NS)
    grain = HOUR_NS if old else 60_000_000_000
    bounds = list(BOUNDS.values())
    return {
        **call,
        "minute_ns": start - start % grain if start else None,
        "name": call["name"]
        and re.sub(r"[0-9a-f]{12,}|[0-9]{9,}|[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f-]+", "*", call["name"]),
        "model": call["model_returned"] if call["model_returned"] is not None else call["model_requested"],
        "retried": call["attempt_of"] is not None,
        "calls": 1,
        "errors": call["status"] == "error",
        "priced": call["cost_usd"] is not None,
        **{name: _bounded(call[name]) for name in TOKENS},
        **{name: call[name] or 0.0 for name in USD},
        "no_model": call["model_returned"] is None and call["model_requested"] is None,
        "no_tokens": call["input_tokens"] is None and call["output_tokens"] is None,
        "no_session": call["session_id"] is None,
        "no_user": call["user_id"] is None,
        "no_input": call["input_chars"] == 0,
        "no_output": call["output_chars"] == 0,
        "no_end": took is None,
        "latency_s": took or 0.0,
        **{
            name: took is not None and below <= took < bound
            for (name, bound), below in zip(BOUNDS.items(), [-math.inf, *bounds[:-1]], strict=True)
        },
    }


def _bounded(tokens: int | None) -> int:
    return min(tokens or 0, 2**40)


def _check_traces(lake: Lake, calls: list[dict[str, Any]]) -> None:
    by_trace: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for call in calls:
        by_trace[call["trace_id"]].append(call)
    traces = list(lake.sql("select * from settled_traces").iter_rows(named=True))
    assert by_trace.keys() <= {trace["trace_id"] for trace in traces}
    for trace in traces:
        own = by_trace[trace["trace_id"]]
        costs = [call["cost_usd"] for call in own if call["cost_usd"] is not None]
        models = sorted({m for call in own if (m := call["model_returned"] or call["model_requested"])})
        assert trace["calls"] == len(own)
        assert trace["errors"] == sum(call["status"] == "error" for call in own)
        assert trace["unpriced"] == sum(call["unpriced"] is not None for call in own)
        assert trace["retries"] == sum(call["attempt_of"] is not None for call in own)
        assert trace["input_tokens"] == sum(_bounded(call["input_tokens"]) for call in own)
        assert trace["cost_usd"] == (pytest.approx(sum(costs)) if costs else None)
        assert trace["models"] == ('["' + '","'.join(models) + '"]' if models else None)
