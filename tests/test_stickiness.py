"""A sticky service's decision is its session: one row, one draw, the totals of its requests."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import orjson
import polars as pl
import pytest
from test_decisions import CALLS, SCORES, SECOND, call, score
from test_pipeline import PRICES, SETTINGS, START, attribute

from ingest.errors import ConfigError
from ingest.importers.otlp_files import import_paths
from ingest.lake import Lake
from ingest.options import ConverterOptions
from optimizer import bundle, config, doctor, pipeline, report, runs
from optimizer.config import ServiceSettings
from optimizer.dataset import LoggedDataset
from optimizer.decisions import find_decisions
from optimizer.gate import Limits
from optimizer.logged import OTHER, Logged, to_dataset
from optimizer.runtime import DENSE, Model, Router, encode_features, featurise, of_session, opening
from optimizer.stickiness import once_a_session, sessions_json, words
from optimizer.study import learn

NEEDS = [DENSE.index(name) for name in ("tools", "json_response", "history")]


def found(
    calls: list[dict[str, object]],
    scores: dict[str, float] | None = None,
    sticky: tuple[str, ...] = ("app",),
    inherited: tuple[str, ...] = (),
) -> list[dict[str, object]]:
    """The rows of traces that start in the order given, a second apart."""
    later = [{**one, "start_ns": n * SECOND, "end_ns": (n + 2) * SECOND} for n, one in enumerate(calls)]
    told = [{**score(trace, value), "score_id": trace, "source": "user"} for trace, value in (scores or {}).items()]
    rows = find_decisions(
        pl.DataFrame(later, schema=CALLS),
        pl.DataFrame(told, schema=SCORES),
        {"app": "quality", "b": "quality"},
        {},
        sticky,
    )
    return once_a_session(rows, sticky, inherited).to_dicts()


def drawn(trace: str, action: str = "small", session: str | None = "s", **fields: object) -> dict[str, object]:
    return call(
        trace, session_id=session, policy_action=action, policy_propensity=0.75 if action == "small" else 0.25,
        policy_candidates='["small", "big"]', policy_probabilities="[0.75, 0.25]", **fields,
    )  # fmt: skip


def test_a_session_is_one_row_with_its_totals() -> None:
    (row,) = found(
        [drawn("t1", "big", cost_usd=0.01), drawn("t2", "big", cost_usd=0.02), drawn("t3", "big", cost_usd=0.04)],
        {"t1": 0.0, "t3": 1.0},
        inherited=("t1", "t2", "t3"),
    )
    assert (row["trace_id"], row["group"], row["action"], row["requests"]) == ("t1", "s", "big", 3)
    assert (row["propensity"], row["propensity_origin"], row["probabilities"]) == (0.25, "logged", [0.75, 0.25])
    assert row["cost_usd"] == pytest.approx(0.07)
    assert (row["quality"], row["label_source"], row["latency_s"]) == (0.5, "user", 2.0)


def test_one_unknown_cost_makes_the_sessions_unknown() -> None:
    (row,) = found([drawn("t1"), drawn("t2", cost_usd=None, unpriced="no price")], inherited=("t1", "t2"))
    assert row["cost_usd"] is None
    assert row["quality"] is None


def test_what_an_inherited_session_met_later_belongs_to_its_decision() -> None:
    """A model that could no longer serve was replaced: that is what the draw brought about."""
    (row,) = found([drawn("t1", "big"), drawn("t2", "small")], inherited=("t1", "t2"))
    assert (row["action"], row["propensity"]) == ("big", 0.25)


def test_requests_that_were_drawn_one_by_one_say_nothing_of_keeping_an_action() -> None:
    rows = found([drawn("t1", "big"), drawn("t2", "small"), drawn("u1", "big", "u"), drawn("u2", "big", "u")])
    mixed, kept = rows
    assert (mixed["action"], mixed["propensity"], mixed["candidates"], mixed["requests"]) == (OTHER, None, None, 2)
    assert (kept["action"], kept["propensity"], kept["propensity_origin"]) == ("big", None, None)
    assert sessions_json(pl.DataFrame(rows)) == {"sessions": 2, "requests": 4, "several": 1}
    assert "1 met several models" in words(sessions_json(pl.DataFrame(rows)))


def test_a_session_of_one_request_keeps_its_probability() -> None:
    (row,) = found([drawn("t1", "big")])
    assert (row["action"], row["propensity"], row["requests"]) == ("big", 0.25, 1)


def test_traces_without_a_session_and_other_services_stay_single() -> None:
    rows = found(
        [drawn("t1", session=None), drawn("t2", session=None), drawn("t3", service="b"), drawn("t4", service="b")]
    )
    assert [row["trace_id"] for row in rows] == ["t1", "t2", "t3", "t4"]


def test_inherited_draws_count_once_where_nobody_called_the_service_sticky() -> None:
    calls = [drawn("t1"), drawn("t2"), drawn("t3"), drawn("t4", session="u")]
    rows = found(calls, sticky=(), inherited=("t1", "t2"))
    assert [(row["trace_id"], row["requests"], row["propensity"]) for row in rows] == [
        ("t1", 2, 0.75), ("t3", 1, 0.75), ("t4", 1, 0.75),
    ]  # fmt: skip


def test_a_scores_probability_is_known_of_single_requests_and_of_certain_ones() -> None:
    def chances(*rows: tuple[float | None, float | None]) -> float | None:
        frame = pl.DataFrame(
            find_decisions(
                pl.DataFrame([drawn(f"t{n}", start_ns=n * SECOND) for n in range(len(rows))], schema=CALLS),
                pl.DataFrame([], schema=SCORES),
                {"app": "quality"},
            )
        ).with_columns(
            quality=pl.Series([quality for quality, _ in rows], dtype=pl.Float64),
            label_probability=pl.Series([chance for _, chance in rows], dtype=pl.Float64),
        )
        value: float | None = once_a_session(frame, ["app"], [])["label_probability"].item()
        return value

    assert chances((1.0, 0.25)) == 0.25
    assert chances((1.0, 1.0), (0.0, 1.0)) == 1.0
    assert chances((1.0, 0.25), (0.0, 0.25)) is None
    assert chances((1.0, 1.0), (None, 1.0)) is None


def test_a_sticky_services_features_are_those_of_the_opening() -> None:
    start = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "What is 2 + 3?"}]
    whole = [*start, {"role": "assistant", "content": "5"}, {"role": "user", "content": "Tell a long story"}]
    wrong, right = featurise({"messages": whole}), featurise({"messages": start})
    logged = {"policy_features": encode_features(wrong)}
    (row,) = found([call(input_text=json.dumps(whole), **logged)])
    assert row["features"] == pytest.approx(right.tolist())
    (row,) = found([call(input_text=json.dumps(whole), **logged)], sticky=())
    assert row["features"] == pytest.approx(wrong.tolist())
    other = featurise({"messages": "by the router"})
    (row,) = found([call(input_text=json.dumps(start), policy_features=encode_features(other))])
    assert row["features"] == pytest.approx(other.tolist())  # the conversation was at its opening


def test_more_than_sixteen_actions_keep_one_other() -> None:
    rows = find_decisions(
        pl.DataFrame(
            [call(f"t{n}", model_requested=f"m{n % 20}", session_id=f"s{n}") for n in range(60)], schema=CALLS
        ),
        pl.DataFrame([], schema=SCORES),
        {"app": "quality"},
    )
    mixed = rows.with_columns(action=pl.when(pl.col("trace_id") < "t3").then(pl.lit(OTHER)).otherwise("action"))
    mixed = mixed.with_columns(
        candidates=pl.concat_list("action"), probabilities=pl.lit([1.0]), propensity_origin=pl.lit("logged")
    )
    names = to_dataset(mixed, seed=0).data.action_names
    assert len(names) == len(set(names)) == 16
    assert names[-1] == OTHER


def learned(sticky: bool) -> Model:
    """Of a log in which what is asked for (tools) decides which of two models is right."""
    rng = np.random.default_rng(0)
    n = 600
    contexts = [{"messages": "Hello", "tools": [1] * int(tools)} for tools in rng.random(n) < 0.5]
    features = np.array([featurise(one) for one in contexts], dtype=np.float64)
    tools = features[:, NEEDS[0]] > 0
    actions = rng.integers(0, 2, n)
    data = LoggedDataset(
        features=features,
        actions=actions,
        quality=(rng.random(n) < np.where(tools == actions, 0.9, 0.2)).astype(np.float64),
        cost_usd=np.where(actions == 1, 0.011, 0.01),
        latency_s=np.ones(n),
        behaviour=np.full((n, 2), 0.5),
        groups=np.arange(n),
        time_ns=np.arange(n),
        action_names=("a", "b"),
        propensities_logged=True,
    )
    model = learn(Logged(data, None, 0.0), Limits(), 1.0, epsilon=0.05, seed=0, sticky=sticky).suggestion.model
    assert model is not None
    return model


@pytest.mark.parametrize("sticky", [True, False])
def test_a_sticky_policy_does_not_learn_from_what_may_change_inside_a_session(sticky: bool) -> None:
    model = learned(sticky)
    both = np.array([featurise({"messages": "Hello", "tools": tools}) for tools in ([], [1])])
    shares = model.probabilities(both, np.ones((2, len(model.actions)), dtype=bool))
    assert np.allclose(shares[0], shares[1]) == sticky
    # What is judged by the decisions' own features is what the router does by those without the needs.
    if sticky:
        assert np.allclose(model.probabilities(of_session(both), np.ones((2, len(model.actions)), dtype=bool)), shares)


def test_sticky_is_read_and_refused_beside_orchestrate(tmp_path: Path) -> None:
    file = tmp_path / config.FILE_NAME
    file.write_text("[services.app]\nsticky = true\n")
    assert config.load(tmp_path, environment={}).service("app").sticky
    assert not config.load(tmp_path, environment={}).service("other").sticky
    file.write_text("[services.app]\nsticky = true\norchestrate = true\n")
    with pytest.raises(ConfigError, match=r"services\.app cannot be sticky and orchestrate"):
        config.load(tmp_path, environment={})


SESSIONS, TURNS = 400, 3
SAVED = 1000 * 0.6 * (0.012 - 0.0006)
"""USD per 1,000 sessions if the six in ten that were drawn for the dear model went to the cheap one: three requests of
200 tokens, at 20 and 1 USD a million. A policy that explores saves a little less."""


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A sticky router's own log: the cheap model answers better."""
    folder = tmp_path_factory.mktemp("sticky")
    bundle.write_policy(
        folder / "policy", Model("constant", ("good-cheap", "bad-dear"), {"values": np.array([0.0, 1.0])}, 0.8),
        policy_id="app", version="v1", revision=1, virtual_model="app", incumbent="bad-dear", evaluation={},
        created_at="2026-11-30T00:00:00+00:00", sticky=True,
    )  # fmt: skip
    router, rng = Router.load(folder / "policy"), np.random.default_rng(1)
    spans, logs = [], []
    for number in range(SESSIONS * TURNS):
        session, turn = divmod(number, TURNS)
        messages = [{"role": "user", "content": f"question {session * 7919 % 97}"}]
        for earlier in range(turn):
            messages += [{"role": "assistant", "content": "So."}, {"role": "user", "content": f"and then? {earlier}"}]
        decision = router.decide({"messages": messages, "metadata": {"session": f"s{session}"}})
        start = START + number * SECOND * 10
        prefix = ("policy.", "litellm.metadata.policy.")[session % 2]
        attributes = {
            "gen_ai.operation.name": "chat",
            "gen_ai.request.model": decision.action,
            "gen_ai.conversation.id": f"s{session}",
            "gen_ai.usage.input_tokens": 100,
            "gen_ai.usage.output_tokens": 100,
            "gen_ai.input.messages": json.dumps(messages),
            **{prefix + name.removeprefix("policy."): value for name, value in decision.attributes().items()},
        }
        at = {"traceId": f"{number + 1:032x}", "spanId": f"{number + 1:016x}"}
        spans.append(
            {**at, "name": "chat", "kind": 3, "startTimeUnixNano": str(start), "endTimeUnixNano": str(start + SECOND),
             "attributes": [attribute(key, value) for key, value in attributes.items()]}
        )  # fmt: skip
        good = float(rng.random() < (0.9 if decision.action == "good-cheap" else 0.3))
        scored = [attribute("gen_ai.evaluation.name", "quality"), attribute("gen_ai.evaluation.score.value", good)]
        logs.append(
            {**at, "timeUnixNano": str(start + SECOND), "eventName": "gen_ai.evaluation.result", "attributes": scored}
        )
    resource = {"attributes": [attribute("service.name", "app")]}
    lines = [
        {"resourceSpans": [{"resource": resource, "scopeSpans": [{"spans": spans}]}]},
        {"resourceLogs": [{"resource": resource, "scopeLogs": [{"logRecords": logs}]}]},
    ]
    (folder / "log.jsonl").write_bytes(b"\n".join(map(orjson.dumps, lines)))
    import_paths(folder / "home", [folder / "log.jsonl"], ConverterOptions(quiet_s=0.0, prices=PRICES))
    return folder / "home"


def test_the_lake_knows_which_traces_repeat_a_sessions_draw(home: Path) -> None:
    with Lake.open(home) as lake:
        assert len(lake.query("session_draws")) == SESSIONS * TURNS
        assert "100.0% of" in doctor.features(lake).says


def test_a_night_over_a_sticky_log_judges_sessions_and_learns_a_sticky_policy(home: Path) -> None:
    settings = SETTINGS.__class__(prices=PRICES, services={"app": ServiceSettings(sticky=True)})
    service = pipeline.nightly(home, settings)["services"]["app"]
    assert service["verdict"] in ("deploy", "promising")
    assert service["data"]["decisions"] == SESSIONS
    assert service["data"]["sessions"] == {"sessions": SESSIONS, "requests": SESSIONS * TURNS, "several": 0}
    assert service["data"]["propensity_origin"] == {"logged": SESSIONS, "stated": 0, "estimated": 0}
    rows = pl.read_parquet(home / "runs" / service["run_id"] / "decisions.parquet")
    assert rows["group"].n_unique() == len(rows) == SESSIONS
    # Three requests of 200 tokens, at 1 and 20 USD a million.
    assert dict(rows.group_by("action").agg(pl.col("cost_usd").mean()).iter_rows()) == pytest.approx(
        {"good-cheap": 0.0006, "bad-dear": 0.012}
    )
    assert Router.load(runs.policy_folder(home / "runs" / service["run_id"], "app")).sticky
    assert service["savings_usd_per_1k"]["value"] == pytest.approx(SAVED, rel=0.1)
    assert any("sticky: a decision is a session (400, of 3.0 requests" in line for line in report.reasons(service))


def test_openings_survive_the_way_through_the_lake(home: Path) -> None:
    """What is learned from is what the router saw, whichever request of the session came first."""
    with Lake.open(home) as lake:
        calls = lake.query("decision_calls").with_columns(
            billed_usd=pl.lit(0.0), billed_unpriced=pl.lit(None, pl.String)
        )
    bare = calls.with_columns(policy_features=pl.lit(None, pl.String))
    rows = find_decisions(bare, pl.DataFrame([], schema=SCORES), {"app": None}, {}, ["app"])
    same = rows.group_by("group").agg(pl.col("features").n_unique())
    assert same["features"].unique().to_list() == [1]
    first = featurise(opening({"messages": "question 0"}))
    assert rows.filter(pl.col("group") == "s0")["features"].to_list()[2] == pytest.approx(first.tolist())
