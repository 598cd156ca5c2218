"""The conventions known, and `read`: a span -> its facts, its texts, and the keys that nobody knows.

Several conventions may meet on one span. The first in `DIALECTS` that knows what the span is names its kind. Each field
is taken from the first key that holds a usable value: OpenTelemetry's own first, then in the order of the dialects, and
only then from within JSON objects.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from operator import itemgetter

from ingest import providers
from ingest.dialects import (
    claude_code,
    flattened,
    frameworks,
    laminar,
    langfuse,
    langsmith,
    litellm,
    messages,
    mlflow,
    openinference,
    openlit,
    openllmetry,
    otel_genai,
    policy,
    promptlayer,
    pydantic_ai,
    strands,
    values,
    vercel,
)
from ingest.dialects.facts import Content, Dialect, Kind, LlmFacts, Reading
from ingest.dialects.slots import CONTENT_FIELDS, KNOWN, LAST, UNKNOWN, Routes, Slot
from ingest.dialects.usage import all_input
from ingest.spans import Attributes, Span

DIALECTS: tuple[Dialect, ...] = (
    openinference.DIALECT,
    langfuse.DIALECT,
    langsmith.DIALECT,
    litellm.DIALECT,
    otel_genai.DIALECT,
    openllmetry.DIALECT,
    vercel.DIALECT,
    mlflow.DIALECT,
    claude_code.DIALECT,
    laminar.DIALECT,
    pydantic_ai.DIALECT,
    strands.DIALECT,
    openlit.DIALECT,
    promptlayer.DIALECT,
    frameworks.DIALECT,
    policy.DIALECT,
)

_ROUTES = Routes(DIALECTS, first=otel_genai.DIALECT)
_CONTENT = frozenset(CONTENT_FIELDS)

CONTENT_KEYS = frozenset(key for key, slot in _ROUTES.items() if slot.texts)
"""Attribute keys that hold texts. `holds_text` also knows those of lists that are spread over keys."""


def holds_text(key: str) -> bool:
    """Whether an attribute holds texts of a call."""
    return _ROUTES[key].texts


def holds_fact(key: str) -> bool:
    """Whether an attribute holds a fact, such as a name or a count, and no text."""
    slot = _ROUTES[key]
    return slot.field is not None and not slot.texts


def read(span: Span) -> Reading:
    """What a span says. Raises nothing: what cannot be read is None."""
    attributes = span.attributes
    found: dict[str, object] = {}
    ranks: dict[str, int] = {}
    texty: list[str] = []
    unknown: list[str] = []
    nested: list[tuple[Slot, object]] = []
    spread: dict[tuple[str, int], list[tuple[flattened.Path, object]]] = {}
    marked: set[int] = set()
    routes = _ROUTES
    for key, value in attributes.items():
        slot = routes[key]
        if slot is KNOWN:
            continue
        field = slot.field
        if slot.special:
            if slot is UNKNOWN:
                unknown.append(key)
                continue
            if slot.texts:
                texty.append(key)
            if slot.marks:
                marked.update(slot.marks)
            if slot.inside:
                nested.append((slot, value))
            if not field:
                continue
            if slot.path:
                spread.setdefault((field, slot.rank), []).append((slot.path, value))
                continue
        if slot.rank < ranks.get(field, LAST) and (parsed := slot.parse(value)) is not None:
            found[field] = parsed
            ranks[field] = slot.rank
    for field, rank in sorted(spread, key=itemgetter(1)) if spread else ():
        if rank < ranks.get(field, LAST):
            found[field] = flattened.gathered(spread[field, rank])
            ranks[field] = rank
        elif field == "output":
            found["spare_output"] = flattened.gathered(spread[field, rank])
    if nested:
        _look_inside(nested, found)
    kind: Kind | None = None
    named: str | None = None
    by_span = False
    for place in sorted(marked):
        dialect = DIALECTS[place]
        if said := dialect.kind(attributes):
            if kind is None:
                kind, named = said, dialect.name
            by_span = by_span or dialect.named
            if dialect.repair:
                dialect.repair(attributes, found)
    texts = {field: found.pop(field) for field in found.keys() & _CONTENT} if found else {}
    if kind is None:
        kind, named = _by_what_is_there(attributes, found, texts)
    _name_the_step(kind, found, span.name if by_span else None)
    _tidy(attributes, found, span.scope.name or "")
    if "error_type" not in found:
        found["error_type"] = _exception(span)
    if (tools := texts.get("tools")) is not None:
        found["tools_offered"] = messages.tool_names(tools)
    call_id = found.pop("tool_call_id", None)
    content = _content(span, kind, texts, found.get("tool"), call_id)
    return Reading(LlmFacts(kind, named, **found), content, _without(attributes, texty), tuple(unknown))  # type: ignore[arg-type]


def _without(attributes: Attributes, texty: list[str]) -> Attributes:
    if not texty:
        return attributes
    left_out = set(texty)
    return {key: value for key, value in attributes.items() if key not in left_out}


def _look_inside(nested: Iterable[tuple[Slot, object]], found: dict[str, object]) -> None:
    """Fields that no key of their own told, from the JSON objects that may hold them."""
    open_ = [(inner, value) for slot, value in nested for inner in slot.inside if inner.field not in found]
    if not open_:
        return
    open_.sort(key=lambda pair: pair[0].rank)
    objects: dict[int, object] = {}
    for inner, value in open_:
        if inner.field in found:
            continue
        if id(value) not in objects:
            objects[id(value)] = values.structure(value)
        if isinstance(at := objects[id(value)], dict):
            for path in inner.paths:
                if (parsed := inner.parse(values.within(at, path))) is not None:
                    found[inner.field] = parsed
                    break


def _by_what_is_there(
    attributes: Attributes, found: Mapping[str, object], texts: Mapping[str, object]
) -> tuple[Kind, str | None]:
    if values.text(attributes.get("gen_ai.operation.name")):  # plan, invoke_workflow, agent_step, ...: an unlisted step
        return "chain", otel_genai.DIALECT.name
    if "model_requested" in found and (
        {"input_tokens", "output_tokens"} & found.keys() or {"input", "output", "told_events"} & texts.keys()
    ):
        return "llm", None
    return "other", None


def _name_the_step(kind: Kind, found: dict[str, object], span_name: str | None) -> None:
    """Names that say whose they are only together with the kind: of an agent, or of a tool."""
    entity, node = found.pop("entity", None), found.pop("graph_node", None)
    if kind == "agent" and "agent" not in found and (name := node or entity or span_name):
        found["agent"] = name
    elif kind == "tool" and "tool" not in found and (name := entity or span_name):
        found["tool"] = name


def _content(span: Span, kind: Kind, texts: dict[str, object], tool: object, call_id: object) -> Content:
    carried = [(e.name, None, e.attributes) for e in span.events if e.name in messages.CONTENT_EVENTS]
    if kind == "tool":
        arguments = _first(texts, ("tool_arguments", "input", "raw_input"))
        result = _first(texts, ("tool_result", "output", "raw_output"))
        if carried:
            told_arguments, told_result = messages.tool_from_events(carried)
            arguments, result = arguments or told_arguments, result or told_result
        if arguments is not None or result is not None:
            return messages.tool_content(values.text(tool), values.text(call_id), arguments, result)
    if kind == "embedding":  # vectors are no texts
        texts = {field: value for field, value in texts.items() if field not in ("output", "raw_output")}
    if not texts and not carried:
        return Content()
    own = messages.content(
        _first(texts, ("input", "raw_input")),
        _first(texts, ("output", "raw_output") if "answer_calls" not in texts else ("output",)),
        texts.get("system"),
        texts.get("tools"),
        texts.get("answer_calls"),
        texts.get("answer_reasoning"),
        texts.get("spare_output"),
    )
    if "told_events" in texts:
        own = _together(own, messages.from_listed_events(texts["told_events"]))
    return _together(own, messages.from_events(carried)) if carried else own


def _together(own: Content, told: Content) -> Content:
    return Content(own.input_text or told.input_text, own.output_text or told.output_text, own.tools or told.tools)


def _first(texts: Mapping[str, object], fields: Iterable[str]) -> object:
    return next((texts[field] for field in fields if field in texts), None)


_TOTALS = ("gen_ai.usage.total_tokens", "llm.usage.total_tokens", "llm.token_count.total")


def _tidy(attributes: Attributes, found: dict[str, object], scope: str) -> None:
    """One spelling of providers; cached tokens inside the input, reasoning inside the output; no input of 0 tokens."""
    if isinstance(provider := found.get("provider"), str):
        found["provider"] = providers.canonical(provider, str(attributes.get("server.address", "")))
    if (waited := found.pop("ttft_ms", None)) is not None:
        found.setdefault("ttft_s", waited)
    given, read, written = (
        _int(found.get("input_tokens")),
        _int(found.get("cache_read_tokens")),
        _int(found.get("cache_write_tokens")),
    )
    if (hour := _int(found.get("cache_write_1h_tokens"))) > written:
        written = found["cache_write_tokens"] = hour
    if "input_tokens" in found:
        total = next((n for key in _TOTALS if (n := values.count(attributes.get(key))) is not None), None)
        counted = all_input(given, read, written, output=_int(found.get("output_tokens")), total=total, scope=scope)
        found["input_tokens"] = counted.tokens or None
        found.setdefault("usage_rule", counted.rule)
    if "output_tokens" in found:
        answered, reasoning = _int(found["output_tokens"]), _int(found.get("reasoning_tokens"))
        found["output_tokens"] = answered + reasoning if reasoning > answered else answered


def _int(value: object) -> int:
    return value if isinstance(value, int) else 0


def _exception(span: Span) -> str | None:
    if span.status != "error":
        return None
    for event in span.events:
        if event.name == "exception" and (said := values.text(event.attributes.get("exception.type"))):
            return said
    return None
