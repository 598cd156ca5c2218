"""How spans with the same attribute keys are read: worked out once from the keys, then followed for every such span.

An application's spans have few different sets of keys. What the keys alone decide is in the plan: which of them hold
what, which of two wins, whom to ask what the span is. What values decide is decided span by span.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from ingest.dialects import flattened
from ingest.dialects.facts import Dialect
from ingest.dialects.slots import KNOWN, UNKNOWN, Routes, Slot
from ingest.dialects.values import at, structure
from ingest.spans import Attributes

Parse = Callable[[object], object]
"""A value as it came -> what it says; None when it says nothing."""

_MOST_PLANS = 1024
_MOST_CHARACTERS = 4_000_000
"""Of all keys in the plans that are kept."""


@dataclass(frozen=True, slots=True)
class Spread:
    """A list that is spread over keys, and the field that it fills: `beaten` when one of `better` says anything."""

    field: str
    form: flattened.Form
    better: tuple[tuple[str, Parse], ...] = ()
    beaten: str = ""

    def target(self, attributes: Attributes) -> str:
        """The field to fill; "" for none."""
        for key, parse in self.better:
            if parse(attributes[key]) is not None:
                return self.beaten
        return self.field


@dataclass(frozen=True, slots=True)
class Plan:
    """How a span with certain keys is read."""

    steps: tuple[tuple[str, str, Parse], ...]
    """Field, key and parser; a better one comes after a worse one and overwrites what that found."""
    spread: tuple[Spread, ...]
    inside: tuple[tuple[str, str, Parse, tuple[tuple[str, ...], ...]], ...]
    """Field, key of a JSON object, parser, and the paths within; the best first."""
    dialects: tuple[Dialect, ...]
    """Those that may say what the span is."""
    texts: frozenset[str]
    """Keys that hold texts."""
    unknown: tuple[str, ...]
    """Keys that no dialect knows."""

    def values(self, attributes: Attributes) -> dict[str, object]:
        """Field -> value. The attributes must have the plan's keys."""
        found: dict[str, object] = {}
        for field, key, parse in self.steps:
            if (parsed := parse(attributes[key])) is not None:
                found[field] = parsed
        for spread in self.spread:
            if target := spread.target(attributes):
                found[target] = spread.form.filled(attributes)
        if self.inside:
            self._look_inside(attributes, found)
        return found

    def _look_inside(self, attributes: Attributes, found: dict[str, object]) -> None:
        """Fields that no key of their own told, from the JSON objects that may hold them."""
        objects: dict[str, object] = {}
        for field, key, parse, paths in self.inside:
            if field in found:
                continue
            if key not in objects:
                objects[key] = structure(attributes[key])
            whole = objects[key]
            if not isinstance(whole, dict):
                continue
            for path in paths:
                value = whole.get(path[0]) if len(path) == 1 else at(whole, path)
                if value is not None and (parsed := parse(value)) is not None:
                    found[field] = parsed
                    break


class Plans(dict[tuple[str, ...], Plan]):
    """The plan for every sequence of keys, made when it is first asked for; forgotten when they are too many."""

    def __init__(self, routes: Routes, dialects: Sequence[Dialect]) -> None:
        super().__init__()
        self._routes = routes
        self._dialects = dialects
        self._characters = 0

    def __missing__(self, keys: tuple[str, ...]) -> Plan:
        plan = self._made(keys)
        size = sum(map(len, keys))
        if size <= _MOST_CHARACTERS // 16:
            if len(self) >= _MOST_PLANS or self._characters + size > _MOST_CHARACTERS:
                self.clear()
                self._characters = 0
            self[keys] = plan
            self._characters += size
        return plan

    def _made(self, keys: tuple[str, ...]) -> Plan:
        slots = {key: slot for key in keys if (slot := self._routes[key]) is not KNOWN}
        ranked = sorted(slots.items(), key=lambda pair: pair[1].rank)
        inner = sorted(((inner, key) for key, slot in ranked for inner in slot.inside), key=lambda pair: pair[0].rank)
        places = {place for slot in slots.values() for place in slot.marks}
        return Plan(
            tuple((slot.field, key, slot.parse) for key, slot in reversed(ranked) if slot.field and not slot.path),
            tuple(_spread(ranked)),
            tuple((inside.field, key, inside.parse, inside.paths) for inside, key in inner),
            tuple(self._dialects[place] for place in sorted(places)),
            frozenset(key for key, slot in slots.items() if slot.texts),
            tuple(key for key, slot in slots.items() if slot is UNKNOWN),
        )


def _spread(ranked: Sequence[tuple[str, Slot]]) -> Iterator[Spread]:
    """The lists among slots, which are in order of rank; pieces of one list have the same and keep their order."""
    pieces: dict[tuple[str, int], dict[str, flattened.Path]] = {}
    for key, slot in ranked:
        if slot.path:
            pieces.setdefault((slot.field, slot.rank), {})[key] = slot.path
    seen: set[str] = set()
    for (field, rank), paths in pieces.items():
        spare = "spare_output" if field == "output" else ""
        form = flattened.Form(paths)
        if field not in seen:
            better = ((k, s.parse) for k, s in ranked if s.field == field and s.rank < rank and not s.path)
            yield Spread(field, form, tuple(better), spare)
        elif spare:
            yield Spread(spare, form)
        seen.add(field)
