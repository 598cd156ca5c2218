"""Prices: laws over token classes, and golden cases of what is looked up."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingest.pricing import Cost, Price, Prices, Usage, litellm_prices, price_list, spellings

MINI = Price("mini", input=1.0, output=4.0, cache_read=0.1, cache_write=1.25)
USAGE = Usage("mini", None, "openai", input_tokens=1000, output_tokens=100)
DAY = 86_400_000_000_000
YEAR_2026 = 1_767_225_600_000_000_000
counts = st.integers(0, 10**7)


def cost(usage: Usage, *overrides: Price, listed: dict[str, dict[str, object]] | None = None) -> Cost:
    return Prices(overrides, listed or {}).cost(usage)


def usd(usage: Usage, *overrides: Price, listed: dict[str, dict[str, object]] | None = None) -> float:
    found = cost(usage, *overrides, listed=listed)
    assert found.unpriced is None
    assert found.usd is not None
    return found.usd


def test_price_is_per_million_tokens() -> None:
    assert usd(USAGE, MINI) == pytest.approx(1000 * 1e-6 + 100 * 4e-6)


@given(counts, counts, counts, counts)
def test_cost_of_the_whole_is_the_cost_of_its_token_classes(fresh: int, read: int, written: int, output: int) -> None:
    whole = Usage("mini", None, None, fresh + read + written, output, read, written)
    parts = [
        Usage("mini", None, None, fresh, 0),
        Usage("mini", None, None, read, 0, read, 0),
        Usage("mini", None, None, written, 0, 0, written),
        Usage("mini", None, None, 0, output),
    ]
    assert usd(whole, MINI) == pytest.approx(sum(usd(part, MINI) for part in parts), abs=1e-12)


@given(counts, st.data())
def test_without_cache_prices_the_split_of_the_input_does_not_matter(tokens: int, data: st.DataObject) -> None:
    read = data.draw(st.integers(0, tokens))
    plain = replace(MINI, cache_read=None, cache_write=None)
    split = replace(USAGE, input_tokens=tokens, cache_read_tokens=read, cache_write_tokens=tokens - read)
    assert usd(split, plain) == pytest.approx(usd(replace(USAGE, input_tokens=tokens), plain))


@given(counts, counts)
def test_reasoning_is_part_of_the_output_and_not_paid_twice(output: int, fresh: int) -> None:
    assert usd(replace(USAGE, input_tokens=fresh, output_tokens=output), MINI) >= output * 4e-6 - 1e-12


@pytest.mark.parametrize(
    ("usage", "reason"),
    [
        (replace(USAGE, input_tokens=None), "no input token count"),
        (replace(USAGE, output_tokens=None), "no output token count"),
        (replace(USAGE, model_returned=None), "no model name"),
        (replace(USAGE, model_returned="other"), "no price for other"),
    ],
)
def test_what_is_not_known_is_unpriced_and_says_why(usage: Usage, reason: str) -> None:
    assert cost(usage, MINI) == Cost(None, reason)


def test_a_price_of_zero_is_a_price() -> None:
    assert cost(USAGE, Price("mini", 0.0, 0.0)) == Cost(0.0)


def test_an_embedding_needs_no_output_count() -> None:
    assert usd(replace(USAGE, output_tokens=None, embedding=True), MINI) == pytest.approx(1e-3)


def test_the_model_that_answered_goes_before_the_one_asked_for() -> None:
    usage = replace(USAGE, model_requested="alias")
    alias = Price("alias", 100.0, 100.0)
    assert usd(usage, alias, MINI) == usd(USAGE, MINI)
    assert usd(replace(usage, model_returned="unheard-of"), alias) == pytest.approx(1100 * 1e-4)


def test_an_override_goes_before_litellms_file() -> None:
    listed: dict[str, dict[str, object]] = {"mini": {"input_cost_per_token": 9.0, "output_cost_per_token": 9.0}}
    assert usd(USAGE, MINI, listed=listed) == usd(USAGE, MINI)


def test_the_providers_own_override_goes_before_the_general_one() -> None:
    general, own = Price("mini", 5.0, 5.0), Price("mini", 2.0, 2.0, provider="OpenAI")
    for order in ((general, own), (own, general)):
        assert usd(USAGE, *order) == pytest.approx(1100 * 2e-6)
        assert usd(replace(USAGE, provider="groq"), *order) == pytest.approx(1100 * 5e-6)


def test_the_latest_price_valid_on_the_day_wins() -> None:
    prices = (
        Price("mini", 3.0, 3.0, valid_from="2026-01-11"),
        Price("mini", 1.0, 1.0),
        Price("mini", 2.0, 2.0, valid_from="2026-01-06"),
    )
    for day, price in ((1, 1.0), (4, 1.0), (5, 2.0), (9, 2.0), (10, 3.0), (99, 3.0)):
        assert usd(replace(USAGE, at_ns=YEAR_2026 + day * DAY), *prices) == pytest.approx(1100 * price * 1e-6), day


def test_an_override_that_is_not_valid_yet_leaves_the_listed_price() -> None:
    listed: dict[str, dict[str, object]] = {"mini": {"input_cost_per_token": 1e-6, "output_cost_per_token": 1e-6}}
    later = Price("mini", 50.0, 50.0, valid_from="2030-01-01")
    assert usd(replace(USAGE, at_ns=YEAR_2026), later, listed=listed) == pytest.approx(1100e-6)


def test_an_override_may_name_the_provider_before_the_model() -> None:
    assert usd(USAGE, replace(MINI, model="openai/mini")) == usd(USAGE, MINI)
    assert usd(replace(USAGE, model_returned="openai/mini"), MINI) == usd(USAGE, MINI)


@pytest.mark.parametrize(
    ("model", "provider", "first", "also"),
    [
        ("gpt-4o", "azure.ai.openai", "azure/gpt-4o", "gpt-4o"),
        ("models/gemini-2.5-pro", "gcp.gemini", "gemini/gemini-2.5-pro", "gemini-2.5-pro"),
        ("openai/gpt-4o", "openai", "openai/gpt-4o", "gpt-4o"),
        ("openrouter/meta/llama", None, "openrouter/meta/llama", "llama"),
        ("llama3:8b", None, "llama3:8b", "llama3"),
    ],
)
def test_spellings_go_from_the_specific_to_the_general(model: str, provider: str | None, first: str, also: str) -> None:
    names = list(spellings(model, provider))
    assert names[0] == first
    assert also in names


def test_a_long_prompt_pays_the_price_of_its_tier() -> None:
    listed: dict[str, dict[str, object]] = {
        "mini": {
            "input_cost_per_token": 1e-6,
            "output_cost_per_token": 2e-6,
            "input_cost_per_token_above_200k_tokens": 3e-6,
            "output_cost_per_token_above_200k_tokens": 5e-6,
            "input_cost_per_token_above_200k_tokens_priority": 99.0,
        }
    }
    assert usd(replace(USAGE, input_tokens=200_000), listed=listed) == pytest.approx(0.2 + 100 * 2e-6)
    assert usd(replace(USAGE, input_tokens=200_001), listed=listed) == pytest.approx(200_001 * 3e-6 + 100 * 5e-6)


@pytest.mark.parametrize(
    "entry",
    [
        {"input_cost_per_token": 1e-6, "mode": "chat"},
        {"output_cost_per_token": 1e-6},
        {"input_cost_per_second": 1.0},
        {"input_cost_per_token": None, "output_cost_per_token": 1e-6},
    ],
)
def test_an_entry_without_both_prices_prices_nothing(entry: dict[str, object]) -> None:
    assert cost(USAGE, listed={"mini": entry}) == Cost(None, "no price for mini")


def test_litellms_file_prices_a_well_known_model() -> None:
    entry = litellm_prices()["gpt-4o-mini"]
    assert isinstance(entry, dict)
    usage = Usage("gpt-4o-mini-2024-07-18", "gpt-4o-mini", "openai", 1000, 100)
    expected = 1000 * float(str(entry["input_cost_per_token"])) + 100 * float(str(entry["output_cost_per_token"]))
    assert price_list().cost(usage).usd == pytest.approx(expected)


def test_prices_are_read_without_importing_litellm() -> None:
    code = (
        "import sys\nfrom ingest.pricing import litellm_prices, price_list\nassert 'litellm' not in sys.modules\n"
        "assert litellm_prices.cache_info().currsize == 0\nassert len(litellm_prices()) > 1000\n"
        "assert 'litellm' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


@pytest.mark.parametrize("wrong", [{"input": -1.0}, {"output": float("nan")}, {"valid_from": "June"}])
def test_a_price_that_cannot_be_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"price|time data"):
        replace(MINI, **wrong)  # type: ignore[arg-type]
