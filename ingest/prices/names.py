"""Names under which a price list may know a model, each with the way that led to it. The most specific first.

What is dropped on the way never changes a price on its own: provider prefixes, regions of Bedrock profiles, resource
paths, routing suffixes, and at last the date of a snapshot that the list does not name.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ingest import providers

_REGIONS = re.compile(r"^(us|eu|apac|ap|jp|au|ca|global|us-gov)\.(?=[a-z0-9-]+\.)")
_RESOURCE = re.compile(
    r"^(?:projects/[^/]+/locations/[^/]+/)?publishers/[^/]+/models/|^models/|^accounts/fireworks/models/(?=$)"
)
_ARN = re.compile(r"^arn:aws[^/]*/(?P<model>[^/]+)$")
_ROUTING = ("nitro", "floor", "beta", "extended", "exacto")
"""OpenRouter's suffixes that choose a host of the same model. `:free` and `:online` cost differently and stay."""
_FINE_TUNE = re.compile(r"^(ft:[^:]+):.*$")
_SNAPSHOT = re.compile(r"[-@](20\d{2}-?(0[1-9]|1[0-2])-?([0-2]\d|3[01])|0[1-9]\d{2}|1[0-2]\d{2})(-v\d+(:\d+)?)?$")
_VERSION = re.compile(r"-v\d+(:\d+)?$")

_SAME_LIST: dict[str, tuple[str, ...]] = {
    "azure": ("openai", "azure_ai", "azure_text"),
    "azure_ai": ("azure", "openai"),
    "openai": ("text-completion-openai", "azure"),
    "text-completion-openai": ("openai",),
    "gemini": ("vertex_ai",),
    "vertex_ai": ("gemini", "google"),
    "bedrock": ("bedrock_converse", "bedrock_mantle"),
    "anthropic": ("vertex_ai", "bedrock", "bedrock_converse"),
    "cohere": ("cohere_chat",),
    "mistral": ("codestral", "text-completion-codestral"),
}
"""Providers whose list may stand in for another's: the same models at the same list price."""

GATEWAYS = frozenset({"litellm", "litellm_proxy", "portkey", "helicone", "kong", "cloudflare_gateway"})
"""What only passes calls on: says nothing about who is paid."""


def candidates(model: str, provider: str | None) -> Iterator[str]:
    """Spellings of a model's name, the most specific first, each once."""
    seen: set[str] = set()
    for name in _spelled(model, provider):
        if name and name not in seen:
            seen.add(name)
            yield name


def _spelled(model: str, provider: str | None) -> Iterator[str]:
    known = providers.canonical(provider) if provider else None
    for bare in _bared(model.strip()):
        if known and known not in GATEWAYS and not bare.startswith(f"{known}/"):
            yield f"{known}/{bare}"
        yield bare
        if "/" in bare:
            yield bare.partition("/")[2]
            yield bare.rpartition("/")[2]


def _bared(model: str) -> Iterator[str]:
    """The name, then with ever more taken off it."""
    if arn := _ARN.match(model):
        model = arn["model"]
    name = _RESOURCE.sub("", model)
    yield name
    if tuned := _FINE_TUNE.match(name):
        name = tuned[1]
        yield name
    head, colon, tail = name.rpartition(":")
    if colon and tail.lower() in _ROUTING:
        name = head
        yield name
    if (shorter := _REGIONS.sub("", name)) != name:
        name = shorter
        yield name
    if (lowered := name.lower()) != name:
        yield lowered
    if "@" in name:
        yield name.replace("@", "-")
    if not name.startswith("ft:") and (shorter := _SNAPSHOT.sub("", name)) != name:
        yield shorter
    if colon and not name.startswith("ft:") and tail.lower() not in ("free", "online", *_ROUTING) and "." not in head:
        yield head  # a local tag, such as llama3:8b


def listed_for(provider: str | None, lister: str | None) -> bool:
    """Whether an entry of a list, of the provider `lister`, says what a call to `provider` costs."""
    known = providers.canonical(provider) if provider else None
    if known is None or lister is None or known in GATEWAYS:
        return True
    there = lister.partition("-")[0] if lister.startswith("vertex_ai") else lister
    return there == known or there in _SAME_LIST.get(known, ())
