"""Rows scored by what was learned on other rows, part by part."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from optimizer.dataset import LoggedDataset, folds
from optimizer.evidence import by_parts, joined
from optimizer.gate import Limits
from optimizer.logged import Logged
from optimizer.study import learn

PARTS = 4
SESSIONS, EACH = 100, 30
N = SESSIONS * EACH
RNG = np.random.default_rng(11)
GROUPS = np.repeat(np.arange(SESSIONS), EACH)
LUCK = RNG.random(SESSIONS)[GROUPS]
"""What each group gives, whatever is done: nothing but the group itself tells it."""
DATA = LoggedDataset(
    features=np.column_stack([GROUPS, RNG.random(N)]).astype(np.float64),
    actions=RNG.integers(2, size=N),
    quality=LUCK,
    cost_usd=np.where(np.arange(N) % 2 == 0, 0.01, 0.02),
    latency_s=np.ones(N),
    behaviour=np.full((N, 2), 0.5),
    groups=GROUPS,
    time_ns=np.arange(N),
    action_names=("a", "b"),
    propensities_logged=True,
)
part_of = folds(GROUPS, PARTS, 0)
PAIRS = by_parts(DATA, part_of, PARTS, confidence=0.95, seed=0)


TOLERANCE = 4 / np.sqrt(SESSIONS)
"""Four standard errors of a correlation of nothing between so many sessions."""


def explained(data: LoggedDataset) -> float:
    """Correlation of the outcomes with what the models say of them."""
    part = folds(data.groups, PARTS, 0)
    pairs = by_parts(data, part, PARTS, confidence=0.95, seed=0)
    evidence = joined([here for _, here in pairs], data, part).outcomes["quality"]
    return float(np.corrcoef(evidence.outcome, evidence.model.mean(axis=1))[0, 1])


def test_no_model_has_seen_the_session_of_the_rows_that_it_speaks_of() -> None:
    assert abs(explained(DATA)) < TOLERANCE


def test_a_model_that_has_seen_it_is_found_out() -> None:
    assert explained(replace(DATA, groups=np.arange(N))) > TOLERANCE


def test_nor_has_one_that_teaches_beside_a_part() -> None:
    for known, _ in PAIRS:
        evidence = known.outcomes["quality"]
        assert abs(np.corrcoef(evidence.outcome, evidence.model.mean(axis=1))[0, 1]) < TOLERANCE * np.sqrt(4 / 3)


def test_the_parts_join_to_the_whole_in_its_order() -> None:
    whole = joined([here for _, here in PAIRS], DATA, part_of)
    assert np.array_equal(whole.outcomes["quality"].outcome, DATA.quality)
    assert np.array_equal(whole.outcomes["cost_usd"].actions, DATA.actions)
    for number, (_, here) in enumerate(PAIRS):
        rows = part_of == number
        assert np.array_equal(whole.outcomes["quality"].model[rows], here.outcomes["quality"].model)


@pytest.mark.parametrize("number", range(PARTS))
def test_a_part_and_the_others_are_all_rows(number: int) -> None:
    known, here = PAIRS[number]
    assert sorted([*known.data.time_ns.tolist(), *here.data.time_ns.tolist()]) == list(range(N))
    assert not set(known.data.groups.tolist()) & set(here.data.groups.tolist())


def test_what_is_only_luck_is_not_chosen_for_it() -> None:
    """Both actions give and cost the same: the choice says that nothing is saved beyond the noise of one row."""
    lessons = learn(Logged(DATA, None, 0.0), Limits(), None, epsilon=0.05, seed=0)
    assert all(abs(scored.quality_change) < 0.03 for scored in lessons.frontier)
