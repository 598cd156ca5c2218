"""Probabilities that follow from a gateway's weights, for calls whose telemetry does not carry them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from test_decisions import CALLS, SCORES, call, message
from test_pipeline import PRICES, SETTINGS, write_log

from ingest.errors import WorkError
from ingest.home import open_home
from ingest.importers.otlp_files import import_paths
from ingest.options import ConverterOptions
from optimizer import pipeline, stated_propensities
from optimizer.decisions import find_decisions
from optimizer.stated_propensities import Rule, Stated
from optimizer.static_rules import Condition

SECOND = 10**9
LONG = message("word " * 200)
BLIND = Rule((), {"small": 0.75, "gpt-4o": 0.25})
SHORT_RULE = Rule((Condition("words", at_most=100.5),), {"small": 0.9, "gpt-4o": 0.1})
LONG_RULE = Rule((Condition("words", above=100.5),), {"gpt-4o": 1.0})


def decided(*calls: dict[str, Any], stated: Stated) -> list[dict[str, Any]]:
    frame = stated_propensities.filled(pl.DataFrame(calls, schema=CALLS), [stated])
    assert frame.columns == list(CALLS)
    return find_decisions(frame, pl.DataFrame([], schema=SCORES), {"app": "quality"}).to_dicts()


def app(*rules: Rule, from_ns: int = 0, to_ns: int | None = None) -> Stated:
    return Stated("app", from_ns, to_ns, rules)


def test_a_weight_is_the_probability_of_the_model_that_answered() -> None:
    (found,) = decided(call(model_requested="app", model_returned="gpt-4o-2024-08-06"), stated=app(BLIND))
    assert (found["action"], found["propensity"], found["propensity_origin"]) == ("gpt-4o", 0.25, "logged")
    assert (found["candidates"], found["probabilities"]) == (["small", "gpt-4o"], [0.75, 0.25])


def test_a_provider_before_the_name_and_a_group_as_answer_are_seen_through() -> None:
    (found,) = decided(call(model_requested="openai/small", model_returned="app"), stated=app(BLIND))
    assert (found["action"], found["propensity"]) == ("small", 0.75)


def test_the_longest_name_that_fits_is_the_action() -> None:
    rule = Rule((), {"gpt-4o": 0.5, "gpt-4o-mini": 0.5})
    (found,) = decided(call(model_returned="gpt-4o-mini-2024-07-18"), stated=app(rule))
    assert found["action"] == "gpt-4o-mini"


def test_the_rule_is_the_one_whose_conditions_the_request_meets() -> None:
    calls = [
        call("a", model_returned="small", input_text=message("hello")),
        call("b", model_returned="gpt-4o", input_text=message("hello"), start_ns=1),
        call("c", model_returned="gpt-4o", input_text=LONG, start_ns=2),
    ]
    found = decided(*calls, stated=app(SHORT_RULE, LONG_RULE, BLIND))
    assert [one["propensity"] for one in found] == [0.9, 0.1, 1.0]


@pytest.mark.parametrize(
    "fields",
    [
        {"model_returned": "other"},  # a fallback
        {"model_returned": "small", "service": "else"},
        {"model_returned": "small", "start_ns": -1},
        {"model_returned": "small", "start_ns": 10 * SECOND},
        {"model_returned": "small", "input_text": None},
        {"model_returned": "gpt-4o", "input_text": LONG, "policy_action": "small"},
        {"model_returned": "small", "policy_propensity": 0.5},
    ],
)
def test_what_is_not_stated_or_known_otherwise_stays(fields: dict[str, Any]) -> None:
    frame = pl.DataFrame([call(**fields)], schema=CALLS)
    stated = app(SHORT_RULE, BLIND, to_ns=10 * SECOND)
    assert stated_propensities.filled(frame, [stated]).equals(frame)


def test_no_file_changes_nothing(tmp_path: Path) -> None:
    frame = pl.DataFrame([call()], schema=CALLS)
    assert stated_propensities.filled(frame, stated_propensities.read(tmp_path)).equals(frame)


GOOD: dict[str, Any] = {
    "schema": "retroute-propensities/1",
    "policy_id": "app",
    "version": "r1",
    "revision": 3,
    "virtual_model": "app",
    "from": "2026-11-30T10:00:00+00:00",
    "to": "2026-12-01T10:00:00+00:00",
    "gateway": "bifrost",
    "gateways": {
        "litellm": [{"rule": "default", "when": [], "weights": {"small": 1.0}}],
        "bifrost": [
            {
                "rule": "rule-1",
                "when": [{"feature": "words", "above": None, "at_most": 100.5}],
                "weights": {"small": 0.9, "gpt-4o": 0.1},
            },
            {"rule": "default", "when": [], "weights": {"small": 0.75, "gpt-4o": 0.25}},
        ],
    },
}


def put(home: Path, said: object) -> None:
    (home / "propensities").mkdir(exist_ok=True)
    (home / "propensities" / "app.json").write_text(json.dumps(said))


def test_a_file_says_which_gateway_follows_it_and_when(tmp_path: Path) -> None:
    put(tmp_path, GOOD)
    noon = 1_796_032_800 * SECOND
    assert stated_propensities.read(tmp_path) == [Stated("app", noon, noon + 86_400 * SECOND, (SHORT_RULE, BLIND))]


def without(name: str) -> Callable[[dict[str, Any]], object]:
    return lambda said: said.pop(name)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda said: said.update(schema="retroute-propensities/2"), "not of schema"),
        (lambda said: said.update(gateway=None), '"gateway" must name the one that follows it: litellm, bifrost'),
        (lambda said: said.update({"from": "2026-11-30T10:00:00"}), "no offset"),
        (lambda said: said["gateways"].update(bifrost=[]), "bifrost has no rules"),
        (lambda said: said["gateways"]["bifrost"][0].update(weights={"small": 0.5}), "weights of rule-1"),
        (lambda said: said["gateways"]["bifrost"][0]["when"][0].update(feature="mood"), "depends on mood"),
        (without("from"), "it lacks 'from'"),
        (without("virtual_model"), "it lacks 'virtual_model'"),
    ],
)
def test_a_file_that_cannot_be_used_is_named_with_its_reason(
    change: Callable[[dict[str, Any]], object], reason: str, tmp_path: Path
) -> None:
    said = json.loads(json.dumps(GOOD))
    change(said)
    put(tmp_path, said)
    with pytest.raises(WorkError, match=reason) as caught:
        stated_propensities.read(tmp_path)
    assert "app.json" in caught.value.message


def test_no_json_is_named_too(tmp_path: Path) -> None:
    (tmp_path / "propensities").mkdir()
    (tmp_path / "propensities" / "app.json").write_text("{")
    with pytest.raises(WorkError, match=r"cannot use .*app\.json"):
        stated_propensities.read(tmp_path)


def test_the_next_night_learns_from_the_stated_probabilities(tmp_path: Path) -> None:
    home = open_home(tmp_path / "home", create=True)
    log = write_log(tmp_path / "log.jsonl", 300, propensities=False)
    import_paths(home, [log], ConverterOptions(prices=PRICES, quiet_s=0.0))
    weights = {"good-cheap": 0.4, "bad-dear": 0.6}
    rules = {"litellm": [{"rule": "default", "when": [], "weights": weights}]}
    put(home, GOOD | {"from": "2026-01-01T00:00:00+00:00", "to": None, "gateway": "litellm", "gateways": rules})
    run = pipeline.train(home, SETTINGS)
    decisions = pl.read_parquet(home / "runs" / run / "decisions.parquet")
    assert set(decisions["propensity_origin"]) == {"logged"}
    assert decisions["stated"].all()
    assert dict(decisions.select("action", "propensity").unique().iter_rows()) == weights
    pipeline.evaluate(home, run)
    said = json.loads((home / "runs" / run / "verdicts.json").read_text())["services"]
    assert [one["data"]["propensity_origin"] for one in said.values()] == [{"logged": 0, "stated": 300, "estimated": 0}]
