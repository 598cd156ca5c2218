"""Run folders are whole or absent, and their names cannot leave the home."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingest.errors import UsageError
from optimizer import runs


def written(home: Path, run_id: str) -> Path:
    return runs.write_run(home, run_id, lambda folder: runs.write_json(folder / "manifest.json", {"run_id": run_id}))


def test_a_run_that_fails_half_way_leaves_nothing(tmp_path: Path) -> None:
    def fill(folder: Path) -> None:
        (folder / "decisions.parquet").write_bytes(b"half")
        raise RuntimeError("disk full")

    with pytest.raises(RuntimeError, match="disk full"):
        runs.write_run(tmp_path, "r1", fill)
    assert runs.run_ids(tmp_path) == []
    assert list((tmp_path / "runs").iterdir()) == []


def test_runs_are_listed_newest_first_and_found_by_name(tmp_path: Path) -> None:
    for run_id in ("20260101T000000", "20260102T000000"):
        written(tmp_path, run_id)
    assert runs.run_ids(tmp_path) == ["20260102T000000", "20260101T000000"]
    assert runs.run_folder(tmp_path, None).name == "20260102T000000"
    with pytest.raises(UsageError, match="no run 'x'"):
        runs.run_folder(tmp_path, "x")


def test_two_runs_of_one_second_get_two_names(tmp_path: Path) -> None:
    now = datetime(2026, 1, 1, tzinfo=UTC)
    first = runs.new_run_id(tmp_path, now)
    written(tmp_path, first)
    second = runs.new_run_id(tmp_path, now)
    assert (first, second) == ("20260101T000000", "20260101T000000-1")
    written(tmp_path, second)
    assert runs.run_ids(tmp_path)[0] == second


def test_a_second_run_at_once_is_refused(tmp_path: Path) -> None:
    with runs.lock(tmp_path), pytest.raises(runs.LockHeldError) as refused, runs.lock(tmp_path):
        pass
    assert refused.value.exit_code == 4
    with runs.lock(tmp_path):
        pass


def test_services_that_were_not_decided_keep_their_policy(tmp_path: Path) -> None:
    (tmp_path / "runs").mkdir()
    runs.set_active(tmp_path, {"a": "r1", "b": "r1"})
    runs.set_active(tmp_path, {"b": "r2"})
    runs.set_active(tmp_path, {})
    assert runs.active(tmp_path) == {"a": "r1", "b": "r2"}


def test_a_broken_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text("{")
    with pytest.raises(UsageError, match=r"x\.json is not valid JSON"):
        runs.read_json(tmp_path / "x.json")
    with pytest.raises(UsageError, match="missing"):
        runs.read_json(tmp_path / "y.json")


def test_infinite_numbers_are_never_written(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="JSON"):
        runs.write_json(tmp_path / "x.json", {"value": float("inf")})
    assert not (tmp_path / "x.json").exists()


@given(st.text(max_size=40))
def test_no_service_name_leaves_its_folder(name: str) -> None:
    folder = runs.folder_name(name)
    assert "/" not in folder
    assert "\\" not in folder
    assert "\0" not in folder
    assert not folder.startswith(".")
    assert folder


@given(st.text(max_size=10), st.text(max_size=10))
def test_two_services_never_share_a_folder(first: str, second: str) -> None:
    assert (runs.folder_name(first) == runs.folder_name(second)) == (first == second)


@given(st.text(alphabet="aé客", min_size=1, max_size=400), st.text(alphabet="a客", max_size=3))
def test_a_long_name_still_is_a_file_of_its_own(name: str, more: str) -> None:
    folder = runs.folder_name(name)
    assert len(f"policy_probabilities-{folder}.parquet.draft".encode()) <= 255
    assert (runs.folder_name(name + more) == folder) == (more == "")


@pytest.mark.parametrize("name", ["assistant", "sql-agent", "my_app.v2"])
def test_ordinary_names_stay_readable(name: str) -> None:
    assert runs.folder_name(name) == name


def test_json_files_end_with_a_line_break(tmp_path: Path) -> None:
    runs.write_json(tmp_path / "x.json", {"a": 1})
    text = (tmp_path / "x.json").read_text()
    assert json.loads(text) == {"a": 1}
    assert text.endswith("}\n")
