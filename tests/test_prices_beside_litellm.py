"""Our costs beside those of litellm's own completion_cost, on 300 pairs of model and usage, and why some differ.

litellm takes seconds to import, so it prices all pairs in one subprocess.
"""

from __future__ import annotations

import json
import random
import re
import subprocess
import sys

import pytest

from ingest.prices import book, fields
from ingest.prices.rates import Entry
from ingest.pricing import Usage, price_list

_PROVIDERS = (
    *("openai", "anthropic", "gemini", "vertex_ai-language-models", "xai", "deepseek", "mistral", "azure", "groq"),
    *("bedrock_converse", "together_ai", "cohere_chat", "dashscope", "fireworks_ai", "deepinfra"),
)
_A_PROVIDER = 20

_LITELLM = """
import json, sys
from datetime import datetime, timezone
import litellm
from litellm.types.utils import CompletionTokensDetailsWrapper, PromptTokensDetailsWrapper, Usage
from litellm.litellm_core_utils.llm_cost_calc.utils import generic_cost_per_token

costs = []
for model, provider, given, read, written, answered, reasoning, tier in json.load(sys.stdin):
    usage = Usage(
        prompt_tokens=given, completion_tokens=answered, total_tokens=given + answered,
        prompt_tokens_details=PromptTokensDetailsWrapper(cached_tokens=read, cache_creation_tokens=written),
        completion_tokens_details=CompletionTokensDetailsWrapper(reasoning_tokens=reasoning) if reasoning else None,
        cache_creation_input_tokens=written or None, cache_read_input_tokens=read or None,
    )
    response = litellm.ModelResponse(model=model, usage=usage)
    try:
        costs.append(litellm.completion_cost(
            completion_response=response, model=model, custom_llm_provider=provider, service_tier=tier,
        ))
    except Exception as error:
        costs.append(str(error)[:200])
print(json.dumps(costs))
"""


_FLAT_NAME = (
    "litellm takes '1b' in the name for the model's size and charges by sizes; the entry has a price of its own"
)
EXCEPTIONS = {
    "together-ai-21.1b-41b": _FLAT_NAME,
    "together-ai-8.1b-21b": _FLAT_NAME,
    "dashscope/qwen3.7-plus": "litellm finds no tier for a prompt of 0 tokens and charges nothing for the answer",
    "fireworks_ai/deepseek-v4-flash-vision-exp": "litellm charges the standard price; the list has one for priority",
}
"""Model -> why ours is right. Besides these: where the list has no price for the service tier of a call, or none for
its cache reads at that tier, litellm charges the standard price, which is another; ours says that there is none."""


def grid() -> list[tuple[str, str, int, int, int, int, int, str | None]]:
    """300 pairs: 20 models of each of 15 providers; short and long prompts, with and without caches, service tiers."""
    rng = random.Random(7)
    listed = book.installed_document()
    pairs = []
    for provider in _PROVIDERS:
        chats = sorted(
            name
            for name, entry in listed.items()
            if isinstance(entry, dict)
            and entry.get("litellm_provider") == provider
            and entry.get("mode") in ("chat", "responses")
            and Entry(name, provider, fields.price_fields(entry)).by_token
            and not entry.get("off_peak_pricing")
        )
        for at in range(_A_PROVIDER):
            model = chats[at * len(chats) // _A_PROVIDER]
            entry = listed[model]
            assert isinstance(entry, dict)
            given = rng.choice((0, 17, 1_000, 31_999, 100_001, 200_000, 200_001, 300_000))
            caches = entry.get("cache_read_input_token_cost") is not None
            read = rng.randrange(given // 2 + 1) if caches and rng.random() < 0.7 else 0
            writes = entry.get("cache_creation_input_token_cost") is not None
            written = rng.randrange(given // 2 + 1) if writes and rng.random() < 0.5 else 0
            answered = rng.choice((0, 9, 700))
            reasoning = answered // 3 if rng.random() < 0.4 else 0
            tiers = [tier for tier in ("flex", "priority") if f"input_cost_per_token_{tier}" in entry]
            tier = rng.choice(tiers) if tiers and rng.random() < 0.6 else None
            if not tiers and rng.random() < 0.1:
                tier = "flex"
            name = provider.partition("-")[0] if provider.startswith("vertex_ai") else provider
            seller = {"bedrock_converse": "bedrock"}.get(name, name)
            pairs.append((model, seller, given, read, written, answered, reasoning, tier))
    return pairs


@pytest.fixture(scope="module")
def theirs() -> list[float | str]:
    environment = {"PATH": "/usr/bin:/bin", "LITELLM_LOCAL_MODEL_COST_MAP": "True"}
    command = [sys.executable, "-c", _LITELLM]
    done = subprocess.run(
        command, input=json.dumps(grid()), capture_output=True, text=True, env=environment, timeout=300, check=True
    )
    found: list[float | str] = json.loads(done.stdout.splitlines()[-1])
    return found


def test_costs_equal_litellms_or_the_difference_is_explained(theirs: list[float | str]) -> None:
    prices, seen, tiers, equal = price_list(), set(), 0, 0
    for pair, their in zip(grid(), theirs, strict=True):
        model, provider, given, read, written, answered, reasoning, tier = pair
        usage = Usage(
            model, None, provider, given, answered, read, written, reasoning_tokens=reasoning, service_tier=tier
        )
        ours = prices.cost(usage)
        assert isinstance(their, float | int), (pair, their)
        if ours.usd is not None and ours.usd == pytest.approx(their, rel=1e-9, abs=1e-12):
            equal += 1
        elif ours.usd is None:
            assert tier is not None, (pair, ours)
            assert ours.unpriced is not None
            assert re.match(rf"no {tier} .*price for |no price for cache reads of ", ours.unpriced), (pair, ours)
            tiers += 1
        else:
            assert model in EXCEPTIONS, (pair, their, ours)
            seen.add(model)
    assert len(theirs) == 300
    assert seen == EXCEPTIONS.keys()  # an exception that no longer differs goes
    assert equal >= 260
    assert equal + tiers + len(seen) == 300


def test_a_tier_that_ours_leaves_unpriced_has_no_price_in_the_list() -> None:
    listed = book.installed_document()
    for model, _, _, _, _, _, _, tier in grid():
        entry = listed[model]
        assert isinstance(entry, dict)
        rates = Entry(model, None, fields.price_fields(entry)).rates(tier or "standard", 1000, None, 0)
        assert (rates.missing is not None) == (bool(tier) and f"input_cost_per_token_{tier}" not in entry), model
