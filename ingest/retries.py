"""Failed calls that were tried again -> the attempts of one step. Pure.

Attempts are model calls below one parent with equal prompts, one after the other, all but the last of them failed. The
model may differ: that is a fallback. Without a captured prompt nothing is known of attempts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ingest.sights import MODEL_KINDS
from ingest.trace_tree import TraceSpan, Tree


@dataclass(frozen=True, slots=True)
class Attempt:
    """Which attempt of its step a call is, from 1, and the call that was the last; None: it is the last itself."""

    number: int
    last: str | None


_ONLY = Attempt(1, None)


def attempts(tree: Tree, sights: Mapping[str, Sequence[str]]) -> dict[str, Attempt]:
    """Call -> its attempt, for calls whose prompt is known. `sights`: call -> all spans that show it."""
    siblings: dict[tuple[str | None, str, str | None], list[TraceSpan]] = {}
    for call in tree.order:
        if call.facts.kind not in MODEL_KINDS or (shown := sights.get(call.span_id)) is None:
            continue
        if len(shown) > 1:
            shown = sorted(shown, key=lambda span_id: (-tree.depth[span_id], span_id))
        prompt = next((digest for span_id in shown if (digest := tree.spans[span_id].input_digest)), None)
        if prompt is not None:
            for parent in dict.fromkeys(tree.parents.get(span_id) for span_id in shown):
                siblings.setdefault((parent, call.facts.kind, prompt), []).append(call)
    found: dict[str, Attempt] = {}
    for line in siblings.values():
        if len(line) == 1:
            found.setdefault(line[0].span_id, _ONLY)
            continue
        tried: list[TraceSpan] = []
        for call in line:
            if tried and not _follows(tried[-1], call):
                _number(tried, found)
                tried = []
            tried.append(call)
        _number(tried, found)
    return found


def _follows(failed: TraceSpan, call: TraceSpan) -> bool:
    ended = failed.end_ns if failed.end_ns >= failed.start_ns else failed.start_ns
    return failed.failed and ended <= call.start_ns


def _number(tried: Sequence[TraceSpan], found: dict[str, Attempt]) -> None:
    """Numbers the attempts of a step. A call that another span wraps has two parents: where it has siblings counts."""
    last = tried[-1].span_id
    for number, call in enumerate(tried, 1):
        if len(tried) > 1 or call.span_id not in found:
            found[call.span_id] = Attempt(number, None if call.span_id == last else last)
