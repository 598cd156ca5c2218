"""A policy in words: a shallow tree that imitates what the policy chooses, for people to read.

The rules are no policy that runs. They say how often they agree with the one that does, on decisions that the tree was
not grown on. Only features with a name can appear in them, at numbers that can be said: each threshold is rounded
first, and everything is measured with the rounded one.

Legend: n decisions, d features, m named features, a actions.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from optimizer.dataset import Bools, Floats, Ints, LoggedDataset
from optimizer.policy import Policy
from optimizer.runtime import DENSE

MAX_DEPTH = 3
MIN_LEAF_SHARE = 0.02
"""Smallest share of the decisions that a rule may be grown on."""

MOST_ROWS = 4000
"""The newest decisions that a tree is grown on: eight leaves need no more, and asking a policy takes time."""

_COUNTED: Mapping[str, str] = {
    "characters": "characters",
    "words": "words",
    "lines": "lines",
    "digits": "digits",
    "numbers": "numbers",
    "question_marks": "question marks",
    "code_fences": "code fences",
    "math_symbols": "math symbols",
    "brackets": "brackets",
    "choices": "lettered choices",
    "list_items": "list items",
    "attachments": "attachments",
    "code": "words about code",
    "math": "words about mathematics",
    "reasoning": "words about reasons",
    "creative": "words about creative writing",
    "transform": "words about rewriting",
    "sql": "words about SQL",
    "format": "words about formats",
    "brief": "words that ask for a short answer",
    "system_messages": "system messages",
    "user_messages": "user messages",
    "assistant_messages": "assistant messages",
    "tool_messages": "tool messages",
    "conversation_characters": "characters in the conversation",
    "tools": "tools offered",
    "history": "earlier steps",
}
_SHARES: Mapping[str, str] = {
    "uppercase_share": "capital letters",
    "non_ascii_share": "characters outside ASCII",
    "unique_word_share": "different words",
}


@dataclass(frozen=True)
class Rule:
    """One leaf: all `conditions` hold; none: everything. Numbers are of the decisions that the tree did not see."""

    conditions: tuple[str, ...]
    action: str
    share: float
    """Of all decisions."""
    today: str
    """What was logged there most often."""
    today_share: float
    """How often, of its decisions."""
    agreement: float
    """Share of its decisions where the policy chooses the same."""


@dataclass(frozen=True, eq=False)
class Rules:
    """The rules, those that cover most first; every decision that they were tested on has one."""

    rules: tuple[Rule, ...]
    fidelity: float
    """Share of decisions for which rules and policy choose the same."""
    choices: Ints
    """(n,) column of the action that the rules choose at each decision they were tested on."""
    places: Ints
    """(n,) which of `rules` each of them has."""

    def policy(self, count: int) -> Floats:
        """(n, count) the rules as a policy, without exploration."""
        return np.eye(count)[self.choices]


@dataclass(frozen=True)
class Bound:
    """feature <= at, or > at where `above`."""

    place: int
    at: float
    above: bool

    def holds(self, features: Floats) -> Bools:
        return np.asarray((features[:, self.place] > self.at) == self.above)


Path = tuple[Bound, ...]


def explain(known: LoggedDataset, judged: LoggedDataset, policy: Policy, does: Floats) -> Rules:
    """The rules of a policy, grown on the newest of the `known` decisions and tested on the `judged` ones, where the
    policy gives the probabilities `does`."""
    newest = known.take(np.argsort(known.time_ns, kind="stable")[-MOST_ROWS:])
    chosen = policy.probabilities(newest.features, newest.behaviour).argmax(axis=1)
    return distil(newest.features, chosen, judged, does.argmax(axis=1))


def distil(features: Floats, chosen: Ints, judged: LoggedDataset, does: Ints) -> Rules:
    """Rules that imitate `chosen` (n,) at `features` (n, d), tested against `does` (k,) at the k judged decisions. At
    most eight rules, of at most three conditions."""
    choices: Ints = np.zeros(len(judged), dtype=np.int64)
    places: Ints = np.zeros(len(judged), dtype=np.int64)
    rules = []
    for path, column in merged(leaves(features[:, : len(DENSE)], chosen)):
        covered = covers(path, judged.features)
        choices[covered] = column
        if covered.any():
            rules.append((_rule(path, column, covered, judged, does), covered))
    rules.sort(key=lambda found: -found[0].share)
    for place, (_, covered) in enumerate(rules):
        places[covered] = place
    fidelity = float((choices == does).mean()) if len(judged) else 1.0
    return Rules(tuple(rule for rule, _ in rules), fidelity, choices, places)


def words(rule: Rule | Mapping[str, Any]) -> str:
    """What a rule says, such as "more than 200 words and at most 3 numbers"."""
    conditions = rule.conditions if isinstance(rule, Rule) else rule["conditions"]
    return " and ".join(conditions) or "always"


def _rule(path: Path, column: int, covered: Bools, judged: LoggedDataset, does: Ints) -> Rule:
    counts = np.bincount(judged.actions[covered], minlength=len(judged.action_names))
    return Rule(
        conditions=in_words(path),
        action=judged.action_names[column],
        share=float(covered.mean()),
        today=judged.action_names[int(counts.argmax())],
        today_share=float(counts.max() / counts.sum()),
        agreement=float((does[covered] == column).mean()),
    )


def leaves(features: Floats, chosen: Ints) -> list[tuple[Path, int]]:
    """The paths of a tree grown on the named features, and the action of each."""
    if len(np.unique(chosen)) < 2:
        return [((), int(chosen[0]) if len(chosen) else 0)]
    from sklearn.tree import DecisionTreeClassifier

    least = max(1, math.ceil(MIN_LEAF_SHARE * len(chosen)))
    grown = DecisionTreeClassifier(max_depth=MAX_DEPTH, min_samples_leaf=least, random_state=0).fit(features, chosen)
    tree = grown.tree_
    found: list[tuple[Path, int]] = []

    def walk(node: int, path: Path) -> None:
        if tree.children_left[node] < 0:
            found.append((path, int(grown.classes_[tree.value[node][0].argmax()])))
            return
        place = int(tree.feature[node])
        at = _sayable(DENSE[place], float(tree.threshold[node]))
        walk(int(tree.children_left[node]), (*path, Bound(place, at, above=False)))
        walk(int(tree.children_right[node]), (*path, Bound(place, at, above=True)))

    walk(0, ())
    return found


def covers(path: Path, features: Floats) -> Bools:
    """(n,) which decisions the path leads to."""
    inside: Bools = np.ones(len(features), dtype=np.bool_)
    for bound in path:
        inside &= bound.holds(features)
    return inside


def merged(found: list[tuple[Path, int]]) -> list[tuple[Path, int]]:
    """The same rules with fewer leaves: neighbours that choose alike become one."""
    for first, second in pairwise(found):
        (path, action), (other, same) = first, second
        if action == same and len(path) == len(other) and path[:-1] == other[:-1]:
            place = found.index(first)
            return merged([*found[:place], (path[:-1], action), *found[place + 2 :]])
    return found


def _sayable(name: str, at: float) -> float:
    """The threshold moved to where a round number stands: counts to two digits, shares to a percent."""
    if name in _COUNTED:
        return math.log1p(_count(at) + 0.5)
    if name in _SHARES:
        return round(at, 2)
    return math.log1p(round(math.expm1(at), 1)) if name == "word_length" else 0.5


def _count(at: float) -> int:
    """The largest count below a threshold on log(1 + count), to two digits."""
    count = max(math.floor(math.expm1(at)), 0)
    digits = 10 ** max(len(str(count)) - 2, 0)
    return int(round(count / digits) * digits)


def in_words(path: Path) -> tuple[str, ...]:
    """In words, one per feature, in the order of the tree; of several bounds the tighter ones."""
    told: dict[int, list[Bound]] = {}
    for bound in path:
        told.setdefault(bound.place, []).append(bound)
    return tuple(_said(DENSE[place], bounds) for place, bounds in told.items())


def _said(name: str, bounds: Sequence[Bound]) -> str:
    lows, highs = [b.at for b in bounds if b.above], [b.at for b in bounds if not b.above]
    low, high = max(lows) if lows else None, min(highs) if highs else None
    if name == "json_response":
        return "JSON is asked for" if low is not None else "JSON is not asked for"
    if name in _COUNTED:
        return _said_count(_COUNTED[name], low, high)
    if name in _SHARES:
        what, form = f"of {_SHARES[name]}", "{:.0%}"
        numbers = [None if at is None else form.format(at) for at in (low, high)]
    else:
        what = "letters a word on average"
        numbers = [None if at is None else f"{math.expm1(at):.1f}" for at in (low, high)]
    if numbers[0] is not None and numbers[1] is not None:
        return f"between {numbers[0]} and {numbers[1]} {what}"
    return f"more than {numbers[0]} {what}" if numbers[0] is not None else f"at most {numbers[1]} {what}"


def _said_count(what: str, low: float | None, high: float | None) -> str:
    above = None if low is None else _count(low)
    most = None if high is None else _count(high)
    if above is not None and most is not None:
        return f"{above + 1:,} to {most:,} {what}"
    if above is not None:
        return f"any {what}" if above == 0 else f"2 or more {what}" if above == 1 else f"more than {above:,} {what}"
    return f"no {what}" if most == 0 else f"fewer than 2 {what}" if most == 1 else f"at most {most:,} {what}"
