"""Who acts, by the metadata that LangChain and LangGraph put on every run, in whichever convention it travels."""

from __future__ import annotations

from collections.abc import Mapping

from ingest.dialects.values import text, unquoted

KEYS = ("lc_agent_name", "langgraph_node", "langgraph_checkpoint_ns", "checkpoint_ns")

_STEPS = frozenset({"model", "agent", "tools", "call_model", "__start__", "__end__"})
"""Nodes that LangGraph's own agents are made of: parts of an agent, not agents."""


def agent_of(metadata: Mapping[str, object]) -> str | None:
    """The agent's name, else the innermost node of a graph that is no part of a ready-made agent; None when unknown."""
    name = text(unquoted(metadata.get("lc_agent_name")))
    if name:
        return name
    node = text(unquoted(metadata.get("langgraph_node")))
    if node and node not in _STEPS:
        return node
    path = text(unquoted(metadata.get("langgraph_checkpoint_ns"))) or ""
    for part in reversed(path.split("|")):
        node = part.partition(":")[0]
        if node and node not in _STEPS:
            return node
    return None


def agent_under(attributes: Mapping[str, object], prefix: str) -> str | None:
    """As `agent_of`, where each value of the metadata is an attribute of its own below `prefix`."""
    found = {key: attributes[prefix + key] for key in KEYS if prefix + key in attributes}
    return agent_of(found) if found else None
