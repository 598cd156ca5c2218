"""The pages Evidence, Frontier and Exploration plan: what they show is what the run keeps, in every state."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest
from dashboard_fixture import write_run
from kept_run import RUN, Studied, studied, write
from pages_shown import html, show
from pages_shown import line as text
from streamlit.testing.v1 import AppTest

from dashboard import figures
from dashboard.records import Figure, figure
from optimizer import runs
from optimizer.at_price import at_price_json, grid

PATIENCE_S = 60


PAGES = ("evidence", "frontier", "plan")
SERVICES = ("guessed", "never", "tried")


def shown(at: AppTest, metric: str) -> tuple[float, ...]:
    found = re.search(rf'data-metric="{metric}" data-value="([^"]+)" data-low="([^"]*)" data-high="([^"]*)"', html(at))
    assert found, metric
    return tuple(float(one) for one in found.groups())


def charts(at: AppTest) -> list[str]:
    """Of each chart, its specification and its data as they are sent."""
    return [str(element.proto) for element in at.get("vega_lite_chart")]


def numbers(said: dict) -> tuple[float, ...]:
    return said["value"], said["low"], said["high"]


@pytest.fixture(scope="module")
def found() -> dict[str, Studied]:
    return {name: studied(name) for name in SERVICES}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory, found: dict[str, Studied]) -> Path:
    home = tmp_path_factory.mktemp("kept")
    write(home, found)
    return home


@pytest.fixture
def empty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("RETROUTE_HOME", str(tmp_path))
    return tmp_path


@pytest.fixture
def home(made: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home to look at, not to write to."""
    monkeypatch.setenv("RETROUTE_HOME", str(made))
    return made


@pytest.fixture
def copy(made: Path, empty: Path) -> Path:
    shutil.copytree(made, empty, dirs_exist_ok=True)
    return empty


def kept_file(home: Path, service: str, kind: runs.Kept) -> Path:
    return home / "runs" / RUN / runs.kept_name(service, kind)


@pytest.mark.parametrize("view", PAGES)
def test_an_empty_home_says_what_to_do(view: str, empty: Path) -> None:
    at = show(view)
    assert not at.exception
    assert "retroute" in text(at)
    assert "nothing has arrived yet" in text(at).lower() or "connect" in text(at).lower()


@pytest.mark.parametrize("view", PAGES)
@pytest.mark.parametrize("service", SERVICES)
def test_every_service_is_shown_without_a_fault(view: str, service: str, home: Path) -> None:
    at = show(view, service=service)
    assert not at.exception
    assert at.query_params["service"] == service


@pytest.mark.parametrize(("view", "title"), [("evidence", "No evidence kept"), ("plan", "No plan kept")])
def test_a_run_from_before_says_so(view: str, title: str, empty: Path) -> None:
    write_run(empty)
    at = show(view, service="alpha")
    assert not at.exception
    assert title in text(at)


@pytest.mark.parametrize("view", ["evidence", "plan"])
@pytest.mark.parametrize("content", ["", "[]", '{"format": 1}', '{"unit": 3, "exploration": null}'])
def test_a_damaged_file_is_a_state_of_its_page(view: str, content: str, copy: Path) -> None:
    kept_file(copy, "tried", "evidence" if view == "evidence" else "plan").write_text(content)
    at = show(view, service="tried")
    assert not at.exception
    assert runs.kept_name("tried", "evidence" if view == "evidence" else "plan") in text(at)
    assert not show("frontier" if view == "plan" else "plan", service="guessed").exception


def test_a_run_that_does_not_know_the_service_says_so(copy: Path, found: dict[str, Studied]) -> None:
    write(copy, {"tried": found["tried"]}, run_id="20260402T020000")
    at = show("evidence", service="never", run="20260402T020000")
    assert not at.exception
    assert "Not judged in this run" in text(at)


# ---- evidence


def test_the_answer_names_effective_decisions_and_what_fails(home: Path, found: dict[str, Studied]) -> None:
    said = text(show("evidence", service="guessed"))
    support = found["guessed"].said["support"]
    assert f"{figures.count(support['effective'])} effective decisions speak for the suggestion" in said
    assert "Probabilities are known fails" in said
    assert "No. The choice follows the prompt" in text(show("evidence", service="never"))


def test_the_heat_map_holds_the_kept_cells_and_hatches_what_was_not_tried(home: Path) -> None:
    at = show("evidence", service="never")
    kept = json.loads(kept_file(home, "never", "evidence").read_text())
    (heat,) = [chart for chart in charts(at) if "hatch" in chart]
    assert "untried" in heat
    assert len(kept["segments"]) == 2
    assert "today's routing in words" in text(at)


def test_fixed_rules_are_printed(home: Path) -> None:
    assert "at most 1 lines dear 100% 50%" in text(show("evidence", service="never"))


def test_heaviest_decisions_lead_to_their_traces(home: Path, found: dict[str, Studied]) -> None:
    heaviest = found["tried"].evidence["weights"]["largest"][0]["trace_id"]
    assert f'href="traces?service=tried&amp;trace={heaviest}"' in html(show("evidence", service="tried"))


def test_the_tipping_point_is_said_where_probabilities_are_estimated(home: Path, found: dict[str, Studied]) -> None:
    gamma = found["guessed"].findings.hidden_odds
    said = text(show("evidence", service="guessed"))
    assert "Even if nothing hidden" in said if gamma is None else "unless hidden causes shift the odds" in said
    assert "nothing hidden moved a choice" in text(show("evidence", service="tried"))


def test_names_with_markup_are_text(copy: Path) -> None:
    file = kept_file(copy, "never", "evidence")
    said = file.read_text().replace("at most 1 lines", "<script>alert(1)</script>").replace("dear", "<b>dear</b>")
    file.write_text(said)
    at = show("evidence", service="never")
    assert not at.exception
    assert "<script>" not in html(at)
    assert "<b>dear" not in html(at)


# ---- frontier


def test_at_the_own_price_the_page_shows_the_verdict(home: Path, found: dict[str, Studied]) -> None:
    at = show("frontier", service="tried")
    said = found["tried"].said
    assert shown(at, "priced_savings_usd_per_1k") == numbers(said["savings_usd_per_1k"])
    assert shown(at, "priced_quality_change") == numbers(said["quality_change"])
    assert shown(at, "priced_latency_change_s") == numbers(said["latency_change_s"])
    assert "This run's own price" in text(at)


def test_another_price_shows_what_the_kept_scores_give(home: Path, found: dict[str, Studied]) -> None:
    kept = found["tried"].kept()
    value = grid(kept.value_usd)[-1]
    at = show("frontier", service="tried", price=f"{value:.4g}")
    said = at_price_json(kept.at(value))  # type: ignore[arg-type]
    assert shown(at, "priced_savings_usd_per_1k") == numbers(said["savings_usd_per_1k"])
    assert shown(at, "priced_quality_change") == numbers(said["quality_change"])
    assert "Exploratory" in text(at)
    assert f"{100 * said['confidence']:.4g}% each" in text(at)
    assert any(f"value_usd = {value:.4g}" in element.value for element in at.code)


def test_the_slider_moves_the_price_and_the_url(home: Path, found: dict[str, Studied]) -> None:
    at = show("frontier", service="tried")
    value = f"{grid(found['tried'].kept().value_usd)[3]:.4g}"
    at = at.select_slider[0].set_value(value).run()
    assert not at.exception
    assert "Exploratory" in text(at)
    assert at.query_params["price"] == value


def test_limits_are_drawn(home: Path, found: dict[str, Studied]) -> None:
    from dashboard import frontier_charts, records

    verdict = records.verdict("tried", RUN, found["tried"].said)
    today = next(row for row in verdict.table if row.policy == "today")
    assert frontier_charts.limit(verdict, "quality") == pytest.approx(today.quality.span[0] - 0.02)
    assert frontier_charts.limit(verdict, "latency") == pytest.approx(today.latency.span[0] + 0.5)
    at = show("frontier", service="tried")
    quality, latency = charts(at)[:2]
    for chart in (quality, latency):
        assert "at:Q" in chart or '\\"at\\"' in chart


def test_candidates_are_on_both_panels(home: Path, found: dict[str, Studied]) -> None:
    from dashboard import frontier_charts, records

    verdict = records.verdict("tried", RUN, found["tried"].said)
    for metric in ("quality", "latency"):
        spots = frontier_charts.spots(verdict, metric, None)  # type: ignore[arg-type]
        assert {spot.role for spot in spots} >= {"today", "suggested", "other"}


def test_without_a_suggestion_there_is_nothing_to_slide(home: Path) -> None:
    at = show("frontier", service="never")
    assert not at.select_slider
    assert "Nothing to slide: nothing is suggested." in text(at)


def test_kept_scores_that_are_damaged_are_a_state_of_other_prices(copy: Path, found: dict[str, Studied]) -> None:
    kept_file(copy, "tried", "judged_scores").write_bytes(b"no table")
    other = f"{grid(found['tried'].kept().value_usd)[0]:.4g}"
    at = show("frontier", service="tried", price=other)
    assert not at.exception
    assert "judged_scores-tried.parquet" in text(at)
    assert "This run's own price" in text(show("frontier", service="tried"))


# ---- plan


def test_the_plan_shows_its_numbers(home: Path, found: dict[str, Studied]) -> None:
    at = show("plan", service="guessed")
    plan = found["guessed"].plan["exploration"]["plan"]
    assert shown(at, "plan_cost_usd_per_day") == numbers(plan["cost_usd_per_day"])
    assert shown(at, "plan_quality_per_day") == numbers(plan["quality_per_day"])
    assert f"{figures.count(plan['decisions'])} decisions" in text(at)
    part = plan["segments"][0]
    for arm, share in part["draw"].items():
        assert f"{figures.share(share)} (today {figures.share(part['today'][arm])})" in text(at)
    assert any("retroute plan --service guessed --export guessed-exploration" in one.value for one in at.code)


def test_scores_to_have_are_planned(home: Path, found: dict[str, Studied]) -> None:
    budget = found["guessed"].plan["labels"]["budget"]
    at = show("plan", service="guessed")
    assert f"Have {figures.count(budget)} of" in text(at)
    assert any(f"--budget {budget}" in one.value for one in at.code)


def test_a_budget_changes_what_is_bought_and_stands_in_the_url(copy: Path) -> None:
    file = kept_file(copy, "guessed", "plan")
    said = json.loads(file.read_text())
    said["exploration"]["plan"]["cost_usd_per_day"] |= {"value": 1.0, "low": 0.5, "high": 2.0}
    file.write_text(json.dumps(said))
    at = show("plan", service="guessed")
    assert "100% of traffic takes part" in text(at)
    at = at.number_input[1].set_value(0.5).run()
    assert not at.exception
    assert "25% of traffic takes part" in text(at)
    assert at.query_params["day"] == "0.5"
    assert "25% of requests" in text(at)


@pytest.mark.parametrize("nonsense", ["x", "-3", "nan", "1e400"])
def test_a_budget_that_is_no_number_is_no_budget(nonsense: str, home: Path) -> None:
    at = show("plan", service="guessed", total=nonsense)
    assert not at.exception


def test_a_decided_service_has_no_plan(copy: Path) -> None:
    file = kept_file(copy, "tried", "plan")
    said = json.loads(file.read_text())
    said["exploration"] |= {"decided": True, "plan": None}
    file.write_text(json.dumps(said))
    at = show("plan", service="tried")
    assert not at.exception
    assert "nothing to find out" in text(at).lower()


def test_traces_of_many_steps_have_a_drawn_step(copy: Path) -> None:
    file = kept_file(copy, "tried", "plan")
    said = json.loads(file.read_text())
    said |= {"unit": "trace", "labels": None, "actions": ["writer", "STOP"], "drawn": 0.2}
    said["exploration"] |= {"plan": None, "steps": {"text": "draw a step", "decisions_needed": 900, "days": 4.5}}
    file.write_text(json.dumps(said))
    at = show("plan", service="tried")
    assert not at.exception
    assert "draw writer 10%" in text(at)
    assert "go on as the app does 80%" in text(at)


# ---- the demo


@pytest.mark.parametrize("view", PAGES)
def test_the_demo_is_shown_whole(view: str, finished_demo, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RETROUTE_HOME", str(finished_demo.home))
    for service, said in finished_demo.result["services"].items():
        at = show(view, service=service)
        assert not at.exception, service
        if view == "frontier" and said["policy_id"] and said["orchestration"] is None:
            for name in ("savings_usd_per_1k", "quality_change", "latency_change_s"):
                told: Figure = figure(said[name])
                if not told.refused:
                    assert shown(at, f"priced_{name}") == told.span


def test_steps_of_the_demo_hold_every_judging_trace(finished_demo) -> None:
    """At the first step all traces are there and the policy takes something in each; later in fewer."""
    result = finished_demo.result["services"]["sql-agent"]
    run = finished_demo.home / "runs" / result["run_id"]
    kept = json.loads((run / runs.kept_name("sql-agent", "evidence")).read_text())
    assert kept["unit"] == "trace"
    first = kept["segments"][0]
    assert first["rows"] == kept["judged"] == sum(cell["logged"] for cell in first["cells"])
    taken = [sum(cell["policy_share"] for cell in one["cells"]) for one in kept["segments"]]
    assert taken[0] == pytest.approx(1.0)
    assert max(taken[1:]) < 1.0
    assert kept["weights"]["effective"] == result["support"]["effective"]


def test_aggregates_lead_down_to_traces(home: Path) -> None:
    assert 'href="traces?service=tried&amp;action=cheap"' in html(show("evidence", service="tried"))
    assert 'href="traces?service=tried&amp;decision=changed"' in html(show("frontier", service="tried"))
    assert 'href="traces?service=guessed&amp;unscored=1"' in html(show("plan", service="guessed"))
