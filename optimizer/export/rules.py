"""A policy as static rules for routers that cannot run it, with what that gives up.

OUT/litellm.yaml, bifrost.json, portkey.json, envoy-ai-gateway.yaml, openrouter.json    see `gateways`
OUT/rules.json          the rules in words and numbers, and what a caller counts for them
OUT/loss.json           {"routings": {NAME: {"cost_change_usd_per_1k", "quality_change", "latency_change_s"}},
                        "gateways": {NAME: {"file", "routing", "without_caller", "needs", "lost"}}}: estimates of each
                        static routing minus the policy on the decisions that certified it, and which one a gateway
                        follows, also where callers do not send what it needs
OUT/propensities.json   the probabilities that follow from the weights, for telemetry that does not carry them:

    {"schema": "retroute-propensities/1", "policy_id", "version", "revision", "virtual_model",
     "from": ISO time, "to": ISO time or null, "gateway": NAME or null,
     "gateways": {NAME: [{"rule": ID, "when": [{"feature", "above", "at_most"}], "weights": {ACTION: share}}]}}

    A call of `virtual_model` between `from` and `to` had, under the first rule whose every `when` holds (number >
    above, number <= at_most, null: no bound; numbers as the caller sent them), this probability of each action;
    the rule "default" holds always, and is the one where a caller sent nothing. Shares sum to 1; an action that
    is not there had none. A gateway that falls back to another model after an error executes an action that was
    not drawn. Set `from` and `to` to when the files went live and when they went, `gateway` to the one that follows
    them, and put the file into the home's folder `propensities` (see `stated_propensities`).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import polars as pl

from ingest.errors import UsageError, WorkError
from optimizer import runs
from optimizer.bundle import manifest_for, read_policy, write_files
from optimizer.dataset import Floats
from optimizer.evidence import Evaluation, Metric, Outcome, scaled
from optimizer.export.gateways import GATEWAYS, Gateway, How, header
from optimizer.logged import to_dataset
from optimizer.runtime import Model
from optimizer.static_rules import UNITS, StaticRouting, distilled, losses
from optimizer.study import certifying
from optimizer.summary import estimate_json
from optimizer.threads import one_thread

SEED = 0
_LOSS = {
    "cost_usd": ("cost_change_usd_per_1k", 1000.0),
    "quality": ("quality_change", 1.0),
    "latency_s": ("latency_change_s", 1.0),
}


def export(policy_folder: Path, out: Path, service: str) -> list[str]:
    """Write the rules for every gateway into `out`; returns for the user what each gives up.

    The policy must stand in its run, whose decisions say so. UsageError for an orchestrator, for actions with a
    strategy, and where a file of the run is missing; WorkError where too few decisions are known to make rules from.
    """
    manifest = manifest_for(policy_folder, service)
    model, _ = read_policy(policy_folder)
    _refuse(model, service)
    routing, evaluation = _distilled(policy_folder.parent.parent, service, model)
    with one_thread():
        lost = _lost(routing, evaluation, model)
    files = {gateway.file: gateway.write(service, routing) for gateway in GATEWAYS}
    files["rules.json"] = _json(_rules(routing))
    files["loss.json"] = _json(lost)
    files["propensities.json"] = _json(_propensities(manifest, routing))
    write_files(out, {name: text.encode() for name, text in files.items()})
    return [*_said(lost), *_limits(manifest), _KEYS]


def _refuse(model: Model, service: str) -> None:
    if model.steps:
        raise UsageError(
            f"the policy of {service} chooses which agent acts next; static rules see single calls only",
            "Export it for the app that runs the agents: --target agents.",
        )
    if strategies := [action for action in model.actions if "|" in action]:
        raise UsageError(
            f"static rules can name a model, not the strategy of {', '.join(strategies)}",
            "Export it with --target litellm, which tells the app its strategy in a header.",
        )


def _distilled(run: Path, service: str, model: Model) -> tuple[StaticRouting, Evaluation]:
    """The rules, and the evaluation that judged the policy, both from the run's decisions."""
    said = runs.read_json(run / "verdicts.json")["services"][service]
    path = run / "decisions.parquet"
    if not path.is_file():
        raise UsageError(f"{path} is missing", "the run is incomplete; run retroute nightly again")
    decisions = pl.read_parquet(path).filter(pl.col("service") == service)
    with one_thread():
        data = to_dataset(decisions, seed=SEED).data
        known, evaluation = certifying(data, confidence=said["limits"]["confidence"], seed=SEED)
        if not len(known):
            raise WorkError(f"run {run.name} has no decisions of {service} to make rules from")
        return distilled(known, model), evaluation


def _lost(routing: StaticRouting, evaluation: Evaluation, model: Model) -> dict[str, Any]:
    """What every static routing gives up against the policy, and which one each gateway follows."""
    silent = StaticRouting(routing.actions, (), routing.default)
    ways: dict[How, Callable[[Floats, tuple[str, ...]], Floats]] = {
        "blind": routing.blind,
        "rules": routing.probabilities,
        "certain": routing.certain,
        "certain_blind": silent.certain,
    }
    if not routing.rules:
        ways = {"blind": routing.blind, "certain_blind": silent.certain}
    return {
        "routings": {name: _estimates(losses(evaluation, model, way)) for name, way in ways.items()},
        "gateways": {one.name: _followed(one, bool(routing.rules)) for one in GATEWAYS},
    }


def _followed(gateway: Gateway, ruled: bool) -> dict[str, Any]:
    blind: How = "certain_blind" if gateway.how == "certain" else "blind"
    return {
        "file": gateway.file,
        "routing": gateway.how if ruled else blind,
        "without_caller": blind,
        "needs": gateway.needs if ruled else "nothing",
        "lost": gateway.lost,
    }


def _estimates(found: Mapping[Metric, Outcome]) -> dict[str, Any]:
    return {_LOSS[metric][0]: estimate_json(scaled(one, _LOSS[metric][1])) for metric, one in found.items()}


def _rules(routing: StaticRouting) -> dict[str, Any]:
    """Numbers are of the last user message, but for those of messages, the conversation, tools and earlier steps."""
    return {
        "actions": list(routing.actions),
        "features": {name: {"header": header(name), "metadata": name} for name in routing.features},
        "rules": [{**asdict(rule), "weights": _shares(rule.weights)} for rule in [*routing.rules, routing.default]],
    }


def _propensities(manifest: Mapping[str, Any], routing: StaticRouting) -> dict[str, Any]:
    every = [*routing.rules, routing.default]
    return {
        "schema": "retroute-propensities/1",
        **{key: manifest[key] for key in ("policy_id", "version", "revision", "virtual_model")},
        "from": datetime.now(UTC).isoformat(timespec="seconds"),
        "to": None,
        "gateway": None,
        "gateways": {
            gateway.name: [
                {
                    "rule": rule.id,
                    "when": [asdict(one) for one in rule.conditions],
                    "weights": {rule.best: 1.0} if gateway.how == "certain" else _shares(rule.weights),
                }
                for rule in (every if gateway.how != "blind" else [routing.default])
            ]
            for gateway in GATEWAYS
        },
    }


def _shares(weights: Mapping[str, int]) -> dict[str, float]:
    return {action: weight / UNITS for action, weight in weights.items()}


def _limits(manifest: Mapping[str, Any]) -> list[str]:
    """What no static rule can do, where the policy does it."""
    cannot = manifest["constraints"].get("cannot", {})
    most = manifest["constraints"].get("max_conversation_characters", {})
    notes = [f"no rule keeps requests with {need.replace('_', ' ')} from {', '.join(cannot[need])}" for need in cannot]
    notes += [
        f"no rule keeps conversations of more than {limit:,} characters from {name}" for name, limit in most.items()
    ]
    if manifest["canary"]["percent"] < 100:
        notes.append(f"the canary of {manifest['canary']['percent']:g} % is not in the rules")
    if manifest.get("sticky"):
        notes.append(
            "the policy keeps a session's action; gateways draw anew for each request, which is in no number here"
        )
    return [*notes, "expiry and the kill switch are not in the rules"]


_ROUTINGS: Mapping[How, str] = {
    "blind": "by fixed weights, blind to the request",
    "rules": "by weights in each rule",
    "certain": "always the heaviest model of the rule, so that nothing can be learned from it",
    "certain_blind": "always the heaviest model, so that nothing can be learned from it",
}
_KEYS = "providers are guessed from the models' names: look the files over, and fill in keys and addresses"


def _said(lost: Mapping[str, Any]) -> list[str]:
    """One line for each static routing: who follows it, and what it gives up."""
    lines = []
    for name, found in lost["routings"].items():
        own = [gateway for gateway, one in lost["gateways"].items() if one["routing"] == name]
        silent = [gateway for gateway, one in lost["gateways"].items() if one["without_caller"] == name]
        rest = [gateway for gateway in silent if gateway not in own]
        needs = {one["needs"] for gateway, one in lost["gateways"].items() if gateway in own} - {"nothing"}
        who = [f"{', '.join(own)}{f' (callers send {_listed(needs)})' if needs else ''}"] if own else []
        who += [f"{', '.join(rest)} where callers send nothing"] if rest else []
        lines.append(f"{_ROUTINGS[name]}: {'; '.join(who)}. Against the policy: {_changes(found)}")
    return lines


def _listed(needs: set[str]) -> str:
    return " or ".join(sorted(needs))


def _changes(found: Mapping[str, Any]) -> str:
    texts = []
    for key, (what, form, unit) in _FORMS.items():
        one = found[key]
        if one["value"] is None:
            texts.append(f"{what} not known ({one['reason']})")
        else:
            low, high = ("?" if at is None else form(at) for at in (one["low"], one["high"]))
            texts.append(f"{what} {form(one['value'])} {unit} ({low} to {high})")
    refusals = {one["reason"] for one in found.values()}
    return f"not known: {refusals.pop()}" if len(refusals) == 1 and None not in refusals else ", ".join(texts)


_FORMS: Mapping[str, tuple[str, Callable[[float], str], str]] = {
    "cost_change_usd_per_1k": ("cost", lambda value: f"{'-' if value < 0 else '+'}${abs(value):.3g}", "per 1,000"),
    "quality_change": ("quality", lambda value: f"{100 * value:+.1f}", "points"),
    "latency_change_s": ("latency", lambda value: f"{value:+.2f}", "s"),
}


def _json(value: Mapping[str, Any]) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
