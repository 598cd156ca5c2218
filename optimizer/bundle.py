"""The policy folder: manifest.json, weights.npz and a byte copy of the runtime.

The same inputs give the same bytes. A folder is a policy from the moment its manifest is there: it is written last.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ingest.errors import UsageError
from optimizer import runtime
from optimizer.bundle_evidence import evidence_of
from optimizer.runtime import Model, PolicyError, Router

SELF_TEST: tuple[Mapping[str, object], ...] = (
    {"messages": [{"role": "user", "content": "What is the capital of France?"}]},
    {
        "messages": [
            {"role": "system", "content": "You are a careful analyst."},
            {"role": "user", "content": [{"type": "text", "text": "Compute 17 * 23, then explain each step as JSON."}]},
        ],
        "tools": [{"type": "function"}],
        "response_format": {"type": "json_object"},
    },
    {"messages": [{"role": "user", "content": "Écris un poème — 詩を書いて 🙂\n- A. yes\n- B. no"}], "history": [{}]},
)
"""Contexts that are tested at every load unless others are given: they show that the features still come out alike."""


def write_policy(
    folder: Path,
    model: Model,
    *,
    policy_id: str,
    version: str,
    revision: int,
    virtual_model: str,
    incumbent: str,
    evaluation: Mapping[str, object],
    created_at: str,
    canary_percent: float = 100.0,
    explore_percent: float = 0.0,
    not_before: str | None = None,
    expires_at: str | None = None,
    selftest_contexts: Sequence[Mapping[str, object]] = (),
    script: Sequence[str] = (),
    budgets: Mapping[str, float] | None = None,
    max_steps: int = 20,
    loop: int = 3,
    sticky: bool = False,
) -> None:
    """Write `model` as the policy in `folder`, replacing the one that may be there; a KILL file stays.

    Times are ISO 8601 with offset. `selftest_contexts` end up in the manifest: give none that hold users' text.
    An orchestrator needs the script that it falls back to, and may have budgets and other limits: see
    `runtime.Course`. `sticky`: a session keeps its action (never of an orchestrator). ValueError if the incumbent is
    not an action, if the script or a limit is none, or a number in `evaluation` is not finite.
    """
    course = _course(model, script, budgets, max_steps, loop)
    if model.steps and explore_percent:
        raise ValueError("an orchestrator explores one step of an episode (epsilon), so explore_percent is 0")
    if model.steps and sticky:
        raise ValueError("an orchestrator decides at every step, so it cannot be sticky")
    if incumbent not in model.actions:
        raise ValueError(f"the incumbent {incumbent} is not among the actions {list(model.actions)}")
    members = {
        "weights.npz": _npz(model.arrays),
        "runtime.py": Path(runtime.__file__).read_bytes(),
    }
    manifest = {
        "schema": runtime.SCHEMA,
        "policy_id": policy_id,
        "version": version,
        "revision": revision,
        "created_at": created_at,
        "not_before": not_before,
        "expires_at": expires_at,
        "virtual_model": virtual_model,
        "incumbent": incumbent,
        "actions": list(model.actions),
        "model": model.kind,
        "features": runtime.features_spec(model.actions, sticky),
        "exploration": _exploration(model),
        "constraints": _constraints(model),
        # The salt outlives versions: a session keeps its arm when the policy is renewed.
        "canary": {
            "percent": canary_percent,
            "explore_percent": explore_percent,
            "salt": policy_id,
            "unit": "session",
        },
        "enabled": True,
        "sticky": sticky,
        "selftest": [_self_test(model, context) for context in selftest_contexts or _contexts(model)],
        "files": {name: "sha256:" + hashlib.sha256(data).hexdigest() for name, data in members.items()},
        "evaluation": dict(evaluation),
        **course,
    }
    write_files(folder, members | {"manifest.json": _text(manifest)})


def read_policy(folder: Path) -> tuple[Model, Mapping[str, Any]]:
    """The checked model and manifest of a policy folder. UsageError naming the file that is missing or changed."""
    try:
        router = Router.load(folder, signed=False)  # a run's own policies are signed once they are exported
        return router.model, runtime.read_manifest(folder)
    except PolicyError as error:
        raise UsageError(
            f"cannot use the policy in {error}", hint="Train again with `retroute nightly`, or restore the file."
        ) from error


def manifest_for(folder: Path, service: str) -> Mapping[str, Any]:
    """The checked manifest of a policy folder, with how it was judged. UsageError as `read_policy`, or if it is another
    service's."""
    _, manifest = read_policy(folder)
    if manifest["virtual_model"] != service:
        raise UsageError(
            f"the policy in {folder} answers to the model name {manifest['virtual_model']}, not {service}",
            hint=f"Export it with --service {manifest['virtual_model']}.",
        )
    return {**manifest, **evidence_of(folder, service)}


def copy_policy(
    folder: Path, manifest: Mapping[str, Any], to: Path, more: Mapping[str, bytes] = MappingProxyType({})
) -> None:
    """Copy the files that the manifest names, add `more`, and write the manifest of them all last."""
    files = {name: (folder / name).read_bytes() for name in manifest["files"]} | dict(more)
    hashes = {name: "sha256:" + hashlib.sha256(data).hexdigest() for name, data in files.items()}
    write_files(to, files | {"manifest.json": _text({**manifest, "files": hashes})})


def write_files(folder: Path, files: Mapping[str, bytes]) -> None:
    """Write each file beside its place and rename it there, in the order given."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, data in files.items():
        beside = folder / f".{name}.{os.getpid()}.tmp"
        with beside.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(folder / name)


def _text(manifest: Mapping[str, Any]) -> bytes:
    """The bytes of manifest.json: equal manifests, equal bytes."""
    return (json.dumps(manifest, indent=2, sort_keys=True, allow_nan=False, ensure_ascii=False) + "\n").encode()


def _course(
    model: Model, script: Sequence[str], budgets: Mapping[str, float] | None, max_steps: int, loop: int
) -> dict[str, object]:
    """What the manifest says of an orchestrator's episodes; nothing for other policies."""
    if not model.steps:
        if script or budgets:
            raise ValueError("only an orchestrator, whose last action is STOP, has a script and budgets")
        return {}
    course = runtime.Course(model.actions, tuple(script), dict(budgets or {}), max_steps, loop)
    return {
        "script": list(course.script),
        "budgets": dict(course.budgets),
        "max_steps": course.max_steps,
        "loop": course.loop,
    }


def _contexts(model: Model) -> Sequence[Mapping[str, object]]:
    """The tested contexts; those of an orchestrator are of later steps too."""
    if not model.steps:
        return SELF_TEST
    first = {"action": model.actions[0], "status": "ok", "cost_usd": 0.002, "tokens": 900, "output": "3 rows\n"}
    failed = {"action": model.actions[-2], "status": "error", "seconds": 1.5, "output": "Écris 🙂", "signal": 0.25}
    return [
        *SELF_TEST[:2],
        {**SELF_TEST[0], "history": [first]},
        {**SELF_TEST[2], "history": [first, first, failed, failed]},
    ]


def _constraints(model: Model) -> dict[str, object]:
    """What the actions cannot do, for people and other tools; a router reads it from the weights."""
    if "able" not in model.arrays:
        return {}
    table = model.arrays["able"]
    most = {name: int(limit) for name, limit in zip(model.actions, table[:, 0], strict=True) if limit > 0}
    cannot = {
        need: [name for name, can in zip(model.actions, column, strict=True) if not can]
        for need, column in zip(runtime.NEEDS, table[:, 1:].T, strict=True)
    }
    return {"max_conversation_characters": most, "cannot": {need: names for need, names in cannot.items() if names}}


def _exploration(model: Model) -> dict[str, object]:
    draws = model.arrays.get("draws")
    least = model.epsilon / len(model.actions) if draws is None else float(draws.min())
    kind = "epsilon-greedy" if draws is None else "table"
    if model.steps:  # drawn evenly among the others until a step has been; then nothing is
        return {"kind": "one-step", "epsilon": model.epsilon, "min_propensity": 0.0}
    if "share" in model.arrays:
        share = float(model.arrays["share"])
        least = share * least + (1 - share) * float(model.arrays["today"].min())
        return {"kind": kind, "epsilon": model.epsilon, "min_propensity": least, "share": share}
    return {"kind": kind, "epsilon": model.epsilon, "min_propensity": least}


def _self_test(model: Model, context: Mapping[str, object]) -> dict[str, object]:
    features = runtime.decision_features(context, model.actions)
    row = model.probabilities(features[None, :], np.ones((1, len(model.actions)), dtype=bool))[0]
    return {"context": context, "features_hash": runtime.features_hash(features), "probabilities": row.tolist()}


def _npz(arrays: Mapping[str, NDArray[Any]]) -> bytes:
    """An npz archive without clock, compression or pickle: equal arrays, equal bytes."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
        for name in sorted(arrays):
            member = io.BytesIO()
            np.lib.format.write_array(member, np.asarray(arrays[name], order="C"), version=(1, 0), allow_pickle=False)
            archive.writestr(zipfile.ZipInfo(f"{name}.npy", date_time=(1980, 1, 1, 0, 0, 0)), member.getvalue())
    return buffer.getvalue()
