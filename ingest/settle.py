"""The spans of one trace -> its real steps, each once. Pure, and blind to the order in which spans arrived.

Totals come from leaves. A model call that two instrumentations saw is a line of nested spans: the innermost gives
tokens and time, whichever has texts gives the content. A parent that repeats the sums of what is below it is a roll-up.
An agent's own usage counts only when there is nothing below it that could have counted.

    role        of a span
    own         a step of its own: has a row in calls
    roll-up     repeats what is below it; an agent or chain still has its row, without tokens
    duplicate   another sight of a call: `call_id` says of which
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from ingest.dialects.facts import LlmFacts
from ingest.pricing import Cost, Prices, Usage

Role = Literal["own", "roll-up", "duplicate"]

_MODEL_KINDS = ("llm", "embedding")
_BARRIERS = ("agent", "tool", "retrieval", "guardrail", "evaluator")
"""Kinds between two model calls that show that the inner one is another call, made on the way to the outer's answer."""

_TOKENS = ("input_tokens", "cache_read_tokens", "cache_write_tokens", "output_tokens", "reasoning_tokens")
_POLICY = tuple(name for name in LlmFacts.__dataclass_fields__ if name.startswith("policy_"))
_NOT_SHARED = frozenset({*_POLICY, "error_type"})


@dataclass(frozen=True, slots=True)
class TraceSpan:
    """A span as the settler sees it. `start_ns` and `end_ns` are raw."""

    span_id: str
    parent_span_id: str | None
    name: str
    service: str
    start_ns: int
    end_ns: int
    status: str | None
    facts: LlmFacts
    input_chars: int = 0
    output_chars: int = 0
    input_digest: str | None = None


@dataclass(frozen=True, slots=True)
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
    """1, plus the failed siblings just before with the same prompt; None without a prompt to compare."""
    content_span_id: str
    cost: Cost


@dataclass(frozen=True, slots=True)
class SpanRole:
    """What a span is to the totals. `call_id` None: a model's roll-up, which has no row."""

    span_id: str
    role: Role
    call_id: str | None


@dataclass(frozen=True, slots=True)
class Settled:
    """A settled trace. `service` is that of its earliest root."""

    service: str | None
    calls: tuple[Call, ...]
    roles: tuple[SpanRole, ...]


def settle(spans: Iterable[TraceSpan], prices: Prices) -> Settled:
    """The steps of one trace, ordered by start and id. Spans have distinct ids; parents may be missing."""
    tree = _Tree(sorted(spans, key=lambda span: (span.start_ns, span.span_id)))
    roles = _roles(tree)
    rows = {role.span_id for role in roles.values() if _has_row(tree.spans[role.span_id], role)}
    merged: dict[str, list[str]] = {}
    for role in roles.values():
        if role.call_id is not None:
            merged.setdefault(role.call_id, []).append(role.span_id)
    carriers = [span for span in tree.order if _carries_policy(span)]
    attempts = _attempts(tree, rows)
    calls = [
        _call(tree, tree.spans[span_id], roles[span_id], merged[span_id], rows, carriers, attempts.get(span_id), prices)
        for span_id in rows
    ]
    calls.sort(key=lambda call: (call.start_ns or 0, call.span_id))
    root = next((span for span in tree.order if span.span_id in tree.roots), None)
    return Settled(root.service if root else None, tuple(calls), tuple(roles[key] for key in sorted(roles)))


class _Tree:
    """Parents and children of a trace's spans. A span whose parent is missing, or is below itself, is a root."""

    def __init__(self, order: Sequence[TraceSpan]) -> None:
        self.order = order
        self.spans = {span.span_id: span for span in order}
        self._parents = {span.span_id: span.parent_span_id for span in order if span.parent_span_id in self.spans}
        self._cut_cycles()
        self.roots = {span.span_id for span in order if span.span_id not in self._parents}
        self.children: dict[str, list[TraceSpan]] = {}
        for span in order:
            if (parent := self._parents.get(span.span_id)) is not None:
                self.children.setdefault(parent, []).append(span)

    def _cut_cycles(self) -> None:
        ending: set[str] = set()  # spans whose way up is known to end
        for span in self.order:
            path: dict[str, None] = {}
            at: str | None = span.span_id
            while at is not None and at not in ending and at not in path:
                path[at] = None
                at = self._parents.get(at)
            if at is not None and at in path:
                del self._parents[at]
            ending.update(path)

    def parent(self, span_id: str) -> str | None:
        return self._parents.get(span_id)

    def ancestors(self, span: TraceSpan) -> Iterator[TraceSpan]:
        """From the parent up to the root."""
        at = self._parents.get(span.span_id)
        while at is not None:
            yield self.spans[at]
            at = self._parents.get(at)

    def bottom_up(self) -> Iterator[TraceSpan]:
        """Every span after all that are below it."""
        stack = [self.spans[span.span_id] for span in self.order if span.span_id in self.roots]
        top_down: list[TraceSpan] = []
        while stack:
            span = stack.pop()
            top_down.append(span)
            stack.extend(self.children.get(span.span_id, ()))
        return reversed(top_down)


@dataclass(slots=True)
class _Below:
    """What is counted below a span: calls with usage, and the nearest model calls of each kind."""

    counted: list[TraceSpan]
    nearest: list[tuple[TraceSpan, bool]]
    """(model call, whether a barrier lies between)"""


def _roles(tree: _Tree) -> dict[str, SpanRole]:
    roles: dict[str, SpanRole] = {}
    below: dict[str, _Below] = {}
    for span in tree.bottom_up():
        counted = [call for child in tree.children.get(span.span_id, ()) for call in below[child.span_id].counted]
        nearest = [call for child in tree.children.get(span.span_id, ()) for call in below[child.span_id].nearest]
        kind = span.facts.kind
        if kind in _MODEL_KINDS:
            inner = [(call, barred) for call, barred in nearest if call.facts.kind == kind]
            role = _model_role(span, counted, inner)
            call_id: str | None = span.span_id if role == "own" else None
            if role == "duplicate":
                call_id = roles[inner[0][0].span_id].call_id
                role = "duplicate" if call_id else "roll-up"
            roles[span.span_id] = SpanRole(span.span_id, role, call_id)
            if role == "own":
                counted = [*counted, span]
            nearest = [(span, False)]
        else:
            if kind != "other":
                usage = _usage(span) != (None, None)
                role = "roll-up" if usage and counted else "own"
                roles[span.span_id] = SpanRole(span.span_id, role, span.span_id)
                if usage and role == "own":
                    counted = [span]
            nearest = [(call, barred or kind in _BARRIERS) for call, barred in nearest]
        below[span.span_id] = _Below(counted, nearest)
    return roles


def _model_role(span: TraceSpan, counted: list[TraceSpan], inner: list[tuple[TraceSpan, bool]]) -> Role:
    """own, unless a model call below it is the same call, or its counts are the sum of those below."""
    if not inner:
        return "own"
    same = [call for call, _ in inner if _same_call(span, call)]
    if len(inner) == 1 and same:
        return "duplicate"
    given, answered = _usage(span)
    calls = [call for call in counted if call.facts.kind == span.facts.kind]
    total = (sum(c.facts.input_tokens or 0 for c in calls), sum(c.facts.output_tokens or 0 for c in calls))
    if (given, answered) == (None, None) or (given or 0, answered or 0) == total or same:
        return "duplicate" if len(inner) == 1 and not inner[0][1] else "roll-up"
    if all(barred for _, barred in inner):
        return "own"
    return "duplicate" if len(inner) == 1 else "roll-up"


def _same_call(one: TraceSpan, other: TraceSpan) -> bool:
    if one.facts.response_id and one.facts.response_id == other.facts.response_id:
        return True
    usage = _usage(one)
    return None not in usage and usage == _usage(other)


def _usage(span: TraceSpan) -> tuple[int | None, int | None]:
    return span.facts.input_tokens, span.facts.output_tokens


def _has_row(span: TraceSpan, role: SpanRole) -> bool:
    return role.role == "own" or (role.role == "roll-up" and span.facts.kind not in _MODEL_KINDS)


def _call(
    tree: _Tree,
    span: TraceSpan,
    role: SpanRole,
    merged: Sequence[str],
    rows: set[str],
    carriers: Sequence[TraceSpan],
    attempts: int | None,
    prices: Prices,
) -> Call:
    above = list(tree.ancestors(span))
    sights = [tree.spans[span_id] for span_id in merged if span_id != span.span_id]
    facts = _completed(span.facts, sights, {call.span_id: depth for depth, call in enumerate(above)})
    inherited: dict[str, object] = {
        "session_id": facts.session_id or _first(above, "session_id"),
        "user_id": facts.user_id or _first(above, "user_id"),
        "workflow": facts.workflow or _first(above, "workflow"),
        "agent": facts.agent or next((s.facts.agent for s in above if s.facts.kind == "agent" and s.facts.agent), None),
        **_policy_of(tree, span, above, carriers),
    }
    inherited["agent"] = inherited["agent"] or _first(above, "agent")
    if role.role == "roll-up":
        inherited.update(dict.fromkeys((*_TOKENS, "reported_cost_usd")))
    facts = replace(facts, **inherited)  # type: ignore[arg-type]
    counted = facts.kind in _MODEL_KINDS or (role.role == "own" and (facts.input_tokens or facts.output_tokens))
    everyone = [span, *sights]
    richest = max(everyone, key=lambda s: (s.input_chars + s.output_chars, s.span_id == span.span_id, s.span_id))
    return Call(
        span.span_id,
        next((ancestor.span_id for ancestor in above if ancestor.span_id in rows), None),
        span.name,
        span.service,
        facts,
        _status(span, facts),
        span.start_ns or None,
        span.end_ns if span.end_ns and span.end_ns >= span.start_ns else None,
        attempts,
        richest.span_id,
        _priced(facts, span, prices) if counted else Cost(None),
    )


def _completed(facts: LlmFacts, sights: Sequence[TraceSpan], depth: Mapping[str, int]) -> LlmFacts:
    """The innermost sight's facts; what it does not say comes from the other sights of the call, the nearest first."""
    missing: dict[str, object] = {}
    for sight in sorted(sights, key=lambda s: depth.get(s.span_id, 1_000_000)):
        for name in LlmFacts.__dataclass_fields__:
            if name in _NOT_SHARED or name in missing or getattr(facts, name) is not None:
                continue
            if (value := getattr(sight.facts, name)) is not None:
                missing[name] = value
    return replace(facts, **missing) if missing else facts  # type: ignore[arg-type]


def _first(above: Sequence[TraceSpan], field: str) -> object:
    return next((value for span in above if (value := getattr(span.facts, field))), None)


def _carries_policy(span: TraceSpan) -> bool:
    return span.facts.policy_id is not None or span.facts.policy_action is not None


def _policy_of(
    tree: _Tree, span: TraceSpan, above: Sequence[TraceSpan], carriers: Sequence[TraceSpan]
) -> dict[str, object]:
    """The policy attributes of the nearest span that carries some: the span itself, one above, or one beside it.

    A model call lends its decision only downward: what one call was routed by says nothing about its sibling. What the
    nearest leaves out (a feature vector, say) comes from the others that carry the same decision.
    """
    if not carriers:
        return {}
    lines = {s.span_id: step for step, s in enumerate((span, *above))}
    ranked: list[tuple[bool, int, int, str]] = []
    for carrier in carriers:
        steps = [carrier, *tree.ancestors(carrier)]
        meeting = next((i for i, s in enumerate(steps) if s.span_id in lines), None)
        if meeting != 0 and carrier.facts.kind in _MODEL_KINDS:
            continue
        far = len(steps) + len(lines) if meeting is None else meeting + lines[steps[meeting].span_id]
        ranked.append((meeting != 0, far, carrier.start_ns, carrier.span_id))
    if not ranked:
        return {}
    nearest, *others = (tree.spans[found[-1]].facts for found in sorted(ranked))
    values = {name: getattr(nearest, name) for name in _POLICY}
    for other in others:
        if (other.policy_id, other.policy_action) == (nearest.policy_id, nearest.policy_action):
            values = {name: getattr(other, name) if value is None else value for name, value in values.items()}
    return values


def _attempts(tree: _Tree, rows: set[str]) -> dict[str, int]:
    attempts: dict[str, int] = {}
    siblings: dict[tuple[str | None, str], list[TraceSpan]] = {}
    for span in tree.order:
        if span.span_id in rows and span.facts.kind in _MODEL_KINDS and span.input_digest:
            siblings.setdefault((tree.parent(span.span_id), span.input_digest), []).append(span)
    for line in siblings.values():
        failed = 0
        for span in line:
            attempts[span.span_id] = failed + 1
            failed = failed + 1 if _status(span, span.facts) == "error" else 0
    return attempts


def _status(span: TraceSpan, facts: LlmFacts) -> str | None:
    """OTLP leaves the status of what went well unset; only a span that never ended has none."""
    if span.status == "error" or facts.error_type:
        return "error"
    return "ok" if span.status == "ok" or span.end_ns else None


def _priced(facts: LlmFacts, span: TraceSpan, prices: Prices) -> Cost:
    if (facts.input_tokens, facts.output_tokens) == (None, None) and _status(span, facts) == "error":
        return Cost(None, "failed without usage")
    return prices.cost(
        Usage(
            facts.model_returned,
            facts.model_requested,
            facts.provider,
            facts.input_tokens,
            facts.output_tokens,
            facts.cache_read_tokens,
            facts.cache_write_tokens,
            span.start_ns or None,
            facts.kind == "embedding",
        )
    )
