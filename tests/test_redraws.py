"""What the product promises of the sample, over 40 redraws of its logs: intervals cover, verdicts are honest.

For the service of many steps see test_step_redraws."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from redraws import Redraw, sample_home

from optimizer import config
from optimizer.decisions import find_decisions
from optimizer.evidence import savings
from optimizer.gate import Estimate
from optimizer.logged import to_dataset, with_behaviour
from optimizer.study import assess, learn
from optimizer.summary import probabilities_frame
from optimizer.threads import one_thread
from optimizer.truth import values

pytestmark = pytest.mark.slow

SEEDS = range(40)
CHANGES = ("savings", "quality", "latency")
SERVICES = ("assistant", "classifier", "faq")
"""Those of single decisions."""


@dataclass(frozen=True)
class Result:
    """One redraw: the verdict, whether each interval covers (None: no number was given), and the true changes."""

    seed: int
    verdict: str
    label: str | None
    covers: dict[str, bool | None]
    true_quality_change: float | None
    true_savings: float | None


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return sample_home(tmp_path_factory.mktemp("home"))


@pytest.fixture(scope="module")
def results(home: Path) -> Iterator[dict[str, list[Result]]]:
    settings = config.load(home)
    with one_thread():
        yield {
            name: [study(Redraw.of(home, name), settings.service(name), seed) for seed in SEEDS] for name in SERVICES
        }


def study(redraw: Redraw, service: config.ServiceSettings, seed: int) -> Result:
    calls, scores = redraw.draw(seed)
    name = calls["service"][0]
    calls = calls.with_columns(billed_usd="cost_usd", billed_unpriced="unpriced")  # the sample has one price list
    decisions = find_decisions(calls, scores, {name: "quality"})
    logged = to_dataset(decisions, seed=0)
    lessons = learn(logged, service.limits, service.value_usd, epsilon=0.05, seed=0)
    data = to_dataset(with_behaviour(decisions, logged.data), seed=0).data
    found = assess(data, lessons.suggestion, service.limits, seed=0)
    true = values(redraw.truth, probabilities_frame(decisions["trace_id"].to_list(), data.action_names, found))
    today, suggested = true["today"], true.get("suggested")
    if today is None or suggested is None:
        return Result(seed, found.verdict.outcome, None, dict.fromkeys(CHANGES), None, None)
    truths = {
        "savings": 1000 * (today.cost_usd - suggested.cost_usd),
        "quality": suggested.quality - today.quality,
        "latency": suggested.latency_s - today.latency_s,
    }
    given = {
        "savings": savings(found.changes["cost_usd"]),
        "quality": found.changes["quality"],
        "latency": found.changes["latency_s"],
    }
    covers = {
        key: estimate.low <= truths[key] <= estimate.high if isinstance(estimate, Estimate) else None
        for key, estimate in given.items()
    }
    return Result(seed, found.verdict.outcome, lessons.suggestion.label, covers, truths["quality"], truths["savings"])


def test_intervals_cover_the_truth(results: dict[str, list[Result]]) -> None:
    """A refused number is no miss, and no hit in the pooled share. 35 of 40 at 95 % has binomial probability 0.986."""
    hits = []
    for name, found in results.items():
        for key in CHANGES:
            given = [result.covers[key] for result in found if result.covers[key] is not None]
            hits += given
            assert len(given) - sum(given) <= 5, f"{name}, {key}: {sum(given)} of {len(given)}"
    assert np.mean(hits) >= 0.94, f"{sum(hits)} of {len(hits)}"


def test_what_is_deployed_keeps_its_limit(results: dict[str, list[Result]]) -> None:
    """At most 2 of 40 deployed policies truly lose more than a point beyond the limit of one."""
    for name, found in results.items():
        broken = [r for r in found if r.verdict == "deploy" and (r.true_quality_change or 0) < -0.01 - 0.01]
        assert len(broken) <= 2, f"{name}: {broken}"


def test_verdicts_are_honest(results: dict[str, list[Result]]) -> None:
    """The verdict of each service is the commonest one of its redraws; what is never right never comes."""
    verdicts = {name: Counter(result.verdict for result in found) for name, found in results.items()}
    assert verdicts["assistant"].most_common(1)[0][0] == "deploy"
    assert verdicts["classifier"].most_common(1)[0][0] == "keep"
    assert set(verdicts["faq"]) == {"cannot_tell"}
    assert "deploy" not in verdicts["classifier"]


def test_the_assistants_policy_truly_saves_and_truly_gains(results: dict[str, list[Result]]) -> None:
    for result in results["assistant"]:
        assert result.true_savings is not None
        assert result.true_quality_change is not None
        assert result.true_savings > 0
        assert result.true_quality_change > 0


def test_a_redraw_differs_only_by_chance(home: Path) -> None:
    redraw = Redraw.of(home, "classifier")
    (first, _), (again, _), (other, _) = redraw.draw(1), redraw.draw(1), redraw.draw(2)
    assert first.equals(again)
    assert first["input_text"].equals(other["input_text"])
    share = (first["model_requested"] == other["model_requested"]).mean()
    assert share is not None
    assert 0.5 < share < 0.95
    assert isinstance(first, pl.DataFrame)
