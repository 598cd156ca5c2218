"""The scores that a span carries: evaluation events, and judgements in its attributes. Pure.

    events       gen_ai.evaluation.result
    attributes   gen_ai.evaluation.*                                       one result, as some SDKs send it
                 [trace. | session.]{evaluations | annotations}.N.{evaluation | annotation}.FIELD      OpenInference

What a span judges: itself, unless it was made afterwards to judge another, to which its one link points. A carrier of
attributes is told from a step that judges itself by its kind: a step (a model call, an agent, ...) judges itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ingest.dialects.values import number, text
from ingest.scores import score_id
from ingest.spans import Attributes, Score, Span

EVALUATION = "gen_ai.evaluation.result"
JUDGES = {"human": "human", "llm": "judge", "code": "check"}
"""OpenInference's kinds of annotators -> what `source` says."""

_FORMS = (("evaluations", "evaluation"), ("annotations", "annotation"))
_SCOPES = ("", "trace.", "session.")
_FIRST = tuple((f"{scope}{many}.0.{one}.name", scope, many, one) for scope in _SCOPES for many, one in _FORMS)
_MARKS = frozenset({"gen_ai.evaluation.name", *(first for first, *_ in _FIRST)})
"""Of these a span has one whose attributes judge anything."""
_STEPS = {"llm", "embedding", "agent", "chain", "tool", "retriever", "reranker", "guardrail", "prompt"}
_MOST = 1000  # judgements of one form; numbers must be without gaps


def of_span(span: Span) -> Iterable[Score | None]:
    """All scores of a span; None for one that names nothing, judges nothing, or has no target."""
    return _told(span) if span.events or not _MARKS.isdisjoint(span.attributes) else ()


def _told(span: Span) -> Iterator[Score | None]:
    for event in span.events:
        if event.name == EVALUATION:
            trace_id, span_id = _target(span, carrier=bool(span.links) and not _is_step(span))
            yield evaluation(event.attributes, event.time_ns, trace_id, span_id)
    attributes = span.attributes
    if "gen_ai.evaluation.name" in attributes:
        trace_id, span_id = _target(span, carrier=True)
        yield evaluation(attributes, span.end_ns or span.start_ns, trace_id, span_id)
    for first, scope, many, one in _FIRST:
        if first in attributes:
            yield from _numbered(span, scope, many, one)


def evaluation(fields: Attributes, time_ns: int, trace_id: str | None, span_id: str | None) -> Score | None:
    """The score in an evaluation event; None when it has no name, no target, or neither a value nor a label."""
    name = text(fields.get("gen_ai.evaluation.name"))
    value = number(fields.get("gen_ai.evaluation.score.value"))
    label = text(fields.get("gen_ai.evaluation.score.label"))
    response_id = text(fields.get("gen_ai.response.id"))
    session_id = text(fields.get("gen_ai.conversation.id")) or text(fields.get("session.id"))
    if name is None or (value is None and label is None) or not (trace_id or response_id or session_id):
        return None
    source = text(fields.get("gen_ai.evaluation.source")) or ""
    target = "/".join((trace_id or "", span_id or "", session_id or "", response_id or ""))
    score = None if value is None else float(value)
    return Score(
        score_id(target, name, source, time_ns, label if score is None else score),
        name,
        score,
        time_ns,
        source,
        trace_id,
        span_id,
        session_id,
        response_id,
        label,
        text(fields.get("gen_ai.evaluation.explanation")),
    )


def _numbered(span: Span, scope: str, many: str, one: str) -> Iterator[Score | None]:
    for index in range(_MOST):
        prefix = f"{scope}{many}.{index}.{one}."
        if f"{prefix}name" not in span.attributes:
            return
        yield _judgement(span, scope, prefix)


def _judgement(span: Span, scope: str, prefix: str) -> Score | None:
    fields = span.attributes
    name, label = text(fields.get(f"{prefix}name")), text(fields.get(f"{prefix}label"))
    sent = fields.get(f"{prefix}score")
    value = float(sent) if isinstance(sent, bool) else number(sent)
    trace_id: str | None
    trace_id, span_id = _target(span, carrier=bool(span.links) and not _is_step(span))
    session_id: str | None = None
    if scope == "trace.":
        span_id = None
    elif scope == "session.":
        session_id = text(fields.get("session.id")) or text(fields.get("gen_ai.conversation.id"))
        trace_id = span_id = None
    if name is None or (value is None and label is None) or not (trace_id or session_id):
        return None
    kind = (text(fields.get(f"{prefix}annotator_kind")) or "").lower()
    source = JUDGES.get(kind, kind)
    target = "/".join((trace_id or "", span_id or "", session_id or ""))
    time_ns = span.end_ns or span.start_ns
    score = None if value is None else float(value)
    said = label if score is None else score
    identifier = text(fields.get(f"{prefix}identifier"))
    identity = (
        score_id(target, name, source, time_ns, said)
        if identifier is None
        else score_id(target, name, source, 0, identifier)
    )
    explanation = text(fields.get(f"{prefix}explanation"))
    return Score(identity, name, score, time_ns, source, trace_id, span_id, session_id, None, label, explanation)


def _target(span: Span, *, carrier: bool) -> tuple[str, str | None]:
    """The linked span of a carrier with exactly one link, else the span itself."""
    return span.links[0] if carrier and len(span.links) == 1 else (span.trace_id, span.span_id)


def _is_step(span: Span) -> bool:
    kind = span.attributes.get("openinference.span.kind")
    return isinstance(kind, str) and kind.lower() in _STEPS
