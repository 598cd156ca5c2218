"""The page on data health counts by the rollups, and says what is missing where."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest
from dashboard_fixture import write_lake
from pages_shown import html
from pages_shown import show as show_page
from test_dashboard_spend import calls, fill

from dashboard import health_charts, health_data, theme
from ingest.lake import Lake


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("RETROUTE_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def show(**query: str) -> str:
    at = show_page("health", **query)
    assert not at.exception, [found.value for found in at.exception]
    return html(at)


def test_filters_leave_the_counts_of_what_they_choose(home: Path) -> None:
    write_lake(home)
    assert "120 spans in 120 traces" in show()
    assert "80 spans in 80 traces" in show(service="alpha")
    assert "Nothing of this time" in show(**{"from": "2001-01-01", "to": "2001-01-02"})


def test_what_sources_do_not_say_is_counted_by_field(home: Path) -> None:
    rows = calls(60)
    fill(home, rows)
    cells = health_data.load(None, None, None).missing
    by_field = dict(cells.group_by("field").agg(pl.col("missing").sum()).iter_rows())
    assert by_field["Price"] == sum(row["unpriced"] is not None for row in rows) == 6
    assert (by_field["User"], by_field["Session"], by_field["Tokens"]) == (60, 0, 0)
    assert cells["source"].unique().sort().to_list() == ["shop · unknown", "support · unknown"]
    for ink in (theme.LIGHT, theme.DARK):
        assert "Prompt" in health_charts.missing(cells, ink).to_json()
    said = show(service="shop")
    assert "traces?service=shop&amp;unpriced=1" in said
    assert "traces?service=shop&amp;unscored=1" in said


def test_the_numbers_are_those_of_the_queries_that_scan(home: Path) -> None:
    write_lake(home)
    found = health_data.load(None, None, None)
    with Lake.open(home) as lake:
        health = lake.query("health_by_service")
        shares = lake.query("unpriced_shares")
        unpriced = lake.query("unpriced")
        counts = lake.query("counts").row(0, named=True)
    same = ["service", "calls", "llm_calls", "unpriced", "errors", "no_session", "spans", "traces", "scored_traces"]
    assert found.services.select(same).rows() == health.select(same).rows()
    assert found.spend.select(shares.columns).rows() == shares.rows()
    assert found.unpriced.select(unpriced.columns).rows() == unpriced.rows()
    assert {**found.counts, "unsettled_traces": counts["unsettled_traces"]} == counts
