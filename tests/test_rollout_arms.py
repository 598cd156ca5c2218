"""Decisions in, units by arm out; and what stops a rollout."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
import pytest

from optimizer.gate import Limits
from optimizer.prediction import Doubt, Forecast
from optimizer.rollout import monitor, words
from optimizer.rollout.arms import SCHEMA, Arms, arms
from optimizer.rollout.predicted import predicted
from optimizer.rollout.state import Rollout, Step

SHARES = {1: 0.5}
BEGUN = {1: 0}
USUAL = Limits()


def decision(place: int, arm: str = "control", **more: Any) -> dict[str, Any]:
    reason = {"treatment": "policy", "control": "canary"}[arm]
    usual = {"trace_id": f"t{place}", "session": f"s{place}", "time_ns": place, "arm": arm, "reason": reason}
    outcomes = {"cost_usd_per_1k": 1.0, "quality": 1.0, "latency_s": 1.0}
    return {**dict.fromkeys(SCHEMA), **usual, "action": "large", "revision": 1, **outcomes, **more}


def of(*rows: dict[str, Any], shares: dict[int, float] = SHARES, begun: dict[int, int] = BEGUN) -> Arms:
    return arms(pl.DataFrame(rows, schema=dict(SCHEMA)), shares, begun)


def both(n: int, share: float = 0.5, seed: int = 0, **treated: Any) -> list[dict[str, Any]]:
    """n decisions; those under treatment have other outcomes."""
    drawn = np.random.default_rng(seed).random(n) < share
    return [decision(place, "treatment", **treated) if on else decision(place) for place, on in enumerate(drawn)]


def at(stage: str = "canary", percent: float = 50.0, verdict: str = "deploy") -> Rollout:
    step = Step("2026-11-30T00:00:00+00:00", "canary", percent, 1, "ann", "")
    return Rollout(
        "app",
        "app",
        "r1",
        1,
        stage,
        percent,
        step.at,
        "r1",
        verdict,
        "bundle",
        steps=(step,),  # type: ignore[arg-type]
    )


def looked(found: Arms, limits: Limits = USUAL, said: dict[str, Any] | None = None) -> dict[str, Any]:
    return monitor.look(found, limits, said or {}, at="2026-11-30T00:00:00+00:00", looks=1)


def missing(found: Arms, rollout: Rollout, to: float = 60.0, limits: Limits = USUAL) -> list[str]:
    reasons = monitor.conditions(rollout, found, looked(found, limits), to=to)
    assert [reason.holds for reason in reasons] == sorted(reason.holds for reason in reasons)
    return [reason.condition for reason in reasons if not reason.holds]


def test_a_session_is_one_unit_with_the_mean_of_its_decisions() -> None:
    found = of(
        decision(0, "treatment", session="a", quality=0.0, cost_usd_per_1k=2.0),
        decision(1, "treatment", session="a", quality=1.0, cost_usd_per_1k=4.0),
        decision(2, "treatment", session="a", quality=None, cost_usd_per_1k=None),
        decision(3, session="b", quality=None),
    )
    assert found.by_session
    assert found.units.select("unit", "treated", "decisions", "quality", "cost_usd_per_1k").rows() == [
        ("a", True, 3, 0.5, 3.0),
        ("b", False, 1, None, 1.0),
    ]
    y, treated, share = found.known("quality")
    assert (y.tolist(), treated.tolist(), share.tolist()) == ([0.5], [True], [0.5])


def test_a_session_belongs_to_the_revision_that_it_was_first_seen_under() -> None:
    """A larger canary moves sessions into the other arm: what they do there is not independent of what they did."""
    rows = [decision(0, session="a"), decision(10, "treatment", session="a", revision=2, quality=0.0)]
    found = of(*rows, decision(11, "treatment", session="b", revision=2), shares={1: 0.2, 2: 0.6}, begun={1: 0, 2: 5})
    assert found.units.select("unit", "share", "treated", "decisions", "quality").rows() == [
        ("a", 0.2, False, 1, 1.0),
        ("b", 0.6, True, 1, 1.0),
    ]


def test_decisions_are_units_where_the_router_knows_no_sessions() -> None:
    found = of(*(decision(place, arm, session="a") for place, arm in enumerate(["control", "treatment"] * 3)))
    assert not found.by_session
    assert found.units["decisions"].to_list() == [1] * 6
    assert looked(found)["unit"] == "decision"


def test_decisions_of_older_runtimes_belong_to_the_stage_of_their_time() -> None:
    rows = (decision(place, revision=None) for place in (0, 4, 5, 9))
    found = of(*rows, decision(12, revision=7), shares={1: 0.2, 2: 0.6}, begun={1: 0, 2: 5})
    assert found.units["share"].to_list() == [0.2, 0.2, 0.6, 0.6]  # and those of an unknown revision to none


def test_what_no_arm_decided_does_not_count_and_is_said() -> None:
    rows = [*both(300), *(decision(300 + k, reason="kill_switch") for k in range(5))]
    found = of(*rows, decision(400, reason="error:ValueError"))
    assert (found.held, found.failed, found.units.height) == (6, 1, 300)
    failing = of(*rows, *(decision(500 + k, reason="error:ValueError") for k in range(10)))
    assert missing(of(*rows), at()) == []
    assert missing(failing, at()) == ["the policy decides"]


def test_harm_beyond_a_limit_is_said_with_its_interval() -> None:
    seen = looked(of(*both(400, quality=0.0, cost_usd_per_1k=2.0, latency_s=3.0)), Limits(0.05, 0.95, 1.0))
    assert [one["crossed"] for one in seen["metrics"]] == [True, True, True]
    cost, quality, latency = monitor.crossed(seen)
    assert cost.startswith("cost differs by +1 USD per 1,000 (")
    assert quality.startswith("quality differs by -100.0 points (")
    assert quality.endswith("anytime-valid), beyond the limit -5.0 points")
    assert latency.endswith("asymptotic anytime-valid), beyond the limit +1.00 s")


def test_a_limit_that_is_not_set_is_never_broken() -> None:
    slow = of(*both(400, latency_s=9.0, cost_usd_per_1k=0.5))
    assert monitor.crossed(looked(slow)) == []
    assert missing(slow, at()) == []
    assert missing(slow, at(), limits=Limits(latency_s=1.0)) == ["latency stays"]


def test_all_three_intervals_hold_together() -> None:
    found = of(*both(400, quality=0.5))
    alone = monitor.bounded_difference(*found.known("quality"), confidence=0.95)
    together = next(one for one in looked(found)["metrics"] if one["metric"] == "quality")["difference"]
    assert alone is not None
    assert together["low"] < alone.low < alone.high < together["high"]


def test_an_estimate_outside_a_limit_holds_the_rollout_before_it_is_certain() -> None:
    rng = np.random.default_rng(1)
    rows = [{**row, "quality": float(rng.random() < (0.75 if row["arm"] == "treatment" else 0.8))} for row in both(400)]
    assert monitor.crossed(looked(of(*rows))) == []
    assert missing(of(*rows), at()) == ["quality stays"]


def test_scores_of_one_arm_only_are_flagged() -> None:
    rows = [
        {**row, "quality": None if row["arm"] == "treatment" and place % 2 else 1.0}
        for place, row in enumerate(both(1_000))
    ]
    found = of(*rows)
    seen = looked(found)
    quality = next(one for one in seen["metrics"] if one["metric"] == "quality")
    assert quality["known"] == {"treatment": pytest.approx(0.5, abs=0.05), "control": 1.0, "alike": False}
    assert seen["ratio"]["ok"]
    assert quality["difference"]["value"] == 0.0  # means of those that are known: what is not is no zero
    assert missing(found, at()) == ["quality is known of both arms alike"]


def test_a_stage_needs_its_own_sessions() -> None:
    rows = both(300)
    assert missing(of(*rows), at()) == []
    rollout = Rollout(**{**vars(at()), "revision": 2})
    assert missing(of(*rows, shares={1: 0.5, 2: 0.6}), rollout) == ["enough sessions at this stage"]
    shadow = of(*(decision(k) for k in range(120)), shares={1: 0.0})
    assert missing(shadow, at("shadow", 0.0)) == []


def test_an_unproven_policy_goes_to_all_only_when_the_canary_has_proven_it() -> None:
    limits = Limits(quality_margin=0.2)
    few, many = of(*both(300, cost_usd_per_1k=0.5)), of(*both(3_000, cost_usd_per_1k=0.5))
    unproven = at(verdict="promising")
    assert missing(few, unproven, to=100, limits=Limits(0.001)) == ["what the logs left open is proven"]
    assert missing(few, unproven, to=60, limits=Limits(0.001)) == []
    assert missing(few, at(), to=100, limits=Limits(0.001)) == []
    assert missing(many, unproven, to=100, limits=limits) == []


def test_the_prediction_is_that_of_so_many_new_decisions_where_the_run_kept_one() -> None:
    doubt = Doubt(0.1, 50.0)
    ahead = Forecast(1.5, doubt, doubt, Doubt(1.0, 50.0), Doubt(2.0, 50.0), 0.95, "asymptotic")
    kept = {name: vars(getattr(ahead, name)) for name in ("error", "policy_error", "spread", "today_spread")}
    kept |= {"value": 1.5, "confidence": 0.95, "kind": "asymptotic"}
    change = {"value": 1.5, "low": 1.0, "high": 2.5, "kind": "asymptotic"}
    said = predicted({"savings_usd_per_1k": change, "quality_change": change, "latency_change_s": {"value": None},
                      "predicted": {"savings_usd_per_1k": kept, "quality_change": None}})  # fmt: skip
    assert said.keys() == {"cost_usd_per_1k", "quality"}
    assert [said["cost_usd_per_1k"][key] for key in ("value", "low", "high")] == [-1.5, -2.5, -1.0]
    found = of(*both(400))
    cost, quality, latency = (one["predicted"] for one in looked(found, said=said)["metrics"])
    treated = int(found.units["treated"].sum())
    beside = ahead.beside(treated, 400 - treated)
    assert (cost["value"], cost["low"], cost["high"]) == pytest.approx((-1.5, -beside.high, -beside.low))
    assert cost["of"] == f"{treated} and {400 - treated} new decisions"
    assert (quality["low"], quality["high"], quality["of"]) == (1.0, 2.5, "the estimate")
    assert latency is None


def test_nothing_seen_is_said_as_such() -> None:
    empty = of()
    seen = looked(empty)
    assert (seen["ratio"]["seen"], seen["ratio"]["ok"], seen["shadow"]) == (None, True, None)
    assert [one["difference"] for one in seen["metrics"]] == [None] * 3
    assert "enough sessions at this stage" in missing(empty, at())


def test_words_say_stage_arms_differences_and_what_is_wrong() -> None:
    rows = [row for place, row in enumerate(both(1_000, quality=0.0)) if row["arm"] == "control" or place % 3]
    rollout = Rollout(**{**vars(at()), "monitor": looked(of(*rows))})
    told = "\n".join(words.lines(rollout))
    assert "app: version r1, revision 1, a canary, 50 % of sessions since 2026-11-30T00:00:00Z" in told
    assert "by ann" in told
    assert "quality: -100.0 points (" in told
    assert "limit -1.0 points: BEYOND IT" in told
    assert "NOT as drawn: look for requests that lose" in told
    assert "not looked at yet" in "\n".join(words.lines(at()))
