"""Probabilities of choices that a gateway made by fixed weights, filled in where the telemetry does not carry them.

A home's folder `propensities` holds files of schema retroute-propensities/1, as `retroute export --target rules` writes
them (see `export.rules`), each with the name of the gateway that follows it under `gateway`. From `from` to `to` all
model calls of the service `virtual_model` are taken as that gateway's. Where its rules have conditions, callers are
taken to send what they need: where they do not, keep the rule "default" alone in the file.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import polars as pl

from ingest.errors import WorkError
from optimizer import prompts
from optimizer.decisions import MODEL_KINDS, parsed
from optimizer.runtime import DENSE
from optimizer.static_rules import Condition, holds

SCHEMA = "retroute-propensities/1"
_FILLED = ("policy_action", "policy_propensity", "policy_candidates", "policy_probabilities")


@dataclass(frozen=True)
class Rule:
    """Where all conditions hold, the actions had these probabilities."""

    conditions: tuple[Condition, ...]
    weights: Mapping[str, float]


@dataclass(frozen=True)
class Stated:
    """What one file says."""

    service: str
    from_ns: int
    to_ns: int | None
    """None: to this day."""
    rules: tuple[Rule, ...]


def read(home: Path) -> list[Stated]:
    """The files of a home by name. Raises WorkError for one that cannot be used, saying why."""
    found = []
    for path in sorted((home / "propensities").glob("*.json")):
        try:
            found.append(_stated(json.loads(path.read_text(encoding="utf-8"))))
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            reason = f"it lacks {error}" if isinstance(error, KeyError) else error
            raise WorkError(f"cannot use {path}: {reason}", "Mend it, or take it away.") from None
    return found


def filled(calls: pl.DataFrame, stated: Sequence[Stated]) -> pl.DataFrame:
    """The calls with policy_action, policy_propensity, policy_candidates and policy_probabilities where a file states
    them. What a call carries itself stays. A model that had no chance, such as one that a gateway fell back to, leaves
    its call as it is, and so does a rule that depends on a request whose text is not known."""
    for one in stated:
        calls = _filled(calls, one)
    return calls


def _filled(calls: pl.DataFrame, one: Stated) -> pl.DataFrame:
    inside = (
        (pl.col("service") == one.service)
        & pl.col("kind").is_in(MODEL_KINDS)
        & pl.col("policy_action").is_null()
        & pl.col("policy_propensity").is_null()
        & (pl.col("start_ns") >= one.from_ns)
    )
    if one.to_ns is not None:
        inside &= pl.col("start_ns") < one.to_ns
    columns = ("trace_id", "span_id", "model_requested", "model_returned", "input_text", "tools_offered")
    rows = []
    for trace, span, requested, returned, text, tools in calls.filter(inside).select(columns).iter_rows():
        rule = _rule(one.rules, text, tools)
        executed = requested if returned in (None, one.service) else returned  # some answer under the asked name
        action = None if rule is None else _action(rule.weights, executed)
        if rule is not None and action is not None:
            names, shares = json.dumps(list(rule.weights)), json.dumps(list(rule.weights.values()))
            rows.append((trace, span, action, rule.weights[action], names, shares))
    kinds = {name: calls.schema[name] for name in ("trace_id", "span_id", *_FILLED)}
    found = pl.DataFrame(rows, schema=kinds, orient="row")
    joined = calls.join(found, on=["trace_id", "span_id"], how="left", suffix="_stated", maintain_order="left")
    known = [pl.coalesce(name, f"{name}_stated").alias(name) for name in _FILLED]
    return joined.with_columns(known).select(calls.columns)


def _rule(rules: Sequence[Rule], text: str | None, tools: str | None) -> Rule | None:
    """The first rule that holds; None where that cannot be told."""
    if not rules[0].conditions:
        return rules[0]
    if text is None:
        return None
    features = prompts.features(parsed(text), parsed(tools))[None, :]
    return next((rule for rule in rules if holds(rule.conditions, features)[0]), None)


def _action(weights: Mapping[str, float], model: str | None) -> str | None:
    """The action of this model name, also with a date or the like after it."""
    text = (model or "").rpartition("/")[2]
    alike = [action for action in weights if _names(action.rpartition("/")[2], text)]
    return max(alike, key=len) if alike else None


def _names(action: str, text: str) -> bool:
    return text == action or text.startswith((f"{action}-", f"{action}@", f"{action}:"))


def _stated(said: Mapping[str, Any]) -> Stated:
    if said.get("schema") != SCHEMA:
        raise ValueError(f"it is not of schema {SCHEMA}")
    gateways, gateway = said["gateways"], said.get("gateway")
    if gateway not in gateways:
        raise ValueError(f'"gateway" must name the one that follows it: {", ".join(gateways)}')
    rules = tuple(_read_rule(rule) for rule in gateways[gateway])
    if not rules:
        raise ValueError(f"{gateway} has no rules")
    to = said.get("to")
    return Stated(said["virtual_model"], _nanoseconds(said["from"]), None if to is None else _nanoseconds(to), rules)


def _read_rule(said: Mapping[str, Any]) -> Rule:
    weights = {str(action): float(share) for action, share in said["weights"].items()}
    if not weights or min(weights.values()) <= 0.0 or abs(sum(weights.values()) - 1.0) > 1e-6:
        raise ValueError(f"the weights of {said['rule']} must be positive and sum to 1")
    conditions = tuple(Condition(one["feature"], one["above"], one["at_most"]) for one in said["when"])
    if unknown := [one.feature for one in conditions if one.feature not in DENSE]:
        raise ValueError(f"{said['rule']} depends on {unknown[0]}, which is no feature")
    return Rule(conditions, weights)


def _nanoseconds(text: str) -> int:
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        raise ValueError(f"the time {text} has no offset from UTC")
    return int(moment.timestamp()) * 1_000_000_000
