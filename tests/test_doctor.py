"""What the doctor finds, in words, with the next step; exit code 1 when something asks for attention."""

from __future__ import annotations

import json

import pytest
from otlp_traces import START, chat, span, trace_id, traces_body

from ingest import wal
from ingest.converter import run
from ingest.home import open_home
from ingest.options import ConverterOptions
from ingest.pricing import Price
from optimizer import cli, doctor
from optimizer.runtime import encode_features, features_hash, featurise, orchestration_features

MESSAGES = [{"role": "user", "content": "How many apples?"}]
PRICES = (Price("gpt-4o-mini", 1.0, 2.0),)


def store(home, spans, scores=()):
    open_home(home, create=True)
    log = wal.Wal(home / "wal")
    now = START + 10**12
    log.write([wal.Record("traces", "json", now, traces_body(spans))])
    if scores:
        log.write([wal.Record("scores", "json", now, json.dumps(scores).encode())])
    log.close()
    run(home, ConverterOptions(prices=PRICES), lambda: True)
    return {finding.name: finding for finding in doctor.examine(home)}


def decided(number, hashed, vector=None):
    vector = featurise({"messages": MESSAGES}) if vector is None else vector
    return span(
        number,
        chat(gen_ai__conversation__id="s", gen_ai__input__messages=json.dumps(MESSAGES))
        | {"policy.id": "p", "policy.features": encode_features(vector), "policy.features.hash": hashed},
        trace=number,
    )


def test_a_healthy_home_needs_nothing(tmp_path, capsys):
    good = features_hash(featurise({"messages": MESSAGES}))
    found = store(tmp_path, [decided(1, good)], [{"trace_id": trace_id(1), "name": "q", "value": 1}])
    assert [name for name, finding in found.items() if finding.attention] == []
    assert "100.0% of 1 decisions" in found["features"].says
    assert cli.run(["doctor", "--home", str(tmp_path)]) == 0
    told = capsys.readouterr().out
    assert "ok  prices: every model call has a cost" in told
    assert "ok  estimated tokens: every model call has token counts" in told


def test_an_orchestrators_vector_is_not_held_against_the_prompts_of_its_agents(tmp_path):
    row = orchestration_features({"messages": "another text"}, ("plan", "STOP"))
    found = store(
        tmp_path, [decided(1, features_hash(row), row), decided(2, features_hash(featurise({"messages": MESSAGES})))]
    )
    assert "100.0% of 1 decisions" in found["features"].says


def test_every_fault_is_found_with_its_next_step(tmp_path, capsys):
    found = store(
        tmp_path,
        [
            span(1, chat("unheard-of", vendor__secret="x"), trace=1),
            span(2, chat(input_tokens=None, output_tokens=None), trace=2),
            span(3, chat(), trace=3, start_ns=5, end_ns=6),
            span(4, chat(), trace=4, start_ns=START, end_ns=START - 9),
            decided(5, "0" * 16),
        ],
        [{"trace_id": trace_id(77), "name": "stars", "value": 4}],
    )
    ill = {name: finding for name, finding in found.items() if finding.attention}
    assert {"unknown attributes", "prices", "scores", "scales", "clocks", "instrumentations", "features"} <= ill.keys()
    assert all(finding.next_step for finding in ill.values())
    assert {"key": "vendor.secret", "spans": 1} in [dict(row) for row in ill["unknown attributes"].rows]
    assert "unheard-of" in ill["prices"].next_step
    assert ill["prices"].says == (
        "2 of 5 calls (40.0%) have no cost, and 25.0% of the tokens that were told; 1 told no tokens"
    )
    assert {(row["reason"], row["tokens"], row["uncounted_calls"]) for row in ill["prices"].rows} == {
        ("no price for unheard-of", 120, 0),
        ("no input token count", 0, 1),
    }
    assert found["estimated tokens"].says == "1 model calls told no tokens"  # too few calls to learn from, and no text
    assert '[scores."stars"]' in ill["scales"].next_step
    assert {row["fault"] for row in ill["clocks"].rows} == {"starts before 2015", "ends before it starts"}
    assert "0.0% of 1 decisions" in ill["features"].says
    assert cli.run(["doctor", "--home", str(tmp_path), "--json"]) == 1
    told = json.loads(capsys.readouterr().out)
    assert told["attention"] is True
    assert told["findings"][0]["attention"] is True  # what asks for attention comes first


@pytest.mark.parametrize("many", [3, 30])
def test_long_findings_are_cut_in_text_only(many):
    finding = doctor.Finding("x", "y", True, "z", [{"key": n, "none": None} for n in range(many)])
    text = doctor.as_text(finding)
    assert text.count("key ") == min(many, doctor.SHOWN)
    assert ("more; --json shows all" in text) == (many > doctor.SHOWN)
    assert "none" not in text
    assert text.endswith("next: z")
