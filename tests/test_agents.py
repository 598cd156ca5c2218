"""The helper that runs agents by a policy, in this package and as the bundle holds it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind
from test_runtime_episode import ACTIONS, AGENTS, TASK, by_step, write

from ingest.errors import UsageError
from optimizer import cli
from optimizer.agents import steps
from optimizer.agents.steps import Orchestrator, Policy, load
from optimizer.export import agents, litellm
from optimizer.runtime import STOP, Model, Router, step_features


@pytest.fixture
def exported() -> tuple[TracerProvider, InMemorySpanExporter]:
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    return provider, exporter


def test_an_episode_leaves_a_short_internal_span_for_each_choice(
    exported: tuple[TracerProvider, InMemorySpanExporter], tmp_path: Path
) -> None:
    provider, exporter = exported
    tracer = provider.get_tracer("app")
    router = Router.load(write(tmp_path, by_step("search", "code", STOP)))
    episode = Orchestrator(router, tracer)
    decisions = []
    with tracer.start_as_current_span("task") as root:
        while (decision := episode.next(TASK)).action != STOP:
            decisions.append(decision)
            with tracer.start_as_current_span(f"invoke_agent {decision.action}"):
                episode.done(output="42 rows", cost_usd=0.02, tokens=100, signal=0.5)
    spans = exporter.get_finished_spans()
    assert [span.name for span in spans] == [
        "route", "invoke_agent search", "route", "invoke_agent code", "route", "task",
    ]  # fmt: skip
    routes = [span for span in spans if span.name == "route"]
    for span, made in zip(routes, [*decisions, decision], strict=True):
        assert span.kind is SpanKind.INTERNAL
        assert span.parent is not None
        assert span.parent.span_id == root.get_span_context().span_id
        assert dict(span.attributes or {}) == made.attributes()


def test_what_came_of_a_step_is_known_at_the_next(tmp_path: Path) -> None:
    episode = Orchestrator(Router.load(write(tmp_path, by_step("search", "code", STOP))))
    episode.next(TASK)
    entry = episode.done("error", output="no such table", cost_usd=0.02, tokens=100, signal=0.25)
    assert entry["seconds"] == pytest.approx(0.0, abs=5.0)
    assert episode.history == [entry]
    assert np.array_equal(episode.next(TASK).features[128:144], step_features([entry]))


def test_the_history_of_the_context_does_not_count(tmp_path: Path) -> None:
    episode = Orchestrator(Router.load(write(tmp_path)))
    assert episode.next({**TASK, "history": [{"action": "plan"}] * 5}).step == 0


def test_an_episode_can_be_taken_up_again(tmp_path: Path) -> None:
    router = Router.load(write(tmp_path, by_step("search", "code", STOP), canary_percent=50))
    first = Orchestrator(router)
    first.next(TASK)
    first.done()
    stored = json.loads(json.dumps(first.history))
    assert Orchestrator(router, history=stored).next(TASK).attributes() == first.next(TASK).attributes()


def test_a_step_of_which_nothing_is_said_still_counts(tmp_path: Path) -> None:
    episode = Orchestrator(Router.load(write(tmp_path, by_step("search"), max_steps=4)))
    taken = [episode.next(TASK).action for _ in range(5)]
    assert taken == ["search"] * 4 + [STOP]
    assert [entry["status"] for entry in episode.history] == [None] * 4


def test_nothing_can_be_done_before_a_choice_or_after_the_end(tmp_path: Path) -> None:
    episode = Orchestrator(Router.load(write(tmp_path, by_step("search", STOP))))
    with pytest.raises(RuntimeError, match="no step was chosen"):
        episode.done()
    episode.next(TASK)
    episode.done()
    assert episode.next(TASK).action == STOP
    with pytest.raises(RuntimeError, match="no step was chosen"):
        episode.done()


@pytest.mark.parametrize("context", [None, 5, "task", []])
def test_odd_contexts_are_answered(context: Any, tmp_path: Path) -> None:
    assert Orchestrator(Router.load(write(tmp_path))).next(context).action == "search"


def test_the_policy_brings_its_runtime(tmp_path: Path) -> None:
    router = load(write(tmp_path, by_step("code", STOP)))
    assert type(router) is not Router
    assert Orchestrator(router).next(TASK).action == "code"


# ------------------------------------------------------------------------------------------------------------- bundle


def test_a_bundle_runs_without_this_package(tmp_path: Path) -> None:
    """numpy and the OpenTelemetry API, no SDK, nothing of retroute."""
    out = tmp_path / "out"
    assert agents.export(write(tmp_path / "policy", by_step("search", "code", STOP)), out, "desk") == []
    assert sorted(path.name for path in out.iterdir()) == [
        "example.py", "policy", "policy_agents.py", "policy_autogen.py",
    ]  # fmt: skip
    assert (out / "policy_agents.py").read_bytes() == Path(steps.__file__).read_bytes()
    script = (
        "import runpy, sys\n"
        "runpy.run_path('example.py', run_name='__main__')\n"
        "print({name.partition('.')[0] for name in sys.modules} & {'optimizer', 'ingest', 'langgraph'},"
        " 'opentelemetry.sdk' in sys.modules)"
    )
    environment = {**os.environ, "PYTHONPATH": str(out)}
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=out,
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "search 1.0 policy", "code 1.0 policy", "STOP 1.0 policy", "set() False",
    ]  # fmt: skip


def test_an_example_that_was_changed_stays(tmp_path: Path) -> None:
    out = tmp_path / "out"
    agents.export(write(tmp_path / "policy"), out, "desk")
    (out / "example.py").write_text("mine")
    notes = agents.export(write(tmp_path / "policy", version="v2", revision=2), out, "desk")
    assert (out / "example.py").read_text() == "mine"
    assert "stays" in notes[0]
    assert Router.load(out / "policy").version == "v2"


def test_odd_names_make_a_valid_example(tmp_path: Path) -> None:
    actions = ('say "hi"', "{x}\\", "搜索\n", STOP)
    folder = write(
        tmp_path / "policy",
        by_step('say "hi"', STOP, actions=actions),
        script=actions[:1],
        incumbent=actions[0],
        virtual_model='a "b"""\\',
    )
    agents.export(folder, tmp_path / "out", 'a "b"""\\')
    names: dict[str, Any] = {"__name__": "example", "__file__": str(tmp_path / "out" / "example.py")}
    sys.path.insert(0, str(tmp_path / "out"))
    try:
        exec(compile((tmp_path / "out" / "example.py").read_text(encoding="utf-8"), "example.py", "exec"), names)
    finally:
        sys.path.remove(str(tmp_path / "out"))
        sys.modules.pop("policy_agents", None)
    assert tuple(names["AGENTS"]) == actions[:-1]


def test_a_proxy_gets_no_orchestrator_and_no_app_a_policy_of_another_service(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="a proxy sees single calls only") as caught:
        litellm.export(write(tmp_path / "steps"), tmp_path / "out", "desk")
    assert "--target agents" in (caught.value.hint or "")
    with pytest.raises(UsageError, match="answers to the model name desk, not other"):
        agents.export(tmp_path / "steps", tmp_path / "out", "other")
    assert not (tmp_path / "out").exists()


def test_a_policy_of_single_calls_comes_with_adapters_for_clients(tmp_path: Path) -> None:
    out = tmp_path / "out"
    single = Model("constant", ACTIONS[:-1], {"values": np.array([0.0, 1.0, 0.0])}, 0.0)
    assert agents.export(write(tmp_path / "single", single, script=()), out, "desk") == []
    assert sorted(path.name for path in out.iterdir()) == [
        "example.py", "policy", "policy_agents.py", "policy_openai_agents.py", "policy_openfeature.py",
        "policy_pydantic_ai.py",
    ]  # fmt: skip
    done = subprocess.run([sys.executable, "example.py"], cwd=out, capture_output=True, text=True, timeout=60)
    assert done.stdout == "search 1.0 policy\n", done.stderr


# ------------------------------------------------------------------------------------------------------------- renewal


def choosing(action: str) -> Model:
    return Model("constant", AGENTS, {"values": np.array([float(name == action) for name in AGENTS])}, 0.0)


def test_a_policy_is_renewed_and_a_broken_one_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(steps, "LOOK_S", 0.0)
    folder = write(tmp_path, choosing("plan"), script=())
    policy = Policy(folder)
    assert (policy.virtual_model, policy.decide(TASK).action) == ("desk", "plan")
    write(folder, choosing("code"), script=(), version="v2", revision=2)
    assert policy.decide(TASK).action == "code"
    (folder / "weights.npz").write_bytes(b"broken")
    assert policy.decide(TASK).action == "code"
    assert policy.decide(TASK).version == "v2"
    assert len([one for one in caplog.records if "version v2 stays" in one.message]) == 1
    write(folder, choosing("search"), script=(), version="v3", revision=3)
    assert policy.decide(TASK).action == "search"


def test_an_episode_keeps_the_policy_that_it_began_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(steps, "LOOK_S", 0.0)
    policy = Policy(write(tmp_path, by_step("search", "search", STOP)))
    episode = Orchestrator(policy.router)
    assert episode.next(TASK).action == "search"
    write(tmp_path, by_step("code", "code", STOP), version="v2", revision=2)
    assert Orchestrator(policy.router).next(TASK).action == "code"
    assert episode.next(TASK).action == "search"


def test_files_are_looked_at_once_a_second(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr(steps.time, "monotonic", lambda: now)
    policy = Policy(write(tmp_path, choosing("plan"), script=()))
    write(tmp_path, choosing("code"), script=(), version="v2", revision=2)
    now = 0.9
    assert policy.decide(TASK).action == "plan"
    now = 1.0
    assert policy.decide(TASK).action == "code"


def test_a_policy_that_needs_the_episode_is_not_asked_for_a_model(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="chooses which agent acts next"):
        Policy(write(tmp_path)).decide(TASK)


def test_the_command_writes_the_bundle(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from ingest.home import open_home

    home = open_home(tmp_path / "home", create=True)
    run = home / "runs" / "r1"
    write(run / "policy" / "desk")
    services = {"desk": {"verdict": "deploy", "policy_id": "desk@r1", "reasons": []}}
    (run / "manifest.json").write_text(json.dumps({"format": 1, "run_id": "r1", "services": ["desk"]}))
    (run / "verdicts.json").write_text(json.dumps({"services": services}))
    out = tmp_path / "out"
    arguments = ["export", "--home", str(home), "--service", "desk", "--out", str(out), "--target"]
    assert cli.run([*arguments, "litellm"]) == 2
    assert "single calls only" in capsys.readouterr().err
    assert cli.run([*arguments, "agents"]) == 0
    assert capsys.readouterr().out == f"{out}\n"
    assert (out / "example.py").is_file()
