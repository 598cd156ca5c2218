"""Lists that were spread over attribute keys (`gen_ai.prompt.0.role`) -> the lists again."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from operator import itemgetter

Path = tuple[str, ...]
_Maker = Callable[[Iterator[object]], object]
"""Makes a part of a list of the values that come next."""

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
        at[last] = _copied(value)  # more may be put into it
    return _listed(root)


def _copied(value: object) -> object:
    return {key: _copied(inner) for key, inner in value.items()} if isinstance(value, dict) else value


class Form:
    """The form of a list that is spread over certain keys: what `gathered` does, with all but the values done once."""

    def __init__(self, paths: Mapping[str, Path]) -> None:
        self._paths = paths
        self._make: _Maker | None = None
        tree = _tree(paths)
        if tree is not None and len(paths) > 1:  # itemgetter makes a tuple only of several
            order: list[str] = []
            self._make = _maker(tree, order)
            self._values = itemgetter(*order)

    def filled(self, attributes: Mapping[str, object]) -> object:
        """The list with its values."""
        if self._make is not None:
            values = self._values(attributes)
            if dict not in map(type, values):  # within a value that is a dict the tree would go on
                return self._make(iter(values))
        return gathered((path, attributes[key]) for key, path in self._paths.items())


_Tree = dict[str, "_Tree | str"]
"""Step -> what is below, or the key that holds the value."""


def _tree(paths: Mapping[str, Path]) -> _Tree | None:
    """None where something lies below what has a value itself."""
    root: _Tree = {}
    for key, path in paths.items():
        at = root
        for step in path[:-1]:
            inner = at.setdefault(step, {})
            if isinstance(inner, str):
                return None
            at = inner
        if path[-1] in at:
            return None
        at[path[-1]] = key
    return root


def _maker(tree: _Tree, order: list[str]) -> _Maker:
    """Makes the list; `order` gets the keys in the order in which it takes their values."""
    numbered = _is_list(tree)
    names = tuple(sorted(tree, key=int)) if numbered else tuple(tree)
    makers: list[_Maker] = []
    for name in names:
        inner = tree[name]
        if isinstance(inner, str):
            order.append(inner)
            makers.append(_next)
        else:
            makers.append(_maker(inner, order))
    if numbered:
        return lambda values: [make(values) for make in makers]
    return _dict_maker(names, makers)


def _dict_maker(names: Sequence[str], makers: Sequence[_Maker]) -> _Maker:
    """Makes a dict; in the quickest way one of a single key, which wraps something, and one of two values, which is
    what most messages are."""
    if len(names) == 1:
        (name,), (maker,) = names, makers
        return lambda values: {name: maker(values)}
    if len(names) == 2 and set(makers) == {_next}:
        one, other = names
        return lambda values: {one: next(values), other: next(values)}
    pairs = tuple(zip(names, makers, strict=True))
    return lambda values: {name: make(values) for name, make in pairs}


def _next(values: Iterator[object]) -> object:
    return next(values)


def _is_list(found: Mapping[str, object]) -> bool:
    return bool(found) and all(key.isdecimal() and len(key) <= _LONGEST_NUMBER for key in found)


def _listed(value: dict[str, object]) -> object:
    found = {key: _listed(inner) if isinstance(inner, dict) else inner for key, inner in value.items()}
    return [found[key] for key in sorted(found, key=int)] if _is_list(found) else found
