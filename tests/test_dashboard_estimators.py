"""The page on estimators: whether methods agree, whether they predicted well, and what policies then did."""

from __future__ import annotations

import json
import re
import shutil
from functools import partial
from pathlib import Path

import pytest
from dashboard_fixture import RUN, number, refused, verdicts, write_run
from kept_fixture import backtest, keep
from pages_shown import figures_of, table, text
from pages_shown import show as show_page

from dashboard import data, estimators_charts, estimators_data, theme
from dashboard.estimators_data import METRICS

KEYS = ("savings_usd_per_1k", "quality_change", "latency_change_s")


show = partial(show_page, "estimators")


def numbers(metric: str, figure: dict) -> tuple[str, float, float, float]:
    return metric, figure["value"], figure["low"], figure["high"]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("RETROUTE_HOME", str(tmp_path))
    return tmp_path


@pytest.fixture
def full(home: Path) -> Path:
    keep(write_run(home), "alpha", "backtest", backtest())
    return home


def test_an_empty_home_says_what_to_do(home: Path) -> None:
    at = show()
    assert not at.exception
    assert "Nothing has arrived yet" in text(at)


def test_every_method_stands_with_its_interval_and_kind(full: Path) -> None:
    at = show(service="alpha")
    assert not at.exception
    rows = verdicts()["services"]["alpha"]["estimators"]
    expected = [numbers(key, row[key]) for row in rows for key in KEYS if row[key]["value"] is not None]
    assert figures_of(table(at, "estimators")) == expected
    kinds = table(at, "estimators").count('class="rr-kind"')
    assert kinds == len(expected)
    assert "a certificate needs every outcome" in table(at, "estimators")


def test_the_lead_counts_what_held_and_what_chance_alone_fails(full: Path) -> None:
    counts = backtest()["counts"]
    trials, held = sum(one["trials"] for one in counts), sum(one["held"] for one in counts)
    assert (trials, held) == (32, 30)
    at = show(service="alpha")
    assert f"Of {trials} predictions" in text(at)
    assert f"{held} held (94%); about 2 are expected to fail by chance" in text(at)


def test_methods_that_part_are_named_before_anything_else(full: Path) -> None:
    said = verdicts()
    said["services"]["alpha"]["disagreement"] = {"quality": "DM and DR differ by 3.1 standard errors: the model is off"}
    (full / "runs" / RUN / "verdicts.json").write_text(json.dumps(said))
    at = show(service="alpha")
    assert "The methods do not agree: of quality, DM and DR differ by 3.1 standard errors: the model is off." in text(
        at
    )


def test_the_table_counts_each_method_and_outcome(full: Path) -> None:
    rows = re.findall(r"<tr>(.*?)</tr>", table(show(service="alpha"), "counts"))[1:]
    cells = [re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row) for row in rows]
    assert cells[0] == ["What was logged", "Outcome model (DM)", "3 of 3", "2 of 3", "2 of 2", "7 of 8"]
    assert cells[1] == ["What was logged", "Doubly robust (DR)", "3 of 3", "3 of 3", "2 of 2", "8 of 8"]


def test_policy_and_method_are_chosen_by_the_url_and_change_it(full: Path) -> None:
    at = show(service="alpha", tested="logged", method="DM")
    tested, method = at.button_group(key="estimators-tested"), at.button_group(key="estimators-method")
    assert (tested.value, method.value) == ("logged", "DM")
    assert len(at.get("vega_lite_chart")) == 6
    tested.set_value("learned").run()
    assert at.query_params["tested"] == ["learned"] or at.query_params["tested"] == "learned"
    assert not show(service="alpha", tested="omega", method="<b>").exception


def test_the_charts_draw_what_was_predicted_and_seen(full: Path) -> None:
    found = estimators_data.load(data.runs()[0].services["alpha"])
    assert found is not None
    rows = [one for one in found.trials if (one.policy, one.estimator) == ("learned", "DM")]
    drawn = estimators_charts.trials(rows, "quality", theme.LIGHT).to_dict()
    (values,) = [one for one in drawn["datasets"].values() if one and "predicted" in one[0]]
    said = [
        one
        for one in backtest()["trials"]
        if (one["policy"], one["estimator"], one["metric"]) == ("learned", "DM", "quality")
    ]
    assert [one["predicted"] for one in values] == pytest.approx([100 * one["predicted"]["value"] for one in said])
    assert [one["seen"] for one in values] == pytest.approx([100 * one["seen"]["value"] for one in said])
    assert [one["held"] for one in values] == [True, False, True]
    assert theme.FAILS in json.dumps(drawn)


def test_predictions_stand_beside_what_came(full: Path) -> None:
    at, said = show(service="alpha"), backtest()
    for label, rows in (("chosen", said["chosen"]), ("past-0", said["in_force"][0]["figures"])):
        expected = [numbers(f"{side}_{row['metric']}", row[side]) for row in rows for side in ("predicted", "seen")]
        assert figures_of(table(at, label)) == expected
    assert ["yes" in table(at, "chosen"), "no" in table(at, "chosen")] == [True, True]
    assert "Run 20260301T021500Z, 812 decisions under it" in text(at)


def test_a_past_rollout_stands_beside_its_prediction(full: Path) -> None:
    metrics = [
        {"metric": "quality", "difference": number(-0.05, 0.01, "anytime-valid"), "limit": -0.01, "crossed": True}
    ]
    past = {
        "policy_id": "alpha",
        "version": "20260201T000000",
        "run_id": "20260201T000000",
        "from": "2026-02-01T00:00:00+00:00",
        "to": "2026-02-09T00:00:00+00:00",
        "stage": "rolled_back",
        "percent": 10.0,
        "why": "quality",
        "predicted": {"quality": {"value": 0.02, "low": -0.005, "high": 0.045, "kind": "asymptotic", "forecast": None}},
        "realised": metrics,
        "arms": {"treatment": {"decisions": 431}, "control": {"decisions": 4000}},
        "ratio": None,
    }
    now = {
        **dict.fromkeys(("service", "policy_id"), "alpha"),
        "version": "20260301T021500Z",
        "revision": 2,
        "stage": "shadow",
        "percent": 0.0,
        "since": "2026-03-01T00:00:00+00:00",
        "run_id": RUN,
        "verdict": "deploy",
        "folder": "bundles/alpha",
    }
    state = {"format": 1, **now, "steps": [], "predicted": {}, "monitor": None, "timeline": [], "history": [past]}
    (full / "rollouts").mkdir()
    (full / "rollouts" / "alpha.json").write_text(json.dumps(state))
    at = show(service="alpha")
    assert not at.exception
    assert "Rollout of 20260201T000000, from 2026-02-01, 431 decisions under it" in text(at)
    assert "no" in table(at, "past-1")
    assert figures_of(table(at, "past-1"))[1] == ("seen_quality", -0.05, -0.05 - 0.01, -0.05 + 0.01)


def test_a_service_without_a_suggestion_says_why_no_method_was_tried(full: Path) -> None:
    keep(
        full / "runs" / RUN,
        "delta",
        "backtest",
        {**backtest(), "trials": [], "counts": [], "chosen": [], "in_force": [], "refused": "only 9 decisions"},
    )
    at = show(service="delta")
    assert not at.exception
    assert "No method was tried." in text(at)
    assert "Not tested: only 9 decisions." in text(at)
    assert "there was no rollout" in text(at)


def test_refused_methods_are_drawn_in_words(full: Path) -> None:
    at = show(service="beta-agent")
    assert not at.exception
    assert "only 14 effective decisions" in text(at)
    assert "No backtest kept" in text(at)


@pytest.mark.parametrize(
    "content", ["{half", '{"trials": []}', json.dumps({**backtest(), "trials": [{"metric": "x"}]})]
)
def test_a_damaged_file_is_a_state_of_the_page(content: str, full: Path) -> None:
    keep(full / "runs" / RUN, "alpha", "backtest", content)
    at = show(service="alpha")
    assert not at.exception
    assert "backtest-alpha.json" in text(at)


def test_a_damaged_rollout_is_a_state_of_the_page(full: Path) -> None:
    (full / "rollouts").mkdir()
    (full / "rollouts" / "alpha.json").write_text("{half")
    at = show(service="alpha")
    assert not at.exception
    assert "is damaged" in text(at)


def test_what_can_and_cannot_be_tested_is_said(full: Path) -> None:
    said = text(show(service="alpha"))
    assert "Cannot be tested from logs" in said
    assert "What a choice gives where the log never made it" in said


def test_an_older_run_is_chosen_by_the_url(full: Path) -> None:
    older = full / "runs" / "20260301T021500Z-older"
    shutil.copytree(full / "runs" / RUN, older)
    (older / "backtest-alpha.json").unlink()
    judged = older / "verdicts.json"
    judged.write_text(judged.read_text().replace(RUN, older.name))
    assert "No backtest kept" in text(show(service="alpha", run=older.name))
    assert "No backtest kept" not in text(show(service="alpha"))


def test_wide_intervals_run_off_the_axis_and_keep_their_numbers() -> None:
    from dashboard.axes import of
    from dashboard.records import figure, verdict

    alpha = verdict("alpha", RUN, verdicts()["services"]["alpha"])
    axis = of(alpha)[0]
    rows = [
        ("DR", figure(number(0.4, 0.1))),
        ("LS", figure(number(0.4, 90.0, "certified"))),
        ("DM", figure(refused("no"))),
    ]
    drawn = estimators_charts.forest(rows, axis, theme.LIGHT).to_dict()
    (values,) = [one for one in drawn["datasets"].values() if one and "kind" in one[0]]
    assert values[1]["high"] < 1
    assert "90" in values[1]["text"]
    assert set(METRICS) == {"cost_usd_per_1k", "quality", "latency_s"}
