"""The study of a service, on worlds whose truth is known."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from worlds import World, two_models

from optimizer.evidence import Refused
from optimizer.gate import Estimate, Limits
from optimizer.logged import Logged
from optimizer.propensity import Behaviour
from optimizer.study import Findings, Suggestion, assess, learn

LIMITS = Limits()


def study(world: World, seed: int = 0, limits: Limits = LIMITS, **draw: object) -> Findings:
    data = world.draw(seed, **draw)  # type: ignore[arg-type]
    lessons = learn(Logged(data, None, 0.0), limits, None, epsilon=0.05, seed=0)
    return assess(data, lessons.suggestion, limits, seed=0)


def value(outcome: object) -> Estimate:
    assert isinstance(outcome, Estimate)
    return outcome


def test_a_better_and_cheaper_model_is_deployed() -> None:
    world = two_models(4000)
    better = replace(
        world, quality=np.column_stack([world.quality[:, 0], np.maximum(world.quality[:, 0], world.quality[:, 1])])
    )
    found = study(better, label_share=0.9)
    assert found.verdict.outcome == "deploy"
    assert value(found.changes["cost_usd"]).high < 0
    assert value(found.changes["quality"]).low > -0.01


def test_a_model_whose_quality_changed_of_late_is_not_deployed() -> None:
    """Better and cheaper all along, but on the newest fifth it gives less than it did: still no worse than today."""
    world = two_models(4000)
    strong = world.quality[:, 0]
    cheap = np.maximum(strong, world.quality[:, 1])
    cheap[3200:] = strong[3200:]
    found = study(replace(world, quality=np.column_stack([strong, cheap])), label_share=0.9)
    moved = next(reason for reason in found.verdict.reasons if reason.condition == "nothing has moved")
    assert found.verdict.outcome != "deploy"
    assert not moved.holds
    assert "quality of cheap moved by -" in moved.got


def test_a_latency_that_moved_matters_where_it_is_limited() -> None:
    """Both models are a second slower on the newest fifth."""
    world = two_models(4000)
    better = np.column_stack([world.quality[:, 0], np.maximum(world.quality[:, 0], world.quality[:, 1])])
    data = replace(world, quality=better).draw(0)
    data = replace(data, latency_s=data.latency_s + (np.arange(4000) >= 3200))
    for limits, holds in ((LIMITS, True), (replace(LIMITS, latency_s=5.0), False)):
        lessons = learn(Logged(data, None, 0.0), limits, None, epsilon=0.05, seed=0)
        found = assess(data, lessons.suggestion, limits, seed=0)
        moved = next(reason for reason in found.verdict.reasons if reason.condition == "nothing has moved")
        assert moved.holds == holds
        assert holds or "latency_s of" in moved.got


def test_a_worse_model_is_kept_out() -> None:
    world = two_models(3000)
    worse = replace(world, quality=np.column_stack([world.quality[:, 0], np.zeros(3000)]))
    assert study(worse).verdict.outcome == "keep"


def test_too_few_decisions_cannot_be_told() -> None:
    found = study(two_models(60))
    assert found.verdict.outcome == "cannot_tell"
    assert "60 decisions" in found.verdict.reasons[0].got


def test_no_scores_cannot_be_told() -> None:
    found = study(two_models(500), label_share=0.0)
    assert found.verdict.outcome == "cannot_tell"
    assert isinstance(found.changes["quality"], Refused)


def test_a_fixed_rule_cannot_be_told() -> None:
    data = two_models(500).draw(0)
    rule = Behaviour(data.behaviour, 1.0, "trees", 0.0)
    lessons = learn(Logged(data, rule, 0.0), LIMITS, None, epsilon=0.05, seed=0)
    assert lessons.suggestion.model is None
    found = assess(data, lessons.suggestion, LIMITS, seed=0)
    assert found.verdict.outcome == "cannot_tell"
    assert {row.policy for row in found.rows} == {"today", "cheapest", "strongest", "cost_matched_random", "suggested"}
    assert isinstance(value(next(r for r in found.rows if r.policy == "today").outcomes["quality"]), Estimate)


def test_estimated_propensities_are_never_deployed() -> None:
    world = two_models(4000)
    better = replace(world, quality=np.column_stack([world.quality[:, 0], np.maximum(*world.quality.T)]))
    assert study(better, logged=False).verdict.outcome == "promising"


def test_changes_by_estimated_propensities_are_assumptions() -> None:
    logged, estimated = study(two_models(1000)), study(two_models(1000), logged=False)
    assert value(logged.changes["quality"]).kind == "asymptotic"
    assert value(estimated.changes["quality"]).kind == "assumption"
    today = next(row for row in estimated.rows if row.policy == "today")
    assert value(today.outcomes["quality"]).kind == "asymptotic"
    assert value(logged.estimators["DM"]["quality"]).kind == "assumption"


def test_unscored_decisions_are_no_evidence_of_quality() -> None:
    found = study(two_models(2000), label_share=0.5)
    quality, cost = value(found.changes["quality"]), value(found.changes["cost_usd"])
    assert quality.effective < 0.7 * cost.effective
    assert found.support is not None
    assert found.support.effective == pytest.approx(quality.effective)


def test_only_the_allowed_actions_are_suggested() -> None:
    data = two_models(1000).draw(0)
    logged = Logged(data, None, 0.0)
    lessons = learn(logged, LIMITS, None, epsilon=0.05, seed=0, actions=("dear", "unheard of"))
    assert lessons.suggestion.model is None
    assert "fewer than two" in lessons.suggestion.refused
    lessons = learn(logged, LIMITS, None, epsilon=0.05, seed=0, actions=("dear", "cheap"))
    assert lessons.suggestion.model is not None


def test_a_latency_limit_is_kept() -> None:
    world = two_models(4000)
    slow = replace(
        world,
        quality=np.column_stack([world.quality[:, 0], np.maximum(*world.quality.T)]),
        latency_s=world.latency_s[:, ::-1] * 5,
    )
    assert study(slow).verdict.outcome == "deploy"
    assert study(slow, limits=Limits(latency_s=0.5)).verdict.outcome == "keep"


def test_the_study_is_a_function_of_its_log() -> None:
    world = two_models(1000)
    first, second = study(world, seed=4), study(world, seed=4)
    assert first.changes == second.changes
    assert first.verdict == second.verdict


def test_cost_matched_random_has_the_suggestions_shares() -> None:
    found = study(two_models(2000, gap=0.2))
    blind, suggested = found.probabilities["cost_matched_random"], found.probabilities["suggested"]
    assert blind.mean(axis=0) == pytest.approx(suggested.mean(axis=0))
    assert np.ptp(blind, axis=0) == pytest.approx(0.0)


@pytest.mark.slow
def test_intervals_of_the_change_cover_the_truth() -> None:
    """40 logs of one world at 95 %: at least 35 of 40 (binomial probability 0.986) for quality and cost each."""
    world = two_models(1200, gap=0.1)
    hits = {"quality": 0, "cost_usd": 0}
    for seed in range(40):
        found = study(world, seed=seed, label_share=0.9)
        rows = found.splits.certify
        change = found.probabilities["suggested"] - world.behaviour[rows]
        for metric in hits:
            estimate = value(found.changes[metric])  # type: ignore[index]
            truth = float((change * getattr(world, metric)[rows]).sum(axis=1).mean())
            hits[metric] += estimate.low <= truth <= estimate.high
    assert min(hits.values()) >= 35, hits


def test_an_action_that_was_not_tried_gets_bounds_and_an_assumption_that_says_so() -> None:
    """The cheap model answered even prompts only: what it would do on odd ones nobody knows."""
    world = two_models(3000, gap=0.1)
    even = world.features[:, 0] == 1
    rule = replace(world, behaviour=np.column_stack([np.where(even, 0.5, 1.0), np.where(even, 0.5, 0.0)]))
    data = rule.draw(0)
    suggestion = Suggestion(refused="the choice follows the prompt")
    found = assess(data, suggestion, LIMITS, seed=0)
    parts = {part.metric: part.found for part in found.partial}
    assert {part.label for part in found.partial} == {"always cheap"}
    judged = data.take(found.splits.certify)
    assert parts["quality"].share == pytest.approx(float(np.mean(judged.features[:, 0] == 1)))
    truth = world.quality[found.splits.certify, 1] - (rule.behaviour * rule.quality)[found.splits.certify].sum(axis=1)
    assert parts["quality"].low < truth.mean() < parts["quality"].high
    assert parts["quality"].extrapolated.kind == "assumption"
    assert parts["quality"].segment is not None
    assert parts["quality"].experiment
    assert parts["cost_usd"].high - parts["cost_usd"].low > 0


def test_no_bounds_where_everything_was_tried() -> None:
    assert study(two_models(2000)).partial == ()


def test_a_hidden_cause_of_a_choice_fails_the_control() -> None:
    """Whoever was answered badly is given the dear model next; the features do not show it."""
    rng = np.random.default_rng(0)
    n = 3000
    previous = (rng.random(n // 2) < 0.5) * 1.0
    quality, actions = np.zeros(n), np.zeros(n, dtype=np.int64)
    quality[0::2], quality[1::2] = previous, rng.random(n // 2) < 0.6
    actions[0::2] = rng.random(n // 2) < 0.5
    actions[1::2] = rng.random(n // 2) < np.where(previous == 1, 0.7, 0.3)
    data = replace(
        two_models(n).draw(0, logged=False),
        quality=quality,
        actions=actions,
        groups=np.repeat(np.arange(n // 2), 2),
        behaviour=np.full((n, 2), 0.5),
    )
    found = assess(data, Suggestion(refused="no"), LIMITS, seed=0)
    assert found.control is not None
    assert found.control.holds is False
    logged = assess(replace(data, propensities_logged=True), Suggestion(refused="no"), LIMITS, seed=0)
    assert logged.control is None


def test_estimators_that_differ_by_more_than_chance_are_named() -> None:
    """A model of quality that was right until the newest decisions, which a cheap model answers worse of a sudden."""
    world = two_models(6000)
    data = world.draw(0)
    lessons = learn(Logged(data, None, 0.0), LIMITS, None, epsilon=0.05, seed=0)
    fair = assess(data, lessons.suggestion, LIMITS, seed=0)
    assert fair.disagreement == {}
    later = np.arange(6000) >= 4800
    moved = replace(data, quality=np.where(later & (data.actions == 1), 0.0, data.quality))
    found = assess(moved, lessons.suggestion, LIMITS, seed=0).disagreement
    assert "standard errors" in found["quality"]
