"""Without overlap: the supported segment by evidence, the rest by its bounds, and the experiment that would decide."""

from __future__ import annotations

import numpy as np
import pytest

from optimizer.dataset import Floats
from optimizer.ope.estimators import Evidence, doubly_robust, today
from optimizer.ope.intervals import mean_interval
from optimizer.ope.partial import partial_change

NAMES = ("dear", "cheap")
LOGS = 200
CONFIDENCE = 0.95
TOLERANCE = 2 * np.sqrt(0.05 * 0.95 / LOGS)
"""Two binomial standard errors of a coverage of 0.95 in 200 logs."""


class World:
    """The log never tries "cheap" where the first feature is above 0.5 (30.9 % of prompts); elsewhere it tosses a coin.

    `untried`: what cheap would give there. The policy always takes it, for sure or 97 times in 100.
    """

    def __init__(self, untried: str, sure: float = 1.0, most: float = 1.0, labels: float = 1.0) -> None:
        self.untried, self.sure, self.most, self.labels = untried, sure, most, labels
        _, policy, behaviour, mean, never = self._draw(np.random.default_rng(999), 400_000)
        gain = ((policy - behaviour) * mean).sum(axis=1)
        self.truth, self.segment_truth, self.share = gain.mean(), gain[~never].mean(), (~never).mean()

    def draw(self, rng: np.random.Generator, n: int) -> tuple[Evidence, Floats]:
        return self._draw(rng, n)[:2]

    def _draw(self, rng: np.random.Generator, n: int) -> tuple[Evidence, Floats, Floats, Floats, np.ndarray]:
        features = rng.normal(size=(n, 2))
        never = features[:, 0] > 0.5
        base = 1 / (1 + np.exp(-features[:, 1]))
        cheap = np.where(
            never, {"worst": 0 * base, "best": 0 * base + 1, "like": base - 0.1}[self.untried], base - 0.05
        )
        mean = np.clip(np.column_stack([base, cheap]), 0, 1)
        behaviour = np.where(never[:, None], [1.0, 0.0], [0.5, 0.5])
        actions = (rng.random(n) > behaviour[:, 0]).astype(np.int64)
        outcome = self.most * (rng.random(n) < mean[np.arange(n), actions])
        outcome[rng.random(n) > self.labels] = np.nan
        policy = np.tile([1 - self.sure, self.sure], (n, 1))
        guess = self.most * np.column_stack([base, base])
        evidence = Evidence(outcome, np.full(n, self.labels), actions, behaviour, guess, np.arange(n))
        return evidence, policy, behaviour, self.most * mean, never


@pytest.mark.parametrize("untried", ["worst", "best", "like"])
@pytest.mark.parametrize(("sure", "most", "labels"), [(1.0, 1.0, 1.0), (0.97, 1.0, 0.3), (1.0, 0.02, 1.0)])
def test_the_bounds_contain_the_truth_whatever_the_untried_would_give(
    untried: str, sure: float, most: float, labels: float
) -> None:
    world, rng = World(untried, sure, most, labels), np.random.default_rng(0)
    found = []
    for _ in range(LOGS):
        evidence, policy = world.draw(rng, 600)
        found.append(partial_change(evidence, policy, within=(0.0, most), action_names=NAMES, confidence=CONFIDENCE))
    assert np.mean([one.low <= world.truth <= one.high for one in found]) >= CONFIDENCE - TOLERANCE


def test_the_segment_is_known_by_evidence() -> None:
    world, rng = World("worst"), np.random.default_rng(1)
    found = [partial_change(*world.draw(rng, 600), action_names=NAMES, confidence=CONFIDENCE) for _ in range(LOGS)]
    covered = [one.segment.low <= world.segment_truth <= one.segment.high for one in found if one.segment]
    assert len(covered) == LOGS
    assert np.mean(covered) >= CONFIDENCE - TOLERANCE
    assert np.mean([one.share for one in found]) == pytest.approx(world.share, abs=0.01)


def test_the_bounds_are_no_wider_than_the_rest_and_the_noise_make_them() -> None:
    """The rest is 30.9 % of decisions; at n = 20,000 the limits add two half-widths of about 0.01."""
    evidence, policy = World("like").draw(np.random.default_rng(2), 20_000)
    found = partial_change(evidence, policy, action_names=NAMES, confidence=CONFIDENCE)
    assert 0.309 - 0.02 <= found.high - found.low <= 0.309 + 0.05


def test_extrapolation_is_an_assumption_and_nothing_else_is() -> None:
    evidence, policy = World("worst").draw(np.random.default_rng(3), 2000)
    found = partial_change(evidence, policy, action_names=NAMES, confidence=CONFIDENCE)
    assert found.extrapolated.kind == "assumption"
    assert found.segment is not None
    assert found.segment.kind == "asymptotic"
    # The model believes cheap to be as good as dear; in truth it is worth nothing there.
    assert found.extrapolated.low > World("worst").truth
    estimated = partial_change(evidence, policy, action_names=NAMES, confidence=CONFIDENCE, kind="assumption")
    assert estimated.segment is not None
    assert estimated.segment.kind == "assumption"


def test_the_experiment_names_the_action_and_how_many_draws_decide_it() -> None:
    """Share 0.31, standard deviation 0.5, half-width 0.05: 3.84 (0.31 * 0.5 / 0.05)^2 = 37 draws, rounded up."""
    evidence, policy = World("like").draw(np.random.default_rng(4), 4000)
    found = partial_change(evidence, policy, action_names=NAMES, margin=0.05, confidence=CONFIDENCE)
    assert "% of its decisions to cheap, which the log does not try there" in found.experiment
    assert "about 100 such draws" in found.experiment
    finer = partial_change(evidence, policy, action_names=NAMES, margin=0.01, confidence=CONFIDENCE)
    assert "about 1,000 such draws" in finer.experiment


def test_a_rest_that_cannot_move_the_change_by_the_margin_needs_no_experiment() -> None:
    evidence, policy = World("worst").draw(np.random.default_rng(8), 1000)
    mostly = 0.98 * evidence.behaviour + 0.02 * policy
    found = partial_change(evidence, mostly, action_names=NAMES, margin=0.01, confidence=CONFIDENCE)
    assert found.experiment == ""
    assert partial_change(evidence, mostly, action_names=NAMES, margin=0.001, confidence=CONFIDENCE).experiment


def test_a_policy_that_the_log_supports_is_all_segment() -> None:
    evidence, policy = World("like").draw(np.random.default_rng(5), 1000)
    kept = np.where(evidence.behaviour > 0, policy, 0.0)
    kept[kept.sum(axis=1) == 0] = [1.0, 0.0]
    found = partial_change(evidence, kept, action_names=NAMES, confidence=CONFIDENCE)
    scores = doubly_robust(evidence, kept) - today(evidence)
    whole = mean_interval(scores, evidence.groups, confidence=CONFIDENCE, estimator="DR", effective=1.0)
    assert (found.share, found.experiment) == (1.0, "")
    assert (found.low, found.high) == pytest.approx((whole.low, whole.high))
    assert found.segment is not None
    assert found.segment.value == pytest.approx(whole.value)


def test_a_segment_that_is_too_small_says_why() -> None:
    evidence, policy = World("like").draw(np.random.default_rng(6), 1000)
    nowhere = Evidence(
        evidence.outcome[:15],
        evidence.known[:15],
        evidence.actions[:15],
        evidence.behaviour[:15],
        evidence.model[:15],
        evidence.groups[:15],
    )
    found = partial_change(nowhere, policy[:15], action_names=NAMES, confidence=CONFIDENCE)
    assert found.segment is None
    assert "decisions with a known outcome where the policy keeps to" in found.refused


def test_an_outcome_outside_its_range_is_refused() -> None:
    evidence, policy = World("like", most=3.0).draw(np.random.default_rng(7), 100)
    with pytest.raises(ValueError, match="outside"):
        partial_change(evidence, policy, action_names=NAMES, confidence=CONFIDENCE)
