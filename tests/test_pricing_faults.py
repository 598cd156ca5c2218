"""The ways in which other products get costs wrong, one golden case each: tokens and cost worked out by hand.

The numbers in the names are those of a list of faults of cost accounting seen in the field; 1 to 23 and 26 are wrong
figures, 24 and 25 figures that were missed.
Prices are public list prices in USD per million tokens, written out here.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from otlp_traces import span, traces_body

from ingest.dialects import registry
from ingest.dialects.facts import LlmFacts
from ingest.pricing import Price, Prices, Usage, price_list, usage_of
from ingest.settle import TraceSpan, settle
from ingest.spans import Scope, Span
from optimizer import cli

M = 1e-6
PRICES = price_list()
AUTUMN_2025 = 1_761_000_000_000_000_000  # 2025-10-20
SUMMER_2025 = 1_751_000_000_000_000_000  # 2025-06-27
WINTER_2026 = 1_795_000_000_000_000_000  # 2026-11-18


def usd(usage: Usage, prices: Prices = PRICES) -> float:
    found = prices.cost(usage)
    assert found.usd is not None, found.unpriced
    assert found.parts is not None
    assert sum(found.parts) == pytest.approx(found.usd)
    return found.usd


def facts(attributes: dict[str, object], scope: str = "app") -> LlmFacts:
    span = Span(
        trace_id="0" * 31 + "1",
        span_id="0" * 15 + "1",
        parent_span_id=None,
        name="chat",
        kind="client",
        start_ns=AUTUMN_2025,
        end_ns=AUTUMN_2025 + 10**9,
        status="ok",
        status_message="",
        attributes=attributes,
        resource={},
        scope=Scope(scope),
    )
    return registry.read(span).facts


def chat(model: str, provider: str, given: int, answered: int, **more: object) -> dict[str, object]:
    return {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": provider,
        "gen_ai.response.model": model,
        "gen_ai.usage.input_tokens": given,
        "gen_ai.usage.output_tokens": answered,
        **{key.replace("__", "."): value for key, value in more.items()},
    }


def test_1_and_2_cached_input_is_inside_the_input_and_pays_the_cache_price() -> None:
    """gpt-4o: 2.50 in, 1.25 cached, 10.00 out. 10,000 in, 8,000 of them cached, 500 out."""
    read = facts(chat("gpt-4o", "openai", 10_000, 500, **{"gen_ai.usage.cache_read.input_tokens": 8_000}))
    assert (read.input_tokens, read.usage_rule) == (10_000, "inclusive: convention")
    assert usd(usage_of(read, AUTUMN_2025)) == pytest.approx((2_000 * 2.5 + 8_000 * 1.25 + 500 * 10) * M)


def test_3_every_listed_class_has_a_price_column() -> None:
    """claude-haiku-4-5: 1.00 in, 0.10 read, 1.25 written, 2.00 written for an hour, 5.00 out."""
    usage = Usage("claude-haiku-4-5-20251001", None, "anthropic", 10_000, 100, 4_000, 3_000, WINTER_2026)
    hour = replace(usage, cache_write_1h_tokens=1_000)
    assert usd(usage) == pytest.approx((3_000 * 1 + 4_000 * 0.1 + 3_000 * 1.25 + 100 * 5) * M)
    assert usd(hour) == pytest.approx((3_000 * 1 + 4_000 * 0.1 + 2_000 * 1.25 + 1_000 * 2 + 100 * 5) * M)


def test_4_an_answer_from_the_apps_own_cache_costs_nothing() -> None:
    read = facts({**chat("gpt-4o", "openai", 10_000, 500), "litellm.cache_hit": True, "litellm.call_id": "c"})
    assert PRICES.cost(usage_of(read, AUTUMN_2025)).usd == 0
    paid = facts({**chat("gpt-4o", "openai", 10_000, 500), "litellm.cache_hit": False, "litellm.call_id": "c"})
    assert usd(usage_of(paid, AUTUMN_2025)) == pytest.approx((10_000 * 2.5 + 500 * 10) * M)


def trace(*spans: tuple[str, str | None, LlmFacts]) -> float:
    """The cost of a trace of (id, parent, facts)."""
    found = settle(
        [
            TraceSpan(name, parent, name, "s", AUTUMN_2025 + at, AUTUMN_2025 + 10**9 - at, "ok", told)
            for at, (name, parent, told) in enumerate(spans)
        ],
        PRICES,
    )
    return sum(call.cost.usd or 0.0 for call in found.calls)


CALL = LlmFacts("llm", "otel_genai", "openai", "gpt-4o", "gpt-4o", input_tokens=1_000, output_tokens=100)
CALL_USD = (1_000 * 2.5 + 100 * 10) * M


def test_5_an_input_counted_by_two_instrumentations_counts_once() -> None:
    assert trace(("a", None, CALL), ("b", "a", CALL)) == pytest.approx(CALL_USD)


def test_6_input_that_was_sent_whole_beside_cache_reads_is_not_added_to() -> None:
    """claude-sonnet-4: 3.00 in, 0.30 read, 15.00 out. 12,000 in all, 9,000 of them read."""
    read = facts(
        chat("claude-sonnet-4-20250514", "anthropic", 12_000, 200, **{"gen_ai.usage.cache_read_input_tokens": 9_000})
    )
    assert usd(usage_of(read, AUTUMN_2025)) == pytest.approx((3_000 * 3 + 9_000 * 0.3 + 200 * 15) * M)


def test_7_cache_writes_sent_inside_the_input_are_not_charged_twice() -> None:
    """claude-sonnet-4: writes 3.75."""
    read = facts(
        chat(
            "claude-sonnet-4-20250514", "anthropic", 12_000, 200, **{"gen_ai.usage.cache_creation.input_tokens": 9_000}
        )
    )
    assert usd(usage_of(read, AUTUMN_2025)) == pytest.approx((3_000 * 3 + 9_000 * 3.75 + 200 * 15) * M)


def test_8_full_rate_on_all_input_plus_the_cache_rate_is_not_what_is_paid() -> None:
    """gpt-5: 1.25 in, 0.125 cached, 10.00 out. 8,000 in, 7,000 cached, 200 out: 0.004125, not 0.012875."""
    usage = Usage("gpt-5", None, "openai", 8_000, 200, 7_000, None, AUTUMN_2025)
    assert usd(usage) == pytest.approx((1_000 * 1.25 + 7_000 * 0.125 + 200 * 10) * M)
    assert usd(usage) == pytest.approx(0.004125)


@pytest.mark.parametrize("read", [0, 1_000, 50_000, 99_000])
def test_9_the_error_does_not_grow_with_how_well_caching_works(read: int) -> None:
    """claude-haiku-4-5: 1.00 in, 0.10 read."""
    usage = Usage("claude-haiku-4-5-20251001", None, "anthropic", 100_000, 0, read, None, WINTER_2026)
    assert usd(usage) == pytest.approx((100_000 - read) * 1 * M + read * 0.1 * M)


def test_10_spans_of_litellm_keep_the_split_of_the_cache() -> None:
    attributes = chat("gpt-4o", "openai", 120_000, 50, **{"gen_ai.usage.cache_read_input_tokens": 110_000})
    read = facts({**attributes, "litellm.call_id": "c"}, "litellm")
    assert read.cache_read_tokens == 110_000
    assert usd(usage_of(read, AUTUMN_2025)) == pytest.approx((10_000 * 2.5 + 110_000 * 1.25 + 50 * 10) * M)


@pytest.mark.parametrize(
    "key",
    [
        "gen_ai.usage.cache_read.input_tokens",
        "gen_ai.usage.cache_read_input_tokens",
        "gen_ai.usage.details.cached_tokens",
        "gen_ai.usage.details.cache_read_tokens",
        "llm.token_count.prompt_details.cache_read",
    ],
)
def test_11_cached_tokens_count_under_any_of_their_names(key: str) -> None:
    read = facts(chat("gpt-4o", "openai", 10_000, 500, **{key: 8_000}))
    assert usd(usage_of(read, AUTUMN_2025)) == pytest.approx((2_000 * 2.5 + 8_000 * 1.25 + 500 * 10) * M)


def test_12_cached_input_of_google_models_has_its_price() -> None:
    """gemini-2.5-flash: 0.30 in, 0.03 cached (since autumn 2025), 2.50 out."""
    usage = Usage("gemini-2.5-flash", None, "gcp.gemini", 10_000, 100, 8_000, None, WINTER_2026)
    assert usd(usage) == pytest.approx((2_000 * 0.3 + 8_000 * 0.03 + 100 * 2.5) * M)


def test_13_a_prompt_above_200k_pays_the_long_context_price() -> None:
    """gemini-2.5-pro: 1.25 in and 10.00 out up to 200k, 2.50 and 15.00 above."""
    short = Usage("gemini-2.5-pro", None, "gcp.gemini", 200_000, 1_000, None, None, AUTUMN_2025)
    assert usd(short) == pytest.approx((200_000 * 1.25 + 1_000 * 10) * M)
    assert usd(replace(short, input_tokens=200_001)) == pytest.approx((200_001 * 2.5 + 1_000 * 15) * M)


def test_14_cache_writes_are_input_and_not_output() -> None:
    read = facts(
        chat("claude-haiku-4-5-20251001", "anthropic", 5_000, 10, **{"gen_ai.usage.cache_creation_input_tokens": 4_000})
    )
    assert (read.input_tokens, read.cache_write_tokens, read.output_tokens) == (5_000, 4_000, 10)
    assert usd(usage_of(read, WINTER_2026)) == pytest.approx((1_000 * 1 + 4_000 * 1.25 + 10 * 5) * M)


def test_15_cache_writes_beyond_200k_pay_the_long_context_price() -> None:
    """claude-sonnet-4 above 200k: 6.00 in, 0.60 read, 7.50 written, 22.50 out; the tier goes by all input."""
    usage = Usage("claude-sonnet-4-20250514", None, "anthropic", 250_000, 100, 150_000, 90_000, AUTUMN_2025)
    assert usd(usage) == pytest.approx((10_000 * 6 + 150_000 * 0.6 + 90_000 * 7.5 + 100 * 22.5) * M)


def test_16_prices_of_ones_own_above_200k_are_applied() -> None:
    own = Prices((Price("m", 1.0, 2.0), Price("m", 3.0, 6.0, cache_read=0.3, above=200_000)), {})
    usage = Usage("m", None, None, 200_000, 10)
    assert usd(usage, own) == pytest.approx((200_000 * 1 + 10 * 2) * M)
    long = replace(usage, input_tokens=200_001, cache_read_tokens=1)
    assert usd(long, own) == pytest.approx((200_000 * 3 + 0.3 + 10 * 6) * M)


def test_17_prices_of_ones_own_above_32k_are_applied() -> None:
    own = Prices((Price("m", 2.0, 4.0, above=32_000), Price("m", 1.0, 2.0)), {})
    assert usd(Usage("m", None, None, 32_000, 10), own) == pytest.approx((32_000 * 1 + 10 * 2) * M)
    assert usd(Usage("m", None, None, 32_001, 10), own) == pytest.approx((32_001 * 2 + 10 * 4) * M)


def test_18_batches_have_long_context_and_cache_prices_of_their_own() -> None:
    """gpt-6-luna, batch: 0.05 in, 0.005 read up to 272k; 0.10 and 0.01 above. Output 0.25 and 0.375."""
    entry = {
        "input_cost_per_token": 1e-7,
        "output_cost_per_token": 5e-7,
        "cache_read_input_token_cost": 1e-8,
        "input_cost_per_token_batches": 5e-8,
        "output_cost_per_token_batches": 2.5e-7,
        "cache_read_input_token_cost_batches": 5e-9,
        "input_cost_per_token_above_272k_tokens": 2e-7,
        "output_cost_per_token_above_272k_tokens": 7.5e-7,
        "input_cost_per_token_above_272k_tokens_batches": 1e-7,
        "output_cost_per_token_above_272k_tokens_batches": 3.75e-7,
        "cache_read_input_token_cost_above_272k_tokens_batches": 1e-8,
    }
    own = Prices((), {"luna": entry})
    usage = Usage("luna", None, None, 100_000, 1_000, 40_000, service_tier="batch")
    assert usd(usage, own) == pytest.approx((60_000 * 0.05 + 40_000 * 0.005 + 1_000 * 0.25) * M)
    long = replace(usage, input_tokens=300_000)
    assert usd(long, own) == pytest.approx((260_000 * 0.1 + 40_000 * 0.01 + 1_000 * 0.375) * M)
    standard = own.cost(replace(long, service_tier=None))
    assert standard.unpriced == "no price for cache reads of luna"  # the base price would be too little


def test_19_details_of_openinference_are_kept() -> None:
    read = facts(
        {
            "openinference.span.kind": "LLM",
            "llm.model_name": "gpt-4o",
            "llm.provider": "openai",
            "llm.token_count.prompt": 10_000,
            "llm.token_count.completion": 500,
            "llm.token_count.prompt_details.cache_read": 9_000,
        }
    )
    assert usd(usage_of(read, AUTUMN_2025)) == pytest.approx((1_000 * 2.5 + 9_000 * 1.25 + 500 * 10) * M)


AGENT = LlmFacts("agent", "otel_genai", "openai", input_tokens=2_000, output_tokens=200)


def test_20_an_agent_that_repeats_its_calls_costs_nothing_of_its_own() -> None:
    assert trace(("a", None, AGENT), ("b", "a", CALL), ("c", "a", CALL)) == pytest.approx(2 * CALL_USD)


@pytest.mark.parametrize("carriers", [1, 2, 3])
def test_21_the_roll_up_does_not_depend_on_how_many_spans_carry_usage(carriers: int) -> None:
    chain = LlmFacts("chain", "otel_genai", input_tokens=1_000, output_tokens=100)
    bare = LlmFacts("chain", "otel_genai")
    above = [("a", None, chain if carriers > 1 else bare), ("b", "a", chain if carriers > 2 else bare)]
    assert trace(*above, ("c", "b", CALL)) == pytest.approx(CALL_USD)


def test_22_duplicates_are_found_by_the_tree_whoever_sent_it() -> None:
    other = replace(CALL, dialect="openinference")
    assert trace(("a", None, AGENT), ("b", "a", CALL), ("c", "b", other), ("d", "a", CALL)) == pytest.approx(
        2 * CALL_USD
    )


def test_23_cumulative_counts_of_streamed_chunks_are_not_added_up() -> None:
    """Copies of one span that grows are one span: the lake keeps the last. Spans of chunks are no calls."""
    chunks = [replace(CALL, kind="other", output_tokens=count) for count in (30, 60, 100)]
    below = [(f"chunk{at}", "a", chunk) for at, chunk in enumerate(chunks)]
    assert trace(("a", None, CALL), *below) == pytest.approx(CALL_USD)


def test_24_tools_that_the_provider_charges_apart_from_tokens_are_charged() -> None:
    """claude-sonnet-4-5: 3.00 in, 15.00 out; a web search 10.00 per thousand."""
    read = facts(
        chat("claude-sonnet-4-5-20250929", "anthropic", 1_000, 100)
        | {"gen_ai.usage.server_tool_use.web_search_requests": 3}
    )
    assert read.web_search_calls == 3
    assert usd(usage_of(read, WINTER_2026)) == pytest.approx((1_000 * 3 + 100 * 15) * M + 3 * 10 / 1_000)


def test_24_a_tool_without_a_price_leaves_the_call_unpriced() -> None:
    usage = Usage("m", None, None, 1_000, 100, code_interpreter_calls=1)
    assert Prices((Price("m", 1.0, 2.0),), {}).cost(usage).unpriced == "no price for code interpreter sessions of m"
    priced = Prices((Price("m", 1.0, 2.0, code_interpreter=0.03, file_search=0.0025),), {})
    assert usd(usage, priced) == pytest.approx((1_000 * 1 + 100 * 2) * M + 0.03)
    assert usd(replace(usage, file_search_calls=2), priced) == pytest.approx(
        (1_000 * 1 + 100 * 2) * M + 0.03 + 2 * 0.0025
    )


def test_25_totals_of_tokens_and_cost_can_be_asked_for(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """gpt-4o: 2.50 in, 10.00 out."""
    body = traces_body(
        span(n, chat("gpt-4o", "openai", 1_000 * n, 100), trace=n, start_ns=AUTUMN_2025 + n) for n in (1, 2)
    )
    (tmp_path / "log.json").write_bytes(body)
    home = str(tmp_path / "home")
    assert cli.run(["import", "--home", home, str(tmp_path / "log.json")]) == 0
    capsys.readouterr()
    totals = "select sum(input_tokens) as given, sum(output_tokens) as answered, sum(cost_usd) as usd from calls"
    assert cli.run(["sql", "--home", home, "--json", totals]) == 0
    (found,) = json.loads(capsys.readouterr().out)
    assert (int(found["given"]), int(found["answered"])) == (3_000, 200)
    assert found["usd"] == pytest.approx((3_000 * 2.5 + 200 * 10) * M)


@pytest.mark.parametrize(
    ("attributes", "scope", "total", "rule"),
    [
        ({"gen_ai.usage.cache_read.input_tokens": 900}, "app", 1_000, "inclusive: convention"),
        ({"gen_ai.usage.cache_read.input_tokens": 9_000}, "app", 10_000, "exclusive: more cached than input"),
        (
            {"gen_ai.usage.cache_read.input_tokens": 900, "gen_ai.usage.total_tokens": 1_950},
            "app",
            1_900,
            "exclusive: the total adds the cached tokens",
        ),
        (
            {"gen_ai.usage.cache_read.input_tokens": 900},
            "openlit.instrumentation.anthropic",
            1_900,
            "exclusive: openlit.instrumentation.anthropic leaves them out",
        ),
        ({}, "app", 1_000, "nothing cached"),
    ],
)
def test_26_the_rule_is_found_call_by_call_and_kept(
    attributes: dict[str, object], scope: str, total: int, rule: str
) -> None:
    read = facts({**chat("claude-haiku-4-5-20251001", "anthropic", 1_000, 50), **attributes}, scope)
    assert (read.input_tokens, read.usage_rule) == (total, rule)


def test_a_model_gone_from_the_list_of_today_still_has_its_price() -> None:
    usage = Usage("claude-sonnet-4-20250514", None, "anthropic", 1_000, 100, at_ns=SUMMER_2025)
    assert usd(usage) == pytest.approx((1_000 * 3 + 100 * 15) * M)


def test_the_price_of_the_day_counts() -> None:
    """gpt-4o cost 5.00 and 15.00 until autumn 2024, 2.50 and 10.00 since."""
    usage = Usage("gpt-4o", None, "openai", 1_000, 100, at_ns=1_717_400_000_000_000_000)  # 2024-06-03
    assert usd(usage) == pytest.approx((1_000 * 5 + 100 * 15) * M)
    assert usd(replace(usage, at_ns=AUTUMN_2025)) == pytest.approx((1_000 * 2.5 + 100 * 10) * M)
