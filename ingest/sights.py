"""Which spans of a trace are steps of their own, and which only repeat others. Pure, one pass up the tree.

Totals come from leaves. A model call that two instrumentations saw is a line of nested spans, of which the innermost is
the call. A span that repeats the sums of what is below it is a roll-up. An agent's own usage counts only when nothing
below it says any. A tool or an agent that two instrumentations saw is the outer of the two.

    role        of a span
    own         a step of its own: has a row in calls
    attempt     likewise, but it failed and was tried again: `attempt_of` of its row names the last attempt
    roll-up     repeats what is below it; an agent or chain still has its row, without tokens
    duplicate   another sight of a step: `call_id` says of which
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from ingest.records import record
from ingest.trace_tree import TraceSpan, Tree

Role = Literal["own", "attempt", "roll-up", "duplicate"]

MODEL_KINDS = ("llm", "embedding")
_BARRIERS = ("agent", "tool", "retrieval", "guardrail", "evaluator")
"""Kinds between two model calls that show that the inner one is another call, made on the way to the outer's answer."""
_TWICE = ("agent", "tool")
"""Kinds that a framework and a client, or a client and a server, both record."""


@record
class SpanRole:
    """What a span is to the totals. `call_id` None: a model's roll-up, which has no row."""

    span_id: str
    role: Role
    call_id: str | None


@dataclass(slots=True)
class _Below:
    """What is below a span: its nearest model calls, and the sums of all that count."""

    free: list[TraceSpan] = field(default_factory=list)
    barred: list[TraceSpan] = field(default_factory=list)
    """Model calls behind a barrier."""
    sums: dict[str, tuple[int, int]] = field(default_factory=dict)
    """kind -> input and output tokens; a kind is here when a span of it says its usage."""

    def add(self, other: _Below) -> None:
        """Takes over another's content. The longer list is kept, so that a deep trace costs no more than a flat one."""
        self.free = _joined(self.free, other.free)
        self.barred = _joined(self.barred, other.barred)
        for kind, (given, answered) in other.sums.items():
            before = self.sums.get(kind, (0, 0))
            self.sums[kind] = (before[0] + given, before[1] + answered)

    def count(self, span: TraceSpan) -> None:
        if span.usage != (None, None):
            given, answered = self.sums.get(span.facts.kind, (0, 0))
            self.sums[span.facts.kind] = (given + (span.usage[0] or 0), answered + (span.usage[1] or 0))


def roles(tree: Tree, elsewhere: Mapping[str, str] | None = None) -> dict[str, SpanRole]:
    """The role of every span that is a step or repeats one; spans of kind "other" have none.

    `elsewhere`: span -> the span, of this trace or of another, that shows the same call and is no ancestor of it.
    """
    told = {**(elsewhere or {}), **_told_by_spans(tree.order)}
    found: dict[str, SpanRole] = {}
    below: dict[str, _Below] = {}  # of the spans that have something to tell of what is below them, or are a call
    for span in reversed(tree.top_down):
        under: _Below | None = None
        for child in tree.children.get(span.span_id, ()):
            if (part := below.pop(child.span_id, None)) is not None:
                if under is None:
                    under = part
                else:
                    under.add(part)
        if span.span_id not in told and span.facts.kind != "other":
            under = _seen(span, under, found)
        if under is not None:
            below[span.span_id] = under
    _repeat(told, tree, found)
    _merge_twice_recorded(tree, found)
    _repeat(told, tree, found)  # what they repeat may be merged now
    return found


def _repeat(told: Mapping[str, str], tree: Tree, found: dict[str, SpanRole]) -> None:
    for span_id, same in told.items():
        call_id = found[same].call_id if same in tree.spans else same
        found[span_id] = SpanRole(span_id, "duplicate" if call_id else "roll-up", call_id)


def _seen(span: TraceSpan, under: _Below | None, found: dict[str, SpanRole]) -> _Below | None:
    """Gives a span its role by what is below it; what there is then, seen from above the span."""
    span_id, kind = span.span_id, span.facts.kind
    if kind in MODEL_KINDS:
        role = SpanRole(span_id, "own", span_id) if under is None else _model_role(span, under, found)
        found[span_id] = role
        seen = _Below([span]) if under is None else _Below([span], sums=under.sums)
        if role.role == "own":
            seen.count(span)
        return seen
    if under is None:
        found[span_id] = SpanRole(span_id, "own", span_id)
        if span.usage == (None, None):
            return None
        under = _Below()
        under.count(span)
        return under
    rolls_up = bool(under.sums) and span.usage != (None, None)
    found[span_id] = SpanRole(span_id, "roll-up" if rolls_up else "own", span_id)
    if not rolls_up:
        under.count(span)
    return _Below(barred=_joined(under.barred, under.free), sums=under.sums) if kind in _BARRIERS else under


def _model_role(span: TraceSpan, below: _Below, found: dict[str, SpanRole]) -> SpanRole:
    """own, unless a model call below it is the same call, or its counts are the sum of those below."""
    kind = span.facts.kind
    free = _ordered(call for call in below.free if call.facts.kind == kind)
    inner = _ordered([*free, *(call for call in below.barred if call.facts.kind == kind)])
    if not inner:
        return SpanRole(span.span_id, "own", span.span_id)
    if same := next((call for call in inner if same_call(span, call)), None):
        return _sight(span, same, found)
    sums = below.sums.get(kind)
    if sums is not None and span.usage != (None, None) and (span.usage[0] or 0, span.usage[1] or 0) == sums:
        return _sight(span, inner[0], found) if len(inner) == 1 else SpanRole(span.span_id, "roll-up", None)
    alive = [call for call in free if not call.failed or call.usage != (None, None)]
    if not alive:  # behind barriers only, or failed: a retry within this span, or one that nobody recorded
        retried = bool(free) and span.failed and span.usage == (None, None)
        return _sight(span, free[-1], found) if retried else SpanRole(span.span_id, "own", span.span_id)
    return _sight(span, alive[0], found) if len(alive) == 1 else SpanRole(span.span_id, "roll-up", None)


def _sight(span: TraceSpan, of: TraceSpan, found: dict[str, SpanRole]) -> SpanRole:
    call_id = found[of.span_id].call_id
    return SpanRole(span.span_id, "duplicate" if call_id else "roll-up", call_id)


def same_call(one: TraceSpan, other: TraceSpan) -> bool:
    """Whether two spans in line show one call, as far as they tell themselves."""
    if one.facts.response_id and one.facts.response_id == other.facts.response_id:
        return True
    return None not in one.usage and one.usage == other.usage


def _told_by_spans(order: Iterable[TraceSpan]) -> dict[str, str]:
    """Log record -> the span of the same step: a call by response id, else by counts; a tool by its name, in order.

    A span has at most one log record.
    """
    logged = [span for span in order if span.logged]
    if not logged:
        return {}
    by_key: dict[tuple[object, ...], list[TraceSpan]] = {}
    for span in order:
        if not span.logged:
            for key in _keys(span):
                by_key.setdefault(key, []).append(span)
    told: dict[str, str] = {}
    taken: set[str] = set()
    for log in logged:
        same = [span for key in _keys(log) for span in by_key.get(key, ()) if span.span_id not in taken]
        if same:
            told[log.span_id] = same[0].span_id
            taken.add(same[0].span_id)
    return told


def _keys(span: TraceSpan) -> list[tuple[object, ...]]:
    if span.facts.kind == "tool":
        return [("tool", span.facts.tool)]
    if span.facts.kind not in MODEL_KINDS:
        return []
    keys: list[tuple[object, ...]] = []
    if span.facts.response_id:
        keys.append((span.facts.kind, span.facts.response_id))
    if None not in span.usage:
        keys.append((span.facts.kind, *span.usage))
    return keys


def _merge_twice_recorded(tree: Tree, found: dict[str, SpanRole]) -> None:
    """A tool in a tool of the same name, with nothing but plumbing between, is one run that two instrumentations or two
    services recorded; an agent likewise. In one convention and service it is a step that calls its like."""
    above: dict[str, TraceSpan] = {}  # span -> the nearest step above it; a model call in between hides it
    steps: dict[str, int] = {}
    for span in tree.top_down:
        if not (children := tree.children.get(span.span_id)):
            continue
        kind = span.facts.kind
        step = span if kind in _TWICE else above.get(span.span_id) if kind in ("other", "chain") else None
        if step is not None:
            above.update(dict.fromkeys((child.span_id for child in children), step))
            inner = sum(child.facts.kind in _TWICE for child in children)
            steps[step.span_id] = steps.get(step.span_id, 0) + inner
    for span_id, step in above.items():
        span = tree.spans[span_id]
        if steps[step.span_id] != 1 or span.facts.kind != step.facts.kind:
            continue
        if (span.facts.dialect, span.service) == (step.facts.dialect, step.service):
            continue
        name, other = (s.facts.tool if s.facts.kind == "tool" else s.facts.agent for s in (span, step))
        counted = found[span.span_id].role == "own" and span.usage != (None, None)
        if name is not None and other is not None and name.casefold() == other.casefold() and not counted:
            found[span.span_id] = SpanRole(span.span_id, "duplicate", found[step.span_id].call_id)


def _joined(one: list[TraceSpan], other: list[TraceSpan]) -> list[TraceSpan]:
    longer, shorter = (one, other) if len(one) >= len(other) else (other, one)
    longer.extend(shorter)
    return longer


def _ordered(calls: Iterable[TraceSpan]) -> list[TraceSpan]:
    return sorted(calls, key=lambda call: (call.start_ns, call.span_id))
