"""Traces that wait to be settled, and what is in memory of them.

A trace that began under this converter is kept whole until it is quiet, and settled without a look into the lake. What
the lake already had, or memory has no room for, is settled from the lake.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from ingest.known_ids import KnownIds
from ingest.logged_calls import LoggedEvent
from ingest.sights import MODEL_KINDS
from ingest.trace_tree import TraceSpan

HELD_SPANS = 60_000
"""Spans and events in memory, about 1.5 kB each. What arrives beyond them is settled from the lake."""

REST = 10
"""A trace that took long to settle from the lake rests this many times as long before it is settled again, so that one
which grows in bursts takes a tenth of the time at most."""

_SLOW_S = 0.2
_MOST_SLOW = 1000
_MOST_ECHOED = 100_000


@dataclass(slots=True)
class Arrival:
    """What one commit has of a trace; times of receipt in ns."""

    first_ns: int
    last_ns: int
    spans: list[TraceSpan] = field(default_factory=list)
    events: list[LoggedEvent] = field(default_factory=list)


@dataclass(slots=True)
class Wait:
    """When what is not settled yet of a trace arrived: the first and the last of it by the clock of the receipt (ns),
    and the last by the converter's own (seconds of any origin), which nobody sets back."""

    first_ns: int
    last_ns: int
    seen_s: float
    held: Arrival | None
    """All there is of the trace; None when that is for the lake to say."""


class Waiting:
    """All waiting traces of one converter."""

    def __init__(self, stored: Iterable[tuple[str, int]], known: KnownIds, now_s: float) -> None:
        """`stored`: traces of the lake that are not settled, and when the first of each arrived (ns)."""
        self._waits = {trace_id: Wait(first_ns, first_ns, now_s, None) for trace_id, first_ns in stored}
        known.unseen(list(self._waits))
        self._known = known
        self._held = 0
        self._slow_s: dict[str, float] = {}

    def arrived(self, arrivals: Mapping[str, Arrival], now_s: float) -> None:
        """Notes what a commit brings."""
        new = set(self._known.unseen([trace_id for trace_id in arrivals if trace_id not in self._waits]))
        for trace_id, arrival in arrivals.items():
            wait = self._waits.get(trace_id)
            if wait is None:
                wait = Wait(arrival.first_ns, arrival.last_ns, now_s, Arrival(0, 0) if trace_id in new else None)
                self._waits[trace_id] = wait
            wait.first_ns = min(wait.first_ns, arrival.first_ns)
            wait.last_ns = max(wait.last_ns, arrival.last_ns)
            wait.seen_s = now_s
            if wait.held is not None:
                self._hold(wait, wait.held, arrival)

    def _hold(self, wait: Wait, held: Arrival, arrival: Arrival) -> None:
        size = len(arrival.spans) + len(arrival.events)
        if self._held + size > HELD_SPANS:
            self._held -= len(held.spans) + len(held.events)
            wait.held = None
            return
        self._held += size
        held.spans += arrival.spans
        held.events += arrival.events

    def quiet(self, now_ns: int, now_s: float, quiet_s: float, *, drained: bool, everything: bool) -> list[str]:
        """The traces to settle, quiet for `quiet_s`: by the clock of their receipts or, in case it leapt, by the
        converter's own, which tells only once the log is `drained`."""
        since_ns = now_ns - int(quiet_s * 1e9)
        since_s = now_s - quiet_s
        found = [
            trace_id
            for trace_id, wait in self._waits.items()
            if everything or wait.last_ns <= since_ns or (drained and wait.seen_s <= since_s)
        ]
        if everything or not self._slow_s:
            return found
        return [trace_id for trace_id in found if not self._rests(trace_id, since_s)]

    def _rests(self, trace_id: str, since_s: float) -> bool:
        rest_s = REST * self._slow_s.get(trace_id, 0.0)
        return self._waits[trace_id].seen_s > since_s - rest_s

    def first_ns(self, trace_id: str) -> int:
        """When the first of what is not settled of a waiting trace arrived."""
        return self._waits[trace_id].first_ns

    def whole(self, trace_id: str) -> Arrival | None:
        """All of a waiting trace, if it is in memory and each span is there once."""
        held = self._waits[trace_id].held
        if held is None or len({span.span_id for span in held.spans}) < len(held.spans):
            return None
        return held

    def settled(self, trace_ids: Iterable[str]) -> None:
        """These wait no longer."""
        for trace_id in trace_ids:
            if held := self._waits.pop(trace_id).held:
                self._held -= len(held.spans) + len(held.events)

    def took(self, trace_id: str, seconds: float) -> None:
        """How long it took to settle a trace by itself."""
        self._slow_s.pop(trace_id, None)
        if seconds >= _SLOW_S:
            self._slow_s[trace_id] = seconds
            if len(self._slow_s) > _MOST_SLOW:
                del self._slow_s[next(iter(self._slow_s))]


class RecordedApart:
    """Which model calls may be recorded twice, apart from one another: those of a service with several
    instrumentations, or with one that tells of a moment only, the end of a stream; and those whose response id came
    before."""

    def __init__(
        self, scopes: Iterable[tuple[str, str | None, bool]], responses: KnownIds, echoed: Iterable[str]
    ) -> None:
        """What the lake knows: service, scope, and whether it told of a moment; the response ids there are; those that
        several traces have."""
        self._scopes: dict[str, set[str | None]] = {}
        self._doubtful: set[str] = set()
        self._responses = responses
        self.echoed: dict[str, None] = dict.fromkeys(echoed)
        """Response ids that came in several traces, or in several commits; of very many the latest."""
        for service, scope, moments in scopes:
            self._note(service, scope, moments)

    def note(self, arrivals: Mapping[str, Arrival]) -> None:
        """Learns from a commit."""
        traces: dict[str, str] = {}
        for trace_id, arrival in arrivals.items():
            for span in arrival.spans:
                if span.facts.kind in MODEL_KINDS:
                    self._note(span.service, span.scope, span.start_ns == span.end_ns and span.input_digest is not None)
                    if (response := span.facts.response_id) and traces.setdefault(response, trace_id) != trace_id:
                        self.echoed[response] = None
        new = set(self._responses.unseen(list(traces)))
        if len(new) < len(traces):
            self.echoed.update(dict.fromkeys(response for response in traces if response not in new))
        while len(self.echoed) > _MOST_ECHOED:
            del self.echoed[next(iter(self.echoed))]

    def _note(self, service: str, scope: str | None, moment: bool) -> None:
        scopes = self._scopes.setdefault(service, set())
        scopes.add(scope)
        if moment or len(scopes) > 1:
            self._doubtful.add(service)

    def doubtful(self, spans: Iterable[TraceSpan]) -> bool:
        """Whether a call among these may be recorded once more somewhere."""
        if not self._doubtful and not self.echoed:
            return False
        return any(
            span.service in self._doubtful or span.facts.response_id in self.echoed
            for span in spans
            if span.facts.kind in MODEL_KINDS
        )
