"""What a model can do: from the settings, else from litellm's price list, else not known."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, fields, replace


@dataclass(frozen=True)
class Ability:
    """None: not known, and then nothing is ruled out."""

    max_input_tokens: int | None = None
    tools: bool | None = None
    json_schema: bool | None = None
    images: bool | None = None

    @property
    def unknown(self) -> tuple[str, ...]:
        return tuple(field.name for field in fields(self) if getattr(self, field.name) is None)


LISTED = {
    "max_input_tokens": "max_input_tokens",
    "tools": "supports_function_calling",
    "json_schema": "supports_response_schema",
    "images": "supports_vision",
}
"""Field -> its name in litellm's list. The list mostly leaves out what it does not know, so what is missing there is
not known."""


def abilities(actions: Collection[str], stated: Mapping[str, Ability]) -> dict[str, Ability]:
    """Each action's, by what is stated for it or for its model, else by what is listed for its model."""
    found = {}
    for action in actions:
        own = next((stated[name] for name in _names(action) if name in stated), Ability())
        listed = _listed(action) if own.unknown else Ability()
        found[action] = replace(own, **{name: getattr(listed, name) for name in own.unknown})
    return found


def _listed(action: str) -> Ability:
    """As litellm's list has the model of an action; all unknown where it has none."""
    from ingest.prices.book import installed_document
    from ingest.prices.names import candidates

    document = installed_document()
    for name in _names(action):
        for spelled in candidates(name, None):
            if isinstance(entry := document.get(spelled), dict):
                values = {field: entry.get(key) for field, key in LISTED.items()}
                return Ability(**{field: value for field, value in values.items() if _sound(field, value)})
    return Ability()


def _sound(field: str, value: object) -> bool:
    if field == "max_input_tokens":
        return isinstance(value, int) and not isinstance(value, bool) and value > 0
    return isinstance(value, bool)


def _names(action: str) -> Iterator[str]:
    """The action, then without its prompt, then without its reasoning effort."""
    yield action
    model = action.partition("|")[0]
    yield model
    yield model.rpartition(":")[0] or model
