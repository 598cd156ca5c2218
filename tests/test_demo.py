"""The demo's parts on a handful of traces: the replay changes nothing, the truth is exact, nothing is stored twice."""

from __future__ import annotations

import gzip
import json
import shutil
import signal
import subprocess
import sys
import time
from itertools import islice
from pathlib import Path

import polars as pl
import pytest
from conftest import run_demo
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.exporter.otlp.proto.common._log_encoder import encode_logs
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans

from ingest.errors import WorkError
from ingest.home import collector_runs
from ingest.lake import Lake
from ingest.otlp import decode
from optimizer import demo, replay, truth
from optimizer.prediction import forecast_of

ROOT = Path(demo.__file__).resolve().parent.parent
SAMPLE = sorted(demo.sample_folder().glob("*.otlp.jsonl.gz"))


@pytest.mark.parametrize("file", SAMPLE, ids=lambda file: file.name.partition(".")[0])
def test_rebuilt_spans_and_logs_equal_the_recorded_ones(file):
    rebuild = replay.Rebuilder()
    batches = list(islice(replay.read([file]), 3)) + list(replay.read([file]))[-1:]
    spans = [span for batch in batches for span in batch.spans]
    logs = [log for batch in batches for log in batch.logs]
    sent_spans = encode_spans([rebuild.span(span) for span in spans]).SerializeToString()
    sent_logs = encode_logs([rebuild.log(log) for log in logs]).SerializeToString()
    assert spans
    assert ordered(decode(sent_spans, "traces", "protobuf").spans) == ordered(spans)
    assert ordered(decode(sent_logs, "logs", "protobuf").logs) == ordered(logs)


def ordered(records):
    return sorted(records, key=repr)


def test_line_that_is_no_otlp_names_file_and_line(tmp_path):
    with gzip.open(tmp_path / "x.otlp.jsonl.gz", "wb") as file:
        file.write(b'{"resourceSpans": []}\nnonsense\n')
    with pytest.raises(WorkError, match=r"x\.otlp\.jsonl\.gz, line 2"):
        list(replay.read([tmp_path / "x.otlp.jsonl.gz"]))


OUTCOMES = pl.DataFrame(
    {
        "trace_id": ["t1", "t1", "t2", "t2", "t3", "t3"],
        "action": ["a", "b"] * 3,
        "logging_probability": [0.75, 0.25, 1.0, 0.0, 0.5, 0.5],
        "cost_usd": [4.0, 1.0, 2.0, 1.0, 9.0, 9.0],
        "quality": [1.0, 0.0, 1.0, 1.0, 0.0, 0.0],
        "latency_s": [2.0, 1.0, 4.0, 1.0, 7.0, 7.0],
    }
)


def chosen(policy, **probabilities):
    rows = [
        (trace, policy, action, p)
        for trace, pair in probabilities.items()
        for action, p in zip("ab", pair, strict=True)
    ]
    return pl.DataFrame(rows, schema=["trace_id", "policy", "action", "probability"], orient="row")


def test_truth_is_the_mean_over_the_certified_traces_only():
    found = truth.values(OUTCOMES, chosen("suggested", t1=(0.0, 1.0), t2=(0.5, 0.5)))
    assert found["today"] == truth.Truth(cost_usd=(3.25 + 2) / 2, quality=(0.75 + 1) / 2, latency_s=(1.75 + 4) / 2)
    assert found["suggested"] == truth.Truth(cost_usd=(1 + 1.5) / 2, quality=0.5, latency_s=(1 + 2.5) / 2)


def test_policy_that_acts_as_logged_changes_nothing():
    logged = chosen("suggested", t1=(0.75, 0.25), t2=(1.0, 0.0), t3=(0.5, 0.5))
    done = truth.with_truth({"table": []}, truth.values(OUTCOMES, logged))
    changes = [done[key]["truth"] for key in ("savings_usd_per_1k", "quality_change", "latency_change_s")]
    assert changes == pytest.approx([0, 0, 0], abs=1e-12)


@given(st.permutations(range(6)), st.permutations(range(6)))
def test_order_of_rows_does_not_change_the_truth(first, second):
    policy = chosen("suggested", t1=(0.1, 0.9), t2=(0.3, 0.7), t3=(0.6, 0.4))
    assert truth.values(OUTCOMES[first], policy[second]) == truth.values(OUTCOMES, policy)


def test_action_without_known_outcome_has_no_truth():
    policy = chosen("suggested", t1=(0.5, 0.5)).with_columns(action=pl.Series(["a", "new"]))
    found = truth.values(OUTCOMES, policy)
    assert found["suggested"] is None
    done = truth.with_truth({"quality_change": {"value": 0.1}, "table": []}, found)
    assert done["quality_change"] == {"value": 0.1, "truth": None}


def test_truth_stands_beside_refused_estimates_too():
    refused = {"value": None, "low": None, "high": None, "kind": None, "reason": "no overlap"}
    row = {"policy": "suggested", "cost_usd_per_1k": refused, "quality": refused, "latency_s": refused}
    service = {"savings_usd_per_1k": refused, "table": [row]}
    done = truth.with_truth(service, truth.values(OUTCOMES, chosen("suggested", t1=(0.0, 1.0))))
    assert done["savings_usd_per_1k"] == {**refused, "truth": 1000 * (3.25 - 1.0)}
    assert done["table"][0]["cost_usd_per_1k"] == {**refused, "truth": 1000.0}
    assert "truth" not in service["table"][0]["quality"]


@pytest.fixture
def small_sample(tmp_path, monkeypatch):
    """The first requests of one service, with its settings and truth."""
    folder = tmp_path / "sample"
    (folder / "truth").mkdir(parents=True)
    source = demo.sample_folder()
    shutil.copy(source / "truth" / "assistant.parquet", folder / "truth")
    settings = (source / "retroute.toml").read_text(encoding="utf-8")
    (folder / "retroute.toml").write_text(f"[settle]\nquiet_s = 0.2\n{settings}", encoding="utf-8")
    with gzip.open(source / "assistant.otlp.jsonl.gz") as lines:
        requests = list(lines)
    traces = next(line for line in requests if b"resourceSpans" in line)
    logs = next(line for line in requests if b"resourceLogs" in line)
    with gzip.open(folder / "assistant.otlp.jsonl.gz", "wb") as file:
        file.writelines([traces, logs])
    monkeypatch.setattr(demo, "sample_folder", lambda: folder)
    return decode(traces, "traces", "json"), decode(logs, "logs", "json")


def test_demo_twice_sends_all_stores_each_once_and_keeps_edited_settings(small_sample, tmp_path, monkeypatch):
    spans, logs = small_sample
    home = tmp_path / "home"
    seen = []

    def nightly(at, settings, services, progress):
        assert not (at / "collector.json").exists()  # stopped by then
        seen.append((at, settings.settle.quiet_s))
        return {"calls": 1, "decisions": 1, "seconds": 0.0, "services": {}}

    monkeypatch.setattr("optimizer.pipeline.nightly", nightly)
    for quiet_s in (0.2, 0.3):
        result = demo.run(home)
        assert result["spans_sent"] == result["spans_stored"] == len(spans.spans)
        with Lake.open(home) as lake:
            counts = lake.query("counts").row(0, named=True)
        assert (counts["spans"], counts["unsettled_traces"]) == (len(spans.spans), 0)
        assert counts["scores"] == len(logs.logs)
        assert seen.pop() == (home, quiet_s)
        settings = home / "retroute.toml"
        settings.write_text(settings.read_text(encoding="utf-8").replace("quiet_s = 0.2", "quiet_s = 0.3"))


def test_collector_that_cannot_start_says_why(small_sample, tmp_path):
    home = tmp_path / "home"
    with demo.collecting(home, lambda _what, _share: None), pytest.raises(WorkError, match="already running"):
        demo.run(home)


def test_next_commands_name_a_service_that_may_be_deployed(tmp_path):
    services = {"faq": {"verdict": "cannot_tell"}, "assistant": {"verdict": "deploy"}}
    commands = [command for command, _ in demo.next_commands(tmp_path / "my home", {"services": services})]
    assert len(commands) == 3
    assert "--service assistant" in commands[1]
    assert "--unproven" not in commands[1]
    assert f"'{tmp_path / 'my home'}'" in commands[0]


def test_sample_is_found_in_the_checkout():
    assert (demo.sample_folder() / "retroute.toml").is_file()
    assert json.dumps([file.name for file in SAMPLE])


def test_terminated_demo_leaves_no_collector_behind(tmp_path):
    home = tmp_path / "home"
    with (tmp_path / "log").open("w") as log:
        command = [sys.executable, "-m", "optimizer.cli", "demo", "--home", str(home)]
        process = subprocess.Popen(command, stdout=log, stderr=log, cwd=ROOT)
    deadline = time.monotonic() + 60
    while not (home / "collector.json").exists():
        assert process.poll() is None, (tmp_path / "log").read_text()
        assert time.monotonic() < deadline
        time.sleep(0.05)
    process.terminate()
    assert process.wait(60) == 128 + signal.SIGTERM
    assert "Traceback" not in (tmp_path / "log").read_text()
    assert not collector_runs(home)


def test_whole_demo_ends_in_the_honest_verdicts(finished_demo):
    result = finished_demo.result
    assert result["spans_sent"] == result["spans_stored"] > 10_000
    verdicts = {name: service["verdict"] for name, service in result["services"].items()}
    assert verdicts == {"assistant": "deploy", "sql-agent": "deploy", "classifier": "keep", "faq": "cannot_tell"}
    assert all(service["reasons"] for service in result["services"].values())
    assert result["services"]["faq"]["plan"]["text"]


@pytest.mark.parametrize("name", ["assistant", "sql-agent"])
def test_policy_that_may_be_deployed_truly_saves_and_truly_gains(finished_demo, name):
    service = finished_demo.result["services"][name]
    assert service["savings_usd_per_1k"]["truth"] > 0
    assert service["quality_change"]["truth"] > 0
    assert (Path(service["bundle"]) / "policy" / "manifest.json").is_file()


def test_agents_are_orchestrated_and_what_is_said_of_it_holds(finished_demo):
    agent = finished_demo.result["services"]["sql-agent"]
    said = agent["orchestration"]
    for name in ("savings_usd_per_1k", "quality_change", "latency_change_s"):
        ahead = forecast_of(agent["predicted"][name])
        assert ahead is not None
        assert ahead.value == pytest.approx(agent[name]["value"])
    assert said["episodes"] == 2274
    assert said["actions"][-1] == "STOP"
    assert said["rules"]
    assert said["stop_rule"]
    assert sum(said["route"][0]["policy"].values()) == pytest.approx(1.0)
    assert {one["metric"] for one in said["organisation"]} >= {"steps", "active_agents", "cost_usd", "hub_share"}
    assert {row["prompt"] for row in said["friction"]["prompts"]} == {"try_again", "try_again_schema"}
    assert (Path(agent["bundle"]) / "policy_agents.py").is_file()
    assert finished_demo.result["services"]["assistant"]["orchestration"] is None


@pytest.mark.slow
def test_second_demo_into_the_same_home_stores_nothing_twice(finished_demo, tmp_path):
    home = tmp_path / "home"
    shutil.copytree(finished_demo.home, home)
    again, first = run_demo(home).result, finished_demo.result
    for key in ("spans_sent", "spans_stored", "calls", "decisions"):
        assert again[key] == first[key]
    with Lake.open(home) as lake:
        (row,) = lake.sql("select count(*) as n, count(distinct (trace_id, span_id)) as ids from spans").to_dicts()
    assert row["n"] == row["ids"] == first["spans_stored"]
    for name, service in first["services"].items():
        assert again["services"][name]["savings_usd_per_1k"] == service["savings_usd_per_1k"]
