"""Who may look, see prompts and act: hidden and read-only unless retroute.toml says otherwise."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from dashboard_fixture import write_run
from streamlit import config as streamlit_config
from streamlit.testing.v1 import AppTest

import dashboard
from dashboard import access
from optimizer import board, config
from optimizer.config import DashboardSettings

APP = Path(dashboard.__path__[0]) / "app.py"
ROLES = '[dashboard]\noperators = ["Ops@example.com"]\nviewers = ["*@shop.example"]\n'
PATIENCE_S = 30


def asks() -> None:
    import streamlit as st

    from dashboard import access

    st.session_state["may"] = {what: access.may(what) for what in ("look", "content", "operate")}
    st.session_state["who"] = access.who()


def told(user: dict[str, Any] | None) -> tuple[str | None, set[str]]:
    """Who somebody is, and what they may; None: no login is set up."""
    at = AppTest.from_function(asks, default_timeout=PATIENCE_S)
    at.user = {} if user is None else user
    at.run()
    assert not at.exception
    return at.session_state["who"], {what for what, may in at.session_state["may"].items() if may}


def logged_in(email: str, **claims: Any) -> dict[str, Any]:
    return {"is_logged_in": True, "email": email, **claims}


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("RETROUTE_HOME", str(tmp_path))
    return tmp_path


def listens_on(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = streamlit_config.get_option
    monkeypatch.setattr(
        streamlit_config, "get_option", lambda name: address if name == "server.address" else asked(name)
    )


@pytest.fixture
def on_loopback(monkeypatch: pytest.MonkeyPatch) -> None:
    listens_on("127.0.0.1", monkeypatch)


def test_without_settings_pages_are_read_only_and_content_is_hidden_even_at_the_machine(
    home: Path, on_loopback: None
) -> None:
    assert told(None) == ("local", {"look"})


def test_person_at_the_machine_operates_once_named(home: Path, on_loopback: None) -> None:
    (home / "retroute.toml").write_text('[dashboard]\noperators = ["local"]\n')
    assert told(None) == ("local", {"look", "content", "operate"})


def test_dashboard_on_a_network_without_login_knows_nobody(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (home / "retroute.toml").write_text('[dashboard]\noperators = ["local"]\n')
    listens_on("0.0.0.0", monkeypatch)
    assert told(None) == (None, {"look"})


@pytest.mark.parametrize(
    ("address", "headers", "local"),
    [
        ("127.0.0.1", {"Host": "localhost:8501"}, True),
        ("::1", {"Host": "[::1]:8501"}, True),
        ("127.0.0.1", {}, True),
        ("127.0.0.1", {"Host": "dash.example.com"}, False),  # a proxy, or a name that was pointed at this machine
        ("127.0.0.1", {"Host": "localhost", "X-Forwarded-For": "203.0.113.7"}, False),
        ("0.0.0.0", {"Host": "localhost:8501"}, False),
        ("192.0.2.1", {"Host": "192.0.2.1:8501"}, False),
        (None, {"Host": "localhost:8501"}, False),  # Streamlit listens everywhere
    ],
)
def test_only_what_was_sent_on_the_machine_itself_is_local(
    address: str | None, headers: dict[str, str], local: bool
) -> None:
    assert access.local(address, headers) is local


def test_login_gives_each_role_what_it_may(home: Path) -> None:
    (home / "retroute.toml").write_text(ROLES)
    assert told(logged_in("OPS@example.com")) == ("ops@example.com", {"look", "content", "operate"})
    assert told(logged_in("cfo@shop.example")) == ("cfo@shop.example", {"look"})
    assert told(logged_in("somebody@else.example")) == ("somebody@else.example", set())
    assert told({"is_logged_in": False}) == (None, set())


def test_mail_address_that_the_provider_did_not_verify_is_nobody(home: Path) -> None:
    (home / "retroute.toml").write_text(ROLES)
    assert told(logged_in("ops@example.com", email_verified=False)) == (None, set())
    assert told({"is_logged_in": True, "name": "ops@example.com"}) == (None, set())


def test_login_without_names_opens_for_nobody(home: Path) -> None:
    assert told(logged_in("somebody@else.example")) == ("somebody@else.example", set())


def test_broken_login_opens_nothing(home: Path, on_loopback: None) -> None:
    (home / "retroute.toml").write_text('[dashboard]\noperators = ["local"]\n')
    (home / board.SECRETS).write_text("[auth")
    assert told(None) == (None, set())


def test_broken_settings_allow_least(home: Path, on_loopback: None) -> None:
    (home / "retroute.toml").write_text('[dashboard]\noperators = ["local"]\ncontents = "everyone"\n')
    assert told(None) == ("local", {"look"})
    at = AppTest.from_file(str(APP), default_timeout=PATIENCE_S).run()
    (notice,) = (one.proto.body for one in at.get("html") if "The settings cannot be read" in one.proto.body)
    assert "unknown key &#x27;contents&#x27;" in notice


@pytest.mark.parametrize(
    ("content", "seers"),
    [("everyone", {None, "local", "a@b.c"}), ("operators", {"a@b.c"}), ("nobody", set())],
)
def test_content_is_for_whom_the_settings_say(content: Any, seers: set[str | None]) -> None:
    settings = DashboardSettings(content=content, operators=("a@b.c",))
    found = {name for name in (None, "local", "a@b.c") if access.allowed("content", settings, name, login=False)}
    assert found == seers


@pytest.mark.parametrize(
    ("user", "shown"),
    [
        (logged_in("ops@example.com"), "What your logs say"),
        (logged_in("somebody@else.example"), "not among the people who may look"),
        ({"is_logged_in": False}, "Sign in"),
    ],
)
def test_app_shows_no_page_to_who_may_not_look(user: dict[str, Any], shown: str, home: Path) -> None:
    write_run(home)
    (home / "retroute.toml").write_text(ROLES)
    at = AppTest.from_file(str(APP), default_timeout=PATIENCE_S)
    at.user = user
    at.run()
    assert not at.exception
    body = "\n".join(element.proto.body for element in at.get("html"))
    assert shown in body
    assert ("alpha" in body) is (user.get("email") == "ops@example.com")


def test_login_of_the_home_is_handed_to_streamlit(home: Path) -> None:
    assert "--secrets.files" not in board.command("127.0.0.1", 8501, home)
    (home / board.SECRETS).write_text("[auth]\n")
    command = board.command("127.0.0.1", 8501, home)
    assert command[command.index("--secrets.files") + 1] == str(home / board.SECRETS)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ('trace_url = "javascript:alert({trace_id})"', "must be an address such as"),
        ('trace_url = "https://viewer.example/traces"', "must be an address such as"),
        ('content = "all"', '"everyone", "operators" or "nobody"'),
        ('operators = ["bob"]', "'bob' is neither"),
        ('operator = ["local"]', "Did you mean 'operators'?"),
    ],
)
def test_settings_that_cannot_be_meant_are_refused(line: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "retroute.toml").write_text(f"[dashboard]\n{line}\n")
    with pytest.raises(config.ConfigError) as refused:
        config.load(tmp_path, {}, {})
    assert said in f"{refused.value.message} {refused.value.hint}"
