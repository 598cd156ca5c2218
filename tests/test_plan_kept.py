"""What a run keeps of its experiment, and what a budget buys of it."""

from __future__ import annotations

import math

import pytest
from kept_run import Studied, studied

from optimizer import plan_kept
from optimizer.planned import exploration_json, labels_of
from optimizer.sizing import judged

PLAN = {
    "decisions_per_day": 100.0,
    "decisions": 1000,
    "cost_usd_per_day": {"value": 1.0, "low": 0.5, "high": 2.0},
    "z": 2.0,
    "variance": 0.25,
    "variance_today": 1.0,
    "earlier": 1000,
}


@pytest.fixture(scope="module")
def guessed() -> Studied:
    return studied("guessed")


def test_the_kept_plan_is_what_the_command_says(guessed: Studied) -> None:
    assert guessed.plan["exploration"] == exploration_json(guessed.asked)
    told = labels_of(guessed.asked, None).said
    kept = guessed.plan["labels"]
    assert {name: kept[name] for name in told if name != "traces"} == {k: v for k, v in told.items() if k != "traces"}
    assert sum(kept["drawn"].values()) == kept["budget"] == len(told["traces"])


def test_more_scores_narrow_the_interval(guessed: Studied) -> None:
    widths = [row["half_width"] for row in guessed.plan["labels"]["budgets"]]
    assert len(widths) == 1 or widths == sorted(widths, reverse=True)


def test_at_its_end_the_experiment_knows_what_it_wanted(guessed: Studied) -> None:
    plan = guessed.plan["exploration"]["plan"]
    at_end = plan_kept.half_width(plan, plan["decisions"])
    assert at_end <= plan["half_width"] * 1.001
    if plan["binding"] == "quality":
        judging = judged(plan["decisions"], plan["earlier"])
        assert plan["z"] * math.sqrt(plan["variance"] / judging) == pytest.approx(at_end)
    assert plan_kept.half_width(plan, plan["decisions"], as_today=True) > at_end


def test_without_a_budget_all_is_bought() -> None:
    found = plan_kept.bought(PLAN, total_usd=None, per_day_usd=None)
    assert (found.share, found.days, found.decisions, found.cost_usd) == (1.0, 10.0, 1000, 10.0)
    assert found.decides


def test_a_daily_budget_makes_it_slower_not_weaker() -> None:
    found = plan_kept.bought(PLAN, total_usd=None, per_day_usd=0.5)
    whole = plan_kept.bought(PLAN, total_usd=None, per_day_usd=None)
    assert (found.share, found.days) == (0.25, 40.0)
    assert (found.decisions, found.half_width, found.decides) == (whole.decisions, whole.half_width, True)


def test_a_budget_in_all_ends_it_early_by_the_most_it_may_cost() -> None:
    found = plan_kept.bought(PLAN, total_usd=10.0, per_day_usd=None)
    assert (found.days, found.decisions) == (5.0, 500.0)
    assert not found.decides
    assert found.half_width > plan_kept.bought(PLAN, total_usd=None, per_day_usd=None).half_width


def test_no_budget_stops_an_experiment_that_pays_for_itself() -> None:
    saves = PLAN | {"cost_usd_per_day": {"value": -1.0, "low": -2.0, "high": -0.5}}
    found = plan_kept.bought(saves, total_usd=0.0, per_day_usd=0.0)
    assert found.decides
    assert found.cost_usd == -10.0


def test_a_budget_of_nothing_buys_nothing_of_one_that_costs() -> None:
    for total, per_day in ((0.0, None), (None, 0.0)):
        found = plan_kept.bought(PLAN, total_usd=total, per_day_usd=per_day)
        assert found.decisions == 0
        assert math.isinf(found.half_width)
        assert not found.decides


def test_a_log_without_time_has_no_days() -> None:
    assert plan_kept.bought(PLAN | {"decisions_per_day": None}, total_usd=5.0, per_day_usd=None).days is None


def test_the_newest_fifth_judges_but_nothing_from_before() -> None:
    assert judged(100, 10_000) == 100
    assert judged(1000, 1000) == pytest.approx(400)
