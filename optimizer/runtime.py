"""Features, policy inference and the router: everything a decision needs, in one file.

Training computes features here and every bundle carries a byte copy of this file, so both sides cannot drift apart.
It imports numpy and the standard library only, and nothing of retroute.

Legend: n decisions, d features (DIM; of an orchestrator `width(actions)`), a actions, t trees, m nodes of the largest.
"""

from __future__ import annotations

import base64
import hashlib
import io
import itertools
import json
import math
import operator
import os
import random
import re
import struct
import time
import unicodedata
import zipfile
import zlib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property, lru_cache
from itertools import compress
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.floating[Any]]
Bools = NDArray[np.bool_]
Arm = Literal["treatment", "control", "explore"]
Draw = Literal["fresh", "session"]
ModelKind = Literal["constant", "linear", "knn", "trees"]

# ---------------------------------------------------------------------------------------------------------- features

DIM = 128
HASHED = 96
CODE_POINTS = 4000  # of the last user message that are read
TOKENS = 256  # of those that are hashed

KEYWORDS: Mapping[str, str] = {
    "code": "code function class python javascript java typescript rust bug error exception compile api algorithm "
    "implement script program regex debug refactor def return import",
    "math": "calculate compute solve equation integral derivative prove theorem probability sum average percent "
    "number many much total times triangle matrix",
    "reasoning": "why explain because reason analyze analyse compare evaluate therefore step steps think argue",
    "creative": "write story poem essay email letter blog song imagine creative draft character",
    "transform": "summarize summarise summary translate rewrite paraphrase extract classify convert shorten correct",
    "sql": "sql select query table database join schema column rows where group order",
    "format": "json csv yaml xml markdown list bullet html format template",
    "brief": "yes no true false which what who when answer only word choose option following",
}

DENSE = (
    "characters", "words", "lines", "digits", "numbers", "question_marks", "code_fences", "math_symbols", "brackets",
    "uppercase_share", "non_ascii_share", "word_length", "unique_word_share", "choices", "list_items", "attachments",
    *KEYWORDS,
    "system_messages", "user_messages", "assistant_messages", "tool_messages", "conversation_characters",
    "tools", "json_response", "history",
)  # fmt: skip

_TOKEN = re.compile(rb"[a-z0-9]+")
_NUMBER = re.compile(rb"[0-9]+")
_CHOICE = re.compile(rb"(?:^|[ \t\n])\(?[a-j][.):](?=[ \t\n])")
_LIST_ITEM = re.compile(rb"^[ \t]*(?:[-*]|[0-9]+[.)])[ \t]", re.MULTILINE)
_PATTERNS = (_TOKEN, _NUMBER, _CHOICE, _LIST_ITEM)
# The same as by the patterns, sooner: everything else becomes a space; and what every choice but one in front contains.
_ONLY_TOKENS = bytes(code if chr(code) in "abcdefghijklmnopqrstuvwxyz0123456789" else 32 for code in range(256))
_ONLY_DIGITS = bytes(code if chr(code) in "0123456789" else 32 for code in range(256))
_CHOICE_LIKE = re.compile(rb"[ \t\n(][a-j][.):][ \t\n]")
_MATH_SYMBOLS = b"+=<>^%/*$\\"
_BRACKETS = b"()[]{}"
_GROUP_OF = {word.encode(): place for place, words in enumerate(KEYWORDS.values()) for word in words.split()}
_ROLE_NAMES = ("system developer", "user human", "assistant model ai", "tool function")
_ROLES = {name: place for place, names in enumerate(_ROLE_NAMES) for name in names.split()}

_RULES = [DIM, HASHED, CODE_POINTS, TOKENS, DENSE, dict(KEYWORDS), [p.pattern.decode() for p in _PATTERNS], _ROLES]
SPEC_SHA256 = hashlib.sha256(json.dumps([*_RULES, _MATH_SYMBOLS.decode(), _BRACKETS.decode()]).encode()).hexdigest()
SPEC = "retroute-1:" + SPEC_SHA256[:12]
"""Name of the feature rules; a logged vector is comparable with one of the same name only."""


def featurise(context: Mapping[str, object]) -> Floats:
    """(DIM,) float32: 32 counts and flags, then 96 signed hashed unigrams and bigrams of the last user message.

    Reads `messages` ([{"role", "content": text or parts}], or one text), `tools`, `response_format` and `history`:
    only what is known before the decision and survives telemetry. Rules that other languages can repeat: first 8000
    code points, NFC, lower case, first 4000 code points, tokens [a-z0-9]+, first 256, crc32 mod 96, top bit = minus,
    L2 norm; counts as log1p. Rounded through float16, so that a logged vector equals the one used. Missing or odd
    input never raises and counts as zero.
    """
    try:
        values = _features(context)
    except Exception:  # not a mapping, or one that raises: a router answers all the same
        values = [0.0] * DIM
    # So few numbers are handled sooner without arrays, above all by a proxy that did something else in between.
    return np.frombuffer(_HALF.pack(*values), dtype="<f2").astype(np.float32)


_HALF = struct.Struct(f"<{DIM}e")


OPENING_SPEC = SPEC + "+opening"
OPENING_SPEC_SHA256 = hashlib.sha256(f"{SPEC_SHA256} opening".encode()).hexdigest()
"""Name and hash of the same rules where they read the opening of a conversation: the policies of sticky services. Who
does not know them must not use such a policy."""


def opening(context: Mapping[str, object]) -> dict[str, object]:
    """What all requests of a conversation have in common: its messages up to the first of a user; and the tools and the
    response format of this request, which say what can serve it. Never raises."""
    try:
        messages = context.get("messages")
        if isinstance(messages, list | tuple):
            first = next((place for place, message in enumerate(messages) if _of_user(message)), len(messages))
            messages = messages[: first + 1]
        return {"messages": messages, "tools": context.get("tools"), "response_format": context.get("response_format")}
    except Exception:  # not a mapping, or one that raises
        return {}


def of_session(features: Floats) -> Floats:
    """(..., d) the features of an opening without what may differ between the requests of one session: what the policy
    of a sticky service chooses by."""
    kept = features.copy()
    kept[..., [DENSE.index(name) for name in ("tools", "json_response", "history")]] = 0.0
    return kept


def featurise_many(contexts: Sequence[Mapping[str, object]]) -> Floats:
    """(n, DIM) float32, one row per context."""
    rows = np.zeros((len(contexts), DIM), dtype=np.float32)
    for row, context in zip(rows, contexts, strict=True):
        row[:] = featurise(context)
    return rows


STOP = "STOP"
"""The action that ends an episode. A policy whose last action it is decides step by step: an orchestrator."""
STEP_DENSE = (
    "steps", "last_error", "errors", "error_run", "action_run", "repeated_output", "unchanged_output",
    "output_characters", "output_lines", "output_empty", "signal_known", "signal_last", "signal_best",
    "cost", "tokens", "seconds",
)  # fmt: skip
COST_SCALE = 1e4  # a hundredth of a cent counts as much as one token
AMOUNT_CAP = 1e15  # of one entry's cost, tokens or seconds
_BLANK = " \t\r\n"

STEP_SPEC_SHA256 = hashlib.sha256(
    json.dumps([SPEC_SHA256, STEP_DENSE, COST_SCALE, AMOUNT_CAP, _BLANK]).encode()
).hexdigest()
STEP_SPEC = f"{SPEC}+steps-1:{STEP_SPEC_SHA256[:12]}"
"""Name of the feature rules of orchestrators: those of a single decision, and those of the steps so far."""


def width(actions: Sequence[str]) -> int:
    """Number of features that a policy with these actions reads."""
    steps = bool(actions) and actions[-1] == STOP
    return DIM + len(STEP_DENSE) + 2 * len(actions) if steps else DIM


def step_features(history: object) -> Floats:
    """(16,) float32 in the order of `STEP_DENSE`: what the steps of an episode so far tell, whatever the actions are.

    history: entries, oldest first, {"action", "status", "cost_usd", "tokens", "seconds", "output", "signal"}; every key
    may be missing. Rules that other languages can repeat, of which "last" is the last entry's:

    - steps: entries. errors: those of status "error"; error_run: those at the end without another one between;
      last_error: 1 if the last is one. action_run: entries at the end with the last action. All but last_error log1p.
    - repeated_output: log1p of earlier entries with the very output of the last; unchanged_output: 1 if that of the
      entry before it is. output_characters: log1p of its code points; output_lines: log1p of its line feeds plus 1, 0
      if it is empty; output_empty: 1 if it has nothing but spaces, tabs and line ends. All 0 where it is no text.
    - signal_known: 1 if the last entry has a signal; signal_last: the newest one; signal_best: the largest. Cut to
      [0, 1]; true is 1.
    - cost: log1p of 10,000 times the sum of cost_usd; tokens, seconds: log1p of the sum. Added in order, each cut to
      1e15; what is no number, not finite or below 0 adds nothing.

    Rounded through float16, so that a logged vector equals the one used. Never raises: an entry that is no mapping is
    one without keys, and a history that is no list, or raises, has no entries.
    """
    return history_features(history, ())


def history_features(history: object, actions: Sequence[str]) -> Floats:
    """(16 + 2a,) float32: `step_features`, then of each action log1p of how often it was taken, then 1 for the action
    of the last entry. Never raises."""
    size = len(STEP_DENSE) + 2 * len(actions)
    try:
        values = _history_features(_entries(history), actions)
    except Exception:  # entries that raise when they are read
        values = np.zeros(size)
    return values.astype(np.float16).astype(np.float32)


def orchestration_features(context: Mapping[str, object], actions: Sequence[str]) -> Floats:
    """(DIM + 16 + 2a,) float32: `featurise` of the context, then `history_features` of its history. Never raises."""
    try:
        history = context.get("history")
    except Exception:
        history = None
    return np.concatenate([featurise(context), history_features(history, actions)])


def decision_features(context: Mapping[str, object], actions: Sequence[str]) -> Floats:
    """(width(actions),) float32: what a policy with these actions reads. Never raises."""
    return featurise(context) if width(actions) == DIM else orchestration_features(context, actions)


def features_spec(actions: Sequence[str], sticky: bool = False) -> dict[str, str | int]:
    """Name, hash and number of the features that a policy with these actions reads, as a manifest holds them."""
    single = (OPENING_SPEC, OPENING_SPEC_SHA256) if sticky else (SPEC, SPEC_SHA256)
    name, digest = single if width(actions) == DIM else (STEP_SPEC, STEP_SPEC_SHA256)
    return {"spec": name, "spec_sha256": digest, "dim": width(actions)}


def decode_orchestration(text: str) -> Floats:
    """(DIM + 16 + 2a,) float32 from the `policy.features` of an orchestrator, whatever its number of actions: first
    those of the context, then `STEP_DENSE`. ValueError if it is no such vector."""
    values = _decoded(text)
    actions, odd = divmod(len(values) - DIM - len(STEP_DENSE), 2)
    if actions < 1 or odd or not np.isfinite(values).all():
        raise ValueError(f"expected the finite float16 features of an orchestrator, got {len(values)} numbers")
    return values


def encode_features(features: Floats) -> str:
    """Base64 of little-endian float16: the value of `policy.features`."""
    return base64.b64encode(np.asarray(features, dtype="<f2").tobytes()).decode("ascii")


def decode_features(text: str) -> Floats:
    """(DIM,) float32 from `policy.features`. ValueError if it is not base64 of DIM finite float16 numbers."""
    values = _decoded(text)
    if values.shape != (DIM,) or not np.isfinite(values).all():
        raise ValueError(f"expected {DIM} finite float16 features, got {values.shape[0]}")
    return values


def _decoded(text: str) -> Floats:
    return np.frombuffer(base64.b64decode(text, validate=True), dtype="<f2").astype(np.float32)


def features_hash(features: Floats) -> str:
    """First 16 hex digits of the SHA-256 of the float16 bytes: the value of `policy.features.hash`."""
    return hashlib.sha256(np.asarray(features, dtype="<f2").tobytes()).hexdigest()[:16]


def _features(context: Mapping[str, object]) -> list[float]:
    roles = [0, 0, 0, 0]
    attachments = 0
    total = 0
    prompt = ""
    for role, text, other_parts in _messages(context.get("messages")):
        place = _ROLES.get(role)
        if place is not None:
            roles[place] += 1
        attachments += other_parts
        total += len(text)
        if place == 1 and text:
            prompt = text
    lowered = unicodedata.normalize("NFC", prompt[: 2 * CODE_POINTS])
    plain = lowered[:CODE_POINTS]
    lowered = lowered.lower()[:CODE_POINTS]
    head = lowered.encode("ascii", "replace")  # other scripts become separators
    words = head.translate(_ONLY_TOKENS).split()
    tokens = words[:TOKENS]
    groups = [0] * len(KEYWORDS)
    for token in tokens:
        if (group := _GROUP_OF.get(token)) is not None:
            groups[group] += 1
    size = max(len(plain), 1)
    ascii_only = plain.encode("ascii", "ignore")
    return [
        math.log1p(len(prompt)),
        math.log1p(len(words)),
        math.log1p(plain.count("\n") + 1 if plain else 0),
        math.log1p(_count(head, b"0123456789")),
        math.log1p(len(head.translate(_ONLY_DIGITS).split())),
        math.log1p(lowered.count("?")),
        math.log1p(plain.count("```")),
        math.log1p(_count(head, _MATH_SYMBOLS)),
        math.log1p(_count(head, _BRACKETS)),
        _count(ascii_only, b"ABCDEFGHIJKLMNOPQRSTUVWXYZ") / size,
        (len(plain) - len(ascii_only)) / size,
        math.log1p(sum(map(len, words)) / len(words)) if words else 0.0,
        len(set(words)) / len(words) if words else 0.0,
        math.log1p(len(_CHOICE.findall(head)) if _CHOICE_LIKE.search(head) or _CHOICE.match(head) else 0),
        math.log1p(len(_LIST_ITEM.findall(head))),
        math.log1p(attachments),
        *map(math.log1p, groups),
        *map(math.log1p, roles),
        math.log1p(total),
        math.log1p(_size(context.get("tools"))),
        float(_wants_json(context.get("response_format"))),
        math.log1p(_size(context.get("history"))),
        *_hashed(tokens),
    ]


def _entries(history: object) -> list[Mapping[str, object]]:
    if not isinstance(history, list | tuple):
        return []
    return [entry if isinstance(entry, Mapping) else {} for entry in history]


def _history_features(entries: Sequence[Mapping[str, object]], actions: Sequence[str]) -> Floats:
    values = np.zeros(len(STEP_DENSE) + 2 * len(actions))
    if not entries:
        return values
    last = entries[-1]
    failed = [entry.get("status") == "error" for entry in entries]
    taken = [_text_or_none(entry.get("action")) for entry in entries]
    outputs = [_text_or_none(entry.get("output")) for entry in entries]
    signals = [signal for entry in entries if (signal := _signal(entry.get("signal"))) is not None]
    output = outputs[-1]
    same = [output is not None and other == output for other in outputs[:-1]]
    values[: len(STEP_DENSE)] = [
        math.log1p(len(entries)),
        float(failed[-1]),
        math.log1p(sum(failed)),
        math.log1p(_run(failed, True)),
        math.log1p(_run(taken, taken[-1]) if taken[-1] is not None else 0),
        math.log1p(sum(same)),
        float(same[-1]) if same else 0.0,
        math.log1p(len(output or "")),
        math.log1p(output.count("\n") + 1) if output else 0.0,
        float(output is not None and not output.strip(_BLANK)),
        float(_signal(last.get("signal")) is not None),
        signals[-1] if signals else 0.0,
        max(signals, default=0.0),
        math.log1p(COST_SCALE * _total(entries, "cost_usd")),
        math.log1p(_total(entries, "tokens")),
        math.log1p(_total(entries, "seconds")),
    ]
    for place, action in enumerate(actions, start=len(STEP_DENSE)):
        values[place] = math.log1p(taken.count(action))
        values[place + len(actions)] = float(taken[-1] == action)
    return values


def _run(values: Sequence[object], value: object) -> int:
    """How many at the end are `value`."""
    return sum(1 for _ in itertools.takewhile(lambda other: other == value, reversed(values)))


def _text_or_none(value: object) -> str | None:
    return value if isinstance(value, str) else None


def _total(entries: Sequence[Mapping[str, object]], key: str) -> float:
    total = 0.0
    for entry in entries:
        amount = _number(entry.get(key))
        if amount is not None and amount > 0.0:
            total += min(amount, AMOUNT_CAP)
    return total


def _signal(value: object) -> float | None:
    number = float(value) if isinstance(value, bool) else _number(value)
    return None if number is None else min(max(number, 0.0), 1.0)


def _number(value: object) -> float | None:
    """A finite number; None for everything else."""
    if isinstance(value, bool) or not isinstance(value, int | float | np.number):
        return None
    try:
        number = float(value)
    except (OverflowError, TypeError, ValueError):  # an integer beyond all floats, a complex number
        return None
    return number if math.isfinite(number) else None


def _hashed(tokens: Sequence[bytes]) -> list[float]:
    counts = [0] * HASHED
    single = list(map(zlib.crc32, tokens))
    spaced = (b" " + b"\0 ".join(tokens)).split(b"\0")
    pairs = map(zlib.crc32, spaced[1:], single)  # crc32 goes on where the first token's ended
    size = HASHED
    for code in itertools.chain(single, pairs):
        if code > 0x7FFFFFFF:
            counts[code % size] -= 1
        else:
            counts[code % size] += 1
    norm = math.sqrt(sum(map(operator.mul, counts, counts)))
    return [count / norm if count else 0.0 for count in counts]


def _count(data: bytes, characters: bytes) -> int:
    return len(data) - len(data.translate(None, characters))


def _size(value: object) -> int:
    """Length of a list or mapping, or a count given as a number; everything else is 0."""
    if isinstance(value, bool):
        return 0
    if isinstance(value, int):
        return min(max(value, 0), 1_000_000)
    return len(value) if isinstance(value, list | tuple | Mapping) else 0


def _wants_json(value: object) -> bool:
    kind = value.get("type") if isinstance(value, Mapping) else value
    return isinstance(kind, str) and kind.startswith("json")


def _of_user(message: object) -> bool:
    role = message.get("role") if isinstance(message, Mapping) else None
    return isinstance(role, str) and _ROLES.get(role) == 1


def _messages(messages: object) -> Iterator[tuple[str, str, int]]:
    """(role, text, number of parts without text) of each message that has the shape of one."""
    if isinstance(messages, str):
        yield "user", messages, 0
    if not isinstance(messages, list | tuple):
        return
    for message in messages:
        if isinstance(message, Mapping):
            role = message.get("role")
            content = message.get("content")
            if isinstance(content, str):
                text, other = content, 0
            else:
                text, other = _text(message.get("parts") if content is None else content)
            yield (role if isinstance(role, str) else ""), text, other


def _text(content: object) -> tuple[str, int]:
    if isinstance(content, str):
        return content, 0
    texts: list[str] = []
    other = 0
    for part in content if isinstance(content, list | tuple) else ():
        text = part
        if isinstance(part, Mapping):
            text = part.get("text") if isinstance(part.get("text"), str) else part.get("content")
        if isinstance(text, str):
            texts.append(text)
        else:
            other += 1
    return "\n".join(texts), other


# ------------------------------------------------------------------------------------------------------------- model


@dataclass(frozen=True, eq=False)
class Model:
    """Expected value of every action, and the epsilon-greedy policy on it.

    arrays by kind: constant: values (a,). linear: mean, scale (d,), weights (d, a), bias (a,). knn: mean, scale (d,),
    points (m, d) already standardised as (x - mean) / scale, targets (m, a), k (). trees: feature (t, m), the place
    that a node compares, -1 in a leaf; threshold (t, m), up to which it goes to the node left (t, m), else right
    (t, m), both further on in the table; value (t, m, a), of which those of the leaves count; node 0 is the root. Any
    kind may have draws (a, a) instead of epsilon: row i holds the probability of every action where i is the best. Any
    kind may be mixed with a routing that is blind to the prompt: today (a,) its probabilities, share () that of
    decisions which the model makes. Any kind may have able (a, 1 + needs): what its actions can do, see `able`; and
    seen (2, counts): the least and the most of each of the features `DENSE` in training, see `far`.
    ValueError if any is missing, misshapen or not finite.

    A model whose last action is STOP is an orchestrator: d is `width(actions)`, and it has no draws and no today, since
    it explores one step of an episode and is mixed episode by episode (canary). What it values at `NEVER` it does not
    explore either.
    """

    kind: ModelKind
    actions: tuple[str, ...]
    arrays: Mapping[str, NDArray[Any]]
    epsilon: float = 0.05

    def __post_init__(self) -> None:
        a = len(self.actions)
        if not a or len(set(self.actions)) != a or not all(isinstance(name, str) and name for name in self.actions):
            raise ValueError(f"actions must be distinct names, got {list(self.actions)}")
        if not 0.0 <= self.epsilon <= 1.0:
            raise ValueError(f"epsilon must lie in [0, 1], got {self.epsilon}")
        for name, shape in self._shapes(a).items():
            array = self.arrays.get(name)
            if array is None or array.dtype.kind not in "fiu":
                raise ValueError(f"a {self.kind} model needs a numeric array {name}")
            if array.shape != shape:
                raise ValueError(f"{name} must have shape {shape}, got {array.shape}")
            if not np.isfinite(array).all():
                raise ValueError(f"{name} has values that are not finite")
        if self.steps and not {"draws", "today"}.isdisjoint(self.arrays):
            raise ValueError("an orchestrator has no draws and no today: it explores one step, and a canary mixes it")
        if "scale" in self._shapes(a) and not (self.arrays["scale"] > 0).all():
            raise ValueError("scale must be positive")
        if self.kind == "trees":
            self._check_trees()
        if self.kind == "knn" and not 1 <= int(self.arrays["k"]) <= len(self.arrays["points"]):
            raise ValueError("k must lie between 1 and the number of points")
        draws = self.arrays.get("draws")
        if draws is not None and not (
            (draws >= 0).all() and (draws.diagonal() > 0).all() and np.abs(draws.sum(axis=1) - 1).max() < 1e-6
        ):
            raise ValueError("rows of draws must be probabilities that sum to 1 and give the best action a chance")
        if "share" in self.arrays:
            today, share = self.arrays["today"], float(self.arrays["share"])
            if (today < 0).any() or abs(today.sum() - 1) >= 1e-6 or not 0.0 <= share <= 1.0:
                raise ValueError("today must be probabilities that sum to 1, and share must lie between 0 and 1")

    def _shapes(self, a: int) -> dict[str, tuple[int, ...]]:
        standard: dict[str, tuple[int, ...]] = {"draws": (a, a)} if "draws" in self.arrays else {}
        if "today" in self.arrays or "share" in self.arrays:
            standard |= {"today": (a,), "share": ()}
        if "able" in self.arrays:
            standard |= {"able": (a, 1 + len(NEEDS))}
        if "seen" in self.arrays:
            standard |= {"seen": (2, len(DENSE))}
        if self.kind == "constant":
            return standard | {"values": (a,)}
        if self.kind == "trees":
            shape = self.arrays["feature"].shape if "feature" in self.arrays else (1, 1)
            t, m = shape if len(shape) == 2 else (1, 1)
            return standard | dict.fromkeys(("feature", "threshold", "left", "right"), (t, m)) | {"value": (t, m, a)}
        d = self.arrays["mean"].size if "mean" in self.arrays and not self.steps else width(self.actions)
        standard |= {"mean": (d,), "scale": (d,)}
        if self.kind == "linear":
            return standard | {"weights": (d, a), "bias": (a,)}
        if self.kind == "knn":
            m = len(self.arrays["points"]) if self.arrays.get("points", np.zeros(())).ndim else 0
            return standard | {"points": (m, d), "targets": (m, a), "k": ()}
        raise ValueError(f"model kind must be constant, linear, knn or trees, got {self.kind!r}")

    def _check_trees(self) -> None:
        feature, left, right = (self.arrays[name] for name in ("feature", "left", "right"))
        t, m = feature.shape
        if not t or not m:
            raise ValueError("trees need a node each")
        if any(array.dtype.kind not in "iu" for array in (feature, left, right)):
            raise ValueError("feature, left and right must be integers")
        inner = feature >= 0
        if (feature < -1).any() or (feature >= width(self.actions)).any():
            raise ValueError(f"feature must be -1 or a place among the {width(self.actions)} features")
        node = np.arange(m)
        if any((inner & ((child <= node) | (child >= m))).any() for child in (left, right)):
            raise ValueError("the children of a node must stand after it in the table")
        if self._forest.depth > MAX_DEPTH:
            raise ValueError(f"trees may be at most {MAX_DEPTH} decisions deep")

    @property
    def steps(self) -> bool:
        """Whether it decides step by step, and when to stop."""
        return self.actions[-1] == STOP

    def able(self, features: Floats) -> Bools:
        """(n, d) -> (n, a): which actions can serve each decision, as far as is known."""
        if "able" not in self.arrays:
            return np.ones((len(features), len(self.actions)), dtype=np.bool_)
        return able(features, self.arrays["able"])

    def able_ones(self, features: Sequence[float]) -> tuple[str, ...]:
        """`able` of one decision (d,): the names of the actions that can serve it."""
        if "able" not in self.arrays:
            return self.actions
        length = features[_LENGTH_PLACE]
        needed = [place for place in _NEED_PLACES if features[place] > 0]
        return tuple(
            name
            for name, (most, cannot) in zip(self.actions, self._limits, strict=True)
            if length <= most and cannot.isdisjoint(needed)
        )

    @cached_property
    def _limits(self) -> list[tuple[float, frozenset[int]]]:
        """Of each action the longest conversation, as its feature counts it, and the features that it cannot serve."""
        return [
            (math.log1p(most) if most > 0 else math.inf, frozenset(compress(_NEED_PLACES, (can == 0 for can in row))))
            for most, *row in self.arrays["able"].tolist()
        ]

    def far(self, features: Sequence[float]) -> bool:
        """(d,) Whether more than `FAR_COUNTS` counts of a decision lie beyond all that were seen in training: what the
        policy says of such a prompt is worth nothing. Beyond is by more than a quarter of the range seen, and by more
        than twice as many."""
        if "seen" not in self.arrays:
            return False
        outside = [count < low or count > high for count, (low, high) in zip(features, self._seen, strict=False)]
        return sum(outside) > FAR_COUNTS

    @cached_property
    def _seen(self) -> list[tuple[float, float]]:
        low, high = np.asarray(self.arrays["seen"], dtype=np.float64)
        room = np.maximum((high - low) / 4, math.log(2.0))  # counts are logarithms
        return list(zip((low - room).tolist(), (high + room).tolist(), strict=True))

    def values(self, features: Floats) -> NDArray[np.float64]:
        """(n, d) -> (n, a). kNN is the mean over the k nearest points and all that are as near as the k-th."""
        x = np.asarray(features, dtype=np.float64)
        arrays = self.arrays
        if self.kind == "constant":
            return np.tile(np.asarray(arrays["values"], dtype=np.float64), (len(x), 1))
        if self.kind == "trees":
            return self._forest.values(x)
        x = (x - arrays["mean"]) / arrays["scale"]
        if self.kind == "linear":
            return np.asarray(x @ arrays["weights"] + arrays["bias"], dtype=np.float64)
        return np.vstack([self._nearest(x[start : start + 256]) for start in range(0, max(len(x), 1), 256)])

    @cached_property
    def _forest(self) -> _Forest:
        return _Forest.of(self.arrays)

    @cached_property
    def _points(self) -> NDArray[np.float64]:
        return np.asarray(self.arrays["points"], dtype=np.float64)

    @cached_property
    def _norms(self) -> NDArray[np.float64]:
        return np.asarray((self._points**2).sum(axis=1), dtype=np.float64)

    def _nearest(self, x: NDArray[np.float64]) -> NDArray[np.float64]:
        k = int(self.arrays["k"])
        distances = (x**2).sum(axis=1)[:, None] + self._norms - 2.0 * x @ self._points.T  # squared
        # Ties count in full, with room for rounding: one row or a batch, and any order of points, give the same.
        reach = np.partition(distances, k - 1, axis=1)[:, k - 1 : k] if len(x) else distances[:, :1]
        near = (distances <= reach + 1e-9 * (1.0 + np.abs(reach))).astype(np.float64)
        return np.asarray(near @ self.arrays["targets"] / near.sum(axis=1, keepdims=True), dtype=np.float64)

    def probabilities(self, features: Floats, allowed: Bools) -> NDArray[np.float64]:
        """(n, d), (n, a) -> (n, a): 1 - epsilon on the best allowed action (the first of equals), epsilon spread evenly
        over all allowed ones; with draws, their row of the best allowed action, scaled to the allowed ones. With a
        share, so much of that and the rest of today, scaled to the allowed ones; all of it where today takes none of
        them. Rows sum to 1, zero where not allowed. ValueError if a row allows nothing or its features are not finite.
        """
        allowed = np.asarray(allowed, dtype=bool)
        count = allowed.sum(axis=1, keepdims=True)
        if not count.all():
            raise ValueError("a decision needs at least one allowed action")
        values = self.values(features)
        if not np.isfinite(values).all():
            raise ValueError("features are not finite")
        best = np.where(allowed, values, -np.inf).argmax(axis=1)
        if "draws" in self.arrays:
            result = np.where(allowed, np.asarray(self.arrays["draws"], dtype=np.float64)[best], 0.0)
            result /= result.sum(axis=1, keepdims=True)
        else:
            result = np.where(allowed, self.epsilon / count, 0.0)
            result[np.arange(len(result)), best] += 1.0 - self.epsilon
        if "share" not in self.arrays:
            return result
        today = np.where(allowed, np.asarray(self.arrays["today"], dtype=np.float64), 0.0)
        total = today.sum(axis=1, keepdims=True)
        share = np.where(total > 0.0, float(self.arrays["share"]), 1.0)
        return np.asarray(share * result + (1.0 - share) * today / np.where(total > 0.0, total, 1.0))

    def shares(self, features: Floats, allowed: Sequence[str]) -> list[float]:
        """`probabilities` of one decision (d,) among the allowed actions, in the model's order, without the cost of
        arrays. ValueError as there."""
        values = self.values(features[None, :])[0].tolist()
        if not all(map(math.isfinite, values)):
            raise ValueError("features are not finite")
        places = range(len(values)) if len(allowed) == len(values) else list(map(self.actions.index, allowed))
        best = max(places, key=values.__getitem__)  # the first of equals
        if "draws" in self.arrays:
            result = _scaled(self.arrays["draws"][best].tolist(), places)
        else:
            result = [self.epsilon / len(places)] * len(places)
            result[places.index(best)] += 1.0 - self.epsilon
        if "share" not in self.arrays:
            return result
        today, share = _scaled(self.arrays["today"].tolist(), places), float(self.arrays["share"])
        if not today:
            return result
        return [share * one + (1.0 - share) * other for one, other in zip(result, today, strict=True)]


def _scaled(shares: Sequence[float], places: Sequence[int]) -> list[float]:
    """The shares at these places, scaled to sum to 1; empty where all are 0."""
    kept = [shares[place] for place in places]
    total = sum(kept)
    return [share / total for share in kept] if total > 0.0 else []


FAR_COUNTS = len(DENSE) // 8
"""So many counts beyond the range of training are no reason yet: one long prompt moves three or four."""
NEVER = -1e9
"""Value of an action that only the script may take. Below half of it counts, so that features do not matter."""
MAX_DEPTH = 64  # decisions on the way to a leaf


@dataclass(frozen=True, eq=False)
class _Forest:
    """All trees as one table. A leaf's children are itself, so that every row can walk on until the last arrives."""

    roots: NDArray[np.int64]  # (t,)
    feature: NDArray[np.int64]  # (t * m,) 0 in leaves
    threshold: NDArray[np.float64]  # (t * m,)
    children: NDArray[np.int64]  # (2 * t * m,) left and right of each node
    value: NDArray[np.float64]  # (t * m, a)
    depth: int

    @classmethod
    def of(cls, arrays: Mapping[str, NDArray[Any]]) -> _Forest:
        t, m = arrays["feature"].shape
        feature = arrays["feature"].astype(np.int64).ravel()
        roots = np.arange(t) * m
        base, own = np.repeat(roots, m), np.arange(t * m)
        left, right = (
            np.where(feature < 0, own, arrays[name].astype(np.int64).ravel() + base) for name in ("left", "right")
        )
        children = np.stack([left, right], axis=1).ravel()
        depth, level = 0, roots
        while depth <= MAX_DEPTH and (level := level[feature[level] >= 0]).size:
            depth += 1
            level = np.unique(np.concatenate([left[level], right[level]]))
        return cls(
            roots=roots,
            feature=np.maximum(feature, 0),
            threshold=arrays["threshold"].astype(np.float64).ravel(),
            children=children,
            value=arrays["value"].astype(np.float64).reshape(t * m, -1),
            depth=depth,
        )

    def values(self, x: NDArray[np.float64]) -> NDArray[np.float64]:
        """(n, d) -> (n, a): the sum over the trees of the leaf that a row ends in; NaN where it is not finite."""
        result = np.empty((len(x), self.value.shape[1]))
        for start in range(0, len(x), 4096):
            rows = x[start : start + 4096]
            place = np.arange(len(rows))[:, None]
            node = np.repeat(self.roots[None, :], len(rows), axis=0)
            for _ in range(self.depth):
                right = rows[place, self.feature[node]] > self.threshold[node]
                node = self.children[2 * node + right]
            result[start : start + 4096] = self.value[node].sum(axis=1)
        result[~np.isfinite(x).all(axis=1)] = np.nan
        return result


NEEDS = ("tools", "json_response", "attachments")
"""Features that say what a decision needs."""
_NEED_PLACES = [DENSE.index(name) for name in NEEDS]
_LENGTH_PLACE = DENSE.index("conversation_characters")


def able(features: Floats, table: NDArray[Any]) -> Bools:
    """(n, DIM), (a, 1 + needs) -> (n, a): which actions can serve each decision.

    The table's first column is the most characters of a conversation (0: no limit), the others are 0 where the action
    cannot do what `NEEDS` names.
    """
    most = np.where(table[:, 0] > 0, np.log1p(np.maximum(table[:, 0], 0.0)), np.inf)
    needed = (features[:, _NEED_PLACES] > 0).astype(np.float64)
    lacking = needed @ (table[:, 1:] == 0).T.astype(np.float64)
    return np.asarray((features[:, _LENGTH_PLACE, None] <= most) & (lacking == 0))


# ------------------------------------------------------------------------------------------------------------ router

SCHEMA = "policy-bundle/1"
WEIGHTS, BEFORE = "weights.npz", "before.npz"
"""The policy's weights, and those of the earlier policy that the control arm follows during a rollout."""
MANIFEST_BYTES = 4 << 20
FILE_BYTES = 256 << 20
BUCKETS = 100_000  # of the canary: thousandths of a percent


class Breaker:
    """Sets an action aside for `REST_S` once it has failed `FAILURES` times without working in between. When it comes
    back, one more failure is enough. Shared by threads: a lost count does no harm."""

    FAILURES = 5
    REST_S = 30.0

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._failures: dict[str, int] = {}
        self._until: dict[str, float] = {}

    def failed(self, action: str) -> None:
        """A call of this action failed, and through no fault of the request."""
        self._failures[action] = self._failures.get(action, 0) + 1
        if self._failures[action] >= self.FAILURES:
            self._until[action] = self._clock() + self.REST_S

    def worked(self, action: str) -> None:
        """A call of this action was answered."""
        if self._failures.pop(action, 0):
            self._until.pop(action, None)

    def left(self, actions: tuple[str, ...]) -> tuple[str, ...]:
        """Those that are not set aside; all if all are."""
        if not self._until:
            return actions
        now = self._clock()
        return tuple(action for action in actions if self._until.get(action, -math.inf) <= now) or actions


class Pace:
    """Holds a policy for `REST_S` whose decisions take more than `MOST_NS` of the processor too often: in the long run
    more than one of a hundred, and `TIMES` more than that."""

    MOST_NS = 5_000_000
    TIMES = 10
    REST_S = 60.0

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._excess = 0.0
        self._until = -math.inf

    def took(self, nanoseconds: int) -> None:
        """A decision took so much of the processor's time."""
        if nanoseconds <= self.MOST_NS:
            self._excess = max(self._excess - 0.01, 0.0)
            return
        self._excess += 1.0
        if self._excess >= self.TIMES:
            self._excess, self._until = 0.0, self._clock() + self.REST_S

    @property
    def resting(self) -> bool:
        """Whether no decision should be made now."""
        return self._until > -math.inf and self._clock() < self._until


_FAMILIES = {
    "anthropic": re.compile(r"claude"),
    "google": re.compile(r"gemini"),
    "openai": re.compile(r"(?:^|[^a-z0-9])(?:(?:chat)?gpt-|o[1-9](?:$|[^a-z0-9])|codex)"),
}


def family_of(action: str) -> str | None:
    """Who makes the model of an action, by its name; None if it does not say."""
    name = action.partition("|")[0].lower()
    return next((family for family, pattern in _FAMILIES.items() if pattern.search(name)), None)


def bound_to(context: Mapping[str, object]) -> frozenset[str] | None:
    """Whose models alone can go on from what a conversation holds: signed thinking, encrypted reasoning, thought
    signatures of tool calls, an answer that only its provider keeps. None if any can."""
    kept = frozenset(_FAMILIES)
    if context.get("previous_response_id"):
        kept &= {"openai"}
    messages = context.get("messages")
    for message in messages if isinstance(messages, list | tuple) else ():
        if not isinstance(message, Mapping) or message.get("role") in ("user", "system", "developer"):
            continue
        if len(message) > 2 or not isinstance(message.get("content"), str):  # more than a role and a text
            for families in _marks(message):
                kept &= families
    return None if len(kept) == len(_FAMILIES) else kept


_PART_MARKS = {
    "thinking": frozenset({"anthropic"}),
    "redacted_thinking": frozenset({"anthropic"}),
    "item_reference": frozenset({"openai"}),
    "compaction": frozenset({"openai"}),
}


_MARKED = ("content", "parts", "tool_calls", "function", "provider_specific_fields", "extra_content", "google")


def _marks(message: Mapping[str, object], depth: int = 4) -> Iterator[frozenset[str]]:
    kind = message.get("type")
    if isinstance(kind, str) and kind in _PART_MARKS:
        yield _PART_MARKS[kind]
    if kind == "reasoning" and message.get("encrypted_content"):
        yield frozenset({"openai"})
    if message.get("thinking_blocks"):  # both write their own into it
        yield frozenset({"anthropic", "google"})
    if message.get("thought_signature") or message.get("thoughtSignature"):
        yield frozenset({"google"})
    for key in _MARKED if depth else ():
        inner = message.get(key)
        for part in inner if isinstance(inner, list | tuple) else (inner,):
            if isinstance(part, Mapping):
                yield from _marks(part, depth - 1)


_SYSTEM = random.SystemRandom()  # asked at every draw (0.5 us): forked workers can never share a stream


class PolicyError(RuntimeError):
    """A policy folder that must not be used, and why."""


@dataclass(frozen=True, eq=False)
class Decision:
    """What was chosen, with what probability over all arms of the canary, by which policy and why.

    reason: policy, explore, canary, or why the incumbent was taken instead: kill_switch, disabled, not_yet_valid,
    expired, no_candidates, none_able, history (no action is known to take it), drift (nothing like it was seen in
    training), too_slow, error:<type>. Of a sticky policy also why the session's action was not taken and
    another drawn: not_able (to serve this request), not_offered (no candidate now). An orchestrator takes its script's
    action for those of the incumbent, and for unreadable_history, unreadable_budget and unknown_arm; it stops for
    budget:<what>, max_steps, loop, and for no_candidates after the first step.
    """

    action: str
    propensity: float
    policy: str
    version: str
    arm: Arm
    reason: str
    features: Floats  # (d,), of a decision that is too_slow (0,)
    candidates: tuple[str, ...]
    probabilities: tuple[float, ...]  # of the candidates, in their order
    spec: str = SPEC  # of the features
    draw: Draw = "fresh"
    """session: the one draw of its session, which all its requests repeat."""
    step: int | None = None
    """Steps taken before, of an orchestrator."""
    explored: bool = False
    """Whether this is the step of its episode that was drawn at random."""
    treated: float = 1.0
    """Probability that an episode with this past, this decision included, is under the policy."""
    revision: int = 0
    """Of the policy: says how many sessions are under it, as the canary grows."""
    shadow: str = ""
    """What the policy would most likely have done where another arm decided."""

    def attributes(self) -> dict[str, str | float]:
        """Span attributes of the decision."""
        return attributes(self)

    def entry(
        self,
        status: str | None = "ok",
        output: str | None = None,
        cost_usd: float | None = None,
        tokens: int | None = None,
        seconds: float | None = None,
        signal: float | None = None,
    ) -> dict[str, object]:
        """What to append to the episode's history when the step is done."""
        return {
            "action": self.action,
            "status": status,
            "cost_usd": cost_usd,
            "tokens": tokens,
            "seconds": seconds,
            "output": output,
            "signal": signal,
            "explored": self.explored,
            "arm": self.arm,
            "treated": self.treated,
        }


@lru_cache(maxsize=256)
def _names_json(names: tuple[str, ...]) -> str:
    return json.dumps(names)


_NO_FEATURES: Floats = np.zeros(0, dtype=np.float32)


def attributes(decision: Decision, requested_model: str | None = None) -> dict[str, str | float]:
    """Span attributes of a decision. Candidates and probabilities are left out beyond 16 actions."""
    result: dict[str, str | float] = {
        "policy.id": decision.policy,
        "policy.version": decision.version,
        "policy.action": decision.action,
        "policy.propensity": decision.propensity,
        "policy.arm": decision.arm,
        "policy.reason": decision.reason,
        "policy.draw": decision.draw,
        "policy.revision": decision.revision,
    }
    if decision.features.size:
        data = np.asarray(decision.features, dtype="<f2").tobytes()
        result["policy.features"] = base64.b64encode(data).decode("ascii")
        result["policy.features.spec"] = decision.spec
        result["policy.features.hash"] = hashlib.sha256(data).hexdigest()[:16]
    if len(decision.candidates) <= 16:
        result["policy.candidates"] = _names_json(decision.candidates)
        result["policy.probabilities"] = f"[{', '.join(map(repr, decision.probabilities))}]"
    if decision.shadow:
        result["policy.shadow"] = decision.shadow
    if requested_model:
        result["policy.requested_model"] = requested_model
    if decision.step is not None:
        result |= {"policy.step": decision.step, "policy.explored": decision.explored}
    return result


_REASONS: Mapping[Arm, str] = {"treatment": "policy", "explore": "explore", "control": "canary"}


BUDGETS = ("cost_usd", "tokens", "steps", "seconds")
MOST_STEPS = 10_000


@dataclass(frozen=True)
class Course:
    """What an orchestrator's episodes follow where the policy may not choose, and where they end whoever chooses.

    ValueError on a script that is none, and on limits that are not positive.
    """

    actions: tuple[str, ...]
    """Of the policy, STOP last."""
    script: tuple[str, ...]
    """The incumbent's actions by step; the last one repeats."""
    budgets: Mapping[str, float] = field(default_factory=dict)
    """Upper limits of `BUDGETS` for a whole episode; the caller's own may be lower."""
    max_steps: int = 20
    """An episode of so many steps is over."""
    loop: int = 3
    """So many steps running with the same action and the same output are a loop."""

    def __post_init__(self) -> None:
        if len(self.actions) < 2:
            raise ValueError(f"an orchestrator needs an action besides {STOP}")
        unknown = [action for action in self.script if action not in self.actions]
        if not self.script or unknown:
            raise ValueError(f"the script must name actions among {list(self.actions)}, got {list(self.script)}")
        if self.script[0] == STOP or STOP in self.script[:-1]:
            raise ValueError(f"{STOP} may only end the script, not before its second step")
        for name, limit in self.budgets.items():
            if name not in BUDGETS:
                raise ValueError(f"a budget must be one of {', '.join(BUDGETS)}, got {name!r}")
            if (_number(limit) or 0.0) <= 0.0:
                raise ValueError(f"the budget {name} must be a positive number, got {limit!r}")
        if type(self.max_steps) is not int or not 1 <= self.max_steps <= MOST_STEPS:
            raise ValueError(f"max_steps must lie between 1 and {MOST_STEPS}, got {self.max_steps!r}")
        if type(self.loop) is not int or self.loop < 2:
            raise ValueError(f"loop must be at least 2 steps, got {self.loop!r}")

    def action(self, step: int, allowed: Sequence[str]) -> str:
        """The script's action at this step; if that is not allowed its next one that is, else the first allowed."""
        ahead = self.script[step:] or self.script[-1:]
        return next((action for action in ahead if action in allowed), allowed[0] if allowed else ahead[0])

    def over(self, entries: Sequence[Mapping[str, object]], budget: Mapping[str, float], held: bool) -> str:
        """Why an episode with these entries ends now; empty if it may go on. While the policy is held its own budgets
        and the loop guard do not bind: the kill switch also ends what was wrong with them."""
        limits = dict(budget)
        for name, limit in () if held else self.budgets.items():
            limits[name] = min(limit, limits.get(name, math.inf))
        for name in BUDGETS:
            if name in limits:
                spent = float(len(entries)) if name == "steps" else _total(entries, name)
                if spent >= limits[name]:
                    return f"budget:{name}"
        if len(entries) >= self.max_steps:
            return "max_steps"
        return "loop" if not held and self._loops(entries) else ""

    def _loops(self, entries: Sequence[Mapping[str, object]]) -> bool:
        if len(entries) < self.loop:
            return False
        last = [(_text_or_none(e.get("action")), _text_or_none(e.get("output"))) for e in entries[-self.loop :]]
        return None not in last[0] and all(one == last[0] for one in last)


class _Doubt(Exception):  # noqa: N818 - it never leaves this file
    """Why the script's action is taken."""


@dataclass
class _Step:
    """A step to decide. Filled in as it becomes known, so that whatever fails leaves the rest."""

    features: Floats
    agents: tuple[str, ...]  # the candidates but for STOP
    number: int
    arm: Arm
    weight: float  # probability of treatment given the steps before

    @property
    def allowed(self) -> tuple[str, ...]:
        return (*self.agents, STOP) if self.number else self.agents


@dataclass(frozen=True, eq=False)
class Router:
    """A loaded policy. `decide` answers always; whatever is in doubt goes to the incumbent."""

    model: Model
    folder: Path
    policy_id: str
    version: str
    revision: int
    virtual_model: str
    incumbent: str
    enabled: bool
    not_before: float  # unix seconds
    expires: float  # unix seconds
    canary: float  # share of sessions under the policy
    explore: float  # share of sessions drawn evenly
    salt: str
    draw: Callable[[], float] = field(repr=False)
    now: Callable[[], float] = field(repr=False)
    course: Course | None = None
    """Of an orchestrator."""
    sticky: bool = False
    """Whether a session keeps its action."""
    before: Model | None = None
    """What the control arm does instead of the incumbent: the policy that was in force before."""
    breaker: Breaker = field(default_factory=Breaker, repr=False)
    """To be told how the actions fare; outlives the policy where `load` is given it."""
    pace: Pace = field(default_factory=Pace, repr=False)

    @classmethod
    def load(
        cls,
        folder: Path,
        *,
        draw: Callable[[], float] = _SYSTEM.random,
        now: Callable[[], float] = time.time,
        signed: bool = True,
        breaker: Breaker | None = None,
    ) -> Router:
        """The policy in `folder`, after its signature, files, hashes, feature rules, weights and self-test are checked.

        The signature counts where a public key is configured, see `check_signature`; not `signed`: nowhere.
        PolicyError with the reason if any of them fails.
        """
        folder = Path(folder)
        try:
            manifest, weights = _read_policy(folder, public_key_path(folder) if signed else None)
            model = read_model(weights[WEIGHTS], manifest)
            _self_test(model, manifest)
            before = read_model(weights[BEFORE], manifest["before"]) if BEFORE in weights else None
            canary = manifest["canary"]
            router = cls(
                model=model,
                folder=folder,
                policy_id=_text_of(manifest, "policy_id"),
                version=_text_of(manifest, "version"),
                revision=int(manifest["revision"]),
                virtual_model=_text_of(manifest, "virtual_model"),
                incumbent=_text_of(manifest, "incumbent"),
                enabled=manifest["enabled"] is True,
                not_before=_moment(manifest.get("not_before"), -math.inf),
                expires=_moment(manifest.get("expires_at"), math.inf),
                canary=float(canary["percent"]) / 100.0,
                explore=float(canary.get("explore_percent", 0.0)) / 100.0,
                salt=str(canary["salt"]),
                draw=draw,
                now=now,
                course=read_course(manifest) if model.steps else None,
                sticky=manifest.get("sticky", False) is True,
                before=before,
                breaker=breaker or Breaker(),
            )
            if router.incumbent not in model.actions:
                raise PolicyError(f"the incumbent {router.incumbent} is not among the actions {list(model.actions)}")
            if not (router.canary >= 0.0 <= router.explore and router.canary + router.explore <= 1.0 + 1e-9):
                raise PolicyError("canary percentages must lie between 0 and 100 together")
            if model.steps and router.explore:
                raise PolicyError("an orchestrator explores one step of an episode (epsilon), so explore_percent is 0")
            if model.steps and router.sticky:
                raise PolicyError("an orchestrator decides at every step, so it cannot be sticky")
            if before is not None and (model.steps or before.steps):
                raise PolicyError("the control arm of an orchestrator follows its script, so there is no before.npz")
        except PolicyError as error:
            raise PolicyError(f"{folder}: {error}") from None
        except (KeyError, TypeError, ValueError, AttributeError, OSError, EOFError, zipfile.BadZipFile) as error:
            kind = "" if type(error) is ValueError else f"{type(error).__name__}: "
            raise PolicyError(f"{folder}: {kind}{error}") from error
        return router

    def decide(self, context: Mapping[str, object], candidates: Collection[str] | None = None) -> Decision:
        """Choose among the policy's actions (those in `candidates`, where given). Never raises.

        context: messages, tools, response_format, metadata (session), history. If the incumbent is needed but not among
        the candidates, the first candidate known to the policy takes its place. Candidates that cannot serve the
        request (see `able`) are no candidates, unless none can.

        A sticky policy chooses by the `opening` of the conversation and the session's name alone, so that every router
        that has it gives a session the same action, whatever was said since. A request without a session is drawn by
        itself.

        An orchestrator chooses the next step of the episode whose steps so far are `context["history"]` (see
        `step_features`; append `Decision.entry` of every step). STOP is a candidate from the second step on, named or
        not. The episode also ends where a limit of its `Course` is reached or one of `context["budget"]`, of which
        unknown spending counts as none. It explores at most once, with probability epsilon a step until it has, evenly
        among the candidates that it would not have chosen. In doubt the script's action is taken with probability 1.
        """
        if self.course is not None:
            return self._decide_step(self.course, context, candidates)
        began = time.thread_time_ns()
        decision = self._decide(context, candidates)
        self.pace.took(time.thread_time_ns() - began)
        return decision

    def _decide(self, context: Mapping[str, object], candidates: Collection[str] | None) -> Decision:
        allowed = self.model.actions
        slow = self.pace.resting
        features = _NO_FEATURES if slow else featurise(opening(context) if self.sticky else context)
        try:
            if candidates is not None:
                offered = {candidates} if isinstance(candidates, str) else set(candidates)
                allowed = tuple(action for action in allowed if action in offered)
            held = "no_candidates" if not allowed else self._held() or ("too_slow" if slow else "")
            if held:
                return self._fixed(allowed, held, features)
            allowed = self.breaker.left(allowed)
            whole = featurise(context) if self.sticky and "able" in self.model.arrays else features
            can = self.model.able_ones(whole.tolist())
            capable = allowed if can is self.model.actions else tuple(action for action in allowed if action in can)
            if not capable:
                return self._fixed(allowed, "none_able", features)
            if families := bound_to(context):
                capable = tuple(action for action in capable if family_of(action) in families)
                if not capable:
                    return self._fixed(allowed, "history", features)
            seen = of_session(features) if self.sticky else features
            if self.model.far(seen.tolist()):
                return self._fixed(capable, "drift", features)
            session = _session(context)
            arm = self._arm(session)
            if self.sticky and session:
                return self._kept(session, arm, allowed, capable, features)
            drawn = self._shares(capable, seen)
            action = capable[_pick(drawn[arm], self.draw())]
            return self._decision(action, capable, drawn, arm, _REASONS[arm], features)
        except Exception as error:  # a request must be answered whatever is wrong with the policy or the context
            return self._fixed(allowed, f"error:{type(error).__name__}", features)

    def _kept(
        self, session: str, arm: Arm, offered: tuple[str, ...], allowed: tuple[str, ...], features: Floats
    ) -> Decision:
        """The session's action, drawn among all that can serve its opening; where it is not among the `allowed` ones,
        that of a second draw among those. Both draws repeat themselves.

        With p and q the probabilities of the two draws, an allowed action is taken with probability
        p(a) + sum of p(b) over all b that are not allowed * q(a).
        """
        can = self.model.able_ones(features.tolist())
        pool = tuple(action for action in self.model.actions if action in can or action in allowed)
        seen = of_session(features)
        first = self._shares(pool, seen)
        second = first if pool == allowed else self._shares(allowed, seen)
        action, reason = pool[self._race(session, "session", pool, first[arm])], _REASONS[arm]
        if action not in allowed:
            reason = "not_able" if action in offered else "not_offered"
            action = allowed[self._race(session, "request", allowed, second[arm])]
        drawn: dict[Arm, list[float]] = {}
        for one, shares in first.items():
            own = dict(zip(pool, shares, strict=True))
            left = sum(share for name, share in own.items() if name not in allowed)
            drawn[one] = [own[name] + left * share for name, share in zip(allowed, second[one], strict=True)]
        return self._decision(action, allowed, drawn, arm, reason, features, "session")

    def _race(self, session: str, stage: str, names: Sequence[str], shares: Sequence[float]) -> int:
        """The place that a session draws with these probabilities: where the least of exponential clocks, which run as
        fast as the probabilities and start from the session's name, goes off first. A draw by ranges of one number
        would move whenever the actions before it change; this one hardly does."""
        least, found = math.inf, 0
        for place, (name, share) in enumerate(zip(names, shares, strict=True)):
            if share > 0.0:
                text = json.dumps([self.salt, session, self.version, stage, name])
                digest = hashlib.sha256(text.encode()).digest()
                uniform = (int.from_bytes(digest[:7], "big") + 1) / 2.0**56  # in (0, 1], exact
                if (rings := -math.log(uniform) / share) < least:
                    least, found = rings, place
        return found

    def _decision(
        self,
        action: str,
        allowed: tuple[str, ...],
        drawn: Mapping[Arm, list[float]],
        arm: Arm,
        reason: str,
        features: Floats,
        draw: Draw = "fresh",
    ) -> Decision:
        over_all = self._over_arms(drawn)
        return Decision(
            action=action,
            propensity=over_all[allowed.index(action)],
            policy=self.policy_id,
            version=self.version,
            arm=arm,
            reason=reason,
            features=features,
            candidates=allowed,
            probabilities=tuple(over_all),
            spec=self._spec,
            draw=draw,
            revision=self.revision,
            shadow="" if arm == "treatment" else max(zip(drawn["treatment"], allowed, strict=True), key=_share)[1],
        )

    @property
    def _spec(self) -> str:
        return OPENING_SPEC if self.sticky else SPEC

    def _decide_step(
        self, course: Course, context: Mapping[str, object], candidates: Collection[str] | None
    ) -> Decision:
        features = orchestration_features(context, self.model.actions)
        entries, readable = _past(context)
        step = _Step(features, self.model.actions[:-1], len(entries), *self._certain_arm)
        try:
            offered = {candidates} if isinstance(candidates, str) else set(candidates or ())
            if candidates is not None:
                step.agents = tuple(action for action in step.agents if action in offered)
            if not readable:
                raise _Doubt("unreadable_history")
            step.arm, step.weight = self._arm_of(_session(context), entries)
            held = self._held()
            over = course.over(entries, _budget(context), bool(held))
            if not over and not step.agents and (step.number or STOP in offered):
                over = "no_candidates"
            if over:
                return self._settled(step, STOP, over)
            if not step.agents:
                raise _Doubt("no_candidates")
            if held:
                raise _Doubt(held)
            can = dict(zip(self.model.actions, self.model.able(features[None, :])[0], strict=True))
            if not any(can[agent] for agent in step.agents):
                raise _Doubt("none_able")
            step.agents = tuple(agent for agent in step.agents if can[agent])
            return self._drawn(course, step, entries)
        except _Doubt as doubt:
            reason = str(doubt)
        except Exception as error:  # an episode must go on whatever is wrong with the policy or the context
            reason = f"error:{type(error).__name__}"
        return self._settled(step, course.action(step.number, step.allowed), reason)

    @property
    def _certain_arm(self) -> tuple[Arm, float]:
        """Arm of an episode of which nothing is known, and the probability that it is under the policy."""
        return ("treatment", 1.0) if self.canary >= 1.0 else ("control", 0.0)

    def _arm_of(self, session: str, entries: Sequence[Mapping[str, object]]) -> tuple[Arm, float]:
        """Arm of an episode, kept to its end, and the probability of `treatment` given its decisions so far."""
        if not entries:
            return self._arm(session), min(self.canary, 1.0)
        arm, treated = entries[-1].get("arm"), _number(entries[-1].get("treated"))
        if arm is None and treated is None and self.canary >= 1.0:
            return "treatment", 1.0
        if arm == "treatment" and treated is not None and 0.0 < treated <= 1.0:
            return "treatment", treated
        if arm == "control" and treated is not None and 0.0 <= treated < 1.0:
            return "control", treated
        raise _Doubt("unknown_arm")

    def _drawn(self, course: Course, step: _Step, entries: Sequence[Mapping[str, object]]) -> Decision:
        """The policy's own choice, or in the control arm the script's.

        Over all arms the probability of an action is w p(treatment) + (1 - w) p(control), with w the probability of
        treatment given the episode's decisions so far, by Bayes' rule. Only so is the product over the steps the
        probability of the whole episode.
        """
        allowed, weight = step.allowed, step.weight
        mask = np.array([action in allowed for action in self.model.actions])
        values = self.model.values(step.features[None, :])[0]
        if not np.isfinite(values).all():
            raise ValueError("features are not finite")
        pool = [name for name, may in zip(self.model.actions, mask & (values > NEVER / 2), strict=True) if may]
        if not pool:
            raise _Doubt("none_able")
        best = self.model.actions[int(np.where(mask, values, -np.inf).argmax())]
        scripted = course.action(step.number, allowed)
        others = [name for name in pool if name != best]
        spent = not others or any(entry.get("explored") for entry in entries)
        rate = 0.0 if spent else self.model.epsilon
        explored, action = False, scripted
        if step.arm == "treatment":
            explored = rate > 0.0 and self.draw() < rate
            action = others[_pick([1.0 / len(others)] * len(others), self.draw())] if explored else best
        each = rate / max(len(others), 1)
        treatment = {best: 1.0 - rate, **dict.fromkeys(others, each)}
        shares = [weight * treatment.get(name, 0.0) + (1.0 - weight) * (name == scripted) for name in allowed]
        under = weight * (each if explored else (1.0 - rate) * (action == best))
        beside = (1.0 - weight) * (not explored and action == scripted)
        reason = "explore" if explored else _REASONS[step.arm]
        treated = under / (under + beside)
        shadow = "" if step.arm == "treatment" else best
        return self._step_decision(step, action, allowed, shares, reason, treated, explored, shadow)

    def _settled(self, step: _Step, action: str, reason: str) -> Decision:
        names = step.allowed if action in step.allowed else (*step.allowed, action)
        shares = [float(name == action) for name in names]
        return self._step_decision(step, action, names, shares, reason, step.weight, False)

    def _step_decision(
        self,
        step: _Step,
        action: str,
        names: tuple[str, ...],
        shares: Sequence[float],
        reason: str,
        treated: float,
        explored: bool,
        shadow: str = "",
    ) -> Decision:
        return Decision(
            action=action,
            propensity=shares[names.index(action)],
            policy=self.policy_id,
            version=self.version,
            arm=step.arm,
            reason=reason,
            features=step.features,
            candidates=names,
            probabilities=tuple(shares),
            spec=STEP_SPEC,
            step=step.number,
            explored=explored,
            treated=treated,
            revision=self.revision,
            shadow=shadow,
        )

    @cached_property
    def _kill_file(self) -> str:
        return str(self.folder / "KILL")

    def _held(self) -> str:
        """Why the policy may not choose now; empty if it may."""
        if os.environ.get("RETROUTE_KILL", "0") not in ("", "0") or os.access(self._kill_file, os.F_OK):
            return "kill_switch"
        if not self.enabled:
            return "disabled"
        now = self.now()
        if now < self.not_before:
            return "not_yet_valid"
        return "expired" if now >= self.expires else ""

    def _arm(self, session: str) -> Arm:
        """Sticky for a session; a request without one is drawn by itself."""
        if self.canary >= 1.0:
            return "treatment"
        digest = hashlib.sha256(f"{self.salt}:{session}".encode("utf-8", "replace")).digest()
        share = int.from_bytes(digest[:8], "big") % BUCKETS / BUCKETS if session else self.draw()
        if share < self.canary:
            return "treatment"
        return "explore" if share < self.canary + self.explore else "control"

    def _shares(self, allowed: tuple[str, ...], features: Floats) -> dict[Arm, list[float]]:
        """Of each arm, the probabilities of the allowed actions."""
        treatment = self.model.shares(features, allowed)
        if self.canary >= 1.0:
            return {"treatment": treatment}
        return {
            "treatment": treatment,
            "explore": [1.0 / len(allowed)] * len(allowed),
            "control": self._control(allowed, features),
        }

    def _control(self, allowed: tuple[str, ...], features: Floats) -> list[float]:
        """The earlier policy's choice, where it knows an allowed action, else the incumbent."""
        if self.before is not None and (known := [action for action in self.before.actions if action in allowed]):
            own = dict(zip(known, self.before.shares(features, known), strict=True))
            return [own.get(action, 0.0) for action in allowed]
        fallback = self._fallback(allowed)
        return [float(action == fallback) for action in allowed]

    def _over_arms(self, drawn: Mapping[Arm, list[float]]) -> list[float]:
        """The probabilities as whoever does not know a session's arm sees them: what evaluation needs, since a control
        decision alone would say that nothing else could have been chosen."""
        if self.canary >= 1.0:
            return drawn["treatment"]
        weights = {"treatment": self.canary, "explore": self.explore, "control": 1.0 - self.canary - self.explore}
        return [
            sum(weights[arm] * shares[place] for arm, shares in drawn.items()) for place in range(len(drawn["control"]))
        ]

    def _fallback(self, allowed: tuple[str, ...]) -> str:
        return self.incumbent if self.incumbent in allowed or not allowed else allowed[0]

    def _fixed(self, allowed: tuple[str, ...], reason: str, features: Floats) -> Decision:
        action = self._fallback(allowed)
        names = allowed or (action,)
        return Decision(
            action=action,
            propensity=1.0,
            policy=self.policy_id,
            version=self.version,
            arm="control",
            reason=reason,
            features=features,
            candidates=names,
            probabilities=tuple(1.0 if name == action else 0.0 for name in names),
            spec=self._spec,
            revision=self.revision,
        )


PUBLIC_KEY = "policy_key.pem"
PUBLIC_KEY_VARIABLE = "RETROUTE_PUBLIC_KEY"


def public_key_path(folder: Path) -> Path | None:
    """The public key that this folder's policy must be signed for: the file that RETROUTE_PUBLIC_KEY names, else
    policy_key.pem beside the folder, out of reach of whoever may only replace policies; None: no signature is asked
    for."""
    named = os.environ.get(PUBLIC_KEY_VARIABLE, "")
    beside = folder.absolute().parent / PUBLIC_KEY
    return Path(named) if named else beside if beside.exists() else None


def check_signature(folder: Path, manifest: bytes, key: Path) -> None:
    """PolicyError unless manifest.sig is the base64 Ed25519 signature of these bytes of manifest.json by the owner of
    `key`, a PEM file. Through the manifest's hashes it vouches for every file. Needs the package cryptography."""
    try:
        from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
        from cryptography.hazmat.primitives.serialization import load_pem_public_key
    except ImportError:
        raise PolicyError(f"{key} asks for a signature, and checking one needs: pip install cryptography") from None
    try:
        public = load_pem_public_key(key.read_bytes())
    except (OSError, ValueError, UnsupportedAlgorithm):
        raise PolicyError(f"{key} cannot be read as a public key in PEM") from None
    if not isinstance(public, Ed25519PublicKey):
        raise PolicyError(f"{key} is not an Ed25519 key")
    try:
        public.verify(base64.b64decode(_read(folder, "manifest.sig", 1024)), manifest)
    except (InvalidSignature, ValueError):
        raise PolicyError(f"manifest.sig is not a signature of this manifest.json for {key}") from None


def read_manifest(folder: Path, key: Path | None = None) -> dict[str, Any]:
    """manifest.json, after its signature for the public `key`, if there is one, the hash, size and place of every file
    it names and the feature rules are checked. PolicyError otherwise."""
    return _read_policy(folder, key)[0]


def _read_policy(folder: Path, key: Path | None) -> tuple[dict[str, Any], dict[str, bytes]]:
    """The manifest and the very bytes of the weights that were checked: files may be replaced at any moment."""
    data = _read(folder, "manifest.json", MANIFEST_BYTES)
    if key is not None:
        check_signature(folder, data, key)
    manifest = json.loads(data)
    if not isinstance(manifest, dict) or manifest.get("schema") != SCHEMA:
        raise PolicyError(f"manifest.json is not of schema {SCHEMA}")
    spec, known = manifest["features"], features_spec(manifest["actions"], manifest.get("sticky", False) is True)
    if spec["spec"] != known["spec"] or spec["spec_sha256"] != known["spec_sha256"]:
        raise PolicyError(f"made for feature rules {spec['spec']}, this runtime has {known['spec']}")
    if spec["dim"] != known["dim"]:
        raise PolicyError(f"made for {spec['dim']} features, its actions have {known['dim']}")
    for name in (WEIGHTS, "runtime.py"):
        if name not in manifest["files"]:
            raise PolicyError(f"manifest.json does not name {name}")
    weights = {}
    for name, expected in manifest["files"].items():
        content = _read(folder, name, FILE_BYTES)
        if "sha256:" + hashlib.sha256(content).hexdigest() != expected:
            raise PolicyError(f"{name} is not the file the manifest was written for (sha256 differs)")
        if name in (WEIGHTS, BEFORE):
            weights[name] = content
    return manifest, weights


def read_course(manifest: Mapping[str, Any]) -> Course:
    """What bounds an orchestrator's episodes; ValueError, KeyError or TypeError if the manifest does not say."""
    return Course(
        actions=tuple(manifest["actions"]),
        script=tuple(manifest["script"]),
        budgets=dict(manifest["budgets"]),
        max_steps=manifest["max_steps"],
        loop=manifest["loop"],
    )


def read_model(content: bytes, manifest: Mapping[str, Any]) -> Model:
    """The model in the content of weights.npz, of which the manifest says model, actions and exploration. ValueError or
    PolicyError if it is not one."""
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        if sum(member.file_size for member in archive.infolist()) > FILE_BYTES:
            raise PolicyError(f"weights.npz unpacks to more than {FILE_BYTES >> 20} MiB")
    with np.load(io.BytesIO(content), allow_pickle=False) as arrays:
        weights = {name: arrays[name] for name in arrays.files}
    model = Model(manifest["model"], tuple(manifest["actions"]), weights, float(manifest["exploration"]["epsilon"]))
    wanted = (width(model.actions),)
    if "mean" in weights and weights["mean"].shape != wanted:
        raise PolicyError(f"mean must have shape {wanted}, got {weights['mean'].shape}")
    return model


def _self_test(model: Model, manifest: Mapping[str, Any]) -> None:
    for number, case in enumerate(manifest["selftest"], start=1):
        features = decision_features(case["context"], model.actions)
        if features_hash(features) != case["features_hash"]:
            raise PolicyError(f"self-test {number}: features differ from those the policy was trained with")
        got = model.probabilities(features[None, :], np.ones((1, len(model.actions)), dtype=bool))[0]
        expected = np.asarray(case["probabilities"], dtype=np.float64)
        if got.shape != expected.shape or np.abs(got - expected).max() > 1e-4:
            raise PolicyError(f"self-test {number}: probabilities differ by more than 1e-4")


def _read(folder: Path, name: str, limit: int) -> bytes:
    if not name or name in (".", "..") or "/" in name or "\\" in name or "\0" in name:
        raise PolicyError(f"{name!r} is not a file name inside the policy folder")
    path = folder / name
    if path.is_symlink() or not path.is_file():
        raise PolicyError(f"{name} is missing or not a plain file")
    if path.stat().st_size > limit:
        raise PolicyError(f"{name} is larger than {limit >> 20} MiB")
    return path.read_bytes()


def _text_of(manifest: Mapping[str, Any], key: str) -> str:
    value = manifest[key]
    if not isinstance(value, str) or not value:
        raise PolicyError(f"{key} must be a text")
    return value


def _moment(value: object, otherwise: float) -> float:
    """Unix seconds of an ISO 8601 time with offset; `otherwise` for null."""
    if value is None:
        return otherwise
    moment = datetime.fromisoformat(str(value))
    if moment.tzinfo is None:
        raise PolicyError(f"the time {value} has no offset from UTC")
    return moment.timestamp()


def _session(context: Mapping[str, object]) -> str:
    metadata = context.get("metadata")
    session = metadata.get("session") if isinstance(metadata, Mapping) else None
    return "" if session is None else str(session)


def _past(context: Mapping[str, object]) -> tuple[list[Mapping[str, object]], bool]:
    """The entries of the history, and whether it could be read."""
    try:
        history = context.get("history")
    except Exception:  # no mapping, or one that raises
        return [], False
    return _entries(history), history is None or isinstance(history, list | tuple)


def _budget(context: Mapping[str, object]) -> dict[str, float]:
    """The caller's limits. A limit that cannot be read is a doubt: to ignore it would overspend."""
    given = context.get("budget")
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        raise _Doubt("unreadable_budget")
    limits = {}
    for name, value in given.items():
        limit = math.inf if value is None or value == math.inf else _number(value)
        if name not in BUDGETS or limit is None:
            raise _Doubt("unreadable_budget")
        limits[name] = limit
    return limits


def _share(pair: tuple[float, str]) -> float:
    return pair[0]


def _pick(shares: Sequence[float], uniform: float) -> int:
    """Place of the share that `uniform` in [0, 1) falls into; never one of zero."""
    last = 0
    for place, share in enumerate(shares):
        if share > 0.0:
            last = place
            if uniform < share:
                return place
            uniform -= share
    return last
