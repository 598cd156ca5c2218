"""The list of decision points: what a home's traces show, in words and as JSON, with settings that are valid."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from otlp_traces import START, agent, chat, span, trace_id, traces_body

from ingest import wal
from ingest.converter import run
from ingest.home import open_home
from ingest.options import ConverterOptions
from ingest.pricing import Price
from optimizer import cli, config
from optimizer.config import Settings
from optimizer.sequential.points import as_text, find_points

SECOND = 10**9


def trace(number: int, *taken: str, service: str = "desk", logs: bool = False) -> list:
    """A boss and the agents that it asks, each with a model call; helped by a call that no agent names."""
    spans = [span(1, agent("boss"), trace=number, end_ns=START + 99 * SECOND, service=service)]
    for place, name in enumerate(taken):
        at = START + (2 + 4 * place) * SECOND
        if logs:
            share = json.dumps([0.75, 0.25])
            policy = {"policy.action": name, "policy.id": "p", "policy.propensity": 0.75,
                      "policy.candidates": json.dumps([name, "STOP"]), "policy.probabilities": share}  # fmt: skip
            spans.append(span(50 + place, policy, trace=number, parent=1, start_ns=at - 1, end_ns=at, service=service))
        if name != "STOP":
            own = {"trace": number, "start_ns": at, "service": service}
            spans.append(span(10 + place, agent(name), parent=1, end_ns=at + 3 * SECOND, **own))
            spans.append(span(30 + place, chat(), parent=10 + place, end_ns=at + SECOND, **own))
    at = START + 90 * SECOND
    return [*spans, span(99, chat(), trace=number, parent=1, start_ns=at, end_ns=at + SECOND, service=service)]


def store(home: Path, spans: list, scores: list[dict] | None = None) -> None:
    open_home(home, create=True)
    log = wal.Wal(home / "wal")
    now = START + 10**12
    log.write([wal.Record("traces", "json", now, traces_body(spans))])
    if scores:
        log.write([wal.Record("scores", "json", now, json.dumps(scores).encode())])
    log.close()
    run(home, ConverterOptions(prices=(Price("gpt-4o-mini", 1.0, 2.0),)), lambda: True)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three services: agents that nobody routed, an orchestrator that logs, and a model that is asked once."""
    folder = tmp_path_factory.mktemp("points")
    spans = [
        *trace(1, "plan", "write", "plan"),
        *trace(2, "plan", "write"),
        *trace(3, "plan", "write", "STOP", service="logged desk", logs=True),
        *trace(4, "plan", "STOP", "write", service="logged desk", logs=True),
        span(1, chat(), trace=5, service="faq"),
    ]
    store(folder, spans, [{"trace_id": trace_id(1), "name": "quality", "value": 1}])
    return folder


def test_points_say_what_is_decided_and_what_is_missing(home: Path) -> None:
    desk, faq, logged = find_points(home, Settings())
    assert (desk.service, desk.point, desk.traces, desk.decisions) == ("desk", "boss", 2, 5)
    assert (desk.steps_median, desk.steps_max, desk.actions) == (2.5, 3, {"plan": 3, "write": 2})
    assert (desk.logged_share, desk.probabilities_share, desk.stop_quality_share) == (0.0, 0.0, 0.0)
    assert desk.outside_tokens_share == pytest.approx(2 / 7)
    assert desk.outside_cost_share == pytest.approx(2 / 7)
    assert not desk.orchestrated
    assert "no score step_quality says what stopping after a step gives" in str(desk.why_not)
    assert (faq.steps_max, faq.stop_quality_share, faq.why_not) == (1, None, "no trace has two decisions")
    assert logged.orchestrated
    assert (logged.logged_share, logged.probabilities_share, logged.traces) == (1.0, 1.0, 1)
    assert logged.actions == {"plan": 1, "write": 1, "STOP": 1}
    assert logged.left_out == {"decisions follow one that stops": 1}


def test_points_in_words(home: Path) -> None:
    desk, faq, logged = (as_text(point) for point in find_points(home, Settings()))
    assert desk.startswith("desk, boss: 5 decisions in 2 traces, 2.5 in a trace at the median, 3 at most\n")
    assert "not studied step by step: nothing to learn from" in desk
    assert "actions: plan 3, write 2\n" in desk
    assert "outside of what the actions name: 29% of tokens, 29% of costs" in desk
    assert "1 decision in 1 trace" in faq
    assert "orchestrate" not in faq
    assert "logged as decisions: 100%, with the probabilities of their candidates: 100%" in logged
    assert "left out: 1 trace: decisions follow one that stops" in logged


def test_what_is_to_be_edited_can_be_pasted(home: Path, tmp_path: Path) -> None:
    every = find_points(home, Settings())
    (tmp_path / "retroute.toml").write_text("\n".join(point.settings for point in every), encoding="utf-8")
    read = config.load(tmp_path, environment={})
    assert read.service("logged desk").orchestrate is True
    assert read.service("desk").orchestrate is False
    assert read.service("desk").step_quality == "step_quality"
    assert read.service("logged desk").points["boss"].actions == ("plan", "write")
    assert read.service("faq").points["chat"].actions == ("gpt-4o-mini",)
    again = find_points(home, read)
    assert [point.why_not for point in again] == ["orchestrate = false", "no trace has two decisions", None]


def test_the_command_prints_text_or_json_of_the_services_asked_for(home: Path, capsys: pytest.CaptureFixture) -> None:
    assert cli.run(["points", "--home", str(home), "--service", "desk"]) == 0
    told = capsys.readouterr().out
    assert told.count("in a trace at the median") == 1
    assert cli.run(["points", "--home", str(home), "--json"]) == 0
    points = json.loads(capsys.readouterr().out)["points"]
    assert [point["service"] for point in points] == ["desk", "faq", "logged desk"]
    assert points[2]["actions"] == {"STOP": 1, "plan": 1, "write": 1}


def test_an_imported_run_of_many_branches_says_what_it_spent_outside_of_its_steps(tmp_path: Path) -> None:
    """The example run that Puppeteer's code ships: 7 distinct steps; 1,118 of 5,929 tokens merge answers or help, which
    its own figures leave out."""
    example = Path(__file__).parent / "golden" / "puppeteer" / "2026-03-05-10-00-00"
    assert cli.run(["import", "--home", str(tmp_path), str(example)]) == 0
    (point,) = find_points(tmp_path, Settings())
    assert (point.traces, point.decisions, len(point.actions)) == (1, 7, 6)
    assert point.outside_tokens_share == pytest.approx(1118 / 5929)


def test_a_home_without_decisions_says_so(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    store(tmp_path, [span(1, {"http.method": "GET"})])
    assert cli.run(["points", "--home", str(tmp_path)]) == 0
    assert capsys.readouterr().out == "No trace holds a decision.\n"
    assert cli.run(["points", "--home", str(tmp_path / "nowhere")]) == 2


def test_long_lists_of_actions_are_cut_as_text_only(home: Path) -> None:
    (point,) = find_points(home, Settings(), ["faq"])
    many = replace(point, actions={f"model-{n:02d}": 1 for n in range(12)})
    assert "model-07 1, and 4 more; --json shows all" in as_text(many)
