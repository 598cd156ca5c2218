"""Strands Agents: old and new GenAI names together, texts in span events, its own name where the provider's belongs.

The time to the first token comes in milliseconds, under a name that others use for seconds.
"""

from __future__ import annotations

from ingest.dialects import otel_genai
from ingest.dialects.facts import Dialect, Kind
from ingest.spans import Attributes


def kind(attributes: Attributes) -> Kind | None:
    """As the GenAI names say; a turn of its event loop is a step of a chain."""
    if "strands-agents" not in (attributes.get("gen_ai.system"), attributes.get("gen_ai.provider.name")):
        return None
    return otel_genai.kind(attributes) or "chain"


def repair(attributes: Attributes, values: dict[str, object]) -> None:
    """Seconds from milliseconds."""
    waited = values.get("ttft_s")
    if isinstance(waited, float) and "gen_ai.response.time_to_first_chunk" not in attributes:
        values["ttft_s"] = waited / 1000


DIALECT = Dialect(
    "strands",
    ("gen_ai.system", "gen_ai.provider.name"),
    kind,
    {"cache_write_tokens": ("gen_ai.usage.cache_write_input_tokens",), "tools": ("gen_ai.agent.tools",)},
    ignored=("event_loop.", "gen_ai.event.", "tags"),
    repair=repair,
)
