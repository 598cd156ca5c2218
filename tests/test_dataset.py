"""Datasets are valid by construction, and splits keep groups together in time."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from worlds import two_models

from optimizer.dataset import folds, split


@given(st.lists(st.integers(0, 30), min_size=1, max_size=200), st.randoms(use_true_random=False))
def test_a_group_is_never_divided_and_no_row_is_lost(groups: list[int], random) -> None:
    names = np.array(groups)
    times = np.array([random.randrange(10**6) for _ in groups])
    parts = split(names, times)
    rows = np.concatenate([parts.train, parts.choose, parts.certify])
    assert sorted(rows) == list(range(len(groups)))
    sides = [set(names[part]) for part in (parts.train, parts.choose, parts.certify)]
    assert sum(map(len, sides)) == len(set(groups))


def test_the_newest_fifth_certifies() -> None:
    times = np.random.default_rng(0).permutation(1000)
    parts = split(np.arange(1000), times)
    assert (len(parts.train), len(parts.choose), len(parts.certify)) == (600, 200, 200)
    assert times[parts.train].max() < times[parts.choose].min() < times[parts.certify].min()


@given(st.lists(st.integers(0, 9), min_size=1, max_size=100), st.integers(0, 5))
def test_folds_keep_groups_together(groups: list[int], seed: int) -> None:
    names = np.array(groups)
    fold = folds(names, 3, seed)
    assert all(len(set(fold[names == name])) == 1 for name in set(groups))
    assert np.array_equal(fold, folds(names, 3, seed))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"behaviour": np.full((20, 2), 0.4)}, "sum to 1"),
        ({"behaviour": np.tile([1.0, 0.0], (20, 1))}, "probability 0"),
        ({"quality": np.full(20, 1.5)}, r"\[0, 1\]"),
        ({"cost_usd": np.zeros(19)}, r"cost_usd must be \(20,\)"),
        ({"features": np.full((20, 4), np.nan)}, "finite"),
        ({"actions": np.full(20, 2)}, "index 2 action names"),
    ],
)
def test_arrays_that_cannot_be_right_are_refused(change: dict, message: str) -> None:
    data = two_models(20).draw(0)
    assert set(data.actions) == {0, 1}
    with pytest.raises(ValueError, match=message):
        replace(data, **change)


def test_taking_rows_keeps_them_whole() -> None:
    data = two_models(20).draw(0)
    part = data.take(np.array([3, 1]))
    assert len(part) == 2
    assert part.action_names == data.action_names
    assert np.array_equal(part.cost_usd, data.cost_usd[[3, 1]])
