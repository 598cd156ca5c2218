"""`retroute export`: which policy is taken, which is refused, and what a damaged one says."""

from __future__ import annotations

import json

import numpy as np
import pytest

from ingest.home import open_home
from optimizer import cli
from optimizer.bundle import write_policy
from optimizer.runtime import Model

REASONS = [
    {"condition": "savings", "got": "$2", "needed": "above $0", "remedy": "", "holds": True},
    {"condition": "quality", "got": "lower bound -3 points", "needed": "above -1", "remedy": "", "holds": False},
]


@pytest.fixture
def home(tmp_path):
    return open_home(tmp_path / "home", create=True)


def add_run(home, run_id, verdict, service="assistant", with_policy=True):
    folder = home / "runs" / run_id
    folder.mkdir(parents=True)
    services = {service: {"verdict": verdict, "policy_id": f"{service}@{run_id}", "reasons": REASONS}}
    (folder / "manifest.json").write_text(json.dumps({"format": 1, "run_id": run_id, "services": [service]}))
    (folder / "verdicts.json").write_text(json.dumps({"services": services}))
    if with_policy:
        model = Model("constant", ("big", "small"), {"values": np.array([0.0, 1.0])})
        write_policy(
            folder / "policy" / service,
            model,
            policy_id=service,
            version=run_id,
            revision=1,
            virtual_model=service,
            incumbent="big",
            evaluation={},
            created_at="2026-01-01T00:00:00+00:00",
        )
    return folder


def set_active(home, **chosen):
    (home / "runs" / "active.json").write_text(json.dumps(chosen))


def export(home, out, *more, service="assistant"):
    return cli.run(
        ["export", "--home", str(home), "--target", "litellm", "--service", service, "--out", str(out), *more]
    )


def exported_version(out):
    return json.loads((out / "policy" / "manifest.json").read_text())["version"]


def test_deployable_policy_is_written_and_its_folder_printed(home, tmp_path, capsys):
    add_run(home, "r1", "deploy")
    assert export(home, tmp_path / "out") == 0
    printed = capsys.readouterr()
    assert printed.out == f"{tmp_path / 'out'}\n"
    assert "run r1" in printed.err
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"config.yaml", "policy_router.py", "policy"}


@pytest.mark.parametrize("verdict", ["promising", "keep", "cannot_tell"])
def test_other_verdicts_are_refused_with_the_unmet_condition_unless_unproven(home, tmp_path, capsys, verdict):
    add_run(home, "r1", verdict)
    assert export(home, tmp_path / "out") == 1
    error = capsys.readouterr().err
    assert f"'{verdict}'" in error
    assert "lower bound -3 points" in error
    assert "--unproven" in error
    assert not (tmp_path / "out").exists()
    assert export(home, tmp_path / "out", "--unproven") == 0


def test_active_run_is_taken_before_a_newer_one_and_the_newest_without_one(home, tmp_path):
    add_run(home, "r1", "deploy")
    add_run(home, "r2", "deploy")
    assert export(home, tmp_path / "newest") == 0
    set_active(home, assistant="r1")
    assert export(home, tmp_path / "active") == 0
    assert export(home, tmp_path / "asked", "--run", "r2") == 0
    assert [exported_version(tmp_path / name) for name in ("newest", "active", "asked")] == ["r2", "r1", "r2"]


def test_unknown_service_names_the_nearest(home, tmp_path, capsys):
    add_run(home, "r1", "deploy")
    assert export(home, tmp_path / "out", service="asistant") == 2
    assert "hint: Did you mean 'assistant'?" in capsys.readouterr().err


def test_unknown_run_is_refused(home, tmp_path, capsys):
    add_run(home, "r1", "deploy")
    assert export(home, tmp_path / "out", "--run", "r9") == 2
    assert "r9" in capsys.readouterr().err


def test_home_without_runs_says_what_makes_one(home, tmp_path, capsys):
    assert export(home, tmp_path / "out") == 2
    assert "retroute nightly" in capsys.readouterr().err


def test_run_that_suggests_no_policy_says_so(home, tmp_path, capsys):
    add_run(home, "r1", "keep", with_policy=False)
    assert export(home, tmp_path / "out", "--unproven") == 1
    assert "suggests no policy for assistant" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["manifest.json", "weights.npz", "runtime.py"])
def test_missing_bundle_file_is_named(home, tmp_path, capsys, name):
    folder = add_run(home, "r1", "deploy")
    (folder / "policy" / "assistant" / name).unlink()
    assert export(home, tmp_path / "out") in (1, 2)
    error = capsys.readouterr().err
    assert error.startswith("error: ")
    assert name in error
    assert "Traceback" not in error
