"""The spans of one trace -> its real steps, each once. Pure, and blind to the order in which spans arrived.

    trace_tree    who is below whom
    sights        which spans are steps, which only repeat others
    twins         calls recorded apart, with the context between lost
    retries       which steps are attempts of one
    inheritance   sessions, users, agents and decisions from above

A step's row has the innermost span's tokens and time; whichever of its spans has texts gives the content.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter

from ingest.dialects.facts import LlmFacts
from ingest.inheritance import POLICY, Inherited, inherited
from ingest.pricing import Cost, Prices, usage_of
from ingest.records import record
from ingest.retries import Attempt, attempts
from ingest.sights import MODEL_KINDS, Role, SpanRole, roles
from ingest.trace_tree import TraceSpan, Tree

__all__ = ["Call", "Role", "Settled", "SpanRole", "TraceSpan", "settle"]

_INPUT = (
    *("input_tokens", "cache_read_tokens", "cache_write_tokens", "cache_write_1h_tokens"),
    *("input_audio_tokens", "input_image_tokens", "usage_rule"),
)
_OUTPUT = ("output_tokens", "reasoning_tokens", "output_audio_tokens", "output_image_tokens")
_NOT_SHARED = frozenset({*POLICY, "error_type"})
_FIELDS = tuple(LlmFacts.__dataclass_fields__)
_PLACE = {name: place for place, name in enumerate(_FIELDS)}
_SHARED_PLACES = tuple(place for name, place in _PLACE.items() if name not in _NOT_SHARED)
_values_of = attrgetter(*_FIELDS)


@record
class Call:
    """A row of `calls`. `facts` are the step's own, with what it inherits. None: unknown."""

    span_id: str
    parent_call_id: str | None
    name: str
    service: str
    facts: LlmFacts
    status: str | None
    start_ns: int | None
    end_ns: int | None
    attempts: int | None
    """Which attempt of its step this is, from 1, so for the last one their number; None without a prompt to compare."""
    attempt_of: str | None
    """For an attempt that was tried again: the last attempt. None: this is the last, or the only one."""
    content_span_id: str
    content_trace_id: str | None
    """None: the call's own trace."""
    input_chars: int
    output_chars: int
    """Of the texts of the span `content_span_id`."""
    scope: str | None
    scope_version: str | None
    cost: Cost


@dataclass(frozen=True, slots=True)
class Settled:
    """A settled trace. `service` and `name` are those of its earliest root, `session_id` the one session in it, if
    there is one; `start_ns` and `end_ns` the first start and last end of its spans, if they are known."""

    service: str | None
    name: str | None
    session_id: str | None
    start_ns: int | None
    end_ns: int | None
    calls: tuple[Call, ...]
    roles: tuple[SpanRole, ...]


def settle(
    spans: Iterable[TraceSpan],
    prices: Prices,
    elsewhere: Mapping[str, str] | None = None,
    visitors: Iterable[tuple[TraceSpan, str]] = (),
) -> Settled:
    """The steps of one trace, ordered by start and id. Spans have distinct ids; parents may be missing.

    `elsewhere`: span of this trace -> the span, of this or another one, that shows the same call and has its row.
    `visitors`: spans of other traces, each with the span here that shows the same call.
    """
    tree = Tree(spans)
    found = roles(tree, elsewhere)
    sights: dict[str, list[str]] = {}
    for role in found.values():
        if role.call_id in tree.spans:
            sights.setdefault(role.call_id, []).append(role.span_id)
    visits: dict[str, list[TraceSpan]] = {}
    for visitor, host in sorted(visitors, key=lambda visit: (visit[0].start_ns, visit[0].trace_id, visit[0].span_id)):
        if host in found and (call_id := found[host].call_id):
            visits.setdefault(call_id, []).append(visitor)
    tried = attempts(tree, {call_id: shown for call_id, shown in sights.items() if found[call_id].role == "own"})
    from_above = inherited(tree, sights)
    calls = []
    for span in tree.order:
        if (shown := sights.get(call_id := span.span_id)) is None:
            continue
        others: Sequence[TraceSpan] = visits.get(call_id, ())
        if len(shown) > 1:
            outer = (tree.spans[s] for s in shown if s != call_id)
            others = [*others, *sorted(outer, key=lambda s: (-tree.depth[s.span_id], s.span_id))]
        calls.append(_call(span, others, found[call_id].role, from_above[call_id], tried.get(call_id), prices))
    for call in calls:
        if call.attempt_of is not None:
            found[call.span_id] = SpanRole(call.span_id, "attempt", call.span_id)
    sessions = {span.facts.session_id for span in tree.order} - {None}
    return Settled(
        tree.roots[0].service if tree.roots else None,
        tree.roots[0].name if tree.roots else None,
        sessions.pop() if len(sessions) == 1 else None,
        next((span.start_ns for span in tree.order if span.start_ns), None),
        max((span.end_ns for span in tree.order), default=0) or None,
        tuple(calls),
        tuple(found[span_id] for span_id in sorted(found)),
    )


def _call(
    span: TraceSpan, others: Sequence[TraceSpan], role: Role, above: Inherited, attempt: Attempt | None, prices: Prices
) -> Call:
    half = None
    facts = span.facts
    if others:
        half = next((other for other in others if other.start_ns == other.end_ns >= span.end_ns), None)
        facts = _completed(half.facts, [span, *others]) if half else _completed(facts, others)
    facts = _placed(facts, role, above)
    counted = facts.kind in MODEL_KINDS or (role == "own" and (facts.input_tokens or facts.output_tokens))
    end_ns = half.end_ns if half else span.end_ns
    richest = max([span, *others], key=lambda s: (_told(s), s is span, s.span_id)) if others else span
    return Call(
        span.span_id,
        above.call_id,
        span.name,
        span.service,
        facts,
        _status(half or span, facts, others),
        span.start_ns or None,
        end_ns if end_ns and end_ns >= span.start_ns else None,
        attempt.number if attempt else None,
        attempt.last if attempt else None,
        richest.span_id,
        richest.trace_id if richest.trace_id != span.trace_id else None,
        richest.input_chars,
        richest.output_chars,
        span.scope,
        span.scope_version,
        _priced(facts, span, prices) if counted else Cost(None),
    )


def _placed(facts: LlmFacts, role: Role, above: Inherited) -> LlmFacts:
    """A step's facts with what comes from above, and without the tokens that only repeat those below."""
    from_above = (
        ("session_id", facts.session_id, above.session_id),
        ("user_id", facts.user_id, above.user_id),
        ("workflow", facts.workflow, above.workflow),
        ("agent", facts.agent, above.agent),
        ("tools_offered", facts.tools_offered, above.tools_offered if facts.kind == "llm" else None),
    )
    changes: dict[str, object] = {name: given for name, own, given in from_above if given and not own}
    if above.decision:
        changes.update(above.decision)
    if role == "roll-up":
        changes.update(dict.fromkeys((*_INPUT, *_OUTPUT, "reported_cost_usd")))
    return _changed(facts, changes) if changes else facts


def _changed(facts: LlmFacts, changes: Mapping[str, object]) -> LlmFacts:
    """What `dataclasses.replace` gives, which for so many fields takes ten times as long."""
    values = list(_values_of(facts))
    for name, value in changes.items():
        values[_PLACE[name]] = value
    return LlmFacts(*values)


def _told(span: TraceSpan) -> tuple[bool, int]:
    """How much a span tells: prompt and answer before one of the two, then by length."""
    return bool(span.input_chars and span.output_chars), span.input_chars + span.output_chars


def _completed(facts: LlmFacts, others: Sequence[TraceSpan]) -> LlmFacts:
    """The innermost sight's facts; what it does not say comes from the other sights of the call, the nearest first.

    Counts of input and of output each come from one sight where one's parts do not fit into another's total.
    """
    values = list(_values_of(facts))
    told = False
    for other in others:
        theirs = _values_of(other.facts)
        for place in _SHARED_PLACES:
            if values[place] is None and theirs[place] is not None:
                values[place] = theirs[place]
                told = True
    if not told:
        return facts
    whole = LlmFacts(*values)
    cached = (whole.cache_read_tokens or 0) + (whole.cache_write_tokens or 0)
    if whole.input_tokens is not None and cached > whole.input_tokens:
        whole = _counts_of_one(whole, [facts, *(other.facts for other in others)], _INPUT)
    if whole.output_tokens is not None and (whole.reasoning_tokens or 0) > whole.output_tokens:
        whole = _counts_of_one(whole, [facts, *(other.facts for other in others)], _OUTPUT)
    return whole


def _counts_of_one(whole: LlmFacts, sights: Sequence[LlmFacts], names: Sequence[str]) -> LlmFacts:
    fullest = max(sights, key=lambda facts: getattr(facts, names[0]) or 0)
    return _changed(whole, {name: getattr(fullest, name) for name in names})


def _status(span: TraceSpan, facts: LlmFacts, others: Sequence[TraceSpan]) -> str | None:
    """OTLP leaves the status of what went well unset; only a span that never ended has none.

    A call that has no answer failed if any of its sights says so.
    """
    if span.status == "error" or facts.error_type:
        return "error"
    if span.usage == (None, None) and span.status is None and any(other.failed for other in others):
        return "error"
    return "ok" if span.status == "ok" or span.end_ns else None


def _priced(facts: LlmFacts, span: TraceSpan, prices: Prices) -> Cost:
    if facts.input_tokens is None and not facts.output_tokens and (span.failed or facts.error_type):
        return Cost(None, "failed without usage")
    return prices.cost(usage_of(facts, span.start_ns or None))
