"""Names of model providers, one spelling each: the one of litellm's price file."""

from __future__ import annotations

from functools import lru_cache

_SPELLINGS = {
    "aws": "bedrock",
    "aws.bedrock": "bedrock",
    "amazon_bedrock": "bedrock",
    "az.ai.openai": "azure",
    "azure.ai.openai": "azure",
    "azure.openai": "azure",
    "azure_openai": "azure",
    "azureopenai": "azure",
    "az.ai.inference": "azure_ai",
    "azure.ai.inference": "azure_ai",
    "gcp": "gemini",
    "gcp.gemini": "gemini",
    "gcp.gen_ai": "gemini",
    "google": "gemini",
    "google_genai": "gemini",
    "google_gemini": "gemini",
    "google-gla": "gemini",
    "gcp.vertex_ai": "vertex_ai",
    "google-vertex": "vertex_ai",
    "vertexai": "vertex_ai",
    "ibm.watsonx.ai": "watsonx",
    "mistral_ai": "mistral",
    "mistralai": "mistral",
    "together": "together_ai",
    "fireworks": "fireworks_ai",
    "x_ai": "xai",
}
_FRAMEWORKS = {
    "langgraph",
    "langchain",
    "strands-agents",
    "microsoft.agent_framework",
    "crewai",
    "none",
    "null",
    "unknown",
}


@lru_cache(maxsize=1024)
def canonical(name: str, address: str = "") -> str | None:
    """The usual spelling of a provider's name; None when it is empty or names a framework.

    `address` is the host that was called: an Azure host makes "openai" "azure", whatever the instrumentation said.
    """
    lowered = name.strip().lower().replace(" ", "_")
    if not lowered or lowered in _FRAMEWORKS:
        return None
    known = _SPELLINGS.get(lowered) or _SPELLINGS.get(lowered.partition(".")[0]) or lowered.partition(".")[0]
    if known == "openai" and ".azure." in address.lower():
        return "azure"
    return known
