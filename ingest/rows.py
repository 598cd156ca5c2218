"""Records as they were received -> rows of the lake's tables. Pure.

A row is a tuple in the order of the table's columns here; `batch` and `line` number the converter's commit and the row
in it, so that of two copies of one thing the later one is known.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from operator import attrgetter

import orjson

from ingest import logged_calls, sealing, span_scores
from ingest.arrivals import Arrived
from ingest.dialects import messages
from ingest.dialects.facts import Content, LlmFacts
from ingest.dialects.values import dumps, text
from ingest.logged_calls import LoggedEvent
from ingest.spans import LogRecord, Score, Span

FACTS = tuple(LlmFacts.__dataclass_fields__)

COLUMNS: Mapping[str, tuple[str, ...]] = {
    "span_log": (
        *("trace_id", "span_id", "parent_span_id", "name", "span_kind", "start_ns", "end_ns", "status"),
        *("status_message", "service", "scope", "scope_version", *FACTS, "input_chars", "output_chars", "input_digest"),
        *("attributes", "resource", "events", "links", "unknown_keys", "received_ns", "batch", "line"),
    ),
    "content_log": ("trace_id", "span_id", "input_text", "output_text", "tools", "batch"),
    "event_log": (
        *("event_id", "trace_id", "span_id", "name", "time_ns", "service", "body", "attributes"),
        *("received_ns", "batch", "line"),
    ),
    "score_log": (
        *("score_id", "trace_id", "span_id", "session_id", "response_id", "name", "value", "value01", "label"),
        *("explanation", "source", "time_ns", "received_ns", "batch", "line", "probability"),
    ),
    "ingest_log": (
        *("batch", "position", "received_ns", "requests", "spans", "logs", "metric_points", "scores", "rejected"),
        *("problem", "redacted"),
    ),
}

_MINUTE_NS = 60_000_000_000
_facts_of = attrgetter(*FACTS)


@dataclass
class Minute:
    """What one minute brought."""

    requests: int = 0
    spans: int = 0
    logs: int = 0
    metric_points: int = 0
    scores: int = 0
    rejected: int = 0
    problem: str | None = None
    redacted: Counter[str] = field(default_factory=Counter)
    """Kind -> number of marks."""


@dataclass
class Batch:
    """The rows of one commit, gathered record by record, and what waits to be settled because of them."""

    number: int
    rows: dict[str, list[tuple[object, ...]]] = field(default_factory=lambda: {table: [] for table in COLUMNS})
    minutes: dict[int, Minute] = field(default_factory=dict)
    arrivals: dict[str, Arrived] = field(default_factory=dict)
    """trace id -> its spans and events of this batch, for the settler."""

    def minute(self, received_ns: int) -> Minute:
        """The counters of the minute of a receipt."""
        return self.minutes.setdefault(received_ns - received_ns % _MINUTE_NS, Minute())

    def add_spans(self, spans: Iterable[Span], received_ns: int) -> None:
        """Spans, their texts, and the scores among their events."""
        resources: dict[int, str] = {}
        for span in spans:
            if (resource := resources.get(id(span.resource))) is None:
                resource = resources[id(span.resource)] = dumps(span.resource)
            self._add_span(span, resource, received_ns)
            for score in sealing.scores(span):
                self.add_score(score, received_ns)

    def add_logs(self, logs: Iterable[LogRecord], received_ns: int) -> None:
        """Evaluations become scores, calls and their texts events; other log records are only counted."""
        for log in logs:
            name = log.event_name or text(log.attributes.get("event.name")) or _named_in(log.body)
            if name == span_scores.EVALUATION:
                fields = {**(log.body if isinstance(log.body, dict) else {}), **log.attributes}
                self.add_score(
                    span_scores.evaluation(fields, log.time_ns or received_ns, log.trace_id, log.span_id), received_ns
                )
            elif name in messages.CONTENT_EVENTS and log.trace_id and log.span_id:
                self._add_event(log, name, log.trace_id, received_ns)
            elif told := logged_calls.event_name(log):
                self._add_event(log, told, logged_calls.trace_of(log), received_ns)

    def add_score(self, score: Score | None, received_ns: int) -> None:
        """A score; None, a judgement that names nothing or judges nothing, counts as rejected."""
        minute = self.minute(received_ns)
        if score is None:
            minute.rejected += 1
            minute.problem = minute.problem or "an evaluation without a name, a target, or a value"
            return
        minute.scores += 1
        value = score.value
        target = (score.trace_id, score.span_id, score.session_id, score.response_id)
        said = (score.name, value, value if value is not None and 0 <= value <= 1 else None, score.label)
        rows = self.rows["score_log"]
        stamp = (score.time_ns, received_ns, self.number, len(rows), score.probability)
        rows.append((score.score_id, *target, *said, score.explanation, score.source or None, *stamp))

    def finished(self, position: str) -> dict[str, list[tuple[object, ...]]]:
        """All rows, with the WAL's position in the batch's own row."""
        for minute_ns, seen in sorted(self.minutes.items()):
            counts = (seen.requests, seen.spans, seen.logs, seen.metric_points, seen.scores, seen.rejected)
            marks = dumps(dict(sorted(seen.redacted.items()))) if seen.redacted else None
            self.rows["ingest_log"].append((self.number, position, minute_ns, *counts, seen.problem, marks))
        return self.rows

    def _add_span(self, span: Span, resource: str, received_ns: int) -> None:
        reading = sealing.read(span)
        facts, content = reading.facts, reading.content
        rows = self.rows["span_log"]
        service, told = span.service, _facts_of(facts)
        who = (span.trace_id, span.span_id, span.parent_span_id, span.name, span.kind, span.start_ns, span.end_ns)
        what = (span.status, span.status_message or None, service, span.scope.name, span.scope.version)
        size = (*sealing.sizes(span, content), digest(content.input_text))
        events = _events(span) if span.events else None
        links = dumps([{"trace_id": trace, "span_id": at} for trace, at in span.links]) if span.links else None
        rest = (dumps(reading.kept), resource, events, links, dumps(reading.unknown) if reading.unknown else None)
        rows.append((*who, *what, *told, *size, *rest, received_ns, self.number, len(rows)))
        if content != _NO_CONTENT:
            self.rows["content_log"].append(content_row(span.trace_id, span.span_id, content, self.number))
        at = (span.span_id, span.parent_span_id, span.name, service, span.start_ns, span.end_ns, span.status)
        self._arrived(span.trace_id, received_ns).spans.append(
            (*at, told, *size, span.trace_id, span.scope.name, span.scope.version, False)
        )

    def _add_event(self, log: LogRecord, name: str, trace_id: str, received_ns: int) -> None:
        body, attributes = dumps(log.body), dumps(log.attributes)
        identity = "\0".join((trace_id, log.span_id or "", name, str(log.time_ns), body, attributes))
        rows = self.rows["event_log"]
        event_id = digest(identity) or ""
        row = (event_id, trace_id, log.span_id, name, log.time_ns, log.service, body, attributes)
        rows.append((*row, received_ns, self.number, len(rows)))
        told = (name, log.time_ns, log.service, orjson.loads(body), orjson.loads(attributes))
        self._arrived(trace_id, received_ns).events.append(LoggedEvent(event_id, log.span_id, *told))

    def _arrived(self, trace_id: str, received_ns: int) -> Arrived:
        arrival = self.arrivals.get(trace_id)
        if arrival is None:
            arrival = self.arrivals[trace_id] = Arrived(received_ns, received_ns)
        elif received_ns < arrival.first_ns:
            arrival.first_ns = received_ns
        elif received_ns > arrival.last_ns:
            arrival.last_ns = received_ns
        return arrival


def content_row(trace_id: str, span_id: str, content: Content, batch: int) -> tuple[object, ...]:
    """A row of content_log."""
    return (trace_id, span_id, content.input_text, content.output_text, content.tools, batch)


def digest(value: str | None) -> str | None:
    """A short fingerprint of a text; None of None."""
    return None if value is None else hashlib.blake2b(value.encode("utf-8", "replace"), digest_size=12).hexdigest()


_NO_CONTENT = Content()


def _events(span: Span) -> str | None:
    """The span's events as JSON, without those whose texts are kept as content."""
    kept: Iterator[dict[str, object]] = (
        {"name": event.name, "time_ns": event.time_ns, "attributes": event.attributes}
        for event in span.events
        if event.name not in messages.CONTENT_EVENTS
    )
    found = list(kept)
    return dumps(found) if found else None


def _named_in(body: object) -> str:
    return str(body.get("event.name", "")) if isinstance(body, dict) else ""
