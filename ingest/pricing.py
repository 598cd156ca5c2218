"""Token classes x prices -> USD, or "unpriced, because".

Prices come from `[[prices]]` of retroute.toml, else from dated lists (`ingest.prices.book`). A price is looked up for
the model that answered, then for the one asked for. Nothing that is not known is ever 0.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime
from functools import cached_property
from typing import TypeVar

from ingest import providers
from ingest.dialects.facts import LlmFacts
from ingest.prices import names
from ingest.prices.book import Book, Change, Found, current, installed_document
from ingest.prices.rates import CLASSES, SAID, STANDARD, Rates, service_tier, slot_of
from ingest.records import record

_K = TypeVar("_K")
_V = TypeVar("_V")

_PER_MILLION = CLASSES[:10]
OWN_CACHE = "answered from the app's own cache"
"""The price of a call that nobody was paid for."""
_INSIDE_OUTPUT = ("reasoning", "output_audio", "output_image")
_EARLIEST_NS = 1_577_836_800_000_000_000
"""2020: a clock that says less is wrong, and the time of such a call unknown."""
_DAY_NS = 86_400 * 10**9
_NOTHING = (0.0,) * len(CLASSES)
_KEPT = 4096
"""So many look-ups of each kind are kept: names of models and days are whatever was sent."""


@dataclass(frozen=True)
class Price:
    """What a model costs: USD per million tokens; a request or a call of a tool, USD each.

    `provider` None: whoever serves it. `valid_from` "YYYY-MM-DD", UTC; None: always. `tier`: the service tier it is
    for. `above`: only for prompts of more tokens. A class that is None costs what the class around it costs: caches,
    audio and images what other input costs, reasoning what other output costs. `cache_write_1h` None beside a
    `cache_write`, and tools that are None, have no price.
    """

    model: str
    input: float
    output: float
    provider: str | None = None
    valid_from: str | None = None
    cache_read: float | None = None
    cache_write: float | None = None
    cache_write_1h: float | None = None
    reasoning: float | None = None
    input_audio: float | None = None
    input_image: float | None = None
    output_audio: float | None = None
    output_image: float | None = None
    request: float | None = None
    web_search: float | None = None
    code_interpreter: float | None = None
    file_search: float | None = None
    tier: str = STANDARD
    above: int = 0

    def __post_init__(self) -> None:
        for name in CLASSES:
            value = getattr(self, name)
            if value is not None and not 0 <= value < float("inf"):
                unit = "USD per million tokens" if name in _PER_MILLION else "USD each"
                raise ValueError(f"price of {self.model}: {name} is {value}, expected {unit}, at least 0")
        if self.above < 0:
            raise ValueError(f"price of {self.model}: above is {self.above}, expected tokens, at least 0")
        if self.valid_from is not None:
            datetime.strptime(self.valid_from, "%Y-%m-%d")

    @cached_property
    def rates(self) -> Rates:
        """USD per unit."""
        usd: dict[str, float | None] = {name: getattr(self, name) for name in CLASSES}
        for name in _PER_MILLION:
            if usd[name] is None and not (name == "cache_write_1h" and self.cache_write is not None):
                usd[name] = self.output if name in _INSIDE_OUTPUT else self.input
        usd["request"] = self.request or 0.0
        found = ((name, usd[name]) for name in CLASSES)
        return Rates(tuple(value and value / 1e6 if name in _PER_MILLION else value for name, value in found))


@dataclass(frozen=True)
class Discount:
    """A share off the list's prices. None: any provider, any model; a model may end in `*`."""

    percent: float
    provider: str | None = None
    model: str | None = None
    valid_from: str | None = None
    valid_until: str | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.percent <= 100:
            raise ValueError(f"discount of {self.percent} percent, expected 0 to 100")

    def fits(self, models: Sequence[str], provider: str | None, day: str | None) -> bool:
        """Whether it holds for a call; a call of unknown time gets only discounts without dates."""
        if self.provider is not None and providers.canonical(self.provider) != provider:
            return False
        if self.model is not None and not any(_matches(self.model, model) for model in models):
            return False
        if day is None:
            return self.valid_from is None and self.valid_until is None
        return (self.valid_from is None or self.valid_from <= day) and (
            self.valid_until is None or day <= self.valid_until
        )


@record
class Usage:
    """What is to be priced. `input_tokens` holds the cached, audio and image parts, `output_tokens` reasoning, audio
    and images; `cache_write_tokens` holds those kept for 1 hour. `at_ns` when, if known."""

    model_returned: str | None
    model_requested: str | None
    provider: str | None
    input_tokens: int | None
    output_tokens: int | None
    cache_read_tokens: int | None = None
    cache_write_tokens: int | None = None
    at_ns: int | None = None
    embedding: bool = False
    cache_write_1h_tokens: int | None = None
    reasoning_tokens: int | None = None
    input_audio_tokens: int | None = None
    input_image_tokens: int | None = None
    output_audio_tokens: int | None = None
    output_image_tokens: int | None = None
    web_search_calls: int | None = None
    code_interpreter_calls: int | None = None
    file_search_calls: int | None = None
    service_tier: str | None = None
    search_size: str | None = None
    cache_hit: bool | None = None
    """The app answered from a cache of its own: nobody was paid."""


@record
class Cost:
    """`usd`, or None and why in `unpriced`. `price`: which entry of which list, and the way to it. `parts`: USD by
    class, in the order of `CLASSES`."""

    usd: float | None
    unpriced: str | None = None
    price: str | None = field(default=None, compare=False)
    parts: tuple[float, ...] | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Key:
    """What a price depends on, besides what is counted. `day` is "YYYY-MM-DD", None for an unknown time."""

    models: tuple[str, ...]
    provider: str | None
    tier: str = STANDARD
    day: str | None = None
    search_size: str | None = None


@dataclass(frozen=True, slots=True)
class Quote:
    """Rates for a call and where they are from."""

    rates: Rates
    price: str | None


@dataclass(slots=True)
class _Quotes:
    """The quotes for calls of one kind: a call's length and hour find the rates."""

    key: Key
    thresholds: tuple[int, ...]
    hourly: bool
    known: dict[tuple[int, int | None], Quote] = field(default_factory=dict)


@dataclass(frozen=True)
class Prices:
    """A price list: overrides and discounts of the user's, over the dated lists of `dated`.

    `listed`, entries by name in litellm's form and without dates, takes the place of the dated lists. `at`
    ("YYYY-MM-DD") prices every call as of that day.
    """

    overrides: tuple[Price, ...] = ()
    listed: Mapping[str, Mapping[str, object]] | None = None
    discounts: tuple[Discount, ...] = ()
    dated: Callable[[], Book] | None = None
    at: str | None = None
    _found: dict[tuple[str, str | None, str | None], Found] = field(
        default_factory=dict, init=False, compare=False, repr=False
    )
    _used: set[str] = field(default_factory=set, init=False, compare=False, repr=False)
    _quotes: dict[tuple[object, ...], _Quotes] = field(default_factory=dict, init=False, compare=False, repr=False)

    @cached_property
    def book(self) -> Book:
        """The dated lists; read when they are first needed."""
        if self.listed is not None:
            changes = {name: (Change(name, None, "given", "always", entry),) for name, entry in self.listed.items()}
            return Book((), changes)
        return current() if self.dated is None else self.dated()

    def used(self) -> set[str]:
        """Names of the entries by which calls were priced."""
        return set(self._used)

    def cost(self, usage: Usage) -> Cost:
        """What a call cost. Never 0 for what is not known."""
        if usage.cache_hit:
            return Cost(0.0, None, OWN_CACHE, _NOTHING)
        model = usage.model_returned or usage.model_requested
        if not model:
            return Cost(None, "no model name")
        counted = counts(usage)
        if isinstance(counted, str):
            return Cost(None, counted)
        quote = self._quoted(usage)
        if quote.rates.missing:
            return Cost(None, quote.rates.missing)
        parts = [0.0] * len(CLASSES)
        for place, (count, rate) in enumerate(zip(counted, quote.rates.usd, strict=True)):
            if count:
                if rate is None:
                    return Cost(None, f"no price for {SAID[CLASSES[place]]} of {model}")
                parts[place] = count * rate
        return Cost(sum(parts), None, quote.price, tuple(parts))

    def _quoted(self, usage: Usage) -> Quote:
        """The quote for a call. Few things that a price depends on differ between calls: what is known is kept."""
        at_ns = known_time(usage.at_ns)
        alike = (
            *(usage.model_returned, usage.model_requested, usage.provider, usage.service_tier, usage.search_size),
            None if at_ns is None else at_ns // _DAY_NS,
        )
        if (quotes := self._quotes.get(alike)) is None:
            models = tuple(model for model in (usage.model_returned, usage.model_requested) if model)
            key = Key(models, usage.provider, service_tier(usage.service_tier), self.day(at_ns), usage.search_size)
            quotes = _keep(self._quotes, alike, _Quotes(key, self.thresholds(key), self.hourly(key)))
        tokens = usage.input_tokens or 0
        slot = slot_of(at_ns) if quotes.hourly and at_ns is not None else None
        place = bisect_left(quotes.thresholds, tokens), slot
        if (quote := quotes.known.get(place)) is None:
            quote = quotes.known[place] = self.quote(quotes.key, tokens, slot)
        return quote

    def day(self, at_ns: int | None) -> str | None:
        """The day whose prices hold for a call, UTC."""
        if self.at is not None:
            return self.at
        return None if at_ns is None else datetime.fromtimestamp(at_ns // 10**9, UTC).strftime("%Y-%m-%d")

    def quote(self, key: Key, input_tokens: int, slot: int | None = None) -> Quote:
        """The rates for a call with so long a prompt; `Rates.missing` says why there are none."""
        why: str | None = None
        for model in key.models:
            if (own := self._override(model, key, input_tokens)) is not None:
                return own
            found = self._find(model, key)
            if found.entry is not None:
                rates = found.entry.rates(key.tier, input_tokens, key.search_size, slot)
                return self._discounted(Quote(rates, found.path), key)
            why = why or found.problem
        return Quote(Rates((None,) * len(CLASSES), why or "no model name"), None)

    def thresholds(self, key: Key) -> tuple[int, ...]:
        """Prompt lengths above which other prices hold for such calls, ascending."""
        for model in key.models:
            if fitting := self._fitting(model, key):
                return tuple(sorted({price.above for price in fitting if price.above}))
            if (entry := self._find(model, key).entry) is not None:
                return entry.thresholds
        return ()

    def hourly(self, key: Key) -> bool:
        """Whether the price of such calls depends on the hour."""
        for model in key.models:
            if self._fitting(model, key):
                return False
            if (entry := self._find(model, key).entry) is not None:
                return entry.hourly
        return False

    def _find(self, model: str, key: Key) -> Found:
        lookup = (model, key.provider, key.day)
        if (found := self._found.get(lookup)) is None:
            found = _keep(self._found, lookup, self.book.find(*lookup))
            if found.entry is not None:
                self._used.add(found.entry.name)
        return found

    def _fitting(self, model: str, key: Key) -> list[Price]:
        if not self.overrides:
            return []
        provider = providers.canonical(key.provider) if key.provider else None
        spelled = {model, model.partition("/")[2]} if "/" in model else {model}
        return [
            price
            for price in self.overrides
            if (price.model in spelled or (provider and price.model == f"{provider}/{model}"))
            and (price.provider is None or providers.canonical(price.provider) == provider)
            and (price.valid_from is None or key.day is None or price.valid_from <= key.day)
        ]

    def _override(self, model: str, key: Key, input_tokens: int) -> Quote | None:
        """The most specific override: of the provider before of any, then the longest prompt, then the latest valid."""
        fitting = self._fitting(model, key)
        if not fitting:
            return None
        tiered = [p for p in fitting if service_tier(p.tier) == key.tier and (not p.above or input_tokens > p.above)]
        if not tiered:
            return Quote(Rates((None,) * len(CLASSES), f"no {key.tier} price for {model} in retroute.toml"), None)
        best = max(tiered, key=lambda p: (p.model == model, p.provider is not None, p.above, p.valid_from or ""))
        since = f" from {best.valid_from}" if best.valid_from else ""
        return Quote(best.rates, f"{model}; retroute.toml{since}")

    def _discounted(self, quote: Quote, key: Key) -> Quote:
        if not self.discounts or quote.rates.missing:
            return quote
        provider = providers.canonical(key.provider) if key.provider else None
        fitting = [discount for discount in self.discounts if discount.fits(key.models, provider, key.day)]
        if not fitting:
            return quote
        best = max(fitting, key=lambda d: (d.model is not None, d.provider is not None, d.valid_from or ""))
        share = 1 - best.percent / 100
        usd = tuple(None if rate is None else rate * share for rate in quote.rates.usd)
        return Quote(Rates(usd), f"{quote.price}; {best.percent:g} % discount")


def counts(usage: Usage) -> tuple[int, ...] | str:
    """How much of each class was used, in the order of `CLASSES`, none counted twice; or why it cannot be said.

    What is cached is taken to be cached first: audio and images count apart only as far as the uncached input goes.
    """
    if usage.input_tokens is None:
        return "no input token count"
    if usage.output_tokens is None and not usage.embedding:
        return "no output token count"
    read, written, hour = usage.cache_read_tokens or 0, usage.cache_write_tokens or 0, usage.cache_write_1h_tokens or 0
    written = max(written, hour)
    fresh = usage.input_tokens - read - written
    if fresh < 0:
        return "more cached than input tokens"
    heard = min(usage.input_audio_tokens or 0, fresh)
    seen = min(usage.input_image_tokens or 0, fresh - heard)
    rest = usage.output_tokens or 0
    reasoned = min(usage.reasoning_tokens or 0, rest)
    spoken = min(usage.output_audio_tokens or 0, rest - reasoned)
    drawn = min(usage.output_image_tokens or 0, rest - reasoned - spoken)
    return (
        *(fresh - heard - seen, read, written - hour, hour, heard, seen),
        *(rest - reasoned - spoken - drawn, reasoned, spoken, drawn, 1),
        *(usage.web_search_calls or 0, usage.code_interpreter_calls or 0, usage.file_search_calls or 0),
    )


def usage_of(facts: LlmFacts, at_ns: int | None) -> Usage:
    """What is to be priced of a call."""
    return Usage(
        facts.model_returned,
        facts.model_requested,
        facts.provider,
        facts.input_tokens,
        facts.output_tokens,
        facts.cache_read_tokens,
        facts.cache_write_tokens,
        at_ns,
        facts.kind == "embedding",
        facts.cache_write_1h_tokens,
        facts.reasoning_tokens,
        facts.input_audio_tokens,
        facts.input_image_tokens,
        facts.output_audio_tokens,
        facts.output_image_tokens,
        facts.web_search_calls,
        facts.code_interpreter_calls,
        facts.file_search_calls,
        facts.service_tier,
        facts.search_size,
        facts.cache_hit,
    )


def known_time(at_ns: int | None) -> int | None:
    """A time that can be true; None for clocks of 1970."""
    return at_ns if at_ns is not None and at_ns >= _EARLIEST_NS else None


def spellings(model: str, provider: str | None) -> Iterator[str]:
    """Names under which a price list may know a model, the most specific first."""
    return names.candidates(model, provider)


litellm_prices = installed_document
"""The price file of the installed litellm by model name; empty when litellm is not installed."""


def price_list(
    overrides: Sequence[Price] = (), discounts: Sequence[Discount] = (), dated: Callable[[], Book] | None = None
) -> Prices:
    """The prices to use: overrides, then the dated lists less discounts."""
    return Prices(tuple(overrides), None, tuple(discounts), dated)


def as_of(prices: Prices, day: date | str) -> Prices:
    """The same price list, with every call priced as of one day: what calls of different days are compared at."""
    return replace(prices, at=str(day))


def _keep(known: dict[_K, _V], key: _K, value: _V) -> _V:
    """Keeps a look-up; those before are forgotten when there are too many."""
    if len(known) >= _KEPT:
        known.clear()
    known[key] = value
    return value


def _matches(pattern: str, model: str) -> bool:
    return model.startswith(pattern[:-1]) if pattern.endswith("*") else model in (pattern, pattern.partition("/")[2])
