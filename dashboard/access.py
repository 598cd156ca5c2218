"""Who is looking, and what they may: content is hidden and pages only read, unless retroute.toml says otherwise.

A name comes from a login (Streamlit's `st.login`, which any OpenID Connect provider serves) or is "local": somebody on
the machine itself, at a dashboard that has no login and listens on the loopback address only. Nobody else has a name,
so that a dashboard put on a network by mistake shows no prompt and takes no order.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping, Sequence
from typing import Literal

import streamlit as st
from streamlit import config as streamlit_config

from dashboard import data
from optimizer.config import DashboardSettings

LOCAL = "local"
FORWARDED = ("forwarded", "x-forwarded-for", "x-forwarded-host", "x-real-ip", "via")
"""Headers of a request that came through a proxy: its sender need not be on this machine."""

What = Literal["look", "content", "operate"]


def may(what: What) -> bool:
    """Whether the person looking may see the pages, see prompts and answers, or act."""
    return allowed(what, data.settings(), who(), login=has_login())


def allowed(what: What, settings: DashboardSettings, name: str | None, *, login: bool) -> bool:
    """`may` of a person known as `name` (None: unknown)."""
    operator = _among(name, settings.operators)
    if what == "operate":
        return operator
    if what == "content":
        return settings.content == "everyone" or (settings.content == "operators" and operator)
    open_to_all = not login and not settings.viewers
    return open_to_all or operator or _among(name, settings.viewers)


def _among(name: str | None, people: Sequence[str]) -> bool:
    return name is not None and (name in people or ("@" in name and f"*@{name.rpartition('@')[2]}" in people))


def who() -> str | None:
    """The e-mail of the login, "local", or None for somebody unknown."""
    if has_login():
        return person(st.user.to_dict())
    address = streamlit_config.get_option("server.address")
    return LOCAL if local(address, st.context.headers.to_dict()) else None


def person(claims: Mapping[str, object]) -> str | None:
    """The e-mail that a login proves, in small letters; None where it is absent, or not verified by the provider."""
    email = claims.get("email")
    if not claims.get("is_logged_in") or claims.get("email_verified") is False or not isinstance(email, str):
        return None
    return email.lower() or None


def local(address: str | None, headers: Mapping[str, str]) -> bool:
    """Whether a request to a server that listens on `address` was sent on this machine, to this machine's name."""
    if not address or not _loopback(address):
        return False
    sent = {name.lower(): value for name, value in headers.items()}
    if any(name in sent for name in FORWARDED):
        return False
    host = sent.get("host", "")
    return _loopback(host.rpartition(":")[0] if host.rpartition(":")[2].isdigit() else host) if host else True


def _loopback(name: str) -> bool:
    if name == "localhost":
        return True
    try:
        return ipaddress.ip_address(name.strip("[]")).is_loopback
    except ValueError:
        return False


def has_login() -> bool:
    """Whether a login is set up, even wrongly: `st.user` tells of a working one, and a broken one opens nothing."""
    return "is_logged_in" in st.user or data.login_file().exists()
