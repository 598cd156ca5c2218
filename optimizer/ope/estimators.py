"""Off-policy estimators: the value of a policy that was not the one that ran.

Legend: n decisions, a actions. pi is the policy, b the logging behaviour, m the outcome model, y the outcome, r
whether it is known, e the probability that it is known, s a surrogate's guess of it (see `ope.labels`). Each estimator
returns one score per decision; the estimate is their mean (for SNIPS its influence function around the mean), so
intervals need only the scores. A known outcome counts r / e times, which keeps the estimates right when outcomes are
missing for reasons that e explains (Robins, Rotnitzky, Zhao 1994).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from optimizer.dataset import Floats, Ints


@dataclass(frozen=True, eq=False)
class Evidence:
    """One outcome of the rows that judge a policy. Raises ValueError on shapes that do not fit."""

    outcome: Floats
    """(n,) NaN where unknown."""
    known: Floats
    """(n,) probability that the outcome is known."""
    actions: Ints
    """(n,)"""
    behaviour: Floats
    """(n, a)"""
    model: Floats
    """(n, a) predicted outcome of every action."""
    groups: Ints
    """(n,)"""
    surrogate: Floats = field(default_factory=lambda: np.zeros(0))
    """(n,) the outcome as a surrogate guesses it after the fact; NaN where nothing does. Empty: nowhere."""

    def __post_init__(self) -> None:
        n, a = self.behaviour.shape
        if n and not len(self.surrogate):
            object.__setattr__(self, "surrogate", np.full(n, np.nan))
        shapes = {"outcome": (n,), "known": (n,), "actions": (n,), "model": (n, a), "groups": (n,), "surrogate": (n,)}
        for name, shape in shapes.items():
            if getattr(self, name).shape != shape:
                raise ValueError(f"{name} must be {shape}, got {getattr(self, name).shape}")

    def take(self, rows: Ints) -> Evidence:
        """The same of these rows only."""
        return Evidence(*(getattr(self, name)[rows] for name in self.__dataclass_fields__))

    @cached_property
    def rows(self) -> Ints:
        return np.arange(len(self.actions))

    @cached_property
    def chances(self) -> Floats:
        """(n,) probability of the action that was taken."""
        return self.behaviour[self.rows, self.actions]

    @cached_property
    def residual(self) -> Floats:
        """(n,) see `residual`; many policies are judged by the same."""
        model = self.model[self.rows, self.actions]
        guess = np.where(np.isnan(self.surrogate), model, self.surrogate)
        left = np.where(np.isnan(self.outcome), 0.0, (self.outcome - guess) / self.known)
        return np.asarray(guess - model + left)


def weights(evidence: Evidence, policy: Floats) -> Floats:
    """(n,) importance weights pi(action) / b(action)."""
    return np.asarray(policy[evidence.rows, evidence.actions] / evidence.chances)


def effective(weight: Floats) -> float:
    """Kish's effective sample size (sum w)^2 / sum w^2; 0 when all weights are 0."""
    squares = float(np.sum(weight**2))
    return float(np.sum(weight)) ** 2 / squares if squares else 0.0


def residual(evidence: Evidence) -> Floats:
    """(n,) s - m + (r / e) (y - s): its last term is 0 where the outcome is unknown, and s is m without a surrogate."""
    return evidence.residual


def heft(evidence: Evidence) -> Floats:
    """(n,) for how many decisions the residual of one stands: r / e, or 1 where a surrogate guesses its outcome."""
    known = np.where(np.isnan(evidence.outcome), 0.0, 1 / evidence.known)
    return np.where(np.isnan(evidence.surrogate), known, 1.0)


def direct(evidence: Evidence, policy: Floats) -> Floats:
    """Direct method: sum_a pi(a) m(a). Right only if the model is; its interval ignores the model's error."""
    return np.asarray((policy * evidence.model).sum(axis=1))


def ips(evidence: Evidence, policy: Floats) -> Floats:
    """Importance sampling, w (r / e) y. Valid with known or well-estimated b and overlap; its noise grows with the
    outcome's own level, not only with its spread. Horvitz and Thompson 1952."""
    known = np.where(np.isnan(evidence.outcome), 0.0, evidence.outcome)
    return np.asarray(weights(evidence, policy) * known / evidence.known)


def snips(evidence: Evidence, policy: Floats) -> Floats:
    """Self-normalised importance sampling, sum(w r/e y) / sum(w r/e), as influence values around the estimate.

    Valid with known or well-estimated b and overlap; slightly biased for few effective decisions. Swaminathan and
    Joachims 2015.
    """
    known = ~np.isnan(evidence.outcome)
    weight = np.where(known, weights(evidence, policy) / evidence.known, 0.0)
    total = weight.sum()
    if total == 0:
        return np.full(len(weight), np.nan)
    value = float(np.sum(weight * np.where(known, evidence.outcome, 0.0)) / total)
    influence: Floats = weight * (np.where(known, evidence.outcome, 0.0) - value) * len(weight) / total
    return value + influence


def doubly_robust(evidence: Evidence, policy: Floats) -> Floats:
    """Doubly robust: sum_a pi(a) m(a) + w (r / e) (y - m). Right if b or m is. Dudik, Langford, Li 2011 (arXiv
    1103.4601). With a surrogate, w (s - m + (r / e) (y - s)): right if b is, and e or s."""
    return direct(evidence, policy) + weights(evidence, policy) * residual(evidence)


def today(evidence: Evidence) -> Floats:
    """The logged behaviour's value with the action's chance removed: sum_a b(a) m(a) + (r / e) (y - m).

    The doubly robust score of b itself; with a perfect model it depends on the prompts only, not on what was drawn.
    """
    return doubly_robust(evidence, evidence.behaviour)


Estimator = Callable[[Evidence, Floats], Floats]

ESTIMATORS: Mapping[str, Estimator] = {"DM": direct, "IPS": ips, "SNIPS": snips, "DR": doubly_robust}
