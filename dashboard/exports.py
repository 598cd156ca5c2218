"""What a policy can be taken away as, and why not, told before anything is made. Pure.

The exporters have the last word; this only spares a reader a click that cannot work.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

Target = Literal["litellm", "agents", "onnx", "rules"]


@dataclass(frozen=True)
class Bundle:
    """A form of a policy: its name on the command line, what it is, and where it runs."""

    target: Target
    title: str
    about: str


BUNDLES = (
    Bundle("litellm", "LiteLLM proxy", "The policy itself in a proxy's pre-call hook, with its config.yaml."),
    Bundle("agents", "In the app", "The policy itself for plain Python, LangGraph, AutoGen, pydantic-ai and others."),
    Bundle("onnx", "ONNX", "The policy as a graph with golden vectors, and a reference router in JavaScript."),
    Bundle(
        "rules", "Rules and weights", "Fixed rules for Bifrost, Portkey, Envoy and OpenRouter, and what each gives up."
    ),
)


def unfit(target: Target, manifest: Mapping[str, Any], service: str, verdict: str) -> str:
    """Why there is no such bundle of a policy; "" where there should be one."""
    actions = [str(action) for action in manifest.get("actions") or ()]
    steps = actions[-1:] == ["STOP"]
    if verdict != "deploy":
        return "The verdict is not Deploy. `retroute export --unproven` writes one all the same."
    if steps and target != "agents":
        return "It chooses which agent acts next; only the app that runs the agents can follow it."
    if target == "litellm" and service in actions:
        return "The service has the name of one of its models, which a proxy could not tell apart."
    if target == "onnx" and manifest.get("sticky"):
        return "It keeps a session's action, which a graph of features cannot."
    if target == "rules" and any("|" in action for action in actions):
        return "Fixed rules can name a model, but not a strategy."
    return ""
