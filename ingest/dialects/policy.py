"""What a router says about its decision: `policy.*`, also as LiteLLM passes it on in a request's metadata."""

from __future__ import annotations

from ingest.dialects.facts import Dialect

_PREFIXES = ("policy.", "litellm.metadata.policy.", "litellm.metadata.requester_metadata.policy.")
_NAMES = ("id", "version", "action", "propensity", "arm", "candidates", "probabilities", "features", "reason")

DIALECT = Dialect(
    "policy",
    fields={f"policy_{name}": tuple(prefix + name for prefix in _PREFIXES) for name in _NAMES},
    ignored=(*_PREFIXES, "retroute."),
)
