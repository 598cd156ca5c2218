"""Static routing as the files of routers that people run: weights, and conditions on what a caller sends.

None of these routers reads a prompt. Where a rule depends on it, the caller counts a few numbers of the request and
sends them; without them the default weights apply. Each function gives one file; `GATEWAYS` lists them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from optimizer.export.litellm import variables
from optimizer.static_rules import UNITS, Condition, StaticRouting, StaticRule

PREFIX = "x-retroute-"
RULE_HEADER = f"{PREFIX}rule"
_BIFROST, _PORTKEY, _OPENROUTER = range(3)
_FAMILIES: Mapping[str, tuple[str, str, str]] = {
    "openai": ("openai", "openai", "openai"),
    "gpt": ("openai", "openai", "openai"),
    "anthropic": ("anthropic", "anthropic", "anthropic"),
    "claude": ("anthropic", "anthropic", "anthropic"),
    "google": ("gemini", "google", "google"),
    "gemini": ("gemini", "google", "google"),
    "mistral": ("mistral", "mistral-ai", "mistralai"),
    "deepseek": ("openai", "deepseek", "deepseek"),
    "cohere": ("cohere", "cohere", "cohere"),
    "command": ("cohere", "cohere", "cohere"),
    "groq": ("groq", "groq", "openai"),
}
"""What a model's name begins with -> its provider, as Bifrost, Portkey and OpenRouter spell it."""

How = Literal["blind", "rules", "certain", "certain_blind"]
"""What a gateway can do: draw by the default weights; draw by the weights of the rule that holds; take the heaviest
action of that rule, or of the default weights."""


@dataclass(frozen=True)
class Gateway:
    """A router that can be told static rules."""

    name: str
    file: str
    write: Callable[[str, StaticRouting], str]
    how: How
    needs: str
    """What a caller sends for the rules to hold."""
    lost: str
    """What it cannot express, beside the policy's own choice for each request."""


def header(feature: str) -> str:
    """The header that carries a feature's number."""
    return PREFIX + feature.replace("_", "-")


def litellm(service: str, routing: StaticRouting) -> str:
    """config.yaml of a LiteLLM proxy: one model name, deployments drawn by weight."""
    names = variables(routing.actions)
    deployments = "".join(
        f"  - model_name: {json.dumps(service)}\n"
        "    litellm_params:\n"
        f"      model: {json.dumps('openai/' + action)}\n"
        f"      api_base: os.environ/{names[action]}_API_BASE\n"
        f"      api_key: os.environ/{names[action]}_API_KEY\n"
        f"      weight: {weight}\n"
        for action, weight in routing.default.weights.items()
    )
    return (
        f"# LiteLLM proxy that draws the model of {json.dumps(service)} by fixed weights, in thousandths.\n"
        f"model_list:\n{deployments}router_settings:\n  routing_strategy: simple-shuffle\n"
        "general_settings:\n  master_key: os.environ/LITELLM_MASTER_KEY\n"
    )


def bifrost(service: str, routing: StaticRouting) -> str:
    """The part `governance.routing_rules` of Bifrost's config.json: CEL on headers, weighted targets."""
    rules = [
        {
            "id": f"retroute-{_slug(service)}-{rule.id}",
            "name": f"retroute {service} {rule.id}",
            "description": rule.words,
            "enabled": True,
            "cel_expression": cel(service, rule),
            "targets": [
                dict(zip(("provider", "model"), _provider(action, _BIFROST), strict=True)) | {"weight": weight / UNITS}
                for action, weight in rule.weights.items()
            ],
            "fallbacks": ["/".join(_provider(action, _BIFROST)) for action in _others(rule, routing)],
            "scope": "global",
            "priority": number,
        }
        for number, rule in enumerate([*routing.rules, routing.default])
    ]
    return _json({"governance": {"routing_rules": rules}})


def cel(service: str, rule: StaticRule) -> str:
    """A rule as a CEL expression. A header that is missing makes it false; one that is no number, an error, which
    Bifrost takes as false."""
    parts = [f"model == {json.dumps(service)}"]
    for one in rule.conditions:
        number = f'double(headers["{header(one.feature)}"])'
        parts.append(f'"{header(one.feature)}" in headers')
        parts += [f"{number} > {one.above!r}"] if one.above is not None else []
        parts += [f"{number} <= {one.at_most!r}"] if one.at_most is not None else []
    return " && ".join(parts)


def portkey(service: str, routing: StaticRouting) -> str:
    """A Portkey config: conditions on metadata, and a load balancer for each rule."""
    names = variables(routing.actions)

    def balanced(rule: StaticRule) -> dict[str, Any]:
        return {
            "name": rule.id,
            "strategy": {"mode": "loadbalance"},
            "targets": [
                {
                    "provider": _provider(action, _PORTKEY)[0],
                    "api_key": f"${{{names[action]}_API_KEY}}",
                    "weight": weight / UNITS,
                    "override_params": {"model": _provider(action, _PORTKEY)[1]},
                }
                for action, weight in rule.weights.items()
            ],
        }

    if not routing.rules:
        config = {key: value for key, value in balanced(routing.default).items() if key != "name"}
        return _json(config)
    return _json(
        {
            "strategy": {
                "mode": "conditional",
                "conditions": [{"query": _query(rule.conditions), "then": rule.id} for rule in routing.rules],
                "default": routing.default.id,
            },
            "targets": [balanced(rule) for rule in [*routing.rules, routing.default]],
        }
    )


def _query(conditions: Sequence[Condition]) -> dict[str, Any]:
    """Metadata are texts, which Portkey reads as numbers where it compares; a missing one compares false."""
    found = []
    for one in conditions:
        key = f"metadata.{one.feature}"
        found += [{key: {"$gt": one.above}}] if one.above is not None else []
        found += [{key: {"$lte": one.at_most}}] if one.at_most is not None else []
    return {"$and": found}


def envoy(service: str, routing: StaticRouting) -> str:
    """Resources of Envoy AI Gateway: the caller names the rule in a header, since headers are compared as texts."""
    name = _slug(service)
    backend = {action: f"{name}-{_slug(action)}-{number}" for number, action in enumerate(routing.actions)}

    def rule(one: StaticRule, more: str) -> str:
        backends = "".join(
            f"        - name: {backend[action]}\n"
            f"          modelNameOverride: {json.dumps(_provider(action, _BIFROST)[1])}\n"
            f"          weight: {weight}\n"
            for action, weight in one.weights.items()
        )
        return (
            f"    - name: {one.id}\n"
            "      matches:\n        - headers:\n"
            "            - type: Exact\n              name: x-ai-eg-model\n"
            f"              value: {json.dumps(service)}\n{more}"
            f"      backendRefs:\n{backends}"
        )

    rules = "".join(
        rule(one, f"            - type: Exact\n              name: {RULE_HEADER}\n              value: {one.id}\n")
        for one in routing.rules
    )
    backends = "".join(
        f"---\napiVersion: aigateway.envoyproxy.io/v1beta1\nkind: AIServiceBackend\nmetadata:\n"
        f"  name: {backend[action]}\nspec:\n  schema:\n    name: OpenAI\n  backendRef:\n"
        f"    name: {backend[action]}\n    kind: Backend\n    group: gateway.envoyproxy.io\n"
        for action in routing.actions
    )
    return (
        "# Envoy AI Gateway. Name your Gateway; a Backend for each AIServiceBackend says where its model is served.\n"
        f"apiVersion: aigateway.envoyproxy.io/v1beta1\nkind: AIGatewayRoute\nmetadata:\n  name: {name}\n"
        "spec:\n  parentRefs:\n    - name: YOUR-GATEWAY\n      kind: Gateway\n      group: gateway.networking.k8s.io\n"
        f"  rules:\n{rules}{rule(routing.default, '')}{backends}"
    )


def openrouter(service: str, routing: StaticRouting) -> str:
    """For each rule the fields of a request to OpenRouter: one model, the others as its fallbacks."""
    rules = [
        {
            "rule": rule.id,
            "when": [vars(one) for one in rule.conditions],
            "words": rule.words,
            "request": {
                "model": _openrouter(rule.best),
                "models": [_openrouter(action) for action in _others(rule, routing)],
                "provider": {"allow_fallbacks": True},
            },
        }
        for rule in [*routing.rules, routing.default]
    ]
    return _json({"service": service, "rules": rules})


def _others(rule: StaticRule, routing: StaticRouting) -> list[str]:
    """What follows where the drawn model fails: the other actions, those of larger weight first."""
    rest = [action for action in routing.actions if action != rule.best]
    return sorted(rest, key=lambda action: -rule.weights.get(action, 0))


def _provider(action: str, spelling: int) -> tuple[str, str]:
    """Provider and model, guessed from the name; what is not known is served as OpenAI's."""
    before, slash, model = action.partition("/")
    if not slash:
        before, model = next((stem for stem in _FAMILIES if action.lower().startswith(stem)), ""), action
    known = _FAMILIES.get(before.lower())
    return (known[spelling], model) if known else ("openai", action)


def _openrouter(action: str) -> str:
    return action if "/" in action else "/".join(_provider(action, _OPENROUTER))


def _slug(text: str) -> str:
    """A name that Kubernetes takes."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")[:50].strip("-") or "model"


def _json(value: Mapping[str, Any]) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False) + "\n"


GATEWAYS: tuple[Gateway, ...] = (
    Gateway("litellm", "litellm.yaml", litellm, "blind", "nothing", "conditions on the request"),
    Gateway("bifrost", "bifrost.json", bifrost, "rules", f"the rules' numbers as headers {PREFIX}...", ""),
    Gateway("portkey", "portkey.json", portkey, "rules", "the rules' numbers as metadata", ""),
    Gateway("envoy", "envoy-ai-gateway.yaml", envoy, "rules", f"the rule's name as header {RULE_HEADER}", ""),
    Gateway("openrouter", "openrouter.json", openrouter, "certain", "the fields of their rule", "weights"),
)
