"""Model calls that were recorded apart: twice, with the context between the two lost, or in two halves. Pure.

Two instrumentations that do not see each other's span record one call as two, often in traces of their own. They are
twins when they come of different instrumentations of one service, one lasts within the other, they agree on the model
and on all that both tell - response id, counts, prompt - and agree on at least one of these, or both failed.

A half is a moment that tells a stream's answer, apart from the span that began the stream with the same prompt.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from ingest.sights import MODEL_KINDS
from ingest.trace_tree import TraceSpan

Place = tuple[str, str]
"""Trace id and span id."""

LATEST_NS = 3600 * 10**9
"""How long a call may last, and a stream may wait for its reader."""

_SLACK_NS = 2_000_000
"""Clocks of milliseconds round a span beyond the one around it."""

_NEAREST = 32
"""Of the spans with the same counts at one time so many are compared."""


@dataclass(frozen=True, slots=True, order=True)
class _Match:
    weakness: int
    slack_ns: int
    one: Place
    other: Place


def twins(spans: Iterable[TraceSpan]) -> dict[Place, Place]:
    """Span -> the span in whose trace its call has its row. `spans` may be of several traces; their order is no matter.

    The row is where there is more around the call: below another span, else where it lasts longer.
    """
    calls = sorted(
        (span for span in spans if span.facts.kind in MODEL_KINDS and not span.logged),
        key=lambda span: (span.start_ns, span.trace_id, span.span_id),
    )
    groups: dict[Place, list[TraceSpan]] = {_place(span): [span] for span in calls}
    found = dict(_halves(calls))
    by_place = {_place(span): span for span in calls}
    for match in sorted(_matches([span for span in calls if _place(span) not in found])):
        one, other = groups[match.one], groups[match.other]
        if one is other or {span.scope for span in one} & {span.scope for span in other}:
            continue  # an instrumentation records a call once
        if not all(_may_be_one(a, b) for a in one for b in other):
            continue
        one.extend(other)
        for span in other:
            groups[_place(span)] = one
    for group in {id(group): group for group in groups.values()}.values():
        owner = max(group, key=_context)
        found.update({_place(span): _place(owner) for span in group if span is not owner})
    return {place: _end(found, owner) for place, owner in found.items() if place in by_place}


def reach(span: TraceSpan) -> tuple[int, int]:
    """From when to when a span must last that may be one with this one."""
    end_ns = max(span.start_ns, span.end_ns)
    if _is_end(span):
        return span.start_ns - LATEST_NS, end_ns
    return span.start_ns, end_ns + (LATEST_NS if _is_begin(span) else 0)


def _place(span: TraceSpan) -> Place:
    return span.trace_id, span.span_id


def _end(found: Mapping[Place, Place], place: Place) -> Place:
    """A half may be of a span that has a twin itself."""
    while place in found:
        place = found[place]
    return place


def _context(span: TraceSpan) -> tuple[object, ...]:
    asked = span.usage != (None, None)
    return span.parent_span_id is not None, span.end_ns - span.start_ns, asked, span.trace_id, span.span_id


def _matches(calls: Sequence[TraceSpan]) -> Iterator[_Match]:
    if len({span.scope for span in calls}) < 2:
        return
    alike: dict[tuple[object, ...], list[TraceSpan]] = {}
    for span in calls:
        for key in _keys(span):
            alike.setdefault(key, []).append(span)
    seen: set[tuple[Place, Place]] = set()
    for group in alike.values():
        for at, span in enumerate(group):
            compared = 0
            for other in reversed(group[:at]) if at < _NEAREST else reversed(group[at - _NEAREST * 8 : at]):
                if other.scope == span.scope or not _overlap(other, span):
                    continue
                pair = _place(other), _place(span)
                if pair not in seen and _may_be_one(other, span):
                    seen.add(pair)
                    yield _Match(_weakness(other, span), _slack(other, span), *pair)
                compared += 1
                if compared == _NEAREST:
                    break


def _keys(span: TraceSpan) -> Iterator[tuple[object, ...]]:
    facts = span.facts
    if facts.response_id:
        yield "response", facts.kind, facts.response_id
    if span.input_digest:
        yield "prompt", facts.kind, span.service, span.input_digest
    if None not in span.usage or (facts.kind == "embedding" and span.usage[0] is not None):
        yield "usage", facts.kind, span.service, *span.usage
    if span.failed and span.usage == (None, None):
        yield "failed", facts.kind, span.service, span.failed


def _overlap(one: TraceSpan, other: TraceSpan) -> bool:
    """`one` starts first. The shorter lasts within the longer, as far as clocks tell."""
    return one.end_ns + _SLACK_NS >= other.start_ns and (
        one.end_ns + _SLACK_NS >= other.end_ns or one.start_ns + _SLACK_NS >= other.start_ns
    )


def _may_be_one(one: TraceSpan, other: TraceSpan) -> bool:
    if one.facts.kind != other.facts.kind or not one.scope or not other.scope or one.scope == other.scope:
        return False
    if one.trace_id == other.trace_id and one.parent_span_id != other.parent_span_id:
        return False  # in line they are found by the tree, elsewhere they are two calls
    if one.trace_id != other.trace_id and one.parent_span_id and other.parent_span_id:
        return False  # neither has lost its context
    same_response = one.facts.response_id is not None and one.facts.response_id == other.facts.response_id
    if same_response:
        return True
    if one.service != other.service or not _agree(one, other):
        return False
    mine, theirs = _models(one), _models(other)
    return bool(mine & theirs)


def _agree(one: TraceSpan, other: TraceSpan) -> bool:
    """They agree on all that both tell."""
    both = (
        (one.facts.response_id, other.facts.response_id),
        (one.input_digest, other.input_digest),
        (one.facts.input_tokens, other.facts.input_tokens),
        (one.facts.output_tokens, other.facts.output_tokens),
    )
    return one.failed == other.failed and all(a is None or b is None or a == b for a, b in both)


def _models(span: TraceSpan) -> set[str]:
    names = (span.facts.model_requested, span.facts.model_returned)
    return {name.rpartition("/")[2].casefold() for name in names if name}


def _weakness(one: TraceSpan, other: TraceSpan) -> int:
    if one.facts.response_id and one.facts.response_id == other.facts.response_id:
        return 0
    return 3 - (one.input_digest is not None and one.input_digest == other.input_digest) - (one.usage == other.usage)


def _slack(one: TraceSpan, other: TraceSpan) -> int:
    return abs(one.start_ns - other.start_ns) + abs(one.end_ns - other.end_ns)


def _halves(calls: Sequence[TraceSpan]) -> Iterator[tuple[Place, Place]]:
    """End -> begin: the last one before it that had the same prompt and no answer yet."""
    begun: dict[tuple[object, ...], list[TraceSpan]] = {}
    for span in calls:
        key = span.service, span.scope, span.input_digest, span.facts.model_requested
        if _is_end(span):
            waiting = begun.get(key, [])
            for at in range(len(waiting) - 1, -1, -1):
                if waiting[at].end_ns <= span.start_ns <= waiting[at].end_ns + LATEST_NS:
                    yield _place(span), _place(waiting.pop(at))
                    break
        elif _is_begin(span):
            begun.setdefault(key, []).append(span)


def _is_end(span: TraceSpan) -> bool:
    return span.start_ns == span.end_ns and span.input_digest is not None and span.output_chars > 0


def _is_begin(span: TraceSpan) -> bool:
    untold = span.usage == (None, None) and not span.output_chars and not span.failed
    return untold and span.input_digest is not None and span.start_ns < span.end_ns
