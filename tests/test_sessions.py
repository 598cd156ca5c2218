"""Sessions as episodes: the traces of a conversation are one, without the time in which its user thought."""

from __future__ import annotations

import json
import random
from pathlib import Path

import polars as pl
import pytest
from otlp_traces import START, chat, span, trace_id, traces_body
from test_decisions import SECOND, message
from test_steps import STEP_SCORES, billed, model, route, step_score, steps

from ingest import wal
from ingest.converter import run
from ingest.home import open_home
from ingest.options import ConverterOptions
from ingest.pricing import Price
from optimizer import config, pipeline
from optimizer.sequential.points import find_points
from optimizer.sequential.sessions import sessions

TOML = """
[services.talk]
episode = "session"

[[prices]]
model = "small"
input = 1.0
output = 2.0

[[prices]]
model = "big"
input = 10.0
output = 20.0
"""


def turn(trace: str, at: float, session: str | None = "s", seconds: float = 1.0, **fields: object) -> dict:
    """A trace of one model call."""
    return model(
        **{"span": f"{trace}-call", "at": at, "seconds": seconds, "trace": trace, "session_id": session, **fields}
    )


def scores(*rows: dict) -> pl.DataFrame:
    blank = {"service": "app", "session_id": None}
    schema = {**STEP_SCORES, "session_id": pl.String, "service": pl.String}
    return pl.DataFrame([{**blank, **row} for row in rows], schema=schema)


def test_the_steps_of_all_traces_of_a_session_follow_each_other() -> None:
    calls = billed(
        [turn("a", 0, model_requested="small"), turn("b", 100, model_requested="big"), turn("c", 7, "other")]
    )
    found = sessions(calls, ["app"])
    rows = steps(found.joined(calls).select(billed([]).columns).to_dicts()).rows
    assert rows.select("trace_id", "step", "action").rows() == [("a", 0, "small"), ("a", 1, "big"), ("c", 0, "small")]
    assert rows["cost_usd"].to_list() == [0.01, 0.01, 0.01]
    assert rows["latency_s"].to_list() == [1.0, 1.0, 1.0]


def test_time_between_traces_is_the_users_and_time_in_a_trace_is_the_apps() -> None:
    rng = random.Random(0)
    for _ in range(200):
        begun, traces = 0.0, []
        for number in range(rng.randint(1, 5)):
            begun += rng.randint(0, 20) / 4
            traces += [
                turn(f"t{number}", begun + rng.randint(0, 8) / 4, seconds=rng.randint(0, 12) / 4, span=f"{number}.{k}")
                for k in range(rng.randint(1, 3))
            ]
        calls = billed(traces)
        joined = sessions(calls, ["app"]).joined(calls)
        assert joined["trace_id"].n_unique() == 1
        assert (joined["end_ns"] - joined["start_ns"]).to_list() == (calls["end_ns"] - calls["start_ns"]).to_list()
        spans = calls.group_by("trace_id").agg(pl.col("start_ns").min(), pl.col("end_ns").max()).sort("start_ns")
        worked, until = 0, 0  # the length of the union of the traces' times
        for _, start, end in spans.rows():
            worked += max(0, end - max(start, until))
            until = max(until, end)
        assert joined["end_ns"].max() - joined["start_ns"].min() == worked


def test_a_trace_without_a_session_and_other_services_stay_as_they_were() -> None:
    calls = billed([turn("a", 0, None), turn("b", 9, None), turn("c", 0, service="else"), turn("d", 9, service="else")])
    assert sessions(calls, ["app"]).joined(calls).equals(calls)
    assert sessions(calls, []).joined(calls) is calls


def test_the_last_score_of_a_session_or_one_of_its_traces_is_its_quality() -> None:
    calls = billed([turn("a", 0), turn("b", 100)])
    found = sessions(calls, ["app"])
    own = scores(
        step_score("a-call", 0.2, at=10, name="quality"),
        {**step_score("b-call", 0.7, at=20, name="quality"), "trace_id": "b"},
    )
    of_session = scores(
        {**step_score(None, 0.4, at=30, name="quality"), "trace_id": None, "session_id": "s", "service": None}
    )
    own = own.with_columns(trace_id=pl.Series(["a", "b"]))
    joined = found.joined(calls).select(billed([]).columns).to_dicts()
    for given, quality in ((own, 0.7), (pl.concat([own, of_session]), 0.4)):
        judged = found.judged(given)
        assert judged.filter(pl.col("trace_id") == "a")["service"].to_list() == ["app"] * len(given)
        rows = steps(joined, scores=judged.select(list(STEP_SCORES)).to_dicts()).rows
        assert rows["quality"].to_list() == [quality, quality]


def test_a_decision_of_a_later_trace_knows_what_the_earlier_ones_gave() -> None:
    calls = billed([turn("a", 0), turn("b", 100)])
    found = sessions(calls, ["app"])
    spans = [route(0.0, "small", "a", span_id="ra"), route(100.0, "big", "b", span_id="rb")]
    joined = found.joined(pl.DataFrame(spans))
    rows = steps(found.joined(calls).select(billed([]).columns).to_dicts(), joined.to_dicts()).rows
    assert rows["action"].to_list() == ["small", "big"]
    assert rows["step_features"][1].to_list()[0] > 0


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """40 conversations of two traces each; half of them scored as a session, half by their last trace."""
    folder, spans, told = tmp_path_factory.mktemp("sessions") / "home", [], []
    for number in range(40):
        for place in (0, 1):
            trace, at = 2 * number + place + 1, START + (100 * number + 60 * place) * SECOND
            share = json.dumps([0.5, 0.5])
            facts = chat(model=("small", "big")[(number >> place) % 2]) | {
                "session.id": f"s{number}", "gen_ai.input.messages": message("next"),
                "policy.id": "p", "policy.propensity": 0.5, **({"policy.version": "r1"} if place else {}),
                "policy.action": ("small", "big")[(number >> place) % 2],
                "policy.candidates": json.dumps(["small", "big"]), "policy.probabilities": share,
            }  # fmt: skip
            spans.append(span(trace, facts, trace=trace, start_ns=at, end_ns=at + SECOND, service="talk"))
        target = {"session_id": f"s{number}"} if number % 2 else {"trace_id": trace_id(2 * number + 2)}
        told.append({**target, "name": "quality", "value": number % 3 / 2, "source": "human", "score_id": f"q{number}"})
    open_home(folder, create=True)
    log, now = wal.Wal(folder / "wal"), START + 10**13
    log.write([wal.Record("traces", "json", now, traces_body(spans))])
    log.write([wal.Record("scores", "json", now, json.dumps(told).encode())])
    log.close()
    run(folder, ConverterOptions(prices=(Price("small", 1.0, 2.0), Price("big", 10.0, 20.0))), lambda: True)
    return folder


def test_a_night_judges_whole_sessions_where_the_settings_say_so(home: Path) -> None:
    (home / config.FILE_NAME).write_text(TOML)
    settings = config.load(home)
    (point,) = find_points(home, settings)
    assert (point.traces, point.decisions, point.steps_median, point.orchestrated) == (40, 80, 2.0, True)
    found = pipeline.nightly(home, settings)["services"]["talk"]
    assert found["orchestration"]["episodes"] == 40
    rows = pl.read_parquet(next((home / "runs").glob("*/steps-talk.parquet")))
    assert rows["quality"].null_count() == 0
    assert set(rows["latency_s"].to_list()) == {1.0}
    decisions = pl.read_parquet(next((home / "runs").glob("*/decisions.parquet")))
    # though only the second trace of a session names one
    assert decisions["policy_version"].to_list() == ["r1"] * 40


def test_a_sticky_service_cannot_have_sessions_for_episodes(tmp_path: Path) -> None:
    (tmp_path / config.FILE_NAME).write_text('[services.talk]\nepisode = "session"\nsticky = true\n')
    with pytest.raises(config.ConfigError, match="a sticky session is one decision"):
        config.load(tmp_path)
