"""A policy for routers in other languages: policy.onnx, golden vectors, and a reference in JavaScript.

    OUT/policy/manifest.json     as in every bundle; `files` also names the two below
    OUT/policy/policy.onnx       features and allowed actions in, probabilities out (see `onnx_graph.DOCUMENT`)
    OUT/policy/golden.json       {"spec", "actions", "cases": [{"context", "allowed", "features", "features_hash",
                                 "probabilities"}]}: what another implementation has to arrive at
    OUT/policy_router.mjs        the features and the decision in JavaScript, for onnxruntime-node

weights.npz and runtime.py stand beside them, so that a Python router and `retroute bundle` read the same folder.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ingest.errors import UsageError
from optimizer import runtime
from optimizer.bundle import SELF_TEST, copy_policy, manifest_for, read_policy, write_files
from optimizer.export.onnx_graph import to_onnx
from optimizer.runtime import Model

_LONG = "Aİı ﬁ ñ" * 1200
CONTEXTS: tuple[Mapping[str, Any], ...] = (
    *SELF_TEST,
    {"messages": ""},
    {"messages": []},
    {"messages": [{"role": "user", "content": "İstanbul'da IRMAK ılık mı? DİYARBAKIR"}]},
    {"messages": [{"role": "user", "content": "東京の天気は？\n1. はい\n2) いいえ\n- 「多分」"}]},
    {"messages": [{"role": "user", "content": "👩‍👩‍👧‍👦 🏳️‍🌈 flags? 🇹🇷🇯🇵 = 2 * 3 % [x] {y} $z"}]},
    {"messages": [{"role": "user", "content": "e\u0301cole \u1e9b\u0323 A\u030a ΟΔΥΣΣΕΥΣ ẞ ŉ ǰ \ufb03"}]},
    {"messages": [{"role": "user", "content": _LONG + "🙂" * 300}]},
    {"messages": [{"role": "human", "content": "a)\tyes b. no\r\n(c) maybe\r\n * item\n\t3) other\u2028- none"}]},
    {
        "messages": [
            {"role": "developer", "content": "Answer in JSON."},
            {"role": "user", "parts": [{"type": "text", "content": "Look:"}, {"type": "image", "url": "x"}, "and?"]},
            {"role": "model", "content": "```python\nprint(1)\n```"},
            {"role": "tool", "content": None},
            {"role": "user", "content": "Write SQL: select count(*) from rows where a = 10.5\n```sql\n```"},
            {"role": 7, "content": 8},
        ],
        "tools": 3,
        "response_format": {"type": "json_schema"},
        "history": [{}, {}],
    },
    {"messages": [{"role": "user", "content": " ".join(f"word{n % 300}" for n in range(700))}], "tools": {"a": 1}},
)
"""What golden vectors are made of: other scripts, combining marks, lengths beyond every limit, odd messages."""


def export(policy_folder: Path, out: Path, service: str) -> list[str]:
    """Write the bundle for `service` into `out`; returns notes for the user.

    UsageError naming the file if the policy lacks one or it was changed, if it was trained for another service, or if
    it is an orchestrator or sticky; WorkError without the package onnx.
    """
    manifest = manifest_for(policy_folder, service)
    model, _ = read_policy(policy_folder)
    if model.steps:
        raise UsageError(
            f"the policy of {service} chooses which agent acts next: its probabilities depend on the whole episode",
            hint="Export it for the app that runs the agents: --target agents.",
        )
    if manifest.get("sticky"):
        raise UsageError(
            f"the policy of {service} keeps a session's action, which the JavaScript reference cannot do",
            hint="Export it with --target litellm, or train without sticky = true.",
        )
    if manifest.get("sticky"):
        raise UsageError(
            f"the policy of {service} keeps a session's action by a draw of its own, which a graph of features cannot",
            hint="Export it with --target litellm, or without sticky in retroute.toml.",
        )
    members = {
        "policy.onnx": to_onnx(model, manifest["incumbent"]),
        "golden.json": _json({"spec": runtime.SPEC, "actions": list(model.actions), "cases": _golden(model)}),
    }
    write_files(out, {"policy_router.mjs": javascript().encode()})
    copy_policy(policy_folder, manifest, out / "policy", members)
    return _left_out(manifest)


def _golden(model: Model) -> list[dict[str, Any]]:
    """Each context with all actions; of every second one, all but the best as well, where there is another."""
    cases = []
    for number, context in enumerate(CONTEXTS):
        features = runtime.featurise(context)
        able = model.able(features[None, :])[0]
        if not able.any():
            continue
        everything = np.ones(len(model.actions), dtype=np.bool_)
        masks = [everything]
        if number % 2 and able.sum() > 1:
            best = int(model.probabilities(features[None, :], able[None, :])[0].argmax())
            masks.append(np.arange(len(model.actions)) != best)
        for allowed in masks:
            row = model.probabilities(features[None, :], (allowed & able)[None, :])[0]
            cases.append(
                {
                    "context": context,
                    "allowed": [name for name, may in zip(model.actions, allowed, strict=True) if may],
                    "features": features.tolist(),
                    "features_hash": runtime.features_hash(features),
                    "probabilities": row.tolist(),
                }
            )
    return cases


def javascript() -> str:
    """The reference with the feature rules of this release's runtime in it."""
    rules = {
        "schema": runtime.SCHEMA,
        "spec": runtime.SPEC,
        "spec_sha256": runtime.SPEC_SHA256,
        "hashed": runtime.HASHED,
        "code_points": runtime.CODE_POINTS,
        "tokens": runtime.TOKENS,
        "keywords": dict(runtime.KEYWORDS),
        "roles": runtime._ROLES,
        "math_symbols": runtime._MATH_SYMBOLS.decode(),
        "brackets": runtime._BRACKETS.decode(),
    }
    text = Path(__file__).with_name("policy_router.mjs").read_text(encoding="utf-8")
    return text.replace("RULES_OF_THE_RUNTIME", json.dumps(rules))


def _left_out(manifest: Mapping[str, Any]) -> list[str]:
    """What the graph does not do."""
    canary: Mapping[str, float] = manifest["canary"]
    notes: Sequence[tuple[bool, str]] = (
        (
            canary["percent"] < 100,
            f"the canary of {canary['percent']:g} % is not in the graph: route that share of the sessions by it",
        ),
        (
            bool(manifest.get("not_before") or manifest.get("expires_at")),
            "the manifest's validity is not in the graph: check it before you ask",
        ),
    )
    return [note for holds, note in notes if holds]


def _json(value: object) -> bytes:
    return (json.dumps(value, ensure_ascii=True, allow_nan=False) + "\n").encode()
