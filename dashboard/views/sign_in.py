"""Who is looking: the page that asks, and the name below the navigation."""

from __future__ import annotations

import streamlit as st
from streamlit.errors import StreamlitAuthError

from dashboard import access, data, parts


def page() -> None:
    """Asks for a login; says so where the person who logged in may not look."""
    name = access.who()
    if name is None and not access.has_login():
        text = (
            "This dashboard is for the people named in its settings, and without a login it knows nobody: "
            f"retroute.toml in {data.home()} names viewers, and {data.login_file()} sets up no login."
        )
        st.html(parts.empty("Nobody can sign in", text))
    elif name is None:
        st.html(parts.empty("Sign in", "This dashboard is for people who are known to it."))
        st.button("Sign in", on_click=_login, type="primary")
    else:
        text = f"{name} is not among the people who may look at this dashboard."
        st.html(parts.empty("Not for you", text))
        st.button("Sign out", on_click=st.logout)


def person() -> None:
    """Who is signed in, below the navigation, with a way out; nothing without a login."""
    if access.has_login():
        with st.sidebar:
            st.html(parts.remark(f"{access.who()}"))
            st.button("Sign out", on_click=st.logout, type="tertiary")


def _login() -> None:
    try:
        st.login()
    except StreamlitAuthError as error:
        st.html(parts.notice(f"The login of this home is set up wrongly: {error}"))
