"""What the settings declare and the lake has to know: the scales of scores, kept where its views find them."""

from __future__ import annotations

from ingest import scales
from ingest.arrow_tables import table
from ingest.lake import Lake
from ingest.scales import Scale


def declare_scales(lake: Lake, declared: tuple[Scale, ...]) -> None:
    """Stores the scales as a new version, unless the lake's newest one is the same. The lake is open to write."""
    known = lake.query("score_scales")
    version = int(known["version"].max() or 0)  # type: ignore[arg-type]
    rows = scales.rows(declared, version)
    if rows == known.rows() or (known.is_empty() and not declared):
        return
    rows = scales.rows(declared, version + 1)
    lake.write({"score_scales": table(lake.schema("score_scales"), scales.COLUMNS, rows)})
