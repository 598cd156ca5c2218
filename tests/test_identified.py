"""How far the logs identify an answer: counts that add up, marks where nothing was tried, and what a run keeps."""

from __future__ import annotations

import json

import numpy as np
import pytest
from kept_run import Studied, studied

from optimizer import identified
from optimizer.ope.estimators import weights


@pytest.fixture(scope="module")
def tried() -> Studied:
    return studied("tried")


@pytest.fixture(scope="module")
def never() -> Studied:
    return studied("never")


@pytest.fixture(scope="module")
def guessed() -> Studied:
    return studied("guessed")


def test_what_is_kept_is_json_without_infinite_numbers(tried: Studied, never: Studied, guessed: Studied) -> None:
    for one in (tried, never, guessed):
        assert json.loads(json.dumps(one.evidence, allow_nan=False)) == one.evidence


def test_segments_are_the_rules_and_hold_every_judging_decision_once(tried: Studied) -> None:
    rules = tried.findings.rules
    assert rules is not None
    found = tried.evidence["segments"]
    assert [one["kind"] for one in found] == ["rule"] * len(rules.rules)
    assert sum(one["rows"] for one in found) == len(tried.findings.splits.certify) == tried.evidence["judged"]
    logged = sum(cell["logged"] for one in found for cell in one["cells"])
    assert logged == tried.evidence["judged"]


def test_a_cell_counts_the_decisions_that_carry_the_policy_there(tried: Studied) -> None:
    """Kish's size of the weights of one action in one segment, by hand."""
    findings = tried.findings
    assert findings.rules is not None
    weight = weights(findings.evaluation.outcomes["quality"], findings.probabilities["suggested"])
    for place, one in enumerate(tried.evidence["segments"]):
        for number, cell in enumerate(one["cells"]):
            inside = weight[(findings.rules.places == place) & (findings.evaluation.data.actions == number)]
            assert cell["effective"] == pytest.approx(inside.sum() ** 2 / (inside**2).sum())
            assert cell["unsupported_share"] == 0


def test_shares_of_segments_make_the_shares_of_the_verdict(tried: Studied) -> None:
    found, judged = tried.evidence["segments"], tried.evidence["judged"]
    for number, said in enumerate(tried.said["points"][0]["actions"]):
        share = sum(one["rows"] * one["cells"][number]["policy_share"] for one in found) / judged
        assert share == pytest.approx(said["policy_share"])


def test_where_nothing_is_suggested_rows_are_todays_routing_and_the_untried_half_is_marked(never: Studied) -> None:
    found = never.evidence["segments"]
    assert {one["kind"] for one in found} == {"today"}
    assert all(cell["policy_share"] is None for one in found for cell in one["cells"])
    for one in found:
        took = [cell for cell in one["cells"] if cell["logged"]]
        assert len(took) == 1
        assert took[0]["unsupported_share"] == 0
        assert [cell["unsupported_share"] for cell in one["cells"] if not cell["logged"]] == [1.0]
    assert never.evidence["weights"] is None
    assert never.evidence["scores"] is None


def test_probabilities_count_every_decision_under_its_origin(tried: Studied, guessed: Studied) -> None:
    for one, origin in ((tried, "logged"), (guessed, "estimated")):
        bins = one.evidence["propensities"]
        assert {row["origin"] for row in bins} == {origin}
        assert sum(row["decisions"] for row in bins) == len(one.data)
        for row in bins:
            inside = (one.data.propensities >= row["low"]) & (one.data.propensities < row["high"])
            assert row["decisions"] == inside.sum()


def test_right_probabilities_lie_on_the_diagonal_and_wrong_ones_beside_it() -> None:
    rng = np.random.default_rng(0)
    n = 20_000
    truth = rng.random(n)
    behaviour = np.column_stack([truth, 1 - truth])
    actions = (rng.random(n) > truth).astype(np.int64)
    origin = np.full(n, "logged")
    for row in identified.calibration(behaviour, actions, origin):
        assert row["taken"] == pytest.approx(row["expected"], abs=4 * np.sqrt(0.25 / row["pairs"]))
    halves = np.full((n, 2), 0.5)
    taken_first = np.zeros(n, dtype=np.int64)
    (row,) = identified.calibration(halves, taken_first, origin)
    assert (row["expected"], row["taken"], row["pairs"]) == (0.5, 0.5, 2 * n)
    certain = np.column_stack([np.full(n, 0.9), np.full(n, 0.1)])
    low, high = identified.calibration(certain, 1 - taken_first, origin)
    assert (low["taken"], high["taken"]) == (1.0, 0.0)


def test_the_tail_agrees_with_the_gates_share(tried: Studied) -> None:
    kept = tried.evidence["weights"]
    one_percent = next(row for row in kept["tail"] if row["share"] == 0.01)
    assert tried.findings.support is not None
    assert one_percent["holds"] == pytest.approx(tried.findings.support.top_share)
    assert kept["effective"] == tried.findings.support.effective
    heaviest = [row["weight"] for row in kept["largest"]]
    assert heaviest == sorted(heaviest, reverse=True)
    assert sum(row["decisions"] for row in kept["counts"]) == tried.evidence["judged"]


def test_heaviest_traces_are_named(tried: Studied) -> None:
    weight = weights(tried.findings.evaluation.outcomes["cost_usd"], tried.findings.probabilities["suggested"])
    for row in tried.evidence["weights"]["largest"]:
        place = int(row["trace_id"], 16)
        at = tried.findings.splits.certify.tolist().index(place)
        assert row["weight"] == pytest.approx(weight[at])
        assert row["action"] == tried.data.action_names[tried.data.actions[place]]


def test_weights_of_nothing_hold_nothing() -> None:
    found = identified.weight_tail(np.zeros(10))
    assert {row["holds"] for row in found["tail"]} == {0.0}
    assert sum(row["decisions"] for row in found["counts"]) == 10


def test_hidden_causes_are_asked_about_only_where_probabilities_are_estimated(
    tried: Studied, guessed: Studied, never: Studied
) -> None:
    assert "logged" in tried.evidence["sensitivity"]["why"]
    assert never.evidence["sensitivity"]["why"] == "nothing is suggested"
    said = guessed.evidence["sensitivity"]
    assert said["why"] is None
    assert said["tipping"] == guessed.findings.hidden_odds
    widths = [row["high"] - row["low"] for row in said["at"]]
    assert widths == sorted(widths)
    assert said["at"][0]["gamma"] == 1.0
    assert widths[0] == pytest.approx(0.0, abs=1e-12)


def test_drift_is_what_the_gate_was_told(tried: Studied, never: Studied) -> None:
    drift = tried.findings.drift
    assert drift is not None
    kept = tried.evidence["drift"]
    assert [row["what"] for row in kept["shifts"]] == [shift.what for shift in drift.shifts]
    assert never.evidence["drift"] is None


def test_scores_are_counted_by_action(guessed: Studied) -> None:
    kept = guessed.evidence["labels"]
    assert sum(row["decisions"] for row in kept) == len(guessed.data)
    assert sum(row["labelled"] for row in kept) == int((~np.isnan(guessed.data.quality)).sum())
