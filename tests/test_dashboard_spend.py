"""The page on spend: what it shows is what the calls cost, and what has no price is in no amount."""

from __future__ import annotations

import random
import re
from pathlib import Path

import polars as pl
import pyarrow as pa
import pytest
from pages_shown import html
from pages_shown import show as show_page
from streamlit.testing.v1 import AppTest

from dashboard import spend_charts, spend_data, theme
from dashboard.spend_charts import usd
from dashboard.spend_data import DAY_NS, HOUR_NS
from ingest.lake import Lake

START_NS = 1_793_491_200 * 10**9  # 2026-11-01
EVIL = '<img src=x onerror="alert(1)">'


def calls(count: int) -> list[dict[str, object]]:
    """Calls of twenty days; every tenth without a price, every seventh failed, every fifth tried again."""
    rng = random.Random(1)
    found: list[dict[str, object]] = []
    for n in range(count):
        read, written, given, said = rng.randrange(500), rng.randrange(100), 1000, rng.randrange(300)
        parts = ((given - read - written) * 2e-6, read * 2e-7, written * 2.5e-6, said * 8e-6)
        priced = n % 10 != 0
        names = ("input_usd", "cache_read_usd", "cache_write_usd", "output_usd")
        found.append(
            {
                "trace_id": f"{n // 2:032x}",
                "span_id": f"{n:016x}",
                "kind": "llm",
                "name": f"chat model-{n % 3}",
                "service": "shop" if n % 4 else "support",
                "agent": EVIL if n % 6 == 1 else None,
                "model_returned": f"model-{n % 3}" if priced else "unheard-of",
                "provider": "openai",
                "input_tokens": given,
                "cache_read_tokens": read,
                "cache_write_tokens": written,
                "output_tokens": said,
                "cost_usd": sum(parts) if priced else None,
                "unpriced": None if priced else "no price for unheard-of",
                **dict(zip(names, parts if priced else (None,) * 4, strict=True)),
                "status": "error" if n % 7 == 0 else "ok",
                "attempt_of": "later" if n % 5 == 1 else None,
                "session_id": f"session-{n % 40}",
                "start_ns": START_NS + n * 20 * DAY_NS // count,
                "end_ns": START_NS + n * 20 * DAY_NS // count + 10**9,
            }
        )
    return found


def fill(home: Path, rows: list[dict[str, object]]) -> None:
    traces = {row["trace_id"]: row for row in reversed(rows)}
    settled = [
        {"trace_id": i, "service": r["service"], "session_id": r["session_id"], "start_ns": r["start_ns"], "spans": 2}
        for i, r in traces.items()
    ]
    with Lake.open(home, write=True) as lake:
        tables = {"settled_calls": rows, "settled_traces": settled}
        lake.write({name: pa.Table.from_pylist(found, _schema(lake, name, found)) for name, found in tables.items()})


def _schema(lake: Lake, table: str, rows: list[dict[str, object]]) -> pa.Schema:
    return pa.schema([field for field in lake.schema(table) if field.name in rows[0]])


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("RETROUTE_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("spend") / "home"
    fill(found, calls(600))
    return found


@pytest.fixture
def full(made: Path, monkeypatch: pytest.MonkeyPatch) -> list[dict[str, object]]:
    monkeypatch.setenv("RETROUTE_HOME", str(made))
    return calls(600)


def show(**query: str) -> AppTest:
    at = show_page("spend", **query)
    assert not at.exception, [found.value for found in at.exception]
    return at


def cost(rows: list[dict[str, object]]) -> float:
    return sum(row["cost_usd"] or 0.0 for row in rows)  # type: ignore[misc]


def test_before_anything_arrived_it_says_what_to_do(home: Path) -> None:
    assert "Nothing has arrived yet" in html(show())
    Lake.open(home, write=True).close()
    assert "No call yet" in html(show())


def test_it_shows_what_the_calls_cost(full: list[dict[str, object]]) -> None:
    said = html(show())
    assert f"{usd(cost(full))} for 600 calls in 300 tasks" in said
    assert "60 calls have no price; they are in no amount here." in said
    tried, failed = (
        [r for r in full if test(r)] for test in (lambda r: r["attempt_of"], lambda r: r["status"] == "error")
    )
    assert usd(cost(tried)) in said
    assert usd(cost(failed)) in said
    for model in ("model-0", "model-1", "model-2"):
        own = [row for row in full if row["model_returned"] == model]
        assert f">{model}</a>" in said
        assert f'<td class="rr-number">{usd(cost(own))}</td>' in said
    (unheard,) = re.findall(r'<tr><td class="rr-text"><a[^>]*>unheard-of</a>.*?</tr>', said)
    assert "unknown" in unheard
    assert "$0" not in unheard


def test_a_filter_changes_every_number_and_reaches_the_links(full: list[dict[str, object]]) -> None:
    own = [
        row
        for row in full
        if row["service"] == "support" and START_NS + 5 * DAY_NS <= row["start_ns"] < START_NS + 10 * DAY_NS  # type: ignore[operator]
    ]
    before = [
        row
        for row in full
        if row["service"] == "support" and START_NS <= row["start_ns"] < START_NS + 5 * DAY_NS  # type: ignore[operator]
    ]
    said = html(show(**{"service": "support", "from": "2026-11-06", "to": "2026-11-10"}))
    assert f"{usd(cost(own))} for {len(own)} calls" in said
    assert f"in the same time before ({usd(cost(before))})" in said
    assert "traces?service=support&amp;from=2026-11-06&amp;to=2026-11-10&amp;model=model-" in said


def test_days_without_a_call_say_so(full: list[dict[str, object]]) -> None:
    assert "No call in this time" in html(show(**{"from": "2025-01-01", "to": "2025-01-02"}))


@pytest.mark.parametrize("by", ["step", "agent", "session"])
def test_groups_add_up_to_the_whole(full: list[dict[str, object]], by: str) -> None:
    said = html(show(by=by))
    if by == "session":
        assert "8 other" in said
        assert "search=session-" in said
    if by == "agent":
        assert EVIL not in said
        assert "&lt;img src=x" in said
        assert "not named" in said


def test_groups_of_a_window_hold_each_call_once(full: list[dict[str, object]]) -> None:
    asked = spend_data.Window(START_NS, START_NS + 20 * DAY_NS, DAY_NS)
    spend = spend_data.load(asked, None)
    for by in spend_data.GROUPS:
        if by != "tool":
            assert spend_data.grouped(spend, by, None)["cost_usd"].sum() == pytest.approx(cost(full))
    assert spend.over_time["usd"].sum() == pytest.approx(cost(full))
    boxes = spend_data.icicle(spend.steps)
    for level in range(4):
        assert boxes.filter(pl.col("level") == level)["usd"].sum() == pytest.approx(cost(full))


@pytest.mark.parametrize(
    ("per", "title"), [("total", "USD per 6 hours"), ("task", "USD per task"), ("call", "USD per call")]
)
def test_cost_over_time_is_of_each_days_own_tasks_or_calls(full: list[dict[str, object]], per: str, title: str) -> None:
    spend = spend_data.load(spend_data.Window(START_NS, START_NS + 20 * DAY_NS, DAY_NS), None)
    day = [row for row in full if START_NS + 3 * DAY_NS <= row["start_ns"] < START_NS + 4 * DAY_NS]  # type: ignore[operator]
    priced = [row for row in day if row["cost_usd"] is not None]
    of = {"total": 1, "task": len({row["trace_id"] for row in day}), "call": len(priced)}[per]
    drawn = spend_data.over_time(spend, per)
    assert drawn.filter(pl.col("at_ns") == START_NS + 3 * DAY_NS)["usd"].sum() == pytest.approx(cost(day) / of)
    assert title in str(show(per=per).get("vega_lite_chart")[0].proto)


def test_time_in_which_nothing_ran_costs_nothing_per_task() -> None:
    times = pl.DataFrame({"at_ns": [0, 1], "part": ["Input"] * 2, "usd": [3.0, 0.0]})
    counts = pl.DataFrame({"at_ns": [0], "task": [2], "call": [3]})
    window, nothing = spend_data.Window(0, 2, 1), spend_data.Totals(3.0, 3, 3, 0, 2, 0.0, 0.0)
    spend = spend_data.Spend(window, nothing, None, times, pl.DataFrame(), spend_data.Cache(None, None, 0, 0), counts)
    assert spend_data.over_time(spend, "task")["usd"].to_list() == [1.5, 0.0]


def test_what_caching_saved_is_measured_against_the_models_other_input(full: list[dict[str, object]]) -> None:
    found = spend_data.load(spend_data.Window(START_NS, START_NS + 20 * DAY_NS, DAY_NS), None).cache
    priced = [row for row in full if row["cost_usd"] is not None]
    read, written = (sum(row[name] for row in priced) for name in ("cache_read_tokens", "cache_write_tokens"))  # type: ignore[misc]
    assert found.hit_share == pytest.approx(read / (1000 * len(priced)))
    assert found.saved_usd == pytest.approx(read * (2e-6 - 2e-7) - written * (2.5e-6 - 2e-6))


def test_a_saving_that_cannot_be_told_is_not_zero() -> None:
    row = {name: [0.0] for name in ("input_usd", "cache_write_usd")} | {"cache_read_usd": [0.1]}
    tokens = {"input_tokens": [100], "cache_read_tokens": [100], "cache_write_tokens": [0]}
    found = spend_data.cache(pl.DataFrame({"provider": ["p"], "model": ["m"], **row, **tokens}))
    assert (found.hit_share, found.saved_usd, found.unknown_tokens) == (1.0, None, 100)


def test_a_clock_in_the_future_does_not_stretch_the_window() -> None:
    seen = pl.DataFrame({"service": ["a"], "first_ns": [START_NS], "last_ns": [START_NS + 400 * 365 * DAY_NS // 10]})
    found = spend_data.window(seen, None, None, None, START_NS + 2 * HOUR_NS)
    assert found is not None
    assert found.until_ns == START_NS + 2 * HOUR_NS + DAY_NS


def test_steps_without_cost_are_drawn_as_nothing_spent() -> None:
    times = pl.DataFrame({"at_ns": [0, 3], "cost_usd": [1.0, 2.0], **{name: [0.0, 0.0] for name in spend_data.PARTS}})
    assert spend_data.divided(times, 1)["usd"].to_list() == [1.0, 0.0, 0.0, 2.0]


def test_charts_are_drawn_in_tones_of_the_mode(full: list[dict[str, object]]) -> None:
    spend = spend_data.load(spend_data.Window(START_NS, START_NS + 20 * DAY_NS, DAY_NS), None)
    for ink in (theme.LIGHT, theme.DARK):
        drawn = spend_charts.over_time(spend.over_time, DAY_NS, ink).to_dict()
        assert "USD per day" in str(drawn)
        assert "'format': '$,~r'" in str(drawn)  # SI prefixes would make "30m" of three cents
        boxes = spend_data.icicle(spend.steps).with_columns(href=pl.lit("traces"))
        assert "href" in spend_charts.icicle(boxes, ink).to_json()
