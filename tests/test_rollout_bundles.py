"""What a rollout writes: revisions that routers take, whole or not at all, signed where they must be."""

from __future__ import annotations

import json
import random
import threading
from pathlib import Path

import polars as pl
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from rollout_world import SERVICE, judged_run

from ingest.errors import UsageError, WorkError
from optimizer import bundle_words, cli, pipeline, rollout, runs
from optimizer.bundle_check import failures
from optimizer.config import Settings
from optimizer.rollout import bundles, reading, state
from optimizer.rollout.arms import SCHEMA
from optimizer.runtime import PolicyError, Router


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Nothing was decided yet."""
    monkeypatch.setattr(reading, "decisions", lambda *_: pl.DataFrame(schema=dict(SCHEMA)))
    (tmp_path / "home.json").write_text('{"format": 1}')
    judged_run(tmp_path, "r1")
    return tmp_path


@pytest.fixture
def key(home: Path) -> Path:
    """A private key; the bundle's routers ask for its signatures."""
    private = Ed25519PrivateKey.generate()
    form = serialization.PrivateFormat.PKCS8
    path = home / "private.pem"
    path.write_bytes(private.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption()))
    (home / "out").mkdir()
    public = private.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    (home / "out" / "policy_key.pem").write_bytes(public)
    return path


def start(home: Path, **more: object) -> rollout.Done:
    return rollout.start(home, SERVICE, by="ann", bundle=home / "out", **more)  # type: ignore[arg-type]


def manifest(home: Path) -> dict:
    return json.loads((home / "out" / "policy" / "manifest.json").read_text())


def test_a_stage_changes_the_canary_and_the_revision_and_nothing_else(home: Path) -> None:
    start(home)
    shadow = manifest(home)
    assert failures(home / "out" / "policy") == []
    assert (shadow["canary"]["percent"], shadow["revision"]) == (0.0, 2)
    assert shadow["evaluation"]["verdict"] == "deploy"
    for percent in (5.0, 20.0, 50.0, 100.0):
        rollout.advance(home, SERVICE, by="ann", force=True)
        said = manifest(home)
        assert (said["canary"].pop("percent"), said.pop("revision")) == (percent, rollout.last_revision(home, SERVICE))
        said |= {"revision": shadow["revision"], "canary": {**said["canary"], "percent": 0.0}}
        assert said == shadow
    assert failures(home / "out" / "policy") == []


def test_the_earlier_policy_serves_the_other_sessions(home: Path) -> None:
    """Its own exploration included: 20 % of sessions take large by the new policy, the others small by the old one, and
    each explores one decision in twenty, evenly."""
    judged_run(home, "r0", choice="small")
    judged_run(home, "r1", choice="large")
    start(home, run_id="r0", percent=100)
    done = start(home, run_id="r1", percent=20)
    assert done.rollout.control == "r0"
    told = bundle_words.in_words(bundle_words.about(home / "out" / "policy"))
    assert "the other sessions get version r0, that was in force before" in told
    router = Router.load(home / "out" / "policy", draw=random.Random(5).random)
    decisions = [router.decide({"metadata": {"session": f"s{place}"}}) for place in range(4_000)]
    large = 0.2 * 0.975 + 0.8 * 0.025
    for one in decisions:
        assert one.propensity == pytest.approx(large if one.action == "large" else 1 - large)
        assert one.shadow == ("" if one.arm == "treatment" else "large")
    # standard error sqrt(0.215 * 0.785 / 4000) = 0.0065; of the control arm alone 0.0028
    assert sum(one.action == "large" for one in decisions) / 4_000 == pytest.approx(large, abs=4 * 0.0065)
    control = [one.action == "large" for one in decisions if one.arm == "control"]
    assert sum(control) / len(control) == pytest.approx(0.025, abs=4 * 0.0028)
    assert router.decide({}, candidates=["large"]).action == "large"

    rollout.advance(home, SERVICE, by="ann", percent=100, force=True)
    assert Router.load(home / "out" / "policy").before is None
    assert not (home / "out" / "policy" / "before.npz").exists()
    rollout.rollback(home, SERVICE, by="ann")
    assert (Router.load(home / "out" / "policy").version, manifest(home).get("before")) == ("r0", None)


def test_the_earlier_policy_of_a_sticky_service_serves_sticky_sessions(home: Path) -> None:
    for run_id, choice in (("r0", "small"), ("r1", "large")):
        judged_run(home, run_id, choice=choice, sticky=True)
    start(home, run_id="r0", percent=100)
    start(home, run_id="r1", percent=20)
    router = Router.load(home / "out" / "policy")
    for place in range(300):
        first, again = (router.decide({"metadata": {"session": f"s{place}"}}) for _ in range(2))
        assert (first.action, first.arm, first.draw) == (again.action, again.arm, "session")
    judged_run(home, "r2", choice="large")  # no longer sticky: its features are others, and no router follows both
    rollout.rollback(home, SERVICE, by="ann")
    done = start(home, run_id="r2", percent=20)
    assert done.notes[-1].startswith("version r0 is kept to go back to; large, and not it, serves the other 80 %")
    assert (done.rollout.control, Router.load(home / "out" / "policy").before) == ("large", None)


def test_broken_weights_of_the_earlier_policy_are_refused(home: Path) -> None:
    judged_run(home, "r0", choice="large")
    start(home, run_id="r0", percent=100)
    start(home, run_id="r1", percent=20)
    (home / "out" / "policy" / "before.npz").write_bytes(b"other")
    with pytest.raises(PolicyError, match=r"before\.npz is not the file the manifest was written for"):
        Router.load(home / "out" / "policy")


def test_revisions_only_rise(home: Path) -> None:
    """Above that of the policy, that of the bundle in place, and that of the last rollout."""
    judged_run(home, "r2", revision=41)
    assert start(home, run_id="r2", percent=10).rollout.revision == 42
    assert rollout.rollback(home, SERVICE, by="ann").rollout.revision == 43
    assert start(home, run_id="r1").rollout.revision == 44


def test_the_newest_run_that_may_be_deployed_is_taken(home: Path) -> None:
    judged_run(home, "r2", verdict="keep")
    assert start(home).rollout.run_id == "r1"
    rollout.rollback(home, SERVICE, by="ann")
    with pytest.raises(WorkError, match="the verdict on assistant in run r2 is 'keep'"):
        start(home, run_id="r2")
    assert start(home, run_id="r2", unproven=True).rollout.verdict == "keep"


def test_a_rollout_under_way_is_not_replaced(home: Path) -> None:
    start(home, percent=10)
    with pytest.raises(UsageError, match="version r1 of assistant is being rolled out: a canary of 10 %"):
        start(home)
    with pytest.raises(UsageError, match="110 is no percent"):
        start(home, percent=110)


def test_unsigned_revisions_are_refused_before_anything_is_written(home: Path, key: Path) -> None:
    with pytest.raises(WorkError, match="take signed policies only") as told:
        start(home)
    assert "--key" in told.value.hint
    assert not (home / "out" / "policy").exists()
    assert state.read(home, SERVICE) is None
    start(home, key=key, percent=20)
    assert failures(home / "out" / "policy") == []
    other = home / "other.pem"
    other.write_bytes(
        Ed25519PrivateKey.generate().private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
    )
    rollout.rollback(home, SERVICE, by="ann", key=key)
    with pytest.raises(WorkError, match="is not a signature of this manifest"):
        start(home, key=other)
    assert failures(home / "out" / "policy") == [
        "the manifest says that it is not enabled: every request goes to the incumbent"
    ]


def test_a_bundle_that_was_signed_elsewhere_stays_signed(home: Path, key: Path) -> None:
    start(home, key=key)
    (home / "out" / "policy_key.pem").unlink()  # routers on other machines have it
    with pytest.raises(WorkError, match="take signed policies only"):
        rollout.advance(home, SERVICE, by="ann", force=True)


def test_going_back_without_the_key_stops_the_policy_at_once(home: Path, key: Path) -> None:
    judged_run(home, "r0", choice="large")
    start(home, run_id="r0", percent=100, key=key)
    start(home, run_id="r1", percent=20, key=key)
    before = manifest(home)
    done = rollout.rollback(home, SERVICE, by="watch", why="quality")
    assert (done.rollout.stage, done.rollout.killed, done.rollout.restored) == ("rolled_back", True, None)
    assert "sends every request to the incumbent" in done.notes[0]
    assert manifest(home) == before  # the signed one still loads, and decides nothing
    router = Router.load(home / "out" / "policy")
    assert (router.version, router.decide({}).action, router.decide({}).reason) == ("r1", "large", "kill_switch")
    done = rollout.rollback(home, SERVICE, by="ann", key=key)
    assert (done.rollout.killed, done.rollout.restored, done.rollout.revision) == (False, "r0", before["revision"] + 1)
    assert failures(home / "out" / "policy") == []
    assert Router.load(home / "out" / "policy").version == "r0"


def test_a_kill_file_of_the_users_stays_and_is_said(home: Path) -> None:
    bundles.kill(home / "out")
    assert "KILL is there" in start(home).notes[-1]
    assert "KILL is there" in rollout.rollback(home, SERVICE, by="ann").notes[-1]
    assert (home / "out" / "policy" / "KILL").exists()


def test_a_router_never_sees_half_a_bundle(home: Path) -> None:
    """While policies of different weights replace each other, each load gives one of them whole, or fails; then the
    router keeps what it has."""
    judged_run(home, "r0", choice="large")
    start(home, run_id="r0", percent=100)
    done, seen = threading.Event(), set()

    def read() -> None:
        while not done.is_set():
            try:
                router = Router.load(home / "out" / "policy")
            except PolicyError:
                continue
            seen.add((router.version, router.model.actions[int(router.model.arrays["values"].argmax())]))

    reader = threading.Thread(target=read)
    reader.start()
    for _ in range(6):
        start(home, run_id="r1", percent=100)
        start(home, run_id="r0", percent=100)
    done.set()
    reader.join()
    assert ("r0", "large") in seen
    assert seen <= {("r0", "large"), ("r1", "small")}


def test_what_cannot_be_used_is_refused_and_the_bundle_stays(home: Path) -> None:
    start(home, percent=10)
    before = manifest(home)
    kept = state.folder_of(home, SERVICE) / "r1" / "policy" / "weights.npz"
    kept.write_bytes(b"broken")
    with pytest.raises(WorkError, match="cannot be used"):
        rollout.rollback(home, SERVICE, by="ann")
    assert manifest(home) == before
    assert rollout.status(home, SERVICE).stage == "canary"


@pytest.mark.parametrize(("file", "target"), [("rules.json", "rules"), ("policy_router.mjs", "onnx")])
def test_an_export_whose_routers_read_no_stages_is_refused_and_stays(home: Path, file: str, target: str) -> None:
    (home / "out").mkdir()
    (home / "out" / file).write_text("as exported")
    with pytest.raises(UsageError, match=f"target '{target}'"):
        start(home)
    assert [found.name for found in (home / "out").iterdir()] == [file]
    assert state.read(home, SERVICE) is None
    (home / "out" / "policy_router.py").touch()  # beside a LiteLLM bundle
    assert start(home).rollout.stage == "shadow"


def test_a_night_leaves_the_bundle_to_the_rollout(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    judged_run(home, "r2")
    said = runs.read_json(home / "runs" / "r2" / "verdicts.json")
    for name in ("r1", "r2"):
        runs.write_json(home / "runs" / name / "manifest.json", {"calls": 1, "decisions": 1})
    monkeypatch.setattr(pipeline, "_train", lambda *_: "r2")
    monkeypatch.setattr(pipeline, "_evaluate", lambda *_: said)
    looked = []
    monkeypatch.setattr(rollout, "watch", lambda at, _settings: looked.append(at))
    rollout.start(home, SERVICE, by="ann", percent=20, run_id="r1")
    assert pipeline.nightly(home, Settings())["services"][SERVICE].get("bundle") is None
    policy = runs.bundle_folder(home, SERVICE) / "policy"
    assert (Router.load(policy).version, Router.load(policy).canary) == ("r1", 0.2)
    assert (runs.active(home), looked) == ({}, [home])
    rollout.rollback(home, SERVICE, by="ann")
    assert rollout.start(home, SERVICE, by="ann").rollout.run_id == "r2"


def test_an_export_into_the_bundle_of_a_rollout_is_refused(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    start(home, percent=20)
    export = ["export", "--home", str(home), "--target", "litellm", "--service", SERVICE, "--out"]
    assert cli.run([*export, str(home / "out")]) == 2
    assert "is the bundle of a rollout: version r1, a canary of 20 %" in capsys.readouterr().err
    assert manifest(home)["canary"]["percent"] == 20
    assert cli.run([*export, str(home / "other")]) == 0
