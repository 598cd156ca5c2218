"""The conventions known, and `read`: a span -> its facts, its texts, and the keys that nobody knows.

Several conventions may meet on one span. The first in `DIALECTS` that knows what the span is names its kind. Each field
is taken from the first key that holds a usable value: OpenTelemetry's own first, then in the order of the dialects, and
only then from within JSON objects.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
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

CONTENT_FIELDS = (
    *("input", "output", "system", "tools", "tool_arguments", "tool_result"),
    *("raw_input", "raw_output"),  # what went in and came out of a step, where nothing better tells
    *("answer_calls", "answer_reasoning"),  # parts of an answer that came apart from its text
    *("told_events", "spare_output"),  # a conversation as a list of events; a second account of an answer
)
"""Fields that hold texts: kept apart from the facts."""

_CONTENT = frozenset(CONTENT_FIELDS)

_GENERAL = frozenset(
    {
        *("browser", "client", "cloud", "code", "container", "db", "deployment", "destination", "device", "dns"),
        *("enduser", "error", "event", "exception", "faas", "file", "graphql", "host", "http", "k8s", "log"),
        *("messaging", "net", "network", "os", "otel", "peer", "process", "rpc", "server", "service", "source"),
        *("telemetry", "test", "thread", "tls", "url", "user", "user_agent", "webengine"),
    }
)
"""First words of OpenTelemetry's general attributes: known, and nothing about model calls."""

_PARSERS: Mapping[str, Callable[[object], object]] = {
    **dict.fromkeys(
        (
            *("input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens", "reasoning_tokens"),
            *("max_tokens", "cache_write_1h_tokens", "input_audio_tokens", "input_image_tokens", "output_audio_tokens"),
            *("output_image_tokens", "web_search_calls", "code_interpreter_calls", "file_search_calls"),
        ),
        values.count,
    ),
    **dict.fromkeys(("reported_cost_usd", "ttft_s", "policy_propensity"), values.real),
    **dict.fromkeys(("policy_candidates", "policy_probabilities"), values.array),
    **dict.fromkeys(CONTENT_FIELDS, lambda value: None if value == "" else value),
    "stream": values.boolean,
    "cache_hit": values.boolean,
    "ttft_ms": values.milliseconds,
}

_LAST = 1_000_000
_INSIDE = 10_000
"""Ranks of what is within JSON objects: after everything that has a key of its own."""


@dataclass(frozen=True, slots=True)
class _Inner:
    """A field within a JSON object."""

    field: str
    rank: int
    parse: Callable[[object], object]
    paths: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Slot:
    """Where the value of an attribute goes; the lowest rank wins. `field` "": nowhere. `path`: a piece of a list."""

    field: str
    rank: int
    parse: Callable[[object], object]
    inside: tuple[_Inner, ...] = ()
    path: flattened.Path = ()
    texts: bool = False
    marks: tuple[int, ...] = ()
    """The dialects, by their place, that may say what a span with this attribute is."""
    special: bool = False
    """Whether there is more to do than to parse one value."""


def _parser(dialect: Dialect, field: str) -> Callable[[object], object]:
    parse = _PARSERS.get(field, values.text)
    if dialect.encoded and field not in CONTENT_FIELDS:
        return lambda value: parse(values.unquoted(value))
    return parse


def _tables(dialects: Iterable[Dialect]) -> tuple[dict[str, _Slot], dict[str, _Slot]]:
    """Slots by key, and by prefix."""
    slots: dict[str, _Slot] = {}
    prefixes: dict[str, _Slot] = {}
    rank = 0
    for dialect in dialects:
        inner: dict[str, list[_Inner]] = {}
        for key, fields in dialect.inside.items():
            for field, paths in fields.items():
                rank += 1
                inner.setdefault(key, []).append(_Inner(field, _INSIDE + rank, _parser(dialect, field), paths))
        for field, starts in dialect.indexed.items():
            for start in starts:
                rank += 1
                prefixes.setdefault(start, _Slot(field, rank, values.unquoted, texts=True))
        for field, keys in dialect.fields.items():
            for key in keys:
                rank += 1
                found = tuple(inner.pop(key, ()))
                slots.setdefault(key, _Slot(field, rank, _parser(dialect, field), found, (), field in CONTENT_FIELDS))
        for key, listed in inner.items():
            if (known := slots.get(key)) is None:
                slots[key] = _Slot("", _LAST, values.text, tuple(listed))
            else:
                slots[key] = replace(known, inside=(*known.inside, *listed))
    for place, dialect in enumerate(DIALECTS):
        for key in dialect.marks:
            known = slots.get(key, _KNOWN)
            slots[key] = replace(known, marks=(*known.marks, place))
    for key, slot in slots.items():
        if not slot.field or slot.texts or slot.marks or slot.inside:
            slots[key] = replace(slot, special=True)
    return slots, prefixes


class _Routes(dict[str, _Slot]):
    """The slot of every key seen; those that stand in no table are looked up once."""

    def __missing__(self, key: str) -> _Slot:
        slot = _elsewhere(key)
        if len(self) < _MOST_ROUTES:
            self[key] = slot
        return slot


_MOST_ROUTES = 16384
_KNOWN = _Slot("", _LAST, values.text)
_UNKNOWN = _Slot("", _LAST, values.text, special=True)
_SLOTS, _PREFIXES = _tables(sorted(DIALECTS, key=lambda dialect: dialect is not otel_genai.DIALECT))
_IGNORED_KEYS = frozenset(key for dialect in DIALECTS for key in dialect.ignored if not key.endswith("."))
_IGNORED_PREFIXES = tuple(key for dialect in DIALECTS for key in dialect.ignored if key.endswith("."))
_ROUTES = _Routes(_SLOTS)

CONTENT_KEYS = frozenset(key for key, slot in _SLOTS.items() if slot.texts)
"""Attribute keys that hold texts. `holds_text` also knows those of lists that are spread over keys."""


def holds_text(key: str) -> bool:
    """Whether an attribute holds texts of a call."""
    return _ROUTES[key].texts


def read(span: Span) -> Reading:
    """What a span says. Raises nothing: what cannot be read is None."""
    attributes = span.attributes
    found: dict[str, object] = {}
    ranks: dict[str, int] = {}
    texty: list[str] = []
    unknown: list[str] = []
    nested: list[tuple[_Slot, object]] = []
    spread: dict[tuple[str, int], list[tuple[flattened.Path, object]]] = {}
    marked: set[int] = set()
    routes = _ROUTES
    for key, value in attributes.items():
        slot = routes[key]
        if slot is _KNOWN:
            continue
        field = slot.field
        if slot.special:
            if slot is _UNKNOWN:
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
        if slot.rank < ranks.get(field, _LAST) and (parsed := slot.parse(value)) is not None:
            found[field] = parsed
            ranks[field] = slot.rank
    for field, rank in sorted(spread, key=itemgetter(1)) if spread else ():
        if rank < ranks.get(field, _LAST):
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


def _look_inside(nested: Iterable[tuple[_Slot, object]], found: dict[str, object]) -> None:
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


def _elsewhere(key: str) -> _Slot:
    """The slot of a key that stands in no table by itself."""
    for start, slot in _PREFIXES.items():
        if key.startswith(start) and key[len(start) : len(start) + 1].isdecimal():
            return _Slot(slot.field, slot.rank, slot.parse, (), flattened.path_of(key[len(start) :]), True, (), True)
    known = key in _IGNORED_KEYS or key.partition(".")[0] in _GENERAL or key.startswith(_IGNORED_PREFIXES)
    return _KNOWN if known else _UNKNOWN
