"""A policy of many steps beside the version before it: what it does otherwise, and what that is worth."""

from __future__ import annotations

import numpy as np
import pytest
from test_step_study import COST, LIMITS, LOG, NAMES, play

from optimizer.evidence import Refused
from optimizer.gate import Estimate
from optimizer.runtime import Model
from optimizer.sequential import evaluation
from optimizer.sequential.policies import constant_route, on_log
from optimizer.sequential.since import differences, to_json
from optimizer.sequential.study import Findings, Suggestion, assess, per_episode
from optimizer.versions import Version

GOOD, CHEAP = (constant_route(name, NAMES) for name in ("good", "cheap"))


@pytest.fixture(scope="module")
def findings() -> Findings:
    return assess(LOG, Suggestion("always cheap", CHEAP, True), LIMITS, seed=0)


def version(model: Model) -> Version:
    return Version("20260101-000000", model, True)


def test_the_difference_covers_the_truth(findings: Findings) -> None:
    """Two policies whose episodes are played: four standard errors."""
    assert findings.policy is not None
    assert findings.expected is not None
    judged = findings.judged
    found = differences(judged, findings.policy, on_log(GOOD, judged), findings.expected[0], 0.9999)
    cheap, good = (per_episode(play(20_000, 9, model)).mean(axis=1) for model in (CHEAP, GOOD))
    for metric, place in (("quality", 0), ("cost_usd", 1)):
        change = found[metric]  # type: ignore[index]
        assert isinstance(change, Estimate)
        assert change.low - 1e-9 <= cheap[place] - good[place] <= change.high + 1e-9


def test_what_is_kept_says_who_takes_over_from_whom(findings: Findings) -> None:
    said = to_json(version(GOOD), CHEAP, findings, 0.95)
    assert said is not None
    assert said["refused"] is None
    assert said["agreement"] == pytest.approx(0.0)
    assert said["moved"] == pytest.approx(1.0)
    shares = {one["action"]: (one["before"], one["after"]) for one in said["actions"]}
    assert shares["good"] == (1.0, 0.0)
    assert shares["cheap"] == (0.0, 1.0)
    assert said["savings_usd_per_1k"]["value"] == pytest.approx(2000 * (COST[0] - COST[1]), rel=0.1)


def test_a_version_like_the_one_before_changes_nothing(findings: Findings) -> None:
    said = to_json(version(CHEAP), CHEAP, findings, 0.95)
    assert said is not None
    assert said["agreement"] == 1.0
    assert said["moved"] == 0.0
    assert said["savings_usd_per_1k"]["value"] == pytest.approx(0.0)
    assert said["quality_change"]["low"] == pytest.approx(0.0)


def test_the_first_version_has_none_before_it(findings: Findings) -> None:
    assert to_json(None, CHEAP, findings, 0.95) is None
    assert to_json(version(GOOD), None, findings, 0.95) is None


def test_versions_that_cannot_be_compared_say_why(findings: Findings) -> None:
    other = constant_route("gone", ("gone", *NAMES))
    single = Model("constant", ("good", "cheap"), {"values": np.array([1.0, 0.0])}, 0.0)
    for before, words in ((other, "gone"), (single, "single decisions")):
        said = to_json(version(before), CHEAP, findings, 0.95)
        assert said is not None
        assert words in said["refused"]
        assert said["actions"] == []
        assert "savings_usd_per_1k" not in said


def test_where_few_traces_follow_the_version_before_no_number_is_given(findings: Findings) -> None:
    """A thirtieth of the traces: too few of them took the good agent twice."""
    few = findings.judged.take(np.arange(40))
    model = np.zeros((len(evaluation.OUTCOMES), *few.behaviour.shape))
    found = differences(few, few.behaviour, on_log(GOOD, few), model, 0.95)
    assert all(isinstance(one, Refused) for one in found.values())
