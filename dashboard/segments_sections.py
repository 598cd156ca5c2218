"""What the page on segments says, as sentences and tables. Pure; every text from outside is escaped."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from html import escape

from dashboard import figures
from dashboard.parts import figure, remark, table
from dashboard.records import Point, ServiceVerdict
from dashboard.segments_charts import WORDS
from dashboard.segments_data import Found, Previous, Segment, Worst, losing

Link = Callable[..., str]


def answer(found: Found) -> str:
    """Who gains and who loses, in two sentences."""
    if found.refused:
        return f"Nothing can be said by segment: {figures.sentence(found.refused)}"
    worse, better = losing(found), [one for one in found.segments if one.quality_flag == "better"]
    total = len(found.segments)
    if not total:
        return "No part of the decisions is large enough to be looked at by itself."
    if all(one.quality.refused for one in found.segments):
        reason = figures.sentence(found.segments[0].quality.reason)
        return f"No segment can be judged alone. {found.segments[0].title}: {reason}"
    limit = figures.points(-found.margin)
    lost = (
        f"Quality falls past the limit of {limit} in {_named(worse)}."
        if worse
        else f"No segment loses quality past the limit of {limit}, as far as {_whole(found)} shows."
    )
    won = f" It clearly rises in {len(better)} of {figures.counted(total, 'segment')}." if better else ""
    return lost + won


def _named(segments: Sequence[Segment]) -> str:
    names = [one.title for one in segments[:3]]
    more = len(segments) - len(names)
    return f"{'; '.join(names)}{f' and {more} more' if more else ''}"


def _whole(found: Found) -> str:
    unsure = sum(one.quality_flag in ("unclear", "refused") for one in found.segments)
    return "the log" if not unsure else f"the log ({unsure} of {len(found.segments)} are not clear)"


def method(found: Found) -> str:
    """How the intervals allow for there being many."""
    return (
        f"All {found.intervals} intervals hold together at {figures.share(found.confidence)}: each is a "
        f"{100 * found.each:.2f}% interval (Bonferroni). Orange: the whole interval is past the limit; green: all of "
        "it is a gain. Dotted: all decisions."
    )


def small(found: Found) -> str:
    names = ", ".join(f"{name} ({count})" for name, count in found.small)
    return f"Too few decisions to be looked at alone: {names}."


def grid(segments: Sequence[Segment]) -> str:
    """A row a segment: decisions, how many change, quality and saving with what they mean."""
    body = "".join(
        f'<tr data-segment="{escape(one.title)}"><th scope="row">{escape(one.name)}'
        f'<span class="rr-note">{escape(one.dimension)}</span></th>'
        f'<td>{figures.count(one.decisions)}<span class="rr-note">{figures.share(one.changed)} changed</span></td>'
        f"<td>{figure(one.saving, 'usd_change', 'savings_usd_per_1k')}"
        f"{_flag(one.cost_flag, 'saves', 'costs more')}</td>"
        f"<td>{figure(one.quality, 'quality_change', 'quality_change')}"
        f"{_flag(one.quality_flag, 'gains', 'past the limit')}</td>"
        "</tr>"
        for one in segments
    )
    head = "<th>Segment</th><th>Decisions</th><th>Saving per 1,000</th><th>Quality</th>"
    return (
        f'<div class="rr rr-scroll" data-table="segments"><table class="rr-grid"><thead><tr>{head}</tr></thead>'
        f"<tbody>{body}</tbody></table></div>"
    )


def _flag(flag: str, better: str, worse: str) -> str:
    word = {"better": better, "worse": worse}.get(flag, WORDS[flag])
    if flag == "refused":
        return ""
    tone = {"better": " rr-came-holds", "worse": " rr-came-fails"}.get(flag, "")
    return f'<span class="rr-came{tone}">{word}</span>'


def fidelity(point: Point) -> str:
    """How far the rules are the policy."""
    if point.rules is None:
        return "Nothing is suggested here, so there are no rules."
    agrees = figures.share(point.rules.fidelity)
    return f"A tree of few rules, for people to read; the policy itself chooses so in {agrees} of decisions."


def difference(found: Previous) -> str:
    """What changed since the version before, in sentences."""
    which = "the policy in force" if found.in_force else "the newest earlier policy"
    told = f"Beside run {found.run_id}, {which}."
    told += f" New among its choices: {', '.join(found.new)}." if found.new else ""
    told += f" No longer among them: {', '.join(found.gone)}." if found.gone else ""
    if found.refused:
        return f"{told} They cannot be compared decision by decision: {figures.sentence(found.refused)}"
    if found.agreement is not None:
        told += f" Both choose the same in {figures.share(found.agreement)} of the decisions that judge."
    if found.moved is not None:
        told += f" {figures.share(found.moved)} of decisions would move."
    return told


def shares(found: Previous) -> str:
    """Each action's share under both versions."""
    rows = [
        [one.action, figures.share(one.before), figures.share(one.after), _moved(one.after - one.before)]
        for one in sorted(found.shares, key=lambda one: (-abs(one.after - one.before), one.action))
    ]
    return table(["Action", "Before", "Now", "Change"], rows, numbers=3, label="versions")


def _moved(by: float) -> str:
    points = round(100 * by, 1)
    return "none" if not points else f"{'+' if points > 0 else '−'}{abs(points):g}\u00a0points"


def worth(found: Previous) -> str:
    """What the new version changes against the one before."""
    return (
        '<div class="rr rr-point"><p class="rr-note">Against the version before: saving per 1,000, and quality</p>'
        f"{figure(found.saving, 'usd_change', 'version_savings_usd_per_1k')} "
        f"{figure(found.quality, 'quality_change', 'version_quality_change')}</div>"
    )


def rules_changed(verdict: ServiceVerdict, found: Previous) -> str:
    """The rules of both versions that are not in both."""
    now = {(row.said, row.action) for point in verdict.points if point.rules for row in point.rules.rows}
    before = {(row.said, row.action) for row in found.rules}
    rows = [["gone", figures.capital(said), action] for said, action in sorted(before - now)]
    rows += [["new", figures.capital(said), action] for said, action in sorted(now - before)]
    if not rows:
        return remark("The rules in words are the same in both.")
    return table(["Rule", "Prompts with", "Suggested"], rows, label="rules-diff")


def worst(
    rows: Sequence[Worst],
    service: str,
    prompts: Mapping[str, str] | None,
    link: Link,
    own: Callable[[str], str | None],
) -> str:
    """The worst decisions by the model's expectation, each with its trace; prompts None: not shown. own: the trace in
    the user's own viewer."""
    titles = ["Trace", "When", "Mostly today", "Suggested", "Quality today", "Quality then", "Fall"]
    body = "".join(
        f'<tr><td class="rr-text"><a href="{escape(link("traces", service=service, trace=one.trace_id))}" '
        f'target="_self">{escape(one.trace_id[:12])}</a>{_own(one, own)}{_prompt(one, prompts)}</td>'
        + "".join(
            f'<td class="rr-text">{escape(text)}</td>'
            for text in (figures.window(one.time_ns, one.time_ns), one.today, one.suggested)
        )
        + "".join(f'<td class="rr-number">{text}</td>' for text in _falls(one))
        + "</tr>"
        for one in rows
    )
    head = "".join(
        f'<th class="{"rr-number" if place > 3 else "rr-text"}">{title}</th>' for place, title in enumerate(titles)
    )
    return (
        f'<div class="rr rr-scroll" data-table="worst"><table class="rr-plain"><thead><tr>{head}</tr></thead>'
        f"<tbody>{body}</tbody></table></div>"
    )


def _own(one: Worst, own: Callable[[str], str | None]) -> str:
    url = own(one.trace_id)
    return "" if url is None else f' <a href="{escape(url)}" target="_blank" rel="noopener">your viewer</a>'


def _falls(one: Worst) -> tuple[str, str, str]:
    fall = 100 * (one.quality - one.quality_today)
    return (f"{100 * one.quality_today:.0f}%", f"{100 * one.quality:.0f}%", f"−{abs(fall):.1f}\u00a0points")


def _prompt(one: Worst, prompts: Mapping[str, str] | None) -> str:
    if prompts is None:
        return ""
    text = prompts.get(one.trace_id, "no prompt recorded")
    return f'<span class="rr-note rr-prompt">{escape(text)}</span>'


def changed_link(service: str, link: Link) -> str:
    """The way to the decisions that the suggestion makes otherwise."""
    href = escape(link("traces", service=service, decision="changed"))
    return f'<p class="rr rr-remark"><a href="{href}" target="_self">The traces it would decide otherwise</a></p>'
