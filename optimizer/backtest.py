"""Did the estimates predict well before? What was estimated from decisions before a moment, beside what those after it
showed.

The newest 40 % of a log are cut into windows. At each cut, the window before it gives the estimates, by outcome models
of the oldest 60 % alone, and the window after it gives what was then seen: of what was logged, its plain mean; of a
policy that those models would have chosen, the outcomes of the decisions that took its choice, weighted by how likely
they were to. Only such things can be tested: what another choice would have given where nobody made it, no log shows.

A prediction holds where what was seen lies within its own and the prediction's error: between low and high, which are
v - sqrt((v - l)^2 + (u' - v')^2) and v + sqrt((u - v)^2 + (v' - l')^2) with v, l, u the estimate and its bounds and
v', l', u' those of what was seen. At 95 % one in twenty falls outside by chance alone; more do where the traffic
changed, or where an estimator is wrong.

Legend: n decisions, a actions.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Literal

import numpy as np

from optimizer.dataset import Floats, in_time
from optimizer.evidence import BLEND, METRICS, Evaluation, Metric, Outcome, Refused, scaled
from optimizer.gate import Estimate
from optimizer.rewards import RewardSpec
from optimizer.summary import estimate_json

MOST_WINDOWS = 5
LEAST = 150
"""Decisions of a window: with fewer, an interval is so wide that anything would lie in it."""
SEEN = "SNIPS"
"""What was seen comes of the outcomes alone; of what was logged it is the plain mean."""

Tested = Literal["logged", "learned"]
ESTIMATORS: dict[Tested, tuple[str, ...]] = {"logged": ("DM", "DR"), "learned": ("DM", "IPS", "SNIPS", "DR", BLEND)}
"""Of what was logged IPS, SNIPS and doubly robust are the same mean."""


@dataclass(frozen=True)
class Trial:
    """One prediction beside what was then seen; outcomes per decision."""

    policy: Tested
    metric: Metric
    estimator: str
    cut_ns: int
    """The first decision after the cut."""
    before: int
    """Decisions that the estimate is made of."""
    after: int
    """Decisions in which it was looked for."""
    predicted: Outcome
    seen: Outcome

    @property
    def within(self) -> tuple[float, float] | None:
        """Where what is seen should lie; None where one of both was refused."""
        if isinstance(self.predicted, Refused) or isinstance(self.seen, Refused):
            return None
        return reach(self.predicted, self.seen)

    @property
    def held(self) -> bool | None:
        """Whether it lay there."""
        if (within := self.within) is None or isinstance(self.seen, Refused):
            return None
        return within[0] <= self.seen.value <= within[1]


def reach(predicted: Estimate, seen: Estimate) -> tuple[float, float]:
    """Where an independent estimate of the same should lie, given the errors of both."""
    low = math.hypot(predicted.value - predicted.low, seen.high - seen.value)
    high = math.hypot(predicted.high - predicted.value, seen.value - seen.low)
    return predicted.value - low, predicted.value + high


def backtest(newer: Evaluation, reward: RewardSpec | None) -> list[Trial] | Refused:
    """The trials at every cut of the rows of `newer`, which models of older rows judge (`study.Findings.newer`).

    The policy that is tested beside what was logged takes, of the actions that the log tried, the one that those models
    expect the most of by `reward`; without one, only what was logged is tested.
    """
    data = newer.data
    count = min(MOST_WINDOWS, len(data) // LEAST)
    if count < 2:
        return Refused(f"only {len(data)} decisions after those that teach; two windows need {2 * LEAST}")
    windows = [rows for rows in in_time(data.groups, data.time_ns, [1 / count] * count) if len(rows) >= LEAST]
    if len(windows) < 2:
        return Refused("a session is so long that the log cannot be cut in two")
    policy = None if reward is None else _greedy(newer, reward)
    found = []
    for before, after in pairwise(windows):
        earlier, later = newer.take(before), newer.take(after)
        cut = int(later.data.time_ns.min())
        does: dict[Tested, tuple[Floats, Floats]] = {"logged": (earlier.data.behaviour, later.data.behaviour)}
        if policy is not None:
            does["learned"] = policy[before], policy[after]
        for tested, (then, next_) in does.items():
            for metric in METRICS:
                seen = later.value(metric, next_, SEEN)
                found += [
                    Trial(
                        *(tested, metric, name, cut, len(before), len(after)), earlier.value(metric, then, name), seen
                    )
                    for name in ESTIMATORS[tested]
                ]
    return found


def _greedy(newer: Evaluation, reward: RewardSpec) -> Floats | None:
    """(n, a) the policy that the models would have chosen; None where they know no quality or no cost."""
    quality, cost = newer.outcomes["quality"].model, newer.outcomes["cost_usd"].model
    if np.isnan(quality).any() or np.isnan(cost).any():
        return None
    useful = np.where(newer.data.supported, reward.utility(quality, cost), -np.inf)
    return np.asarray(np.eye(quality.shape[1])[useful.argmax(axis=1)])


def to_json(found: list[Trial] | Refused, confidence: float) -> dict[str, Any]:
    """What backtest.json keeps of a service; costs per 1,000 decisions. `counts`: per policy, outcome and estimator how
    many predictions there are, and how many held."""
    if isinstance(found, Refused):
        return {"refused": found.reason, "confidence": confidence, "trials": [], "counts": []}
    trials = [_in_units(trial) for trial in found]
    return {
        "refused": None,
        "confidence": confidence,
        "trials": [
            {
                "policy": trial.policy,
                "metric": _NAMES[trial.metric],
                "estimator": trial.estimator,
                "cut_ns": trial.cut_ns,
                "before": trial.before,
                "after": trial.after,
                "predicted": estimate_json(trial.predicted),
                "seen": estimate_json(trial.seen),
                "low": _finite(trial.within, 0),
                "high": _finite(trial.within, 1),
                "held": trial.held,
            }
            for trial in trials
        ],
        "counts": _counts(trials),
    }


_NAMES: dict[Metric, str] = {"cost_usd": "cost_usd_per_1k", "quality": "quality", "latency_s": "latency_s"}


def _in_units(trial: Trial) -> Trial:
    if trial.metric != "cost_usd":
        return trial
    return replace(trial, predicted=scaled(trial.predicted, 1000), seen=scaled(trial.seen, 1000))


def _counts(trials: list[Trial]) -> list[dict[str, Any]]:
    told = [trial for trial in trials if trial.held is not None]
    keys = dict.fromkeys((trial.policy, trial.metric, trial.estimator) for trial in told)
    return [
        {
            "policy": policy,
            "metric": _NAMES[metric],
            "estimator": estimator,
            "trials": len(own),
            "held": sum(bool(one.held) for one in own),
        }
        for policy, metric, estimator in keys
        if (own := [one for one in told if (one.policy, one.metric, one.estimator) == (policy, metric, estimator)])
    ]


def _finite(bounds: tuple[float, float] | None, side: int) -> float | None:
    return None if bounds is None or not math.isfinite(bounds[side]) else bounds[side]
