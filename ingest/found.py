"""What the lake holds of some traces, as settling needs it: spans with what events tell of them, and calls recorded in
other traces that may be the same as theirs."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace

import orjson
import polars as pl

from ingest.dialects import messages
from ingest.dialects.facts import Content, LlmFacts
from ingest.lake import Lake
from ingest.logged_calls import LoggedEvent
from ingest.rows import FACTS, digest
from ingest.sights import MODEL_KINDS
from ingest.trace_tree import TraceSpan
from ingest.twins import LATEST_NS, SKEW_NS, Place, reach, twins

_SPAN_FIELDS = tuple(name for name in TraceSpan.__dataclass_fields__ if name not in ("facts", "logged"))

_TURN = {
    "gen_ai.system.message": 0,
    "gen_ai.developer.message": 0,
    "gen_ai.user.message": 1,
    "gen_ai.assistant.message": 2,
    "gen_ai.tool.message": 3,
}
"""Whose turn it is in a prompt with one answer of the model at most; all other events come after."""


@dataclass
class Found:
    """Traces, and calls near them."""

    spans: dict[str, list[TraceSpan]] = field(default_factory=dict)
    events: dict[str, list[LoggedEvent]] = field(default_factory=dict)
    contents: list[tuple[Place, Content]] = field(default_factory=list)
    """Texts that events tell of spans, and the spans themselves did not."""
    near: dict[Place, TraceSpan] = field(default_factory=dict)
    """Model calls of other traces at the same time."""

    def read(self, lake: Lake, trace_ids: Sequence[str], since_ns: int | None) -> None:
        """Adds traces, of which nothing arrived before `since_ns`."""
        if trace_ids:
            spans = grouped(lake.query("trace_spans", trace_ids=trace_ids, since_ns=since_ns))
            events = _events(lake.query("trace_events", trace_ids=trace_ids, since_ns=since_ns))
            for trace_id in trace_ids:
                self.add(trace_id, spans.get(trace_id, []), events.get(trace_id, []))

    def add(self, trace_id: str, spans: Sequence[TraceSpan], events: Sequence[LoggedEvent]) -> None:
        """Adds a trace: its spans get from the events what they lack."""
        told: dict[str, list[LoggedEvent]] = {}
        self.events[trace_id] = in_order(events)
        for event in self.events[trace_id]:
            if event.span_id and event.name in messages.CONTENT_EVENTS:
                told.setdefault(event.span_id, []).append(event)
        whole = []
        for span in spans:
            if carried := told.get(span.span_id):
                content = messages.from_events((event.name, event.body, event.attributes) for event in carried)
                self.contents.append(((trace_id, span.span_id), _lacking(span, content)))
                span = _with_content(span, content)
            whole.append(span)
        self.spans[trace_id] = whole

    def mates(self, lake: Lake, echoed: Collection[str] = frozenset()) -> list[str]:
        """Traces that are not here and have a call that is one with a call here. `echoed`: response ids that calls of
        several traces have."""
        spans = [span for spans in self.spans.values() for span in spans if span.facts.kind in MODEL_KINDS]
        if not spans:
            return []
        asked = _windows(spans)
        services = set(lake.query("recorded_twice", **_lists(asked))["service"])
        responses = sorted({name for span in spans if (name := span.facts.response_id) in echoed and name})
        doubtful = [window for window in asked if window[0] in services]
        if doubtful or responses:
            spell = {
                "from_ns": min(w[1] for w in asked) - LATEST_NS - SKEW_NS,
                "to_ns": max(w[2] for w in asked) + SKEW_NS,
            }
            near = lake.query("calls_within", **_lists(doubtful), response_ids=responses, **spell)
            for found in grouped(near).values():
                self.near.update({(span.trace_id, span.span_id): span for span in found})
        return sorted({trace for pair in self.twins().items() for trace, _ in pair} - self.spans.keys())

    def twins(self) -> dict[Place, Place]:
        """Span -> the span, here or near, in whose trace its call has its row; only such as concern traces here."""
        here = (span for spans in self.spans.values() for span in spans)
        pairs = twins([*here, *(span for place, span in self.near.items() if place[0] not in self.spans)])
        return {one: other for one, other in pairs.items() if one[0] in self.spans or other[0] in self.spans}


def grouped(spans: pl.DataFrame) -> dict[str, list[TraceSpan]]:
    """Rows of the queries trace_spans and calls_within by trace."""
    found: dict[str, list[TraceSpan]] = {}
    names = spans.columns
    own_at = [names.index(name) for name in _SPAN_FIELDS]
    facts_at = [names.index(name) for name in FACTS]
    for row in spans.iter_rows():
        values = dict(zip(_SPAN_FIELDS, (row[at] for at in own_at), strict=True))
        span = TraceSpan(facts=LlmFacts(*(row[at] for at in facts_at)), **values)
        found.setdefault(span.trace_id, []).append(span)
    return found


def in_order(events: Iterable[LoggedEvent]) -> list[LoggedEvent]:
    """Events by time. A clock of milliseconds gives a whole prompt one time: then by whose turn it is, as far as that
    tells, and else as they arrived."""
    by_time: dict[tuple[int, str], list[LoggedEvent]] = {}
    for event in events:
        by_time.setdefault((event.time_ns, event.span_id or ""), []).append(event)
    found = []
    for key in sorted(by_time):
        tied = by_time[key]
        if len(tied) > 1 and sum(event.name == "gen_ai.assistant.message" for event in tied) <= 1:
            tied.sort(key=lambda event: _TURN.get(event.name, 4))
        found += tied
    return found


def _events(frame: pl.DataFrame) -> dict[str, list[LoggedEvent]]:
    """Rows of the query trace_events by trace."""
    found: dict[str, list[LoggedEvent]] = {}
    for event_id, trace_id, span_id, name, time_ns, service, body, attributes in frame.iter_rows():
        event = LoggedEvent(event_id, span_id, name, time_ns, service, orjson.loads(body), orjson.loads(attributes))
        found.setdefault(trace_id, []).append(event)
    return found


def _windows(spans: Iterable[TraceSpan]) -> list[tuple[str, int, int]]:
    """Service, from and to (ns): when calls last that may be one with one of these model calls."""
    found: list[tuple[str, int, int]] = []
    for service, start_ns, end_ns in sorted((span.service, *reach(span)) for span in spans):
        if found and found[-1][0] == service and start_ns <= found[-1][2] + LATEST_NS:
            found[-1] = service, found[-1][1], max(found[-1][2], end_ns)
        else:
            found.append((service, start_ns, end_ns))
    return found


def _lists(windows: Sequence[tuple[str, int, int]]) -> dict[str, list[object]]:
    return {"services": [w[0] for w in windows], "starts": [w[1] for w in windows], "ends": [w[2] for w in windows]}


def _lacking(span: TraceSpan, told: Content) -> Content:
    return Content(
        None if span.input_chars else told.input_text, None if span.output_chars else told.output_text, told.tools
    )


def _with_content(span: TraceSpan, told: Content) -> TraceSpan:
    offered = span.facts.tools_offered or (messages.tool_names(told.tools) if told.tools else None)
    return replace(
        span,
        facts=replace(span.facts, tools_offered=offered),
        input_chars=span.input_chars or len(told.input_text or ""),
        output_chars=span.output_chars or len(told.output_text or ""),
        input_digest=span.input_digest or digest(told.input_text),
    )
