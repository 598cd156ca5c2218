"""What was known of an episode's steps at each of its decisions -> step features.

A call is known from its end on: at a decision, a step that still runs beside it has the cost, status and output of
those of its calls that had ended by then. A score is known from its own time on.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeVar

import numpy as np
import polars as pl

from optimizer.dataset import Floats
from optimizer.decisions import parsed
from optimizer.runtime import STEP_DENSE, step_features

Entry = dict[str, object]
"""An entry of `context["history"]`."""
T = TypeVar("T")


@dataclass(frozen=True, eq=False)
class Step:
    """A step with what came to be known of it. Lists are in order of time; costs and tokens are sums so far."""

    action: str
    explored: bool
    start_ns: int
    ends: Sequence[int]
    costs: Sequence[float | None]
    tokens: Sequence[int | None]
    statuses: Sequence[str | None]
    outputs: Sequence[str | None]
    signal_times: Sequence[int]
    signals: Sequence[float]

    def entry(self, at_ns: int, following_ns: int) -> tuple[Entry, bool]:
        """As it was known at a time, and whether that is all. following_ns: start of the next step."""
        ended, told = bisect_right(self.ends, at_ns), bisect_right(self.signal_times, at_ns)
        entry: Entry = {
            "action": self.action,
            "status": _last(self.statuses[:ended]),
            "cost_usd": self.costs[ended - 1] if ended else None,
            "tokens": self.tokens[ended - 1] if ended else None,
            "seconds": (following_ns - self.start_ns) / 1e9,
            "output": said(_last(self.outputs[:ended])),
            "signal": self.signals[told - 1] if told else None,
            "explored": self.explored,
        }
        return entry, ended == len(self.ends) and told == len(self.signals)


def features_of(rows: pl.DataFrame, ended: pl.DataFrame, signals: pl.DataFrame) -> Floats:
    """(n, 16) `step_features` of the history before each row.

    rows: trace_id, step, start_ns, action, explored, in order of trace and step. ended: the calls of steps: trace_id,
    step, end_ns, span_id, cost_usd, unknown (it has a cost that nobody knows), tokens, status and output_text (both
    null of calls that do not say how the step went). signals: trace_id, step, time_ns, value.
    """
    found: Floats = np.zeros((len(rows), len(STEP_DENSE)))
    place = 0
    for episode in _episodes(rows, ended, signals):
        for history in histories(episode):
            found[place] = step_features(history)
            place += 1
    return found


def histories(episode: Sequence[Step]) -> Iterator[list[Entry]]:
    """What was known before each of the decisions. The list goes on growing: read it before the next one."""
    history: list[Entry] = []
    running: list[int] = []
    for place, step in enumerate(episode):
        if place:
            history.append({})
            running.append(place - 1)
        still = []
        for earlier in running:
            history[earlier], whole = episode[earlier].entry(step.start_ns, episode[earlier + 1].start_ns)
            if not whole:
                still.append(earlier)
        running = still
        yield history


def said(messages: str | None) -> str | None:
    """The text of the last of some messages (JSON); None where there is none, as in a message that only calls tools or
    of which a sketch is left."""
    found = parsed(messages)
    last = found[-1] if isinstance(found, list) and found else None
    if not isinstance(last, Mapping):
        return None
    content = last.get("content")
    if isinstance(content, list):
        texts = [part.get("text") for part in content if isinstance(part, Mapping)]
        content = "\n".join(text for text in texts if isinstance(text, str)) if any(texts) else None
    if not isinstance(content, str):
        return None
    return None if not content and last.get("tool_calls") else content


def _last(values: Sequence[T | None]) -> T | None:
    return next((value for value in reversed(values) if value is not None), None)


def _episodes(rows: pl.DataFrame, ended: pl.DataFrame, signals: pl.DataFrame) -> Iterator[list[Step]]:
    key = ["trace_id", "step"]
    lists = ("ends", "costs", "tokens", "statuses", "outputs", "signal_times", "signals")
    told = (
        ended.sort(*key, "end_ns", "span_id")
        .group_by(key, maintain_order=True)
        .agg(
            pl.col("end_ns").alias("ends"),
            pl.when(pl.col("unknown").cum_max())
            .then(None)
            .otherwise(pl.col("cost_usd").fill_null(0.0).cum_sum())
            .alias("costs"),
            pl.when(pl.col("tokens").is_not_null().cum_max()).then(pl.col("tokens").fill_null(0).cum_sum()),
            pl.col("status").alias("statuses"),
            pl.col("output_text").alias("outputs"),
        )
    )
    scored = (
        signals.sort(*key, "time_ns", "value")
        .group_by(key, maintain_order=True)
        .agg(pl.col("time_ns").alias("signal_times"), pl.col("value").alias("signals"))
    )
    joined = (
        rows.select(*key, "action", "explored", "start_ns")
        .join(told, on=key, how="left", maintain_order="left")
        .join(scored, on=key, how="left", maintain_order="left")
        .with_columns(pl.col(name).fill_null([]) for name in lists)
    )
    columns = [joined[name].to_list() for name in ("action", "explored", "start_ns", *lists)]
    steps = [Step(*values) for values in zip(*columns, strict=True)]
    starts = [*np.flatnonzero((rows["step"] == 0).to_numpy()).tolist(), len(rows)]
    for first, end in pairwise(starts):
        yield steps[first:end]
