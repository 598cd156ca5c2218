"""The page on rollouts: what it shows is what the state says, only operators act, bundles are the exporters' own."""

from __future__ import annotations

import io
import json
import re
import zipfile
from dataclasses import asdict, replace
from html import unescape
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from dashboard_fixture import RUN, verdicts, write_run
from pages_shown import html
from pages_shown import line as text
from pages_shown import show as show_page
from rollout_world import SERVICE, judged_run
from streamlit.testing.v1 import AppTest

from dashboard import data, exports, figures, rollout_charts, rollout_data, theme
from dashboard.records import figure
from optimizer import cli, rollout
from optimizer.rollout import state

PATIENCE_S = 30
OPERATOR = {"is_logged_in": True, "email": "ops@example.com"}
ROLES = '[dashboard]\noperators = ["ops@example.com"]\nviewers = ["*@example.com"]\n'


def show(user: dict[str, Any] | None = None, **query: str) -> AppTest:
    at = show_page("rollout", user=user or {}, **query)
    assert not at.exception
    return at


def difference(value: float, half: float) -> dict[str, Any]:
    return {"value": value, "low": value - half, "high": value + half, "kind": "anytime-valid"}


def watched(metric: str, value: float, half: float, limit: float | None, **more: Any) -> dict[str, Any]:
    known = {"treatment": 0.9, "control": 0.91, "alike": True}
    seen = {"metric": metric, "difference": difference(value, half), "reason": "", "limit": limit, "crossed": False}
    return {**seen, "units": 900, "known": known, "predicted": None, **more}


def canary(home: Path, **more: Any) -> state.Rollout:
    """A canary with two looks, as its file holds it."""
    begun = rollout.start(home, SERVICE, by="ann", why="first").rollout
    at = ["2026-11-26T09:00:00+00:00", "2026-11-28T09:00:00+00:00"]
    arm = {"decisions": 812, "units": 640, "scored": 0.9, "cost_usd_per_1k": 0.021, "quality": 0.81, "latency_s": 0.9}
    monitor = {
        "at": at[1],
        "looks": 2,
        "unit": "session",
        "held": 0,
        "failed": 0,
        "arms": {"treatment": arm, "control": {**arm, "quality": None}},
        "metrics": [
            watched("cost_usd_per_1k", -1.5, 0.4, 0.0),
            watched("quality", -0.2, 0.05, -0.05, crossed=True),
            watched("latency_s", 0.0, 0.0, None, difference=None, reason="300 of each arm are needed"),
        ],
        "ratio": {"expected": 0.2, "seen": 0.1, "p_anytime": 0.0004, "ok": False},
        "shadow": None,
    }
    looks = [
        {"at": when, "metric": "cost_usd_per_1k", "value": -1.5, "low": -1.5 - h, "high": -1.5 + h, "decisions": n}
        for when, h, n in zip(at, (0.9, 0.4), (300, 900), strict=True)
    ]
    steps = (
        *begun.steps,
        state.Step(at[0], "canary", 20.0, 3, "ops@example.com", "<script>alert(1)</script>"),
    )
    found = replace(begun, stage="canary", percent=20.0, revision=3, steps=steps, monitor=monitor, timeline=looks)
    found = replace(found, **more)
    state.write(home, found)
    return found


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("RETROUTE_HOME", str(tmp_path))
    (tmp_path / "retroute.toml").write_text(ROLES)
    return tmp_path


@pytest.fixture
def judged(home: Path) -> Path:
    """A home whose policy is real, with a verdict that pages can read."""
    policy = judged_run(home, RUN)
    said = verdicts()["services"]["alpha"] | {"run_id": RUN, "policy_id": SERVICE, "bundle": None}
    (policy.parent.parent / "verdicts.json").write_text(json.dumps({"services": {SERVICE: said}}))
    return home


def test_empty_home_says_what_to_do(home: Path) -> None:
    assert "Nothing has arrived yet" in text(show())


def test_before_any_rollout_reader_sees_how_to_begin_and_no_button(judged: Path) -> None:
    at = show()
    assert "Not rolled out" in text(at)
    assert f"retroute rollout start --service {SERVICE}" in text(at)
    assert not at.text_input


def test_page_shows_the_numbers_of_the_rollout_on_the_axes_of_all_pages(judged: Path) -> None:
    found = canary(judged)
    at = show()
    assert "A canary of 20%" in text(at)
    shown = {
        metric: tuple(map(float, numbers))
        for metric, *numbers in re.findall(
            r'data-metric="(\w+)" data-value="([^"]+)" data-low="([^"]+)" data-high="([^"]+)"', html(at)
        )
    }
    assert found.monitor is not None
    cost, quality, _ = (one["difference"] for one in found.monitor["metrics"])
    # A cost that falls is a saving.
    assert shown["cost_usd_per_1k_change"] == (-cost["value"], -cost["high"], -cost["low"])
    assert shown["quality_change"] == (quality["value"], quality["low"], quality["high"])
    assert "300 of each arm are needed" in text(at)
    assert "Beyond the limit for certain: this must go back." in text(at)
    assert "The arms are not as drawn: 10.0% under the policy where 20.0% were drawn" in text(at)
    ahead = figures.said(figure(verdicts()["services"]["alpha"]["savings_usd_per_1k"]), "usd_change")
    assert f"Predicted {ahead.value} ({ahead.interval})" in text(at)
    cells = re.findall(r"<td[^>]*>([^<]*)</td>", html(at).partition('data-table="arms"')[2].partition("</table>")[0])
    assert unescape(" | ".join(cells)) == (
        "The policy | 640 | 812 | 90% | $0.021 | 81.0% | 0.90\xa0s | "
        "Today's routing | 640 | 812 | 90% | $0.021 | unknown | 0.90\xa0s"
    )
    assert "<script>" not in html(at)


def test_timeline_draws_each_look_with_its_interval_and_each_stage(judged: Path) -> None:
    found = canary(judged)
    looks = rollout_data.timeline(found, rollout_data.METRICS[0])
    assert looks.select("value", "low", "high").rows() == [(1.5, 0.6, 2.4), (1.5, 1.1, 1.9)]
    assert rollout_data.steps(found)["text"].to_list() == ["shadow", "20%"]
    change = rollout_data.changes(found)[0]
    drawn = rollout_charts.timeline(looks, rollout_data.steps(found), change, theme.LIGHT).to_dict()
    assert [layer["mark"]["type"] for layer in drawn["layer"]] == ["rule", "area", "line", "circle", "rule", "text"]


@pytest.mark.parametrize("user", [{}, {"is_logged_in": True, "email": "cfo@example.com"}])
def test_only_operators_have_buttons(user: dict[str, Any], judged: Path) -> None:
    canary(judged)
    at = show(user)
    assert not at.text_input
    assert not [button for button in at.button if "roll" in button.label.lower() or "go on" in button.label.lower()]
    assert f"retroute rollout rollback --service {SERVICE}" in text(at)


def press(at: AppTest, label: str) -> AppTest:
    (button,) = (one for one in at.button if one.label == label)
    return button.click().run()


def test_operator_starts_and_goes_back_with_a_reason_in_the_log(judged: Path) -> None:
    at = show(OPERATOR)
    press(at, "Start in shadow")
    assert "Say why first" in text(at)
    assert state.read(judged, SERVICE) is None
    at.text_input(key=f"why-{SERVICE}").set_value("quiet <b>week</b>")
    press(at, "Start in shadow")
    assert not at.exception
    assert "Done." in text(at)
    assert "In shadow" in text(at)
    at.text_input(key=f"why-{SERVICE}").set_value("odd answers")
    press(at, "Roll back")
    assert "Rolled back" in text(at)
    log = [json.loads(line) for line in (judged / "rollouts" / "log.jsonl").read_text().splitlines()]
    assert [(one["by"], one["action"], one["why"]) for one in log] == [
        ("ops@example.com", "start", "quiet <b>week</b>"),
        ("ops@example.com", "rollback", "odd answers"),
    ]
    assert "odd answers" in text(at)
    assert "<b>" not in html(at)


def test_action_that_is_refused_says_why_and_changes_nothing(judged: Path) -> None:
    rollout.start(judged, SERVICE, by="ann", why="first")
    at = show(OPERATOR)
    at.text_input(key=f"why-{SERVICE}").set_value("sooner")
    press(at, "Go on to 5%")
    assert not at.exception
    found = state.read(judged, SERVICE)
    assert found is not None
    assert found.stage == "shadow"
    assert "Done." not in text(at)
    assert at.text_input  # still usable


@pytest.mark.parametrize("content", ["{", "[]", '{"format": 9}', '{"format": 1}', '{"format": 1, "steps": 3}'])
def test_damaged_rollout_leaves_the_rest_of_the_page(content: str, judged: Path) -> None:
    (judged / "rollouts").mkdir()
    (judged / "rollouts" / f"{SERVICE}.json").write_text(content)
    (judged / "rollouts" / "log.jsonl").write_text('{"service"\n[1]\n\xff\n', encoding="latin-1")
    at = show()
    assert "This rollout cannot be read" in text(at)
    assert "Take it away" in text(at)


def test_bundle_made_by_a_click_verifies(judged: Path, tmp_path: Path) -> None:
    at = show()
    at.button(key=f"make-litellm-{SERVICE}-{RUN}").click().run()
    assert not at.exception
    (given,) = at.get("download_button")
    assert given.proto.label == "Download"
    made = data.bundle(data.runs()[0].services[SERVICE], "litellm")
    assert isinstance(made, data.Bundle)
    with zipfile.ZipFile(io.BytesIO(made.content)) as archive:
        archive.extractall(tmp_path / "taken")
    done = CliRunner().invoke(cli.cli, ["bundle", "verify", str(tmp_path / "taken" / SERVICE)])
    assert done.exit_code == 0, done.output


@pytest.mark.parametrize(
    ("target", "manifest", "verdict", "said"),
    [
        ("litellm", {"actions": ["a", "b"]}, "deploy", ""),
        ("agents", {"actions": ["a", "STOP"]}, "deploy", ""),
        ("litellm", {"actions": ["a", "STOP"]}, "deploy", "only the app that runs the agents"),
        ("onnx", {"actions": ["a"], "sticky": True}, "deploy", "keeps a session's action"),
        ("rules", {"actions": ["a|think"]}, "deploy", "not a strategy"),
        ("litellm", {"actions": ["shop"]}, "deploy", "name of one of its models"),
        ("litellm", {"actions": ["a"]}, "keep", "retroute export --unproven"),
        ("litellm", {}, "deploy", ""),
    ],
)
def test_what_cannot_be_taken_says_why(target: Any, manifest: Any, verdict: str, said: str) -> None:
    found = exports.unfit(target, manifest, "shop", verdict)
    assert (said in found) if said else found == ""


def test_policies_of_all_services_are_listed_and_a_damaged_one_says_so(home: Path) -> None:
    write_run(home)
    at = show(service="gamma")
    assert "retroute export --unproven" in text(at)
    (home / "runs" / RUN / "policy" / "gamma" / "manifest.json").write_text("{")
    assert f"Run {RUN} suggests no policy for gamma" in text(show(service="gamma"))
    at = show(service="alpha")  # its manifest names no files
    at.button(key=f"make-onnx-alpha-{RUN}").click().run()
    assert not at.exception
    assert not at.get("download_button")


def test_past_rollouts_lay_what_was_predicted_beside_what_came_out(judged: Path) -> None:
    found = canary(judged)
    assert found.monitor is not None
    past = {
        "version": "20260101T000000",
        "from": "2026-01-01T00:00:00+00:00",
        "to": "2026-01-02T00:00:00+00:00",
        "stage": "rolled_back",
        "percent": 5.0,
        "predicted": {"quality": difference(0.02, 0.01)},
        "realised": found.monitor["metrics"],
    }
    state.write(judged, replace(found, history=(past,)))
    said = text(show())
    assert "Rolled back, 5%" in said
    assert "+2.0 points (+1.0 to +3.0 points)" in said
    assert asdict(found)["history"] == ()
