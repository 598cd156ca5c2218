"""Who gains and who loses by an orchestrator, by what was known before a trace's first decision."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from test_step_study import play

from optimizer.dataset import split
from optimizer.evidence import Refused
from optimizer.gate import Limits
from optimizer.segments import Protected
from optimizer.sequential import by_segment
from optimizer.sequential.policies import constant_route
from optimizer.sequential.study import Findings, Suggestion, assess

LIMITS = Limits()


@pytest.fixture(scope="module")
def judged() -> tuple[object, Findings]:
    """Half of the traces have long prompts; the route that always asks the cheap agent is judged."""
    log = play(5000, 0, None)
    features = log.features.copy()
    features[:, 0] = np.log1p(np.where(log.episode % 2 == 0, 40, 400))
    log = replace(log, features=features)
    model = constant_route("cheap", log.action_names)
    return log, assess(log, Suggestion("always cheap", model, True), LIMITS, seed=0)


def test_segments_of_traces_have_changes_that_hold_together(judged: tuple) -> None:
    log, findings = judged
    ids = [f"t{place}" for place in range(len(log))]
    said = by_segment.to_json(log, findings, LIMITS, 1.0, {}, ids)
    parts = {(one["dimension"], one["segment"]): one for one in said["segments"]}
    short = parts[("Prompt length", "up to 40 characters")]
    assert short["decisions"] == sum(log.episode[log.first][findings.splits.certify] % 2 == 0)
    assert short["savings_usd_per_1k"]["value"] > 0  # the cheap agent costs a quarter
    assert short["quality_change"]["low"] < short["quality_change"]["value"] < short["quality_change"]["high"]
    assert said["each"] == pytest.approx(1 - 0.05 / (2 * len(parts)))
    assert 0 < short["changed_share"] < 1
    falls = [one["quality_suggested"] - one["quality_today"] for one in said["worst"]]
    assert falls == sorted(falls)
    assert all(one["quality_suggested"] < one["quality_today"] for one in said["worst"])
    assert {one["trace_id"] for one in said["worst"]} <= {ids[place] for place in findings.splits.certify}


def test_stated_segments_are_judged_like_all(judged: tuple) -> None:
    log, findings = judged
    rows = np.zeros(len(log), dtype=bool)
    rows[split(log.groups, log.time_ns).certify[:300]] = True
    said = by_segment.to_json(log, findings, LIMITS, 1.0, {"acme": Protected(rows, 0.01)}, [""] * len(log))
    assert (said["segments"][0]["segment"], said["segments"][0]["decisions"]) == ("acme", 300)


def test_without_a_suggestion_there_is_nothing_to_tell_apart() -> None:
    log = play(400, 1, None)
    findings = assess(log, Suggestion(refused="no candidate"), LIMITS, seed=0)
    said = by_segment.to_json(log, findings, LIMITS, 1.0, {}, [""] * len(log))
    assert said["refused"]
    assert said["segments"] == []
    assert all(isinstance(one, Refused) for one in findings.changes.values())
