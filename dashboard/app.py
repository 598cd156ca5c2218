"""The dashboard's frame: page config, who may look, and navigation."""

import streamlit as st

from dashboard import access, data, pages, parts
from dashboard.views import sign_in

st.set_page_config(page_title="retroute", page_icon=parts.icon(), layout="wide", initial_sidebar_state=230)
st.logo(parts.logo(st.context.theme.type), size="large")
st.html(parts.style())
if not access.may("look"):
    # Under every page's address: Streamlit puts "Page not found" over a link to one that is not listed.
    addresses = ("sign-in", *(page.path for page in pages.pages()))
    asking = [st.Page(sign_in.page, title="Sign in", url_path=path, default=path == "sign-in") for path in addresses]
    st.navigation(asking, position="hidden").run()
    st.stop()
first, listed = pages.FIRST, {}
for name, section in pages.SECTIONS.items():
    listed[name] = [
        st.Page(one.view, title=one.title, url_path="start" if one is first else one.path, default=one is first)
        for one in section
    ]
# The first page opens without a path, and under its own one as well. The menu is not Streamlit's: its lists are no
# lists to a screen reader.
also = st.Page(first.view, title=first.title, url_path=first.path, visibility="hidden")
chosen = st.navigation([*(page for section in listed.values() for page in section), also], position="hidden")
with st.sidebar, st.container(key="menu", gap="xsmall"):
    for name, shown in listed.items():
        st.html(parts.section(name))
        for page in shown:
            st.page_link(page)
if problem := data.unset():
    st.html(parts.notice(f"The settings cannot be read, so everything that needs leave is off: {problem}"))
sign_in.person()
chosen.run()
