"""A policy folder in words, and what differs between two."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ingest.errors import UsageError
from optimizer import runtime
from optimizer.bundle import read_policy
from optimizer.bundle_evidence import CHANGES
from optimizer.runtime import Model

_KINDS = {
    "constant": "the same for every request",
    "linear": "linear in the features",
    "knn": "the nearest logged requests",
    "trees": "decision trees",
}
_CHANGES = {
    "savings_usd_per_1k": ("saves", "${:,.4g}", " per 1,000 decisions"),
    "quality_change": ("quality", "{:+.4f}", ""),
    "latency_change_s": ("latency", "{:+.3f}", " s"),
}
_CONTEXT_CHARACTERS = 60


def about(folder: Path) -> dict[str, Any]:
    """The manifest without its self-test, with sizes of the files and whether there is a signature. UsageError if it is
    no manifest."""
    try:
        manifest = json.loads((folder / "manifest.json").read_bytes())
        files = {
            name: {"sha256": str(digest).removeprefix("sha256:"), "bytes": _size(folder / name)}
            for name, digest in sorted(manifest["files"].items())
        }
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise UsageError(
            f"{folder / 'manifest.json'} is no policy's manifest: {type(error).__name__}",
            "`retroute bundle verify` says what a router thinks of it.",
        ) from None
    said = {name: value for name, value in manifest.items() if name != "selftest"}
    return said | {"folder": str(folder), "files": files, "signed": (folder / "manifest.sig").is_file()}


def _size(path: Path) -> int | None:
    return path.stat().st_size if path.is_file() else None


def in_words(said: Mapping[str, Any]) -> list[str]:
    """What `about` found, one line for each thing."""
    actions = said.get("actions", [])
    model = said.get("model")
    which = f"{said.get('policy_id')} version {said.get('version')}, revision {said.get('revision')}"
    lines = [
        f"{which}, made {said.get('created_at')}",
        f"answers to the model name {said.get('virtual_model')}",
        f"chooses among {', '.join(actions)}; in doubt {said.get('incumbent')}",
        f"model: {model} ({_KINDS.get(str(model), 'unknown kind')}), features {said.get('features', {}).get('spec')}",
        f"valid {_validity(said)}{'' if said.get('enabled') is True else '; not enabled'}",
        _exploration(said.get("exploration", {})),
        _canary(said.get("canary", {})),
    ]
    lines += _constraints(said.get("constraints", {}))
    if actions and actions[-1] == runtime.STOP:
        lines += _course(said)
    if "before" in said:
        lines.append(f"the other sessions get version {said['before'].get('version')}, that was in force before")
    if said.get("sticky"):
        lines.append("sticky: a session keeps its action")
    lines += _evaluation(said)
    for name, file in said["files"].items():
        size = "missing" if file["bytes"] is None else f"{file['bytes']:,} bytes"
        lines.append(f"file {name}: {size}, sha256 {file['sha256'][:16]}")
    lines.append("signed (manifest.sig)" if said["signed"] else "not signed")
    return lines


def _validity(said: Mapping[str, Any]) -> str:
    since, until = said.get("not_before"), said.get("expires_at")
    if since is None and until is None:
        return "without limit"
    return " ".join([*([f"from {since}"] if since else []), *([f"until {until}"] if until else [])])


def _exploration(said: Mapping[str, Any]) -> str:
    kind, epsilon = said.get("kind"), said.get("epsilon", 0.0)
    least = f", least probability {said.get('min_propensity', 0.0):.4f}"
    share = f"; makes {said['share']:.0%} of the decisions, the others as before" if "share" in said else ""
    if kind == "table":
        return f"explores by a table{least}{share}"
    if kind == "one-step":
        return f"explores one step of an episode: {epsilon:.1%} at each until it has"
    return f"explores {epsilon:.1%} of the decisions{least}{share}"


def _canary(said: Mapping[str, Any]) -> str:
    percent, explore = said.get("percent", 0.0), said.get("explore_percent", 0.0)
    more = f", {explore:g} % drawn evenly" if explore else ""
    return f"canary: {percent:g} % of the {said.get('unit', 'session')}s under the policy{more}"


def _constraints(said: Mapping[str, Any]) -> list[str]:
    lines = [
        f"{name}: at most {limit:,} characters of conversation"
        for name, limit in said.get("max_conversation_characters", {}).items()
    ]
    return lines + [
        f"without {need.replace('_', ' ')}: {', '.join(names)}" for need, names in said.get("cannot", {}).items()
    ]


def _course(said: Mapping[str, Any]) -> list[str]:
    budgets = ", ".join(f"{name} {limit:g}" for name, limit in said.get("budgets", {}).items()) or "none"
    limits = f"at most {said.get('max_steps')} steps; {said.get('loop')} equal steps running are a loop"
    return [
        f"script of today: {' > '.join(said.get('script', []))}",
        f"budgets of an episode: {budgets}; {limits}",
    ]


def _evaluation(said: Mapping[str, Any]) -> list[str]:
    found = said.get("evaluation") or {}
    if not found:
        return ["not evaluated: `retroute export` writes the evaluation of a judged run into the bundle"]
    lines = []
    if found.get("verdict"):
        lines.append(f"verdict {found['verdict']} in run {found.get('run_id')}, on {found.get('decisions')} decisions")
    lines += [
        f"{_CHANGES[name][0]}: {_estimate(found[name], *_CHANGES[name][1:])}" for name in CHANGES if name in found
    ]
    known = {name: value for name, value in found.items() if name not in (*CHANGES, "verdict", "run_id", "decisions")}
    lines += [f"{name.replace('_', ' ')}: {_short(value)}" for name, value in known.items() if value is not None]
    if data := said.get("data"):
        lines.append(
            f"data: snapshot {data.get('snapshot')}, {data.get('decisions')} decisions from {data.get('from')} "
            f"to {data.get('to')}"
        )
    if packages := said.get("packages"):
        lines.append("made with " + ", ".join(f"{name} {version}" for name, version in packages.items()))
    return lines


def _short(value: object) -> object:
    return f"{value:.5g}" if isinstance(value, float) else value


def _estimate(said: Mapping[str, Any], form: str, unit: str) -> str:
    if said.get("value") is None:
        return f"not known ({said.get('reason')})"
    low, high = ("?" if at is None else form.format(at) for at in (said.get("low"), said.get("high")))
    return f"{form.format(said['value'])}{unit} ({low} to {high}, {said.get('kind')})"


def changes(before: Path, after: Path) -> dict[str, Any]:
    """What differs between two policies: `fields` [name, before, after] of the manifests; `actions` gone and new; and
    on the contexts that either is tested with, the probability of every action in each. UsageError if a router would
    take one of them no more than the other."""
    (one, said_before), (other, said_after) = read_policy(before), read_policy(after)
    contexts = [case["context"] for case in said_before["selftest"]]
    contexts += [case["context"] for case in said_after["selftest"] if case["context"] not in contexts]
    hidden = {"selftest", "files", "features"}
    flat_before, flat_after = (
        _flat({k: v for k, v in said.items() if k not in hidden}) for said in (said_before, said_after)
    )
    fields = [
        {"field": name, "before": flat_before.get(name), "after": flat_after.get(name)}
        for name in sorted(flat_before.keys() | flat_after.keys())
        if flat_before.get(name) != flat_after.get(name)
    ]
    names = [*one.actions, *(name for name in other.actions if name not in one.actions)]
    return {
        "before": str(before),
        "after": str(after),
        "gone": [name for name in one.actions if name not in other.actions],
        "new": [name for name in other.actions if name not in one.actions],
        "fields": fields,
        "files": sorted(
            name
            for name in said_before["files"].keys() | said_after["files"].keys()
            if said_before["files"].get(name) != said_after["files"].get(name)
        ),
        "contexts": [
            {"context": context, "before": _shares(one, context, names), "after": _shares(other, context, names)}
            for context in contexts
        ],
    }


def _flat(value: Any, name: str = "") -> dict[str, Any]:
    """Nested mappings as one, names joined by dots."""
    if not isinstance(value, Mapping) or not value:
        return {name: value} if name else {}
    found: dict[str, Any] = {}
    for key, inner in value.items():
        found |= _flat(inner, f"{name}.{key}" if name else str(key))
    return found


def _shares(model: Model, context: Mapping[str, object], names: Sequence[str]) -> dict[str, float]:
    features = runtime.decision_features(context, model.actions)[None, :]
    row = model.probabilities(features, np.ones((1, len(model.actions)), dtype=bool))[0]
    known = dict(zip(model.actions, row.tolist(), strict=True))
    return {name: float(known.get(name, 0.0)) for name in names}


def changes_in_words(found: Mapping[str, Any]) -> list[str]:
    """What `changes` found, one line for each thing."""
    lines = [f"action gone: {name}" for name in found["gone"]] + [f"action new: {name}" for name in found["new"]]
    lines += [f"{one['field']}: {_value(one['before'])} -> {_value(one['after'])}" for one in found["fields"]]
    lines += [f"file {name} differs" for name in found["files"]]
    for case in found["contexts"]:
        moved = [
            f"{name} {100 * share:.1f} % -> {100 * case['after'][name]:.1f} %"
            for name, share in case["before"].items()
            if abs(share - case["after"][name]) > 1e-6
        ]
        if moved:
            lines.append(f"{_said(case['context'])}: {', '.join(moved)}")
    return lines or ["the same policy"]


def _value(value: object) -> str:
    return "none" if value is None else json.dumps(value, ensure_ascii=False)


def _said(context: Mapping[str, Any]) -> str:
    """The last user message of a tested context, cut."""
    texts = [text for role, text, _ in runtime._messages(context.get("messages")) if role == "user"]
    text = " ".join((texts or [""])[-1].split())
    cut = text if len(text) <= _CONTEXT_CHARACTERS else text[: _CONTEXT_CHARACTERS - 1] + "…"
    steps = len(context.get("history") or ())
    return f'"{cut}"' + (f" after {steps} steps" if steps else "")
