"""Step by step through everything: episodes sent by the real SDK exporter to a real collector, read back as step rows
that say what was emitted, and what the truth says of the same moments."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from test_sample_steps import SERVICE, Told, told, world
from test_sample_traces import FOLDER

from ingest.lake import Lake
from optimizer import config, demo, replay
from optimizer.replay_truth import Moment
from optimizer.runtime import STOP, orchestration_features
from optimizer.sequential.logged import to_episodes
from optimizer.sequential.steps import Steps, find_steps

TRACES = 30


def chosen() -> list[str]:
    """Traces in no order of what they hold."""
    return sorted(told())[:TRACES]


def sample_of(traces: list[str], folder: Path) -> Path:
    """The sample's requests with the records of these traces only."""
    path, wanted = folder / f"{SERVICE}.otlp.jsonl.gz", set(traces)
    with gzip.open(FOLDER / path.name, "rt") as lines, gzip.open(path, "wt") as file:
        for line in lines:
            request, kept = json.loads(line), 0
            for outer, inner, records in (
                ("resourceSpans", "scopeSpans", "spans"),
                ("resourceLogs", "scopeLogs", "logRecords"),
            ):
                for resource in request.get(outer, ()):
                    for scope in resource[inner]:
                        scope[records] = [record for record in scope[records] if record["traceId"] in wanted]
                        kept += len(scope[records])
            if kept:
                file.write(json.dumps(request) + "\n")
    return path


@pytest.fixture(scope="module")
def read_back(tmp_path_factory: pytest.TempPathFactory) -> Steps:
    folder = tmp_path_factory.mktemp("stepwise")
    home = folder / "home"
    home.mkdir()
    (home / config.FILE_NAME).write_text("[settle]\nquiet_s = 0.2\n" + (FOLDER / config.FILE_NAME).read_text())
    batches = list(replay.read([sample_of(chosen(), folder)]))
    with demo.collecting(home, lambda _what, _share: None) as collector:
        with demo._no_proxy():
            sent = replay.send(iter(batches), collector.url, {}, lambda _done: None)
        demo._wait_until_settled(home, collector, sent, lambda _what, _share: None)
    with Lake.open(home) as lake:
        return find_steps(
            lake.query("decision_calls").with_columns(billed_usd="cost_usd", billed_unpriced="unpriced"),
            lake.query("decision_spans"),
            lake.query("scores"),
            {SERVICE: "reward"},
            scored_spans=lake.query("scored_spans"),
            texts=lambda traces: lake.query("step_texts", trace_ids=list(traces)),
        )


def rows_and_moments(steps: Steps) -> Iterator[tuple[dict, Told, Moment]]:
    """Each row with the trace that was emitted, and where the truth says that it stands then."""
    for row in steps.rows.sort("trace_id", "step").iter_rows(named=True):
        one = told()[row["trace_id"]]
        taken = [world().arms.index(name) for name in one.taken[: row["step"]]]
        yield row, one, world().moment(row["trace_id"], taken)


def test_every_decision_is_a_row_with_what_was_logged(read_back: Steps) -> None:
    by_trace = read_back.rows.sort("trace_id", "step").group_by("trace_id", maintain_order=True).agg("step", "action")
    assert dict(zip(by_trace["trace_id"], by_trace["action"].to_list(), strict=True)) == {
        trace: told()[trace].taken for trace in chosen()
    }
    assert all(steps == list(range(len(steps))) for steps in by_trace["step"].to_list())
    for row, one, _ in rows_and_moments(read_back):
        said = one.routes[row["step"]]["attributes"]
        assert row["decision_id"] == f"{row['trace_id']}/{row['step']}"
        assert row["time_ns"] == int(one.routes[row["step"]]["startTimeUnixNano"])
        assert (row["propensity"], row["propensity_origin"]) == (said["policy.propensity"], "logged")
        assert row["candidates"] == json.loads(said["policy.candidates"])
        assert row["probabilities"] == json.loads(said["policy.probabilities"])
        assert row["explored"] == (said["policy.reason"] == "explore")
        assert row["group"] == one.root["attributes"]["gen_ai.conversation.id"]
        assert (row["service"], row["point"]) == (SERVICE, SERVICE)


def test_costs_times_and_qualities_are_those_of_the_truth(read_back: Steps) -> None:
    for row, one, before in rows_and_moments(read_back):
        stops = row["action"] == STOP
        after = before if stops else world().after(before, world().arms.index(row["action"]))
        assert row["cost_usd"] == pytest.approx(after.cost_usd - before.cost_usd, rel=1e-9, abs=1e-15)
        took = world().stop_s if stops else after.latency_s - before.latency_s
        assert row["latency_s"] == pytest.approx(took, abs=1e-6)
        assert row["stop_quality"] == (before.quality if row["step"] else None)
        done = [world().arms.index(name) for name in one.taken if name != STOP]
        assert row["quality"] == world().moment(row["trace_id"], done).quality


def test_features_are_those_that_the_truth_gives_a_policy(read_back: Steps) -> None:
    for row, one, moment in rows_and_moments(read_back):
        messages = [
            {"role": message["role"], "content": message["parts"][0]["content"]}
            for message in json.loads(one.root["attributes"]["gen_ai.input.messages"])
        ]
        expected = orchestration_features({"messages": messages, "history": moment.history}, world().actions)
        found = np.concatenate([row["features"], row["step_features"]])
        assert found == pytest.approx(expected[: len(found)])


def test_the_rows_are_episodes(read_back: Steps) -> None:
    log = to_episodes(read_back.rows, seed=0).log
    assert (len(log), log.action_names[-1], log.propensities_logged) == (TRACES, STOP, True)
    assert log.stops_known[log.step > 0].all()
    assert read_back.rows.filter(pl.col("action") == STOP).height == (log.actions == log.stop).sum() > 0
