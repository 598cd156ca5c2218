"""What a span takes over from the spans above and beside it. Pure, one pass down the tree and one up.

Sessions, users, workflows and agents go down to what does not name its own; never up, never sideways. So do the tools
of an agent, as far as the next one below it: some instrumentations tell them of the agent alone. A routing decision
holds for the span that carries it and all below; what has none on its way up takes the nearest one beside it, but a
model call lends its decision only downward: what one call was routed by says nothing about its sibling.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace

from ingest.dialects.facts import LlmFacts
from ingest.records import record
from ingest.sights import MODEL_KINDS
from ingest.trace_tree import TraceSpan, Tree

POLICY = tuple(name for name in LlmFacts.__dataclass_fields__ if name.startswith("policy_"))

Decision = dict[str, object]
"""The policy fields of LlmFacts."""


@record
class Inherited:
    """What comes from above a span; `decision` also from beside it. None: nobody says it."""

    call_id: str | None = None
    """The nearest span above that has a row."""
    session_id: str | None = None
    user_id: str | None = None
    workflow: str | None = None
    agent: str | None = None
    tools_offered: str | None = None
    """Of the nearest agent."""
    decision: Decision | None = None


_NOBODY = Inherited()


@dataclass(frozen=True, slots=True, order=True)
class _Near:
    """A span that carries a decision, and how far away it is."""

    steps: int
    start_ns: int
    span_id: str


def inherited(tree: Tree, rows: Collection[str]) -> dict[str, Inherited]:
    """For each span what it inherits. `decision` includes what the span itself carries, completed by others."""
    found = {root.span_id: _deciding(root, _NOBODY) for root in tree.roots}
    for span in tree.top_down:
        if children := tree.children.get(span.span_id):
            given = _from(span, found[span.span_id], rows)
            for child in children:
                found[child.span_id] = _deciding(child, given)
    if carriers := [span for span in tree.order if _carries(span)]:
        _take_from_beside(tree, carriers, found)
    return found


def _deciding(span: TraceSpan, got: Inherited) -> Inherited:
    """What a span gets, with the decision that it carries itself."""
    if not _carries(span):
        return got
    return replace(got, decision=_completed(_decision(span), [got.decision] if got.decision else []))


def _from(parent: TraceSpan, above: Inherited, rows: Collection[str]) -> Inherited:
    """What a child of `parent` gets: most spans say nothing new, then it is what the parent got."""
    facts = parent.facts
    got = Inherited(
        parent.span_id if parent.span_id in rows else above.call_id,
        facts.session_id or above.session_id,
        facts.user_id or above.user_id,
        facts.workflow or above.workflow,
        facts.agent or above.agent,
        facts.tools_offered if facts.kind == "agent" else above.tools_offered,
        above.decision,
    )
    return above if got == above else got


def _carries(span: TraceSpan) -> bool:
    return span.facts.policy_id is not None or span.facts.policy_action is not None


def _decision(span: TraceSpan) -> Decision:
    return {name: getattr(span.facts, name) for name in POLICY}


def _completed(decision: Decision, others: Iterable[Decision]) -> Decision:
    """What a decision leaves out (a feature vector, say) comes from others that say the same decision."""
    for other in others:
        if _named(other) == _named(decision):
            decision = {name: other[name] if value is None else value for name, value in decision.items()}
    return decision


def _named(decision: Decision) -> tuple[object, object]:
    return decision["policy_id"], decision["policy_action"]


def _take_from_beside(tree: Tree, carriers: list[TraceSpan], found: dict[str, Inherited]) -> None:
    lending = [span for span in carriers if span.facts.kind not in MODEL_KINDS]
    known: dict[tuple[object, object], Decision] = {}
    for span in lending:
        decision = _decision(span)
        known[_named(decision)] = _completed(known.get(_named(decision), decision), [decision])
    lost = any(got.decision is None for got in found.values())
    nearest = _nearest(tree, {span.span_id for span in lending}) if lost else {}
    done: dict[int, tuple[Decision, Decision]] = {}  # spans share their parents' decisions: each is completed once
    for span in tree.top_down:
        got = found[span.span_id]
        if got.decision is not None:
            if id(got.decision) not in done:
                others = [other] if (other := known.get(_named(got.decision))) else []
                done[id(got.decision)] = got.decision, _completed(got.decision, others)
            decision = done[id(got.decision)][1]
        elif near := nearest.get(span.span_id):
            carried = _decision(tree.spans[near.span_id])
            decision = _completed(carried, [known[_named(carried)]])
        else:
            continue
        found[span.span_id] = replace(got, decision=decision)


def _nearest(tree: Tree, lending: Collection[str]) -> dict[str, _Near]:
    """For each span the nearest that lends its decision, by steps in the tree; the trees of a trace meet above all."""
    inside: dict[str, _Near] = {}
    best: _Near | None = None
    for span in reversed(tree.top_down):
        options = [_further(inside[c.span_id]) for c in tree.children.get(span.span_id, ()) if c.span_id in inside]
        if span.span_id in lending:
            options.append(_Near(0, span.start_ns, span.span_id))
        if options:
            inside[span.span_id] = min(options)
            if span.span_id not in tree.parents:
                over = _further(inside[span.span_id])
                best = over if best is None else min(best, over)
    found: dict[str, _Near] = {}
    for span in tree.top_down:
        parent = tree.parents.get(span.span_id)
        above = best if parent is None else found.get(parent)
        options = [near for near in (inside.get(span.span_id), _further(above) if above else None) if near]
        if options:
            found[span.span_id] = min(options)
    return found


def _further(near: _Near) -> _Near:
    return _Near(near.steps + 1, near.start_ns, near.span_id)
