"""Model calls that were recorded apart: twice, with the context between the two lost, or in two halves. Pure.

Two instrumentations that do not see each other's span record one call as two, often in traces of their own, sometimes
as two services. They are twins when they come of different instrumentations, one lasts within the other, and there is
evidence that two calls do not share by chance:

    the same response id    in whichever services and traces
    the same prompt         in one service, or in one trace; they agree on the model and on all that both tell, and one
                            has lost its context or both are below one span
    the same counts         likewise, within one service; other services have calls of the same counts by chance
    both failed             likewise

Spans in line are left to the tree. A twin of one is the twin of all that show this call in that line; and if one of
those is of the other's instrumentation there is no twin, for an instrumentation records a call once.

A half is a moment that tells a stream's answer, apart from the span that began the stream with the same prompt.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from operator import attrgetter

from ingest.sights import MODEL_KINDS, same_call
from ingest.trace_tree import TraceSpan, Tree

Place = tuple[str, str]
"""Trace id and span id."""

LATEST_NS = 3600 * 10**9
"""How long a call may last, and a stream may wait for its reader."""

_SLACK_NS = 2_000_000
"""Clocks of milliseconds round a span beyond the one around it."""

SKEW_NS = 10**9
"""Clocks of two services' hosts are so far apart."""

_NEAREST = 32
"""Of another instrumentation's spans with the same evidence at one time so many are compared."""

_by_start = attrgetter("start_ns", "trace_id", "span_id")


@dataclass(frozen=True, slots=True)
class _Match:
    one: TraceSpan
    other: TraceSpan

    def rank(self) -> tuple[object, ...]:
        """The strongest evidence first, then the nearest in time."""
        one, other = self.one, self.other
        slack = abs(one.start_ns - other.start_ns) + abs(one.end_ns - other.end_ns)
        return _weakness(one, other), slack, _place(one), _place(other)


def twins(spans: Iterable[TraceSpan]) -> dict[Place, Place]:
    """Span -> the span in whose trace its call has its row. `spans` may be of several traces; their order is no matter.

    The row is where there is more around the call: below another span, else where it lasts longer.
    """
    spans = list(spans)
    calls = [span for span in spans if span.facts.kind in MODEL_KINDS and not span.logged]
    several = len({span.scope for span in calls if span.scope}) > 1
    if not several and not any(map(_is_end, calls)):
        return {}
    calls.sort(key=_by_start)
    found = dict(_halves(calls))
    if several:
        whole = [span for span in calls if _place(span) not in found] if found else calls
        if matches := sorted(_matches(whole), key=_Match.rank):
            found.update(_merged(matches, _lines(matches, spans, found)))
    return {place: _end(found, owner) for place, owner in found.items()}


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


def _merged(matches: Sequence[_Match], lines: Mapping[Place, Sequence[TraceSpan]]) -> dict[Place, Place]:
    """Span -> the owner of its call, for all that are not in the owner's own line."""
    matched = {_place(span) for match in matches for span in (match.one, match.other)}
    groups: dict[Place, list[TraceSpan]] = {}
    for line in {id(line): line for line in lines.values()}.values():
        group = list(line)
        groups.update((_place(span), group) for span in line)
    for match in matches:
        one, other = groups[_place(match.one)], groups[_place(match.other)]
        if one is other or {span.scope for span in one} & {span.scope for span in other}:
            continue
        mine, theirs = ([span for span in group if _place(span) in matched] for group in (one, other))
        if all(_may_be_one(a, b) for a in mine for b in theirs):
            one.extend(other)
            groups.update((_place(span), one) for span in other)
    found: dict[Place, Place] = {}
    for group in {id(group): group for group in groups.values()}.values():
        owner = max(group, key=_context)
        beside = set(map(_place, lines[_place(owner)]))
        found.update((_place(span), _place(owner)) for span in group if _place(span) not in beside)
    return found


def _lines(
    matches: Iterable[_Match], spans: Iterable[TraceSpan], halves: Collection[Place]
) -> dict[Place, list[TraceSpan]]:
    """Model call -> all that show the same call in line, for the traces that have matches; a line is shared."""
    traces: dict[str, list[TraceSpan]] = {span.trace_id: [] for match in matches for span in (match.one, match.other)}
    for span in spans:
        if (trace := traces.get(span.trace_id)) is not None:
            trace.append(span)
    lines: dict[Place, list[TraceSpan]] = {}
    for trace in traces.values():
        tree = Tree(trace)
        nearest: dict[str | None, TraceSpan] = {}  # span -> the nearest call, itself or above it
        for span in tree.top_down:
            above = nearest.get(tree.parents.get(span.span_id))
            if span.facts.kind in MODEL_KINDS and not span.logged and _place(span) not in halves:
                line = lines[_place(above)] if above else []
                if not above or line[-1] is not above or not same_call(above, span):
                    line = []
                line.append(span)
                lines[_place(span)] = line
                above = span
            if above:
                nearest[span.span_id] = above
    return lines


def _matches(calls: Iterable[TraceSpan]) -> Iterator[_Match]:
    """Pairs of different instrumentations that may be one call. `calls` are by start."""
    first: dict[Hashable, TraceSpan] = {}
    alike: dict[Hashable, list[TraceSpan]] = {}
    for span in calls:
        if span.scope:
            for key in _keys(span):
                if (other := first.setdefault(key, span)) is not span:
                    alike.setdefault(key, [other]).append(span)
    seen: set[tuple[Place, Place]] = set()
    for group in alike.values():
        if len(group) == 2 and _is_child(*group):
            continue  # most often
        if len({span.scope for span in group}) > 1:
            for one, other in _overlapping(group):
                pair = _place(one), _place(other)
                if pair not in seen and _may_be_one(one, other):
                    seen.add(pair)
                    yield _Match(one, other)


def _overlapping(group: Iterable[TraceSpan]) -> Iterator[tuple[TraceSpan, TraceSpan]]:
    """Each span with the latest before it of other instrumentations that it lasts within, or that last within it."""
    lasting: dict[str | None, list[TraceSpan]] = {}
    for span in group:
        for scope, before in lasting.items():
            if len(before) > 2 * _NEAREST:  # a bound, and room for what ended to pile up until it pays to look
                before[:] = [other for other in before if other.end_ns + SKEW_NS >= span.start_ns][-8 * _NEAREST :]
            if scope != span.scope:
                within = (other for other in reversed(before) if _overlap(other, span))
                yield from ((other, span) for other in islice(within, _NEAREST))
        lasting.setdefault(span.scope, []).append(span)


def _keys(span: TraceSpan) -> Iterator[tuple[object, ...]]:
    facts, usage = span.facts, span.usage
    if facts.response_id:
        yield "response", facts.kind, facts.response_id
    if span.input_digest:
        yield "prompt", facts.kind, span.input_digest
    if None not in usage or (facts.kind == "embedding" and usage[0] is not None):
        yield "usage", facts.kind, span.service, *usage
    if usage == (None, None) and span.failed:
        for model in _models(span):
            yield "failed", facts.kind, span.service, model


def _overlap(one: TraceSpan, other: TraceSpan) -> bool:
    """`one` starts first. The shorter lasts within the longer, as far as clocks tell."""
    slack_ns = SKEW_NS if one.service != other.service and _same_response(one, other) else _SLACK_NS
    return one.end_ns + slack_ns >= other.start_ns and (
        one.end_ns + slack_ns >= other.end_ns or one.start_ns + slack_ns >= other.start_ns
    )


def _may_be_one(one: TraceSpan, other: TraceSpan) -> bool:
    if one.facts.kind != other.facts.kind or one.scope == other.scope:
        return False
    if _is_child(one, other):
        return False  # the tree finds it
    if _same_response(one, other):
        return True
    if one.trace_id == other.trace_id and one.parent_span_id != other.parent_span_id:
        return False  # in line they are found by the tree, elsewhere they are two calls
    if one.trace_id != other.trace_id and one.parent_span_id and other.parent_span_id:
        return False  # neither has lost its context
    if one.service != other.service:
        same_prompt = one.input_digest is not None and one.input_digest == other.input_digest
        if one.trace_id != other.trace_id or not same_prompt:
            return False
    return _agree(one, other) and not _models(one).isdisjoint(_models(other))


def _is_child(one: TraceSpan, other: TraceSpan) -> bool:
    return one.span_id == other.parent_span_id and one.trace_id == other.trace_id


def _same_response(one: TraceSpan, other: TraceSpan) -> bool:
    return one.facts.response_id is not None and one.facts.response_id == other.facts.response_id


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
    return {_plain(name) for name in (span.facts.model_requested, span.facts.model_returned) if name}


@lru_cache(maxsize=4096)
def _plain(name: str) -> str:
    """A model's name without the provider's prefix."""
    return name.rpartition("/")[2].casefold()


def _weakness(one: TraceSpan, other: TraceSpan) -> int:
    if _same_response(one, other):
        return 0
    return 3 - (one.input_digest is not None and one.input_digest == other.input_digest) - (one.usage == other.usage)


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
