"""Laws of pricing, for one call and for frames: additive, monotone, nothing for nothing, however it is split."""

from __future__ import annotations

from dataclasses import replace

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

from ingest.prices.frames import priced, repriced
from ingest.prices.rates import CLASSES
from ingest.pricing import Discount, Price, Prices, Usage, as_of, price_list

PRICES = price_list(
    (Price("own", 1.0, 4.0, cache_read=0.1), Price("own", 2.0, 8.0, above=1_000)), (Discount(10, "openai"),)
)
MODELS = (
    ("gpt-4o", "openai"),
    ("claude-sonnet-4-20250514", "anthropic"),
    ("gemini-2.5-pro", "gcp.gemini"),
    ("gpt-5", "openai"),
    ("deepseek-v4-pro", "deepseek"),
    ("own", None),
    ("unheard-of", "openai"),
    ("text-embedding-3-small", "openai"),
    (None, None),
)
TOKENS = (
    *("cache_read_tokens", "cache_write_tokens", "cache_write_1h_tokens", "reasoning_tokens", "input_audio_tokens"),
    *("input_image_tokens", "output_audio_tokens", "output_image_tokens", "web_search_calls", "code_interpreter_calls"),
    "file_search_calls",
)
DAY_NS = 86_400 * 10**9
LIST_DAY = "2026-11-25"

counts = st.one_of(st.none(), st.integers(0, 400_000))


@st.composite
def usages(draw: st.DrawFn) -> Usage:
    model, provider = draw(st.sampled_from(MODELS))
    requested = draw(st.sampled_from((None, "gpt-4o")))
    rare = {name: draw(st.one_of(st.none(), st.none(), st.integers(0, 900))) for name in TOKENS}
    return Usage(
        model,
        requested,
        provider,
        draw(counts),
        draw(counts),
        at_ns=draw(
            st.one_of(st.none(), st.just(5), st.integers(1_690_000_000, 1_800_000_000).map(lambda s: s * 10**9))
        ),
        embedding=model == "text-embedding-3-small",
        service_tier=draw(st.sampled_from((None, "default", "batch", "flex", "scale"))),
        search_size=draw(st.sampled_from((None, "low", "high"))),
        cache_hit=draw(st.sampled_from((None, None, False, True))),
        **rare,
    )


def frame(rows: list[Usage]) -> pl.DataFrame:
    columns = (*TOKENS, "model_returned", "model_requested", "provider", "input_tokens", "output_tokens")
    texts = {"model_returned", "model_requested", "provider", "service_tier", "search_size"}
    data: dict[str, pl.Series] = {
        name: pl.Series([getattr(row, name) for row in rows], dtype=pl.String if name in texts else pl.Int64)
        for name in (*columns, "service_tier", "search_size")
    }
    data["start_ns"] = pl.Series([row.at_ns for row in rows], dtype=pl.Int64)
    data["kind"] = pl.Series(["embedding" if row.embedding else "llm" for row in rows])
    data["cache_hit"] = pl.Series([row.cache_hit for row in rows], dtype=pl.Boolean)
    return pl.DataFrame(data)


@settings(deadline=None, max_examples=12)
@given(st.lists(usages(), min_size=1, max_size=25))
def test_a_frame_costs_what_its_calls_cost_one_by_one(rows: list[Usage]) -> None:
    for found, prices in (
        (priced(frame(rows), PRICES), PRICES),
        (repriced(frame(rows), PRICES, LIST_DAY), as_of(PRICES, LIST_DAY)),
    ):
        for usage, row in zip(rows, found.iter_rows(named=True), strict=True):
            cost = prices.cost(usage)
            assert row["unpriced"] == cost.unpriced, usage
            assert row["price"] == cost.price
            if cost.parts is None:
                assert row["cost_usd"] is None
                assert all(row[f"usd_{name}"] is None for name in CLASSES)
            else:
                assert row["cost_usd"] == pytest.approx(cost.usd, abs=1e-12)
                assert [row[f"usd_{name}"] for name in CLASSES] == pytest.approx(list(cost.parts), abs=1e-12)


@settings(deadline=None, max_examples=8)
@given(st.lists(usages(), min_size=2, max_size=20), st.data())
def test_splitting_or_reordering_a_frame_changes_nothing(rows: list[Usage], data: st.DataObject) -> None:
    whole = priced(frame(rows), PRICES)
    cut = data.draw(st.integers(1, len(rows) - 1))
    assert_frame_equal(pl.concat([priced(frame(rows[:cut]), PRICES), priced(frame(rows[cut:]), PRICES)]), whole)
    assert_frame_equal(priced(frame(rows[::-1]), PRICES).reverse(), whole)


@settings(deadline=None, max_examples=8)
@given(st.lists(usages(), min_size=1, max_size=20))
def test_repricing_twice_is_repricing_once(rows: list[Usage]) -> None:
    once = repriced(frame(rows), PRICES, LIST_DAY)
    again = repriced(frame(rows).with_columns(once), PRICES, LIST_DAY)
    assert_frame_equal(again, once)


@settings(deadline=None, max_examples=40)
@given(usages(), st.sampled_from(("input_tokens", "output_tokens")), st.integers(1, 300_000))
def test_more_tokens_never_cost_less(usage: Usage, name: str, more: int) -> None:
    larger = replace(usage, **{name: (getattr(usage, name) or 0) + more})
    before, after = PRICES.cost(usage).usd, PRICES.cost(larger).usd
    if before is not None and after is not None:
        assert after >= before - 1e-12


@settings(deadline=None, max_examples=40)
@given(usages())
def test_a_class_without_tokens_costs_nothing_and_parts_make_the_whole(usage: Usage) -> None:
    cost = PRICES.cost(usage)
    if cost.parts is None:
        assert cost.unpriced
        return
    parts = dict(zip(CLASSES, cost.parts, strict=True))
    assert cost.usd == pytest.approx(sum(parts.values()))
    for name, field in (
        ("cache_read", "cache_read_tokens"),
        ("reasoning", "reasoning_tokens"),
        ("web_search", "web_search_calls"),
    ):
        if not getattr(usage, field):
            assert parts[name] == 0


def test_more_cached_than_input_is_unpriced_in_both_views() -> None:
    usage = Usage("gpt-4o", None, "openai", 169, 581, cache_read_tokens=170)
    assert PRICES.cost(usage).unpriced == "more cached than input tokens"
    assert priced(frame([usage]), PRICES)["unpriced"].item() == "more cached than input tokens"


def test_no_tokens_cost_nothing_where_requests_are_free() -> None:
    assert PRICES.cost(Usage("gpt-4o", None, "openai", 0, 0)).usd == 0


def test_an_empty_frame_has_no_costs_and_all_columns() -> None:
    found = priced(frame([]), PRICES)
    assert found.is_empty()
    assert found.columns == ["cost_usd", "unpriced", "price", *(f"usd_{name}" for name in CLASSES)]


def test_columns_that_a_frame_lacks_are_unknown() -> None:
    calls = pl.DataFrame({"model_returned": ["own"], "input_tokens": [100], "output_tokens": [10]})
    assert priced(calls, PRICES)["cost_usd"].item() == pytest.approx(140e-6)


def test_two_views_of_one_call() -> None:
    usage = Usage("gpt-4o", None, "openai", 1_000_000, 0, at_ns=1_717_400_000 * 10**9)  # 2024-06-03
    plain = price_list()
    assert plain.cost(usage).usd == pytest.approx(5.0)
    assert repriced(frame([usage]), plain, "2025-06-15")["cost_usd"].item() == pytest.approx(2.5)


@pytest.mark.bench
def test_a_million_calls_are_priced_in_5_s_of_two_cores() -> None:
    import time

    rows = [
        Usage(m, None, p, 1_000, 100, 300, at_ns=1_740_000_000 * 10**9 + d * DAY_NS)
        for m, p in MODELS[:6]
        for d in range(300)
    ]
    calls = pl.concat([frame(rows)] * (1_000_000 // len(rows) + 1)).head(1_000_000)
    started = time.process_time()
    assert priced(calls, price_list()).height == 1_000_000
    assert time.process_time() - started < 10.0


def test_own_prices_without_a_tier_leave_a_batch_unpriced() -> None:
    own = Prices((Price("m", 1.0, 2.0),), {})
    assert (
        own.cost(Usage("m", None, None, 1, 1, service_tier="batch")).unpriced == "no batch price for m in retroute.toml"
    )
    both = Prices((Price("m", 1.0, 2.0), Price("m", 0.5, 1.0, tier="batch")), {})
    assert both.cost(Usage("m", None, None, 10, 10, service_tier="batch")).usd == pytest.approx(15e-6)
