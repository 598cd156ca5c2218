"""Logged episodes as arrays, validated once.

Legend: N episodes, n decisions of all of them, d features, a actions of which the last is STOP, k outcomes.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any

import numpy as np

from optimizer.dataset import MIN_PROPENSITY, Bools, Floats, Ints

STOP = "STOP"
OUTCOMES = ("quality", "cost_usd", "latency_s")


@dataclass(frozen=True, eq=False)
class EpisodeLog:
    """What was decided step by step, and what came of it. Raises ValueError on arrays that do not fit.

    An episode ends where STOP was chosen, or with another action where a limit or the script ended it.
    """

    features: Floats
    """(n, d) known before the decision."""
    actions: Ints
    """(n,) index into `action_names`."""
    behaviour: Floats
    """(n, a) probability of every action given all that came before in its episode; rows sum to 1."""
    cost_usd: Floats
    """(n,) of what the action did until the next decision; 0 for STOP."""
    latency_s: Floats
    """(n,)"""
    stop_quality: Floats
    """(n,) in [0, 1], what the quality is if the episode stops here; NaN where nobody knows."""
    episode: Ints
    """(n,) place of the row's episode; rows of an episode stand together, in their order."""
    quality: Floats
    """(N,) in [0, 1] of the whole episode; NaN where unlabelled."""
    groups: Ints
    """(N,) session or template: the unit of splits and of clustering."""
    time_ns: Ints
    """(N,) of the first decision, nanoseconds UTC."""
    action_names: tuple[str, ...]
    propensities_logged: bool
    label_sources: tuple[str, ...] = ()
    """What gave the qualities, the commonest first; "" where that was not named."""

    def __post_init__(self) -> None:
        n, a, count = len(self.actions), len(self.action_names), len(self.quality)
        if not self.action_names or self.action_names[-1] != STOP:
            raise ValueError(f"the last action must be {STOP}, got {self.action_names[-1:]}")
        shapes = {
            "features": (n, self.features.shape[-1]),
            "behaviour": (n, a),
            **dict.fromkeys(("cost_usd", "latency_s", "stop_quality", "episode"), (n,)),
            **dict.fromkeys(("groups", "time_ns"), (count,)),
        }
        for name, shape in shapes.items():
            if getattr(self, name).shape != shape:
                raise ValueError(f"{name} must be {shape}, got {getattr(self, name).shape}")
        if (n and not np.array_equal(np.unique(self.episode), np.arange(count))) or (np.diff(self.episode) < 0).any():
            raise ValueError(f"rows must stand in the order of their {count} episodes, at least one in each")
        if not np.allclose(self.behaviour.sum(axis=1), 1.0, atol=1e-6) or (self.behaviour < 0).any():
            raise ValueError("behaviour rows must be probabilities that sum to 1")
        if (self.behaviour[np.arange(n), self.actions] <= 0).any():
            raise ValueError("a logged action has probability 0")
        if ((self.actions == a - 1) & ~self.last).any():
            row = int(np.flatnonzero((self.actions == a - 1) & ~self.last)[0])
            raise ValueError(f"row {row} of episode {self.episode[row]} stops, yet others follow it")

    def __len__(self) -> int:
        return len(self.quality)

    @property
    def stop(self) -> int:
        """Column of STOP."""
        return len(self.action_names) - 1

    @cached_property
    def first(self) -> Ints:
        """(N,) row of each episode's first decision."""
        return np.searchsorted(self.episode, np.arange(len(self)))

    @cached_property
    def last(self) -> Bools:
        """(n,) whether a row is the last of its episode."""
        result: Bools = np.append(np.diff(self.episode) > 0, True)[: len(self.actions)]
        return result

    @cached_property
    def step(self) -> Ints:
        """(n,) number of decisions before it in its episode."""
        result: Ints = np.arange(len(self.actions)) - self.first[self.episode]
        return result

    @property
    def horizon(self) -> int:
        """Decisions of the longest episode."""
        return len(self.at_step)

    @cached_property
    def at_step(self) -> tuple[Ints, ...]:
        """Rows of the first decisions, those of the second ones, and so on."""
        order = np.argsort(self.step, kind="stable")
        return tuple(np.split(order, np.cumsum(np.bincount(self.step))[:-1])) if len(order) else ()

    @property
    def supported(self) -> Bools:
        """(n, a) actions with evidence of their own at each decision; STOP also where its outcome is known."""
        result = self.behaviour >= MIN_PROPENSITY
        result[:, self.stop] |= self.stops_known
        return result

    @cached_property
    def stops_known(self) -> Bools:
        """(n,) whether it is known what stopping gives there, or is unknown only as the episode's own score is."""
        known = ~np.isnan(self.stop_quality)
        return known | ((self.step > 0) & ~self._scored[self.episode]) if self.stops_are_labels else known

    @cached_property
    def stops_are_labels(self) -> bool:
        """Step scores come with the score of the episode: those without one have none of their steps either."""
        known = ~np.isnan(self.stop_quality)
        return bool(known.any() and not self._scored.all() and not (known & ~self._scored[self.episode]).any())

    @property
    def _scored(self) -> Bools:
        return ~np.isnan(self.quality)

    @cached_property
    def heft(self) -> Floats:
        """(N,) for how many episodes the quality of one stands: r / e, with r whether it is known and e the probability
        of that, which is 1 where all are known. Else e is estimated across groups from how the episode ended (the
        features and the action of its last decision): right if nothing but that moved both a score and its arrival
        (Robins, Rotnitzky, Zhao 1994)."""
        known = self._scored.astype(np.int64)
        if known.all() or not known.any():
            return known.astype(np.float64)
        from optimizer.ope.models import predict_labelled

        ends = np.flatnonzero(self.last)
        chance = predict_labelled(
            self.features[ends], self.actions[ends], known, self.groups, len(self.action_names), seed=0
        )
        result: Floats = known / chance
        return result

    def rewards(self) -> Floats:
        """(k, n) of `OUTCOMES`: what each decision adds, the quality with the last one. NaN where unknown."""
        quality = np.where(self.last, self.quality[self.episode], 0.0)
        return np.array([quality, self.cost_usd, self.latency_s])

    def take(self, episodes: Ints) -> EpisodeLog:
        """The same record with these episodes only, in this order."""
        ends = np.append(self.first[1:], len(self.actions))
        rows = (
            np.concatenate([np.arange(self.first[e], ends[e]) for e in episodes]) if len(episodes) else np.zeros(0, int)
        )
        lengths = (ends - self.first)[episodes]
        per_episode = {"quality", "groups", "time_ns"}
        parts: dict[str, Any] = {}
        for field in fields(self):
            value = getattr(self, field.name)
            if isinstance(value, np.ndarray):
                parts[field.name] = value[episodes] if field.name in per_episode else value[rows]
        parts["episode"] = np.repeat(np.arange(len(episodes)), lengths)
        return replace(self, **parts)
