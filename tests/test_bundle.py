"""Policy folders: the same bytes for the same policy, and a refusal with its reason for everything tampered with."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ingest.errors import UsageError
from optimizer import runtime
from optimizer.bundle import read_policy, write_policy
from optimizer.runtime import DIM, Model, PolicyError, Router

NAMES = ("cheap", "mid", "strong")


def policy(kind: str = "linear", **changes: Any) -> Model:
    random = np.random.default_rng(5)
    standard: dict[str, Any] = {"mean": random.normal(size=DIM), "scale": random.uniform(0.5, 2.0, DIM)}
    arrays: dict[str, dict[str, Any]] = {
        "constant": {"values": random.normal(size=3)},
        "linear": standard | {"weights": random.normal(size=(DIM, 3)), "bias": random.normal(size=3)},
        "knn": standard
        | {"points": random.normal(size=(30, DIM)), "targets": random.normal(size=(30, 3)), "k": np.array(5)},
    }
    return Model(kind, NAMES, arrays[kind] | changes)  # type: ignore[arg-type]


def write(folder: Path, model: Model | None = None, **settings: Any) -> Path:
    defaults: dict[str, Any] = {
        "policy_id": "support",
        "version": "v1",
        "revision": 1,
        "virtual_model": "auto",
        "incumbent": "mid",
        "evaluation": {"estimator": "dr", "value": None},
        "created_at": "2026-11-30T00:00:00+00:00",
    }
    write_policy(folder, model or policy(), **(defaults | settings))
    return folder


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


def test_a_table_of_draws_is_carried_and_drawn_from(tmp_path: Path) -> None:
    draws = np.array([[0.5, 0.3, 0.2], [0.1, 0.8, 0.1], [0.0, 0.1, 0.9]])
    model, manifest = read_policy(write(tmp_path, policy("constant", values=np.array([0.0, 0.0, 1.0]), draws=draws)))
    assert manifest["exploration"]["kind"] == "table"
    assert manifest["exploration"]["min_propensity"] == 0.0
    assert model.arrays["draws"] == pytest.approx(draws)
    decision = Router.load(tmp_path, draw=lambda: 0.05).decide({"messages": []})
    assert (decision.action, decision.propensity) == ("mid", pytest.approx(0.1))
    assert decision.probabilities == pytest.approx((0.0, 0.1, 0.9))


@pytest.mark.parametrize("kind", ["constant", "linear", "knn"])
def test_what_is_written_is_read_back(kind: str, tmp_path: Path) -> None:
    original = policy(kind)
    model, manifest = read_policy(write(tmp_path, original))
    assert (model.kind, model.actions, model.epsilon) == (original.kind, original.actions, original.epsilon)
    assert model.arrays.keys() == original.arrays.keys()
    for name, array in original.arrays.items():
        assert np.array_equal(model.arrays[name], array)
        assert model.arrays[name].dtype == array.dtype
    assert manifest["evaluation"] == {"estimator": "dr", "value": None}
    assert manifest["incumbent"] == "mid"


def test_the_same_policy_gives_the_same_bytes(tmp_path: Path) -> None:
    assert contents(write(tmp_path / "a")) == contents(write(tmp_path / "b"))


def test_a_policy_is_three_files_and_the_runtime_is_a_byte_copy(tmp_path: Path) -> None:
    files = contents(write(tmp_path))
    assert list(files) == ["manifest.json", "runtime.py", "weights.npz"]
    assert files["runtime.py"] == Path(runtime.__file__).read_bytes()


def test_a_renewed_policy_replaces_the_old_one_and_leaves_the_kill_switch(tmp_path: Path) -> None:
    write(tmp_path)
    (tmp_path / "KILL").touch()
    write(tmp_path, policy("constant"), version="v2", revision=2)
    router = Router.load(tmp_path)
    assert (router.version, router.model.kind) == ("v2", "constant")
    assert (tmp_path / "KILL").exists()


def test_an_incumbent_that_is_no_action_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="incumbent"):
        write(tmp_path, incumbent="other")


def edit(folder: Path, change: Callable[[dict[str, Any]], None]) -> None:
    path = folder / "manifest.json"
    manifest = json.loads(path.read_text(encoding="utf-8"))
    change(manifest)
    path.write_text(json.dumps(manifest), encoding="utf-8")


def flip(folder: Path) -> None:
    data = bytearray((folder / "weights.npz").read_bytes())
    data[len(data) // 2] ^= 1
    (folder / "weights.npz").write_bytes(data)


def replace_weights(folder: Path, arrays: Mapping[str, Any], allow_pickle: bool = False) -> None:
    """Weights that the manifest vouches for: what a mistaken or hostile author could publish."""
    import hashlib

    buffer = io.BytesIO()
    np.savez(buffer, allow_pickle=allow_pickle, **arrays)
    (folder / "weights.npz").write_bytes(buffer.getvalue())
    digest = "sha256:" + hashlib.sha256(buffer.getvalue()).hexdigest()
    edit(folder, lambda m: m["files"].update({"weights.npz": digest}))


def link(folder: Path) -> None:
    (folder / "weights.npz").rename(folder.parent / "elsewhere.npz")
    (folder / "weights.npz").symlink_to(folder.parent / "elsewhere.npz")


BAD: dict[str, tuple[Callable[[Path], None], str]] = {
    "no manifest": (lambda f: (f / "manifest.json").unlink(), "manifest.json is missing"),
    "no weights": (lambda f: (f / "weights.npz").unlink(), "weights.npz is missing"),
    "no runtime": (lambda f: (f / "runtime.py").unlink(), "runtime.py is missing"),
    "tampered weights": (flip, r"weights.npz is not the file .* \(sha256 differs\)"),
    "other runtime": (lambda f: (f / "runtime.py").write_text("pass"), "runtime.py is not the file"),
    "linked weights": (link, "weights.npz is missing or not a plain file"),
    "not json": (lambda f: (f / "manifest.json").write_text("{"), "JSONDecodeError"),
    "other schema": (lambda f: edit(f, lambda m: m.update(schema="policy-bundle/9")), "not of schema"),
    "other features": (lambda f: edit(f, lambda m: m["features"].update(spec="old")), "feature rules old"),
    "path out of the folder": (
        lambda f: edit(f, lambda m: m["files"].update({"../x": "sha256:0"})),
        "not a file name inside",
    ),
    "weights not named": (lambda f: edit(f, lambda m: m["files"].pop("weights.npz")), "does not name weights.npz"),
    "incumbent no action": (lambda f: edit(f, lambda m: m.update(incumbent="x")), "incumbent x is not among"),
    "actions of another model": (lambda f: edit(f, lambda m: m.update(actions=["mid", "b"])), "must have shape"),
    "wrong epsilon": (lambda f: edit(f, lambda m: m["exploration"].update(epsilon=0.5)), "self-test 1: probabilities"),
    "wrong features": (
        lambda f: edit(f, lambda m: m["selftest"][0].update(features_hash="0" * 16)),
        "self-test 1: features differ",
    ),
    "canary above all": (lambda f: edit(f, lambda m: m["canary"].update(percent=101)), "between 0 and 100"),
    "date without offset": (lambda f: edit(f, lambda m: m.update(expires_at="2026-01-01")), "no offset"),
    "key missing": (lambda f: edit(f, lambda m: m.pop("canary")), "KeyError: 'canary'"),
    "not finite": (lambda f: replace_weights(f, dict(policy().arrays) | {"bias": np.full(3, np.nan)}), "not finite"),
    "wrong width": (
        lambda f: replace_weights(
            f, {"mean": np.zeros(5), "scale": np.ones(5), "weights": np.zeros((5, 3)), "bias": np.zeros(3)}
        ),
        r"mean must have shape \(128,\)",
    ),
    "pickle": (
        lambda f: replace_weights(f, dict(policy().arrays) | {"bias": np.array([{}, 1, 2], dtype=object)}, True),
        "allow_pickle=False",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_policy_is_refused_with_its_reason(name: str, tmp_path: Path) -> None:
    folder = write(tmp_path / "policy")
    breaks, reason = BAD[name]
    breaks(folder)
    with pytest.raises(PolicyError, match=reason):
        Router.load(folder)
    with pytest.raises(UsageError, match=reason) as caught:
        read_policy(folder)
    assert str(folder) in caught.value.message
    assert caught.value.hint


def test_weights_that_unpack_to_too_much_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path)
    (tmp_path / "weights.npz").unlink()
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **policy().arrays, padding=np.zeros(300_000))
    import hashlib

    (tmp_path / "weights.npz").write_bytes(buffer.getvalue())
    digest = "sha256:" + hashlib.sha256(buffer.getvalue()).hexdigest()
    edit(tmp_path, lambda m: m["files"].update({"weights.npz": digest}))
    monkeypatch.setattr(runtime, "FILE_BYTES", 1 << 20)
    with pytest.raises(PolicyError, match="unpacks to more than 1 MiB"):
        Router.load(tmp_path)


def test_the_vendored_runtime_imports_numpy_and_the_standard_library_only(tmp_path: Path) -> None:
    write(tmp_path / "policy")
    script = """
import importlib.util, sys
import numpy
before = set(sys.modules)
spec = importlib.util.spec_from_file_location("vendored", "policy/runtime.py")
module = importlib.util.module_from_spec(spec)
sys.modules["vendored"] = module
spec.loader.exec_module(module)
decision = module.Router.load("policy").decide({"messages": "Hello"})
module.attributes(decision)
top = {name.partition(".")[0] for name in set(sys.modules) - before}
print(sorted(name for name in top if name not in sys.stdlib_module_names and name not in ("numpy", "vendored")))
"""
    result = subprocess.run(
        [sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, check=True, timeout=60
    )
    assert result.stdout.strip() == "[]"


def test_a_decision_takes_well_under_a_millisecond(tmp_path: Path) -> None:
    import time

    router = Router.load(write(tmp_path))
    context = {"messages": [{"role": "user", "content": "Explain why the sky is blue. " * 20}]}
    times = []
    for _ in range(200):
        start = time.perf_counter()
        router.decide(context)
        times.append(time.perf_counter() - start)
    assert sorted(times)[100] < 0.002  # 0.15 ms on one quiet core
