"""The committed sample: what the spans say is what the truth says, and what should be hidden is hidden."""

from __future__ import annotations

import gzip
import json
import math
import os
import subprocess
import sys
import tomllib
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import polars as pl
import pytest

FOLDER = Path(__file__).resolve().parent.parent / "sample_traces"
SERVICES = ("assistant", "sql-agent", "classifier", "faq")
TRACES = {"assistant": 3519, "sql-agent": 2274, "classifier": 1081, "faq": 4000}
LABEL_SHARE = {"assistant": 0.9, "classifier": 1.0, "faq": 0.8}
FINAL_SCORE = {"assistant": "quality", "classifier": "quality", "faq": "quality"}
SINGLE = ("assistant", "classifier", "faq")
"""Services with one decision a trace; test_sample_steps.py reads the other one."""
FIRST = int(datetime(2026, 11, 9, tzinfo=UTC).timestamp()) * 10**9
LAST = int(datetime(2026, 11, 30, tzinfo=UTC).timestamp()) * 10**9


@dataclass(frozen=True)
class Sent:
    """All spans and evaluation events of one service, attributes as plain values."""

    spans: tuple[dict[str, Any], ...]
    events: tuple[dict[str, Any], ...]
    batches: tuple[int, ...]  # spans of each trace request
    times: tuple[int, ...]  # of the last record of each request

    @property
    def traces(self) -> dict[str, list[dict[str, Any]]]:
        found: dict[str, list[dict[str, Any]]] = {}
        for span in self.spans:
            found.setdefault(span["traceId"], []).append(span)
        return found

    @property
    def roots(self) -> dict[str, dict[str, Any]]:
        return {span["traceId"]: span for span in self.spans if "parentSpanId" not in span}


def plain(record: dict[str, Any]) -> dict[str, Any]:
    kinds = {"intValue": int, "doubleValue": float, "stringValue": str, "boolValue": bool}
    values = {a["key"]: next(kinds[k](v) for k, v in a["value"].items()) for a in record["attributes"]}
    return {**record, "attributes": values}


@cache
def sent(service: str) -> Sent:
    spans, events, batches, times = [], [], [], []
    with gzip.open(FOLDER / f"{service}.otlp.jsonl.gz", "rt", encoding="utf-8") as lines:
        for line in lines:
            request = json.loads(line)
            if "resourceSpans" in request:
                found = [plain(s) for r in request["resourceSpans"] for p in r["scopeSpans"] for s in p["spans"]]
                spans += found
                batches.append(len(found))
                times.append(max(int(span["endTimeUnixNano"]) for span in found))
                resources = request["resourceSpans"]
            else:
                found = [plain(e) for r in request["resourceLogs"] for p in r["scopeLogs"] for e in p["logRecords"]]
                events += found
                times.append(max(int(event["timeUnixNano"]) for event in found))
                resources = request["resourceLogs"]
            assert [plain(r["resource"])["attributes"]["service.name"] for r in resources] == [service]
    return Sent(tuple(spans), tuple(events), tuple(batches), tuple(times))


@cache
def truth(service: str) -> pl.DataFrame:
    return pl.read_parquet(FOLDER / "truth" / f"{service}.parquet")


def taken(service: str) -> dict[str, dict[str, Any]]:
    """The truth's row of the logged action, by trace."""
    return {row["trace_id"]: row for row in truth(service).filter(pl.col("logged")).to_dicts()}


@cache
def settings() -> dict[str, Any]:
    return tomllib.loads((FOLDER / "retroute.toml").read_text())


def action_of(spans: list[dict[str, Any]]) -> str:
    chat = next(span["attributes"] for span in spans if span["attributes"]["gen_ai.operation.name"] == "chat")
    strategy = chat.get("gen_ai.prompt.name")
    return chat["gen_ai.request.model"] + (f"|{strategy}" if strategy else "")


def test_files_stay_small() -> None:
    size = sum(path.stat().st_size for path in [*FOLDER.glob("*.gz"), *FOLDER.glob("truth/*.parquet")])
    assert size <= 8 * 1024 * 1024


@pytest.mark.parametrize("service", SERVICES)
def test_each_trace_is_there_once(service: str) -> None:
    spans = sent(service).spans
    assert len({(span["traceId"], span["spanId"]) for span in spans}) == len(spans)
    assert len(sent(service).roots) == sum("parentSpanId" not in span for span in spans) == TRACES[service]
    assert set(sent(service).traces) == set(truth(service)["trace_id"])


@pytest.mark.parametrize("service", SINGLE)
def test_truth_is_complete_and_probabilities_sum_to_one(service: str) -> None:
    frame = truth(service)
    arms = frame["action"].n_unique()
    assert len(taken(service)) == TRACES[service]
    by_trace = frame.group_by("trace_id").agg(
        pl.len(), pl.col("action").n_unique().alias("arms"), pl.col("logging_probability").sum(), pl.col("logged").sum()
    )
    assert by_trace.select(pl.col("len", "arms").unique()).rows() == [(arms, arms)]
    assert by_trace["logging_probability"].to_list() == pytest.approx([1.0] * len(by_trace), abs=1e-12)
    assert by_trace["logged"].unique().to_list() == [1]
    assert frame.null_count().sum_horizontal().item() == 0
    assert frame["quality"].is_between(0, 1).all()
    assert (frame["cost_usd"] > 0).all()
    assert (frame["latency_s"] > 0).all()
    assert (frame.filter(pl.col("logged"))["logging_probability"] > 0).all()


@pytest.mark.parametrize("service", SINGLE)
def test_spans_cost_what_the_truth_says(service: str) -> None:
    prices, rows = {price["model"]: price for price in settings()["prices"]}, taken(service)
    for trace_id, spans in sent(service).traces.items():
        cost = 0.0
        for span in spans:
            attributes = span["attributes"]
            if attributes["gen_ai.operation.name"] == "chat":
                price = prices[attributes["gen_ai.response.model"]]
                cost += attributes["gen_ai.usage.input_tokens"] * price["input"] / 1e6
                cost += attributes["gen_ai.usage.output_tokens"] * price["output"] / 1e6
        assert action_of(spans) == rows[trace_id]["action"]
        assert math.isclose(cost, rows[trace_id]["cost_usd"], rel_tol=1e-12)


@pytest.mark.parametrize("service", SINGLE)
def test_spans_last_as_long_as_the_truth_says(service: str) -> None:
    rows = taken(service)
    for trace_id, span in sent(service).roots.items():
        nanoseconds = int(span["endTimeUnixNano"]) - int(span["startTimeUnixNano"])
        assert nanoseconds == round(rows[trace_id]["latency_s"] * 1e6) * 1000


@pytest.mark.parametrize("service", SINGLE)
def test_scores_are_the_true_qualities(service: str) -> None:
    rows, roots = taken(service), sent(service).roots
    final = [e for e in sent(service).events if e["attributes"]["gen_ai.evaluation.name"] == FINAL_SCORE[service]]
    assert len({event["traceId"] for event in final}) == len(final)
    for event in final:
        root = roots[event["traceId"]]
        assert event["spanId"] == root["spanId"]
        assert event["attributes"]["gen_ai.evaluation.score.value"] == rows[event["traceId"]]["quality"]
        delay_s = (int(event["timeUnixNano"]) - int(root["endTimeUnixNano"])) / 1e9
        assert 60 <= delay_s <= 5 * 3600
        assert event["attributes"].get("gen_ai.response.id") == root["attributes"].get("gen_ai.response.id")
    share, n = LABEL_SHARE[service], TRACES[service]
    # four standard errors of a binomial share; exact where all are labelled
    assert abs(len(final) / n - share) <= 4 * math.sqrt(share * (1 - share) / n)
    assert settings()["services"][service]["quality"] == FINAL_SCORE[service]


@pytest.mark.parametrize("service", SINGLE)
def test_logged_shares_match_the_probabilities(service: str) -> None:
    shares = (
        truth(service)
        .group_by("action")
        .agg(
            pl.col("logged").sum(),
            pl.col("logging_probability").sum().alias("expected"),
            (pl.col("logging_probability") * (1 - pl.col("logging_probability"))).sum().alias("variance"),
        )
    )
    for row in shares.to_dicts():
        # four standard errors of a sum of independent draws; exact where the choice is fixed
        assert abs(row["logged"] - row["expected"]) <= 4 * math.sqrt(row["variance"]) + 1e-6


def test_propensities_are_on_the_deciding_span() -> None:
    rows = {
        key[0]: dict(frame.select("action", "logging_probability").iter_rows())
        for key, frame in truth("assistant").group_by(["trace_id"])
    }
    logged = taken("assistant")
    for span in sent("assistant").spans:
        attributes, probabilities = span["attributes"], rows[span["traceId"]]
        written = zip(
            json.loads(attributes["policy.candidates"]), json.loads(attributes["policy.probabilities"]), strict=True
        )
        assert dict(written) == probabilities
        assert attributes["policy.action"] == logged[span["traceId"]]["action"]
        assert attributes["policy.propensity"] == probabilities[attributes["policy.action"]]
        assert (attributes["policy.id"], attributes["policy.arm"]) == ("logging-v1", "explore")


@pytest.mark.parametrize("service", ["classifier", "faq"])
def test_propensities_are_hidden(service: str) -> None:
    assert not any(key.startswith("policy.") for span in sent(service).spans for key in span["attributes"])


@pytest.mark.parametrize("service", SERVICES)
def test_modelled_latency_is_marked(service: str) -> None:
    marks = {span["attributes"].get("retroute.sample.latency") for span in sent(service).spans}
    assert marks == ({None} if service == "classifier" else {"modelled"})


@pytest.mark.parametrize("service", SERVICES)
def test_times_lie_in_three_weeks_and_requests_come_in_order(service: str) -> None:
    everything = sent(service)
    assert min(int(span["startTimeUnixNano"]) for span in everything.spans) >= FIRST
    assert max(everything.times) < LAST
    assert list(everything.times) == sorted(everything.times)
    assert max(everything.batches) <= 200


@pytest.mark.parametrize("service", SERVICES)
def test_sessions_are_short_and_do_not_overlap(service: str) -> None:
    sessions: dict[str, list[tuple[int, int]]] = {}
    for span in sent(service).roots.values():
        times = (int(span["startTimeUnixNano"]), int(span["endTimeUnixNano"]))
        sessions.setdefault(span["attributes"]["gen_ai.conversation.id"], []).append(times)
    assert {len(times) for times in sessions.values()} == ({3, 6} if service == "sql-agent" else set(range(1, 7)))
    for times in sessions.values():
        ordered = sorted(times)
        assert all(before[1] < after[0] for before, after in pairwise(ordered))


def test_classifier_latency_is_cut_where_readme_says() -> None:
    latency = truth("classifier")["latency_s"]
    highest = latency.max()
    assert f"({highest:.3f} s)" in (FOLDER / "README.md").read_text()
    assert (latency == highest).sum() == 4  # the three longest are cut to the fourth


def test_faq_has_no_overlap() -> None:
    longest = dict.fromkeys(truth("faq")["action"].unique(), 0)
    shortest = dict.fromkeys(longest, 10**9)
    for span in sent("faq").spans:
        message = json.loads(span["attributes"]["gen_ai.input.messages"])[0]
        length, action = len(message["parts"][0]["content"]), span["attributes"]["gen_ai.request.model"]
        longest[action], shortest[action] = max(longest[action], length), min(shortest[action], length)
    assert longest["mixtral-8x7b-instruct"] == 250 < shortest["gpt-4-1106-preview"]
    assert set(truth("faq")["logging_probability"].unique()) == {0.0, 1.0}


@pytest.mark.parametrize("service", SINGLE)
def test_incumbent_is_an_arm(service: str) -> None:
    assert settings()["services"][service]["incumbent"] in set(truth(service)["action"])


def test_readme_tables_are_the_truth(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(FOLDER))
    from tables import table

    text = (FOLDER / "README.md").read_text()
    for service in SINGLE:
        assert f"<!-- truth {service} -->\n{table(truth(service))}\n<!-- end -->" in text


@pytest.mark.skipif("SAMPLE_DATA" not in os.environ, reason="SAMPLE_DATA names no data folder")
def test_build_reproduces_the_committed_files(tmp_path: Path) -> None:
    data = os.environ["SAMPLE_DATA"]
    subprocess.run([sys.executable, FOLDER / "build.py", "--data", data, "--out", tmp_path], check=True)
    for service in SERVICES:
        script = [f"truth/{service}.json"] if service == "sql-agent" else []
        for name in (f"{service}.otlp.jsonl.gz", f"truth/{service}.parquet", *script):
            assert (tmp_path / name).read_bytes() == (FOLDER / name).read_bytes(), name
