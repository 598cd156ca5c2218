"""Estimates and limits in, a verdict with reasons out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Outcome = Literal["deploy", "promising", "keep", "cannot_tell"]
Kind = Literal["certified", "asymptotic", "assumption"]


@dataclass(frozen=True)
class Limits:
    """What a new policy may never do. `quality_margin` is the largest tolerated loss of mean quality (quality is in
    [0, 1]), `confidence` the level of every interval, `latency_s` the largest tolerated rise of mean latency in seconds
    (None: no limit)."""

    quality_margin: float = 0.01
    confidence: float = 0.95
    latency_s: float | None = None


@dataclass(frozen=True)
class Estimate:
    """A number with its interval, and what kind of interval it is."""

    estimator: str
    value: float
    low: float
    high: float
    episodes: int
    effective: float
    kind: Kind


@dataclass(frozen=True)
class Reason:
    """One condition of the gate: what was found, what is needed, and what would help. `holds` says whether it is met."""

    condition: str
    got: str
    needed: str
    remedy: str
    holds: bool


@dataclass(frozen=True)
class Verdict:
    """The gate's answer and every condition that led to it."""

    outcome: Outcome
    reasons: tuple[Reason, ...]
