"""The decision points that the traces of a home show: what is decided there, how often, what is missing to learn."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import polars as pl

from ingest.lake import Lake
from optimizer.config import Settings
from optimizer.decisions import quality_name
from optimizer.runtime import STOP
from optimizer.sequential.sessions import sessions
from optimizer.sequential.steps import Steps, find_steps
from optimizer.sequential.stop_scores import StepScore, score_name

SHOWN = 8
"""Actions of a point that are shown as text; JSON has all."""


@dataclass(frozen=True)
class Point:
    """One decision point. Shares are of decisions; None where there is none to take a share of."""

    service: str
    point: str
    traces: int
    decisions: int
    steps_median: float
    """Decisions of a trace."""
    steps_max: int
    actions: Mapping[str, int]
    """Action -> how often it was taken, the commonest first."""
    logged_share: float
    """Those that a span carries; the others are what the traces show."""
    probabilities_share: float
    """Those that carry the probabilities of their candidates."""
    stop_quality_share: float | None
    """Of those after the first of their trace: those before which it is known what stopping would have given."""
    outside_tokens_share: float | None
    outside_cost_share: float | None
    """Of all tokens and costs those that no action names, such as helpers and aggregation."""
    orchestrated: bool
    why_not: str | None
    left_out: Mapping[str, int]
    """Reason -> traces."""
    settings: str
    """What may be edited in retroute.toml, as TOML."""


def find_points(home: Path, settings: Settings, services: Sequence[str] = ()) -> list[Point]:
    """The points of a home by service and number of traces. services: only these. Raises HomeError without a lake."""
    with Lake.open(home) as lake:
        calls, scores = lake.query("decision_calls"), lake.query("scores")
        spans, scored_spans = lake.query("decision_spans"), lake.query("scored_spans")
    calls = calls.with_columns(billed_usd="cost_usd", billed_unpriced="unpriced")
    if services:
        calls = calls.filter(pl.col("service").is_in(list(services)))
    known = {name: settings.service(name) for name in calls["service"].drop_nulls().unique().to_list()}
    episodes = sessions(calls, [name for name, one in known.items() if one.episode == "session"])
    calls, scores = episodes.joined(calls), episodes.judged(scores)
    quality = {
        name: quality_name(scores.filter(pl.col("service") == name), one.quality, one.judge)
        for name, one in known.items()
    }
    of_steps = {name: StepScore(one.step_quality, one.step_quality_of) for name, one in known.items()}
    found = find_steps(
        calls,
        episodes.joined(spans),
        scores,
        quality,
        scored_spans=episodes.joined(scored_spans),
        step_scores=of_steps,
        orchestrate={name: one.orchestrate for name, one in known.items()},
        with_rows=False,
    )
    return points_of(found, {name: score_name(name, quality, of_steps) for name in known})


def points_of(steps: Steps, step_scores: Mapping[str, str | None]) -> list[Point]:
    """The points of some decisions. step_scores: service -> the name of the score of its steps."""
    key = ["service", "point"]
    traces = steps.decisions.group_by(*key, "trace_id").len()
    later = pl.col("step") > 0
    counts = (
        steps.decisions.group_by(key)
        .agg(
            decisions=pl.len(),
            logged_share=pl.col("logged").mean(),
            probabilities_share=pl.col("probabilities").is_not_null().mean(),
            stop_quality_share=pl.col("stop_quality").filter(later).is_not_null().mean(),
        )
        .join(
            traces.group_by(key).agg(
                traces=pl.len(), steps_median=pl.col("len").median(), steps_max=pl.col("len").max()
            ),
            on=key,
        )
        .join(steps.points, on=key)
        .join(steps.outside, on=key, how="left")
        .sort("service", "traces", "point", descending=[False, True, False])
    )
    taken = steps.decisions.group_by(*key, "action").len().sort("len", "action", descending=[True, False])
    found = []
    for row in counts.to_dicts():
        here = (pl.col("service") == row["service"]) & (pl.col("point") == row["point"])
        actions = dict(taken.filter(here).select("action", "len").iter_rows())
        found.append(
            Point(
                **{name: row[name] for name in (*key, "traces", "decisions", "steps_median", "steps_max")},
                actions=actions,
                logged_share=row["logged_share"],
                probabilities_share=row["probabilities_share"],
                stop_quality_share=row["stop_quality_share"],
                outside_tokens_share=row["tokens_share"],
                outside_cost_share=row["cost_share"],
                orchestrated=row["orchestrated"],
                why_not=row["why"],
                left_out=dict(steps.left_out.filter(here).select("reason", "traces").iter_rows()),
                settings=_settings(row, list(actions), step_scores.get(row["service"])),
            )
        )
    return found


def as_records(points: Sequence[Point]) -> dict[str, object]:
    """Points for JSON: {"points": [...]}, with the fields of `Point`."""
    return {"points": [asdict(point) for point in points]}


def as_text(point: Point) -> str:
    """A point as lines for people."""
    many = f"{_counted(point.decisions, 'decision')} in {_counted(point.traces, 'trace')}"
    each = f"{point.steps_median:g} in a trace at the median, {point.steps_max:,} at most"
    lines = [
        f"{point.service}, {point.point}: {many}, {each}",
        "      " + ("studied step by step" if point.orchestrated else f"not studied step by step: {point.why_not}"),
    ]
    shown = [f"{name} {count:,}" for name, count in point.actions.items()]
    more = f", and {len(shown) - SHOWN} more; --json shows all" if len(shown) > SHOWN else ""
    lines.append(f"      actions: {', '.join(shown[:SHOWN])}{more}")
    lines.append(
        f"      logged as decisions: {point.logged_share:.0%}, with the probabilities of their candidates: "
        f"{point.probabilities_share:.0%}"
    )
    if point.stop_quality_share is not None:
        lines.append(f"      what stopping before it would have given is known: {point.stop_quality_share:.0%}")
    if point.outside_tokens_share:
        cost = "" if point.outside_cost_share is None else f", {point.outside_cost_share:.0%} of costs"
        lines.append(f"      outside of what the actions name: {point.outside_tokens_share:.0%} of tokens{cost}")
    lines += [f"      left out: {_counted(traces, 'trace')}: {reason}" for reason, traces in point.left_out.items()]
    lines.append("    retroute.toml:")
    lines += [f"      {line}" for line in point.settings.splitlines()]
    return "\n".join(lines)


def _counted(count: int, what: str) -> str:
    return f"{count:,} {what}" if count == 1 else f"{count:,} {what}s"


def _settings(row: Mapping[str, object], actions: Sequence[str], step_score: str | None) -> str:
    """Lines of TOML: which actions may be suggested at a point; where traces hold several decisions, whether they are
    studied step by step, and which score says what stopping after a step gives. row: service, point, steps_max and
    orchestrated."""
    service = f"services.{_key(str(row['service']))}"
    names = ", ".join(_quoted(name) for name in actions if name != STOP)
    lines = [f"[{service}.points.{_key(str(row['point']))}]", f"actions = [{names}]"]
    if int(str(row["steps_max"])) < 2:
        return "\n".join(lines)
    stated = [f"orchestrate = {'true' if row['orchestrated'] else 'false'}"]
    if step_score is not None:
        stated.append(f"step_quality = {_quoted(step_score)}")
    return "\n".join([f"[{service}]", *stated, *lines])


def _key(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else _quoted(name)


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
