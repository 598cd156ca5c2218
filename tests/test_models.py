"""Outcome models: as good as scikit-learn's own on all rows, the same for the same seed, of a kind chosen by size."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from sklearn.ensemble import HistGradientBoostingRegressor
from worlds import two_models

from optimizer.dataset import Floats, Ints
from optimizer.ope import models, torch_heads, trees
from optimizer.ope.models import balanced, cross_fit, fit_heads, fit_predict
from optimizer.ope.torch_heads import TorchHeads, fit_torch_heads

N = 4000
WORLD = two_models(N + 2000, gap=0.1)
DATA = WORLD.draw(0)
OUTCOMES = np.array([DATA.quality, DATA.cost_usd, DATA.latency_s])
TRUTH = np.column_stack([np.full(2000, 0.7), np.where(WORLD.features[N:, 0] == 1, 0.8, 0.3)])
"""True mean quality of the rows from N on."""


def error(found: Floats) -> float:
    return float(np.sqrt(np.mean((found - TRUTH) ** 2)))


def by_the_library(features: Floats, actions: Ints, outcome: Floats, new: Floats, count: int) -> Floats:
    """All rows, one fit, and a prediction per action, as scikit-learn would have it."""
    model = HistGradientBoostingRegressor(
        max_iter=60,
        max_leaf_nodes=12,
        min_samples_leaf=max(10, min(40, len(actions) // 40)),
        l2_regularization=1.0,
        categorical_features=[features.shape[1]],
        random_state=0,
        early_stopping=False,
    )
    model.fit(np.column_stack([features, actions]), outcome)
    columns = [model.predict(np.column_stack([new, np.full(len(new), action)])) for action in range(count)]
    return np.clip(np.column_stack(columns), outcome.min(), outcome.max())


def ten_actions(n: int) -> tuple[Floats, Ints, Floats]:
    """Features, actions 0 to 9 of which the last is rare, and a noisy outcome that depends on both."""
    rng = np.random.default_rng(5)
    features = rng.normal(size=(n, 6))
    actions: Ints = rng.choice(10, n, p=[0.11] * 9 + [0.01])
    return features, actions, np.sin(features[:, 0] + actions) + 0.1 * actions + rng.normal(0, 0.3, n)


@pytest.mark.parametrize("n", [500, N])
def test_predictions_are_scikit_learns_own(n: int) -> None:
    """Trees add up in single precision here."""
    known = DATA.features[:n], DATA.actions[:n], DATA.quality[:n]
    found = fit_predict(*known, DATA.features[N:], 2, seed=0)
    assert found == pytest.approx(by_the_library(*known, DATA.features[N:], 2), abs=1e-5)


def test_ten_actions_and_one_never_seen_are_predicted_as_scikit_learn_does(monkeypatch: pytest.MonkeyPatch) -> None:
    features, actions, outcome = ten_actions(3000)
    found = fit_predict(features, actions, outcome, features, 11, seed=0)
    assert found == pytest.approx(by_the_library(features, actions, outcome, features, 11), abs=1e-5)
    monkeypatch.setattr(trees._Tree, "reached", lambda *_: np.zeros((3, 3)))  # records that are read wrongly
    slow = fit_predict(features, actions, outcome, features, 11, seed=0)
    assert found == pytest.approx(slow, abs=1e-5)


def test_a_sample_of_the_rows_is_nearly_as_good(monkeypatch: pytest.MonkeyPatch) -> None:
    """With half of the rows the error grows by the square root of two at most."""
    features, actions, outcome = ten_actions(8000)
    truth = np.sin(features[:, :1] + np.arange(10)) + 0.1 * np.arange(10)
    whole = fit_predict(features, actions, outcome, features, 10, seed=0)
    monkeypatch.setattr(models, "MAX_FITTED", 4000)
    sampled = fit_predict(features, actions, outcome, features, 10, seed=0)
    errors = [np.sqrt(np.mean((found - truth) ** 2)) for found in (sampled, whole)]
    assert errors[0] < np.sqrt(2) * errors[1]


def test_a_sample_holds_every_row_of_rare_actions() -> None:
    _, actions, _ = ten_actions(16_000)
    rows = balanced(actions, 4000, seed=0)
    counts = np.bincount(actions[rows])
    assert counts[9] == (actions == 9).sum()
    assert np.ptp(counts[:9]) == 0
    assert 3900 < len(rows) <= 4000
    assert (np.diff(rows) > 0).all()
    assert balanced(actions, 20_000, seed=0).tolist() == list(range(16_000))


def test_the_mean_of_the_folds_models_is_no_worse_than_one_model_of_all_rows() -> None:
    """On logs of 500, over four of them."""
    errors = []
    for seed in range(4):
        data = replace(WORLD.draw(seed), propensities_logged=True)
        known = data.features[:500], data.actions[:500], data.quality[:500]
        both = cross_fit(*known, data.groups[:500], 2, seed=0).heads.predict(data.features[N:])[0]
        errors.append([error(both), error(fit_predict(*known, data.features[N:], 2, seed=0))])
    mean = np.mean(errors, axis=0)
    assert mean[0] <= mean[1]


def test_no_row_is_predicted_by_a_model_that_saw_its_group() -> None:
    """Outcomes of one group are absurd; its own predictions do not show it."""
    groups = np.arange(400) // 4
    outcome = DATA.quality[:400].copy()
    outcome[:4] = 1000.0
    found = cross_fit(DATA.features[:400], DATA.actions[:400], outcome, groups, 2, seed=0).predictions
    assert found[:4].max() <= 1.0


def test_two_parts_serve_where_half_of_the_rows_are_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(models, "MAX_FITTED", 200)
    known = DATA.features[:400], DATA.actions[:400], DATA.quality[:400], DATA.groups[:400]
    assert len(cross_fit(*known, 2, seed=0).heads.heads) == 2
    assert len(cross_fit(*(array[:399] for array in known), 2, seed=0).heads.heads) == 3


def test_outcomes_are_fitted_together_as_one_by_one() -> None:
    together = cross_fit(DATA.features, DATA.actions, OUTCOMES, DATA.groups, 2, seed=0).predictions
    assert together.shape == (3, N + 2000, 2)
    alone = cross_fit(DATA.features, DATA.actions, DATA.cost_usd, DATA.groups, 2, seed=0).predictions
    assert (together[1] == alone).all()


@pytest.mark.parametrize("torch_rows", [10, 10_000])
def test_degenerate_outcomes_are_answered(torch_rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch_heads, "STEPS", 40)
    outcomes = np.array([np.full(50, np.nan), np.full(50, 0.25), np.where(np.arange(50) < 5, 1.0, np.nan)])
    found = fit_predict(
        DATA.features[:50], DATA.actions[:50], outcomes, DATA.features[:7], 2, seed=0, torch_rows=torch_rows
    )
    assert found.shape == (3, 7, 2)
    assert np.isnan(found[0]).all()
    assert found[1:] == pytest.approx(np.array([0.25, 1.0])[:, None, None] * np.ones((2, 7, 2)))


def test_networks_are_about_as_good_as_trees(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two networks, half trained. Quality within a quarter of the trees' error (three whole ones: equal here, 20 % less
    with ten actions); mean cost and latency within a tenth of their spread."""
    monkeypatch.setattr(torch_heads, "STEPS", 250)
    found = fit_torch_heads(DATA.features[:N], DATA.actions[:N], OUTCOMES[:, :N], 2, seed=0, members=2).predict(
        DATA.features[N:]
    )
    boosted = fit_predict(DATA.features[:N], DATA.actions[:N], DATA.quality[:N], DATA.features[N:], 2, seed=0)
    assert error(found[0]) < 1.25 * error(boosted)
    for number, size in ((1, [0.010, 0.001]), (2, [2.0, 1.0])):
        assert found[number].mean(axis=0) == pytest.approx(size, abs=0.1 * OUTCOMES[number].std())


def test_networks_are_a_function_of_their_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch_heads, "STEPS", 40)
    known = DATA.features[:300], DATA.actions[:300], OUTCOMES[:, :300]
    first, second, other = (
        fit_torch_heads(*known, 2, seed=seed, members=1).predict(DATA.features[:50]) for seed in (3, 3, 4)
    )
    assert first.tobytes() == second.tobytes()
    assert first.tobytes() != other.tobytes()


def test_trees_are_a_function_of_their_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(models, "MAX_FITTED", 300)
    known = DATA.features[:N], DATA.actions[:N], OUTCOMES[:, :N]
    first, second, other = (fit_predict(*known, DATA.features[:50], 2, seed=seed) for seed in (3, 3, 4))
    assert first.tobytes() == second.tobytes()
    assert first.tobytes() != other.tobytes()


def test_the_number_of_rows_chooses_the_kind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch_heads, "STEPS", 40)
    known = DATA.features[:60], DATA.actions[:60], OUTCOMES[:, :60]
    assert isinstance(fit_heads(*known, 2, seed=0, torch_rows=59), TorchHeads)
    assert isinstance(fit_heads(*known, 2, seed=0, torch_rows=60), models.Boosted)


def test_torch_is_loaded_for_networks_only() -> None:
    code = "import sys, optimizer.study, optimizer.ope.torch_heads; print({'torch', 'sklearn'} & set(sys.modules))"
    found = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert found.stdout == "set()\n"
