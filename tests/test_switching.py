"""What a switch of models inside a session costs, by hand: the cached prefix is paid in full, and written anew."""

from __future__ import annotations

import polars as pl
import pytest

from ingest.pricing import Price, Prices
from optimizer.costs import costs_json
from optimizer.one_list import PriceList
from optimizer.report import cost_lines
from optimizer.switching import switching, words

M = 1e-6
AT = "2026-11-30"
PRICES = Prices(
    (Price("warm", 3.0, 15.0, cache_read=0.3, cache_write=3.75), Price("other", 1.0, 2.0), Price("half", 2.0, 2.0)), {}
)
START = 1_790_000_000_000_000_000


def turns(session: str, *told: tuple[str, int, int, int | None, int | None]) -> list[dict[str, object]]:
    """Turns a minute apart: model, input, output, cache reads and writes."""
    return [
        {
            "service": "s",
            "kind": "llm",
            "session_id": session,
            "model_requested": model,
            "model_returned": None,
            "provider": None,
            "start_ns": START + at * 60 * 10**9,
            "input_tokens": given,
            "output_tokens": answered,
            "cache_read_tokens": read,
            "cache_write_tokens": written,
        }
        for at, (model, given, answered, read, written) in enumerate(told)
    ]


def frame(*rows: list[dict[str, object]]) -> pl.DataFrame:
    schema = dict.fromkeys(
        ("service", "kind", "session_id", "model_requested", "model_returned", "provider"), pl.String
    )
    schema |= dict.fromkeys(("start_ns", "input_tokens", "output_tokens"), pl.Int64)
    schema |= dict.fromkeys(("cache_read_tokens", "cache_write_tokens"), pl.Int64)
    return pl.DataFrame([row for session in rows for row in session], schema=schema)


# `warm` reads the whole prefix of 1,000 (800 and 200) tokens and writes half of the 400 others.
WARM = turns("a", ("warm", 800, 200, 0, 400), ("warm", 1200, 100, 1000, 100))
OTHER = turns("b", ("other", 1800, 200, None, None), ("other", 2500, 100, None, None))


def test_the_prefix_of_another_models_turn_is_paid_in_full_and_written() -> None:
    """Of `other`'s second turn 2,000 tokens are prefix. Written: (400 + 100) of (800 + 200) not read, a half."""
    (row,) = switching(frame(WARM, OTHER), PRICES, AT)
    assert (row["model"], row["turns"], row["unknown_turns"]) == ("warm", 1, 0)
    assert row["lost_reads_usd_per_turn"] == pytest.approx(2000 * (3.0 - 0.3) * M)
    assert row["new_writes_usd_per_turn"] == pytest.approx(2000 * 0.5 * (3.75 - 3.0) * M)
    assert row["usd_per_turn"] == pytest.approx(2000 * 2.7 * M + 1000 * 0.75 * M)
    assert words(row) == (
        "a turn of a session that warm takes over from another model costs $0.0054 in lost cache reads and $0.0008 in "
        "new cache writes (1 turn; not in the savings)"
    )


def test_a_log_without_cache_reads_says_nothing() -> None:
    assert switching(frame(OTHER), PRICES, AT) == []
    assert switching(frame(turns("c", ("half", 100, 10, 0, 0), ("half", 200, 10, 0, 0))), PRICES, AT) == []


def test_what_is_not_known_is_left_out_and_never_free() -> None:
    """After an hour nothing was seen of the cache."""
    late = turns("d", ("other", 1800, 200, None, None), ("other", 2500, 100, None, None))
    late[1]["start_ns"] = START + 7200 * 10**9
    (row,) = switching(frame(WARM, OTHER, late), PRICES, AT)
    assert (row["turns"], row["unknown_turns"]) == (1, 1)
    assert switching(frame(WARM, late), PRICES, AT) == []
    unpriced = Prices((Price("other", 1.0, 2.0),), {})
    assert switching(frame(WARM, OTHER), unpriced, AT) == []


def test_turns_without_a_session_or_of_other_kinds_are_no_turns() -> None:
    alone = [{**row, "session_id": None} for row in OTHER]
    tools = [{**row, "kind": "tool"} for row in OTHER]
    assert switching(frame(WARM, alone, tools), PRICES, AT) == []


def test_the_report_says_so_beside_the_savings() -> None:
    calls = frame(WARM, OTHER).with_columns(
        cost_usd=pl.lit(0.01),
        unpriced=pl.lit(None, pl.String),
        billed_usd=pl.lit(0.01),
        billed_unpriced=pl.lit(None, pl.String),
    )
    decisions = pl.DataFrame({"cost_usd": [0.02, 0.02], "billed_usd": [0.02, 0.04]})
    found = costs_json(PriceList(AT, None, None, 3, 0), calls, decisions, PRICES)
    lines = cost_lines({"costs": found})
    assert lines[0] == f"costs: at the prices of {AT} (no built-in list, 3 prices of retroute.toml)"
    assert lines[1] == "today: $30.00 per 1,000 decisions as billed, $20.00 at these prices (2 decisions)"
    assert lines[-2].startswith("a turn of a session that warm takes over from another model costs $0.0054")
    assert "with sticky = true it keeps a session's model" in lines[-1]
    assert (
        "switches only where that model cannot serve"
        in cost_lines({"costs": found, "data": {"sessions": {"sessions": 1}}})[-1]
    )
    assert cost_lines({}) == []
