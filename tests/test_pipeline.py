"""A night's work over a real lake: what is written, what is put in force, what is refused."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import orjson
import polars as pl
import pytest

from ingest.importers.otlp_files import import_paths
from ingest.options import ConverterOptions
from ingest.pricing import Price
from optimizer import bundle, doctor, pipeline, report, runs
from optimizer.config import SegmentSettings, ServiceSettings, Settings
from optimizer.gate import Limits
from optimizer.prediction import forecast_of
from optimizer.runtime import Router

PRICES = (Price("good-cheap", 1.0, 1.0), Price("bad-dear", 20.0, 20.0))
SETTINGS = Settings(prices=PRICES)
START = 1_790_000_000_000_000_000


def attribute(key: str, value: object) -> dict:
    kind = {str: "stringValue", int: "intValue", float: "doubleValue"}[type(value)]
    return {"key": key, "value": {kind: value}}


def write_log(
    path: Path,
    n: int = 1800,
    *,
    service: str = "app",
    propensities: bool = True,
    scores: bool = True,
    premium_share: float = 0.0,
    logged: tuple[float, float] = (0.6, 0.4),
) -> Path:
    """One call a trace; the cheap model is right far more often, but never for premium customers, and was drawn for
    four decisions in ten."""
    rng = np.random.default_rng(0)
    spans, logs = [], []
    for i in range(n):
        cheap = rng.random() < 0.4
        trace, span = f"{i + 1:032x}", f"{i + 1:016x}"
        model = "good-cheap" if cheap else "bad-dear"
        attributes = {
            "gen_ai.operation.name": "chat",
            "customer.plan": "premium" if (premium := rng.random() < premium_share) else "free",
            "gen_ai.request.model": model,
            "gen_ai.provider.name": "openai",
            "gen_ai.usage.input_tokens": int(rng.integers(50, 150)),
            "gen_ai.usage.output_tokens": int(rng.integers(50, 150)),
            "gen_ai.input.messages": json.dumps(
                [{"role": "user", "parts": [{"type": "text", "content": f"question {rng.integers(1000)}"}]}]
            ),
        }
        if propensities:
            attributes |= {
                "policy.action": model,
                "policy.propensity": logged[1] if cheap else logged[0],
                "policy.candidates": '["good-cheap", "bad-dear"]',
                "policy.probabilities": json.dumps([logged[1], logged[0]]),
            }
        start = START + i * 10**10
        spans.append(
            {
                "traceId": trace,
                "spanId": span,
                "name": "chat",
                "kind": 3,
                "startTimeUnixNano": str(start),
                "endTimeUnixNano": str(start + 10**9),
                "attributes": [attribute(k, v) for k, v in attributes.items()],
            }
        )
        value = float(rng.random() < (0.3 if not cheap else 0.0 if premium else 0.9))
        logs.append(
            {
                "timeUnixNano": str(start + 2 * 10**9),
                "eventName": "gen_ai.evaluation.result",
                "traceId": trace,
                "spanId": span,
                "attributes": [
                    attribute("gen_ai.evaluation.name", "quality"),
                    attribute("gen_ai.evaluation.score.value", value),
                ],
            }
        )
    resource = {"attributes": [attribute("service.name", service)]}
    lines = [{"resourceSpans": [{"resource": resource, "scopeSpans": [{"spans": spans}]}]}]
    if scores:
        lines.append({"resourceLogs": [{"resource": resource, "scopeLogs": [{"logRecords": logs}]}]})
    path.write_bytes(b"\n".join(map(orjson.dumps, lines)))
    return path


def home_with(folder: Path, **log: object) -> Path:
    home = folder / "home"
    import_paths(home, [write_log(folder / "log.jsonl", **log)], ConverterOptions(quiet_s=0.0, prices=PRICES))  # type: ignore[arg-type]
    return home


@pytest.fixture(scope="module")
def deployed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict]:
    home = home_with(tmp_path_factory.mktemp("deployed"))
    return home, pipeline.nightly(home, SETTINGS)


def test_a_night_puts_a_proven_policy_in_force(deployed: tuple[Path, dict]) -> None:
    home, result = deployed
    service = result["services"]["app"]
    assert service["verdict"] == "deploy"
    assert runs.active(home) == {"app": service["run_id"]}
    assert (Path(service["bundle"]) / "config.yaml").is_file()
    assert result["decisions"] == 1800
    assert service["savings_usd_per_1k"]["low"] > 0
    assert service["data"]["propensity_origin"] == {"logged": 1800, "stated": 0, "estimated": 0}


def test_the_exported_policy_is_the_judged_one(deployed: tuple[Path, dict]) -> None:
    """The router of the bundle gives the certifying decisions the probabilities that were judged."""
    home, result = deployed
    service = result["services"]["app"]
    run = home / "runs" / service["run_id"]
    judged = pl.read_parquet(runs.probabilities_file(run, "app")).filter(pl.col("policy") == "suggested")
    decisions = pl.read_parquet(run / "decisions.parquet")
    model, manifest = bundle.read_policy(Path(service["bundle"]) / "policy")
    features = decisions["features"].to_numpy().astype(np.float32)
    probabilities = model.probabilities(features, np.ones((len(features), len(model.actions)), dtype=bool))
    by_trace = dict(zip(decisions["trace_id"], probabilities, strict=True))
    for trace, action, probability in judged.select("trace_id", "action", "probability").iter_rows():
        assert by_trace[trace][model.actions.index(action)] == pytest.approx(probability)
    assert manifest["version"] == service["run_id"]
    assert Router.load(Path(service["bundle"]) / "policy").decide({"messages": "hello"}).action in model.actions


def test_the_run_folder_holds_what_it_promises(deployed: tuple[Path, dict]) -> None:
    home, result = deployed
    run = home / "runs" / result["services"]["app"]["run_id"]
    names = {path.name for path in run.iterdir()}
    assert {"manifest.json", "decisions.parquet", "estimates.parquet", "verdicts.json", "policy"} <= names
    estimates = pl.read_parquet(run / "estimates.parquet")
    shown = result["services"]["app"]["savings_usd_per_1k"]
    of_saving = (pl.col("metric") == "savings_usd_per_1k") & (pl.col("estimator") == shown["estimator"])
    assert estimates.filter(of_saving)["value"].to_list() == [shown["value"]]
    assert runs.read_json(run / "verdicts.json")["services"] == result["services"]


def test_a_verdict_says_what_the_next_decisions_will_show(deployed: tuple[Path, dict]) -> None:
    service = deployed[1]["services"]["app"]
    for name in ("savings_usd_per_1k", "quality_change", "latency_change_s"):
        found, judged = forecast_of(service["predicted"][name]), service[name]
        assert found is not None
        soon = found.beside(100, 100)
        assert judged["low"] <= found.value <= judged["high"]
        assert soon.high - soon.low >= judged["high"] - judged["low"]


def test_a_run_keeps_how_well_it_predicted_and_who_loses(deployed: tuple[Path, dict]) -> None:
    home, answer = deployed
    said = answer["services"]["app"]
    folder = runs.run_folder(home, None)
    tested = runs.read_json(folder / runs.kept_name("app", "backtest"))
    assert tested["refused"] is None
    assert {trial["policy"] for trial in tested["trials"]} == {"logged", "learned"}
    known = [trial["held"] for trial in tested["trials"] if trial["held"] is not None]
    assert sum(row["trials"] for row in tested["counts"]) == len(known)
    suggested = next(row for row in said["table"] if row["policy"] == "suggested")
    for row in tested["chosen"]:
        assert row["seen"] == suggested[row["metric"]]
    found = runs.read_json(folder / runs.kept_name("app", "regressions"))
    judging = said["support"]["certify_decisions"]
    by_dimension: dict[str, int] = {}
    for part in [*found["segments"], *found["small"]]:
        by_dimension[part["dimension"]] = by_dimension.get(part["dimension"], 0) + part["decisions"]
    assert set(by_dimension.values()) <= {judging}
    assert found["previous"] is None
    decisions = pl.read_parquet(folder / "decisions.parquet")
    assert {row["trace_id"] for row in found["worst"]} <= set(decisions["trace_id"])
    assert decisions["policy_version"].null_count() == len(decisions)  # nothing of ours decided


def test_a_run_is_judged_once(deployed: tuple[Path, dict]) -> None:
    home, result = deployed
    assert pipeline.evaluate(home)["services"] == result["services"]


def test_the_newest_run_is_listed_first_with_its_verdicts(deployed: tuple[Path, dict]) -> None:
    home, result = deployed
    (listed,) = pipeline.list_runs(home)
    assert listed["services"] == {"app": "deploy"}
    assert listed["active"] == ["app"]
    assert listed["run_id"] == result["services"]["app"]["run_id"]


def test_the_last_good_policy_stays_when_a_night_finds_none(deployed: tuple[Path, dict]) -> None:
    home, result = deployed
    strict = Settings(prices=PRICES, services={"app": ServiceSettings(limits=Limits(latency_s=-5.0))})
    second = pipeline.nightly(home, strict)
    assert second["services"]["app"]["verdict"] != "deploy"
    assert runs.active(home) == {"app": result["services"]["app"]["run_id"]}
    assert second["services"]["app"]["bundle"] is None


def test_training_twice_learns_the_same_policy(tmp_path: Path) -> None:
    home = home_with(tmp_path, n=400)
    first, second = (home / "runs" / pipeline.train(home, SETTINGS) for _ in range(2))
    weights = [(run / "policy" / "app" / "weights.npz").read_bytes() for run in (first, second)]
    assert weights[0] == weights[1]
    revisions = [
        json.loads((run / "policy" / "app" / "manifest.json").read_text())["revision"] for run in (first, second)
    ]
    assert revisions == [1, 2]


def test_without_scores_the_verdict_says_so(tmp_path: Path) -> None:
    found = pipeline.nightly(home_with(tmp_path, n=300, scores=False), SETTINGS)["services"]["app"]
    assert found["verdict"] == "cannot_tell"
    assert "quality score" in found["reasons"][0]["got"]
    assert found["policy_id"] is None
    assert found["table"][0]["quality"]["value"] is None


def test_without_decisions_there_is_nothing_to_learn(tmp_path: Path) -> None:
    home = home_with(tmp_path, n=1)
    with pytest.raises(pipeline.NoDecisionsError) as refused:
        pipeline.nightly(home, SETTINGS, ["another"])
    assert refused.value.exit_code == 3
    assert runs.run_ids(home) == []


def test_a_run_under_way_keeps_others_out(tmp_path: Path) -> None:
    home = home_with(tmp_path, n=1)
    with runs.lock(home), pytest.raises(runs.LockHeldError):
        pipeline.nightly(home, SETTINGS)


def test_a_service_cannot_write_outside_its_home(tmp_path: Path) -> None:
    home = home_with(tmp_path, n=300, service="../../../evil")
    found = pipeline.nightly(home, SETTINGS)["services"]
    assert list(found) == ["../../../evil"]
    assert not [path for path in tmp_path.rglob("*evil*") if "%2E" not in path.name and path != tmp_path]
    assert list((home / "runs").glob("*/policy/%2E.%2F..%2F..%2Fevil"))


def with_segment(*values: str) -> Settings:
    segments = {"premium": SegmentSettings("customer.plan", values)}
    return replace(SETTINGS, services={"app": ServiceSettings(segments=segments)})


def test_a_protected_segment_that_loses_keeps_todays_routing(tmp_path: Path) -> None:
    """Over all decisions quality rises; a quarter of them, which no feature shows, lose 30 points."""
    home = home_with(tmp_path, premium_share=0.25)
    assert pipeline.nightly(home, SETTINGS)["services"]["app"]["verdict"] == "deploy"
    found = pipeline.nightly(home, with_segment("premium", "enterprise"))["services"]["app"]
    assert found["verdict"] == "keep"
    broken = [reason for reason in found["reasons"] if not reason["holds"]]
    assert [reason["condition"] for reason in broken] == ["quality stays for premium"]
    assert broken[0]["remedy"] == "keep today's routing for premium"
    assert runs.active(home)["app"] != found["run_id"]


def test_a_protected_segment_that_nothing_is_known_of_is_not_deployed_to(deployed: tuple[Path, dict]) -> None:
    home, _ = deployed
    found = pipeline.nightly(home, with_segment("enterprise"))["services"]["app"]
    assert found["verdict"] == "promising"
    assert "none of the newest decisions is in it" in found["reasons"][0]["got"]


@pytest.mark.parametrize(
    ("logged", "fault"),
    [
        ((0.9, 0.4), "the probabilities do not sum to 1"),
        ((1.0, 0.0), "policy.propensity is not above 0 and at most 1"),
        ((1.4, -0.4), "policy.propensity is not above 0 and at most 1"),
    ],
)
def test_logged_probabilities_that_cannot_be_are_named_and_never_deployed_on(
    tmp_path: Path, logged: tuple[float, float], fault: str
) -> None:
    home = home_with(tmp_path, n=600, logged=logged)
    found = pipeline.nightly(home, SETTINGS)["services"]["app"]
    assert found["verdict"] != "deploy"
    assert found["data"]["propensity_origin"]["estimated"] > 0
    faults = {row["fault"]: row for row in found["data"]["propensity_faults"]}
    assert fault in faults
    assert faults[fault]["trace_id"]
    assert any(fault in line for line in report.fault_lines(found))
    finding = next(one for one in doctor.examine(home) if one.name == "propensities")
    assert finding.attention
    assert {row["fault"] for row in finding.rows} == faults.keys()
