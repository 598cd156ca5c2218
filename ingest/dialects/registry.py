"""The conventions known, and `read`: a span -> its facts, its texts, and the keys that nobody knows.

Several conventions may meet on one span. The first in `DIALECTS` that knows what the span is names its kind. Each field
is taken from the first key that holds a usable value: OpenTelemetry's own first, then in the order of the dialects.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache

from ingest import providers
from ingest.dialects import litellm, messages, otel_genai, policy, values
from ingest.dialects.facts import Content, Dialect, Kind, LlmFacts, Reading
from ingest.spans import Attributes, Span

DIALECTS: tuple[Dialect, ...] = (litellm.DIALECT, otel_genai.DIALECT, policy.DIALECT)

CONTENT_FIELDS = ("input", "output", "system", "tools", "tool_arguments", "tool_result")
"""Fields that hold texts: kept apart from the facts."""

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
        ("input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens", "reasoning_tokens", "max_tokens"),
        values.count,
    ),
    **dict.fromkeys(("reported_cost_usd", "ttft_s", "policy_propensity"), values.real),
    **dict.fromkeys(("policy_candidates", "policy_probabilities"), values.array),
    **dict.fromkeys(CONTENT_FIELDS, lambda value: None if value == "" else value),
    "stream": values.boolean,
}


@dataclass(frozen=True, slots=True)
class _Slot:
    """Where the value of an attribute goes; the lowest rank wins."""

    field: str
    rank: int
    parse: Callable[[object], object]


def _slots(dialects: Iterable[Dialect]) -> dict[str, _Slot]:
    slots: dict[str, _Slot] = {}
    for rank, (field, key) in enumerate((f, key) for d in dialects for f, keys in d.fields.items() for key in keys):
        slots.setdefault(key, _Slot(field, rank, _PARSERS.get(field, values.text)))
    return slots


_SLOTS = _slots(sorted(DIALECTS, key=lambda dialect: dialect is not otel_genai.DIALECT))
_IGNORED_KEYS = frozenset(key for dialect in DIALECTS for key in dialect.ignored if not key.endswith("."))
_IGNORED_PREFIXES = tuple(key for dialect in DIALECTS for key in dialect.ignored if key.endswith("."))
CONTENT_KEYS = frozenset(key for key, slot in _SLOTS.items() if slot.field in CONTENT_FIELDS)
"""Attribute keys that hold texts."""

_REPAIRS = tuple((dialect.kind, dialect.repair) for dialect in DIALECTS if dialect.repair)


def read(span: Span) -> Reading:
    """What a span says. Raises nothing: what cannot be read is None."""
    attributes = span.attributes
    found: dict[str, object] = {}
    ranks: dict[str, int] = {}
    unknown: list[str] = []
    for key, value in attributes.items():
        slot = _SLOTS.get(key)
        if slot is None:
            if not _is_known(key):
                unknown.append(key)
            continue
        if slot.rank < ranks.get(slot.field, 1_000_000) and (parsed := slot.parse(value)) is not None:
            found[slot.field] = parsed
            ranks[slot.field] = slot.rank
    if not found:
        kind, dialect = _kind(attributes, found)
        return Reading(LlmFacts(kind, dialect, error_type=_exception(span)), Content(), tuple(unknown))
    for applies, repair in _REPAIRS:
        if applies(attributes):
            repair(attributes, found)
    texts = {field: found.pop(field) for field in CONTENT_FIELDS if field in found}
    kind, dialect = _kind(attributes, {**found, **texts})
    _tidy(attributes, found)
    if "error_type" not in found:
        found["error_type"] = _exception(span)
    tools = texts.get("tools")
    if tools is not None:
        found["tools_offered"] = messages.tool_names(tools)
    call_id = found.pop("tool_call_id", None)
    content = _content(span, kind, texts, found.get("tool"), call_id)
    return Reading(LlmFacts(kind, dialect, **found), content, tuple(unknown))  # type: ignore[arg-type]


def _kind(attributes: Attributes, found: Mapping[str, object]) -> tuple[Kind, str | None]:
    for dialect in DIALECTS:
        if kind := dialect.kind(attributes):
            return kind, dialect.name
    if values.text(attributes.get("gen_ai.operation.name")):  # plan, invoke_workflow, agent_step, ...: an unlisted step
        return "chain", otel_genai.DIALECT.name
    if "model_requested" in found and {"input_tokens", "output_tokens", "input", "output"} & found.keys():
        return "llm", None
    return "other", None


def _content(span: Span, kind: Kind, texts: Mapping[str, object], tool: object, call_id: object) -> Content:
    if kind == "tool" and ("tool_arguments" in texts or "tool_result" in texts):
        name, identity = values.text(tool), values.text(call_id)
        return messages.tool_content(name, identity, texts.get("tool_arguments"), texts.get("tool_result"))
    own = (
        messages.content(texts.get("input"), texts.get("output"), texts.get("system"), texts.get("tools"))
        if texts
        else Content()
    )
    carried = [(e.name, None, e.attributes) for e in span.events if e.name in messages.CONTENT_EVENTS]
    if not carried:
        return own
    told = messages.from_events(carried)
    return Content(own.input_text or told.input_text, own.output_text or told.output_text, own.tools or told.tools)


def _tidy(attributes: Attributes, found: dict[str, object]) -> None:
    """One spelling of providers; cached tokens inside the input, reasoning inside the output; no input of 0 tokens."""
    if isinstance(provider := found.get("provider"), str):
        found["provider"] = providers.canonical(provider, str(attributes.get("server.address", "")))
    given, read, written = (
        _int(found.get("input_tokens")),
        _int(found.get("cache_read_tokens")),
        _int(found.get("cache_write_tokens")),
    )
    if "input_tokens" in found:
        total = given + read + written if read + written > given else given
        found["input_tokens"] = total or None
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


@lru_cache(maxsize=8192)
def _is_known(key: str) -> bool:
    return key in _IGNORED_KEYS or key.partition(".")[0] in _GENERAL or key.startswith(_IGNORED_PREFIXES)
