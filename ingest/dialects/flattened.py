"""Lists that were spread over attribute keys (`gen_ai.prompt.0.role`) -> the lists again."""

from __future__ import annotations

from collections.abc import Iterable

Path = tuple[str, ...]

_DEEPEST = 12
_LONGEST_NUMBER = 8


def path_of(key: str) -> Path:
    """The steps in a key; what lies deeper than any convention goes is one last step."""
    return tuple(key.split(".", _DEEPEST))


def gathered(found: Iterable[tuple[Path, object]]) -> object:
    """The value that was spread: dicts whose keys are all numbers become lists in the order of the numbers."""
    root: dict[str, object] = {}
    for path, value in found:
        at = root
        for step in path[:-1]:
            inner = at.get(step)
            if not isinstance(inner, dict):
                inner = at[step] = {} if inner is None else {"": inner}
            at = inner
        last = path[-1]
        if isinstance(at.get(last), dict):
            at = at[last]  # type: ignore[assignment]
            last = ""
        at[last] = value
    return _listed(root)


def _listed(value: dict[str, object]) -> object:
    found = {key: _listed(inner) if isinstance(inner, dict) else inner for key, inner in value.items()}
    for key in found:
        if not key.isdecimal() or len(key) > _LONGEST_NUMBER:
            return found
    return [found[key] for key in sorted(found, key=int)] if found else found
