"""What a run keeps of who gains and who loses, as records. Layout: `optimizer.regressions` and `optimizer.versions`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, cast, get_args

import polars as pl

from dashboard import data
from dashboard.records import Figure, RuleRow, ServiceVerdict, figure, rule
from dashboard.traces_data import opening
from optimizer import regressions
from optimizer.regressions import Flag

PROMPT_CHARACTERS = 2000
SHOWN_CHARACTERS = 300
Order = Literal["dimension", "quality", "saving", "decisions"]


@dataclass(frozen=True)
class Segment:
    """What the suggestion changes in a part of the decisions; intervals hold for all segments together."""

    dimension: str
    name: str
    decisions: int
    changed: float
    saving: Figure
    quality: Figure
    cost_flag: Flag
    quality_flag: Flag

    @property
    def title(self) -> str:
        return f"{self.dimension}: {self.name}"


@dataclass(frozen=True)
class Worst:
    """A decision where the outcome model expects the quality to fall. `saving`: USD per 1,000 such decisions."""

    trace_id: str
    time_ns: int
    today: str
    suggested: str
    quality_today: float
    quality: float
    saving: float


@dataclass(frozen=True)
class Share:
    """Of the judged decisions, under the version before and under this one."""

    action: str
    before: float
    after: float


@dataclass(frozen=True)
class Previous:
    """The version before. `refused`: why it cannot be compared; "" where it is."""

    run_id: str
    in_force: bool
    gone: tuple[str, ...]
    new: tuple[str, ...]
    refused: str
    shares: tuple[Share, ...]
    agreement: float | None
    moved: float | None
    saving: Figure
    quality: Figure
    rules: tuple[RuleRow, ...]


@dataclass(frozen=True)
class Found:
    refused: str
    """Why there are no segments; "" where there are."""
    confidence: float
    each: float
    intervals: int
    margin: float
    segments: tuple[Segment, ...]
    small: tuple[tuple[str, int], ...]
    """Segments with too few decisions: title and decisions."""
    worst: tuple[Worst, ...]
    previous: Previous | None


def load(verdict: ServiceVerdict) -> Found | None:
    """None where the run kept nothing. UnreadableError for a file that is not as expected."""
    return data.kept(verdict, "regressions", _found)


def _found(said: Mapping[str, Any]) -> Found:
    return Found(
        str(said["refused"] or ""),
        float(said.get("confidence") or 0.0),
        float(said.get("each") or 0.0),
        int(said.get("intervals") or 0),
        float(said.get("quality_margin") or 0.0),
        tuple(_segment(row) for row in said["segments"]),
        tuple((f"{row['dimension']}: {row['segment']}", int(row["decisions"])) for row in said["small"]),
        tuple(
            Worst(
                str(row["trace_id"]),
                int(row["time_ns"]),
                str(row["today"]),
                str(row["suggested"]),
                *(float(row[key]) for key in ("quality_today", "quality_suggested", "savings_usd_per_1k")),
            )
            for row in said["worst"]
        ),
        _previous(said["previous"]) if said.get("previous") else None,
    )


def _segment(row: Mapping[str, Any]) -> Segment:
    flags = row["cost_flag"], row["quality_flag"]
    if wrong := [flag for flag in flags if flag not in get_args(Flag)]:
        raise ValueError(f"unknown flag {wrong[0]!r}")
    return Segment(
        str(row["dimension"]),
        str(row["segment"]),
        int(row["decisions"]),
        float(row["changed_share"]),
        figure(row["savings_usd_per_1k"]),
        figure(row["quality_change"]),
        *(cast(Flag, flag) for flag in flags),
    )


def _previous(row: Mapping[str, Any]) -> Previous:
    agreement, moved = row.get("agreement"), row.get("moved")
    return Previous(
        str(row["run_id"]),
        bool(row["in_force"]),
        tuple(map(str, row["gone"])),
        tuple(map(str, row["new"])),
        str(row["refused"] or ""),
        tuple(Share(str(one["action"]), float(one["before"]), float(one["after"])) for one in row["actions"]),
        None if agreement is None else float(agreement),
        None if moved is None else float(moved),
        figure(row.get("savings_usd_per_1k")),
        figure(row.get("quality_change")),
        tuple(rule(one) for one in (row.get("rules") or {}).get("rules") or ()),
    )


def ordered(segments: Sequence[Segment], by: Order) -> list[Segment]:
    """The segments by what they are, from the worst quality or saving on, or from the largest on; those that could not
    be estimated last."""
    if by == "dimension":
        return list(segments)
    if by == "decisions":
        return sorted(segments, key=lambda one: -one.decisions)
    told = [(one.quality if by == "quality" else one.saving, one) for one in segments]
    known = sorted((pair for pair in told if not pair[0].refused), key=lambda pair: pair[0].span[0])
    return [one for _, one in known] + [one for figure_, one in told if figure_.refused]


def losing(found: Found) -> list[Segment]:
    """Segments whose whole interval of quality is past the limit."""
    return [one for one in found.segments if one.quality_flag == "worse"]


def prompts(found: Found) -> dict[str, str]:
    """How the prompts of the worst decisions begin, by trace; for those who may read them."""
    ids = tuple(one.trace_id for one in found.worst)
    rows = data.lake("trace_prompts", trace_ids=ids, characters=PROMPT_CHARACTERS)
    told = {trace: opening(text) for trace, text in rows.select("trace_id", "text").iter_rows()}
    return {trace: _cut(text) for trace, text in told.items() if text}


def _cut(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= SHOWN_CHARACTERS else line[: SHOWN_CHARACTERS - 1] + "…"


def segments_frame(segments: Sequence[Segment]) -> pl.DataFrame:
    """What the chart of segments shows, to take away."""
    rows = [
        {
            "dimension": one.dimension,
            "segment": one.name,
            "decisions": one.decisions,
            "changed_share": one.changed,
            **{f"savings_usd_per_1k{end}": getattr(one.saving, key) for end, key in _ENDS},
            **{f"quality_change{end}": getattr(one.quality, key) for end, key in _ENDS},
            "cost_flag": one.cost_flag,
            "quality_flag": one.quality_flag,
        }
        for one in segments
    ]
    floats = [f"{name}{end}" for name in ("savings_usd_per_1k", "quality_change") for end, _ in _ENDS]
    schema = {"dimension": pl.String, "segment": pl.String, "decisions": pl.Int64, "changed_share": pl.Float64}
    return pl.DataFrame(
        rows, {**schema, **dict.fromkeys(floats, pl.Float64), "cost_flag": pl.String, "quality_flag": pl.String}
    )


_ENDS = (("", "value"), ("_low", "low"), ("_high", "high"))
STATED = regressions.STATED
