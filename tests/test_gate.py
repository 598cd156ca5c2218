"""The gate says deploy only when everything holds, and says what is missing otherwise."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from optimizer.gate import Case, Estimate, Limits, Reason, Segment, judge


def estimate(low: float, value: float, high: float, effective: float = 500.0) -> Estimate:
    return Estimate("DR", value, low, high, 1000, effective, "asymptotic")


GOOD = Case(
    saving=estimate(0.5, 1.0, 1.5),
    quality_change=estimate(0.0, 0.02, 0.04),
    latency_change_s=estimate(-1.0, -0.5, 0.0),
    refused="",
    top_share=0.05,
    unsupported=0.0,
    propensities_logged=True,
    label_share=0.9,
    admissible=True,
)
LIMITS = Limits()


def test_a_certain_saving_at_kept_quality_is_deployed() -> None:
    verdict = judge(GOOD, LIMITS)
    assert verdict.outcome == "deploy"
    assert all(reason.holds for reason in verdict.reasons)


@pytest.mark.parametrize(
    "change",
    [
        {"quality_change": estimate(-0.03, 0.01, 0.05)},
        {"saving": estimate(0.5, 1.0, 1.5, effective=60.0)},
        {"top_share": 0.6},
        {"unsupported": 0.02},
        {"propensities_logged": False},
        {"label_share": 0.2},
        {"moved": ("quality of small moved by -0.1 at the same features",)},
    ],
)
def test_missing_evidence_alone_is_promising(change: dict) -> None:
    verdict = judge(replace(GOOD, **change), LIMITS)
    assert verdict.outcome == "promising"
    assert [reason.holds for reason in verdict.reasons].count(False) == 1
    assert not verdict.reasons[0].holds
    assert verdict.reasons[0].remedy


@pytest.mark.parametrize(
    "change",
    [
        {"quality_change": estimate(-0.08, -0.05, -0.02)},
        {"quality_change": estimate(-0.08, -0.02, 0.04)},
        {"saving": estimate(-2.0, -1.0, -0.5)},
        {"saving": estimate(-2.0, -0.1, 0.5)},
        {"admissible": False, "top_share": 0.6},
    ],
)
def test_a_broken_limit_keeps_todays_routing(change: dict) -> None:
    assert judge(replace(GOOD, **change), LIMITS).outcome == "keep"


def test_a_saving_that_may_be_a_loss_cannot_be_told() -> None:
    assert judge(replace(GOOD, saving=estimate(-0.5, 1.0, 2.5)), LIMITS).outcome == "cannot_tell"


def test_a_refused_estimate_cannot_be_told_and_says_why() -> None:
    verdict = judge(replace(GOOD, quality_change=None, refused="no scores"), LIMITS)
    assert verdict.outcome == "cannot_tell"
    assert verdict.reasons[0].got == "no scores"


def reason_of(case: Case, condition: str) -> Reason:
    return next(reason for reason in judge(case, LIMITS).reasons if reason.condition == condition)


def test_a_judge_alone_is_never_deployed() -> None:
    alone = replace(GOOD, label_sources=("judge",), labels_needed=90)
    assert judge(alone, LIMITS).outcome == "promising"
    found = reason_of(alone, "quality is more than a judge's opinion")
    assert not found.holds
    assert "about that judge" in found.got
    assert "90 decisions scored by people" in found.remedy
    assert "retroute plan --labels" in found.remedy


@pytest.mark.parametrize(
    ("sources", "got"),
    [
        ((), "an unknown source"),
        (("",), "a source that is not named, taken as no judge"),
        (("human", "api"), "scored by people, api, taken as no judge"),
        (("check", "judge"), "scored by programs, a judge"),
    ],
)
def test_other_sources_are_taken_at_their_word_and_named(sources: tuple[str, ...], got: str) -> None:
    case = replace(GOOD, label_sources=sources)
    assert judge(case, LIMITS).outcome == "deploy"
    assert got in reason_of(case, "quality is more than a judge's opinion").got


def test_few_scores_do_if_they_were_drawn() -> None:
    few = replace(GOOD, label_share=0.1, unlabelled="; whatever the others would have got, anything")
    assert judge(few, LIMITS).outcome == "promising"
    found = reason_of(few, "outcomes are scored")
    assert "whatever the others would have got" in found.got
    assert "retroute plan --labels" in found.remedy
    drawn = replace(few, labels_drawn=True)
    assert judge(drawn, LIMITS).outcome == "deploy"
    assert (
        reason_of(drawn, "outcomes are scored").got == "10% of decisions carry a score, drawn with known probabilities"
    )


def test_latency_counts_only_with_a_limit() -> None:
    slow = replace(GOOD, latency_change_s=estimate(2.0, 3.0, 4.0))
    assert judge(slow, LIMITS).outcome == "deploy"
    assert judge(slow, Limits(latency_s=1.0)).outcome == "keep"
    assert judge(replace(GOOD, latency_change_s=None), Limits(latency_s=1.0)).outcome != "deploy"


bounds = st.tuples(*[st.floats(-1, 1) for _ in range(3)]).map(sorted)


@given(bounds, bounds, st.floats(0, 1000), st.booleans())
def test_nothing_is_deployed_beyond_its_limits(
    quality: list[float], saving: list[float], effective: float, logged: bool
):
    case = replace(
        GOOD,
        quality_change=estimate(*quality, effective=effective),
        saving=estimate(*saving, effective=effective),
        propensities_logged=logged,
    )
    verdict = judge(case, LIMITS)
    if verdict.outcome == "deploy":
        assert quality[0] >= -0.01
        assert saving[0] > 0
        assert effective >= 100
        assert logged
    if verdict.outcome == "promising":
        assert saving[0] > 0
        assert quality[1] >= -0.01


def segment(change: Estimate | None, refused: str = "") -> Segment:
    return Segment("premium", 200, change, refused, 0.02)


@pytest.mark.parametrize(
    ("change", "outcome"),
    [
        (estimate(-0.015, 0.01, 0.05), "deploy"),
        (estimate(-0.025, 0.01, 0.05), "promising"),
        (estimate(-0.08, -0.03, 0.04), "promising"),
        (estimate(-0.08, -0.05, -0.021), "keep"),
        (None, "promising"),
    ],
)
def test_a_protected_segment_has_a_limit_of_its_own(change: Estimate | None, outcome: str) -> None:
    """Less certain than all decisions together, a segment blocks deployment, and ends it only when beyond doubt."""
    verdict = judge(replace(GOOD, segments=(segment(change, "too few"),)), LIMITS)
    assert verdict.outcome == outcome
    found = next(reason for reason in verdict.reasons if reason.condition == "quality stays for premium")
    assert found.holds == (outcome == "deploy")
    assert found.remedy
