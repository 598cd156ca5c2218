"""LlmFacts: what a span says about a model call, an agent or a tool. Dialect: how one convention says it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from ingest.records import record
from ingest.spans import Attributes

Kind = Literal["llm", "embedding", "agent", "tool", "retrieval", "chain", "guardrail", "evaluator", "other"]


@record
class LlmFacts:
    """What one span says. None: it does not say. Token counts follow one rule: `input_tokens` is all input, the cached
    part included, `output_tokens` all output, reasoning included; a 0 in the cache and reasoning counts is what was
    sent and may mean "not reported"."""

    kind: Kind = "other"
    dialect: str | None = None
    provider: str | None = None
    model_requested: str | None = None
    model_returned: str | None = None
    reasoning_effort: str | None = None
    input_tokens: int | None = None
    cache_read_tokens: int | None = None
    cache_write_tokens: int | None = None
    output_tokens: int | None = None
    reasoning_tokens: int | None = None
    cache_write_1h_tokens: int | None = None
    """Of the tokens written into a cache those kept for an hour; the others are kept for minutes."""
    input_audio_tokens: int | None = None
    input_image_tokens: int | None = None
    output_audio_tokens: int | None = None
    output_image_tokens: int | None = None
    web_search_calls: int | None = None
    code_interpreter_calls: int | None = None
    file_search_calls: int | None = None
    """Runs of tools that the provider charges apart from tokens. No convention and no instrumentation that we have seen
    counts sessions of a code interpreter or file searches: a dialect that learns a key for them fills these in."""
    search_size: str | None = None
    """How much a web search reads: low, medium or high. Not told by any instrumentation we have seen, so searches of a
    model whose price depends on it are unpriced."""
    service_tier: str | None = None
    cache_hit: bool | None = None
    """The app answered from a cache of its own and called nobody."""
    usage_rule: str | None = None
    """How the input was counted: see `ingest.dialects.usage`."""
    max_tokens: int | None = None
    tools_offered: str | None = None
    """JSON array of the names of the tools offered, in order."""
    response_format: str | None = None
    reported_cost_usd: float | None = None
    """The emitter's own estimate; never used as a price."""
    error_type: str | None = None
    stream: bool | None = None
    ttft_s: float | None = None
    """Seconds until the first token."""
    session_id: str | None = None
    user_id: str | None = None
    response_id: str | None = None
    workflow: str | None = None
    agent: str | None = None
    tool: str | None = None
    prompt_name: str | None = None
    prompt_version: str | None = None
    policy_id: str | None = None
    policy_version: str | None = None
    policy_action: str | None = None
    policy_propensity: float | None = None
    policy_arm: str | None = None
    policy_candidates: str | None = None
    """JSON array of action names."""
    policy_probabilities: str | None = None
    """JSON array of numbers, one per candidate."""
    policy_features: str | None = None
    """base64 of float16."""
    policy_reason: str | None = None


@record
class Content:
    """The texts of a call: canonical messages and the tools offered, as JSON. None: not sent."""

    input_text: str | None = None
    output_text: str | None = None
    tools: str | None = None


@record
class Reading:
    """All that is read from a span. `kept` are its attributes without those that hold texts; `unknown` the keys that no
    dialect knows."""

    facts: LlmFacts
    content: Content
    kept: Attributes
    unknown: tuple[str, ...]


Repair = Callable[[Attributes, dict[str, object]], None]
"""Corrects the values read from a span (field name -> value) where a table of keys cannot say it."""


def silent(attributes: Attributes) -> Kind | None:
    """The kind that a convention names which has no word for kinds."""
    return None


@dataclass(frozen=True)
class Dialect:
    """One convention.

    `kind` says what a span is, by its attributes, or None when this convention does not say; it is asked only about
    spans with one of the attributes in `marks`, and only what it says brings `repair` about. `fields` maps a field of
    LlmFacts, or one of `registry.CONTENT_FIELDS`, to the keys that may hold it, in order of precedence; `inside` maps a
    key that holds a JSON object to the fields in it, each with the paths where it may be ("a.b" is b in a). `indexed`
    maps a content field to the prefixes under which a list is spread over keys (`gen_ai.prompt.0.role`). `ignored` are
    keys, and prefixes ending in a dot, that are known and not used.
    """

    name: str
    marks: tuple[str, ...] = ()
    kind: Callable[[Attributes], Kind | None] = silent
    fields: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    inside: Mapping[str, Mapping[str, tuple[str, ...]]] = field(default_factory=dict)
    indexed: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    ignored: tuple[str, ...] = ()
    repair: Repair | None = None
    encoded: bool = False
    """Values are JSON texts: a text comes in quotes."""
    named: bool = False
    """An agent's or a tool's name is its span's name when no attribute says it."""


def by(key: str, kinds: Mapping[str, Kind], otherwise: Kind | None = None) -> Callable[[Attributes], Kind | None]:
    """What a span is by one attribute's word, whatever its case; `otherwise` for a word that is not listed."""

    def kind(attributes: Attributes) -> Kind | None:
        word = attributes.get(key)
        if not isinstance(word, str) or not word:
            return None
        return kinds.get(word) or kinds.get(word.strip('"').lower(), otherwise)

    return kind
