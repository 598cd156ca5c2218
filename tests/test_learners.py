"""Every learner gives a model that a router can carry, and finds what there is to find."""

from __future__ import annotations

import numpy as np
import pytest
from worlds import two_models

from optimizer.dataset import Floats
from optimizer.evidence import cross_fitted
from optimizer.learners import Candidate, Lesson, candidates
from optimizer.learners.lesson import doubly_robust_targets
from optimizer.learners.linear import PENALTIES, Ridge, standard
from optimizer.learners.neighbours import SIZES, best_count
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
        data.groups,
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


def test_own_ridge_equals_the_textbook_one() -> None:
    """The weights solve (Z'Z + p) W = Z'(Y - mean) for one of the penalties, with Z the standardised features."""
    rng = np.random.default_rng(0)
    features = rng.normal(3.0, 2.0, (400, 6)) * np.array([1, 5, 0.1, 1, 1, 0])  # the last one is constant
    outcome = np.tile(features @ rng.normal(size=6), (2, 1)).T + rng.normal(size=(400, 2))
    heads = Ridge(features, ("a", "b")).heads(outcome, outcome)
    mean, scale = standard(features)
    design = (features - mean) / scale
    centred = outcome - outcome.mean(axis=0)
    solved = [np.linalg.solve(design.T @ design + p * np.eye(6), design.T @ centred) for p in PENALTIES]
    assert min(np.abs(heads.quality[:-1] - weights).max() for weights in solved) < 1e-9
    quality, cost = heads.predict(features)
    assert quality == pytest.approx(cost)
    assert np.var(quality - outcome) < 0.4 * np.var(outcome)


def test_penalty_grows_with_the_noise() -> None:
    """Pure noise is shrunk to its mean: less than a tenth of what least squares would make of it."""
    rng = np.random.default_rng(1)
    features, noise = rng.normal(size=(300, 40)), rng.normal(size=(300, 2))
    heads = Ridge(features, ("a", "b")).heads(noise, noise)
    fitted = np.var(heads.predict(features)[0])
    assert fitted < 0.1 * 40 / 300


def test_number_of_neighbours_fits_the_noise() -> None:
    """A step in one feature: without noise few neighbours follow it best, with much noise many do."""
    rng = np.random.default_rng(2)
    features = rng.uniform(-1, 1, (3000, 1))
    step = np.hstack([features > 0, features <= 0]).astype(np.float64)
    noisy: Floats = step + rng.normal(0, 30.0, step.shape)

    flat = np.zeros((3000, 2))

    def of(quality: Floats) -> int:
        return best_count(Lesson(features, quality, flat, quality, flat, ("a", "b"), np.arange(3000)), REWARD)

    assert of(step) == SIZES[0]
    assert of(noisy) == SIZES[-1]


def test_neighbours_of_the_same_group_do_not_tell_how_many_are_best() -> None:
    """Every prompt is logged sixty times with one draw of noise: by its copies fifty neighbours look perfect."""
    rng = np.random.default_rng(3)
    groups = np.repeat(np.arange(60), 60)
    features = rng.normal(size=(60, 2))[groups]
    quality = rng.normal(size=(60, 2))[groups]
    flat = np.zeros_like(quality)
    assert best_count(Lesson(features, quality, flat, quality, flat, ("a", "b"), groups), REWARD) == SIZES[-1]


def test_value_must_be_positive() -> None:
    with pytest.raises(ValueError, match="above 0"):
        RewardSpec(0.0)
    assert RewardSpec.default(np.array([np.nan, 0.02, 0.04])).value_usd == pytest.approx(0.3)
