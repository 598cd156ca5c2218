"""Frontier: which policy fits my limits, and what would another price of quality suggest?"""

from __future__ import annotations

import streamlit as st

from dashboard import bars, figures, frontier_charts, frontier_data, frontier_sections, parts, theme
from dashboard.frontier_data import Priced, Prices
from dashboard.records import ServiceVerdict
from dashboard.views import frame
from dashboard.views.chosen import Chosen, chosen

TITLE, QUESTION = "Frontier", "Which policy fits your limits, and what would another price of quality suggest?"


@frame.page
def page() -> None:
    picked = chosen("frontier", TITLE, QUESTION)
    if picked is None:
        return
    verdict = picked.verdict
    if not any(not row.cost.refused and not row.quality.refused for row in verdict.table):
        text = f"No policy could be placed, not even today's: {figures.sentence(verdict.savings.reason)}"
        st.html(parts.empty("Nothing to compare", text))
        return
    prices = frontier_data.prices(verdict, steps=_steps(picked))
    st.html(parts.lead(frontier_sections.answer(verdict)))
    drawn = st.container()
    found = _price(verdict, prices)
    with drawn:
        _panels(verdict, found if isinstance(found, Priced) else None, "traces" if _steps(picked) else "decisions")


def _steps(picked: Chosen) -> bool:
    return picked.verdict.service in picked.run.flows


def _panels(verdict: ServiceVerdict, found: Priced | None, unit: str) -> None:
    colour = theme.VERDICT_COLOURS[verdict.outcome]
    st.html(frontier_sections.marks(verdict, found))
    left, right = st.columns([3, 2], gap="large")
    with left:
        spots = frontier_charts.spots(verdict, "quality", found)
        at = frontier_charts.limit(verdict, "quality")
        chart = frontier_charts.panel(spots, "quality", at, colour, frame.ink(), curve=verdict.curve, unit=unit)
        st.altair_chart(chart, key="quality")
    with right:
        late = frontier_charts.spots(verdict, "latency", found)
        if late:
            at = frontier_charts.limit(verdict, "latency")
            st.altair_chart(frontier_charts.panel(late, "latency", at, colour, frame.ink(), unit=unit), key="latency")
        else:
            st.html(parts.remark("No latency is known: send spans with end times."))
    st.html(parts.remark(frontier_sections.reading(verdict)))
    st.html(frontier_sections.traces(verdict, frame.link))
    frame.download(frontier_sections.frame(verdict, found), f"{verdict.service}-frontier", "frontier")


def _price(verdict: ServiceVerdict, prices: Prices) -> Priced | str:
    about = (
        "What a right answer instead of a wrong one is worth. It ranks policies inside the limits; it never moves them."
    )
    st.html(parts.heading("The price of quality", about))
    if prices.why:
        st.html(parts.remark(f"Nothing to slide: {figures.sentence(prices.why)}"))
        return prices.why
    options = {f"{value:.4g}": value for value in prices.values}
    own = f"{prices.own:.4g}"
    name = st.select_slider(
        "USD for a right instead of a wrong answer",
        list(options),
        value=frame.kept("price", own, list(options)),
        format_func=lambda text: f"${text}" + (" (this run's)" if text == own else ""),
        key=f"price-{verdict.service}-{verdict.run_id}",
    )
    frame.keep("price", None if name == own else name)
    value = options[name]
    found = frontier_data.priced(verdict, prices, value)
    if isinstance(found, str):
        st.html(parts.remark(f"At ${name}: nothing is suggested, {figures.sentence(found)}"))
        return found
    st.html(frontier_sections.priced(found))
    st.html(parts.remark(frontier_sections.kind(found, verdict)))
    left, right = st.columns(2, gap="large")
    with left:
        st.html(parts.heading("Who would answer", "Shares of decisions: today's in grey, at this price in ink."))
        st.altair_chart(bars.shares(frontier_data.shares(verdict, found), frame.ink()), key="shares")
    with right:
        st.html(parts.heading("To train at this price", frontier_sections.how(found)))
        st.code(frontier_data.snippet(verdict.service, value), language=None)
        st.code("retroute nightly", language=None)
    return found
