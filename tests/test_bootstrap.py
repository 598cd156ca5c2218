"""The cluster bootstrap calls the estimator again on every draw, and its intervals hold."""

from __future__ import annotations

import numpy as np
import pytest

from optimizer.dataset import Floats
from optimizer.ope.bootstrap import MOST_BLOCKS, bootstrap_interval
from optimizer.ope.estimators import ESTIMATORS, Evidence, effective, today, weights
from optimizer.ope.intervals import mean_interval

CONFIDENCE = 0.95
LOGS = 200
TOLERANCE = 2 * np.sqrt(0.05 * 0.95 / LOGS)
"""Two binomial standard errors of a coverage of 0.95 in 200 logs."""
TRUTH = {"value": 0.7, "change": 0.7 - (0.9 * 0.5 + 0.1 * 0.7)}


def log(rng: np.random.Generator, n: int = 400, session: int = 1, labelled: float = 1.0) -> tuple[Evidence, Floats]:
    """The incumbent is right half the time; the other action, taken one time in ten, seven times out of ten. Decisions
    of a session share their luck. The model knows nothing."""
    groups = np.arange(n) // session
    luck = rng.random(n)[groups]
    actions = (rng.random(n) < 0.1).astype(np.int64)
    outcome = (luck < np.where(actions == 1, 0.7, 0.5)) * 1.0
    outcome[rng.random(n) > labelled] = np.nan
    behaviour = np.tile([0.9, 0.1], (n, 1))
    evidence = Evidence(outcome, np.full(n, labelled), actions, behaviour, 0.4 + 0.1 * rng.random((n, 2)), groups)
    return evidence, np.tile([0.0, 1.0], (n, 1))


@pytest.mark.parametrize("estimator", ["SNIPS", "DR"])
@pytest.mark.parametrize(("session", "labelled"), [(1, 1.0), (4, 0.75)])
def test_it_covers_as_the_influence_interval_does(estimator: str, session: int, labelled: float) -> None:
    """40 effective decisions, or 30: within three points of nominal, and of the influence
    interval, beyond chance."""
    rng = np.random.default_rng(0)
    ours: dict[str, list[bool]] = {what: [] for what in TRUTH}
    influence: dict[str, list[bool]] = {what: [] for what in TRUTH}
    for number in range(LOGS):
        evidence, policy = log(rng, session=session, labelled=labelled)
        for what, truth in TRUTH.items():
            change = what == "change"
            low, high = bootstrap_interval(
                evidence, policy, estimator, change=change, confidence=CONFIDENCE, seed=number, draws=199
            )
            ours[what].append(low <= truth <= high)
            scores = ESTIMATORS[estimator](evidence, policy) - (today(evidence) if change else 0.0)
            size = effective(weights(evidence, policy))
            found = mean_interval(scores, evidence.groups, confidence=CONFIDENCE, estimator=estimator, effective=size)
            influence[what].append(found.low <= truth <= found.high)
    for what in TRUTH:
        assert np.mean(ours[what]) >= CONFIDENCE - 0.03 - TOLERANCE
        assert np.mean(ours[what]) >= np.mean(influence[what]) - 0.03


@pytest.mark.parametrize("estimator", sorted(ESTIMATORS))
@pytest.mark.parametrize("change", [False, True])
def test_drawing_sums_is_calling_the_estimator_on_drawn_rows(estimator: str, change: bool) -> None:
    """The same draws, once as counts of the groups' sums and once as rows given to the estimator."""
    evidence, policy = log(np.random.default_rng(1), n=600, session=3, labelled=0.8)
    rng = np.random.default_rng(7)
    rows = [np.flatnonzero(evidence.groups == group) for group in range(200)]
    values, errors = [], []
    for picked in [np.arange(200), *rng.integers(0, 200, (50, 200))]:
        drawn = np.concatenate([rows[group] for group in picked])
        again = evidence.take(drawn)
        scores = ESTIMATORS[estimator](again, policy[drawn]) - (today(again) if change else 0.0)
        sums = np.bincount(np.repeat(np.arange(200), 3), weights=scores - scores.mean())
        values.append(scores.mean())
        errors.append(np.sqrt(200 / 199 * np.sum(sums**2)) / 600)
    ratios = (np.array(values[1:]) - values[0]) / np.array(errors[1:])
    low, high = np.quantile(ratios, [0.025, 0.975], method="inverted_cdf")
    found = bootstrap_interval(evidence, policy, estimator, change=change, confidence=CONFIDENCE, seed=7, draws=50)
    assert found == pytest.approx((values[0] - high * errors[0], values[0] - low * errors[0]))


def test_the_denominator_is_drawn_too() -> None:
    """Drawing terms that the sample's own denominator has already divided is more than twice as wide when outcomes are
    nearly all alike."""
    evidence, policy = log(np.random.default_rng(2))
    evidence.outcome[:] = 0.9 + 0.1 * (evidence.outcome > 0)
    low, high = bootstrap_interval(evidence, policy, "SNIPS", change=False, confidence=CONFIDENCE)
    weight = weights(evidence, policy)
    terms = weight * evidence.outcome / weight.mean()
    rng = np.random.default_rng(3)
    fixed = np.quantile([rng.choice(terms, len(terms)).mean() for _ in range(500)], [0.025, 0.975])
    assert fixed[1] - fixed[0] > 2 * (high - low)


def test_the_same_seed_gives_the_same_bounds_and_another_nearly_the_same() -> None:
    evidence, policy = log(np.random.default_rng(4), n=3 * MOST_BLOCKS)
    bounds = [
        bootstrap_interval(evidence, policy, "SNIPS", change=True, confidence=CONFIDENCE, seed=seed)
        for seed in (0, 0, 1)
    ]
    assert bounds[0] == bounds[1] != bounds[2]
    assert bounds[0] == pytest.approx(bounds[2], abs=0.15 * (bounds[0][1] - bounds[0][0]))


def test_one_group_bounds_nothing() -> None:
    evidence, policy = log(np.random.default_rng(5), n=20, session=20)
    found = bootstrap_interval(evidence, policy, change=True, confidence=CONFIDENCE)
    assert found == (-np.inf, np.inf)
