"""What LiteLLM's proxy sends of requests that a policy routed, in both versions of its telemetry: one decision each,
joined to its call, its cost and its fallback.

The bodies are those of the real proxy (1.108.7): two requests that the chosen model answered, and one whose model was
down, so that the incumbent answered after it.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from ingest import converter, wal
from ingest.lake import Lake
from ingest.options import ConverterOptions
from ingest.pricing import Price
from optimizer import doctor
from optimizer.decisions import find_decisions
from optimizer.sequential.steps import find_steps

GOLDEN = Path(__file__).parent / "golden" / "routed"
SERVICE = "helpdesk"
SMALL, MID, BIG = ("small-1", "mid-7b", "big-3")
PRICES = (Price(SMALL, 0.2, 0.8), Price(MID, 1.0, 4.0), Price(BIG, 4.0, 16.0))
MID_TRACE, BIG_TRACE, FALLEN = (f"315bd5a1{number:024x}" for number in (1, 3, 11))
NO_SCORES = pl.DataFrame(
    schema=dict.fromkeys(("score_id", "trace_id", "span_id", "response_id", "name", "source"), pl.String)
    | {"value01": pl.Float64, "time_ns": pl.Int64, "service": pl.String}
)

Change = Callable[[Any], bool]
"""A span -> whether to keep it; may change its attributes."""


def stored(folder: Path, version: str, change: Change = lambda span: True) -> Path:
    body = ExportTraceServiceRequest()
    body.ParseFromString((GOLDEN / f"litellm_{version}.traces.pb").read_bytes())
    for resource in body.resource_spans:
        for scope in resource.scope_spans:
            kept = [span for span in scope.spans if change(span)]
            del scope.spans[:]
            scope.spans.extend(kept)
    home = folder / "home"
    Lake.open(home, write=True).close()
    log = wal.Wal(home / "wal")
    log.write([wal.Record("traces", "protobuf", 1, body.SerializeToString())])
    log.close()
    converter.run(home, ConverterOptions(quiet_s=0.0, commit_s=0.0, prices=PRICES), lambda: True)
    return home


@pytest.fixture(scope="module", params=["v1", "v2"])
def home(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return stored(tmp_path_factory.mktemp("routed"), request.param)


def decisions(home: Path) -> dict[str, dict[str, Any]]:
    with Lake.open(home) as lake:
        calls = lake.query("decision_calls").with_columns(billed_usd="cost_usd", billed_unpriced="unpriced")
        found = find_decisions(calls, NO_SCORES, {})
    return {row["trace_id"]: row for row in found.to_dicts()}


def calls(home: Path) -> pl.DataFrame:
    with Lake.open(home) as lake:
        return lake.query("calls", service=SERVICE, since_ns=None, until_ns=None)


def test_the_model_that_answered_is_no_alias(home: Path) -> None:
    answered = calls(home).filter(pl.col("status") == "ok")
    assert dict(answered.select("trace_id", "model_returned").iter_rows()) == {
        MID_TRACE: MID,
        BIG_TRACE: BIG,
        FALLEN: BIG,
    }


def test_a_decision_is_the_policys_choice_with_its_probabilities(home: Path) -> None:
    found = decisions(home)
    assert {trace: row["action"] for trace, row in found.items()} == {MID_TRACE: MID, BIG_TRACE: BIG, FALLEN: SMALL}
    for row in found.values():
        assert row["candidates"] == [SMALL, MID, BIG]
        assert row["probabilities"] == pytest.approx([0.2, 0.2, 0.6])
        assert (row["propensity"], row["propensity_origin"]) == (
            pytest.approx(0.6 if row["action"] == BIG else 0.2),
            "logged",
        )


def test_what_the_choice_brought_about_includes_its_fallback(home: Path) -> None:
    """The failed attempt was not billed, so the trace costs what the incumbent's answer cost: never nothing, never
    unknown. Its time is that of all attempts."""
    fallen, own = decisions(home)[FALLEN], calls(home).filter(pl.col("trace_id") == FALLEN)
    answer = own.filter(pl.col("status") == "ok").row(0, named=True)
    assert fallen["cost_usd"] == pytest.approx((answer["input_tokens"] * 4.0 + answer["output_tokens"] * 16.0) / 1e6)
    assert fallen["latency_s"] == pytest.approx((own["end_ns"].max() - own["start_ns"].min()) / 1e9)
    assert own.filter(pl.col("status") == "error")["unpriced"].to_list() == ["failed without usage"]


def test_a_request_is_one_decision_however_many_spans_repeat_it(home: Path) -> None:
    with Lake.open(home) as lake:
        spans = lake.query("decision_spans")
        rows = lake.query("decision_calls").with_columns(billed_usd="cost_usd", billed_unpriced="unpriced")
        steps = find_steps(rows, spans, NO_SCORES, {})
    assert sorted(spans["trace_id"]) == sorted([MID_TRACE, BIG_TRACE, FALLEN])
    assert spans["policy_features"].null_count() == 0  # the call has them from the span around it
    assert steps.points.to_dicts() == [
        {"service": SERVICE, "point": "chat", "orchestrated": False, "why": "no trace has two decisions"}
    ]


def test_the_doctor_finds_fallbacks_and_features_by_instrumentation(home: Path) -> None:
    with Lake.open(home) as lake:
        fallen, agreeing = doctor.fallbacks(lake), doctor.features(lake)
    assert fallen.rows == [
        {"service": SERVICE, "action": SMALL, "answered_by": BIG, "calls": 1, "routed": 1, "of_service": 3}
    ]
    assert fallen.says.startswith("1 of 3 routed calls (33.3%)")
    assert fallen.attention
    (row,) = agreeing.rows
    assert (row["decisions"], row["agree"], row["instrumentation"].partition(" ")[0]) == (3, 1.0, "litellm")


def test_a_decision_is_read_from_metadata_as_python_writes_it(tmp_path: Path) -> None:
    """As without `baggage_metadata_keys` and without the proxy's server span: in the SDK."""

    def bare(span: Any) -> bool:
        kept = [one for one in span.attributes if "policy." not in one.key]
        del span.attributes[:]
        span.attributes.extend(kept)
        return bool(span.name in ("litellm_request", "raw_gen_ai_request"))

    with_all, without = decisions(stored(tmp_path / "all", "v1")), decisions(stored(tmp_path / "bare", "v1", bare))
    for trace, row in with_all.items():
        for name in ("action", "propensity", "candidates", "probabilities", "cost_usd"):
            assert without[trace][name] == row[name]


@pytest.mark.parametrize("version", ["v1", "v2"])
def test_draws_that_a_session_inherits_are_known_as_such(tmp_path: Path, version: str) -> None:
    """Of the first request and the third, which are then one decision of their session."""

    def inherited(span: Any) -> bool:
        for one in span.attributes:
            if span.trace_id.hex() in (MID_TRACE, FALLEN) and one.key.endswith("policy.draw"):
                one.value.string_value = "session"
        return True

    with Lake.open(stored(tmp_path, version, inherited)) as lake:
        assert lake.query("session_draws")["trace_id"].to_list() == [MID_TRACE, FALLEN]


def test_a_control_arms_decision_has_its_probability_over_all_arms(tmp_path: Path) -> None:
    """A canary of 20 %: the incumbent has 0.8 + 0.2 * 0.6, and what the policy would do a chance in the log."""

    def control(span: Any) -> bool:
        for one in span.attributes:
            if span.trace_id.hex() == BIG_TRACE and one.key.endswith("policy.arm"):
                one.value.string_value = "control"
            if span.trace_id.hex() == BIG_TRACE and one.key.endswith("policy.propensity"):
                one.value.CopyFrom(type(one.value)(string_value="0.92"))
            if span.trace_id.hex() == BIG_TRACE and one.key.endswith("policy.probabilities"):
                one.value.string_value = "[0.04, 0.04, 0.92]"
        return True

    home = stored(tmp_path, "v2", control)
    found = decisions(home)[BIG_TRACE]
    assert (found["action"], found["propensity"], found["propensity_origin"]) == (BIG, 0.92, "logged")
    assert found["probabilities"] == [0.04, 0.04, 0.92]
    assert calls(home).filter(pl.col("trace_id") == BIG_TRACE)["policy_arm"].to_list() == ["control"]


def test_hashes_alone_tell_whether_features_agree(tmp_path: Path) -> None:
    def without_vectors(span: Any) -> bool:
        kept = [one for one in span.attributes if one.key != "policy.features"]
        del span.attributes[:]
        for one in kept:
            if one.key == "litellm.metadata.policy.features.hash" and span.trace_id.hex() == FALLEN:
                one.value.string_value = "0" * 16
            span.attributes.append(one)
        return True

    with Lake.open(stored(tmp_path, "v2", without_vectors)) as lake:
        found = doctor.features(lake)
    assert found.attention
    assert "66.7% of 3 decisions" in found.says


def test_a_longer_name_of_the_chosen_model_is_no_fallback(tmp_path: Path) -> None:
    def dated(span: Any) -> bool:
        for one in span.attributes:
            if one.key == "litellm.provider.model" and span.trace_id.hex() == MID_TRACE:
                one.value.string_value = "openai/mid-7b-2026-01-01"
        return True

    with Lake.open(stored(tmp_path, "v2", dated)) as lake:
        assert lake.query("fallbacks")["action"].to_list() == [SMALL]
        (row,) = lake.sql("select answered_by from (select model_returned as answered_by, trace_id from settled_calls) "
                          f"where trace_id = '{MID_TRACE}'").to_dicts()  # fmt: skip
    assert json.dumps(row) == '{"answered_by": "mid-7b-2026-01-01"}'
