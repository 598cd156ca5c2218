"""What a run keeps of how far its logs identify an answer, as records and tables. Layout: `optimizer.identified`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

from dashboard import data
from dashboard.records import ServiceVerdict

CELLS = {
    "segment": pl.String,
    "kind": pl.String,
    "decisions": pl.Int64,
    "action": pl.String,
    "logged": pl.Int64,
    "today_share": pl.Float64,
    "policy_share": pl.Float64,
    "unsupported_share": pl.Float64,
    "least": pl.Float64,
    "effective": pl.Float64,
    "state": pl.String,
}
"""`state`: "enough" effective decisions, "few", "untried" (the log did not try it there), or "unused" (the policy does
not take it there)."""
USED = 0.02
"""A policy that takes an action in fewer of a segment's decisions does not rest on it: that is exploration."""
UNTRIED = 0.01
"""Largest share of an action's decisions in a segment that may lack any chance in the log."""


@dataclass(frozen=True)
class Evidence:
    """`unit` is "decision" or "trace"."""

    unit: str
    judged: int
    effective_needed: float
    """In all."""
    cell_needed: float
    """In a cell, to say anything of it alone."""
    top_share_limit: float
    cells: pl.DataFrame
    propensities: pl.DataFrame
    calibration: pl.DataFrame
    weights: Mapping[str, Any] | None
    tail: pl.DataFrame
    counts: pl.DataFrame
    largest: pl.DataFrame
    fixed: Sequence[Mapping[str, Any]]
    shifts: pl.DataFrame | None
    untested: Sequence[str]
    labels: pl.DataFrame
    bounds: pl.DataFrame
    threshold: float
    tipping: float | None
    most: float | None
    unbounded: str
    """Why there are no bounds."""


def load(verdict: ServiceVerdict) -> Evidence | None:
    """None where the run kept nothing. UnreadableError for a file that is not as expected."""
    return data.kept(verdict, "evidence", _evidence)


def _evidence(said: Mapping[str, Any]) -> Evidence:
    needed, weights, drift, doubt = said["needed"], said["weights"], said["drift"], said["sensitivity"]
    floats = dict.fromkeys(("low", "high"), pl.Float64)
    return Evidence(
        unit=str(said["unit"]),
        judged=int(said["judged"]),
        effective_needed=float(needed["effective"]),
        cell_needed=float(needed["cell"]),
        top_share_limit=float(needed["top_share"]),
        cells=pl.DataFrame([row for one in said["segments"] for row in _cells(one, needed)], schema=CELLS),
        propensities=pl.DataFrame(said["propensities"], schema={"origin": pl.String, **floats, "decisions": pl.Int64}),
        calibration=pl.DataFrame(
            said["calibration"],
            schema={"origin": pl.String, **floats, "pairs": pl.Int64, "expected": pl.Float64, "taken": pl.Float64},
        ),
        weights=weights,
        tail=pl.DataFrame((weights or {}).get("tail", []), schema={"share": pl.Float64, "holds": pl.Float64}),
        counts=pl.DataFrame((weights or {}).get("counts", []), schema={**floats, "decisions": pl.Int64}),
        largest=pl.DataFrame(
            (weights or {}).get("largest", []),
            schema={"trace_id": pl.String, "action": pl.String, "weight": pl.Float64},
        ),
        fixed=tuple(said["fixed"]),
        shifts=None
        if drift is None
        else pl.DataFrame(
            drift["shifts"],
            schema={
                "aspect": pl.String,
                "what": pl.String,
                "size": pl.Float64,
                "p_value": pl.Float64,
                "alarm": pl.Boolean,
                "reason": pl.String,
            },
        ),
        untested=() if drift is None else tuple(map(str, drift["untested"])),
        labels=pl.DataFrame(
            said["labels"],
            schema={"action": pl.String, "decisions": pl.Int64, "labelled": pl.Int64, "judged": pl.Int64},
        ),
        bounds=pl.DataFrame(
            doubt["at"],
            schema=dict.fromkeys(("gamma", "low", "high", "low_limit", "high_limit"), pl.Float64),
        ),
        threshold=float(doubt["threshold"]),
        tipping=None if doubt["tipping"] is None else float(doubt["tipping"]),
        most=None if doubt["most"] is None else float(doubt["most"]),
        unbounded=str(doubt["why"] or ""),
    )


def _cells(segment: Mapping[str, Any], needed: Mapping[str, Any]) -> list[dict[str, Any]]:
    found = []
    for cell in segment["cells"]:
        share = cell["policy_share"]
        if share is not None and share < USED:
            state = "unused"
        elif cell["unsupported_share"] > UNTRIED:
            state = "untried"
        else:
            state = "enough" if cell["effective"] >= needed["cell"] else "few"
        row = {name: cell[name] for name in CELLS if name in cell}
        found.append(
            {"segment": segment["name"], "kind": segment["kind"], "decisions": segment["rows"], **row, "state": state}
        )
    return found
