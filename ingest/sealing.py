"""Spans and log records without texts, and what the converter reads from them: for content that is switched off. Pure.

Before a span is written anywhere it is read, as the converter would; then it keeps its times, ids, numbers and flags,
and in one attribute, `retroute.sealed`, what was read: the facts (names, models, counts), sketches of the messages, the
names of unknown keys. No other text is kept, be its key known or not. Hence every convention works as with content on.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from operator import attrgetter

import orjson

from ingest import logged_calls, sketches, span_scores
from ingest.dialects import messages, registry
from ingest.dialects.facts import Content, LlmFacts, Reading
from ingest.dialects.values import dumps, text
from ingest.sketches import Vector, name, sketched
from ingest.span_scores import EVALUATION
from ingest.spans import Attributes, LogRecord, Score, Span

SEALED = "retroute.sealed"

_LISTS = frozenset({"tools_offered", "policy_candidates", "policy_probabilities", "policy_features"})
"""Facts that are lists of names or numbers, of any length."""
_RESOURCE = (
    "service.",
    "telemetry.",
    "deployment.",
    "host.",
    "k8s.",
    "cloud.",
    "container.",
    "process.runtime.",
    "os.",
)
_NAMED_KEYS = frozenset(
    {
        *("event.name", "exception.type", "error.type", "gen_ai.response.id", "gen_ai.conversation.id", "session.id"),
        *("gen_ai.evaluation.name", "gen_ai.evaluation.score.label", "gen_ai.evaluation.score.value"),
        *("gen_ai.evaluation.source", "gen_ai.operation.name"),
    }
)
"""Keys of names that are kept wherever they are."""
_FACTS = tuple(LlmFacts.__dataclass_fields__)
_facts_of = attrgetter(*_FACTS)
_PLAIN_LIST = 16  # a longer list of numbers may be a text's embedding, which gives the text away


@dataclass(frozen=True, slots=True)
class Sealed:
    """What is left of a span or log record."""

    name: str
    attributes: dict[str, object]
    events: tuple[tuple[str, int, dict[str, object]], ...] = ()
    """Name, time (ns) and attributes of those that are kept."""


def seal_span(span: Span, vector: Vector | None) -> Sealed:
    """The span's remains."""
    reading = read(span)
    facts = {field: value for field, value in zip(_FACTS, _facts_of(reading.facts), strict=True) if value is not None}
    content = reading.content
    told = {
        "facts": {field: value for field, value in facts.items() if _is_bare(field, value)},
        "unknown": [key for key in reading.unknown if name(key)],
        "input": sketched(content.input_text, vector),
        "output": sketched(content.output_text, None),
        "sizes": sizes(span, content) if content.input_text or content.output_text else None,
        "scores": [_verdict(score) for score in scores(span)],
    }
    attributes = {**bare(span.attributes), SEALED: dumps({key: value for key, value in told.items() if value})}
    kept = tuple(
        (name(event.name) or "", event.time_ns, bare(event.attributes))
        for event in span.events
        if event.name not in messages.CONTENT_EVENTS and event.name != EVALUATION
    )
    return Sealed(name(span.name) or "", attributes, kept)


def seal_log(log: LogRecord, vector: Vector | None) -> Sealed:
    """The log record's remains: its names and numbers, and of an evaluation the verdict, of messages their sketches."""
    inside = log.body if isinstance(log.body, dict) else {}
    if told := logged_calls.event_name(log):
        return Sealed(told, _of_call(told, log.attributes, vector))
    event = log.event_name or text(log.attributes.get("event.name")) or text(inside.get("event.name")) or ""
    if event not in messages.CONTENT_EVENTS:
        fields_ = {**inside, **log.attributes} if event == EVALUATION else log.attributes
        return Sealed(name(event) or "", bare(fields_))
    both = {**inside, **log.attributes}
    facts = {key: value for key, value in both.items() if _tells_of_call(key) and _is_plain(value)}
    attributes = {key: value for key, value in {**bare(log.attributes), **facts}.items() if key != "event.name"}
    content = messages.from_events([(event, log.body, log.attributes)])
    given, answer = sketched(content.input_text, vector), sketched(content.output_text, None)
    offered = messages.tool_names(content.tools)
    if event != messages.DETAILS and not offered and not (given and answer):
        key = "gen_ai.prompt" if given else "gen_ai.completion"
        kind = "gen_ai.content.prompt" if given else "gen_ai.content.completion"
        return Sealed(kind, {**attributes, key: given or answer}) if given or answer else Sealed(event, attributes)
    tools = [{"name": tool} for tool in orjson.loads(offered or "[]")]
    parts = {
        "gen_ai.input.messages": given,
        "gen_ai.output.messages": answer,
        "gen_ai.tool.definitions": dumps(tools) if tools else None,
    }
    return Sealed(messages.DETAILS, {**attributes, **{key: part for key, part in parts.items() if part}})


def _tells_of_call(key: str) -> bool:
    return (key.startswith("gen_ai.") and registry.holds_fact(key)) or key in ("server.address", "user.id")


def _of_call(event: str, said: Attributes, vector: Vector | None) -> dict[str, object]:
    """Attributes of a record that tells of a call; the text that it may hold as its sketch."""
    kept = {key: value for key, value in said.items() if key in logged_calls.NAMES and _is_plain(value)}
    role, key = logged_calls.SAID.get(event, ("", ""))
    if words := text(said.get(key)):
        kept[key] = sketches.sealed(role, words, vector)
    return {**bare(said), **kept}


def read(span: Span) -> Reading:
    """What a span says, sealed or not. Raises nothing."""
    told = span.attributes.get(SEALED)
    if not isinstance(told, str):
        return registry.read(span)
    bare_span = replace(span, attributes={key: value for key, value in span.attributes.items() if key != SEALED})
    reading = registry.read(bare_span)
    try:
        found = orjson.loads(told)
        given = {field: value for field, value in found["facts"].items() if field in _FACTS}
        content = Content(sketched(found.get("input"), None), sketched(found.get("output"), None))
        return replace(
            reading, facts=LlmFacts(**given), content=content, unknown=tuple(map(str, found.get("unknown", ())))
        )
    except (ValueError, TypeError, AttributeError, KeyError):  # not by us
        return reading


def sizes(span: Span, content: Content) -> tuple[int, int]:
    """How long a span's messages are, as JSON with all their texts, sealed or not: what went in, what came out."""
    told = span.attributes.get(SEALED)
    if isinstance(told, str):
        try:
            given, answered = orjson.loads(told)["sizes"]
            return min(int(given), 2**62), min(int(answered), 2**62)
        except (ValueError, TypeError, KeyError):  # none, or not by us
            pass
    return len(content.input_text or ""), len(content.output_text or "")


def scores(span: Span) -> Iterable[Score | None]:
    """The scores that a span carries, sealed or not: see `span_scores.of_span`."""
    told = span.attributes.get(SEALED)
    if not isinstance(told, str):
        return span_scores.of_span(span)
    try:
        return [None if score is None else Score(**score) for score in orjson.loads(told).get("scores", ())]
    except (ValueError, TypeError, AttributeError):  # not by us
        return ()


def seal_resource(attributes: Attributes) -> dict[str, object]:
    """A resource's attributes: names of services, hosts and versions; no command lines."""
    return {key: value for key, value in attributes.items() if key.startswith(_RESOURCE) and _is_plain(value)}


def bare(attributes: Attributes) -> dict[str, object]:
    """Attributes whose values are numbers and flags, and the few names that a key announces."""
    return {
        key: value
        for key, value in attributes.items()
        if not registry.holds_text(key) and _is_plain(value) and (key in _NAMED_KEYS or not _has_text(value))
    }


def seal_score(score: Mapping[str, object]) -> dict[str, object]:
    """A score of POST /v1/scores without its explanation."""
    return {key: value for key, value in score.items() if key != "explanation" and (key != "label" or name(value))}


def _verdict(score: Score | None) -> dict[str, object] | None:
    """What is kept of a score; None, as for one that judges nothing, when its label was all it said and is prose."""
    if score is None:
        return None
    label = name(score.label)
    return None if score.value is None and label is None else {**asdict(score), "label": label, "explanation": None}


def _is_bare(field: str, value: object) -> bool:
    return not isinstance(value, str) or field in _LISTS or name(value) is not None


def _has_text(value: object) -> bool:
    return any(isinstance(item, str) for item in value) if isinstance(value, list) else isinstance(value, str)


def _is_plain(value: object) -> bool:
    """A name, a number or a flag, or a short list of them."""
    if isinstance(value, list):
        return len(value) <= _PLAIN_LIST and all(_is_plain(item) and not isinstance(item, list) for item in value)
    return name(value) is not None if isinstance(value, str) else isinstance(value, (int, float))
