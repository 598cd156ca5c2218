"""Laminar: GenAI names, with OpenAI's raw messages in them; kinds and association in names of its own."""

from __future__ import annotations

from ingest.dialects.facts import Dialect, by

_PROPERTIES = "lmnr.association.properties."

kind = by(
    "lmnr.span.type",
    {"llm": "llm", "tool": "tool", "executor": "chain", "evaluator": "evaluator", "evaluation": "evaluator"},
)

DIALECT = Dialect(
    "laminar",
    ("lmnr.span.type",),
    kind,
    {
        "session_id": (_PROPERTIES + "session_id",),
        "user_id": (_PROPERTIES + "user_id",),
        "raw_input": ("lmnr.span.input",),
        "raw_output": ("lmnr.span.output",),
    },
    ignored=("lmnr.", "gen_ai.usage.input_cost", "gen_ai.usage.output_cost"),
    named=True,
)
