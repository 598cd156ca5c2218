"""A session's score is a decision's where the session has no other; else it is none's, and the doctor says so."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest
from otlp_traces import chat, span, trace_id
from test_decisions import CALLS, SCORES, call, score
from test_doctor import store

from optimizer import config, doctor
from optimizer.decisions import find_decisions, quality_name
from optimizer.session_scores import placed
from optimizer.stickiness import once_a_session

WIDE = {**SCORES, "session_id": pl.String, "service": pl.String}


def told(*rows: dict) -> pl.DataFrame:
    return pl.DataFrame(list(rows), schema=WIDE)


def of_session(session: str, value: float = 0.5, **fields: object) -> dict:
    return score(None, value, session_id=session, **fields)


def calls(*places: tuple[str, str, str]) -> pl.DataFrame:
    """(trace, session, service) in their order."""
    rows = [call(t, f"{t}-a", session_id=s, service=of, start_ns=n) for n, (t, s, of) in enumerate(places)]
    return pl.DataFrame(rows, schema=CALLS)


def reached(scores: pl.DataFrame) -> list[tuple[str, str]]:
    return scores.filter(pl.col("trace_id").is_not_null()).select("trace_id", "service").rows()


def test_a_session_of_one_decision_gives_it_its_score() -> None:
    logged, scores = calls(("t1", "s", "app"), ("t2", "other", "app")), told(of_session("s", 0.25))
    found = placed(scores, logged)
    assert reached(found) == [("t1", "app")]
    assert quality_name(found.filter(pl.col("service") == "app"), None) == "quality"
    decisions = find_decisions(logged, found, {"app": "quality"})
    assert dict(decisions.select("trace_id", "quality").iter_rows()) == {"t1": 0.25, "t2": None}


def test_a_session_of_several_decisions_gives_none_of_them_its_score() -> None:
    assert reached(placed(told(of_session("s")), calls(("t1", "s", "app"), ("t2", "s", "app")))) == []


def test_each_service_of_a_session_is_asked_for_itself() -> None:
    logged = calls(("t1", "s", "app"), ("t2", "s", "search"), ("t3", "s", "search"))
    assert reached(placed(told(of_session("s")), logged)) == [("t1", "app")]


def test_of_a_sticky_service_the_session_is_the_decision() -> None:
    logged = calls(("t1", "s", "app"), ("t2", "s", "app"))
    found = placed(told(of_session("s", 0.75)), logged, ["app"])
    assert reached(found) == [("t1", "app")]
    decisions = once_a_session(find_decisions(logged, found, {"app": "quality"}, sticky=["app"]), ["app"], [])
    assert decisions.select("quality", "requests").rows() == [(0.75, 2)]


def test_traces_that_chose_no_model_are_no_decisions() -> None:
    logged = pl.concat([calls(("t1", "s", "app")), calls(("t2", "s", "app")).with_columns(kind=pl.lit("tool"))])
    assert reached(placed(told(of_session("s")), logged)) == [("t1", "app")]


def test_a_score_that_names_a_trace_or_a_response_stays_as_it_is() -> None:
    logged = calls(("t1", "s", "app"), ("t2", "z", "app"))
    scores = told(score("t2", session_id="s", service="app"), score(None, response_id="r", session_id="s"))
    assert placed(scores, logged).equals(scores)


SCORED = [
    {"session_id": "alone", "name": "quality", "value": 1},
    {"session_id": "long", "name": "quality", "value": 1},
    {"session_id": "nobody", "name": "quality", "value": 1},
    {"trace_id": trace_id(77), "name": "quality", "value": 1},
    {"response_id": "unheard-of", "name": "quality", "value": 1},
]


@pytest.fixture
def home(tmp_path: Path) -> Path:
    sessions = {1: "alone", 2: "long", 3: "long"}
    spans = [span(n, chat(gen_ai__conversation__id=name), trace=n) for n, name in sessions.items()]
    store(tmp_path, spans, SCORED)
    return tmp_path


def lost(home: Path) -> doctor.Finding:
    return next(one for one in doctor.examine(home) if one.name == "lost scores")


def test_the_doctor_counts_scores_that_reach_no_decision_by_reason(home: Path) -> None:
    found = lost(home)
    assert found.attention
    assert found.says == (
        "4 scores reach no decision: 1 name only a session that made several decisions; 1 name a session that is not "
        "here; 1 name a trace that is not here; 1 name a response of no call, or of several"
    )
    assert 'episode = "session"' in found.next_step


@pytest.mark.parametrize("setting", ['episode = "session"', "sticky = true"])
def test_the_score_of_a_session_that_is_one_decision_by_the_settings_is_not_lost(home: Path, setting: str) -> None:
    (service,) = {row["service"] for row in lost(home).rows if row["why"] == "several"}
    (home / config.FILE_NAME).write_text(f"[services.{service}]\n{setting}\n")
    assert lost(home).says.startswith("3 scores reach no decision: 1 name a session that is not here;")
