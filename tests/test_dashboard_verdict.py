"""The verdict read by somebody who has never seen it: four answers, the pages behind them, coverage, and filters."""

from __future__ import annotations

import json
import re
import shutil
from html import unescape
from pathlib import Path

import pytest
from dashboard_fixture import RUN, number, verdicts, write_run
from kept_fixture import backtest, keep, regressions
from pages_shown import html, text
from pages_shown import show as show_page
from streamlit.testing.v1 import AppTest

from dashboard import brief, figures, words
from dashboard.brief import Behind
from dashboard.records import ServiceVerdict, figure, verdict
from optimizer.rollout.state import Rollout

QUESTIONS = ["What does it save?", "How certain is that?", "What could go wrong?", "What to do next?"]
OLDER = "20260301T021500Z-older"


def show(**query: str) -> AppTest:
    return show_page("verdict", **{"from" if name == "since" else name: value for name, value in query.items()})


def headlines(at: AppTest) -> dict[str, str]:
    found = re.findall(r'<h2 class="rr-eyebrow">(.*?)</h2><p class="rr-headline">(.*?)</p>', html(at))
    return {unescape(question): unescape(answer).replace("\xa0", " ") for question, answer in found}


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("RETROUTE_HOME", str(tmp_path))
    return tmp_path


@pytest.fixture
def full(home: Path) -> Path:
    folder = write_run(home)
    keep(folder, "alpha", "backtest", backtest())
    keep(folder, "alpha", "regressions", regressions())
    return home


def record(name: str, **more: object) -> ServiceVerdict:
    return verdict(name, RUN, {**verdicts()["services"][name], **more})


def lines(name: str, question: int, behind: Behind | None = None, **more: object) -> list[str]:
    found = brief.answers(record(name, **more), behind or Behind(), lambda view, **params: view)
    return [line.replace("\xa0", " ") for line in (found[question].headline, *found[question].lines)]


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("alpha", ["Saves", "Certain enough to act on", "1 segment loses quality", "Roll it out"]),
        ("beta-agent", ["Would save", "A saving is certain", "1 condition fails", "Gather what is missing"]),
        ("gamma", ["Would cost", "Not certain enough", "2 conditions fail", "Leave today's"]),
        ("delta", ["Not known", "Not known", "1 condition fails", "Run a small experiment"]),
    ],
)
def test_every_verdict_answers_the_four_questions(name: str, said: list[str], full: Path) -> None:
    at = show(service=name)
    assert not at.exception
    found = headlines(at)
    assert list(found) == QUESTIONS
    for answer, start in zip(found.values(), said, strict=True):
        assert answer.startswith(start)


def test_the_saving_is_the_monthly_one_with_its_interval_and_what_it_is_of(full: Path) -> None:
    said = verdicts()["services"]["alpha"]["savings_usd_per_1k"]
    thousands = 3500 / 7 * words.MONTH_DAYS / 1000
    month = figure({**said, **{key: thousands * said[key] for key in ("value", "low", "high")}})
    at = show(service="alpha")
    assert headlines(at)["What does it save?"] == f"Saves {figures.said(month, 'usd').value} a month"
    assert f"95% interval: {figures.said(month, 'usd').interval} a month." in text(at)
    assert "at 15,000 decisions a month, the pace of the log" in text(at)
    assert "Today costs $1.050 per 1,000: 39% less." in text(at)


def test_every_answer_leads_to_the_pages_behind_it(full: Path) -> None:
    at = show(service="alpha")
    links = set(re.findall(r'href="(\w+)\?service=alpha', html(at)))
    assert links >= {"spend", "frontier", "evidence", "estimators", "segments", "quality", "rollout", "routing"}
    assert "plan?service=delta" in html(show(service="delta"))


def test_certainty_says_kind_coverage_and_past_predictions(full: Path) -> None:
    told = text(show(service="alpha"))
    assert "asymptotic: right for large samples" in told
    assert "The 1,750 decisions that judge it count as 412 that followed it; 100 are needed." in told
    assert "90% of 3,500 decisions have a score, and for 100% the router logged how likely each choice was." in told
    assert "Of 32 predictions" in told


def test_risks_begin_with_what_fails_and_name_who_loses() -> None:
    risks = lines("beta-agent", 2)
    assert risks[1].startswith("Quality stays fails: +0.4 points, at least -2.7")
    assert any("Quality may change by −2.7 points" in line for line in risks)
    assert len(risks) <= brief.MOST_RISKS + 1


def test_a_slower_policy_and_estimated_chances_are_risks() -> None:
    risks = lines("gamma", 2)
    assert any(line.startswith("Answers take longer: +0.81 s") for line in risks)
    assert any("probabilities were estimated" in line for line in risks) or len(risks) == brief.MOST_RISKS + 1


def test_stated_chances_are_told_apart_from_logged_ones() -> None:
    stated = {"data": {"decisions": 100, "propensity_origin": {"logged": 60, "stated": 40, "estimated": 0}}}
    told, risks = lines("alpha", 1, **stated), lines("alpha", 2, **stated)
    assert any(line.endswith("for 60% the router logged how likely each choice was.") for line in told)
    assert "For 40% a file of this home states it, by the gateway's weights." in told
    assert any(line.startswith("Some probabilities are stated by a file") for line in risks)
    assert not any("probabilities were estimated" in line for line in risks)


def test_segments_that_lose_are_a_risk_though_every_condition_holds(full: Path) -> None:
    told = text(show(service="alpha"))
    assert "Quality falls past the limit in 1 segment: Prompt length: over 90 characters." in told


def test_an_interval_that_is_no_loss_says_so() -> None:
    sure = {"quality_change": number(0.05, 0.01)}
    assert "Quality: even the low end of its interval is no loss." in lines("alpha", 2, **sure)


def test_methods_that_part_are_a_risk() -> None:
    parted = {"disagreement": {"quality": "DM and DR differ by 3.1 standard errors: the outcome model is off"}}
    assert "Of quality, DM and DR differ by 3.1 standard errors: the outcome model is off." in lines(
        "alpha", 2, **parted
    )


def test_the_next_step_of_a_deployable_policy_is_its_rollout() -> None:
    headline, *more = lines("alpha", 3)
    assert headline == "Roll it out, a small part first"
    assert "`retroute rollout start --service alpha`" in more[0]


def test_under_a_rollout_the_next_step_is_to_watch_it() -> None:
    base = {
        "service": "alpha",
        "policy_id": "alpha",
        "version": "v7",
        "revision": 3,
        "since": "2026-03-01T00:00:00+00:00",
    }
    rollout = Rollout(**base, stage="canary", percent=5.0, run_id=RUN, verdict="deploy", folder="x")  # type: ignore[arg-type]
    headline, said = lines("alpha", 3, Behind(rollout=rollout))
    assert headline == "Watch its rollout"
    assert said == "Version v7 serves a part of the sessions (5%)."


def test_what_would_decide_it_is_the_next_step_where_the_log_cannot_tell(full: Path) -> None:
    said = verdicts()["services"]["delta"]["plan"]["text"]
    assert any(said in line for line in lines("delta", 3))


def test_gauges_show_the_coverage_of_the_run(full: Path) -> None:
    found = {one.name: (one.share, one.least) for one in brief.gauges(record("gamma"))}
    assert found["Scored"] == (0.9, 0.5)
    assert found["Chances logged"] == (0.0, 1.0)
    assert found["Tried"] == (1.0, 0.99)
    assert found["Priced"] == (1 - 12 / 2000, None)
    at = show(service="gamma")
    assert re.findall(r'aria-label="([^"]+)"', html(at)) == [
        "90%, 50% needed",
        "0%, 100% needed",
        "100%, 99% needed",
        "99.4%",
    ]
    assert html(at).count("rr-short") == 1


def test_texts_from_outside_are_escaped_in_the_answers(home: Path) -> None:
    content = verdicts()
    content["services"] = {"x<b>": {**content["services"]["beta-agent"]}}
    content["services"]["x<b>"]["reasons"][1]["got"] = "<script>alert(1)</script>"
    content["services"]["x<b>"]["plan"] = {"text": "<img src=x> `code`"}
    write_run(home, content=content)
    at = show(service="x<b>")
    assert not at.exception
    assert "<script>" not in html(at)
    assert "<img" not in html(at)
    assert "<code>code</code>" in html(at)


def test_the_overview_says_what_each_service_is_worth_a_month(full: Path) -> None:
    at = show()
    assert len(re.findall(r"a month \(", text(at))) == 2
    assert "a month" not in text(at).partition("gamma")[2]  # not suggested, or not known


@pytest.fixture
def two_runs(full: Path) -> Path:
    older = full / "runs" / OLDER
    shutil.copytree(full / "runs" / RUN, older)
    said = json.loads((older / "verdicts.json").read_text().replace(RUN, OLDER))
    said["services"] = {"alpha": {**said["services"]["alpha"], "verdict": "keep"}}
    (older / "verdicts.json").write_text(json.dumps(said))
    about = json.loads((older / "manifest.json").read_text())
    (older / "manifest.json").write_text(json.dumps({**about, "created_at": "2026-03-01T02:15:00+00:00"}))
    return full


def test_an_older_policy_is_chosen_by_the_url(two_runs: Path) -> None:
    at = show(service="alpha", run=OLDER)
    assert not at.exception
    assert "<h1>Keep today's routing</h1>" in html(at)
    assert f"Run {OLDER}" in text(at)
    assert "<h1>Deploy</h1>" in html(show(service="alpha"))


def test_days_choose_among_the_runs_made_in_them(two_runs: Path) -> None:
    assert "<h1>Keep today's routing</h1>" in html(show(service="alpha", to="2026-03-02"))
    assert "<h1>Deploy</h1>" in html(show(service="alpha", since="2026-03-09"))
    at = show(service="alpha", since="2026-04-01")
    assert not at.exception
    assert "No verdict here" in text(at)


def test_a_run_that_does_not_know_the_service_says_so(two_runs: Path) -> None:
    at = show(service="gamma", run=OLDER)
    assert not at.exception
    assert "No verdict here" in text(at)


@pytest.mark.parametrize("kind", ["backtest", "regressions"])
def test_a_damaged_kept_file_hides_no_verdict(kind: str, full: Path) -> None:
    keep(full / "runs" / RUN, "alpha", kind, "{half")
    at = show(service="alpha")
    assert not at.exception
    assert "<h1>Deploy</h1>" in html(at)
    assert f"{kind}-alpha.json" in text(at)
    assert list(headlines(at)) == QUESTIONS


def test_a_run_from_before_answers_by_what_it_has(home: Path) -> None:
    write_run(home)
    at = show(service="alpha")
    assert not at.exception
    assert headlines(at)["What could go wrong?"] == "No condition fails"
