"""What the next decisions will show: intervals for means that are not seen yet, wider than those of an estimate.

An estimate says what a policy is worth in the long run, and its interval how far chance may have led it astray. Whoever
puts the policy in force sees the mean of so many decisions, which chance moves again. With V the mean outcome under the
policy, of which V^ is the doubly robust estimate, and Y the mean of m new decisions under it,

    Y - V^ = (Y - V) + (V - V^)    has variance    s^2 / m + e^2,

s^2 the variance of one outcome under the policy and e the standard error of V^ from its influence values: both parts
are independent, since the decisions are others. The interval is V^ +- t sqrt(s^2 / m + e^2), for the change against
what today was estimated to bring both less that. Beside a control group of k new decisions the change is a difference
of two new means: s^2 / m + s0^2 / k + e^2, with e the standard error of the estimated change. The degrees of freedom of
t are Welch's and Satterthwaite's for the sum. This is the classical interval for the mean of a future sample (Hahn and
Meeker, Statistical Intervals, 1991, section 4.7) with an influence-function estimate in place of the sample's mean.

s^2 is the self-normalised mean of (y - V^)^2 under the weights pi / b, plus what decisions of one session have in
common: the sum, over the pairs of a session, of the products of their scores' deviations, per decision. Such a product
has the covariance of both outcomes under the policy as its mean. Asymptotic: V^ and Y must be about normal, say from 30
sessions on. It holds for decisions like those that judged (the same kind of requests, models, prices), made by the
policy as it was judged; where the world moves, the realised mean may leave it, which is then a finding and no chance.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from optimizer.dataset import Floats, Ints
from optimizer.evidence import METRICS, Evaluation, Metric, Refused
from optimizer.gate import Estimate, Kind
from optimizer.ope.estimators import Evidence, doubly_robust, effective, today, weights
from optimizer.ope.intervals import deviations, freedom, standard_error


@dataclass(frozen=True)
class Doubt:
    """A standard deviation and the degrees of freedom that it was estimated with."""

    size: float
    freedom: float


@dataclass(frozen=True, eq=False)
class Seen:
    """Outcomes and how much each stands for under a policy: their weighted distribution is that of its own outcomes."""

    outcome: Floats
    """(p,) NaN where unknown."""
    weight: Floats
    """(p,)"""
    unit: Ints
    """(p,) the decision or episode that each belongs to."""


@dataclass(frozen=True)
class Forecast:
    """A change per decision (or episode), policy minus today, and all that intervals for new means need."""

    value: float
    """The doubly robust estimate of the change."""
    error: Doubt
    """Of the change as estimated."""
    policy_error: Doubt
    """Of the policy's own mean as estimated."""
    spread: Doubt
    """Of one decision's outcome under the policy."""
    today_spread: Doubt
    """Of one decision's outcome as today's routing makes it."""
    confidence: float
    kind: Kind

    def after(self, decisions: int) -> Estimate:
        """Where the mean outcome of so many new decisions, less what today was estimated to bring, will lie. Of quality
        those count that get a score."""
        return self._within(decisions, [self.policy_error, _mean_of(self.spread, decisions)])

    def beside(self, decisions: int, control: int) -> Estimate:
        """Where the difference between so many new decisions and a control group of the same time will lie."""
        means = [_mean_of(self.spread, decisions), _mean_of(self.today_spread, control)]
        return self._within(decisions + control, [self.error, *means])

    def scaled(self, factor: float) -> Forecast:
        """In other units; a negative factor makes savings of changes."""
        doubts = {
            name: Doubt(abs(factor) * doubt.size, doubt.freedom)
            for name in ("error", "policy_error", "spread", "today_spread")
            if (doubt := getattr(self, name))
        }
        return Forecast(factor * self.value, **doubts, confidence=self.confidence, kind=self.kind)

    def _within(self, decisions: int, doubts: list[Doubt]) -> Estimate:
        from scipy.stats import t

        variances = [doubt.size**2 for doubt in doubts]
        total = sum(variances)
        half = 0.0
        if total > 0.0:
            parts = sum(v**2 / doubt.freedom for v, doubt in zip(variances, doubts, strict=True))
            half = float(t.ppf(0.5 + self.confidence / 2, max(total**2 / parts, 1.0))) * math.sqrt(total)
        if math.isnan(half):  # an infinite error, of a single session
            half = math.inf
        return Estimate("prediction", self.value, self.value - half, self.value + half, decisions, decisions, self.kind)


def forecast(evidence: Evidence, policy: Floats, *, confidence: float, kind: Kind = "asymptotic") -> Forecast:
    """The forecast of one outcome under `policy` (n, a), from the rows that judge it."""
    outcome, known, n = evidence.outcome, evidence.known, len(evidence.outcome)
    return forecast_from(
        doubly_robust(evidence, policy),
        today(evidence),
        Seen(outcome, weights(evidence, policy) / known, np.arange(n)),
        Seen(outcome, np.ones(n) / known, np.arange(n)),
        evidence.groups,
        confidence=confidence,
        kind=kind,
    )


def forecast_from(
    scores: Floats, now: Floats, policy: Seen, as_today: Seen, groups: Ints, *, confidence: float, kind: Kind
) -> Forecast:
    """The forecast from influence values (n,) of the policy's mean and of today's, and the outcomes behind each.

    n units (decisions, or episodes of many), in groups (n,).
    """
    return Forecast(
        value=float((scores - now).mean()),
        error=_error(scores - now, groups),
        policy_error=_error(scores, groups),
        spread=_spread(policy, scores, groups),
        today_spread=_spread(as_today, now, groups),
        confidence=confidence,
        kind=kind,
    )


def forecasts(evaluation: Evaluation, policy: Floats) -> dict[Metric, Forecast | Refused]:
    """The forecast of every outcome; refused where the change is."""
    found: dict[Metric, Forecast | Refused] = {}
    for metric in METRICS:
        change = evaluation.change(metric, policy, "DR")
        evidence = evaluation.outcomes[metric]
        found[metric] = (
            change
            if isinstance(change, Refused)
            else forecast(evidence, policy, confidence=evaluation.confidence, kind=change.kind)
        )
    return found


NAMES: Mapping[Metric, tuple[str, float]] = {
    "cost_usd": ("savings_usd_per_1k", -1000.0),
    "quality": ("quality_change", 1.0),
    "latency_s": ("latency_change_s", 1.0),
}
"""What verdicts.json calls each change, and its unit."""


def predicted_json(evaluation: Evaluation, policy: Floats | None) -> dict[str, Any]:
    """For verdicts.json: `forecasts_json` of a policy (n, a); None: there is none."""
    return forecasts_json({} if policy is None else forecasts(evaluation, policy))


def forecasts_json(found: Mapping[Metric, Forecast | Refused]) -> dict[str, Any]:
    """Each change's forecast in its units, None where there is none; see `forecast_of`."""
    return {name: _json(found.get(metric), factor) for metric, (name, factor) in NAMES.items()}


def forecast_of(said: Mapping[str, Any] | None) -> Forecast | None:
    """What `forecasts_json` wrote of one change."""
    if said is None:
        return None
    doubts = {name: Doubt(**said[name]) for name in ("error", "policy_error", "spread", "today_spread")}
    return Forecast(said["value"], **doubts, confidence=said["confidence"], kind=said["kind"])


def _json(found: Forecast | Refused | None, factor: float) -> dict[str, Any] | None:
    if not isinstance(found, Forecast):
        return None
    said = asdict(found.scaled(factor))
    return said if all(map(math.isfinite, (said["value"], said["error"]["size"], said["spread"]["size"]))) else None


def _mean_of(spread: Doubt, decisions: int) -> Doubt:
    if decisions < 1:
        raise ValueError(f"a mean needs a decision, got {decisions}")
    return Doubt(spread.size / math.sqrt(decisions), spread.freedom)


def _error(scores: Floats, groups: Ints) -> Doubt:
    summed = deviations(scores, groups)
    return Doubt(standard_error(summed, len(scores)), freedom(summed))


def _spread(seen: Seen, scores: Floats, groups: Ints) -> Doubt:
    """Of one outcome around the mean of the scores (n,), groups (n,) included."""
    mean = float(scores.mean())
    carried = np.where(np.isnan(seen.outcome), 0.0, seen.weight)
    if not carried.sum():
        return Doubt(math.inf, 1.0)
    apart = np.where(np.isnan(seen.outcome), 0.0, seen.outcome - mean)
    alone = float(np.sum(carried * apart**2) / carried.sum())
    summed = deviations(scores, groups)
    shared = float(np.sum(summed**2) - np.sum((scores - mean) ** 2)) / len(scores)
    units = effective(np.bincount(seen.unit, carried).astype(np.float64))
    return Doubt(math.sqrt(alone + max(shared, 0.0)), max(units - 1.0, 1.0))
