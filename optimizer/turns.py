"""Settled calls in, turns out: which agent acted after which in each trace, for how long and for how much.

Turns are the steps that `sequential.activations` finds in traces of any dialect: agents where a trace has several,
else calls of a model, named by model and prompt. In a trace without either, tools act. Everything below a turn belongs
to it; what runs beside turns of one agent (its tools, its lookups) belongs to the one before it; calls of models that
belong to none, such as those that merge answers, are outside the named steps.

What follows what is said by the links between spans, in a trace that has any. Else by time: a turn follows those that
had ended when it began and that none stands between, so turns side by side are parallel branches, and the next one
joins them. Parents that are missing or go in a circle, and links that do, lose that place and nothing else.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import polars as pl

from optimizer.dataset import Bools, Ints
from optimizer.decisions import MODEL_KINDS, cost_unknown
from optimizer.organisation import Activation
from optimizer.runtime import STOP
from optimizer.sequential.activations import activations, nearest, parents_of
from optimizer.sequential.episodes import EpisodeLog
from optimizer.teamwork import Turns
from optimizer.turn_order import in_order_of_links, in_order_of_time

COLUMNS: Mapping[str, pl.DataType | type[pl.DataType]] = {
    "trace_id": pl.String,
    "place": pl.Int64,
    "agent": pl.String,
    "after": pl.List(pl.Int64),
    "start_ns": pl.Int64,
    "seconds": pl.Float64,
    "cost_usd": pl.Float64,
    "tokens": pl.Int64,
    "failed": pl.Boolean,
    "answer": pl.UInt64,
}
"""Of a turn: its place in the trace, the places of the turns that it followed, the time from its begin to the end of
its last call, what all its calls cost (null if one that was to be priced is not), the tokens of its model calls (null
if one is unknown), whether a call of it ended in an error that no later attempt mended, and a number that stands for
its answer: that of the call that begins it, else of its last model call (null: not known). The agent of a turn that
ends a branch is STOP."""


BESIDE = ("tool", "retrieval", "embedding", "guardrail")
"""Kinds of calls that belong to the turn before them where they lie below none."""
NEVER_NS = 2**63 - 1


@dataclass(frozen=True, eq=False)
class Acted:
    """What happened in some traces."""

    turns: pl.DataFrame
    """Columns `COLUMNS`, in order of trace and place."""
    calls: pl.DataFrame
    """The model calls: trace_id, start_ns, tokens (null: unknown), and inside: whether one belongs to a turn."""


def acted(calls: pl.DataFrame, links: pl.DataFrame | None = None, texts: pl.DataFrame | None = None) -> Acted:
    """The turns of traces.

    calls: rows of the query `decision_calls`, whole traces in order of trace and start; `service` and `point` of a call
    are those of its trace where there is such a column. links: rows of the query `step_links`. texts: trace_id, span_id
    and output_text, as the query `step_texts` gives them; without, no answer is known.
    """
    if "point" not in calls.columns:
        calls = calls.with_columns(point=pl.lit(""))
    parents = parents_of(calls)
    steps = _with_tools(calls, parents)
    owner = _owners(calls, parents, steps)
    own = calls.select(
        "trace_id",
        "start_ns",
        "end_ns",
        place=pl.Series(owner),
        tokens=pl.when(pl.col("kind").is_in(MODEL_KINDS)).then(_tokens()),
        untold=pl.col("kind").is_in(MODEL_KINDS) & _tokens().is_null(),
        cost_usd="cost_usd",
        unknown=cost_unknown("cost_usd", "unpriced"),
        failed=(pl.col("status") == "error").fill_null(False) & pl.col("attempt_of").is_null(),
        model=pl.col("kind").is_in(MODEL_KINDS),
        answer=_answers(calls, texts),
        begins=pl.Series(owner) == pl.int_range(pl.len()),
        says=pl.col("kind") == "llm",
    )
    spoken = pl.col("answer").sort_by("end_ns")
    sums = (
        own.filter(pl.col("place") >= 0)
        .group_by("place")
        .agg(
            pl.col("end_ns").max(),
            pl.when(pl.col("unknown").any()).then(None).otherwise(pl.col("cost_usd").sum()).alias("cost_usd"),
            pl.when(pl.col("untold").any()).then(None).otherwise(pl.col("tokens").sum()).alias("tokens"),
            pl.col("failed").any(),
            pl.coalesce(
                pl.col("answer").filter("begins").first(),
                spoken.filter(pl.col("says").sort_by("end_ns")).drop_nulls().last(),
            ).alias("answer"),
        )
    )
    turns = steps.join(sums, on="place", how="left").sort("trace_id", "start_ns", "span_id")
    model_calls = own.filter("model").select("trace_id", "start_ns", "tokens", inside=pl.col("place") >= 0)
    return Acted(_placed(turns, _followed(calls, owner, links)), model_calls)


def _answers(calls: pl.DataFrame, texts: pl.DataFrame | None) -> pl.Series:
    """(n,) a number for the output of each call; null where it is not known."""
    if texts is None:
        return pl.Series([None] * len(calls), dtype=pl.UInt64)
    said = texts.select("trace_id", "span_id", answer="output_text").unique(["trace_id", "span_id"], keep="last")
    joined = calls.select("trace_id", "span_id").join(
        said, on=["trace_id", "span_id"], how="left", maintain_order="left"
    )
    return joined.select(pl.when(pl.col("answer").is_not_null()).then(pl.col("answer").hash()))["answer"]


def _tokens() -> pl.Expr:
    """Of a call that was not answered and says no usage: 0."""
    told = pl.sum_horizontal("input_tokens", "output_tokens")
    none = pl.col("input_tokens").is_null() & pl.col("output_tokens").is_null()
    failed = (pl.col("status") == "error").fill_null(False)
    return pl.when(~none).then(told).when(failed).then(0)


def _with_tools(calls: pl.DataFrame, parents: Ints) -> pl.DataFrame:
    """trace_id, span_id, start_ns, place (of the call that begins it) and action of each turn: the steps, STOP by its
    name, and the outermost tools of traces in which neither agents nor models act."""
    numbered = calls.with_columns(place=pl.int_range(pl.len(), dtype=pl.Int64))
    columns = ("trace_id", "span_id", "start_ns", "place", "action")
    steps = (
        activations(calls)
        .join(numbered.select("trace_id", "span_id", "place", "name"), on=["trace_id", "span_id"], how="left")
        .with_columns(action=pl.when(pl.col("name") == STOP).then("name").otherwise("action"))
        .filter(pl.col("start_ns").is_not_null())
    )
    is_tool = (calls["kind"] == "tool").to_numpy()
    above = np.where(parents >= 0, nearest(parents, is_tool)[parents], -1)
    talks = pl.col("kind").is_in(MODEL_KINDS).any().over("trace_id")
    tools = numbered.filter(
        pl.Series(is_tool & (above < 0)),
        ~numbered.select(talks)["kind"],
        ~pl.col("trace_id").is_in(steps["trace_id"].unique().implode()),
        pl.col("start_ns").is_not_null(),
    ).with_columns(action=pl.coalesce("tool", "name", pl.lit("tool")))
    return pl.concat([steps.select(columns), tools.select(columns)])


def _owners(calls: pl.DataFrame, parents: Ints, steps: pl.DataFrame) -> Ints:
    """(n,) the place of the call that begins the turn of each call; -1 for those outside of all."""
    begins: Bools = np.zeros(len(calls), dtype=bool)
    begins[steps["place"].to_numpy()] = True
    owner = nearest(parents, begins)
    agents = calls["agent"].fill_null("").to_list()
    traces, lookups = calls["trace_id"].to_list(), calls["kind"].is_in(BESIDE).to_list()
    last: dict[tuple[str, str], int] = {}
    for place in range(len(calls)):  # in order of trace and start
        key = (traces[place], agents[place])
        if begins[place]:
            last[key] = place
        elif owner[place] < 0 and lookups[place]:
            owner[place] = last.get(key, -1)
    return owner


def _followed(calls: pl.DataFrame, owner: Ints, links: pl.DataFrame | None) -> dict[str, list[tuple[int, int]]]:
    """Trace -> (turn, the one it followed), by the places of the calls that begin them, as links say it."""
    if links is None or links.is_empty():
        return {}
    known = calls.select("trace_id", "span_id", turn=pl.Series(owner)).filter(pl.col("turn") >= 0)
    pairs = (
        links.join(known, on=["trace_id", "span_id"], how="inner")
        .join(known.rename({"span_id": "after", "turn": "before"}), on=["trace_id", "after"], how="inner")
        .filter(pl.col("turn") != pl.col("before"))
        .unique(["trace_id", "turn", "before"], maintain_order=True)
    )
    found: dict[str, list[tuple[int, int]]] = {}
    for trace, turn, before in pairs.select("trace_id", "turn", "before").iter_rows():
        found.setdefault(trace, []).append((turn, before))
    return found


def _placed(turns: pl.DataFrame, linked: Mapping[str, list[tuple[int, int]]]) -> pl.DataFrame:
    """The turns in their order within each trace, with what each followed."""
    order: list[int] = []
    places: list[int] = []
    after: list[list[int]] = []
    rows = turns.with_columns(end_ns=pl.max_horizontal("start_ns", pl.col("end_ns").fill_null(pl.col("start_ns"))))
    first = 0
    for (trace,), own in rows.group_by(["trace_id"], maintain_order=True):
        pairs = linked.get(str(trace))
        if pairs:
            sequence, followed = in_order_of_links(own["place"].to_list(), pairs)
        else:
            sequence = list(range(len(own)))
            ends = own.select(
                pl.when(pl.col("action") == STOP).then(NEVER_NS).otherwise("end_ns")
            )  # nothing follows it
            followed = in_order_of_time(own["start_ns"].to_list(), ends.to_series().to_list())
        order += [first + place for place in sequence]
        places += range(len(own))
        after += followed
        first += len(own)
    placed = rows[order].with_columns(
        place=pl.Series(places, dtype=pl.Int64), after=pl.Series(after, dtype=pl.List(pl.Int64)), agent="action"
    )
    seconds = ((pl.col("end_ns") - pl.col("start_ns")) / 1e9).alias("seconds")
    return placed.with_columns(seconds).select(pl.col(name).cast(kind) for name, kind in COLUMNS.items())


def activations_of(turns: pl.DataFrame) -> dict[str, list[Activation]]:
    """Trace -> its turns for `organisation`."""
    found: dict[str, list[Activation]] = {}
    for trace, agent, after in turns.select("trace_id", "agent", "after").iter_rows():
        found.setdefault(trace, []).append(Activation(agent or "unknown", tuple(after)))
    return found


def turns_of(found: Acted, log: EpisodeLog, trace_ids: Sequence[str], rows: pl.DataFrame) -> Turns:
    """What happened in the episodes of a log.

    trace_ids: of each episode. rows: trace_id, step and time_ns of every decision. What began before the first
    decision of an episode belongs to it. The answer that a decision led to is the last one of the turns after it.
    """
    acting = activations_of(found.turns)
    begins = {trace: np.sort(starts) for trace, starts in _lists(found.turns, "start_ns").items()}
    at = {(trace, step): time for trace, step, time in rows.select("trace_id", "step", "time_ns").iter_rows()}
    calls = found.calls.sort("trace_id", "start_ns").with_columns(pl.col("tokens").cast(pl.Float64).fill_null(np.nan))
    called, used = _lists(calls, "start_ns"), _lists(calls, "tokens")
    n = len(log.actions)
    begun, before, tokens = np.zeros(n, dtype=np.int64), np.zeros(n), np.full(len(log), np.nan)
    ends = np.append(log.first[1:], n)
    for episode, trace in enumerate(trace_ids):
        spent = np.cumsum([0.0, *used.get(trace, [])])
        tokens[episode] = spent[-1] if trace in used else np.nan
        later = np.arange(log.first[episode] + 1, ends[episode])
        times = [at[trace, step] for step in range(1, len(later) + 1)]
        begun[later] = np.searchsorted(begins.get(trace, []), times)
        before[later] = spent[np.searchsorted(called.get(trace, []), times)]
    every = [acting.get(trace, []) for trace in trace_ids]
    return Turns(every, begun, before, tokens, _answers_of(found, log, trace_ids, begun))


def _answers_of(found: Acted, log: EpisodeLog, trace_ids: Sequence[str], begun: Ints) -> list[list[str | None]]:
    """Of each episode and each of its decisions the last answer of the turns that it led to; empty without any."""
    if "answer" not in found.turns.columns or found.turns["answer"].is_null().all():
        return []
    given = _lists(found.turns, "answer")
    told = []
    ends = np.append(log.first[1:], len(log.actions))
    for episode, trace in enumerate(trace_ids):
        answers = [None if one is None else str(one) for one in given.get(trace, [])]
        bounds = [*begun[log.first[episode] : ends[episode]].tolist(), len(answers)]
        told.append([_last_known(answers[start:end]) for start, end in pairwise(bounds)])
    return told


def _last_known(answers: Sequence[str | None]) -> str | None:
    return next((answer for answer in reversed(answers) if answer is not None), None)


def _lists(frame: pl.DataFrame, column: str) -> dict[str, list[int]]:
    grouped = frame.group_by("trace_id", maintain_order=True).agg(column)
    return dict(grouped.iter_rows())
