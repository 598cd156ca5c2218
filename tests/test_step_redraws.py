"""What the product promises of the sample's orchestrated service, over 20 redraws of its log."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import pytest
from step_redraws import StepRedraw

from ingest.importers.otlp_files import import_paths
from ingest.options import ConverterOptions
from optimizer import config, pipeline, replay_truth, step_truth
from optimizer.dataset import split
from optimizer.demo import sample_folder
from optimizer.gate import Estimate, Limits
from optimizer.sequential.study import assess, learn
from optimizer.truth import Truth

pytestmark = pytest.mark.slow

SERVICE = "sql-agent"
SEEDS = range(20)


@dataclass(frozen=True)
class Result:
    """One redraw: the verdict, whether the intervals hold the truth, and the true changes per episode."""

    verdict: str
    covers: dict[str, bool]
    quality: float
    cost_usd: float


@pytest.fixture(scope="module")
def redraw(tmp_path_factory: pytest.TempPathFactory) -> StepRedraw:
    home, sample = tmp_path_factory.mktemp("home"), sample_folder()
    (home / config.FILE_NAME).write_text((sample / config.FILE_NAME).read_text())
    settings = config.load(home)
    import_paths(home, [sample / f"{SERVICE}.otlp.jsonl.gz"], ConverterOptions(quiet_s=0.0, prices=settings.prices))
    run = pipeline.nightly(home, settings, None, lambda _what, _share: None)["services"][SERVICE]["run_id"]
    return StepRedraw.of(home / "runs" / run, sample / "truth", SERVICE)


@pytest.fixture(scope="module")
def results(redraw: StepRedraw) -> list[Result]:
    return [studied(redraw, seed) for seed in SEEDS]


def studied(redraw: StepRedraw, seed: int) -> Result:
    log = redraw.draw(seed)
    suggestion = learn(log, Limits(), None, seed=0).suggestion
    findings = assess(log, suggestion, Limits(), seed=0)
    assert suggestion.model is not None
    tasks = [redraw.traces[place] for place in split(log.groups, log.time_ns).certify]
    policy = step_truth.of_prompts(suggestion.model, redraw.replay, redraw.prompts)
    new, now = (true(redraw, one, tasks) for one in (policy, replay_truth.of_script(redraw.replay)))
    quality, cost = (suggestion.share * (getattr(new, m) - getattr(now, m)) for m in ("quality", "cost_usd"))
    changes = {"quality": quality, "cost_usd": cost}
    covers = {
        metric: found.low <= changes[metric] <= found.high
        for metric, found in findings.changes.items()
        if metric in changes and isinstance(found, Estimate)
    }
    return Result(findings.verdict.outcome, covers, quality, cost)


def true(redraw: StepRedraw, policy: replay_truth.Policy, tasks: list[str]) -> Truth:
    return replay_truth.value(redraw.replay, policy, tasks)


def test_intervals_hold_the_truth(results: list[Result]) -> None:
    """Of 40 that are 95 % certain at least 35: fewer have a chance of 1 in 700."""
    held = [one for result in results for one in result.covers.values()]
    assert len(held) >= 30
    assert sum(not one for one in held) <= 5


def test_most_logs_end_as_the_sample_says(results: list[Result]) -> None:
    """Of twenty at least fourteen; none loses quality that is deployed."""
    verdicts = Counter(result.verdict for result in results)
    assert verdicts["deploy"] >= 14, verdicts
    assert set(verdicts) <= {"deploy", "promising", "cannot_tell", "keep"}
    for result in results:
        if result.verdict == "deploy":
            assert result.quality > -0.01
            assert result.cost_usd < 0
