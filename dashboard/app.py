"""The dashboard's frame: page config and navigation."""

import streamlit as st

from dashboard import parts
from dashboard.views import health, orchestration, routing, verdict

st.set_page_config(page_title="retroute", page_icon=parts.icon(), layout="wide")
st.logo(parts.logo(st.context.theme.type), size="large")
st.html(parts.style())
st.navigation(
    [
        st.Page(verdict.page, title="Verdict", url_path="verdict", default=True),
        st.Page(health.page, title="Data health", url_path="health"),
        st.Page(routing.page, title="Suggested routing", url_path="routing"),
        st.Page(orchestration.page, title="Agent flow", url_path="flow"),
    ],
    position="top",
).run()
