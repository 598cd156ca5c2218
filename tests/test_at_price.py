"""Another price of quality, tried on kept scores: at the run's own price nothing changes, and nothing is fitted."""

from __future__ import annotations

import io
import tomllib
from dataclasses import replace

import numpy as np
import polars as pl
import pytest
from kept_run import LIMITS, Studied, studied

from optimizer import at_price, kept_scores
from optimizer.at_price import AtPrice, Kept, at_price_json
from optimizer.dataset import split
from optimizer.evidence import METRICS, Refused
from optimizer.expectations import level_of
from optimizer.frontier import PRICES
from optimizer.gate import Estimate


@pytest.fixture(scope="module")
def tried() -> Studied:
    return studied("tried")


@pytest.fixture(scope="module")
def kept(tried: Studied) -> Kept:
    return tried.kept()


def at(kept: Kept, value_usd: float) -> AtPrice:
    found = kept.at(value_usd)
    assert not isinstance(found, Refused)
    return found


def estimate(found: object) -> Estimate:
    assert isinstance(found, Estimate)
    return found


def test_at_the_runs_own_price_the_numbers_are_those_of_the_verdict(tried: Studied, kept: Kept) -> None:
    said = at_price_json(at(kept, kept.value_usd))
    assert said["own"]
    assert said["label"] == tried.said["policy_label"]
    for name in ("savings_usd_per_1k", "quality_change", "latency_change_s"):
        assert said[name] == tried.said[name]
    row = next(row for row in tried.said["table"] if row["policy"] == "suggested")
    for name in ("cost_usd_per_1k", "quality", "latency_s"):
        assert said[name] == row[name]


@pytest.mark.parametrize("service", ["tried", "guessed"])
def test_chosen_anew_at_the_own_price_it_is_the_same_policy(service: str, tried: Studied) -> None:
    one = tried if service == "tried" else studied(service)
    kept = one.kept()
    choice = kept.choice(kept.value_usd)
    assert choice is not None
    found, does = choice
    assert found.candidate.label == one.training["label"]
    assert found.admissible == one.training["admissible"]
    np.testing.assert_allclose(does, one.findings.probabilities["suggested"], atol=1e-12)


def test_dearer_quality_buys_more_of_it_at_more_cost(kept: Kept) -> None:
    free = replace(kept, limits=replace(LIMITS, quality_margin=0.9))
    cheap, dear = at(free, kept.value_usd / 30), at(free, kept.value_usd * 30)
    assert dear.shares["dear"] > cheap.shares["dear"] + 0.2
    assert estimate(dear.outcomes["quality"]).value > estimate(cheap.outcomes["quality"]).value
    assert estimate(dear.outcomes["cost_usd"]).value > estimate(cheap.outcomes["cost_usd"]).value


def test_other_prices_have_the_wider_intervals_of_the_band(tried: Studied, kept: Kept) -> None:
    other = at(kept, 3 * kept.value_usd)
    assert not other.own
    assert other.confidence == tried.lessons.curve[0].level > LIMITS.confidence
    does = kept.choice(3 * kept.value_usd)
    assert does is not None
    alone = kept.judged.change("quality", does[1])
    banded = estimate(other.changes["quality"])
    assert banded.high - banded.low > 1.05 * (estimate(alone).high - estimate(alone).low)
    assert banded.value == pytest.approx(estimate(alone).value)


def test_without_a_curve_the_level_is_bonferronis() -> None:
    assert level_of((), 0.95) == pytest.approx(1 - 0.05 / len(PRICES))


def test_kept_evaluations_survive_a_file(tried: Studied) -> None:
    evaluation, policy = tried.findings.evaluation, tried.findings.probabilities["suggested"]
    ids = pl.Series([f"d{row}" for row in tried.findings.splits.certify])
    file = io.BytesIO()
    kept_scores.judged_frame(evaluation, policy, ids).write_parquet(file)
    file.seek(0)
    about = kept_scores.About.read(tried.evidence["scores"])
    again = kept_scores.evaluation_of(pl.read_parquet(file), about, evaluation.confidence)
    for metric in METRICS:
        assert again.change(metric, policy) == evaluation.change(metric, policy)
        assert again.value(metric, policy) == evaluation.value(metric, policy)


def test_of_many_decisions_the_newest_are_kept(tried: Studied, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_scores, "MOST_KEPT", 100)
    scores = tried.lessons.scores
    assert scores is not None
    ids = pl.Series([f"d{row}" for row in range(len(tried.data))])
    splits = split(tried.data.groups, tried.data.time_ns)
    frame = kept_scores.judged_frame(
        tried.findings.evaluation, tried.findings.probabilities["suggested"], ids.gather(splits.certify)
    )
    assert frame["decision_id"].to_list() == [f"d{row}" for row in sorted(splits.certify)[-100:]]
    kept = at_price.read(
        tried.tables["price_scores"],
        frame,
        tried.tables["judging_expected"],
        tried.training,
        tried.evidence["scores"],
        LIMITS,
    )
    assert not kept.complete
    assert not at(kept, 2 * kept.value_usd).own


def test_tables_of_different_decisions_are_refused(tried: Studied) -> None:
    stranger = tried.tables["judging_expected"].with_columns(decision_id=pl.lit("x"))
    with pytest.raises(ValueError, match="not about the same decisions"):
        at_price.read(
            tried.tables["price_scores"],
            tried.tables["judged_scores"],
            stranger,
            tried.training,
            tried.evidence["scores"],
            LIMITS,
        )


def test_decisions_that_no_action_can_serve_stay_as_they_are(kept: Kept) -> None:
    nobody = np.zeros_like(kept.judging.able)
    blind = replace(kept, judging=replace(kept.judging, able=nobody))
    choice = blind.choice(2 * kept.value_usd)
    assert choice is not None
    np.testing.assert_array_equal(choice[1], kept.judged.data.behaviour)


@pytest.mark.parametrize("service", ["shop", "my shop", 'a"b', "a.b/c", "größe", ""])
def test_a_service_is_a_key_of_toml(service: str) -> None:
    said = tomllib.loads(f"[services.{at_price.toml_key(service)}]\nvalue_usd = 0.02\n")
    assert said == {"services": {service: {"value_usd": 0.02}}}
