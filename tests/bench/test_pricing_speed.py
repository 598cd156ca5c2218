"""How fast calls are priced, beside litellm's `completion_cost` in the same run, and how fast the price lists load.

    pytest -m bench -s tests/bench/test_pricing_speed.py

Processor seconds of one process, so that a busy machine makes no difference. Prints a JSON object per measurement.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from ingest.prices import book, frames
from ingest.pricing import Usage, price_list

pytestmark = pytest.mark.bench

CALLS = 1_000_000
PRICING_S, LOADING_S = 5.0, 0.3
MODELS = (
    ("gpt-4o-2024-08-06", "openai"),
    ("gpt-4o-mini", "openai"),
    ("gpt-4.1-2025-04-14", "openai"),
    ("gpt-5-mini-2025-08-07", "openai"),
    ("claude-sonnet-4-5-20250929", "anthropic"),
    ("claude-haiku-4-5-20251001", "anthropic"),
    ("gemini-2.5-pro", "gemini"),
    ("nobody-knows", "openai"),
)
YEAR_NS = 365 * 86_400 * 10**9
AUTUMN_2025 = 1_761_000_000_000_000_000


def calls(count: int = CALLS) -> pl.DataFrame:
    """A year of calls of eight models, a third of them with cached input, some of a batch."""
    rng = np.random.default_rng(0)
    models = rng.integers(len(MODELS), size=count)
    given = rng.integers(100, 300_000, size=count)
    cached = np.where(rng.random(count) < 1 / 3, given // 2, 0)
    batch = rng.random(count) < 0.05
    return pl.DataFrame(
        {
            "kind": ["llm"] * count,
            "model_returned": np.array([name for name, _ in MODELS])[models],
            "provider": np.array([provider for _, provider in MODELS])[models],
            "service_tier": pl.Series(np.where(batch, "batch", "")).replace("", None),
            "start_ns": AUTUMN_2025 + rng.integers(YEAR_NS, size=count),
            "input_tokens": given,
            "output_tokens": rng.integers(1, 4_000, size=count),
            "cache_read_tokens": cached,
        }
    )


def say(what: str, **figures: object) -> None:
    print(json.dumps({"what": what, **figures}))


def test_a_million_calls_are_priced_in_five_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LITELLM_LOCAL_MODEL_COST_MAP", "True")  # litellm fetches its list otherwise
    prices, found = price_list(), calls()
    _ = prices.book  # loading is measured by itself
    began = time.process_time()
    costs = frames.priced(found, prices)
    spent = time.process_time() - began
    ours_us = 1e6 * spent / CALLS
    theirs_us = litellm_us(found.head(20_000))
    say(
        "pricing",
        calls=CALLS,
        cpu_s=round(spent, 2),
        us_per_call=round(ours_us, 2),
        litellm_us_per_call=round(theirs_us, 1),
        times_faster=round(theirs_us / ours_us, 1),
        priced_share=round(1 - costs["cost_usd"].null_count() / CALLS, 3),
    )
    assert costs["cost_usd"].null_count() < CALLS / 2
    assert spent <= PRICING_S
    assert ours_us < theirs_us


def litellm_us(found: pl.DataFrame) -> float:
    """Processor microseconds that litellm's `completion_cost` takes a call that it can price."""
    import litellm

    known = found.filter(pl.col("model_returned") != "nobody-knows", pl.col("service_tier").is_null())
    answers = [
        (
            provider,
            litellm.ModelResponse(
                model=model,
                usage=litellm.Usage(
                    prompt_tokens=given, completion_tokens=answered, prompt_tokens_details={"cached_tokens": cached}
                ),
            ),
        )
        for model, provider, given, answered, cached in known.select(
            "model_returned", "provider", "input_tokens", "output_tokens", "cache_read_tokens"
        ).iter_rows()
    ]
    began = time.process_time()
    for provider, answer in answers:
        litellm.completion_cost(answer, model=answer.model, custom_llm_provider=provider)
    return 1e6 * (time.process_time() - began) / len(answers)


def test_a_call_by_itself_is_priced_at_once() -> None:
    prices = price_list()
    usages = [
        Usage(model, None, provider, given, answered, cached, None, at)
        for model, provider, given, answered, cached, at in calls(20_000)
        .select("model_returned", "provider", "input_tokens", "output_tokens", "cache_read_tokens", "start_ns")
        .iter_rows()
    ]
    prices.cost(usages[0])
    began = time.process_time()
    for usage in usages:
        prices.cost(usage)
    spent = time.process_time() - began
    say("one by one", us_per_call=round(1e6 * spent / len(usages), 1))
    assert spent / len(usages) < 100e-6  # on its way into the lake


def test_the_price_lists_load_in_a_third_of_a_second() -> None:
    """In a process of its own that has imported all that is needed: reading, and the first look-up."""
    code = (
        "import time; from ingest.prices import book; began = time.process_time(); "
        "found = book.current().find('gpt-4o', 'openai', '2026-11-01'); assert found.entry; "
        "print(time.process_time() - began)"
    )
    root = str(Path(book.__file__).parents[2])
    environment = {**os.environ, "PYTHONPATH": root}
    spent = min(
        float(subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, env=environment).stdout)
        for _ in range(3)
    )
    say("loading", cpu_s=round(spent, 3))
    assert spent <= LOADING_S
