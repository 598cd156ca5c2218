"""Attribute keys -> where their values go, as the dialects' tables say."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from ingest.dialects import flattened, values
from ingest.dialects.facts import Dialect

CONTENT_FIELDS = (
    *("input", "output", "system", "tools", "tool_arguments", "tool_result"),
    *("raw_input", "raw_output"),  # what went in and came out of a step, where nothing better tells
    *("answer_calls", "answer_reasoning"),  # parts of an answer that came apart from its text
    *("told_events", "spare_output"),  # a conversation as a list of events; a second account of an answer
)
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
        (
            *("input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens", "reasoning_tokens"),
            *("max_tokens", "cache_write_1h_tokens", "input_audio_tokens", "input_image_tokens", "output_audio_tokens"),
            *("output_image_tokens", "web_search_calls", "code_interpreter_calls", "file_search_calls"),
        ),
        values.count,
    ),
    **dict.fromkeys(("reported_cost_usd", "ttft_s", "policy_propensity"), values.real),
    **dict.fromkeys(("policy_candidates", "policy_probabilities"), values.array),
    **dict.fromkeys(CONTENT_FIELDS, values.said),
    "stream": values.boolean,
    "cache_hit": values.boolean,
    "ttft_ms": values.milliseconds,
}

LAST = 1_000_000
_INSIDE = 10_000
"""Ranks of what is within JSON objects: after everything that has a key of its own."""


@dataclass(frozen=True, slots=True)
class Inner:
    """A field within a JSON object."""

    field: str
    rank: int
    parse: Callable[[object], object]
    paths: tuple[tuple[str, ...], ...]


@dataclass(frozen=True, slots=True)
class Slot:
    """Where the value of an attribute goes; the lowest rank wins. `field` "": nowhere. `path`: a piece of a list."""

    field: str
    rank: int
    parse: Callable[[object], object]
    inside: tuple[Inner, ...] = ()
    path: flattened.Path = ()
    texts: bool = False
    marks: tuple[int, ...] = ()
    """The dialects, by their place, that may say what a span with this attribute is."""


def _parser(dialect: Dialect, field: str) -> Callable[[object], object]:
    parse = _PARSERS.get(field, values.text)
    if dialect.encoded and field not in CONTENT_FIELDS:
        return lambda value: parse(values.unquoted(value))
    return parse


KNOWN = Slot("", LAST, values.text)
"""A key that is known and not used."""

UNKNOWN = Slot("", LAST, values.text)
"""A key that no dialect knows."""

_MOST_ROUTES = 16384
_LONGEST_KEY = 1024
"""Of those that are remembered."""


class Routes(dict[str, Slot]):
    """The slot of every key seen; those that stand in no table are looked up once, and forgotten when too many."""

    def __init__(self, dialects: Sequence[Dialect], first: Dialect) -> None:
        self._slots, self._prefixes = _tables(dialects, first)
        super().__init__(self._slots)
        ignored = [key for dialect in dialects for key in dialect.ignored]
        self._ignored = frozenset(ignored)
        self._ignored_prefixes = tuple(key for key in ignored if key.endswith("."))

    def __missing__(self, key: str) -> Slot:
        slot = self._elsewhere(key)
        if len(self) >= _MOST_ROUTES:
            self.clear()
            self.update(self._slots)
        if len(key) <= _LONGEST_KEY:
            self[key] = slot
        return slot

    def _elsewhere(self, key: str) -> Slot:
        for start, slot in self._prefixes.items():
            if key.startswith(start) and key[len(start) : len(start) + 1].isdecimal():
                return replace(slot, path=flattened.path_of(key[len(start) :]))
        if key in self._ignored or key.partition(".")[0] in _GENERAL or key.startswith(self._ignored_prefixes):
            return KNOWN
        return UNKNOWN


def _tables(dialects: Sequence[Dialect], first: Dialect) -> tuple[dict[str, Slot], dict[str, Slot]]:
    """Slots by key, and by prefix. `first` is the convention whose keys win."""
    slots: dict[str, Slot] = {}
    prefixes: dict[str, Slot] = {}
    rank = 0
    for dialect in sorted(dialects, key=lambda dialect: dialect is not first):
        inner: dict[str, list[Inner]] = {}
        for key, fields in dialect.inside.items():
            for field, paths in fields.items():
                rank += 1
                steps = tuple(tuple(path.split(".")) for path in paths)
                inner.setdefault(key, []).append(Inner(field, _INSIDE + rank, _parser(dialect, field), steps))
        for field, starts in dialect.indexed.items():
            for start in starts:
                rank += 1
                prefixes.setdefault(start, Slot(field, rank, values.unquoted, texts=True))
        for field, keys in dialect.fields.items():
            for key in keys:
                rank += 1
                found = tuple(inner.pop(key, ()))
                slots.setdefault(key, Slot(field, rank, _parser(dialect, field), found, (), field in CONTENT_FIELDS))
        for key, listed in inner.items():
            if (known := slots.get(key)) is None:
                slots[key] = Slot("", LAST, values.text, tuple(listed))
            else:
                slots[key] = replace(known, inside=(*known.inside, *listed))
    for place, dialect in enumerate(dialects):
        for key in dialect.marks:
            known = slots.get(key, KNOWN)
            slots[key] = replace(known, marks=(*known.marks, place))
    return slots, prefixes
