"""Traces: a list to filter, and one of them with all its decisions: what happened, what would the policy do, why?"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any, cast, get_args

import polars as pl
import streamlit as st

from dashboard import access, data, figures, messages, parts, trace_data, trace_sections, traces_data, waterfall
from dashboard.records import ServiceVerdict
from dashboard.trace_data import Decided, Trace
from dashboard.traces_data import Asked, Sort
from dashboard.views import frame
from optimizer.similar import NEAREST

TITLE, NOTE = "Traces", "What happened, what would the policy do, and why?"
ORDERS = {"time": "Newest", "cost": "Dearest", "duration": "Slowest", "quality": "Best"}
RISING = {"time": "Oldest", "cost": "Cheapest", "duration": "Fastest", "quality": "Worst"}
ANY = "any"
HIDDEN = "Prompts and answers are hidden: retroute.toml says who may see them ([dashboard] content)."
STEPS = 400
"""Steps of a trace that can be chosen to read."""


@frame.page
def page() -> None:
    trace = frame.kept("trace", "")
    if not data.has_lake():
        st.html(parts.page_title(TITLE, NOTE))
        frame.no_runs()
        return
    runs = data.runs()
    if trace:
        _one(trace, _verdicts(runs, frame.kept("run", "")))
        return
    st.html(parts.page_title(TITLE, NOTE))
    services = [name for name in data.lake("services_seen")["service"].to_list() if name]
    if not services:
        text = "A trace is listed a few seconds after its last span, when it is settled."
        st.html(parts.empty("No trace yet", text, f"retroute collect --home {data.home()}"))
        return
    chosen = frame.filters(
        "traces", services, every=True, time=True, runs=[run.run_id for run in runs if not run.problem]
    )
    frame.problems(runs)
    _list(_asked(chosen), _verdicts(runs, chosen.run_id or ""))


def _verdicts(runs: tuple[data.Run, ...], run_id: str) -> dict[str, ServiceVerdict]:
    """Each service's verdict of one run, or of the newest that has one."""
    return frame.newest([run for run in runs if run.run_id == run_id] or runs)


# ---- the list


def _asked(chosen: frame.Filters) -> Asked:
    """What is asked for, from the URL."""
    text = {name: frame.kept(name, "") or None for name in ("model", "action", "agent", "tool")}
    return Asked(
        service=chosen.service,
        since_ns=chosen.since_ns,
        until_ns=chosen.until_ns,
        status=frame.kept("status", "", ("ok", "error")) or None,
        decision=frame.kept("decision", "", (traces_data.CHANGED, traces_data.KEPT)) or None,
        unpriced=frame.kept("unpriced", "") == "1",
        unscored=frame.kept("unscored", "") == "1",
        ids=traces_data.ids(frame.kept("ids", "")),
        search=frame.kept("q", "").strip() or None,
        **text,
    )


def _list(asked: Asked, verdicts: Mapping[str, ServiceVerdict]) -> None:
    _controls(asked, verdicts)
    sort = cast(Sort, frame.kept("sort", "time", get_args(Sort)))
    rising = frame.kept("order", "falling", ("falling", "rising")) == "rising"
    number = int(found) - 1 if (found := frame.kept("page", "1")).isdecimal() and 0 < int(found) < 10**6 else 0
    content = access.may("content")
    show = functools.partial(traces_data.page, asked, verdicts, sort=sort, rising=rising, content=content)
    page = show(number=number)
    if not page.found and number:
        number, page = 0, show(number=0)
        frame.keep("page", None)
    if not page.found:
        _none(asked)
        return
    _order(page, sort, rising, number)
    address = functools.partial(_link, asked)
    st.html(trace_sections.traces(page.rows, address, content=content, service=asked.service is None))
    if not content:
        st.html(parts.remark(HIDDEN))
    _turn(page.found, number)
    frame.download(page.rows if content else page.rows.drop("asked"), "traces", "traces")


def _link(asked: Asked, trace_id: str) -> str:
    return frame.link("traces", service=asked.service, run=frame.kept("run", ""), trace=trace_id)


def _controls(asked: Asked, verdicts: Mapping[str, ServiceVerdict]) -> None:
    known = traces_data.options(asked)
    with st.container(horizontal=True, vertical_alignment="bottom", key="more-filters"):
        _choose("model", "Model", known["model"])
        _choose("status", "Status", ["ok", "error"])
        if verdicts:
            _choose("decision", "Policy's decision", [traces_data.CHANGED, traces_data.KEPT])
        if asked.action:
            _choose("action", "Action", [asked.action])
        st.session_state["traces-q"] = asked.search or ""
        st.text_input(
            "Trace, session or user id",
            key="traces-q",
            on_change=functools.partial(_typed, "q", "traces-q"),
            width=220,
            max_chars=128,
        )
        on = sum(bool(value) for value in (asked.agent, asked.tool, asked.unpriced, asked.unscored))
        with st.popover(f"More ({on})" if on else "More", key="traces-more"):
            _choose("agent", "Agent", known["agent"])
            _choose("tool", "Tool", known["tool"])
            _tick("unpriced", "Without a price", asked.unpriced)
            _tick("unscored", "Without a score", asked.unscored)
    if asked.ids is not None:
        _only(len(asked.ids))


def _only(count: int) -> None:
    told, undo = st.columns([5, 1], vertical_alignment="center")
    told.html(parts.remark(f"Only {figures.counted(count, 'trace')} that a link named."))
    undo.button("Show all", key="all-traces", on_click=_reset, args=("ids",), width="stretch")


def _choose(name: str, label: str, options: list[str]) -> None:
    key, now = f"traces-{name}", frame.kept(name, "")
    every = [ANY, *options, *([now] if now and now not in options else [])]
    st.session_state[key] = now or ANY
    st.selectbox(label, every, key=key, on_change=functools.partial(_picked, name, key), width=190)


def _picked(name: str, key: str) -> None:
    value = st.session_state.get(key)
    _write(name, None if value == ANY else value)


def _tick(name: str, label: str, now: bool) -> None:
    key = f"traces-{name}"
    st.session_state[key] = now
    st.checkbox(label, key=key, on_change=functools.partial(_ticked, name, key))


def _ticked(name: str, key: str) -> None:
    _write(name, "1" if st.session_state.get(key) else None)


def _typed(name: str, key: str) -> None:
    _write(name, str(st.session_state.get(key) or "").strip())


def _write(name: str, value: str | None) -> None:
    frame.keep(name, value)
    frame.keep("page", None)


def _reset(*names: str) -> None:
    for name in names:
        _write(name, None)


def _none(asked: Asked) -> None:
    if asked.narrowed or asked.since_ns or asked.until_ns:
        text = "No trace fits all of the filters. Take one out, or look at more days."
        if asked.decision is not None:
            text = (
                "No decision that judged the policy fits. What a policy would do is known of the newest decisions of "
                "a run, the ones that nothing was learned from; of traces with several decisions see Agent flow."
            )
        st.html(parts.empty("No trace fits", text))
        names = ("model", "action", "agent", "tool", "status", "decision", "unpriced", "unscored", "ids", "q")
        st.button("Take all filters out", key="reset", on_click=_reset, args=names)
        return
    st.html(parts.empty("No trace here", "This service has sent no trace that is settled."))


def _order(page: traces_data.Page, sort: Sort, rising: bool, number: int) -> None:
    told, by, turned = st.columns([4, 4, 2], vertical_alignment="bottom")
    first = number * traces_data.PAGE + 1
    last = first + page.rows.height - 1
    which = f"{figures.counted(page.found, 'trace')}, {figures.count(first)} to {figures.count(last)} shown."
    told.html(parts.remark(which if page.found > page.rows.height else f"{figures.counted(page.found, 'trace')}."))
    words = dict(zip(ORDERS, ("Time", "Cost", "Duration", "Quality"), strict=True))
    st.session_state["traces-sort"] = sort
    by.segmented_control(
        "Order by",
        list(ORDERS),
        key="traces-sort",
        format_func=lambda name: words[name],
        on_change=_sorted_anew,
        label_visibility="collapsed",
    )
    label = f"{(RISING if rising else ORDERS)[sort]} first"
    turned.button(
        label,
        key="traces-order",
        icon=":material/swap_vert:",
        help="Turn the order round",
        on_click=_write,
        args=("order", None if rising else "rising"),
        width="stretch",
    )


def _sorted_anew() -> None:
    picked = st.session_state.get("traces-sort")
    _write("sort", None if picked in (None, "time") else str(picked))


def _turn(found: int, number: int) -> None:
    pages = -(-found // traces_data.PAGE)
    if pages < 2:
        return
    back, told, on = st.columns([1, 3, 1], vertical_alignment="center")
    turn = functools.partial(frame.keep, "page")
    back.button("Back", key="back", disabled=number == 0, on_click=turn, args=(str(number),), width="stretch")
    told.html(parts.remark(f"Page {figures.count(number + 1)} of {figures.count(pages)}"))
    on.button("Next", key="next", disabled=number + 1 >= pages, on_click=turn, args=(str(number + 2),), width="stretch")


# ---- one trace


def _one(trace_id: str, verdicts: Mapping[str, ServiceVerdict]) -> None:
    st.button("All traces", key="up", icon=":material/arrow_back:", type="tertiary", on_click=_up)
    known = traces_data.ids(trace_id)
    trace = None if known is None or len(known) != 1 else trace_data.one(known[0], verdicts)
    if trace is None:
        st.html(parts.page_title(TITLE, NOTE))
        st.html(
            parts.empty("No such trace", f"Nothing of the trace {trace_sections.cut(trace_id, 128)} is in this home.")
        )
        return
    _head(trace)
    _fall(trace)
    _decisions(trace)
    _texts(trace)
    _scores(trace)
    _session(trace)


def _up() -> None:
    for name in ("trace", "step"):
        frame.keep(name, None)


def _head(trace: Trace) -> None:
    head = trace.head
    if head is None:
        st.html(
            parts.page_title(
                f"Trace {trace.trace_id}", "It waits to be settled: a trace is, a few seconds after its last span."
            )
        )
        return
    named = head["name"] or "Trace"
    about = f"{head['service'] or 'No service'}, {trace_sections.moment(head['start_ns'])} UTC, {trace.trace_id}"
    st.html(parts.page_title(trace_sections.cut(named, 80), about))
    if (own := frame.trace_link(trace.trace_id)) is not None:
        st.link_button("Open in your trace viewer", own, icon=":material/open_in_new:")
    st.html(parts.facts_row(trace_sections.head(head)))
    st.html(parts.lead(trace_sections.outcomes(trace.decisions)))


def _fall(trace: Trace) -> None:
    if trace.spans.is_empty():
        st.html(parts.remark("Its spans were deleted by the home's retention; what they came to is above."))
        return
    decided = frozenset(one.span_id for one in trace.decisions if one.span_id)
    rows = waterfall.rows(trace.spans, trace.calls, decided)
    about = "What ran when, below what. A diamond marks a decision; a dashed bar repeats or sums up other spans."
    st.html(parts.heading("Step by step", about))
    st.html(trace_sections.legend(frame.ink()))
    st.altair_chart(waterfall.chart(rows, frame.ink()), key="waterfall")
    shown = min(rows.height, waterfall.MOST)
    if trace.found > shown:
        st.html(parts.remark(f"The first {figures.count(shown)} of {figures.counted(trace.found, 'span')}."))
    if (wrong := rows.filter(pl.col("from_s").is_null()).height) > 0:
        st.html(parts.remark(f"{figures.counted(wrong, 'span')} with a clock that cannot be right: no bar."))
    frame.download(rows, f"trace-{trace.trace_id}", "waterfall")


def _decisions(trace: Trace) -> None:
    if not trace.decisions:
        if trace.head is not None:
            st.html(parts.heading("Decisions", "No model was called, so nothing was decided."))
        return
    about = "What could have been done, what was, and what the policy would do."
    if trace.decisions[0].near:
        about += (
            f" Expected are means of the {NEAREST} most similar logged decisions of each candidate, with intervals of "
            "the kind assumption: that what looks alike is alike."
        )
    several = len(trace.decisions) > 1
    st.html(parts.heading("Decisions" if several else "The decision", about))
    if not several:
        _decision(trace.decisions[0], None)
        return
    first = next((one.step for one in trace.decisions if one.changed), 0)
    for one in trace.decisions:
        done, other = one.today, one.explained.action if one.explained else None
        arrow = f" → {other}" if one.changed else ""
        label = parts.plain(trace_sections.cut(f"{one.step + 1}. {done}{arrow}", 160))
        with st.expander(label, expanded=one.step == first, key=f"decision-{one.step}"):
            _decision(one, one.step + 1)


def _decision(one: Decided, number: int | None) -> None:
    st.html(trace_sections.decision(one, number))
    st.html(trace_sections.candidates(one))


@st.fragment
def _texts(trace: Trace) -> None:
    calls = trace.calls.filter(pl.col("content_span_id").is_not_null())
    st.html(parts.heading("Messages", "What was asked and answered at one step, as it was sent."))
    if not access.may("content"):
        st.html(parts.remark(HIDDEN))
        return
    if calls.is_empty():
        st.html(parts.remark("No step of it recorded its messages."))
        return
    rows = {row["span_id"]: row for row in calls.head(STEPS).iter_rows(named=True)}
    names = {span: f"{i}. {trace_sections.cut(_named(row), 90)}" for i, (span, row) in enumerate(rows.items(), start=1)}
    models = [span for span, row in rows.items() if row["kind"] == "llm"]
    wanted = frame.kept("step", models[0] if models else next(iter(rows)), list(rows))
    st.session_state["traces-step"] = wanted
    st.selectbox("Step", list(rows), key="traces-step", format_func=lambda span: names[span], on_change=_stepped)
    found = trace_data.texts(rows[wanted])
    for title, key in (("Sent", "input_text"), ("Received", "output_text"), ("Tools offered", "tools")):
        _messages(title, messages.read(found[key]), f"{wanted}-{key}")


def _named(row: Mapping[str, Any]) -> str:
    what = row["model_returned"] or row["model_requested"] or row["tool"] or row["agent"]
    return f"{row['name'] or row['kind']}" + (f" ({what})" if what and what not in (row["name"] or "") else "")


def _stepped() -> None:
    frame.keep("step", st.session_state.get("traces-step"))


def _messages(title: str, found: list[messages.Message], key: str) -> None:
    if not found:
        return
    st.html(f'<p class="rr rr-eyebrow">{title}</p>')
    shown, left = messages.few(found)
    whole = bool(st.session_state.get(f"whole-{key}"))
    for place, one in enumerate(shown):
        if left and place == 2:
            st.html(parts.remark(f"{figures.counted(left, 'message')} left out."))
        st.html(trace_sections.message(one, whole=whole))
    if not whole and any(len(one.text) > messages.CUT for one in shown):
        st.button("Show more", key=f"more-{key}", on_click=_whole, args=(f"whole-{key}",))


def _whole(key: str) -> None:
    st.session_state[key] = True


def _scores(trace: Trace) -> None:
    st.html(parts.heading("Scores", "How good it was, and who says so."))
    if trace.scores.is_empty():
        st.html(parts.remark("Nobody has scored it yet."))
        return
    hidden = trace.scores if access.may("content") else trace.scores.with_columns(explanation=pl.lit(None, pl.String))
    st.html(trace_sections.scores(hidden))


def _session(trace: Trace) -> None:
    if trace.session.height < 2:
        return
    head = cast(Mapping[str, Any], trace.head)
    st.html(parts.heading("Its session", f"{head['session_id']}, {figures.counted(trace.session.height, 'trace')}."))
    address = functools.partial(_link, Asked(service=head["service"]))
    st.html(trace_sections.session(trace.session, trace.trace_id, address))
