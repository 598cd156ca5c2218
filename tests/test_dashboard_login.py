"""The login in a real browser, through a real OpenID Connect provider: nobody, a viewer and an operator."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from browser import PATIENCE_S, chromium, free_port, served, settled
from dashboard_fixture import RUN, verdicts, write_lake
from oidc_provider import CLIENT, SECRET, provider
from rollout_world import SERVICE, judged_run

from optimizer import board
from optimizer.rollout import state

OPERATOR, VIEWER, STRANGER = "ops@example.com", "cfo@example.com", "somebody@else.example"
ROLES = f'[dashboard]\ncontent = "operators"\noperators = ["{OPERATOR}"]\nviewers = ["*@example.com"]\n'


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as found:
        yield found


@contextmanager
def behind_login(home: Path, issuer: str) -> Iterator[str]:
    """The address of a dashboard on a home with a policy to roll out, open to those whom `issuer` knows."""
    port = free_port()
    lines = {
        "redirect_uri": f"http://127.0.0.1:{port}/oauth2callback",
        "cookie_secret": "c" * 40,
        "client_id": CLIENT,
        "client_secret": SECRET,
        "server_metadata_url": f"{issuer}/.well-known/openid-configuration",
    }
    (home / board.SECRETS).write_text("[auth]\n" + "".join(f"{name} = {json.dumps(lines[name])}\n" for name in lines))
    (home / "retroute.toml").write_text(ROLES)
    policy = judged_run(home, RUN)
    said = verdicts()["services"]["alpha"] | {"run_id": RUN, "policy_id": SERVICE, "bundle": None}
    (policy.parent.parent / "verdicts.json").write_text(json.dumps({"services": {SERVICE: said}}))
    write_lake(home)
    with served(home, port) as address:
        yield address


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("home")


@pytest.fixture(scope="module")
def address(browser: Any, home: Path) -> Iterator[str]:
    with provider() as issuer, behind_login(home, issuer) as found:
        yield found


@contextmanager
def visitor(browser: Any) -> Iterator[Any]:
    """A page of somebody who was never here: no cookie."""
    context = browser.new_context(viewport={"width": 1440, "height": 900})
    page = context.new_page()
    page.set_default_timeout(1000 * PATIENCE_S)
    yield page
    context.close()


def sign_in(page: Any, address: str, email: str) -> None:
    page.goto(f"{address}/rollout")
    page.get_by_role("button", name="Sign in").click()
    page.get_by_label("E-mail").fill(email)
    page.get_by_role("button", name="Continue").click()
    page.wait_for_url(f"{address}/**")
    page.get_by_text(email).first.wait_for()


def opened(page: Any, address: str, path: str) -> str:
    page.goto(f"{address}/{path}")
    settled(page)
    return str(page.inner_text(".stMain"))


def test_nobody_sees_more_than_the_login(browser: Any, address: str) -> None:
    with visitor(browser) as page:
        for path in ("", "rollout", "traces"):
            page.goto(f"{address}/{path}")
            page.get_by_role("button", name="Sign in").click(trial=True)  # nothing lies over it
            assert SERVICE not in page.inner_text("body")


def test_stranger_whom_the_provider_knows_sees_no_page(browser: Any, address: str) -> None:
    with visitor(browser) as page:
        sign_in(page, address, STRANGER)
        assert "is not among the people who may look" in page.inner_text(".stMain")
        assert SERVICE not in page.inner_text("body")


def test_viewer_reads_and_cannot_act(browser: Any, address: str, home: Path) -> None:
    with visitor(browser) as page:
        sign_in(page, address, VIEWER)
        said = opened(page, address, "rollout")
        assert SERVICE in said
        assert "here you only read" in said
        assert not page.get_by_role("button", name="Start in shadow").count()
    assert state.read(home, SERVICE) is None


def test_operator_acts_in_their_name_and_signs_out(browser: Any, address: str, home: Path) -> None:
    with visitor(browser) as page:
        sign_in(page, address, OPERATOR)
        opened(page, address, "rollout")
        page.get_by_label("Reason, for the log").fill("the first look")
        page.get_by_role("button", name="Start in shadow").click()
        page.get_by_text("Done.").first.wait_for()
        step = json.loads((home / "rollouts" / "log.jsonl").read_text().splitlines()[-1])
        assert (step["by"], step["why"]) == (OPERATOR, "the first look")
        page.get_by_role("button", name="Sign out").click()
        page.get_by_role("button", name="Sign in").wait_for()
        page.goto(f"{address}/rollout")
        page.get_by_role("button", name="Sign in").wait_for()
        assert SERVICE not in page.inner_text("body")


def test_token_that_another_key_signed_opens_nothing(browser: Any, tmp_path: Path) -> None:
    with (
        provider(signed_by_another=True) as issuer,
        behind_login(tmp_path, issuer) as address,
        visitor(browser) as page,
    ):
        page.goto(address)
        page.get_by_role("button", name="Sign in").click()
        page.get_by_label("E-mail").fill(OPERATOR)
        page.get_by_role("button", name="Continue").click()
        page.wait_for_url(f"{address}/**")
        page.goto(address)
        page.get_by_role("button", name="Sign in").wait_for()
        assert SERVICE not in page.inner_text("body")
