"""Every page of the menu in a real browser, on the demo's home: it draws, in light and dark, for a keyboard and a
screen reader, on a small and a large screen; it asks nobody else for anything; and what it gives can be used."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import axe_playwright_python
import pytest
from browser import PATIENCE_S, chromium, served, settled, shots
from click.testing import CliRunner
from conftest import Demo

from dashboard import pages
from optimizer import cli, rollout

AXE = Path(axe_playwright_python.__file__).with_name("axe.min.js")
PROBES = ("_stcore/health", "_stcore/host-config")
"""Streamlit's page looks for its server below its own path first; where that is a page's, the answer is 404."""
SMALL, LARGE = {"width": 1280, "height": 900}, {"width": 1920, "height": 1080}
WHOLE = {"width": 1280, "height": 6000}
"""So that a whole page is looked at: axe says nothing of what lies below the fold."""


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as found:
        yield found


@pytest.fixture(scope="module")
def home(finished_demo: Demo, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The demo's home with a rollout begun; its settings show prompts."""
    home = tmp_path_factory.mktemp("shown") / "home"
    shutil.copytree(finished_demo.home, home)
    service = next(name for name, said in finished_demo.result["services"].items() if said["verdict"] == "deploy")
    rollout.start(home, service, by="tester", why="a first look")
    return home


@pytest.fixture(scope="module")
def address(browser: Any, home: Path) -> Iterator[str]:
    with served(home) as found:
        yield found


@pytest.fixture
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return shots(tmp_path_factory)


class Reader:
    """Somebody at the dashboard, with what their browser complained of and whom it asked."""

    def __init__(self, browser: Any, address: str, **context: Any) -> None:
        self.context = browser.new_context(viewport=SMALL, accept_downloads=True, **context)
        self.page = self.context.new_page()
        self.page.set_default_timeout(1000 * PATIENCE_S)
        self.address, self.complaints, self.elsewhere = address, [], []
        self.page.on("console", self._said)
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("request", self._asked)

    def _said(self, message: Any) -> None:
        probe = message.location.get("url", "").endswith(PROBES)
        if message.type == "error" and not probe:
            self.complaints.append(message.text)

    def _asked(self, request: Any) -> None:
        own = (self.address, self.address.replace("http", "ws"), "data:", "blob:")
        if not request.url.startswith(own):
            self.elsewhere.append(request.url)

    def opens(self, path: str) -> Any:
        """The page at an address, drawn."""
        self.page.goto(f"{self.address}/{path}")
        settled(self.page)
        return self.page

    def goes_to(self, page: pages.Page) -> Any:
        """The page of the menu, drawn, as if by a click on it."""
        self.page.locator(".st-key-menu").get_by_role("link", name=page.title, exact=True).click()
        path = "" if page is pages.FIRST else page.path
        self.page.wait_for_url(lambda url: url.split("?")[0].rstrip("/") == f"{self.address}/{path}".rstrip("/"))
        settled(self.page)
        return self.page

    def is_content(self) -> None:
        assert self.complaints == []
        assert self.elsewhere == []
        self.context.close()


def too_wide(page: Any) -> int:
    return int(page.locator("[data-testid=stMain]").evaluate("main => main.scrollWidth - main.clientWidth"))


def grave(page: Any) -> list[str]:
    """What keeps people out: serious and critical findings of axe, each with the first place."""
    if not page.evaluate("() => 'axe' in window"):
        page.evaluate(AXE.read_text(encoding="utf-8"))
    page.set_viewport_size(WHOLE)
    settled(page)
    found = page.evaluate("axe.run(document, {resultTypes: ['violations']})")["violations"]
    page.set_viewport_size(SMALL)
    return [
        f"{one['id']}: {one['nodes'][0]['html'][:300]}" for one in found if one["impact"] in ("serious", "critical")
    ]


@pytest.mark.parametrize("mode", ["light", "dark"])
def test_every_page_draws_for_everyone(mode: str, browser: Any, address: str, pictures: Path) -> None:
    reader = Reader(browser, address, color_scheme=mode)
    reader.opens("")
    wrong: dict[str, Any] = {}
    for one in pages.pages():
        page = reader.goes_to(one)
        said = {
            "no heading": page.locator(".stMain h1").count() != 1,
            "an exception": page.locator("[data-testid=stException]").count() > 0,
            "a state of error": "cannot be read" in page.locator(".stMain").inner_text(),
            "too wide": too_wide(page) > 0,
            "not for everyone": grave(page),
        }
        page.screenshot(path=pictures / f"{one.path}-{mode}.png")
        if mode == "light":
            page.set_viewport_size(LARGE)
            said["too wide for a large screen"] = too_wide(page) > 0
            page.set_viewport_size(SMALL)
        if wrongs := {name: value for name, value in said.items() if value}:
            wrong[one.path] = wrongs
    assert wrong == {}
    reader.is_content()


def test_every_page_is_reached_by_its_address_and_by_keys(browser: Any, address: str) -> None:
    reader = Reader(browser, address)
    page = reader.opens("verdict")
    assert page.locator(".stMain h1").inner_text() == "What your logs say"
    page.locator(".st-key-menu a").nth(len(pages.pages()) - 1).wait_for()  # the menu comes before or after the page
    links = [link.get_attribute("href").rpartition("/")[2] for link in page.locator(".st-key-menu a").all()]
    assert links == ["" if one is pages.FIRST else one.path for one in pages.pages()]
    page.locator(".st-key-menu a").nth(1).focus()
    ring = page.evaluate("() => { const s = getComputedStyle(document.activeElement); return s.boxShadow + s.outline }")
    assert ring not in ("none", "")
    page.keyboard.press("Enter")
    page.wait_for_url(f"**/{pages.pages()[1].path}*")
    settled(page)
    reader.is_content()


def test_bundle_that_is_downloaded_verifies(browser: Any, address: str, tmp_path: Path) -> None:
    reader = Reader(browser, address)
    page = reader.opens("rollout?service=assistant")
    assert page.locator('.rr-stage[data-stage="shadow"]').count() == 1
    bundle = page.locator(".st-key-bundle-litellm")
    bundle.get_by_role("button", name="Make").click()
    with page.expect_download() as download:
        bundle.get_by_role("button", name="Download").click()
    download.value.save_as(tmp_path / "bundle.zip")
    shutil.unpack_archive(tmp_path / "bundle.zip", tmp_path)
    done = CliRunner().invoke(cli.cli, ["bundle", "verify", str(tmp_path / "assistant"), "--json"])
    assert done.exit_code == 0, done.output
    assert json.loads(done.output)
    reader.is_content()


def test_service_goes_along_from_page_to_page(browser: Any, address: str) -> None:
    reader = Reader(browser, address)
    page = reader.opens("rollout")
    page.locator(".st-key-filters-rollout").get_by_text("sql-agent", exact=True).click()
    page.wait_for_selector('.rr-stage[data-service="sql-agent"]')
    routing = next(one for one in pages.pages() if one.path == "routing")
    reader.goes_to(routing)
    page.wait_for_selector('.rr-title[data-service="sql-agent"]')
    assert page.url.endswith("routing?service=sql-agent")
    reader.is_content()


def test_reader_clicks_from_a_sum_down_to_one_trace(browser: Any, address: str) -> None:
    reader = Reader(browser, address)
    page = reader.opens("spend")
    page.locator('.stMain .rr a[href^="traces?"]').first.click()
    page.wait_for_url("**/traces?*")
    settled(page)
    asked = page.url
    page.locator('.stMain .rr a[href*="trace="]').first.click()
    page.wait_for_url(lambda url: "trace=" in url and url != asked)
    settled(page)
    assert page.locator(".stMain h1").count() == 1
    assert grave(page) == []
    reader.is_content()
