"""The home folder: made once, recognised, refused with one clear line."""

from __future__ import annotations

import json
import os

import pytest

from ingest.errors import HomeError
from ingest.home import collector_lock, collector_runs, open_home


def test_a_home_is_made_once_and_opened_again(tmp_path):
    home = tmp_path / "deep" / "home"
    assert open_home(home, create=True) == home
    assert json.loads((home / "home.json").read_text()) == {"format": 1}
    before = (home / "home.json").stat().st_mtime_ns
    assert open_home(home, create=True) == open_home(home, create=False) == home
    assert (home / "home.json").stat().st_mtime_ns == before


def test_a_folder_with_settings_becomes_a_home_and_keeps_them(tmp_path):
    (tmp_path / "retroute.toml").write_text("[settle]\nquiet_s = 1\n")
    open_home(tmp_path, create=True)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["home.json", "retroute.toml"]


def test_a_missing_home_is_not_made_to_read_it(tmp_path):
    with pytest.raises(HomeError, match="There is no retroute home"):
        open_home(tmp_path / "none", create=False)
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ('{"format": 2}', "newer version"),
        ('{"format": "x"}', "unknown format 'x'"),
        ('{"format": 0}', "unknown format 0"),
        ("{}", "damaged"),
        ("[]", "damaged"),
        ("", "damaged"),
    ],
)
@pytest.mark.parametrize("create", [True, False])
def test_a_home_of_another_version_or_damaged_is_refused(tmp_path, content, says, create):
    (tmp_path / "home.json").write_text(content)
    with pytest.raises(HomeError, match=says) as error:
        open_home(tmp_path, create=create)
    assert error.value.hint
    assert "\n" not in error.value.message


def test_a_file_in_the_place_of_a_home_is_refused(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(HomeError, match="cannot be used"):
        open_home(tmp_path / "file", create=True)


def test_the_second_collector_is_refused_and_told_where_the_first_is(tmp_path):
    said = {"pid": os.getpid(), "host": "127.0.0.1", "port": 4318, "started_ns": 1}
    assert not collector_runs(tmp_path)
    with collector_lock(tmp_path):
        (tmp_path / "collector.json").write_text(json.dumps(said))
        assert collector_runs(tmp_path)
        with pytest.raises(HomeError, match=r"already running .*http://127\.0\.0\.1:4318"), collector_lock(tmp_path):
            pass
        assert collector_runs(tmp_path)
    assert not collector_runs(tmp_path)
    with collector_lock(tmp_path):
        pass
