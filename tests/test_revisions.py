"""A policy's revision only rises, so that routers never take an older policy for a newer one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from optimizer import runs
from optimizer.revisions import next_revision


def kept(home: Path, run_id: str, service: str) -> None:
    runs.policy_folder(home / "runs" / run_id, service).mkdir(parents=True)
    (home / "runs" / run_id / "manifest.json").write_text("{}")


def in_place(home: Path, service: str, text: str) -> None:
    policy = runs.bundle_folder(home, service) / "policy"
    policy.mkdir(parents=True, exist_ok=True)
    (policy / "manifest.json").write_text(text)


def test_it_follows_the_runs_of_the_service(tmp_path: Path) -> None:
    assert next_revision(tmp_path, "app") == 1
    for number, service in enumerate(("app", "other", "app")):
        kept(tmp_path, f"2026-{number}", service)
    assert next_revision(tmp_path, "app") == 3


def test_it_passes_what_an_export_or_a_rollout_put_in_place(tmp_path: Path) -> None:
    kept(tmp_path, "2026", "app")
    in_place(tmp_path, "app", json.dumps({"revision": 7}))
    assert next_revision(tmp_path, "app") == 8
    assert next_revision(tmp_path, "other") == 1


@pytest.mark.parametrize("text", ["", "[]", '{"revision": "x"}', "{}"])
def test_a_broken_bundle_counts_as_none(tmp_path: Path, text: str) -> None:
    in_place(tmp_path, "app", text)
    assert next_revision(tmp_path, "app") == 1
