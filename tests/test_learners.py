"""Every learner gives a model that a router can carry, and finds what there is to find."""

from __future__ import annotations

import numpy as np
import pytest
from worlds import two_models

from optimizer.evidence import cross_fitted
from optimizer.learners import Candidate, Lesson, candidates
from optimizer.learners.lesson import doubly_robust_targets
from optimizer.policy import Learned
from optimizer.rewards import RewardSpec


def lesson(seed: int = 0) -> Lesson:
    data = two_models(1500).draw(seed)
    evaluation = cross_fitted(data, confidence=0.95, seed=0)
    quality, cost = evaluation.outcomes["quality"], evaluation.outcomes["cost_usd"]
    return Lesson(
        data.features,
        doubly_robust_targets(data, data.quality, quality.model, quality.known),
        doubly_robust_targets(data, data.cost_usd, cost.model, cost.known),
        quality.model,
        cost.model,
        data.action_names,
    )


LESSON = lesson()
REWARD = RewardSpec(0.045)
FOUND = candidates(LESSON, REWARD, epsilon=0.05)
LABELS = [candidate.label for candidate in FOUND]


@pytest.mark.parametrize("candidate", FOUND, ids=LABELS)
def test_every_candidate_decides_with_probabilities(candidate: Candidate) -> None:
    policy = Learned(candidate.model, ("dear", "other", "cheap"))
    probabilities = policy.probabilities(LESSON.features, np.zeros((1500, 3)))
    assert probabilities.sum(axis=1) == pytest.approx(1.0)
    assert (probabilities[:, 1] == 0).all()
    assert probabilities.min(axis=1).max() == 0
    assert probabilities[:, [0, 2]].min() >= 0.05 / 2 - 1e-9


def test_learning_twice_gives_the_same_models() -> None:
    again = candidates(LESSON, REWARD, epsilon=0.05)
    for first, second in zip(FOUND, again, strict=True):
        assert first.label == second.label
        assert all(np.array_equal(first.model.arrays[k], second.model.arrays[k]) for k in first.model.arrays)


@pytest.mark.parametrize("label", ["plug-in", "doubly robust", "nearest neighbours"])
def test_learners_send_easy_prompts_to_the_cheap_model(label: str) -> None:
    """Even prompts are easy: cheap is as good there and forty points worse elsewhere, and its saving is worth twenty.
    A mean of 50 neighbours has a standard error of 0.13, so it errs by 0.2 in 6 % of prompts."""
    model = next(candidate.model for candidate in FOUND if candidate.label == label)
    world = two_models(400, seed=9)
    cheap = Learned(model, world.names).probabilities(world.features, world.behaviour)[:, 1] > 0.5
    easy = world.features[:, 0] == 1
    assert cheap[easy].mean() > 0.85
    assert cheap[~easy].mean() < 0.15


def test_targets_are_right_on_average() -> None:
    """Over 200 draws the mean target of each action is its true mean; four standard errors are below 0.02."""
    world = two_models(500, seed=3)
    totals = np.zeros(2)
    for seed in range(200):
        data = world.draw(seed, label_share=0.8)
        model = np.full((500, 2), 0.5)
        totals += doubly_robust_targets(data, data.quality, model, np.full(500, 0.8)).mean(axis=0)
    assert totals / 200 == pytest.approx(world.quality.mean(axis=0), abs=0.02)


def test_a_dearer_unit_of_quality_buys_more_quality() -> None:
    def dear_share(label: str) -> float:
        model = next(candidate.model for candidate in FOUND if candidate.label == label)
        share: float = (
            Learned(model, ("dear", "cheap")).probabilities(LESSON.features, np.zeros((1500, 2)))[:, 0].mean()
        )
        return share

    assert (
        dear_share("doubly robust, quality x3")
        >= dear_share("doubly robust")
        >= dear_share("doubly robust, quality x0.3")
    )


def test_value_must_be_positive() -> None:
    with pytest.raises(ValueError, match="above 0"):
        RewardSpec(0.0)
    assert RewardSpec.default(np.array([np.nan, 0.02, 0.04])).value_usd == pytest.approx(0.3)
