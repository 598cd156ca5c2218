"""The pages in a real browser: what people see equals what the run says, and nothing is fetched from elsewhere."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from browser import PATIENCE_S, chromium, chromium_path, served, settled
from conftest import Demo
from dashboard_fixture import RUN, verdicts, write_lake, write_run

from dashboard import figures, words
from dashboard.records import figure

AXES = {"savings_usd_per_1k": "usd_change", "quality_change": "quality_change", "latency_change_s": "seconds_change"}
COLUMNS = {"cost_usd_per_1k": "usd", "quality": "quality", "latency_s": "seconds"}


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as found:
        yield found


@pytest.fixture(scope="module")
def address(browser: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    home = tmp_path_factory.mktemp("home")
    write_run(home)
    write_lake(home)
    with served(home) as found:
        yield found


@pytest.fixture
def page(browser: Any) -> Iterator[Any]:
    page = browser.new_page(viewport={"width": 1440, "height": 900})
    page.set_default_timeout(1000 * PATIENCE_S)
    yield page
    page.close()


def seen(page: Any, within: str) -> list[tuple[str, list[float], str, str]]:
    """(metric, exact numbers, shown value, shown interval) of each visible figure below a selector."""
    read = """figures => figures.filter(one => one.dataset.value !== undefined).map(one => [
        one.dataset.metric,
        [one.dataset.value, one.dataset.low, one.dataset.high].map(one => one === '' ? null : Number(one)),
        one.querySelector('.rr-value').innerText,
        one.querySelector('.rr-interval').innerText])"""
    return [tuple(one) for one in page.locator(f"{within} .rr-figure").evaluate_all(read)]


def expected(data: dict[str, Any], key: str, unit: Any) -> list[tuple[str, list[float], str, str]]:
    """What `seen` must give for a figure of verdicts.json; nothing for a refused one."""
    if data["value"] is None:
        return []
    text = figures.said(figure(data), unit)
    return [(key, [data["value"], data["low"], data["high"]], text.value, text.interval)]


def check_service(page: Any, address: str, name: str, said: dict[str, Any]) -> None:
    page.goto(f"{address}/?service={name}")
    page.wait_for_selector(f'.rr-verdict[data-service="{name}"]')
    page.wait_for_selector(".rr-policies")
    assert page.locator(".rr-verdict h1").inner_text() == words.VERDICTS[said["verdict"]]
    assert seen(page, ".rr-metric") == [one for key, unit in AXES.items() for one in expected(said[key], key, unit)]
    for row in said["table"]:
        wanted = [one for key, unit in COLUMNS.items() for one in expected(row[key], key, unit)]
        assert seen(page, f'.rr-policies [data-policy="{row["policy"]}"]') == wanted
    refused = [row for row in said["table"] if row["cost_usd_per_1k"]["value"] is None]
    for row in refused:
        assert (
            row["cost_usd_per_1k"]["reason"]
            in page.locator(f'.rr-policies [data-policy="{row["policy"]}"]').inner_text()
        )
    told = page.locator(".rr-checks li").all_inner_texts()
    assert len(told) == len(said["reasons"])
    for reason in said["reasons"]:
        assert any(reason["got"] in one and reason["needed"] in one for one in told)


def check_routing(page: Any, address: str, name: str, said: dict[str, Any]) -> None:
    page.goto(f"{address}/routing?service={name}")
    page.wait_for_selector(f'.rr-title[data-service="{name}"]')
    for point in said["points"]:
        page.wait_for_selector(f'.rr-point[data-point="{point["point"]}"]')
        wanted = expected(point["savings_usd_per_1k"], "savings_usd_per_1k", "usd_change")
        assert seen(page, f'.rr-point[data-point="{point["point"]}"]') == wanted
    page.wait_for_selector(".rr-policy")
    rows = page.locator('[data-table="actions"] tbody tr').evaluate_all(
        "rows => rows.map(row => [...row.cells].map(cell => cell.innerText))"
    )
    for point in said["points"]:
        for action in point["actions"]:
            shares = [figures.share(action[key]) for key in ("today_share", "policy_share")]
            assert [action["action"], *shares, figures.count(action["logged"])] in rows


@pytest.mark.parametrize("name", ["alpha", "beta-agent", "gamma", "delta"])
def test_verdict_page_shows_the_numbers_of_the_run(name: str, page: Any, address: str) -> None:
    check_service(page, address, name, verdicts()["services"][name])


@pytest.mark.parametrize("name", ["beta-agent", "delta"])
def test_routing_page_shows_the_numbers_of_the_run(name: str, page: Any, address: str) -> None:
    check_routing(page, address, name, verdicts()["services"][name])


def test_reader_walks_from_the_overview_to_a_download_and_nothing_leaves_the_machine(
    page: Any, address: str, tmp_path: Path
) -> None:
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.goto(address)
    page.wait_for_selector('.rr-card[data-service="delta"]')
    assert page.locator(".rr-word").all_inner_texts() == [
        "Deploy",
        "Promising",
        "Keep today's routing",
        "Your logs cannot tell",
    ]
    settled(page)  # a click on what is being drawn anew is lost
    page.get_by_role("button", name="Open").first.click()
    page.wait_for_selector('.rr-verdict[data-service="alpha"]')
    page.wait_for_selector("[data-testid=stVegaLiteChart] svg, [data-testid=stVegaLiteChart] canvas")
    page.wait_for_url("**?service=alpha")
    page.get_by_role("link", name="Suggested routing").click()
    page.wait_for_selector('.rr-title[data-service="alpha"]')  # the service goes along
    settled(page)
    with page.expect_download() as download:
        page.get_by_role("button", name="Bundle").click()
    assert download.value.suggested_filename == f"alpha-{RUN}-bundle.zip"
    target = tmp_path / "bundle.zip"
    download.value.save_as(target)
    shutil.unpack_archive(target, tmp_path)
    assert (tmp_path / "alpha" / "config.yaml").is_file()
    assert (tmp_path / "alpha" / "policy" / "weights.npz").is_file()
    page.get_by_role("link", name="Data health").click()
    page.wait_for_selector('[data-table="unknown"]')
    page.wait_for_selector('.rr-lead:has-text("80 spans in 80 traces arrived")')
    elsewhere = [url for url in asked if not url.startswith((address, address.replace("http", "ws"), "data:", "blob:"))]
    assert elsewhere == []


@pytest.mark.parametrize(("mode", "dark"), [("light", False), ("dark", True)])
def test_page_follows_the_readers_mode(mode: str, dark: bool, browser: Any, address: str) -> None:
    page = browser.new_page(color_scheme=mode)
    page.goto(address)
    page.wait_for_selector(".rr-card", timeout=1000 * PATIENCE_S)
    colour = page.locator("[data-testid=stApp]").evaluate("app => getComputedStyle(app).backgroundColor")
    red = int(colour.removeprefix("rgb(").split(",")[0])
    assert (red < 64) is dark
    page.close()


@pytest.mark.parametrize("path", ["/", "/?service=alpha", "/health", "/routing?service=alpha"])
def test_narrow_screen_scrolls_down_only(path: str, browser: Any, address: str) -> None:
    page = browser.new_page(viewport={"width": 400, "height": 800})
    page.goto(address + path)
    page.wait_for_selector(".rr", timeout=1000 * PATIENCE_S)
    page.wait_for_timeout(1000)
    wide = page.locator("[data-testid=stMain]").evaluate("main => main.scrollWidth - main.clientWidth")
    assert wide <= 0
    page.close()


@pytest.mark.parametrize(("ci", "outcome"), [("true", pytest.fail.Exception), ("", pytest.skip.Exception)])
def test_missing_browser_skips_but_fails_under_ci(ci: str, outcome: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CI", ci)
    monkeypatch.setattr(shutil, "which", lambda name: None)
    with pytest.raises(outcome, match="no Chromium"):
        chromium_path()


def test_pages_of_the_demo_show_the_numbers_that_demo_json_printed(page: Any, finished_demo: Demo) -> None:
    with served(finished_demo.home) as address:
        for name, said in finished_demo.result["services"].items():
            check_service(page, address, name, said)
            check_routing(page, address, name, said)
