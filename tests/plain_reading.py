"""What keys and values of attributes say, key by key: the plain way to which plans are a short cut."""

from __future__ import annotations

import json

from ingest.dialects import flattened, values
from ingest.dialects.registry import DIALECTS
from ingest.dialects.slots import KNOWN, LAST, UNKNOWN, Routes, Slot
from ingest.spans import Attributes

_OTEL = next(dialect for dialect in DIALECTS if dialect.name == "otel_genai")
ROUTES = Routes(DIALECTS, first=_OTEL)


def plain_values(attributes: Attributes) -> dict[str, object]:
    """Field -> value, as `Plan.values` finds it."""
    found: dict[str, object] = {}
    ranks: dict[str, int] = {}
    spread: dict[tuple[int, str], list[tuple[flattened.Path, object]]] = {}
    nested: list[tuple[int, Slot, object]] = []
    for key, value in attributes.items():
        slot = ROUTES[key]
        for place, _ in enumerate(slot.inside):
            nested.append((place, slot, value))
        if not slot.field:
            continue
        if slot.path:
            spread.setdefault((slot.rank, slot.field), []).append((slot.path, value))
        elif slot.rank < ranks.get(slot.field, LAST) and (parsed := slot.parse(value)) is not None:
            found[slot.field], ranks[slot.field] = parsed, slot.rank
    for (rank, field), pieces in sorted(spread.items(), key=lambda item: item[0]):
        if rank < ranks.get(field, LAST):
            found[field], ranks[field] = flattened.gathered(pieces), rank
        elif field == "output":
            found["spare_output"] = flattened.gathered(pieces)
    for place, slot, value in sorted(nested, key=lambda item: item[1].inside[item[0]].rank):
        inner, whole = slot.inside[place], values.structure(value)
        if inner.field in found or not isinstance(whole, dict):
            continue
        said = (inner.parse(values.at(whole, path)) for path in inner.paths)
        if (parsed := next((one for one in said if one is not None), None)) is not None:
            found[inner.field] = parsed
    return found


def plain_keys(attributes: Attributes) -> tuple[set[str], list[str], set[str]]:
    """Keys that hold texts, unknown keys in their order, and names of the dialects that may say what the span is."""
    slots = {key: ROUTES[key] for key in attributes}
    texts = {key for key, slot in slots.items() if slot is not KNOWN and slot.texts}
    asked = {DIALECTS[place].name for slot in slots.values() for place in slot.marks}
    return texts, [key for key, slot in slots.items() if slot is UNKNOWN], asked


def plain_structure(value: object) -> object:
    """As `values.structure`, with JSON read however it begins; the caller gives it no Python."""
    for _ in range(3):
        if not isinstance(value, str):
            break
        try:
            value = json.loads(value)
        except ValueError:
            return None
    return value if isinstance(value, list | dict) else None
