"""A night over a service of many steps with next to nothing in its log: a reason, never a crash."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from test_sample_steps import SERVICE, told
from test_sample_traces import FOLDER
from test_stepwise_end_to_end import sample_of

from ingest.importers.otlp_files import import_paths
from ingest.options import ConverterOptions
from optimizer import config, pipeline, planned
from optimizer.report import reasons
from optimizer.sequential import text
from optimizer.sequential.logged import NoEpisodesError

SETTINGS = (FOLDER / config.FILE_NAME).read_text()


def night(folder: Path, traces: int, toml: str) -> dict[str, Any]:
    home = folder / "home"
    home.mkdir()
    (home / config.FILE_NAME).write_text(toml)
    settings = config.load(home)
    sample = sample_of(sorted(told())[:traces], folder)
    import_paths(home, [sample], ConverterOptions(quiet_s=0.0, prices=settings.prices))
    return pipeline.nightly(home, settings)["services"][SERVICE]


@pytest.mark.parametrize("traces", [1, 4])
def test_a_few_traces_end_in_the_reason_why_nothing_is_said(tmp_path: Path, traces: int) -> None:
    found = night(tmp_path, traces, SETTINGS)
    assert found["verdict"] == "cannot_tell"
    assert f"only {traces} trace" in found["reasons"][0]["got"]
    said = found["orchestration"]
    assert said["episodes"] == traces
    assert said["friction"]["prompts"]
    assert text.lines(found, lambda _record, _unit: "x")
    assert any("policy.probabilities" in line for line in reasons(found))
    (question,) = planned.questions(tmp_path / "home", [SERVICE])
    assert planned.exploration_json(question)["steps"]["decisions_needed"] is None


def test_where_no_trace_has_an_outcome_single_decisions_are_studied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def nothing(*_: object) -> None:
        raise NoEpisodesError("no trace with a quality or a cost")

    monkeypatch.setattr(pipeline, "learn_service", nothing)
    found = night(tmp_path, 3, SETTINGS)
    assert found["verdict"] == "cannot_tell"
    assert found["orchestration"] is None
