"""Logged decisions as arrays, validated once, and their split by group and time.

Legend: n decisions, d features, a actions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

MIN_PROPENSITY = 0.02
"""An action that the logging behaviour took with less probability has no evidence of its own at that decision."""
JUDGE = "judge"
"""The source of a score that a model gave, not a person, a user or a program."""


@dataclass(frozen=True, eq=False)
class LoggedDataset:
    """What was decided at one decision point, and what came of it. Raises ValueError on arrays that do not fit."""

    features: Floats
    """(n, d) known before the decision."""
    actions: Ints
    """(n,) index into `action_names`."""
    quality: Floats
    """(n,) in [0, 1]; NaN where unlabelled."""
    cost_usd: Floats
    """(n,) NaN where unpriced."""
    latency_s: Floats
    """(n,) NaN where unknown."""
    behaviour: Floats
    """(n, a) probability of every action when the decision was logged; rows sum to 1."""
    groups: Ints
    """(n,) session or template: the unit of splits and of clustering."""
    time_ns: Ints
    """(n,) nanoseconds UTC."""
    action_names: tuple[str, ...]
    propensities_logged: bool
    """False where `behaviour` had to be estimated for any row that chooses or judges."""
    judge: Floats = field(default_factory=lambda: np.zeros(0))
    """(n,) a judge's opinion of the same quality, in [0, 1]; NaN where there is none. Empty: nowhere."""
    label_probability: Floats = field(default_factory=lambda: np.zeros(0))
    """(n,) probability with which `quality` was to be found out; NaN where that is not known. 0: it was found out
    without having been drawn, so it may teach but not judge. Empty: nowhere known."""
    label_sources: tuple[str, ...] = ()
    """What gave the qualities, the commonest first: human, user, check, judge, another name, or "" for one that was not
    named. Empty: not known."""

    def __post_init__(self) -> None:
        n, a = len(self.actions), len(self.action_names)
        for name in ("judge", "label_probability"):
            if n and not len(getattr(self, name)):
                object.__setattr__(self, name, np.full(n, np.nan))
        self._check_shapes(n, a)
        self._check_values(n, a)

    def _check_shapes(self, n: int, a: int) -> None:
        if self.features.ndim != 2:
            raise ValueError(f"features must be (n, d), got {self.features.shape}")
        per_row = ("quality", "cost_usd", "latency_s", "groups", "time_ns", "judge", "label_probability")
        shapes = {"features": (n, self.features.shape[1]), "behaviour": (n, a), **dict.fromkeys(per_row, (n,))}
        for name, shape in shapes.items():
            if getattr(self, name).shape != shape:
                raise ValueError(f"{name} must be {shape}, got {getattr(self, name).shape}")

    def _check_values(self, n: int, a: int) -> None:
        if n and not (self.actions.min() >= 0 and self.actions.max() < a):
            raise ValueError(f"actions must index {a} action names")
        if not np.isfinite(self.features).all():
            raise ValueError("features must be finite")
        if not np.allclose(self.behaviour.sum(axis=1), 1.0, atol=1e-6) or (self.behaviour < 0).any():
            raise ValueError("behaviour rows must be probabilities that sum to 1")
        if (self.propensities <= 0).any():
            raise ValueError("a logged action has probability 0")
        for name in ("quality", "judge", "label_probability"):
            known = getattr(self, name)[~np.isnan(getattr(self, name))]
            if known.size and not (known.min() >= 0 and known.max() <= 1):
                raise ValueError(f"{name} must lie in [0, 1]")

    def __len__(self) -> int:
        return len(self.actions)

    @property
    def propensities(self) -> Floats:
        """(n,) probability of the action that was taken."""
        return self.behaviour[np.arange(len(self.actions)), self.actions]

    @property
    def judge_only(self) -> bool:
        """All that is known of quality is a judge's opinion."""
        return self.label_sources == (JUDGE,)

    @property
    def supported(self) -> Bools:
        """(n, a) actions with evidence of their own at each decision."""
        return self.behaviour >= MIN_PROPENSITY

    def take(self, rows: Ints) -> LoggedDataset:
        """The same record with these rows only."""
        n = len(self)
        parts: dict[str, Any] = {
            f.name: getattr(self, f.name)[rows]
            for f in fields(self)
            if isinstance(getattr(self, f.name), np.ndarray) and len(getattr(self, f.name)) == n
        }
        return replace(self, **parts)


@dataclass(frozen=True, eq=False)
class Splits:
    """Row indices: learn on `train`, pick on `choose`, judge once on `certify`, the newest."""

    train: Ints
    choose: Ints
    certify: Ints


TRAIN, CHOOSE, CERTIFY = 0.6, 0.2, 0.2
"""Shares of a log, from its oldest decisions on."""


def split(groups: Ints, time_ns: Ints, shares: tuple[float, float] = (TRAIN, CHOOSE)) -> Splits:
    """Oldest 60 % to learn, next 20 % to choose, newest 20 % to certify; a group is never divided.

    groups, time_ns: (n,). A group's place is that of its first decision.
    """
    train, choose, certify = in_time(groups, time_ns, [*shares, 1.0 - sum(shares)])
    return Splits(train, choose, certify)


def in_time(groups: Ints, time_ns: Ints, shares: Sequence[float]) -> list[Ints]:
    """Row indices of parts of these shares, the oldest first; a group is never divided, so a part may be empty.

    groups, time_ns: (n,). A group's place is that of its first decision.
    """
    names, inverse = np.unique(groups, return_inverse=True)
    first = np.full(len(names), np.iinfo(np.int64).max)
    np.minimum.at(first, inverse, time_ns)
    sizes = np.bincount(inverse, minlength=len(names))
    order = np.lexsort((names, first))
    before = np.cumsum(sizes[order]) - sizes[order] / 2  # the middle of each group decides its side
    bounds = np.cumsum(shares[:-1]) * len(groups)
    part = np.empty(len(names), dtype=np.int64)
    part[order] = np.searchsorted(bounds, before, side="right")
    rows = part[inverse]
    return [np.flatnonzero(rows == number) for number in range(len(shares))]


def folds(groups: Ints, count: int, seed: int) -> Ints:
    """(n,) fold number of each row for cross-fitting; a group is never divided."""
    names, inverse = np.unique(groups, return_inverse=True)
    numbers = np.arange(len(names)) % count
    np.random.default_rng(seed).shuffle(numbers)
    fold: Ints = numbers[inverse]
    return fold
