"""The spans of one trace as a tree, whatever is missing or circular in it. All here is linear in their number."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property
from operator import attrgetter

from ingest.dialects.facts import LlmFacts
from ingest.records import record


@record
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
    trace_id: str = ""
    scope: str | None = None
    """The instrumentation that made it."""
    scope_version: str | None = None
    logged: bool = False
    """Made of a log record: what it tells may be told by a span as well."""

    @property
    def usage(self) -> tuple[int | None, int | None]:
        """Input and output tokens; (None, None) when it says neither."""
        return self.facts.input_tokens, self.facts.output_tokens

    @property
    def failed(self) -> bool:
        """It says that it ended in an error."""
        return self.status == "error" or self.facts.error_type is not None


_start_and_id = attrgetter("start_ns", "span_id")


class Tree:
    """Parents and children. A span whose parent is missing, or is below itself, is a root."""

    def __init__(self, spans: Iterable[TraceSpan]) -> None:
        self.order = sorted(spans, key=_start_and_id)
        """By start and id."""
        self.spans = {span.span_id: span for span in self.order}
        self.parents = {
            span.span_id: parent for span in self.order if (parent := span.parent_span_id) and parent in self.spans
        }
        self._descend()
        if len(self.top_down) < len(self.order):
            self._cut_cycles()
            self._descend()

    def _descend(self) -> None:
        self.roots: list[TraceSpan] = []
        self.children: dict[str, list[TraceSpan]] = {}
        for span in self.order:
            if (above := self.parents.get(span.span_id)) is None:
                self.roots.append(span)
            else:
                self.children.setdefault(above, []).append(span)
        self.top_down = list(self.roots)
        """Every span before all that are below it; those in a circle, and below one, are not reached."""
        for span in self.top_down:  # which grows meanwhile
            if below := self.children.get(span.span_id):
                self.top_down.extend(below)

    @cached_property
    def depth(self) -> dict[str, int]:
        """How many spans are above one."""
        found = dict.fromkeys((root.span_id for root in self.roots), 0)
        for span in self.top_down:
            for child in self.children.get(span.span_id, ()):
                found[child.span_id] = found[span.span_id] + 1
        return found

    def _cut_cycles(self) -> None:
        ending: set[str] = set()  # spans whose way up is known to end
        for span in self.order:
            path: dict[str, None] = {}
            at: str | None = span.span_id
            while at is not None and at not in ending and at not in path:
                path[at] = None
                at = self.parents.get(at)
            if at is not None and at in path:
                del self.parents[at]
            ending.update(path)
