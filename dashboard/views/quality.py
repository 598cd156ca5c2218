"""Quality signals: is the reward trustworthy? What is scored, how late, by whom, and do they agree?"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from html import escape
from typing import Any

import polars as pl
import streamlit as st

from dashboard import data, figures, parts, quality_charts, quality_data, quality_sections
from dashboard.quality_data import Pair, Signals
from dashboard.views import frame
from optimizer.judges import LEAST

TITLE, NOTE = "Quality signals", "Is the reward trustworthy?"
SHOWN = 15
"""Rows of a table or a chart before the rest is only counted."""
NAMES = 6
"""Scores whose course over time is drawn."""


@frame.page
def page() -> None:
    st.html(parts.page_title(TITLE, NOTE))
    if not data.has_lake():
        frame.no_runs()
        return
    runs = data.runs()
    services = [name for name in data.lake("services_seen")["service"].to_list() if name]
    chosen = (
        frame.filters("quality", services, every=True, time=True) if services else frame.Filters(None, None, None, None)
    )
    frame.problems(runs)
    signals = quality_data.load(chosen.service, chosen.since_ns, chosen.until_ns, frame.newest(runs))
    if signals.scores.is_empty():
        _none(chosen, bool(services))
        return
    models = quality_data.by_model(signals)
    named = quality_data.by_name(signals)
    _head(signals, models)
    _signals(named)
    _models(models, signals, chosen)
    _days(signals)
    _judges(quality_data.pairs(signals))
    _drawn(named)
    _unmapped(named, signals)


def _none(chosen: frame.Filters, traces: bool) -> None:
    if chosen.service or chosen.since_ns or chosen.until_ns:
        st.html(
            parts.empty("No score here", "None judges a trace of this service and these days. Look at more of them.")
        )
        return
    text = (
        "Traces say what happened and what it cost, not how good it was. Send what people, checks or a judge say of "
        "them, at once or days later: as scores, or as OpenTelemetry events gen_ai.evaluation.result."
    )
    if not traces:
        text = f"No trace has arrived either. {text}"
    st.html(parts.empty("Nothing has been scored yet", text, quality_sections.HOW))


def _head(signals: Signals, models: pl.DataFrame) -> None:
    st.html(parts.lead(quality_sections.lead(signals, models)))
    if signals.cut:
        newest, given = figures.count(quality_data.MOST), figures.count(signals.given)
        st.html(parts.remark(f"Of {given} scores the newest {newest} are looked at, and the traces since then."))
    if said := quality_sections.uneven(models):
        st.html(parts.notice(said))


def _signals(named: pl.DataFrame) -> None:
    about = "By its name and who gave it. Delays are counted from the end of the trace."
    st.html(parts.heading("What is scored", about))
    st.html(quality_sections.signals_table(named.head(SHOWN)))
    _more(named)
    frame.download(named, "quality-signals", "signals")


def _models(models: pl.DataFrame, signals: Signals, chosen: frame.Filters) -> None:
    about = "Traces with the score that means quality. What is scored unevenly can hide a loss."
    st.html(parts.heading("Coverage and delay by model", about))
    if models.is_empty():
        st.html(parts.remark("The scores name no trace that is here."))
        return
    single = chosen.service is not None
    shown = models.head(SHOWN).with_columns(label=_label(single))
    st.altair_chart(quality_charts.coverage(shown, frame.ink()), key="coverage")
    st.html(quality_sections.models_table(shown, functools.partial(_unscored, chosen), service=not single))
    _more(models)
    frame.download(models, "score-coverage", "models")
    spread = quality_data.distribution(signals).with_columns(label=_label(single))
    order = [label for label in shown["label"].to_list() if label in set(spread["label"].to_list())]
    if order:
        about = "How the score that means quality is spread over tenths, as shares of each model's scores."
        st.html(parts.heading("What it gives to each model", about))
        kept = spread.filter(pl.col("label").is_in(order))
        st.altair_chart(quality_charts.distribution(kept, order, frame.ink()), key="distribution")
        st.html(parts.remark("Not corrected for which prompts went to which model: this is no comparison of models."))


def _label(single: bool) -> pl.Expr:
    model = pl.col("model").fill_null("no model")
    return model if single else pl.concat_str(pl.col("service").fill_null("no service"), model, separator=": ")


def _unscored(chosen: frame.Filters, row: Mapping[str, Any]) -> str:
    """The traces of a row that have no score; of several models or none the list cannot be narrowed to these."""
    model = row["model"] if row["model"] != "several models" else None
    days = {name: st.query_params.get(name) for name in ("from", "to")}
    return frame.link("traces", service=row["service"], model=model, unscored=1, **days)


def _days(signals: Signals) -> None:
    rows = quality_data.by_day(signals).filter(pl.col("mapped") > 0)
    if rows.is_empty():
        return
    about = "The mean of each day on which scores were given, with 95% intervals of large samples."
    st.html(parts.heading("Over time", about))
    ranked = rows.group_by("name").agg(pl.col("scores").sum()).sort("scores", "name", descending=[True, False])
    columns = st.columns(2, gap="large")
    for place, name in enumerate(ranked["name"].head(NAMES).to_list()):
        with columns[place % 2]:
            st.html(f'<p class="rr rr-eyebrow">{escape(name)}</p>')
            own = rows.filter(pl.col("name") == name)
            st.altair_chart(quality_charts.days(own, frame.ink()), key=f"days-{name}")
    if ranked.height > NAMES:
        st.html(parts.remark(f"And {figures.counted(ranked.height - NAMES, 'score')} more by name."))
    frame.download(rows, "scores-by-day", "days")


def _judges(pairs: list[Pair]) -> None:
    about = (
        "Where a judge and somebody else scored the same. A judge that was never compared says what it thinks, not how "
        "good an answer was."
    )
    st.html(parts.heading("The judge against others", about))
    if not pairs:
        st.html(
            parts.remark(
                "No judge's score stands beside one that a person or a program gave. Send both for some traces, with "
                f'"source": "judge" and "source": "human"; {LEAST} pairs are enough for a first answer.'
            )
        )
        return
    named = {f"{pair.judge} and {pair.other}, of a {pair.of}": pair for pair in pairs}
    chosen = next(iter(named))
    if len(named) > 1:
        kept = frame.kept("pair", chosen, list(named))
        st.session_state["quality-pair"] = kept
        st.selectbox("Scores", list(named), key="quality-pair", on_change=_paired, width=420)
        chosen = kept
    pair = named[chosen]
    st.html(parts.lead(quality_sections.judged(pair)))
    st.html(quality_sections.agreement(pair))
    if pair.found.curve:
        left, right = st.columns([3, 2], gap="large")
        left.altair_chart(quality_charts.reliability(pair.found.curve, frame.ink()), key="reliability")
        right.html(
            parts.remark(
                "Each dot is a tenth of what the judge gives: across, its own mean; up, what others gave to the same. "
                "On the dashed line both agree; below it the judge is too kind, above it too strict."
            )
        )
    st.html(parts.kinds())


def _paired() -> None:
    frame.keep("pair", st.session_state.get("quality-pair"))


def _drawn(named: pl.DataFrame) -> None:
    st.html(parts.heading("How what is scored was drawn"))
    for said in quality_sections.drawn(named):
        st.html(parts.remark(said))


def _unmapped(named: pl.DataFrame, signals: Signals) -> None:
    rows = named.filter(pl.col("unmapped") > 0)
    about = "A score counts once its value lies between 0 and 1, or [[scores]] of retroute.toml says what it means."
    st.html(parts.heading("Not on a scale", about))
    if rows.is_empty():
        st.html(parts.remark("Every score is on a scale."))
    else:
        st.html(quality_sections.unmapped(rows.head(SHOWN)))
        _more(rows)
    lost = signals.scores.filter(~pl.col("there") & ~pl.col("of_session")).height
    if lost:
        st.html(parts.remark(f"{figures.counted(lost, 'score')} name a trace that is not here; they wait for it."))


def _more(rows: pl.DataFrame) -> None:
    if rows.height > SHOWN:
        st.html(parts.remark(f"And {figures.count(rows.height - SHOWN)} more; the download has all."))
