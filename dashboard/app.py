"""The dashboard's frame: page config, who may look, and navigation."""

import streamlit as st

from dashboard import access, data, pages, parts
from dashboard.views import sign_in

st.set_page_config(page_title="retroute", page_icon=parts.icon(), layout="wide", initial_sidebar_state=230)
st.logo(parts.logo(st.context.theme.type), size="large")
st.html(parts.style())
if not access.may("look"):
    st.navigation([st.Page(sign_in.page, title="Sign in", url_path="sign-in")], position="hidden").run()
    st.stop()
first = pages.pages()[0]
chosen = st.navigation(
    {
        name: [st.Page(page.view, title=page.title, url_path=page.path, default=page is first) for page in section]
        for name, section in pages.SECTIONS.items()
    },
    expanded=True,
)
if problem := data.unset():
    st.html(parts.notice(f"The settings cannot be read, so everything that needs leave is off: {problem}"))
sign_in.person()
chosen.run()
