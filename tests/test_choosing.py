"""What is suggested: the most useful inside the limits, the simplest where nothing tells them apart, a part of it where
the whole would be too much."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from worlds import World, two_models

from optimizer.bundle import read_policy, write_policy
from optimizer.choosing import SIMPLER_WITHIN, Choice, Scored, choose, score
from optimizer.evidence import Evaluation, Refused, held_out
from optimizer.gate import Estimate, Limits
from optimizer.learners import Candidate
from optimizer.learners.candidates import constant
from optimizer.logged import Logged
from optimizer.mixtures import largest_certain, mixed, today_shares, unmixed
from optimizer.policy import Learned
from optimizer.rewards import RewardSpec
from optimizer.runtime import Model, Router
from optimizer.study import assess, learn

NAMES = ("dear", "cheap")
REWARD = RewardSpec(0.05)
CHEAP = Candidate("always cheap", 0, constant(NAMES, 1, 0.05))


def judged(world: World, seed: int = 0) -> Evaluation:
    data = world.draw(seed)
    half = len(data) // 2
    return held_out(data, np.arange(half), np.arange(half, len(data)), confidence=0.95, seed=0)


EVALUATION = judged(two_models(2000))


def scored(utility: float, complexity: int, noise: float = 0.0, *, inside: bool = True, saves: bool = True) -> Scored:
    """A candidate that gains `utility` on average; noise is the spread of its gains, drawn anew for each."""
    gains = np.random.default_rng(complexity).normal(0.0, 1.0, 1000)
    gains = utility + noise * (gains - gains.mean()) / gains.std()
    nothing = Refused("not needed")
    change = -0.001 if saves else 0.001
    candidate = Candidate(f"complexity {complexity}", complexity, CHEAP.model)
    policy = EVALUATION.data.behaviour
    return Scored(candidate, nothing, nothing, change, 0.0, gains, inside, 500.0, policy)


def chosen(*found: Scored) -> str:
    choice = choose(found, EVALUATION, Limits(), REWARD)
    assert choice is not None
    return choice.candidate.label


def test_simpler_wins_where_the_difference_is_within_its_standard_error() -> None:
    """1,000 decisions with a spread of 0.1 each: the paired error of their difference is about 0.0045."""
    assert chosen(scored(0.100, 1, 0.1), scored(0.103, 2, 0.1)) == "complexity 1"


def test_better_wins_where_the_difference_is_certain_however_small() -> None:
    assert chosen(scored(0.100, 1, 0.001), scored(0.103, 2, 0.001)) == "complexity 2"


def test_a_small_log_gives_no_more_than_half_a_point_away_for_simplicity() -> None:
    """The error is 0.09: a rule of one standard error alone would take either of them for equal to the best."""
    best = scored(0.110, 2, 2.0)
    assert chosen(scored(0.110 - 0.9 * SIMPLER_WITHIN, 1, 2.0), best) == "complexity 1"
    assert chosen(scored(0.110 - 1.1 * SIMPLER_WITHIN, 1, 2.0), best) == "complexity 2"


def test_only_what_saves_inside_the_limits_is_suggested_where_there_is_any() -> None:
    assert chosen(scored(0.1, 1), scored(0.5, 2, inside=False), scored(0.6, 3, saves=False)) == "complexity 1"


def worse(by: float, n: int = 6000) -> World:
    """The cheap model is right `by` less often than the dear one, whatever the prompt."""
    made = two_models(n, seed=3)
    rng = np.random.default_rng(4)
    return replace(made, quality=np.column_stack([(rng.random(n) < p) * 1.0 for p in (0.7, 0.7 - by)]))


LIMITS = Limits(quality_margin=0.02)


def cheap_scored(evaluation: Evaluation) -> Scored:
    found = score(CHEAP, evaluation, LIMITS, REWARD)
    assert found is not None
    return found


def test_a_part_is_suggested_where_the_whole_loses_too_much() -> None:
    evaluation = judged(worse(0.15))
    whole = cheap_scored(evaluation)
    choice = choose([whole], evaluation, LIMITS, REWARD)
    assert isinstance(choice, Choice)
    assert not whole.inside
    assert choice.admissible
    assert choice.scored.cost_change < 0
    share = float(choice.candidate.model.arrays["share"])
    assert 0.05 <= share < 0.35
    assert f"for {share:.0%}, else as today" in choice.candidate.label


def test_the_part_is_the_largest_that_is_certainly_inside() -> None:
    evaluation = judged(worse(0.15))
    found = largest_certain(CHEAP.model, evaluation, LIMITS)
    assert found is not None

    def low(share: float) -> float:
        model = mixed(CHEAP.model, np.array([0.6, 0.4]), share)
        policy = Learned(model, NAMES).probabilities(evaluation.data.features, evaluation.data.behaviour)
        change = evaluation.change("quality", policy)
        assert isinstance(change, Estimate)
        return change.low

    assert low(found[1]) >= -LIMITS.quality_margin > low(found[1] + 0.01)
    model = Learned(found[0], NAMES).probabilities(evaluation.data.features, evaluation.data.behaviour)
    assert found[2] == pytest.approx(model)


def test_nothing_worth_mixing_leaves_the_best_that_saves_and_says_that_it_is_not_inside() -> None:
    """Quality is worth so much here that every part of the cheap model is worse than today."""
    evaluation = judged(worse(0.15))
    precious = RewardSpec(10.0)
    whole = score(CHEAP, evaluation, LIMITS, precious)
    assert whole is not None
    choice = choose([whole], evaluation, LIMITS, precious)
    assert choice is not None
    assert (choice.candidate, choice.admissible) == (CHEAP, False)


def test_a_candidate_that_is_too_slow_is_not_hidden_in_a_mixture() -> None:
    made = worse(0.0)
    slow = judged(replace(made, latency_s=made.latency_s * np.array([1.0, 10.0])))
    limits = Limits(quality_margin=0.02, latency_s=0.5)
    whole = score(CHEAP, slow, limits, REWARD)
    assert whole is not None
    assert whole.late
    choice = choose([whole], slow, limits, REWARD)
    assert choice is not None
    assert (choice.candidate, choice.admissible) == (CHEAP, False)


def test_today_that_looks_at_the_prompt_cannot_be_mixed_in() -> None:
    made = worse(0.15)
    easy = made.features[:, :1] == 1
    looking = replace(made, behaviour=np.where(easy, [0.8, 0.2], [0.3, 0.7]))
    assert today_shares(judged(looking), CHEAP.model) is None
    assert largest_certain(CHEAP.model, judged(looking), LIMITS) is None
    assert today_shares(judged(made), CHEAP.model) == pytest.approx([0.6, 0.4])


def test_today_is_not_mixed_in_without_the_actions_it_takes() -> None:
    alone = Model("constant", ("cheap",), {"values": np.ones(1)})
    assert today_shares(judged(worse(0.15)), alone) is None


def test_a_router_carries_the_mixture_as_it_was_judged(tmp_path) -> None:  # type: ignore[no-untyped-def]
    model = mixed(CHEAP.model, np.array([0.6, 0.4]), 0.3)
    write_policy(
        tmp_path,
        model,
        policy_id="app",
        version="1",
        revision=1,
        virtual_model="app",
        incumbent="dear",
        evaluation={},
        created_at="2026-01-01T00:00:00+00:00",
    )
    loaded, manifest = read_policy(tmp_path)
    expected = 0.3 * np.array([0.025, 0.975]) + 0.7 * np.array([0.6, 0.4])
    assert loaded.probabilities(np.zeros((1, 128)), np.ones((1, 2), bool))[0] == pytest.approx(expected)
    assert manifest["exploration"]["share"] == 0.3
    assert manifest["exploration"]["min_propensity"] <= expected.min() + 1e-12
    draws = iter([0.0, 0.999])
    router = Router.load(tmp_path, draw=lambda: next(draws))
    first, second = router.decide({"messages": "hi"}), router.decide({"messages": "hi"})
    assert (first.action, first.propensity) == ("dear", pytest.approx(expected[0]))
    assert (second.action, second.propensity) == ("cheap", pytest.approx(expected[1]))
    assert unmixed(loaded).arrays.keys() == CHEAP.model.arrays.keys()


def test_a_study_may_end_in_a_part_and_its_words_are_those_of_the_whole() -> None:
    data = worse(0.12, 8000).draw(0)
    limits = Limits(quality_margin=0.03)
    lessons = learn(Logged(data, None, 0.0), limits, 0.05, epsilon=0.05, seed=0)
    suggestion = lessons.suggestion
    assert suggestion.model is not None
    assert "share" in suggestion.model.arrays
    assert [one.candidate.label for one in lessons.frontier].count(suggestion.label or "") == 1
    found = assess(data, suggestion, limits, seed=0)
    assert found.rules is not None
    assert found.rules.rules[0].action == "cheap"
    change = found.changes["quality"]
    assert isinstance(change, Estimate)
    assert change.value > -limits.quality_margin
