"""The backtest on worlds whose truth is known: predictions hold where nothing moves, and fail where something does."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from worlds import two_models

from optimizer.backtest import BLEND, LEAST, Trial, backtest, reach, to_json
from optimizer.dataset import LoggedDataset, split
from optimizer.evidence import Refused, held_out
from optimizer.gate import Estimate
from optimizer.rewards import RewardSpec

VALUE = RewardSpec(0.05)


def trials(data: LoggedDataset, reward: RewardSpec | None = VALUE) -> list[Trial] | Refused:
    parts = split(data.groups, data.time_ns)
    later = np.concatenate([parts.choose, parts.certify])
    return backtest(held_out(data, parts.train, later, confidence=0.95, seed=0), reward)


def share_held(found: list[Trial], estimators: tuple[str, ...]) -> float:
    told = [one.held for one in found if one.estimator in estimators and one.held is not None]
    assert told
    return float(np.mean(told))


def test_predictions_hold_where_nothing_moves() -> None:
    """Three logs of four cuts, three outcomes and two policies: 72 predictions each of DR and the blend, which share
    their windows. Three standard errors of 95 %, if only a third of them are independent, end at 0.82."""
    found: list[Trial] = []
    for seed in range(3):
        one = trials(two_models(3000, seed=seed).draw(seed))
        assert isinstance(one, list)
        found += one
    assert share_held(found, ("DR", BLEND)) >= 0.82
    assert {one.policy for one in found} == {"logged", "learned"}


def test_what_was_seen_of_a_policy_is_near_its_truth() -> None:
    """By quality alone either model is right on even prompts, the dear one on odd ones: 70 % of both. A window's
    interval is about six points wide on either side."""
    found = trials(two_models(4000, seed=1).draw(1), RewardSpec(1e9))
    assert isinstance(found, list)
    seen = [one.seen for one in found if (one.policy, one.metric, one.estimator) == ("learned", "quality", "DR")]
    assert len(seen) == 4
    assert all(isinstance(one, Estimate) and one.low < 0.7 < one.high and one.kind == "asymptotic" for one in seen)


def test_a_loss_that_nobody_could_foresee_is_a_prediction_that_fails() -> None:
    data = two_models(4000).draw(0)
    later = data.time_ns >= 3600
    moved = replace(data, quality=np.where(later, 0.0, data.quality))
    found = trials(moved)
    assert isinstance(found, list)
    last = max(one.cut_ns for one in found)
    after = [one for one in found if one.cut_ns == last and one.policy == "logged"]
    assert [one.held for one in after if one.metric == "quality"] == [False, False]
    assert all(one.held for one in after if one.metric == "cost_usd")


def test_what_was_seen_of_the_log_is_its_plain_mean() -> None:
    data = two_models(2000).draw(3)
    found = trials(data, None)
    assert isinstance(found, list)
    assert {one.policy for one in found} == {"logged"}
    last = max(one.cut_ns for one in found)
    (seen,) = {one.seen.value for one in found if one.cut_ns == last and one.metric == "quality"}  # type: ignore[union-attr]
    assert seen == pytest.approx(data.quality[data.time_ns >= last].mean())


def test_models_and_estimates_know_nothing_of_what_came_after() -> None:
    """Other outcomes after the last cut change what was seen there, and no prediction."""
    data = two_models(2000).draw(4)
    before = trials(data)
    assert isinstance(before, list)
    last = max(one.cut_ns for one in before)
    after = trials(replace(data, quality=np.where(data.time_ns >= last, 1 - data.quality, data.quality)))
    assert isinstance(after, list)
    assert [one.predicted for one in after] == [one.predicted for one in before]
    assert [one.seen for one in after] != [one.seen for one in before]


def test_a_small_log_is_refused_with_the_number_that_is_needed() -> None:
    found = trials(two_models(300).draw(0))
    assert isinstance(found, Refused)
    assert str(2 * LEAST) in found.reason
    assert to_json(found, 0.95)["refused"] == found.reason


def test_reach_adds_the_errors_of_both() -> None:
    predicted = Estimate("DR", 1.0, 0.7, 1.4, 10, 10.0, "asymptotic")
    seen = Estimate("SNIPS", 2.0, 1.7, 2.4, 10, 10.0, "asymptotic")
    assert reach(predicted, seen) == pytest.approx((1 - 0.5, 1 + 0.5))


def test_json_counts_what_held_and_keeps_costs_per_thousand() -> None:
    data = two_models(2000).draw(5)
    found = trials(data)
    assert isinstance(found, list)
    said = to_json(found, 0.95)
    for row in said["counts"]:
        own = [one for one in said["trials"] if all(one[key] == row[key] for key in ("policy", "metric", "estimator"))]
        assert row["trials"] == sum(one["held"] is not None for one in own)
        assert row["held"] == sum(one["held"] is True for one in own)
    cost = next(one for one in found if one.metric == "cost_usd" and isinstance(one.predicted, Estimate))
    told = next(one for one in said["trials"] if one["metric"] == "cost_usd_per_1k")
    assert told["predicted"]["value"] == pytest.approx(1000 * cost.predicted.value)  # type: ignore[union-attr]


def test_a_log_without_a_score_is_still_tested_on_cost() -> None:
    data = two_models(2000).draw(6)
    found = trials(replace(data, quality=np.full(len(data), np.nan)))
    assert isinstance(found, list)
    assert {one.policy for one in found} == {"logged"}
    assert all(isinstance(one.predicted, Refused) for one in found if one.metric == "quality")
    assert any(one.held for one in found if one.metric == "cost_usd")
