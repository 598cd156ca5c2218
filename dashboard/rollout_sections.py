"""Sections of the page on rollouts, as HTML. Pure; every text from outside is escaped."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from dashboard import figures, rollout_data, words
from dashboard.parts import figure, table
from dashboard.records import ServiceVerdict
from dashboard.rollout_data import Change
from optimizer.rollout.state import Rollout

Json = Mapping[str, Any]


def head(service: str, rollout: Rollout | None) -> str:
    """Where the policy stands on its way: the stage, what serves whom, since when and why."""
    name = "none" if rollout is None else rollout.stage
    title = rollout_data.STAGES[name]
    if rollout is not None and name == "canary":
        title = f"A canary of {rollout.percent:g}%"
    lines = "".join(f'<p class="rr-lead">{escape(line)}</p>' for line in _told(rollout))
    return (
        f'<section class="rr rr-stage" data-service="{escape(service)}" data-stage="{escape(name)}">'
        f'<p class="rr-eyebrow">{escape(service)}</p><h1>{escape(title)}</h1>{lines}{_ladder(rollout)}</section>'
    )


def _told(rollout: Rollout | None) -> list[str]:
    if rollout is None:
        return ["No policy of this service was rolled out yet. Shadow comes first: it decides, and serves nobody."]
    restored = f"version {rollout.restored}" if rollout.restored else "the incumbent alone"
    who = {
        "shadow": "Today's routing serves everyone; the policy only says what it would have done.",
        "canary": f"The policy serves {rollout.percent:g}% of sessions, today's routing the others.",
        "full": "The policy serves everyone.",
        "rolled_back": f"In force again: {restored}.",
        "none": "",
    }[rollout.stage]
    last = rollout.steps[-1] if rollout.steps else None
    by = f", by {last.by}{f': {figures.sentence(last.why)}' if last.why else ''}" if last else ""
    since = f"Version {rollout.version}, revision {rollout.revision}, since {figures.date(rollout.since)}{by}"
    return [who, figures.sentence(since)]


def _ladder(rollout: Rollout | None) -> str:
    """The stages from shadow to full, and which of them is now."""
    at = -1.0 if rollout is None or not rollout.under_way else rollout.percent
    steps = [("Shadow", 0.0), *((f"{step}%", float(step)) for step in rollout_data.LADDER if step)]
    now = max((share for _, share in steps if share <= at), default=None)
    looks = ['rr-now" aria-current="step' if share == now else "rr-past" if share < at else "" for _, share in steps]
    items = "".join(f'<li class="{look}">{name}</li>' for look, (name, _) in zip(looks, steps, strict=True))
    return f'<ol class="rr-ladder">{items}</ol>'


def change(found: Change) -> str:
    """What is seen of a metric, where it lies, and what was predicted."""
    said = figures.said(found.predicted, found.axis.unit)
    ahead = f"Predicted {said.value} ({said.interval})." if said.interval else "Not predicted."
    doubt = "" if found.alike else " Not known of both arms alike, so the difference may come of that."
    state = " rr-crossed" if found.crossed else ""
    return (
        f'<div class="rr rr-metric{state}"><p class="rr-eyebrow">{escape(found.axis.title)}</p>'
        f'<p class="rr-note">{escape(found.axis.note)}</p>'
        f"{figure(found.axis.figure, found.axis.unit, found.axis.name)}"
        f'<p class="rr-status">{escape(found.axis.status + doubt)}</p><p class="rr-note">{escape(ahead)}</p></div>'
    )


def arms(monitor: Json) -> str:
    """Who got what so far: the two arms side by side."""
    unit = str(monitor.get("unit") or "session")
    head = ["Arm", f"{figures.capital(unit)}s", "Decisions", "Scored", "Cost per 1,000", "Quality", "Latency"]
    names = {"treatment": "The policy", "control": "Today's routing"}
    rows = [
        [
            names.get(name, name),
            figures.count(arm.get("units")),
            figures.count(arm.get("decisions")),
            figures.share(arm.get("scored")),
            *_means(arm),
        ]
        for name, arm in monitor["arms"].items()
    ]
    return table(head, rows, numbers=len(head) - 1, label="arms")


def _means(arm: Json) -> list[str]:
    cost, quality, latency = (arm.get(name) for name in ("cost_usd_per_1k", "quality", "latency_s"))
    return [
        "unknown" if cost is None else f"${cost:,.4g}",
        "unknown" if quality is None else f"{100 * quality:.1f}%",
        "unknown" if latency is None else f"{latency:.2f}\u00a0s",
    ]


def ratio(said: Json) -> str:
    """Whether sessions fell into the arms as they were drawn, in words."""
    if said.get("seen") is None:
        return "No session was seen in an arm yet."
    shares = f"{100 * said['seen']:.1f}% under the policy where {100 * said['expected']:.1f}% were drawn"
    if said.get("ok"):
        return f"The arms are as drawn: {shares}."
    return (
        f"The arms are not as drawn: {shares} (p {said['p_anytime']:.2g}). Something loses sessions of one arm, "
        "and no figure here can be believed until that is found."
    )


def shadow(said: Json) -> str:
    """What the policy would have done where today's routing acted."""
    share = figures.share(said["changed"] / said["decisions"]) if said.get("decisions") else "none"
    return (
        f"Beside {figures.counted(said.get('decisions'), 'decision')} of today's routing "
        f"the policy said what it would have done: something else in {share} of them."
    )


def policies(rows: Sequence[tuple[ServiceVerdict, str]], active: str | None, newest: Json) -> str:
    """Every policy so far: when it was made, how it was judged, what it promised, whether it is in use."""
    head = ["Made", "Version", "Verdict", "Saving per 1,000", "Quality", "Latency", "State"]
    return table(head, [_policy(verdict, made, active, newest) for verdict, made in rows], label="policies")


def _policy(verdict: ServiceVerdict, made: str, active: str | None, revisions: Json) -> list[str]:
    def said(one: Any, unit: Any) -> str:
        return "not estimated" if one.refused else f"{figures.said(one, unit).value}{figures.interval(one, unit)}"

    state = "in use" if verdict.run_id == active else "no policy" if verdict.policy_id is None else ""
    if verdict.run_id in revisions:
        state = f"{state}, revision {revisions[verdict.run_id]}".removeprefix(", ")
    return [
        figures.date(made),
        verdict.run_id,
        words.VERDICTS[verdict.outcome],
        said(verdict.savings, "usd_change"),
        said(verdict.quality, "quality_change"),
        said(verdict.latency, "seconds_change"),
        state,
    ]


def past(history: Sequence[Json]) -> str:
    """Earlier rollouts: how far they got, and what was predicted beside what came out."""
    head = ["Rollout", "Version", "Ended as", "Metric", "Predicted", "Realised"]
    return table(head, [row for one in reversed(history) for row in _past(one)], label="past")


def _past(one: Json) -> list[list[str]]:
    stage = rollout_data.STAGES.get(one.get("stage", "none"), str(one.get("stage")))
    when = f"{figures.date(str(one.get('from')))} to {figures.date(str(one.get('to')))}"
    rows = []
    for k, found in enumerate(rollout_data.beside(one.get("predicted") or {}, list(one.get("realised") or ()))):
        cells = [_said(figure, found) for figure in (found.predicted, found.axis.figure)]
        first = [when, str(one.get("version")), f"{stage}, {one.get('percent', 0):g}%"] if k == 0 else ["", "", ""]
        rows.append([*first, found.axis.brief, *cells])
    return rows


def _said(one: Any, found: Change) -> str:
    if one.refused:
        return f"unknown: {one.reason}"
    return f"{figures.said(one, found.axis.unit).value}{figures.interval(one, found.axis.unit)}"


def log(lines: Sequence[Json]) -> str:
    """Who did what, when and why, newest first."""
    head = ["When", "Who", "What", "To", "Why"]
    rows = [
        [
            figures.date(str(one.get("at"))),
            str(one.get("by") or "unknown"),
            str(one.get("action")),
            f"{one.get('stage')}, {one.get('percent')}%, revision {one.get('revision')}",
            str(one.get("why") or ""),
        ]
        for one in lines
    ]
    return table(head, rows, label="log")
