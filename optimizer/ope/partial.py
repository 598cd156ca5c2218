"""What can be said of a policy that the log supports in part only.

Legend: n decisions, a actions. pi is the policy, b the logging behaviour. An action is supported at a decision where
b >= MIN_PROPENSITY.

The policy's outcome is that of its supported share, which the doubly robust scores estimate, plus that of the rest,
which lies anywhere within the outcome's range (Manski 1990). What the model says of the rest is an assumption.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from optimizer.dataset import MIN_PROPENSITY, Bools, Floats
from optimizer.gate import Estimate, Kind
from optimizer.ope.estimators import Evidence, direct, doubly_robust, effective, today, weights
from optimizer.ope.intervals import mean_interval

MIN_EFFECTIVE = 20.0
"""Below this many effective decisions in the segment its change is not estimated."""
MAX_REST = 0.01
"""A decision belongs to the segment if the policy gives unsupported actions at most this much there."""
ARM_SHARE = 0.1
"""Of the decisions at stake, how many the proposed experiment draws at random."""


@dataclass(frozen=True)
class Partial:
    """Changes are the policy's mean outcome minus today's, per decision."""

    share: float
    """Of all decisions, those in the supported segment: the policy keeps to what the log tried there."""
    segment: Estimate | None
    """The change on that segment alone; None, with the reason in `refused`, where it is too small."""
    refused: str
    low: float
    high: float
    """The change over all decisions is between these whatever the rest would give, with the sampling error."""
    extrapolated: Estimate
    """The change over all decisions if the model is right where nothing was tried: an assumption, not evidence."""
    experiment: str
    """What would decide it; empty where the rest is too small to move the change by more than the margin."""


def partial_change(
    evidence: Evidence,
    policy: Floats,
    *,
    within: tuple[float, float] = (0.0, 1.0),
    action_names: Sequence[str],
    margin: float = 0.01,
    confidence: float,
    kind: Kind = "asymptotic",
) -> Partial:
    """What the log says of `policy` (n, a), and what it leaves open.

    `within`: the least and the most the outcome can be. `margin`: how exactly the experiment should know the change, as
    a part of that range. `kind`: of the intervals, "assumption" where the behaviour was estimated.
    Raises ValueError when there is no decision or an outcome is outside its range.
    """
    _check(evidence, within)
    unsupported = np.where(evidence.behaviour < MIN_PROPENSITY, policy, 0.0)
    rest = unsupported.sum(axis=1)
    kept = doubly_robust(evidence, policy - unsupported) - today(evidence)
    size = effective(_carried(evidence, policy - unsupported))
    bounds = [
        mean_interval(
            kept + rest * end,
            evidence.groups,
            confidence=confidence,
            estimator="DR",
            effective=size,
            kind=kind,
        )
        for end in within
    ]
    extrapolated = mean_interval(
        kept + direct(evidence, unsupported),
        evidence.groups,
        confidence=confidence,
        estimator="DR + DM",
        effective=size,
        kind="assumption",
    )
    inside = rest <= MAX_REST
    segment = _segment(evidence, policy - unsupported, inside, confidence, kind)
    return Partial(
        share=float(inside.mean()),
        segment=segment if isinstance(segment, Estimate) else None,
        refused="" if isinstance(segment, Estimate) else segment,
        low=bounds[0].low,
        high=bounds[1].high,
        extrapolated=extrapolated,
        experiment=_experiment(evidence, unsupported, within, action_names, margin),
    )


def _segment(evidence: Evidence, supported: Floats, inside: Bools, confidence: float, kind: Kind) -> Estimate | str:
    """The change on the segment of the policy that keeps to supported actions, or why there is none."""
    rows = np.flatnonzero(inside)
    known = int((~np.isnan(evidence.outcome[rows])).sum())
    if known < MIN_EFFECTIVE:
        return f"only {known} decisions with a known outcome where the policy keeps to what the log tried"
    part = Evidence(*(getattr(evidence, name)[rows] for name in Evidence.__dataclass_fields__))
    policy = supported[rows] / supported[rows].sum(axis=1, keepdims=True)
    size = effective(_carried(part, policy))
    if size < MIN_EFFECTIVE:
        return f"only {size:.0f} effective decisions where the policy keeps to what the log tried"
    scores = doubly_robust(part, policy) - today(part)
    return mean_interval(scores, part.groups, confidence=confidence, estimator="DR", effective=size, kind=kind)


def _carried(evidence: Evidence, policy: Floats) -> Floats:
    """(n,) weight of each known outcome."""
    return np.where(np.isnan(evidence.outcome), 0.0, weights(evidence, policy) / evidence.known)


def _experiment(
    evidence: Evidence, unsupported: Floats, within: tuple[float, float], names: Sequence[str], margin: float
) -> str:
    """The rest's mean outcome is known to within h / s of its share s after 3.84 s^2 sigma^2 / h^2 draws."""
    rest = unsupported.sum(axis=1)
    share = float(rest.mean())
    half_width = margin * (within[1] - within[0])
    if share * (within[1] - within[0]) <= half_width:
        return ""
    wanted = unsupported.mean(axis=0)
    tried = [str(names[k]) for k in np.argsort(-wanted, kind="stable") if wanted[k] > 0]
    outcome = evidence.outcome[~np.isnan(evidence.outcome)]
    spread = float(outcome.std()) if len(outcome) else (within[1] - within[0]) / 2
    draws = max(int(np.ceil(3.84 * (share * spread / half_width) ** 2 / 100)) * 100, 100)
    listed = ", ".join(tried[:3]) + (f" and {len(tried) - 3} more" if len(tried) > 3 else "")
    return (
        f"The policy gives {share:.1%} of its decisions to {listed}, which the log does not try there. Draw them at "
        f"random for {ARM_SHARE:.0%} of these decisions and log policy.propensity: after about {draws:,} such draws "
        f"with a known outcome, of {round(draws / ARM_SHARE / share):,} decisions in all, the change is known to "
        f"within {half_width:.3g}."
    )


def _check(evidence: Evidence, within: tuple[float, float]) -> None:
    if len(evidence.outcome) == 0:
        raise ValueError("no decision to judge a policy on")
    known = evidence.outcome[~np.isnan(evidence.outcome)]
    if known.size and not (known.min() >= within[0] and known.max() <= within[1]):
        raise ValueError(f"outcomes lie between {known.min():.4g} and {known.max():.4g}, outside {within}")
