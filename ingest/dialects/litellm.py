"""LiteLLM's own otel callback, in the SDK and in its proxy.

A call is the span `litellm_request` with GenAI attributes; below it `raw_gen_ai_request` repeats the provider's request
and answer under `llm.<provider>.*` and has no attribute of a call of its own. Its second version (LITELLM_OTEL_V2)
calls the span `chat MODEL` and says `litellm.call_type`. In the proxy the response's model is the name that the client
asked for, whatever a router made of it; the real one is in `litellm.provider.model`. A router's decision that nobody
promoted to attributes of its own is in the request's metadata, as Python writes it.
"""

from __future__ import annotations

from collections.abc import Mapping

from ingest.dialects.facts import Dialect, Kind
from ingest.dialects.values import array, real, structure, text
from ingest.spans import Attributes

_KINDS: dict[str, Kind] = {
    "acompletion": "llm",
    "completion": "llm",
    "atext_completion": "llm",
    "text_completion": "llm",
    "responses": "llm",
    "aresponses": "llm",
    "anthropic_messages": "llm",
    "agenerate_content": "llm",
    "agenerate_content_stream": "llm",
    "generate_content_stream": "llm",
    "embedding": "embedding",
    "aembedding": "embedding",
}

_PROXY_KEYS = (
    "metadata.user_api_key_hash",
    "metadata.user_api_key_request_route",
    "litellm.api_key.hash",
    "litellm.request.route",
)
"""Only the proxy knows who called it, and by which route."""

_METADATA = "metadata.requester_metadata"
"""From which our router takes what clients claim about policies."""
_DECISION = {
    **dict.fromkeys(("id", "version", "action", "arm", "reason", "features"), text),
    "propensity": real,
    **dict.fromkeys(("candidates", "probabilities"), array),
}


def kind(attributes: Attributes) -> Kind | None:
    """By the operation's name, `llm.request.type` or `litellm.call_type`."""
    for key in ("gen_ai.operation.name", "llm.request.type", "litellm.call_type"):
        if isinstance(said := attributes.get(key), str) and said.lower() in _KINDS:
            return _KINDS[said.lower()]
    return None


def repair(attributes: Attributes, values: dict[str, object]) -> None:
    """The returned model is no alias; session and decision are in the request's metadata."""
    if real_model := text(attributes.get("litellm.provider.model")):
        head, slash, tail = real_model.partition("/")
        bare = tail if slash and values.get("provider") in (None, head) else real_model
        said = values.get("model_returned")
        proxied = any(text(attributes.get(key)) for key in _PROXY_KEYS)
        if said is not None and (proxied or said == text(attributes.get("litellm.model_group"))):
            values["model_returned"] = bare
        values.setdefault("model_requested", bare)
    told = attributes.get(_METADATA)
    wanted = "session_id" not in values or ("policy_action" not in values and "policy" in str(told))
    if wanted and isinstance(sent := structure(told), dict):
        _from_metadata(sent, values)


def _from_metadata(sent: Mapping[str, object], values: dict[str, object]) -> None:
    for key in ("session_id", "litellm_session_id", "thread_id"):
        if "session_id" not in values and (found := text(sent.get(key))):
            values["session_id"] = found
    nested = sent.get("policy")
    decision = nested if isinstance(nested, dict) else {}
    if "policy_action" in values or not text(decision.get("action", sent.get("policy.action"))):
        return
    for name, parse in _DECISION.items():
        said = parse(decision.get(name, sent.get(f"policy.{name}")))
        if said is not None:
            values.setdefault(f"policy_{name}", said)


DIALECT = Dialect(
    "litellm",
    ("litellm.call_id", "litellm.provider.model", "hidden_params"),
    kind,
    {
        "stream": ("llm.is_streaming",),
        "cache_hit": ("litellm.cache_hit",),
        "user_id": ("llm.user", "metadata.user_api_key_end_user_id"),
        "session_id": (
            "litellm.metadata.requester_metadata.session_id",
            "litellm.metadata.session_id",
            "metadata.session_id",
            "metadata.litellm_session_id",
        ),
    },
    indexed={
        "input": ("SpanAttributes.LLM_PROMPTS.",),
        "output": ("SpanAttributes.LLM_COMPLETIONS.",),
        "tools": ("SpanAttributes.LLM_REQUEST_FUNCTIONS.",),
    },
    ignored=(
        "llm.",
        "metadata.",
        "litellm.",
        "hidden_params",
        "call_type",
        "service",
        "error.",
        "gen_ai.guardrail.",
        "SpanAttributes.",
    ),
    repair=repair,
)
