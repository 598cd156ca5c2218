"""The conventions known, and `read`: a span -> its facts, its texts, and the keys that nobody knows.

Several conventions may meet on one span. The first in `DIALECTS` that knows what the span is names its kind. Each field
is taken from the first key that holds a usable value: OpenTelemetry's own first, then in the order of the dialects, and
only then from within JSON objects.
"""

from __future__ import annotations

from collections.abc import Mapping

from ingest import providers
from ingest.dialects import (
    claude_code,
    frameworks,
    laminar,
    langfuse,
    langsmith,
    litellm,
    logfire,
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
from ingest.dialects.plans import Plan, Plans
from ingest.dialects.slots import CONTENT_FIELDS, Routes
from ingest.dialects.usage import NOTHING_CACHED, all_input
from ingest.spans import Attributes, Span

DIALECTS: tuple[Dialect, ...] = (
    logfire.DIALECT,
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
_PLANS = Plans(_ROUTES, DIALECTS)
_CONTENT = frozenset(CONTENT_FIELDS)
_NO_CONTENT = Content()


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
    plan = _PLANS[tuple(attributes)]
    found = plan.values(attributes)
    kind, dialect, by_span = _told_kind(plan, attributes, found)
    texts: dict[str, object] = {}
    kept: Attributes | dict[str, object] = attributes
    if plan.texts:
        texts = {field: found.pop(field) for field in _CONTENT & found.keys()}
        kept = dict(attributes)
        for key in plan.texts:
            del kept[key]
    if kind is None:
        kind, dialect = _by_what_is_there(attributes, found, texts)
    _name_the_step(kind, found, span.name if by_span else None)
    _tidy(attributes, found, span.scope.name)
    if span.status == "error" and "error_type" not in found:
        found["error_type"] = _exception(span)
    call_id = found.pop("tool_call_id", None)
    content = _NO_CONTENT
    if texts or span.events:
        if (tools := texts.get("tools")) is not None:
            found["tools_offered"] = messages.tool_names(tools)
        content = _content(span, kind, texts, found.get("tool"), call_id)
    return Reading(LlmFacts(kind, dialect, **found), content, kept, plan.unknown)  # type: ignore[arg-type]


def _told_kind(plan: Plan, attributes: Attributes, found: dict[str, object]) -> tuple[Kind | None, str | None, bool]:
    """What the span is, who says so, and whether its name may name its step. Who says anything repairs the values."""
    kind: Kind | None = None
    named: str | None = None
    by_span = False
    for dialect in plan.dialects:
        if said := dialect.kind(attributes):
            if kind is None:
                kind, named = said, dialect.name
            by_span = by_span or dialect.named
            if dialect.repair:
                dialect.repair(attributes, found)
    return kind, named, by_span


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
        arguments = _first(texts, "tool_arguments", "input", "raw_input")
        result = _first(texts, "tool_result", "output", "raw_output")
        if carried:
            told_arguments, told_result = messages.tool_from_events(carried)
            arguments, result = arguments or told_arguments, result or told_result
        if arguments is not None or result is not None:
            return messages.tool_content(values.text(tool), values.text(call_id), arguments, result)
    if kind == "embedding":  # vectors are no texts
        texts = {field: value for field, value in texts.items() if field not in ("output", "raw_output")}
    if not texts and not carried:
        return _NO_CONTENT
    own = messages.content(
        _first(texts, "input", "raw_input"),
        texts.get("output") if "answer_calls" in texts else _first(texts, "output", "raw_output"),
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


def _first(texts: Mapping[str, object], *fields: str) -> object:
    for field in fields:
        if field in texts:
            return texts[field]
    return None


_TOTALS = ("gen_ai.usage.total_tokens", "llm.usage.total_tokens", "llm.token_count.total")


def _tidy(attributes: Attributes, found: dict[str, object], scope: str) -> None:
    """One spelling of providers; cached tokens inside the input, reasoning inside the output; no input of 0 tokens."""
    if isinstance(provider := found.get("provider"), str):
        found["provider"] = providers.canonical(provider, str(attributes.get("server.address", "")))
    if (waited := found.pop("ttft_ms", None)) is not None:
        found.setdefault("ttft_s", waited)
    hour = "cache_write_1h_tokens"
    if hour in found and _int(found, hour) > _int(found, "cache_write_tokens"):
        found["cache_write_tokens"] = found[hour]
    if "input_tokens" in found:
        _count_input(attributes, found, scope)
    if "output_tokens" in found and "reasoning_tokens" in found:
        answered, reasoning = _int(found, "output_tokens"), _int(found, "reasoning_tokens")
        found["output_tokens"] = answered + reasoning if reasoning > answered else answered


def _count_input(attributes: Attributes, found: dict[str, object], scope: str) -> None:
    given, read, written = (
        _int(found, "input_tokens"),
        _int(found, "cache_read_tokens"),
        _int(found, "cache_write_tokens"),
    )
    tokens, rule = given, NOTHING_CACHED
    if read or written:
        totals = (values.count(attributes.get(key)) for key in _TOTALS)
        total = next((total for total in totals if total is not None), None)
        counted = all_input(given, read, written, output=_int(found, "output_tokens"), total=total, scope=scope)
        tokens, rule = counted.tokens, counted.rule
    found["input_tokens"] = tokens or None
    found.setdefault("usage_rule", rule)


def _int(found: Mapping[str, object], field: str) -> int:
    value = found.get(field)
    return value if isinstance(value, int) else 0


def _exception(span: Span) -> str | None:
    for event in span.events:
        if event.name == "exception" and (said := values.text(event.attributes.get("exception.type"))):
            return said
    return None
