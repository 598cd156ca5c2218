"""The spans of one trace as a tree, whatever is missing or circular in it. All here is linear in their number."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ingest.dialects.facts import LlmFacts


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
    trace_id: str = ""
    scope: str | None = None
    """The instrumentation that made it."""
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


class Tree:
    """Parents and children. A span whose parent is missing, or is below itself, is a root."""

    def __init__(self, spans: Iterable[TraceSpan]) -> None:
        self.order = sorted(spans, key=lambda span: (span.start_ns, span.span_id))
        """By start and id."""
        self.spans = {span.span_id: span for span in self.order}
        self.parents = {
            span.span_id: parent for span in self.order if (parent := span.parent_span_id) and parent in self.spans
        }
        self._cut_cycles()
        self.children: dict[str, list[TraceSpan]] = {}
        for span in self.order:
            if (above := self.parents.get(span.span_id)) is not None:
                self.children.setdefault(above, []).append(span)
        self.roots = [span for span in self.order if span.span_id not in self.parents]
        self.top_down: list[TraceSpan] = []
        """Every span before all that are below it."""
        self.depth: dict[str, int] = {}
        stack = [(span, 0) for span in reversed(self.roots)]
        while stack:
            span, depth = stack.pop()
            self.top_down.append(span)
            self.depth[span.span_id] = depth
            stack.extend((child, depth + 1) for child in reversed(self.children.get(span.span_id, ())))

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
