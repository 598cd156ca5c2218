"""Savings are computed with every call at one price list; what was billed, and what is unknown, stand beside it."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import polars as pl
import pytest
from otlp_traces import SECOND, agent, chat, span, traces_body

from ingest.importers.otlp_files import import_paths
from ingest.lake import Lake
from ingest.options import ConverterOptions
from ingest.pricing import Discount, Price, Prices
from optimizer import one_list, pipeline, report
from optimizer.config import Settings
from optimizer.unpriced import sentence, shares

M = 1e-6
SPRING = 1_772_323_200 * SECOND  # 2026-03-01
AUTUMN = 1_790_000_000 * SECOND  # 2026-09-21
LISTED = (
    Price("falls", 10.0, 10.0),
    Price("falls", 1.0, 1.0, valid_from="2026-06-01"),
    Price("stays", 4.0, 4.0),
    Price("later", 2.0, 2.0, valid_from="2026-06-01"),
)
TODAY = datetime.now(UTC).strftime("%Y-%m-%d")


def question(text: str) -> str:
    return json.dumps([{"role": "user", "parts": [{"type": "text", "content": text}]}])


def call(number: int, model: str, at_ns: int, **more: object):
    return span(number, chat(model, 900, 100, **more), trace=number, start_ns=at_ns)


def spans():
    """Traces 1 to 4 have one call each; 5 is an agent whose first call failed, was billed, and was tried again."""
    asked = {"gen_ai__input__messages": question("retry me")}
    one, other = {"trace": 5, "parent": 50, "service": "helper"}, {"trace": 5, "service": "helper"}
    return [
        call(1, "falls", SPRING),
        call(2, "falls", AUTUMN),
        call(3, "later", SPRING),
        call(4, "nowhere", AUTUMN),
        span(50, agent(), start_ns=AUTUMN, end_ns=AUTUMN + 9 * SECOND, **other),
        span(51, chat("stays", 900, 100, **asked), start_ns=AUTUMN, status="error", **one),
        span(52, chat("stays", 900, 300, **asked), start_ns=AUTUMN + 2 * SECOND, **one),
    ]


@pytest.fixture(scope="module")
def night(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict]:
    folder = tmp_path_factory.mktemp("night")
    (folder / "log.json").write_bytes(traces_body(spans()))
    import_paths(folder / "home", [folder / "log.json"], ConverterOptions(quiet_s=0.0, prices=LISTED))
    return folder / "home", pipeline.nightly(folder / "home", Settings(prices=LISTED))


def decisions(home: Path, result: dict) -> dict[int, tuple[float | None, float | None]]:
    """trace -> (cost at one list, as billed)."""
    run = home / "runs" / result["services"]["shop"]["run_id"]
    rows = pl.read_parquet(run / "decisions.parquet").select("trace_id", "cost_usd", "billed_usd").iter_rows()
    return {int(trace, 16): (usd, billed) for trace, usd, billed in rows}


def test_every_call_of_a_decision_is_priced_at_the_newest_list(night: tuple[Path, dict]) -> None:
    found = decisions(*night)
    assert found[1] == (pytest.approx(1000 * 1 * M), pytest.approx(1000 * 10 * M))
    assert found[2] == (pytest.approx(1000 * 1 * M), pytest.approx(1000 * 1 * M))
    assert found[3] == (pytest.approx(1000 * 2 * M), None)  # its price was not known on its day


def test_what_has_no_price_at_that_list_has_no_cost(night: tuple[Path, dict]) -> None:
    assert decisions(*night)[4] == (None, None)
    costs = night[1]["services"]["shop"]["costs"]
    assert costs["unpriced"]["one_list"]["unpriced_calls"] == 1
    assert costs["unpriced"]["one_list"]["reasons"] == [
        {"reason": "no price for nowhere", "calls": 1, "tokens": 1000, "uncounted_calls": 0}
    ]
    assert costs["unpriced"]["billed"]["unpriced_calls"] == 2
    assert costs["unpriced"]["billed"]["share_of_calls"] == pytest.approx(2 / 4)


def test_a_failed_attempt_is_part_of_its_episodes_cost(night: tuple[Path, dict]) -> None:
    home, result = night
    assert decisions(home, result)[5][0] == pytest.approx((1000 + 1200) * 4 * M)
    with Lake.open(home) as lake:
        steps = lake.sql("select cost_usd from steps where trace_id like '%5' and kind = 'llm'")
    assert decisions(home, result)[5][1] == pytest.approx(steps["cost_usd"].item())


def test_the_run_and_the_report_state_the_list_and_both_views(night: tuple[Path, dict], capsys) -> None:
    home, result = night
    service = result["services"]["shop"]
    manifest = json.loads((home / "runs" / service["run_id"] / "manifest.json").read_text())
    today = manifest["created_at"][:10]  # the tests may have begun the day before
    assert today >= TODAY
    assert service["costs"]["price_list"]["at"] == today
    assert service["costs"]["price_list"]["stated"] == 4
    assert service["costs"]["price_list"]["listed"]
    assert manifest["price_list"] == service["costs"]["price_list"]
    point = service["points"][0]["point"]
    assert point == "chat"
    assert service["costs"]["decisions"] == 2  # of the point's four
    assert service["costs"]["billed_usd_per_1k"] == pytest.approx(1000 * (1000 * 10 + 1000 * 1) * M / 2)
    assert service["costs"]["one_list_usd_per_1k"] == pytest.approx(1000 * 1000 * 1 * M)
    assert (service["costs"]["one_list_unknown"], service["data"]["unpriced"]) == (1, 1)
    report.show(result, as_json=False)
    printed = " ".join(capsys.readouterr().out.split())
    assert f"costs: at the prices of {today} (litellm" in printed
    assert "4 prices of retroute.toml" in printed
    assert "today: $5.50 per 1,000 decisions as billed, $1.00 at these prices (2 decisions)" in printed
    assert "at these prices: 1 of 4 calls (25.0%) have no cost" in printed
    assert "as billed: 2 of 4 calls (50.0%) have no cost" in printed
    assert "1 call: no price for nowhere" in printed


def test_repricing_at_the_list_of_the_day_changes_nothing(night: tuple[Path, dict]) -> None:
    home, _ = night
    with Lake.open(home) as lake:
        calls = lake.query("decision_calls").filter(pl.col("start_ns") >= AUTUMN)
    again = one_list.with_one_list(calls, Prices(LISTED, {}), "2026-09-21")
    assert again["cost_usd"].to_list() == pytest.approx(again["billed_usd"].to_list(), nan_ok=True)


def test_the_newest_list_is_that_of_the_day() -> None:
    prices = Prices(
        (Price("m", 1, 1), Price("m", 2, 2, valid_from="2026-01-01")),
        discounts=(Discount(10, valid_until="2025-12-31"), Discount(5)),
    )
    old, new = one_list.newest(prices, "2024-05-01"), one_list.newest(prices, "2026-11-30")
    assert old.dated is not None
    assert new.dated is not None
    assert old.dated <= "2024-05-01" < new.dated <= "2026-11-30"
    assert (old.stated, old.discounts, new.stated, new.discounts) == (1, 2, 2, 1)
    assert one_list.newest(prices, "2020-01-01").listed is None


def test_shares_count_what_is_not_known_and_never_as_0() -> None:
    frame = pl.DataFrame(
        [
            ("llm", 1.0, None, 60, 30),
            ("llm", None, "no price for x", 10, None),
            ("llm", None, "no input token count", None, None),
            ("tool", None, None, None, None),
        ],
        schema={
            "kind": pl.String,
            "cost_usd": pl.Float64,
            "unpriced": pl.String,
            "input_tokens": pl.Int64,
            "output_tokens": pl.Int64,
        },
        orient="row",
    )
    found = shares(frame)
    assert (found["calls"], found["unpriced_calls"], found["uncounted_calls"]) == (3, 2, 1)
    assert (found["share_of_calls"], found["share_of_tokens"]) == (pytest.approx(2 / 3), pytest.approx(0.1))
    assert sentence(found).endswith("10.0% of the tokens that were told; 1 told no tokens")
    assert shares(frame.filter(pl.col("kind") == "tool"))["share_of_calls"] is None
    assert sentence(shares(frame.head(1))) == "all 1 calls have a price"
