"""A rollout end to end: a policy that decides by its exported bundle, spans through the real ingest, and what the
monitor makes of them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from polars.testing import assert_frame_equal
from rollout_world import SERVICE, App, judged_run

from ingest.errors import UsageError, WorkError
from optimizer import cli, config, rollout, runs
from optimizer.rollout import Rollout, reading, state


@pytest.fixture
def stored(tmp_path: Path) -> App:
    """Its spans go through the real ingest."""
    judged_run(tmp_path, "r1")
    return App(tmp_path, tmp_path / "bundle")


@pytest.fixture
def app(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> App:
    """A look finds what was sent without a lake, which takes seconds: `test_a_look_finds_what_was_sent` says that both
    are the same."""
    judged_run(tmp_path, "r1")
    app = App(tmp_path, tmp_path / "bundle", stores=False)
    monkeypatch.setattr(
        reading, "decisions", lambda _home, _settings, _service, _policy, version, since: app.arrived(version, since)
    )
    return app


def begin(app: App, percent: float = 0.0) -> Rollout:
    return rollout.start(app.home, SERVICE, by="ann", why="first", percent=percent, bundle=app.bundle).rollout


def look(app: App) -> Rollout:
    (done,) = rollout.watch(app.home, config.load(app.home))
    return done.rollout


def metric(found: Rollout, name: str) -> dict:
    assert found.monitor is not None
    return next(one for one in found.monitor["metrics"] if one["metric"] == name)


def test_a_good_policy_goes_from_shadow_to_full_and_back(stored: App) -> None:
    app = stored
    # Shadow: the incumbent answers, and each decision says what the policy would have done.
    assert (begin(app).stage, app.router().canary) == ("shadow", 0.0)
    decisions = app.serve(150)
    assert {(one.arm, one.action, one.propensity, one.shadow) for one in decisions} == {
        ("control", "large", 1.0, "small")
    }

    # Canary: 20 % of sessions, both arms compared.
    found = rollout.advance(app.home, SERVICE, by="ann", percent=20, why="runs").rollout
    assert (found.stage, found.percent, found.revision) == ("canary", 20, 3)
    seen = found.monitor
    assert seen is not None
    assert seen["shadow"] == {"decisions": 150, "changed": 150, "actions": {"small": 150}}
    assert (seen["arms"]["treatment"]["decisions"], seen["arms"]["control"]["decisions"]) == (0, 150)
    assert (seen["ratio"]["expected"], seen["ratio"]["seen"], seen["ratio"]["ok"]) == (0.0, 0.0, True)
    decisions = app.serve(800)
    treated = sum(one.arm == "treatment" for one in decisions)

    # Full: everyone, and exploration stays.
    found = rollout.advance(app.home, SERVICE, by="ann", percent=100).rollout
    assert (found.stage, app.router().canary, app.router().model.epsilon) == ("full", 1.0, 0.05)
    assert runs.active(app.home) == {SERVICE: "r1"}
    seen = found.monitor
    assert seen is not None
    assert seen["arms"]["treatment"]["decisions"] == treated
    assert seen["arms"]["control"]["decisions"] == 800 - treated + 150
    cost = metric(found, "cost_usd_per_1k")
    assert cost["difference"]["kind"] == "asymptotic anytime-valid"
    # small takes 95 % + 2.5 % of treatment at a tenth of the price: (0.975 * 0.25 + 0.025 * 2.5 - 2.5) USD per 1,000
    assert cost["difference"]["low"] <= -2.19 <= cost["difference"]["high"] < 0
    assert metric(found, "quality")["difference"]["kind"] == "anytime-valid"
    assert metric(found, "latency_s")["difference"]["high"] < 0
    assert not any(one["crossed"] for one in seen["metrics"])
    assert cost["predicted"]["of"] == "the estimate"
    assert metric(found, "latency_s")["predicted"] is None
    assert [point["metric"] for point in found.timeline[-3:]] == ["cost_usd_per_1k", "quality", "latency_s"]
    assert {one.arm for one in app.serve(40)} == {"treatment"}

    # Back: there was no policy before, so the incumbent is alone.
    found = rollout.rollback(app.home, SERVICE, by="bob", why="odd answers").rollout
    assert (found.stage, found.restored, found.percent, found.revision) == ("rolled_back", None, 0.0, 5)
    assert found.monitor is not None
    assert found.monitor["arms"]["treatment"]["decisions"] == treated + 40
    assert found.monitor["ratio"]["ok"]
    alone = app.router().decide({"messages": "hello"})
    assert (alone.action, alone.reason) == ("large", "disabled")
    with pytest.raises(UsageError, match="nothing to roll back"):
        rollout.rollback(app.home, SERVICE, by="bob")
    with pytest.raises(UsageError, match="cannot go on"):
        rollout.advance(app.home, SERVICE, by="bob")

    steps = [(step.stage, step.percent, step.revision, step.by, step.why) for step in found.steps]
    assert steps == [
        ("shadow", 0.0, 2, "ann", "first"),
        ("canary", 20, 3, "ann", "runs"),
        ("full", 100, 4, "ann", ""),
        ("rolled_back", 0.0, 5, "bob", "odd answers"),
    ]
    log = [json.loads(line) for line in (app.home / "rollouts" / "log.jsonl").read_text().splitlines()]
    assert [(line["action"], line["by"], line["stage"]) for line in log] == [
        ("start", "ann", "shadow"),
        ("advance", "ann", "canary"),
        ("advance", "ann", "full"),
        ("rollback", "bob", "rolled_back"),
    ]

    # The next policy finds in the history what was predicted of this one and what came out.
    judged_run(app.home, "r2")
    (past,) = rollout.start(app.home, SERVICE, by="ann").rollout.history
    assert (past["version"], past["stage"], past["why"]) == ("r1", "rolled_back", "odd answers")
    cost = past["predicted"]["cost_usd_per_1k"]
    assert (cost["value"], cost["low"], cost["high"], cost["kind"]) == (-1.6, -2.0, -1.2, "asymptotic")
    assert [one["difference"] is not None for one in past["realised"]] == [True, True, True]


def test_a_look_finds_what_was_sent(stored: App) -> None:
    begin(stored, percent=50)
    stored.serve(60, turns=2, scored=0.5)
    found = reading.decisions(stored.home, config.load(stored.home), SERVICE, SERVICE, "r1", 0)
    assert_frame_equal(found, stored.arrived("r1", 0).sort("time_ns", "trace_id"))


def test_a_harmful_policy_is_rolled_back_to_the_one_before_without_anybody(app: App) -> None:
    judged_run(app.home, "r0", choice="large")
    rollout.start(app.home, SERVICE, by="ann", percent=100, run_id="r0", bundle=app.bundle)
    done = rollout.start(app.home, SERVICE, by="ann", percent=20, run_id="r1")
    assert done.notes == ("version r0 is kept to go back to; it serves the other 80 % of sessions",)
    assert done.rollout.control == "r0"
    app.right = {"small": 0.3, "large": 0.9}
    app.serve(500)
    found = look(app)
    assert (found.stage, found.restored, found.percent) == ("rolled_back", "r0", 100.0)
    assert found.steps[-1].by == "watch"
    assert "quality differs by" in found.steps[-1].why
    assert "anytime-valid), beyond the limit -5.0 points" in found.steps[-1].why
    router = app.router()
    assert (router.version, router.revision, router.canary) == ("r0", found.revision, 1.0)
    assert router.revision > 3
    assert rollout.watch(app.home, config.load(app.home)) == []  # nothing is under way any more


def test_lost_spans_of_one_arm_stop_the_rollout_and_are_said(app: App) -> None:
    begin(app, percent=50)
    app.serve(400, lost=0.4)
    assert look(app).monitor["ratio"]["ok"] is False  # type: ignore[index]
    with pytest.raises(
        WorkError, match=r"arms are as drawn: 3\d\.\d% under the policy where 50\.0% were drawn"
    ) as told:
        rollout.advance(app.home, SERVICE, by="ann")
    assert "look for requests that lose their policy.* attributes" in told.value.message
    assert rollout.status(app.home, SERVICE).stage == "canary"
    forced = rollout.advance(app.home, SERVICE, by="ann", percent=60, why="known", force=True).rollout
    assert forced.steps[-1].why.startswith("known (forced although arms are as drawn: ")


def test_too_little_is_not_enough(app: App) -> None:
    begin(app)
    app.serve(20)
    with pytest.raises(WorkError, match="enough sessions at this stage: 20 of control; needed: at least 100"):
        rollout.advance(app.home, SERVICE, by="ann")
    assert rollout.status(app.home, SERVICE).monitor is not None  # the look is kept all the same


def test_a_slow_policy_is_beyond_the_limit_of_latency(app: App) -> None:
    begin(app, percent=50)
    app.seconds = {"small": 4.0, "large": 1.0}
    app.serve(400)
    found = look(app)
    assert (found.stage, metric(found, "latency_s")["crossed"]) == ("rolled_back", True)
    assert "latency differs by +2." in found.steps[-1].why


def test_without_scores_quality_is_unknown_and_never_zero(app: App) -> None:
    begin(app, percent=50)
    app.serve(300, scored=0.0)
    found = look(app)
    quality = metric(found, "quality")
    assert (quality["difference"], quality["crossed"], quality["units"]) == (None, False, 0)
    assert quality["reason"] == "scores of both arms are needed; there are 0 of treatment and 0 of control"
    assert found.monitor["arms"]["treatment"]["quality"] is None  # type: ignore[index]
    with pytest.raises(WorkError, match="quality stays: scores of both arms are needed"):
        rollout.advance(app.home, SERVICE, by="ann")


def test_a_session_counts_once(app: App) -> None:
    begin(app, percent=50)
    app.serve(150, turns=3)
    seen = look(app).monitor
    assert seen is not None
    assert seen["unit"] == "session"
    arms = seen["arms"].values()
    assert (sum(arm["decisions"] for arm in arms), sum(arm["units"] for arm in arms)) == (450, 150)


def test_the_state_reads_back_and_names_what_is_wrong(app: App) -> None:
    begun = begin(app, percent=20)
    app.serve(60)
    found = look(app)
    assert state.read(app.home, SERVICE) == found
    assert (found.steps, found.began) == (begun.steps, begun.since)
    file = app.home / "rollouts" / f"{SERVICE}.json"
    said = json.loads(file.read_text())
    assert said["format"] == 1
    assert said["steps"][0].keys() == {"at", "stage", "percent", "revision", "by", "why"}
    file.write_text("{")
    with pytest.raises(UsageError, match="is damaged"):
        rollout.status(app.home, SERVICE)
    file.write_text(json.dumps({**said, "format": 2}))
    with pytest.raises(UsageError, match="another version"):
        rollout.status(app.home, SERVICE)
    with pytest.raises(UsageError, match="has no rollout"):
        rollout.status(app.home, "other")


def test_the_command_line_starts_watches_and_says_where_it_stands(
    app: App, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("RETROUTE_HOME", str(app.home))
    of_service = ["--service", SERVICE]
    started = ["rollout", "start", *of_service, "--percent", "50", "--out", str(app.bundle), "--why", "try it"]
    assert cli.run(started) == 0
    assert "revision 2, a canary, 50 % of sessions since" in capsys.readouterr().out
    app.right = {"small": 0.8, "large": 0.8}
    app.serve(300)
    assert cli.run(["rollout", "watch"]) == 0
    shown = capsys.readouterr().out
    assert "look 1 at" in shown
    assert " under the policy, 50.0% drawn, as drawn" in shown
    assert cli.run(["rollout", "status", *of_service, "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert (said["stage"], said["steps"][0]["why"], said["monitor"]["looks"]) == ("canary", "try it", 1)
    assert cli.run(["rollout", "advance", *of_service, "--percent", "40"]) == 2
    assert "40 % is no more than the 50 % of now" in capsys.readouterr().err
    app.right = {"small": 0.1, "large": 0.8}
    app.serve(300)
    assert cli.run(["rollout", "advance", *of_service]) == 1  # beyond a limit: neither --force nor time helps
    error = capsys.readouterr().err
    assert "assistant must not go on: quality differs by" in error
    assert cli.run(["rollout", "watch", "--every", "1"]) == 0  # ends with the last rollout
    assert "in force: the incumbent alone" in capsys.readouterr().out
    assert cli.run(["rollout", "rollback", *of_service]) == 2
    assert cli.run(["rollout", "watch"]) == 0
    assert capsys.readouterr().out == "No rollout is under way.\n"
