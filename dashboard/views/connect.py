"""The first page of an empty home: how to connect an app. It lights up by itself when the first span arrives."""

from __future__ import annotations

import time

import polars as pl
import streamlit as st

from dashboard import connecting, data, figures, parts
from ingest.errors import AppError
from ingest.home import is_home

REFRESH_S = 2


@st.fragment(run_every=REFRESH_S)
def guide() -> None:
    """From nothing to the first verdict: what is done, what is next, and how to do it.

    Drawn anew every few seconds, so that nobody has to reload."""
    try:
        batches = data.lake("health_batches") if data.has_lake() else pl.DataFrame()
    except AppError as error:
        st.html(parts.empty("This home cannot be read", f"{error.message} {error.hint}".strip()))
        return
    spans = int(batches["spans"].sum()) if batches.height else 0
    said = data.listening()
    at = connecting.address(said, token=data.wants_token())
    if spans:
        st.html(parts.page_title("Connected", "Telemetry is here. What is left until the first verdict:"))
        _arrived(spans, int(batches["received_ns"].max()))  # type: ignore[arg-type]
    else:
        st.html(parts.page_title("Connect your app", "From your telemetry to a first verdict in three steps."))
        _waiting(at, listens=said is not None)
    st.html(parts.heading("Send more" if spans else "Point your exporter at it", ""))
    _snippets(at)


def _waiting(at: connecting.Address, *, listens: bool) -> None:
    place = data.home()
    if listens:
        where = f"It listens on {at.http} (HTTP) and {at.grpc} (gRPC)"
        more = ", for other machines under this machine's name." if at.everywhere else "."
        first: parts.Step = ("done", "A collector runs on this home.", where + more, "")
    else:
        text = f"None runs on {place}. Start one; it keeps running beside your app."
        if not is_home(place):
            text = (
                f"There is no home at {place} yet: the collector makes it. If you have one elsewhere, start the "
                "dashboard with --home."
            )
        first = ("next", "Start the collector.", text, f"retroute collect --home {place}")
    waits = "Nothing has arrived yet. This page lights up by itself when the first span does."
    steps: list[parts.Step] = [
        first,
        ("next" if listens else "later", "Send the first span.", waits, ""),
        ("later", "Let a run look.", _verdict(), f"retroute nightly --home {place}"),
    ]
    st.html(parts.steps(steps))
    st.html(
        parts.remark(f"Nothing to connect yet? Sample data shows the whole loop: retroute demo --home {place}-demo")
    )


def _arrived(spans: int, last_ns: int) -> None:
    place = data.home()
    ago = max(time.time_ns() - last_ns, 0) / 1e9
    lately = f"the last within {figures.counted(round(ago) // 60 + 1, 'minute')}" if ago < 3600 else ""
    count = f"{figures.counted(spans, 'span')} arrived{', ' + lately if lately else ''}. "
    scores = (
        "A decision counts as evidence once something says how well it went: a score of an evaluator, a user's thumb, "
        "a test that passed. Scores may come later than their traces."
    )
    st.html(
        parts.steps(
            [
                ("done", "Your app is connected.", count, ""),
                ("next", "See what was understood.", "Data health says what has no price and what is missing.", ""),
                ("next", "Send scores.", scores, "retroute scores import --help"),
                ("next", "No verdict yet: let a run look.", _verdict(), f"retroute nightly --home {place}"),
            ]
        )
    )


def _verdict() -> str:
    return (
        "A run finds the decisions, learns a policy and says what it is worth, with its certainty: a few hundred "
        "scored decisions say something, a few thousand say it clearly."
    )


def _snippets(at: connecting.Address) -> None:
    found = connecting.snippets(at)
    for tab, (about, text) in zip(st.tabs(list(found)), found.values(), strict=True):
        with tab:
            st.html(parts.remark(about))
            st.code(text, language=None)
