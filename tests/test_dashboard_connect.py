"""The first-run page: how to connect an exporter, and what it says once the first span is there."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
import time
from html import unescape
from pathlib import Path

import pytest
import yaml
from browser import chromium, served, settled
from collector_process import CollectorProcess
from streamlit.testing.v1 import AppTest

from dashboard import connecting, pages
from ingest.home import open_home
from ingest.lake import Lake

PATIENCE_S = 30


def guide() -> None:
    from dashboard.views import connect

    connect.guide()


def show() -> AppTest:
    at = AppTest.from_function(guide, default_timeout=PATIENCE_S).run()
    assert not at.exception
    return at


def text(at: AppTest) -> str:
    return unescape(re.sub(r"<[^>]+>", " ", "\n".join(one.proto.body for one in at.get("html"))))


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("RETROUTE_HOME", str(tmp_path))
    return open_home(tmp_path, create=True)


def test_empty_home_says_to_start_a_collector_and_what_comes_then(home: Path) -> None:
    said = text(show())
    assert f"retroute collect --home {home}" in said
    assert f"retroute nightly --home {home}" in said
    assert "Nothing has arrived yet" in said


def test_snippets_hold_the_address_at_which_the_collector_really_listens(home: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        at = {"pid": 1, "host": "127.0.0.1", "port": listener.getsockname()[1], "grpc_port": 4399, "started_ns": 0}
        (home / "collector.json").write_text(json.dumps(at))
        page = show()
        address = f"http://127.0.0.1:{at['port']}"
        assert f"It listens on {address} (HTTP) and http://127.0.0.1:4399 (gRPC)" in text(page)
        codes = [code.value for code in page.code]
        assert sum(address in code for code in codes) == 3
    assert "None runs on" in text(show())  # a file that a killed collector left behind


@pytest.mark.parametrize("content", ["{", "[]", '{"host": 1}', '{"host": "127.0.0.1", "port": "x"}'])
def test_damaged_word_of_a_collector_is_no_collector(content: str, home: Path) -> None:
    (home / "collector.json").write_text(content)
    assert "None runs on" in text(show())


def test_snippets_carry_a_token_where_the_collector_wants_one() -> None:
    plain, guarded = (connecting.address(None, token=token) for token in (False, True))
    assert not any("TOKEN" in text for _, text in connecting.snippets(plain).values())
    found = connecting.snippets(guarded)
    assert all("TOKEN" in found[name][1] for name in ("Environment", "Python", "Beside your backend"))
    assert yaml.safe_load(found["Beside your backend"][1])["exporters"]["otlphttp/retroute"]["headers"]


def test_address_is_one_that_can_be_sent_to() -> None:
    everywhere = connecting.address({"host": "0.0.0.0", "port": 1, "grpc_port": 2, "tls": True}, token=False)
    assert (everywhere.http, everywhere.grpc) == ("https://127.0.0.1:1", "https://127.0.0.1:2")
    assert everywhere.everywhere
    assert connecting.address({"host": "::1", "port": 1}, token=False).http == "http://[::1]:1"


def test_python_snippet_lights_the_page_up(home: Path) -> None:
    Lake.open(home, write=True).close()
    with CollectorProcess(home, store=True) as collector:
        page = show()
        assert "Nothing has arrived yet" in text(page)
        (snippet,) = (code.value for code in page.code if "TracerProvider" in code.value)
        assert collector.url in snippet
        clean = {name: value for name, value in os.environ.items() if not name.startswith(("OTEL_", "RETROUTE_"))}
        subprocess.run([sys.executable, "-c", snippet], check=True, timeout=60, env=clean)
        until = time.monotonic() + PATIENCE_S
        while "Your app is connected" not in text(page.run()):
            assert time.monotonic() < until, text(page)
            time.sleep(0.3)
    said = text(page)
    assert "1 span arrived, the last within 1 minute" in said
    assert f"retroute nightly --home {home}" in said


def page_at(path: str) -> None:
    from dashboard import pages

    next(page for page in pages.pages() if page.path == path).view()


@pytest.mark.parametrize("path", [page.path for page in pages.pages()])
def test_without_a_home_every_page_says_so_or_what_to_do(
    path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "none"
    monkeypatch.setenv("RETROUTE_HOME", str(place))
    at = AppTest.from_function(page_at, args=(path,), default_timeout=PATIENCE_S).run()
    assert not at.exception
    assert "retroute" in text(at)
    if path == pages.FIRST.path:
        assert f"There is no home at {place} yet: the collector makes it." in text(at)
    assert not place.exists()


def test_a_dashboard_that_was_there_first_lights_up_in_the_browser(tmp_path: Path) -> None:
    home = tmp_path / "later"
    with chromium() as browser, served(home) as address:
        page = browser.new_page()
        page.goto(address)
        settled(page)
        assert f"There is no home at {home} yet" in page.inner_text(".stMain")
        with CollectorProcess(home, store=True) as collector:
            page.get_by_text("A collector runs on this home.").wait_for()
            clean = {name: value for name, value in os.environ.items() if not name.startswith(("OTEL_", "RETROUTE_"))}
            snippet = connecting.snippets(connecting.Address(collector.url, ""))["Python"][1]
            subprocess.run([sys.executable, "-c", snippet], check=True, timeout=60, env=clean)
            page.get_by_text("Your app is connected.").wait_for()


def test_lake_that_cannot_be_read_is_said(home: Path) -> None:
    Lake.open(home, write=True).close()
    (home / "home.json").write_text(json.dumps({"format": 99}))
    assert "made by a newer version" in text(show())
