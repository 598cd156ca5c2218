"""Names and texts from outside that a browser, Markdown or Streamlit would make something of: every page shows them as
what they are, asks nobody else for anything, and runs nothing."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from browser import PATIENCE_S, chromium, served, settled
from click.testing import CliRunner
from dashboard_fixture import verdicts, write_run

from dashboard import pages
from optimizer import cli

HOSTILE = (
    '"><img src=x onerror=alert(1)><script>alert(2)</script><iframe src="http://elsewhere.invalid"></iframe>'
    " [go](javascript:alert(3)) ![p](http://elsewhere.invalid/p.png) $x^2$ :red[red] :material/home: `code` **bold**"
)
FOREIGN = (
    "img[src=x]",
    "img[src*=elsewhere]",
    "iframe[src*=elsewhere]",
    "a[href^='javascript:']",
    ".katex",
    ".stMarkdownColoredText",
    ".stMarkdownColoredBackground",
    "[data-testid=stIconMaterial]:text('home')",
)
"""What the marks of `HOSTILE` would become."""
TRACE = f"{1:032x}"


def said(key: str, value: str) -> dict[str, Any]:
    return {"key": key, "value": {"stringValue": value}}


def spans(start_ns: int) -> list[dict[str, Any]]:
    """A turn of an agent that asks a model, with a megabyte, and a tool."""
    prompt = json.dumps([{"role": "user", "parts": [{"type": "text", "content": HOSTILE + "x" * 1_000_000}]}])
    told: list[dict[str, str]] = [
        {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": HOSTILE, "gen_ai.conversation.id": HOSTILE},
        {
            "gen_ai.operation.name": "chat",
            "gen_ai.request.model": HOSTILE,
            "gen_ai.provider.name": HOSTILE,
            "gen_ai.input.messages": prompt,
            "user.id": HOSTILE,
            HOSTILE: HOSTILE,
        },
        {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": HOSTILE, "error.type": HOSTILE},
    ]
    return [
        {
            "traceId": TRACE,
            "spanId": f"{place + 1:016x}",
            **({"parentSpanId": f"{1:016x}"} if place else {}),
            "name": HOSTILE,
            "startTimeUnixNano": str(start_ns + place),
            "endTimeUnixNano": str(start_ns + 10**9),
            "attributes": [said(key, value) for key, value in attributes.items()],
        }
        for place, attributes in enumerate(told)
    ]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home whose every name and text is `HOSTILE`, with prompts shown."""
    home = tmp_path_factory.mktemp("hostile")
    resource = {"attributes": [said("service.name", HOSTILE)]}
    sent = {"resource": resource, "scopeSpans": [{"scope": {"name": HOSTILE}, "spans": spans(time.time_ns() - 10**12)}]}
    (home / "sent.json").write_text(json.dumps({"resourceSpans": [sent]}))
    scores = [{"trace_id": TRACE, "name": HOSTILE, "value": 0.5, "label": HOSTILE, "source": HOSTILE}]
    (home / "scores.jsonl").write_text("".join(json.dumps(score) + "\n" for score in scores))
    for words in (["import", "sent.json"], ["scores", "import", "scores.jsonl"]):
        done = CliRunner().invoke(cli.cli, [*words[:-1], str(home / words[-1]), "--home", str(home)])
        assert done.exit_code == 0, done.output
    content = json.dumps(verdicts()["services"]["alpha"]).replace("small-model", json.dumps(HOSTILE)[1:-1])
    service = json.loads(content) | {"policy_label": HOSTILE, "policy_id": HOSTILE, "bundle": None}
    for reason in service["reasons"]:
        reason |= dict.fromkeys(("condition", "got", "needed", "remedy"), HOSTILE)
    write_run(home, content={"services": {HOSTILE: service}})
    (home / "retroute.toml").write_text('[dashboard]\ncontent = "everyone"\n')
    return home


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as found:
        yield found


def test_marks_from_outside_are_text_in_the_browser(browser: Any, home: Path) -> None:
    with served(home) as address:
        page = browser.new_context(viewport={"width": 1280, "height": 900}).new_page()
        page.set_default_timeout(1000 * PATIENCE_S)
        ran: list[str] = []
        asked: list[str] = []
        page.on("dialog", lambda dialog: (ran.append(dialog.message), dialog.dismiss()))
        page.on("request", lambda request: asked.append(request.url))
        wrong: dict[str, list[str]] = {}
        service = quote(HOSTILE)
        for path in [*(f"{one.path}?service={service}" for one in pages.pages()), f"traces?trace={TRACE}"]:
            page.goto(f"{address}/{path}")
            settled(page)
            made = [mark for mark in FOREIGN if page.locator(mark).count()]
            if made or page.locator("[data-testid=stException]").count():
                wrong[path.split("?")[0]] = made
        assert wrong == {}
        assert "alert(2)</script>" in page.locator(".stMain").inner_text()  # shown, as what it is
        assert ran == []
        own = (address, address.replace("http", "ws"), "data:", "blob:")
        assert [url for url in asked if not url.startswith(own) or url.endswith(("/x", "p.png"))] == []
        page.context.close()
