"""Rollout and export: take a policy away, bring it into production in stages, watch it, go back."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import streamlit as st

from dashboard import access, charts, data, exports, figures, parts, rollout_charts, rollout_data, rollout_sections
from dashboard.records import ServiceVerdict
from dashboard.rollout_data import Change
from dashboard.views import frame
from ingest.errors import AppError
from optimizer import rollout as stages
from optimizer.rollout.state import Rollout

TITLE, NOTE = "Rollout and export", "Ship a policy in stages, watch both arms, go back."
REFRESH_S = 30
SHOWN = 10
"""Rows of a list before the rest is only counted."""
LEVEL = (
    "Anytime-valid intervals hold at every look at once, all three together, so looking often costs nothing. "
    "They are wider than an interval for one look."
)


@frame.page
def page() -> None:
    runs = data.runs()
    verdicts = frame.newest(runs)
    if not verdicts:
        st.html(parts.page_title(TITLE, NOTE))
        frame.problems(runs)
        frame.no_runs()
        return
    found = frame.filters("rollout", list(verdicts), every=False, runs=[run.run_id for run in runs if run.services])
    frame.problems(runs)
    service = found.service or next(iter(verdicts))
    _watched(service, verdicts[service])
    own = [(run.services[service], run.created_at) for run in runs if service in run.services]
    chosen = next((verdict for verdict, _ in own if verdict.run_id == found.run_id), None)
    if found.run_id is not None and chosen is None:
        st.html(parts.notice(f"Run {found.run_id} says nothing about {service}; this is its newest policy."))
    _exports(chosen or verdicts[service])
    _policies(service, own)


@st.fragment(run_every=REFRESH_S)
@frame.page
def _watched(service: str, verdict: ServiceVerdict) -> None:
    """The rollout itself, drawn anew while it goes on."""
    try:
        rollout = data.rollout(service)
    except AppError as error:
        st.html(parts.empty("This rollout cannot be read", f"{error.message} {error.hint}".strip()))
        return
    st.html(rollout_sections.head(service, rollout))
    if rollout is not None:
        _seen(rollout)
    _act(service, rollout, verdict)


def _seen(rollout: Rollout) -> None:
    changes = rollout_data.changes(rollout)
    st.html(parts.heading("Predicted beside seen", f"The policy against today's routing. {LEVEL}"))
    for column, change in zip(st.columns(3, border=True, gap="medium"), changes, strict=True):
        with column:
            st.html(rollout_sections.change(change))
            _beside(change)
    monitor = rollout.monitor
    if monitor is None:
        st.html(
            parts.remark("Nobody looked yet: `retroute rollout watch` compares the arms, and goes back if it must.")
        )
        return
    st.html(parts.heading("The arms", rollout_sections.ratio(monitor["ratio"])))
    st.html(rollout_sections.arms(monitor))
    told = f"Look {figures.count(monitor['looks'])}, {figures.date(monitor['at'])}."
    st.html(
        parts.remark(f"{told} {rollout_sections.shadow(monitor['shadow']) if monitor.get('shadow') else ''}".strip())
    )
    _timelines(rollout, changes)


def _beside(change: Change) -> None:
    found = [("Predicted", change.predicted), ("Seen", change.axis.figure)]
    if not all(one.refused for _, one in found):
        st.altair_chart(charts.forest(found, change.axis, frame.ink()), key=f"beside-{change.axis.name}")


def _timelines(rollout: Rollout, changes: Sequence[Change]) -> None:
    looks = [
        (rollout_data.timeline(rollout, metric), change)
        for metric, change in zip(rollout_data.METRICS, changes, strict=True)
    ]
    if not any(frame_of.height > 1 for frame_of, _ in looks):
        return
    st.html(parts.heading("How it went", "What was known at each look; the dashed line is the limit."))
    begun = rollout_data.steps(rollout)
    for column, (frame_of, change) in zip(st.columns(3, gap="medium"), looks, strict=True):
        with column:
            if frame_of.height > 1:
                chart = rollout_charts.timeline(frame_of, begun, change, frame.ink())
                st.altair_chart(chart, key=f"timeline-{change.axis.name}")


# ---- actions


def _act(service: str, rollout: Rollout | None, verdict: ServiceVerdict) -> None:
    st.html(parts.heading("Next step", "Each writes a new revision of the bundle that routers load, and a line below."))
    if said := st.session_state.pop("acted", None):
        st.html(parts.notice(said))
    choices = _choices(rollout, verdict)
    if not choices:
        st.html(parts.remark("Nothing can be rolled out: no policy of this service has the verdict Deploy."))
        return
    if not access.may("operate"):
        who = "`operators` in [dashboard] of retroute.toml names who may; here you only read. On the command line:"
        st.html(parts.remark(who))
        st.html(parts.commands([f"retroute rollout {name} --service {service} --why ..." for name in choices]))
        return
    with st.form(f"act-{service}", border=False):
        why = st.text_input("Reason, for the log", max_chars=300, key=f"why-{service}")
        with st.container(horizontal=True):
            for name, label in choices.items():
                kind: Any = "secondary" if name == "rollback" else "primary"
                if st.form_submit_button(label, type=kind, key=f"{name}-{service}"):
                    _do(name, service, why)


def _choices(rollout: Rollout | None, verdict: ServiceVerdict) -> dict[str, str]:
    """What can be done now: the action's name on the command line -> the button's words."""
    stage = "none" if rollout is None else rollout.stage
    found = {}
    if rollout is not None and stage in ("shadow", "canary"):
        ahead = next(step for step in stages.stages.LADDER if step > rollout.percent)
        found["advance"] = f"Go on to {ahead:g}%"
    elif verdict.outcome == "deploy" and (rollout is None or rollout.run_id != verdict.run_id or stage != "full"):
        found["start"] = "Start in shadow"
    if rollout is not None and (rollout.under_way or rollout.killed):
        found["rollback"] = "Roll back"
    return found


def _do(name: str, service: str, why: str) -> None:
    """An operator's action, in their name; what came of it is said on the next run of the page."""
    by = access.who()
    if by is None or not access.may("operate"):
        st.session_state["acted"] = "You may not do that."
    elif not why.strip():
        st.session_state["acted"] = "Say why first: the reason goes into the log."
    else:
        known: dict[str, Callable[..., stages.Done]]
        known = {"start": stages.start, "advance": stages.advance, "rollback": stages.rollback}
        try:
            done = known[name](data.home(), service, by=by, why=why.strip())
            st.session_state["acted"] = " ".join(["Done.", *(figures.sentence(note) for note in done.notes)])
        except AppError as error:
            st.session_state["acted"] = f"{figures.capital(error.message)}. {error.hint}".strip()
    st.rerun()


# ---- what can be taken away


def _exports(verdict: ServiceVerdict) -> None:
    manifest = data.policy_manifest(verdict)
    about = f"Of run {verdict.run_id}, {figures.said(verdict.savings, 'usd_change').value} per 1,000 decisions."
    st.html(parts.heading("Take it away", about if manifest else ""))
    if manifest is None:
        st.html(parts.remark(f"Run {verdict.run_id} suggests no policy for {verdict.service}."))
        return
    for bundle in exports.BUNDLES:
        with st.container(border=True, key=f"bundle-{bundle.target}"):
            told, button = st.columns([7, 2], vertical_alignment="center")
            told.html(parts.choice(bundle.title, bundle.about))
            why_not = exports.unfit(bundle.target, manifest, verdict.service, verdict.outcome)
            with button:
                if why_not:
                    st.html(parts.remark(why_not))
                else:
                    _bundle(bundle, verdict)


@st.fragment
def _bundle(bundle: exports.Bundle, verdict: ServiceVerdict) -> None:
    """A button that makes the bundle, then the one that gives it."""
    key = f"{bundle.target}-{verdict.service}-{verdict.run_id}"
    if not st.session_state.get(f"made-{key}"):
        about = f"Write the bundle for {bundle.title}"
        st.button("Make", key=f"make-{key}", help=about, on_click=_wanted, args=(key,), width="stretch")
        return
    made = data.bundle(verdict, bundle.target)
    if isinstance(made, str):
        st.html(parts.remark(made))
        return
    st.download_button(
        "Download",
        made.content,
        file_name=f"{verdict.service}-{verdict.run_id}-{bundle.target}.zip",
        mime="application/zip",
        key=f"take-{key}",
        icon=":material/download:",
        help=f"The bundle for {bundle.title} as a zip",
        on_click="ignore",
        width="stretch",
    )
    for note in made.notes:
        st.html(parts.remark(note))


def _wanted(key: str) -> None:
    st.session_state[f"made-{key}"] = True


# ---- what was so far


def _policies(service: str, own: Sequence[tuple[ServiceVerdict, str]]) -> None:
    st.html(parts.heading("Policies so far", "Every run keeps its policy, with what was promised of it then."))
    log = [one for one in data.actions() if one.get("service") == service]
    revisions = {str(one.get("version")): one.get("revision") for one in reversed(log)}
    st.html(rollout_sections.policies(own[:SHOWN], data.active().get(service), revisions))
    _more(len(own))
    _past(service)
    st.html(parts.heading("What was done", "Every step of every rollout, by whom and why; kept in rollouts/log.jsonl."))
    if not log:
        st.html(parts.remark("Nothing yet."))
        return
    st.html(rollout_sections.log(log[:SHOWN]))
    _more(len(log))


def _past(service: str) -> None:
    try:
        rollout = data.rollout(service)
    except AppError:
        return  # said above
    history: Sequence[Mapping[str, Any]] = () if rollout is None else rollout.history
    if history:
        st.html(parts.heading("Earlier rollouts", "What was predicted, and what came out."))
        st.html(rollout_sections.past(history[-SHOWN:]))


def _more(count: int) -> None:
    if count > SHOWN:
        st.html(parts.remark(f"And {figures.count(count - SHOWN)} more."))
