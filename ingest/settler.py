"""Quiet traces of the lake -> their rows in calls: reads spans and events, settles, writes in one transaction."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter

import pyarrow as pa

from ingest.arrow_tables import table
from ingest.class_costs import COST_PARTS, cost_parts
from ingest.dialects.facts import Content
from ingest.found import Found
from ingest.lake import Lake
from ingest.logged_calls import calls_of
from ingest.pricing import Prices
from ingest.rows import COLUMNS, FACTS, content_row
from ingest.settle import Call, TraceSpan, settle
from ingest.waiting import Arrival

log = logging.getLogger(__name__)

_ROW_FACTS = tuple(name for name in FACTS if not name.startswith("policy_"))
_POLICY = tuple(name for name in FACTS if name.startswith("policy_"))
CALL_COLUMNS = (
    *("trace_id", "span_id", "parent_call_id", "name", "service", *_ROW_FACTS, "cost_usd", "unpriced", "price"),
    *("status", "start_ns", "end_ns", "attempts", "attempt_of", "content_span_id", "content_trace_id", *_POLICY),
    *("input_chars", "output_chars", "scope", "scope_version", *COST_PARTS),
)
_SETTLED: Mapping[str, tuple[str, ...]] = {
    "settled_calls": CALL_COLUMNS,
    "span_roles": ("trace_id", "span_id", "role", "call_id"),
    "settled_traces": (
        *("trace_id", "service", "name", "session_id", "start_ns", "end_ns", "spans", "batch", "settled_ns"),
    ),
}
_COLUMNS = {**COLUMNS, **_SETTLED}
_facts_of = attrgetter(*_ROW_FACTS)
_policy_of = attrgetter(*_POLICY)

SPANS_AT_ONCE = 20_000
"""Traces are settled together up to so many spans; a larger one by itself, after all others."""

Schemas = Mapping[str, pa.Schema]


def schemas(lake: Lake) -> Schemas:
    """The column types of all tables that are written."""
    return {name: lake.schema(name) for name in _COLUMNS}


def tables(types: Schemas, rows: Mapping[str, Sequence[tuple[object, ...]]]) -> dict[str, pa.Table]:
    """Rows by table, as `Lake.write` wants them."""
    return {name: table(types[name], _COLUMNS[name], found) for name, found in rows.items() if found}


@dataclass
class Rows:
    """Rows of the settled tables, and texts that events told."""

    calls: list[tuple[object, ...]] = field(default_factory=list)
    roles: list[tuple[object, ...]] = field(default_factory=list)
    traces: list[tuple[object, ...]] = field(default_factory=list)
    contents: list[tuple[object, ...]] = field(default_factory=list)

    def by_table(self) -> dict[str, list[tuple[object, ...]]]:
        """By the name of the table they go to."""
        settled = {"settled_calls": self.calls, "span_roles": self.roles, "settled_traces": self.traces}
        return {**settled, "content_log": self.contents}


def settle_held(held: Mapping[str, Arrival], batch: int, prices: Prices, now: int) -> Rows:
    """The rows of traces that are wholly in memory, each span once, and of which no call is recorded elsewhere: those
    that `settle_traces` would write."""
    found = Found()
    for trace_id, arrival in held.items():
        events = {event.event_id: event for event in reversed(arrival.events)}  # of copies the first counts
        found.add(trace_id, arrival.spans, list(reversed(events.values())) if events else ())
    return settled_rows(found, list(held), batch, prices, now)


def settle_traces(
    lake: Lake,
    types: Schemas,
    arrivals: Mapping[str, int],
    batch: int,
    prices: Prices,
    clock: Callable[[], int] = time.time_ns,
    echoed: Collection[str] = frozenset(),
    took: Callable[[str, float], None] = lambda _trace_id, _seconds: None,
) -> None:
    """Settles traces with all that the lake holds of them up to commit `batch`. Doing it again gives the same rows.

    `arrivals`: trace id -> when the first span or event that was not settled yet arrived (ns). A transaction holds at
    most about `SPANS_AT_ONCE` spans, so that a giant trace neither takes memory for others nor keeps them waiting.
    Traces with a call that is recorded in one of these too are settled with them; `echoed` are response ids that calls
    of several traces have. `took` is told the seconds for a
    trace that was settled by itself.
    """
    before = set(lake.query("settled_among", trace_ids=list(arrivals))["trace_id"])
    sizes = dict(lake.query("trace_sizes", trace_ids=list(arrivals)).iter_rows())
    for ids in portions(arrivals, sizes):
        started = time.monotonic()
        again = [trace_id for trace_id in ids if trace_id in before]
        fresh = [trace_id for trace_id in ids if trace_id not in before]
        found = Found()
        found.read(lake, fresh, min((arrivals[trace_id] for trace_id in fresh), default=None))
        found.read(lake, again, None)
        mates = found.mates(lake, echoed)
        found.read(lake, mates, None)
        if mates:
            found.mates(lake, echoed)  # what their other calls may be one with
        rows = settled_rows(found, [*ids, *mates], batch, prices, clock())
        lake.write(tables(types, rows.by_table()), replace_traces=sorted({*again, *mates}))
        before.update(ids, mates)
        if len(ids) == 1:
            took(ids[0], time.monotonic() - started)


def portions(trace_ids: Iterable[str], sizes: Mapping[str, int], most: int = SPANS_AT_ONCE) -> Iterator[list[str]]:
    """Traces in groups of at most `most` spans, the small ones first; a larger one is a group of its own."""
    group: list[str] = []
    total = 0
    for trace_id in sorted(trace_ids, key=lambda trace_id: (sizes.get(trace_id, 0), trace_id)):
        size = sizes.get(trace_id, 0)
        if group and total + size > most:
            yield group
            group, total = [], 0
        group.append(trace_id)
        total += size
    if group:
        yield group


def settled_rows(found: Found, trace_ids: Sequence[str], batch: int, prices: Prices, now: int) -> Rows:
    """The rows of some traces. Pure."""
    rows = Rows(contents=[content_row(*place, content, batch) for place, content in found.contents])
    elsewhere: dict[str, dict[str, str]] = {}
    visitors: dict[str, list[tuple[TraceSpan, str]]] = {}
    if twins := found.twins():
        by_place = {**found.near, **{(s.trace_id, s.span_id): s for spans in found.spans.values() for s in spans}}
        for (trace_id, span_id), (host_trace, host) in twins.items():
            elsewhere.setdefault(trace_id, {})[span_id] = host
            if trace_id != host_trace:
                visitors.setdefault(host_trace, []).append((by_place[trace_id, span_id], host))
    for trace_id in trace_ids:
        try:
            _settle_one(
                found, trace_id, elsewhere.get(trace_id), visitors.get(trace_id, ()), (batch, now), prices, rows
            )
        except Exception:  # a fault of ours must not keep all other traces, and the log, waiting
            log.exception("trace %s cannot be settled; its spans are stored, its calls are missing", trace_id)
    return rows


def _settle_one(
    found: Found,
    trace_id: str,
    elsewhere: Mapping[str, str] | None,
    visitors: Sequence[tuple[TraceSpan, str]],
    stamp: tuple[int, int],
    prices: Prices,
    rows: Rows,
) -> None:
    """Adds the rows of one trace, or raises and adds none. `stamp`: the last commit, and the time (ns)."""
    spans, events = found.spans.get(trace_id, []), found.events.get(trace_id)
    logged = calls_of(events, (span.span_id for span in spans), trace_id) if events else []
    settled = settle([*spans, *(span for span, _ in logged)], prices, elsewhere, visitors)
    calls = [_call_row(trace_id, call) for call in settled.calls]
    rows.contents += [
        content_row(trace_id, span.span_id, content, stamp[0]) for span, content in logged if content != Content()
    ]
    rows.calls += calls
    rows.roles += [(trace_id, role.span_id, role.role, role.call_id) for role in settled.roles]
    when = (settled.start_ns, settled.end_ns)
    rows.traces.append((trace_id, settled.service, settled.name, settled.session_id, *when, len(spans), *stamp))


def _call_row(trace_id: str, call: Call) -> tuple[object, ...]:
    return (
        *(trace_id, call.span_id, call.parent_call_id, call.name, call.service, *_facts_of(call.facts)),
        *(call.cost.usd, call.cost.unpriced, call.cost.price, call.status, call.start_ns, call.end_ns),
        *(call.attempts, call.attempt_of),
        *(call.content_span_id, call.content_trace_id, *_policy_of(call.facts)),
        *(call.input_chars, call.output_chars, call.scope, call.scope_version, *cost_parts(call.cost.parts)),
    )
