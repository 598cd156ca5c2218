"""What a decision tree does, in words that people can check.

Rules are lines "if <conditions>: <action>", the conditions of a feature merged, in natural units: the features of
counts, costs and times are logarithms.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

from optimizer.dataset import Floats
from optimizer.runtime import COST_SCALE, DENSE, DIM, HASHED, STEP_DENSE, STOP, Model
from optimizer.sequential.decision_trees import Tree, always, rebuilt, simplified, trees_of, without

MOST_LINES = 8

_FLAGS: Mapping[str, tuple[str, str]] = {
    "last_error": ("the last step failed", "the last step did not fail"),
    "unchanged_output": ("the output is unchanged", "the output has changed"),
    "output_empty": ("the output is empty", "the output is not empty"),
    "signal_known": ("the last step was checked", "the last step was not checked"),
    "json_response": ("JSON is asked for", "JSON is not asked for"),
}
_COUNTS: Mapping[str, tuple[str, str]] = {
    "steps": ("step so far", "steps so far"),
    "errors": ("failed step", "failed steps"),
    "error_run": ("failure in a row", "failures in a row"),
    "action_run": ("step of the same kind in a row", "steps of the same kind in a row"),
    "repeated_output": ("earlier output like the last", "earlier outputs like the last"),
    "output_characters": ("character of output", "characters of output"),
    "output_lines": ("line of output", "lines of output"),
    "tokens": ("token so far", "tokens so far"),
    "history": ("earlier step", "earlier steps"),
    "tools": ("tool offered", "tools offered"),
}
_AMOUNTS = {"signal_last": "the last check's score", "signal_best": "the best check's score"}


def in_words(model: Model) -> list[str]:
    """At most `MOST_LINES` lines for a single tree or a constant route, when it stops first; one line that says so for
    what has no short rules."""
    if model.kind == "constant":
        return [f"always {model.actions[int(model.arrays['values'].argmax())]}"]
    tree, reason = _readable(model)
    if tree is None:
        return [reason]
    stops = _stops(tree, model.actions)
    rest = without(tree, len(model.actions) - 1) if stops else tree
    if rest is None:
        return _shortened([f"{when}: {STOP}" for when in stops])
    others = [f"{when}: {model.actions[action]}" for when, action in _rules(rest, model.actions)]
    joined = [
        f"otherwise, {line}" if line.startswith("if ") else line.replace("always", "otherwise") for line in others
    ]
    return _shortened([*(f"{when}: {STOP}" for when in stops), *(joined if stops else others)])


def stop_rule(model: Model) -> list[str]:
    """The conditions under which an episode ends, each by itself enough."""
    if model.kind == "constant":
        stops = model.actions[int(model.arrays["values"].argmax())] == STOP
        return ["stop after the first step" if stops else "never stops by itself"]
    tree, reason = _readable(model)
    if tree is None:
        return [reason]
    lines = _stops(tree, model.actions)
    return _shortened([f"stop {when}" for when in lines]) or ["never stops by itself"]


def taken(model: Model, features: Floats) -> str | None:
    """When a single tree decides as it does at these features (d,), such as "if 2 steps so far"; None for what has no
    rules that people can read."""
    tree, _ = _readable(model)
    if tree is None:
        return None
    for bounds, _ in _paths(tree):
        if all(low < features[place] <= high for place, (low, high) in bounds.items()):
            texts = [_condition(model.actions, place, low, high) for place, (low, high) in bounds.items()]
            when = " and ".join(text for text in texts if text)
            return f"if {when}" if when else "always"
    return None


def _readable(model: Model) -> tuple[Tree | None, str]:
    """The only tree of the model, or why there are no rules that people can read."""
    if model.kind != "trees":
        return None, "no short rule: it decides by the most similar logged steps"
    trees = trees_of(model)
    if len(trees) > 1:
        return None, f"no short rule: the mean of {len(trees)} decision trees decides"
    return simplified(trees[0]), ""


def _stops(tree: Tree, actions: Sequence[str]) -> list[str]:
    """When it stops, whatever it does otherwise."""
    last = len(actions) - 1
    either = simplified(rebuilt(tree, lambda value: always(int(int(value.argmax()) == last), 2)))
    return [when for when, stops in _rules(either, actions) if stops]


def _rules(tree: Tree, actions: Sequence[str]) -> list[tuple[str, int]]:
    """Of each leaf: when it is reached, and the place of the largest value."""
    found = []
    for bounds, action in _paths(tree):
        conditions = [_condition(actions, place, low, high) for place, (low, high) in bounds.items()]
        when = " and ".join(text for text in conditions if text)
        found.append((f"if {when}" if when else "always", action))
    return found


def _paths(
    tree: Tree, node: int = 0, bounds: Mapping[int, tuple[float, float]] | None = None
) -> Iterator[tuple[dict[int, tuple[float, float]], int]]:
    """Of each leaf: by feature, above what and up to what it is; and the action."""
    bounds = dict(bounds or {})
    place = int(tree.feature[node])
    if place < 0:
        yield bounds, int(tree.value[node].argmax())
        return
    threshold = float(tree.threshold[node])
    low, high = bounds.get(place, (-math.inf, math.inf))
    for child, inside in ((tree.left, (low, min(high, threshold))), (tree.right, (max(low, threshold), high))):
        yield from _paths(tree, int(child[node]), bounds | {place: inside})


def _condition(actions: Sequence[str], place: int, low: float, high: float) -> str:
    """What is said of one feature that is above `low` and at most `high`."""
    if place < DIM - HASHED:
        name = DENSE[place]
        known = _FLAGS.get(name), _COUNTS.get(name)
        if name.endswith("_share") or name == "word_length":
            return _amount(f"the prompt's {_spaced(name)}", low, high)
        return _flag(known[0], low) if known[0] else _count(known[1] or _in_prompt(name), low, high)
    if place < DIM:
        return _amount(f"the prompt's word pattern {place - (DIM - HASHED) + 1}", low, high)
    place -= DIM
    if place < len(STEP_DENSE):
        name = STEP_DENSE[place]
        if name in _FLAGS:
            return _flag(_FLAGS[name], low)
        if name in _COUNTS:
            return _count(_COUNTS[name], low, high)
        if name == "cost":
            return _amount("the cost so far", _back(low) / COST_SCALE, _back(high) / COST_SCALE, unit=" USD")
        if name == "seconds":
            return _amount("the time so far", _back(low), _back(high), unit=" s")
        return _amount(_AMOUNTS[name], low, high)
    place -= len(STEP_DENSE)
    action = actions[place % len(actions)]
    if place < len(actions):
        return _count((f"step of {action}", f"steps of {action}"), low, high)
    return _flag((f"the last step was {action}", f"the last step was not {action}"), low)


def _flag(texts: tuple[str, str], low: float) -> str:
    return texts[0] if low >= 0.0 else texts[1]


def _count(nouns: tuple[str, str], low: float, high: float) -> str:
    """low, high: of log1p of a whole number."""
    least = max(math.floor(math.expm1(low) + 1e-3) + 1, 0) if low > -1.0 else 0
    most = math.inf if high == math.inf else math.floor(math.expm1(high) + 1e-3)
    noun = nouns[0] if most == 1 or (most == math.inf and least == 1) else nouns[1]
    if most == math.inf:
        return f"at least {least} {noun}" if least else ""
    if most == 0:
        return f"no {nouns[0]}"
    if least == most:
        return f"{least} {noun}"
    return f"{least} to {most} {nouns[1]}" if least else f"at most {most} {noun}"


def _amount(name: str, low: float, high: float, unit: str = "") -> str:
    if low == -math.inf:
        return f"{name} is at most {high:.3g}{unit}"
    if high == math.inf:
        return f"{name} is above {low:.3g}{unit}"
    return f"{name} is above {low:.3g} and at most {high:.3g}{unit}"


def _back(value: float) -> float:
    """From log1p of an amount to the amount."""
    return value if math.isinf(value) else math.expm1(value)


def _in_prompt(name: str) -> tuple[str, str]:
    one = _spaced(name)
    if name.endswith("_messages"):
        return one.removesuffix("s"), one
    if name == "conversation_characters":
        return "character in the conversation", "characters in the conversation"
    if name.endswith("s") and name != "words":
        return f"{one.removesuffix('s')} in the prompt", f"{one} in the prompt"
    if name == "words":
        return "word in the prompt", "words in the prompt"
    return f"word of {one} in the prompt", f"words of {one} in the prompt"


def _spaced(name: str) -> str:
    return name.replace("_", " ")


def _shortened(lines: list[str]) -> list[str]:
    if len(lines) <= MOST_LINES:
        return lines
    return [*lines[: MOST_LINES - 1], f"and {len(lines) - MOST_LINES + 1} more"]
