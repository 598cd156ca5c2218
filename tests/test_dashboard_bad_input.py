"""What is broken on disk or hostile in the telemetry: each page says so in words, and the others work."""

from __future__ import annotations

import json
import shutil
import sqlite3
import time
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from click.testing import CliRunner
from dashboard_fixture import RUN, verdicts, write_lake, write_run
from pages_shown import html, text
from streamlit.testing.v1 import AppTest

from dashboard import pages
from optimizer import cli

PATHS = [page.path for page in pages.pages()]
PATIENCE_S = 60
HOSTILE = '"><img src=x onerror=alert(1)><script>alert(2)</script>'
TABLES = [
    "decisions.parquet",
    *(
        f"{kind}-alpha.parquet"
        for kind in ("policy_probabilities", "judged_scores", "judging_expected", "price_scores", "steps", "turns")
    ),
]
OBJECTS = ["training.json", *(f"{kind}-alpha.json" for kind in ("backtest", "evidence", "plan", "regressions"))]
"""What a run may keep of a service."""
OURS = {
    *("div", "p", "span", "section", "table", "thead", "tbody", "tr", "td", "th", "ul", "ol", "li", "dl", "dd", "dt"),
    *("h1", "h2", "h3", "b", "i", "code", "pre", "a", "br", "svg", "g", "path", "text", "rect", "line", "style"),
    *("small", "strong", "em", "details", "summary", "abbr", "caption", "title", "time", "circle", "colgroup", "col"),
}
"""Elements that pages are made of; anything else came from outside."""


def one_page(path: str) -> None:
    from dashboard import pages

    next(page for page in pages.pages() if page.path == path).view()


def show(path: str, **query: str) -> AppTest:
    at = AppTest.from_function(one_page, args=(path,), default_timeout=PATIENCE_S)
    at.query_params.update(query)
    at.run()
    assert not at.exception, (path, at.exception)
    return at


class Elements(HTMLParser):
    """The elements of a page, and the attributes that run something."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.names: set[str] = set()
        self.running: list[tuple[str, str]] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.names.add(tag)
        self.running += [
            (tag, name) for name, value in attrs if name.startswith("on") or (value or "").startswith("javascript:")
        ]


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home with a lake and a run, copied by each test."""
    home = tmp_path_factory.mktemp("sound")
    write_lake(home)
    write_run(home)
    return home


@pytest.fixture
def home(sound: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    home = tmp_path / "home"
    shutil.copytree(sound, home)
    monkeypatch.setenv("RETROUTE_HOME", str(home))
    return home


def half_written(home: Path) -> None:
    """A run that was cut off while it was copied: every file of it ends in the middle."""
    shutil.copytree(home / "runs" / RUN, home / "runs" / "20260310T000000")
    for file in (home / "runs" / "20260310T000000").rglob("*"):
        if file.is_file():
            file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


def extra_files_broken(home: Path) -> None:
    """A run whose verdicts are sound, and nothing else."""
    for name in (*TABLES, *OBJECTS):
        (home / "runs" / RUN / name).write_bytes(b"PAR1 {not what it was")


def other_shapes(home: Path) -> None:
    """Files of another version: sound, but of other columns and other keys."""
    for name in TABLES:
        pl.DataFrame({"something": [1, 2]}).write_parquet(home / "runs" / RUN / name)
    for name in OBJECTS:
        (home / "runs" / RUN / name).write_text('{"something": [1, 2]}')


def lake_newer(home: Path) -> None:
    (home / "home.json").write_text(json.dumps({"format": 99}))


def lake_damaged(home: Path) -> None:
    (home / "lake" / "catalog.sqlite").write_bytes(b"SQLite format 3\0" + bytes(4096))


def much_at_once(home: Path) -> None:
    half_written(home)
    (home / "rollouts").mkdir()
    (home / "rollouts" / "alpha.json").write_text('{"format": 1, "service": "alpha"')
    (home / "retroute.toml").write_text("[services.alpha\n")
    (home / "reconciled.json").write_text("{")


FAULTS: dict[str, Callable[[Path], None]] = {
    fault.__name__: fault for fault in (much_at_once, extra_files_broken, other_shapes, lake_newer)
}


@pytest.mark.parametrize("fault", FAULTS)
def test_fault_is_a_state_of_every_page_and_never_a_traceback(fault: str, home: Path) -> None:
    FAULTS[fault](home)
    for path in PATHS:
        at = show(path, service="alpha")
        assert len(text(at).split()) > 3, path


def test_damaged_lake_is_a_state_of_the_pages_that_need_it(home: Path) -> None:
    lake_damaged(home)
    for path in ("health", "spend", "traces"):
        assert "cannot be read" in text(show(path)), path
    assert "Deploy" in text(show("verdict", service="alpha"))


def test_lake_that_a_writer_holds_is_read_all_the_same(home: Path) -> None:
    writer = sqlite3.connect(home / "lake" / "catalog.sqlite", isolation_level=None)
    writer.execute("begin exclusive")
    try:
        assert "120 spans" in text(show("health"))
    finally:
        writer.close()


@pytest.mark.parametrize("fault", ["extra_files_broken", "much_at_once"])
def test_data_health_needs_no_run(fault: str, home: Path) -> None:
    FAULTS[fault](home)
    assert "120 spans in 120 traces arrived" in text(show("health"))


def test_newer_home_says_that_it_is_newer_where_the_lake_is_shown(home: Path) -> None:
    lake_newer(home)
    assert "made by a newer version" in text(show("health"))


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Names and texts from outside that are markup, prompts of a megabyte, and clocks far ahead and far behind."""
    home = tmp_path_factory.mktemp("hostile")
    now = time.time_ns()
    starts = [now - 10**12, now + 400 * 86_400 * 10**9, 10**9]
    sent = [span for number, start in enumerate(starts, start=1) for span in _spans(number, start)]
    resource = {"attributes": [_said("service.name", HOSTILE)]}
    (home / "sent.json").write_text(
        json.dumps({"resourceSpans": [{"resource": resource, "scopeSpans": [{"spans": sent}]}]})
    )
    done = CliRunner().invoke(cli.cli, ["import", str(home / "sent.json"), "--home", str(home)])
    assert done.exit_code == 0, done.output
    content = verdicts()
    said = json.loads(json.dumps(content["services"]["alpha"]).replace("small-model", json.dumps(HOSTILE)[1:-1]))
    said |= {"policy_label": HOSTILE, "policy_id": HOSTILE, "bundle": None}
    for reason in said["reasons"]:
        reason |= dict.fromkeys(("condition", "got", "needed", "remedy"), HOSTILE)
    write_run(home, content={"services": {HOSTILE: said}})
    (home / "retroute.toml").write_text('[dashboard]\ncontent = "everyone"\n')
    return home


def _spans(number: int, start_ns: int) -> list[dict[str, Any]]:
    """An agent's turn with a call of a model and of a tool."""
    trace = f"{number:032x}"
    prompt = json.dumps([{"role": "user", "parts": [{"type": "text", "content": HOSTILE + "x" * 1_000_000}]}])
    texts = {
        "1": {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": HOSTILE},
        "2": {
            "gen_ai.operation.name": "chat",
            "gen_ai.request.model": HOSTILE,
            "gen_ai.agent.name": HOSTILE,
            "gen_ai.input.messages": prompt,
            HOSTILE: HOSTILE,
        },
        "3": {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": HOSTILE, "error.type": HOSTILE},
    }
    return [
        {
            "traceId": trace,
            "spanId": f"{number:08x}{key:>08}",
            **({} if key == "1" else {"parentSpanId": f"{number:08x}{1:08d}"}),
            "name": HOSTILE,
            "startTimeUnixNano": str(start_ns + int(key)),
            "endTimeUnixNano": str(start_ns + 10**9),
            "attributes": [_said(name, value) for name, value in told.items()],
        }
        for key, told in texts.items()
    ]


def _said(key: str, value: str) -> dict[str, Any]:
    return {"key": key, "value": {"stringValue": value}}


@pytest.mark.parametrize("path", PATHS)
def test_markup_from_outside_is_text_on_every_page(path: str, hostile: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RETROUTE_HOME", str(hostile))
    query = {"service": HOSTILE, "run": HOSTILE, "model": HOSTILE}
    found = Elements(html(show(path, **query)))
    assert found.names <= OURS
    assert found.running == []


def test_markup_in_a_trace_is_text_and_its_prompt_is_cut(hostile: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RETROUTE_HOME", str(hostile))
    for number in (1, 2, 3):
        at = show("traces", trace=f"{number:032x}")
        found = Elements(html(at))
        assert found.names <= OURS
        assert found.running == []
        assert HOSTILE in text(at)
        assert len(html(at)) < 500_000


def test_service_of_one_call_is_shown_everywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RETROUTE_HOME", str(tmp_path))
    write_lake(tmp_path, traces=2)
    for path in PATHS:
        show(path)
