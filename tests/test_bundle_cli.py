"""`retroute bundle`: what a bundle is and what changed in words, every failure in a line of its own, and the schema."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest
from conftest import manifest_schema
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from optimizer import cli
from optimizer.bundle import copy_policy, manifest_for, write_policy
from optimizer.runtime import STOP, Model

NAMES = ("cheap", "mid", "strong")
ESTIMATE = {"value": 1.5, "low": 1.0, "high": 2.0, "kind": "asymptotic", "estimator": "blend", "reason": None}
JUDGED = {
    "verdict": "deploy",
    "run_id": "r1",
    "limits": {"confidence": 0.95},
    "support": {"certify_decisions": 400, "effective": 210.5},
    "savings_usd_per_1k": {**ESTIMATE, "episodes": 400, "effective": 210.5},
    "quality_change": {**ESTIMATE, "value": 0.0, "low": None, "high": 0.01},
    "latency_change_s": dict.fromkeys(ESTIMATE) | {"reason": "only 3 of 400 decisions have a known duration"},
}
RUN = {
    "snapshot": 7,
    "decisions": 2000,
    "from_ns": 1_764_500_000_000_000_000,
    "to_ns": 1_764_600_000_000_000_000,
    "versions": {"python": "3.11.9", "retroute": "0.1.0"},
}


def write(folder: Path, values: tuple[float, ...] = (1.0, 0.5, 0.0), **settings: Any) -> Path:
    names = settings.pop("actions", NAMES)
    model = Model("constant", names, {"values": np.array(values), **settings.pop("arrays", {})}, 0.3)
    defaults: dict[str, Any] = {
        "policy_id": "support",
        "version": "v1",
        "revision": 1,
        "virtual_model": "support",
        "incumbent": names[0],
        "evaluation": {},
        "created_at": "2026-11-30T00:00:00+00:00",
    }
    write_policy(folder, model, **(defaults | settings))
    return folder


def exported(root: Path, run: str = "r1", **settings: Any) -> Path:
    """A bundle of a policy that was judged in a run."""
    folder = root / "runs" / run
    policy = write(folder / "policy" / "support", **settings)
    (folder / "manifest.json").write_text(json.dumps(RUN))
    (folder / "verdicts.json").write_text(json.dumps({"services": {"support": JUDGED}}))
    (folder / "decisions.parquet").write_bytes(b"PAR1")
    copy_policy(policy, manifest_for(policy, "support"), root / f"bundle-{run}" / "policy")
    return root / f"bundle-{run}"


def test_an_exported_manifest_says_how_it_was_judged_and_on_what(tmp_path: Path) -> None:
    manifest = json.loads((exported(tmp_path) / "policy" / "manifest.json").read_text())
    assert manifest["evaluation"]["verdict"] == "deploy"
    assert manifest["evaluation"]["savings_usd_per_1k"] == ESTIMATE
    assert manifest["evaluation"]["effective_decisions"] == 210.5
    assert manifest["data"] == {
        "snapshot": 7,
        "decisions": 2000,
        "decisions_sha256": hashlib.sha256(b"PAR1").hexdigest(),
        "from": "2025-11-30T10:53:20+00:00",
        "to": "2025-12-01T14:40:00+00:00",
    }
    assert manifest["packages"] == RUN["versions"]


def test_show_says_in_words_what_it_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    able = np.array([[4000, 0, 1, 1], [0, 1, 1, 1], [0, 1, 1, 1]])
    folder = exported(tmp_path, canary_percent=20.0, expires_at="2027-01-01T00:00:00+00:00", arrays={"able": able})
    assert cli.run(["bundle", "show", str(folder)]) == 0
    said = capsys.readouterr().out
    for part in (
        "support version v1, revision 1",
        "chooses among cheap, mid, strong; in doubt cheap",
        "until 2027-01-01",
        "explores 30.0% of the decisions, least probability 0.1000",
        "canary: 20 % of the sessions",
        "cheap: at most 4,000 characters of conversation",
        "without tools: cheap",
        "verdict deploy in run r1, on 400 decisions",
        "saves: $1.5 per 1,000 decisions ($1 to $2, asymptotic)",
        "quality: +0.0000 (? to +0.0100, asymptotic)",
        "latency: not known (only 3 of 400 decisions have a known duration)",
        "confidence: 0.95",
        "effective decisions: 210.5",
        "data: snapshot 7, 2000 decisions",
        "python 3.11.9",
        "file weights.npz: ",
        "not signed",
    ):
        assert part in said
    assert cli.run(["bundle", "show", str(folder / "policy"), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["actions"] == list(NAMES)
    assert found["signed"] is False
    assert "selftest" not in found


def test_show_tells_an_orchestrators_script_and_budgets(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    actions, script, budgets = ("plan", "check", STOP), ["plan", "check"], {"cost_usd": 0.5}
    write(tmp_path / "policy", actions=actions, script=script, budgets=budgets)
    assert cli.run(["bundle", "show", str(tmp_path)]) == 0
    said = capsys.readouterr().out
    assert "script of today: plan > check" in said
    assert "budgets of an episode: cost_usd 0.5; at most 20 steps; 3 equal steps running are a loop" in said
    assert "explores one step of an episode" in said
    assert "sticky" not in said


def test_show_says_that_a_policy_is_sticky(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path, sticky=True)
    assert cli.run(["bundle", "show", str(tmp_path)]) == 0
    assert "sticky: a session keeps its action" in capsys.readouterr().out


def test_diff_tells_actions_fields_and_shares(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = exported(tmp_path)
    after = exported(tmp_path, "r2", actions=("cheap", "mid", "huge"), values=(0.0, 1.0, 0.5), revision=2, version="v2")
    assert cli.run(["bundle", "diff", str(before), str(after)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "action gone: strong" in lines
    assert "action new: huge" in lines
    assert "revision: 1 -> 2" in lines
    assert "file weights.npz differs" in lines
    # 0.7 + 0.1 on the best action, 0.1 on each of the others
    shares = "cheap 80.0 % -> 10.0 %, mid 10.0 % -> 80.0 %, strong 10.0 % -> 0.0 %, huge 0.0 % -> 10.0 %"
    assert f'"What is the capital of France?": {shares}' in lines
    assert cli.run(["bundle", "diff", str(before), str(after), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["contexts"][0]["after"] == pytest.approx({"cheap": 0.1, "mid": 0.8, "strong": 0.0, "huge": 0.1})
    assert cli.run(["bundle", "diff", str(before), str(before)]) == 0
    assert capsys.readouterr().out == "the same policy\n"


def edit(folder: Path, change: Callable[[dict[str, Any]], None]) -> None:
    path = folder / "policy" / "manifest.json"
    manifest = json.loads(path.read_text())
    change(manifest)
    path.write_text(json.dumps(manifest))


def test_verify_takes_what_a_router_takes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = exported(tmp_path)
    assert cli.run(["bundle", "verify", str(folder)]) == 0
    assert capsys.readouterr().out == f"{folder}: a router takes it\n"
    assert cli.run(["bundle", "verify", str(folder), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"folder": str(folder), "ok": True, "failures": []}


@pytest.mark.parametrize(
    ("breaks", "lines"),
    [
        (
            lambda f: [(f / "policy" / name).write_bytes(b"x") for name in ("weights.npz", "runtime.py")],
            ["runtime.py is not the file", "weights.npz is not the file"],
        ),
        (lambda f: (f / "policy" / "weights.npz").unlink(), ["weights.npz is missing"]),
        (lambda f: edit(f, lambda m: m.update(schema="policy-bundle/9")), ["not of schema policy-bundle/1"]),
        (lambda f: edit(f, lambda m: m["selftest"][0].update(features_hash="0" * 16)), ["self-test 1: features"]),
        (lambda f: (f / "policy" / "manifest.json").write_text("{"), ["JSONDecodeError"]),
        (
            lambda f: [
                (f / "policy" / "KILL").touch(),
                edit(f, lambda m: m.update(enabled=False, expires_at="2020-01-01T00:00:00+00:00")),
            ],
            ["the file KILL is there", "not enabled", "expired at 2020-01-01T00:00:00+00:00"],
        ),
        (lambda f: edit(f, lambda m: m.update(not_before="2200-01-01T00:00:00+00:00")), ["not valid before 2200"]),
    ],
)
def test_verify_ends_with_1_and_a_line_for_each_failure(
    breaks, lines: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = exported(tmp_path)
    breaks(folder)
    assert cli.run(["bundle", "verify", str(folder)]) == 1
    printed = capsys.readouterr()
    assert len(printed.out.splitlines()) == len(lines)
    for line, expected in zip(printed.out.splitlines(), lines, strict=True):
        assert expected in line
    assert "failed" in printed.err
    assert cli.run(["bundle", "verify", str(folder), "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["failures"] == printed.out.splitlines()


def test_sign_then_verify_with_the_key_of_another_fails(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = exported(tmp_path)
    for name in ("mine", "other"):
        key = Ed25519PrivateKey.generate()
        encoding = serialization.Encoding.PEM
        private = key.private_bytes(encoding, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
        public = key.public_key().public_bytes(encoding, serialization.PublicFormat.SubjectPublicKeyInfo)
        (tmp_path / f"{name}.pem").write_bytes(private)
        (tmp_path / f"{name}.pub").write_bytes(public)
    assert cli.run(["bundle", "sign", str(folder), "--key", str(tmp_path / "mine.pem")]) == 0
    assert capsys.readouterr().out == f"{folder / 'policy' / 'manifest.sig'}\n"
    assert cli.run(["bundle", "verify", str(folder), "--key", str(tmp_path / "mine.pub")]) == 0
    assert cli.run(["bundle", "verify", str(folder), "--key", str(tmp_path / "other.pub")]) == 1
    assert "not a signature of this manifest.json" in capsys.readouterr().out
    shutil.copy(tmp_path / "other.pub", folder / "policy_key.pem")
    assert cli.run(["bundle", "verify", str(folder)]) == 1


def test_a_broken_policy_is_not_signed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = exported(tmp_path)
    (folder / "policy" / "weights.npz").write_bytes(b"x")
    assert cli.run(["bundle", "sign", str(folder), "--key", str(tmp_path / "none.pem")]) == 2
    assert "weights.npz is not the file" in capsys.readouterr().err


def test_a_folder_without_a_policy_is_said_to_be_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for command in (["show"], ["verify"], ["diff", str(tmp_path)]):
        assert cli.run(["bundle", *command, str(tmp_path)]) == 2
        assert "holds no policy" in capsys.readouterr().err


@pytest.mark.parametrize(
    "change",
    [
        lambda m: m.update(schema="policy-bundle/2"),
        lambda m: m.update(surprise=1),
        lambda m: m.pop("canary"),
        lambda m: m["canary"].update(percent=101),
        lambda m: m.update(revision=1.5),
        lambda m: m["files"].update({"../x": "sha256:" + "0" * 64}),
        lambda m: m["files"].update({"x": "md5:0"}),
        lambda m: m.update(script=["a"]),
        lambda m: m.update(evaluation={"savings_usd_per_1k": {"value": "much"}}),
    ],
)
def test_the_schema_refuses_what_is_no_manifest(change, tmp_path: Path) -> None:
    manifest = json.loads((write(tmp_path) / "manifest.json").read_text())
    manifest_schema().validate(manifest)
    change(manifest)
    with pytest.raises(jsonschema.ValidationError):
        manifest_schema().validate(manifest)


def test_the_schema_is_one() -> None:
    jsonschema.Draft202012Validator.check_schema(manifest_schema().schema)
