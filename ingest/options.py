"""What the converter can be told. Loads nothing heavy, so the receiver's process and the command line may import it."""

from __future__ import annotations

from dataclasses import dataclass

from ingest.pricing import Discount, Price
from ingest.scales import Scale


@dataclass(frozen=True)
class ConverterOptions:
    """`quiet_s`: how long after its last span a trace is settled. `commit_s`: how often what arrives is committed.
    `retention_days`, `contents_days`: how long facts and texts are kept; None: for ever.
    `scales` say what scores mean."""

    quiet_s: float = 2.0
    prices: tuple[Price, ...] = ()
    discounts: tuple[Discount, ...] = ()
    commit_s: float = 1.0
    retention_days: float | None = None
    contents_days: float | None = None
    scales: tuple[Scale, ...] = ()
