"""Protected segments: decisions of which the mean of all must not hide a loss, such as a tenant's or a language's.

A decision belongs to a segment when any span of its trace carries one of the segment's values.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Protocol

import numpy as np
import polars as pl

from optimizer.config import SegmentSettings
from optimizer.dataset import Bools


@dataclass(frozen=True, eq=False)
class Protected:
    """A segment of a log. rows: (n,) whether each decision is in it."""

    rows: Bools
    quality_margin: float


class Lake(Protocol):
    def query(self, name: str, /, **parameters: object) -> pl.DataFrame: ...


def carriers(lake: Lake, settings: Mapping[str, Mapping[str, SegmentSettings]]) -> pl.DataFrame:
    """service, segment, trace_id of every trace in a segment. settings: service -> name -> segment."""
    frames = [pl.DataFrame(schema={"service": pl.String, "segment": pl.String, "trace_id": pl.String})]
    for service, segments in settings.items():
        for name, segment in segments.items():
            traces = lake.query("traces_with", attribute=segment.attribute, wanted=list(segment.values))
            frames.append(traces.select(service=pl.lit(service), segment=pl.lit(name), trace_id="trace_id"))
    return pl.concat(frames)


def marked(decisions: pl.DataFrame, carried: pl.DataFrame) -> pl.DataFrame:
    """The decisions with a column `segments`, the names of those they belong to; carried: see `carriers`."""
    names = carried.group_by("service", "trace_id").agg(segments=pl.col("segment").sort())
    return decisions.join(names, on=["service", "trace_id"], how="left", maintain_order="left").with_columns(
        pl.col("segments").fill_null([])
    )


def protected(
    decisions: pl.DataFrame, segments: Mapping[str, Mapping[str, Any]], quality_margin: float
) -> dict[str, Protected]:
    """The segments of a service by name. segments: as `kept` wrote them; quality_margin: where one states none."""
    if not segments:
        return {}
    inside = decisions["segments"]
    margins = {name: one["quality_margin"] for name, one in segments.items()}
    return {
        name: Protected(
            np.asarray(inside.list.contains(name).fill_null(False).to_numpy(), dtype=np.bool_),
            quality_margin if margin is None else margin,
        )
        for name, margin in margins.items()
    }


def kept(segments: Mapping[str, SegmentSettings]) -> dict[str, dict[str, Any]]:
    """What a run keeps of the segments it judged by."""
    return {name: {**asdict(one), "values": list(one.values)} for name, one in segments.items()}
