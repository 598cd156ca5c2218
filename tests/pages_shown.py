"""Pages of the dashboard, run without a browser, and what they show."""

from __future__ import annotations

import re
from html import unescape
from typing import Any

from streamlit.testing.v1 import AppTest

PATIENCE_S = 60


def _page(view: str) -> None:
    from importlib import import_module

    import_module(f"dashboard.views.{view}").page()


def show(view: str, *, user: dict[str, Any] | None = None, **query: str) -> AppTest:
    """The page of `dashboard.views.<view>` with these parameters in its address, seen by a user who is logged in."""
    at = AppTest.from_function(_page, args=(view,), default_timeout=PATIENCE_S)
    if user is not None:
        at.user = user
    at.query_params.update(query)
    return at.run()


def html(at: AppTest) -> str:
    return "\n".join(element.proto.body for element in at.get("html"))


def text(at: AppTest) -> str:
    """What `html` says, without its marks."""
    return unescape(re.sub(r"<[^>]+>", " ", html(at))).replace("\xa0", " ")


def line(at: AppTest) -> str:
    """`text` with one space wherever there are some."""
    return re.sub(r"\s+", " ", text(at))


def table(at: AppTest, label: str) -> str:
    return html(at).partition(f'data-table="{label}"')[2].partition("</table>")[0]


def figures_of(part: str) -> list[tuple[str, float, float, float]]:
    """Metric, value, low and high of each figure in some HTML."""
    found = re.findall(r'data-metric="(\w+)" data-value="([^"]+)" data-low="([^"]+)" data-high="([^"]+)"', part)
    return [(metric, float(value), float(low), float(high)) for metric, value, low, high in found]
