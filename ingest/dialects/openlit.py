"""OpenLIT: GenAI names with a few of its own."""

from __future__ import annotations

from ingest.dialects.facts import Dialect

DIALECT = Dialect(
    "openlit",
    fields={"tool_arguments": ("gen_ai.tool.args",)},
    ignored=("openlit.", "gen_ai.sdk.", "gen_ai.client.token.usage", "gen_ai.server."),
)
