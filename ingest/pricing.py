"""Token classes x prices -> USD, or "unpriced, because".

Prices come from `[[prices]]` of retroute.toml, else from the price file in the litellm package, which is read as data:
importing litellm would take seconds. A price is looked up for the model that answered, then for the one asked for.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import orjson

from ingest import providers

_FILE = "model_prices_and_context_window_backup.json"
_CLASSES = (
    "input_cost_per_token",
    "output_cost_per_token",
    "cache_read_input_token_cost",
    "cache_creation_input_token_cost",
)
_TIER = re.compile(rf"({'|'.join(_CLASSES)})_above_(\d+)k_tokens")


@dataclass(frozen=True)
class Price:
    """What a model costs, in USD per million tokens.

    `provider` None: whoever serves it. `valid_from` "YYYY-MM-DD", UTC; None: always. `cache_read` and `cache_write`
    None: such tokens cost what other input costs.
    """

    model: str
    input: float
    output: float
    provider: str | None = None
    valid_from: str | None = None
    cache_read: float | None = None
    cache_write: float | None = None

    def __post_init__(self) -> None:
        for name in ("input", "output", "cache_read", "cache_write"):
            value = getattr(self, name)
            if value is not None and not 0 <= value < float("inf"):
                raise ValueError(
                    f"price of {self.model}: {name} is {value}, expected USD per million tokens, at least 0"
                )
        if self.valid_from is not None:
            datetime.strptime(self.valid_from, "%Y-%m-%d")


@dataclass(frozen=True, slots=True)
class Usage:
    """What is to be priced. `input_tokens` holds the cached part, `output_tokens` reasoning; `at_ns` when, if known."""

    model_returned: str | None
    model_requested: str | None
    provider: str | None
    input_tokens: int | None
    output_tokens: int | None
    cache_read_tokens: int | None = None
    cache_write_tokens: int | None = None
    at_ns: int | None = None
    embedding: bool = False


@dataclass(frozen=True, slots=True)
class Cost:
    """`usd`, or None and why in `unpriced`."""

    usd: float | None
    unpriced: str | None = None


@dataclass(frozen=True)
class Prices:
    """A price list: overrides, and litellm's entries by model name (USD per single token)."""

    overrides: tuple[Price, ...] = ()
    listed: Mapping[str, Mapping[str, object]] | None = None
    """None: litellm's file, read when it is first needed."""

    def cost(self, usage: Usage) -> Cost:
        """What a call cost. Never 0 for what is not known."""
        models = [model for model in (usage.model_returned, usage.model_requested) if model]
        if not models:
            return Cost(None, "no model name")
        if usage.input_tokens is None:
            return Cost(None, "no input token count")
        if usage.output_tokens is None and not usage.embedding:
            return Cost(None, "no output token count")
        for model in models:
            if price := self._override(model, usage):
                return Cost(_total(usage, price))
            if price := self._listed(model, usage):
                return Cost(_total(usage, price))
        return Cost(None, f"no price for {models[0]}")

    def _override(self, model: str, usage: Usage) -> Price | None:
        """The most specific override: of the provider before of any, then the latest that was valid."""
        day = None if usage.at_ns is None else datetime.fromtimestamp(usage.at_ns / 1e9, UTC).strftime("%Y-%m-%d")
        provider = providers.canonical(usage.provider) if usage.provider else None
        names = {model, model.partition("/")[2]} if "/" in model else {model}
        fitting = [
            price
            for price in self.overrides
            if (price.model in names or (provider and price.model == f"{provider}/{model}"))
            and (price.provider is None or providers.canonical(price.provider) == provider)
            and (price.valid_from is None or day is None or price.valid_from <= day)
        ]
        return max(
            fitting,
            key=lambda price: (price.model == model, price.provider is not None, price.valid_from or ""),
            default=None,
        )

    def _listed(self, model: str, usage: Usage) -> Price | None:
        listed = litellm_prices() if self.listed is None else self.listed
        for name in spellings(model, usage.provider):
            if (entry := listed.get(name)) and (price := _price(name, entry, usage.input_tokens or 0)):
                return price
        return None


def spellings(model: str, provider: str | None) -> Iterator[str]:
    """Names under which litellm's file may list a model, the most specific first."""
    known = providers.canonical(provider) if provider else None
    bare = model.removeprefix("models/")
    if known and not bare.startswith(f"{known}/"):
        yield f"{known}/{bare}"
    yield bare
    if "/" in bare:
        yield bare.partition("/")[2]
        yield bare.rpartition("/")[2]
    elif ":" in bare:  # a local tag or a version, such as llama3:8b
        yield bare.partition(":")[0]


@cache
def litellm_prices() -> Mapping[str, Mapping[str, object]]:
    """litellm's price file by model name; empty when litellm is not installed."""
    spec = find_spec("litellm")
    for root in spec.submodule_search_locations or () if spec else ():
        file = Path(root) / _FILE
        if file.is_file():
            found = orjson.loads(file.read_bytes())
            return {name: entry for name, entry in found.items() if isinstance(entry, dict) and name != "sample_spec"}
    return {}


def _price(model: str, entry: Mapping[str, object], input_tokens: int) -> Price | None:
    """An entry of litellm's file as a price for a prompt of this length; None when it is not priced by the token."""
    costs = {name: entry.get(name) for name in _CLASSES}
    reached = dict.fromkeys(_CLASSES, 0)
    for key, value in entry.items():
        tier = _TIER.fullmatch(key)
        if tier and input_tokens > int(tier[2]) * 1000 and int(tier[2]) > reached[tier[1]]:
            costs[tier[1]] = value
            reached[tier[1]] = int(tier[2])
    usd = [float(value) * 1e6 if isinstance(value, int | float) else None for value in costs.values()]
    given, answered, read, written = usd
    if answered is None and entry.get("mode") in ("embedding", "rerank"):
        answered = 0.0
    if given is None or answered is None:
        return None
    return Price(model, given, answered, cache_read=read, cache_write=written)


def _total(usage: Usage, price: Price) -> float:
    read, written = usage.cache_read_tokens or 0, usage.cache_write_tokens or 0
    uncached = max(0, (usage.input_tokens or 0) - read - written)
    return (
        uncached * price.input
        + read * (price.input if price.cache_read is None else price.cache_read)
        + written * (price.input if price.cache_write is None else price.cache_write)
        + (usage.output_tokens or 0) * price.output
    ) / 1e6


def price_list(overrides: Sequence[Price] = ()) -> Prices:
    """The prices to use: overrides over litellm's file."""
    return Prices(tuple(overrides))
